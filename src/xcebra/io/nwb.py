"""Neurodata Without Borders: read spike times, traces, behaviour and trials; write recordings."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError, InputTypeError, MissingExtraError
from xcebra.common.files import atomically
from xcebra.data.label_info import LabelInfo, infos_from_plain, plain_infos
from xcebra.data.recording import Recording
from xcebra.data.units import UnitTable, plain_units, units_from_plain
from xcebra.io.clock import spans
from xcebra.io.contents import Contents, Entry, Intervals, Series, Spikes, check_times
from xcebra.io.nwb_tables import as_text, roi_table, simple_columns, unit_table

# Types of NWB whose columns are neurons.
_ACTIVITY = ("RoiResponseSeries",)
# Groups of series that say what the series are.
_CONTAINERS = (
    "Position",
    "CompassDirection",
    "EyeTracking",
    "PupilTracking",
)
# Texts that stand for no unit.
_NO_UNIT = ("a.u.", "au", "n/a", "no unit", "unknown", "arbitrary", "None", "")
_TRUTH = "ground_truth"
_NAMES = "neuron_names"
_UNITS = "unit_table"
_LABELS = "label_info"


@contextmanager
def open_nwb(path: Path) -> Iterator[Contents]:
    """Open a file and give its contents; a context manager.

    Large series are read when they are used, which must be before the file is closed.

    Raises
    ------
    ValueError
        If the file is damaged or no NWB file.
    """
    try:
        import pynapple
        from pynwb import NWBHDF5IO
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: reading it needs pynapple and pynwb; install them with: "
            "pip install 'xcebra[nwb]'"
        ) from error
    with ExitStack() as stack:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                io = stack.enter_context(NWBHDF5IO(str(path), "r"))
                opened = pynapple.NWBFile(io.read())
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{path}: is damaged or no NWB file ({reason}); write or download it again"
            ) from None
        yield _contents(opened, path)


def _contents(opened: Any, path: Path) -> Contents:
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    for name in sorted(opened):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entries[name] = _entry(opened.nwb.objects[opened.key_to_id[name]], opened, name)
        except Exception as error:
            unread[name] = " ".join(str(error).split()) or type(error).__name__
    if not entries:
        reasons = "; ".join(f"{name!r} {reason}" for name, reason in unread.items())
        raise InputError(f"{path}: has nothing over time in it{': ' if reasons else ''}{reasons}")
    return Contents(str(path), _with_infos(entries, opened.nwb), unread, _own(opened.nwb))


def _with_infos(entries: dict[str, Entry], nwb: Any) -> dict[str, Entry]:
    """Add what files of this package say of their labels."""
    scratch = nwb.scratch or {}
    if _LABELS not in scratch:
        return entries
    infos = infos_from_plain(json.loads(as_text(np.asarray(scratch[_LABELS].data).item())))
    return {
        name: replace(entry, info=infos[name], columns=infos[name].columns or entry.columns)
        if isinstance(entry, Series) and name in infos
        else entry
        for name, entry in entries.items()
    }


def _entry(item: Any, opened: Any, name: str) -> Entry:
    """Make an entry from an object of the file.

    pynapple gives its name and columns. Times and values are read from the file itself, because
    pynapple changes times that are wrong, and they must be reported instead.
    """
    from pynwb.base import TimeSeries
    from pynwb.epoch import TimeIntervals
    from pynwb.misc import AnnotationSeries, Units

    if isinstance(item, TimeIntervals):
        columns = simple_columns(item, skip=("start_time", "stop_time"))
        return Intervals(item["start_time"].data[:], item["stop_time"].data[:], columns)
    if isinstance(item, Units):
        ids = [str(number) for number in item.id[:]]
        if len(set(ids)) < len(ids):  # numbers that were given twice name no unit
            ids = [str(i) for i in range(len(ids))]
        trains = dict(zip(ids, item["spike_times"][:], strict=True))
        return Spikes(trains, _observed(item), unit_table(item, opened.nwb))
    if isinstance(item, AnnotationSeries) or not isinstance(item, TimeSeries):
        raise InputTypeError(f"is a {type(item).__name__}, which is no series of columns")
    if len(item.data) == 0:
        raise InputError("is empty: it has no samples")
    times = item.timestamps
    if times is None:
        times = item.starting_time + np.arange(len(item.data)) / item.rate
    times = check_times(times[:], len(item.data))
    values = item.data[:] if item.data.ndim == 1 else item.data
    if values.dtype == object:
        values = np.array([as_text(value) for value in values[:].flat]).reshape(item.data.shape)
    titles = getattr(opened[name], "columns", ())
    activity = type(item).__name__ in _ACTIVITY
    unit = "" if item.unit in _NO_UNIT else str(item.unit or "")
    parent = type(item.parent).__name__
    return Series(
        values,
        times,
        tuple(map(str, titles)),
        activity,
        scaling=(float(item.conversion), float(item.offset)),
        info=LabelInfo(unit=unit),
        container=parent if parent in _CONTAINERS else "",
        units=roi_table(item) if activity else {},
    )


def _observed(units: Any) -> Intervals | None:
    """Return the intervals in which every unit was observed; None if the file does not say."""
    if "obs_intervals" not in units.colnames:
        return None
    tables = [np.asarray(table, dtype=float).reshape(-1, 2) for table in units["obs_intervals"][:]]
    # Every start adds one to the number of observed units and every stop subtracts one; at equal
    # times, stops come first.
    borders = np.concatenate([table.T.ravel() for table in tables])
    changes = np.concatenate([np.repeat([1, -1], len(table)) for table in tables])
    order = np.lexsort((changes, borders))
    all_observed = np.cumsum(changes[order]) == len(tables)
    starts = np.flatnonzero(all_observed)
    if len(starts) == 0:
        raise InputError("has no moment at which all units were observed (obs_intervals)")
    return Intervals(borders[order][starts], borders[order][starts + 1])


def _own(nwb: Any) -> dict[str, Any]:
    """Return what only files of this package have: names of neurons and known wiring."""
    scratch = nwb.scratch or {}
    extra: dict[str, Any] = {"of": "units" if nwb.units is not None else "neural"}
    if _NAMES in scratch:
        extra[_NAMES] = tuple(as_text(name) for name in scratch[_NAMES].data[:])
    if _TRUTH in scratch:
        table = scratch[_TRUTH]
        extra[_TRUTH] = {n: np.asarray(table[n].data[:], dtype=bool) for n in table.colnames}
    if _UNITS in scratch:
        text = as_text(np.asarray(scratch[_UNITS].data).item())
        extra["units"] = units_from_plain(json.loads(text))
    return extra


def write_nwb(
    path: str | os.PathLike[str], recording: Recording, *, spikes: bool, description: str
) -> None:
    """Write a recording to an NWB file.

    Parameters
    ----------
    path : path
    recording : Recording
        With ``time``.
    spikes : bool
        Whether to write spike times, or a series with a column per neuron. For spike times the
        activity must be counts. The spikes of each bin are placed evenly inside it, so that the
        counts in bins of the same width are the same again.
    description : str
        Of the session.

    Raises
    ------
    ValueError
        If the recording has no times, a label's name is not possible in NWB, or the activity is
        not whole numbers although ``spikes`` is true.
    """
    from hdmf.common import DynamicTable, VectorData
    from pynwb import NWBHDF5IO, NWBFile, TimeSeries
    from pynwb.behavior import BehavioralTimeSeries

    time, names = recording.time, recording.neuron_names
    if time is None:
        raise InputError(f"{path}: NWB has the time of each sample; give the Recording its time")
    for name in recording.labels:
        if set(name) & set("/:"):
            raise InputError(f"{path}: NWB has no names with / or :, such as {name!r}; rename it")
    numbered = tuple(map(str, range(recording.n_neurons)))
    width = Series(recording.neural, time).interval
    nwb = NWBFile(
        session_description=description,
        identifier=Path(path).stem,
        session_start_time=datetime(2000, 1, 1, tzinfo=UTC),
    )
    if spikes:
        table = _own_columns(recording.units)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "An attribute .* already exists", UserWarning)
            for column in table:
                nwb.add_unit_column(name=column, description=column)
        for i, name in enumerate(names):
            row = {column: _cell(values[i]) for column, values in table.items()}
            train = _spike_times(name, recording.neural[:, i], time, width)
            nwb.add_unit(spike_times=train, id=i, **row)
    else:
        nwb.add_acquisition(
            TimeSeries(name="neural", data=recording.neural, unit="a.u.", timestamps=time)
        )
    behaviour = nwb.create_processing_module("behavior", "what was measured beside the neurons")
    series = [
        TimeSeries(
            name=name,
            data=values,
            unit=recording.label_info[name].unit or "a.u.",
            timestamps=time,
        )
        for name, values in recording.labels.items()
    ]
    if series:
        behaviour.add(BehavioralTimeSeries(time_series=series))
    within = spans(time, recording.epochs, width)
    for start, stop in zip(within.starts, within.stops, strict=True):
        nwb.add_epoch(round(float(start), 9), round(float(stop), 9))
    if names != numbered:
        nwb.add_scratch(list(names), name=_NAMES, description="names of the neurons")
    if recording.ground_truth:
        columns = [
            VectorData(name=name, description=f"connected to {name}", data=np.asarray(connected))
            for name, connected in recording.ground_truth.items()
        ]
        nwb.add_scratch(DynamicTable(name=_TRUTH, description="known wiring", columns=columns))
    if recording.units:
        text = json.dumps(plain_units(recording.units))
        nwb.add_scratch(text, name=_UNITS, description="what is known of the neurons")
    described = plain_infos(recording.label_info)
    if described:
        text = json.dumps(described)
        nwb.add_scratch(text, name=_LABELS, description="kinds, columns and units of the labels")
    with warnings.catch_warnings():
        # The file is written under a temporary name, and renamed when it is complete.
        warnings.filterwarnings("ignore", "The file path provided", UserWarning)
        with atomically(path) as partial, NWBHDF5IO(str(partial), "w") as io:
            io.write(nwb)


def _own_columns(units: UnitTable) -> dict[str, NDArray[Any]]:
    """Return the columns that a unit table of NWB can hold.

    Names with / or : do not exist in NWB, and some others mean something else there.
    """
    from pynwb.misc import Units

    taken = {"id", *(column["name"] for column in Units.__columns__)}
    return {n: values for n, values in units.items() if n not in taken and not set(n) & set("/:")}


def _cell(value: Any) -> Any:
    """Return a value of the unit table as a plain number, truth value or text."""
    return value.item() if isinstance(value, np.generic) else value


def _spike_times(
    name: str, counts: NDArray[Any], time: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Return spike times of a neuron, placed evenly inside each bin."""
    numbers = counts.astype(np.int64)
    if (wrong := np.flatnonzero((numbers != counts) | (numbers < 0))).size:
        raise InputError(
            f"spikes=True needs whole numbers of spikes, but neuron {name!r} has "
            f"{counts[wrong[0]]:g} at sample {wrong[0]}; write it with spikes=False"
        )
    starts = np.repeat(time - width / 2, numbers)
    first = np.repeat(np.cumsum(numbers) - numbers, numbers)
    rank = np.arange(len(starts)) - first
    return starts + width * (rank + 0.5) / np.repeat(numbers, numbers)
