"""Neurodata Without Borders: spike times, traces, behaviour and trials, by their names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.formats.contents import Contents, Entry, Series
from xcebra.formats.objects import from_pynapple
from xcebra.recording import Recording
from xcebra.storage import atomically

# Types of NWB whose columns are neurons.
_ACTIVITY = ("RoiResponseSeries",)
_TRUTH = "ground_truth"


@contextmanager
def open_nwb(path: Path) -> Iterator[Contents]:
    """What is in a file; large series are read when they are used, before it is closed.

    Raises
    ------
    ValueError
        If it is damaged or no NWB file.
    """
    try:
        import pynapple
        import pynwb  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{path}: reading it needs pynapple and pynwb; install them with: "
            "pip install 'xcebra[nwb]'"
        ) from error
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = pynapple.NWBFile(str(path))
    except Exception as error:
        told = " ".join(str(error).split())
        raise ValueError(
            f"{path}: is damaged or no NWB file ({told}); write or download it again"
        ) from None
    try:
        yield _contents(opened, path)
    finally:
        opened.close()


def _contents(opened: Any, path: Path) -> Contents:
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    for name in opened:
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                entry = from_pynapple(opened[name])
            for each in told:
                if "sorted" in str(each.message):
                    raise ValueError("has times that go back; times must increase: sort them")
            kind = type(opened.nwb.objects[opened.key_to_id[name]]).__name__
            if isinstance(entry, Series) and kind in _ACTIVITY:
                entry = Series(entry.values, entry.times, entry.columns, activity=True)
            entries[name] = entry
        except Exception as error:
            unread[name] = " ".join(str(error).split()) or type(error).__name__
    if not entries:
        reasons = "; ".join(f"{name!r} {why}" for name, why in unread.items())
        raise ValueError(f"{path}: has nothing over time in it{': ' if reasons else ''}{reasons}")
    return Contents(str(path), entries, unread, {_TRUTH: _truth(opened.nwb)})


def _truth(nwb: Any) -> dict[str, NDArray[np.bool_]]:
    """Known wiring of a simulated recording, if the file has it."""
    if _TRUTH not in (nwb.scratch or {}):
        return {}
    table = nwb.scratch[_TRUTH]
    return {name: np.asarray(table[name].data[:], dtype=bool) for name in table.colnames}


def write_nwb(
    path: str | os.PathLike[str], recording: Recording, *, spikes: bool, description: str
) -> None:
    """Write a recording, as spike times if ``spikes`` or as a series with a column per neuron.

    Whole numbers of spikes are spread evenly inside their bins, so that bins of the same width
    have the same numbers again.
    """
    from hdmf.common import DynamicTable, VectorData
    from pynwb import NWBHDF5IO, NWBFile, TimeSeries
    from pynwb.behavior import BehavioralTimeSeries

    assert recording.time is not None
    time = recording.time
    width = float(np.median(np.diff(time)))
    nwb = NWBFile(
        session_description=description,
        identifier=Path(path).stem,
        session_start_time=datetime(2000, 1, 1, tzinfo=UTC),
    )
    if spikes:
        names = recording.neuron_names
        for i in range(recording.n_neurons):
            nwb.add_unit(
                spike_times=_spread(recording.neural[:, i], time, width), id=_number(names, i)
            )
    else:
        nwb.add_acquisition(
            TimeSeries(name="neural", data=recording.neural, unit="a.u.", timestamps=time)
        )
    behaviour = nwb.create_processing_module("behavior", "what was measured beside the neurons")
    series = [
        TimeSeries(name=name, data=values, unit="a.u.", timestamps=time)
        for name, values in recording.labels.items()
    ]
    if series:
        behaviour.add(BehavioralTimeSeries(time_series=series))
    for start, stop in recording.epochs.pairs():
        first, last = time[start] - width / 2, time[stop - 1] + width / 2
        nwb.add_epoch(round(float(first), 9), round(float(last), 9))
    if recording.ground_truth:
        columns = [
            VectorData(name=name, description=f"connected to {name}", data=np.asarray(connected))
            for name, connected in recording.ground_truth.items()
        ]
        nwb.add_scratch(DynamicTable(name=_TRUTH, description="known wiring", columns=columns))
    with warnings.catch_warnings():
        # It is written under a passing name, and moved when it is complete.
        warnings.filterwarnings("ignore", "The file path provided", UserWarning)
        with atomically(path) as partial, NWBHDF5IO(str(partial), "w") as io:
            io.write(nwb)


def _spread(counts: NDArray[Any], time: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    numbers = counts.astype(np.int64)
    starts = np.repeat(time - width / 2, numbers)
    first = np.repeat(np.cumsum(numbers) - numbers, numbers)
    rank = np.arange(len(starts)) - first
    return starts + width * (rank + 0.5) / np.repeat(numbers, numbers)


def _number(names: tuple[str, ...], i: int) -> int:
    return int(names[i]) if names[i].isdigit() else i
