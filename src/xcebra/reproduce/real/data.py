"""The real recordings of the benchmark, known by file name, and how each is read and binned.

To add a recording, add one entry to `RECORDINGS`; ``docs/real_benchmark.md`` says what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.labels import Label, LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.io import read

# Stretches between gaps in the clock that are shorter than this are left out.
_SHORTEST_RUN_SECONDS = 5.0
_GAP = 1.5


@dataclass(frozen=True)
class RealLabel:
    """A label of a recording.

    Parameters
    ----------
    kind : {"continuous", "circular", "discrete"}
    entries : tuple of str
        Entries of the file that are its columns; the label's own name if empty.
    """

    kind: str
    entries: tuple[str, ...] = ()


@dataclass(frozen=True)
class RealRecording:
    """A recording of the benchmark.

    Parameters
    ----------
    title : str
        Name in the tables.
    n_units : int
        Recordings with many units lend their neurons to others first.
    animal : str
        Neurons and labels of the same animal are never taken as foreign to each other.
    labels : mapping of str to RealLabel
        Every label that the recording has; the first is the main one.
    bins_ms : tuple of float
        Allowed bin sizes in milliseconds; for counts, multiples of the first one.
    main_bin_ms : float
        Bin size of the fits that are made with one bin size only.
    spikes : bool
        The file holds spike times (.nwb), not counts (.npz).
    carriers : mapping of str to tuple of int
        Labels for which it is known which units carry them, and the indices of these units; all
        other units are known not to carry it.
    """

    title: str
    n_units: int
    animal: str
    labels: Mapping[str, RealLabel]
    bins_ms: tuple[float, ...]
    main_bin_ms: float
    spikes: bool = False
    carriers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def main_label(self) -> str:
        """The label of the fits that are made with one label only."""
        return next(iter(self.labels))

    def nearest_bin(self, bin_ms: float) -> float:
        """The allowed bin size that is nearest, as a ratio."""
        return min(self.bins_ms, key=lambda each: abs(np.log(each / bin_ms)))


_PLACE = RealLabel("continuous")
_SPEED = RealLabel("continuous")

RECORDINGS: Mapping[str, RealRecording] = {
    "head_direction.nwb": RealRecording(
        title="head direction",
        n_units=15,
        animal="A2929",
        labels={
            "heading": RealLabel("circular", ("ry",)),
            "position": RealLabel("continuous", ("x", "z")),
        },
        bins_ms=(20.0, 50.0, 100.0, 200.0),
        main_bin_ms=50.0,
        spikes=True,
        carriers={"heading": (0, 1, 2, 3, 4, 5, 6)},
    ),
    "place_cells.npz": RealRecording(
        title="place cells",
        n_units=63,
        animal="RatGPS",
        labels={"position": _PLACE, "speed": _SPEED},
        bins_ms=(20.0, 40.0, 100.0, 200.0),
        main_bin_ms=40.0,
    ),
    "entorhinal_hippocampal.npz": RealRecording(
        title="entorhinal and hippocampal",
        n_units=50,
        animal="ec013",
        labels={
            "position": _PLACE,
            "position_xy": _PLACE,
            "velocity": _SPEED,
            "direction": RealLabel("discrete"),
            "led_angle": RealLabel("circular"),
        },
        bins_ms=(25.6, 51.2, 102.4, 204.8),
        main_bin_ms=51.2,
    ),
    # Whether the two hippocampal recordings are of one rat is not known, so they count as one.
    "hippocampus_linear-track.npz": RealRecording(
        title="linear track",
        n_units=26,
        animal="nelpy",
        labels={"position": _PLACE, "speed": _SPEED},
        bins_ms=(50.0, 100.0, 200.0),
        main_bin_ms=50.0,
    ),
    "hippocampus_w-maze.npz": RealRecording(
        title="w-maze",
        n_units=23,
        animal="nelpy",
        labels={"position": _PLACE, "speed": _SPEED},
        bins_ms=(50.0, 100.0, 200.0),
        main_bin_ms=50.0,
    ),
    "grid_cells.npz": RealRecording(
        title="grid cells",
        n_units=10,
        animal="M851",
        labels={
            "position": _PLACE,
            "speed": _SPEED,
            "movement_direction": RealLabel("circular"),
            "light_epoch": RealLabel("discrete"),
        },
        bins_ms=(20.0, 40.0, 100.0, 200.0),
        main_bin_ms=100.0,
    ),
}


@dataclass(frozen=True)
class RealFolder:
    """A folder that holds some of the recordings, under the names in `RECORDINGS`."""

    path: str

    def files(self) -> tuple[str, ...]:
        """The recordings that are there, in the order of `RECORDINGS`.

        Raises
        ------
        ValueError
            If there is no such folder, or none of the recordings is in it.
        """
        folder = Path(self.path)
        if not folder.is_dir():
            raise InputError(f"there is no folder {self.path!r}; give the folder of the recordings")
        there = tuple(name for name in RECORDINGS if (folder / name).is_file())
        if not there:
            raise InputError(
                f"the folder {self.path!r} holds none of the recordings; known are "
                f"{', '.join(RECORDINGS)}"
            )
        return there


def read_recording(folder: str, file: str, bin_ms: float) -> Recording:
    """Read one of the recordings with all its labels.

    Parameters
    ----------
    folder : str
    file : str
        One of `RECORDINGS`.
    bin_ms : float
        One of the recording's ``bins_ms``.

    Returns
    -------
    Recording
        Angles are one column in radians.
    """
    about = RECORDINGS[file]
    if bin_ms not in about.bins_ms:
        raise InputError(f"bin_ms={bin_ms!r} is not one of {about.bins_ms} of {file!r}")
    path = Path(folder) / file
    if about.spikes:
        entries = {name: list(each.entries or (name,)) for name, each in about.labels.items()}
        angles = [name for name, each in about.labels.items() if each.kind == "circular"]
        return read(path, labels=entries, bin_size=bin_ms / 1000, circular=angles)
    with np.load(path) as held:
        counts, time = held["neural"], held["time"].astype(np.float64)
        labels = {name: held[name] for name in about.labels}
        units = held["unit"].tolist() if "unit" in held else range(counts.shape[1])
    factor = round(bin_ms / about.bins_ms[0])
    runs = _uninterrupted(time, max(factor, round(1000 * _SHORTEST_RUN_SECONDS / about.bins_ms[0])))
    rows = _rows_of_bins(runs, factor)
    lengths = [(stop - start) // factor for start, stop in runs]
    ends = np.cumsum(lengths)
    return Recording(
        neural=counts[rows].sum(axis=1, dtype=np.float32),
        labels={
            name: bin_label(values[rows], about.labels[name].kind)
            for name, values in labels.items()
        },
        epochs=list(zip((ends - lengths).tolist(), ends.tolist(), strict=True)),  # type: ignore[arg-type]
        neuron_names=tuple(str(unit) for unit in units),
        time=time[rows].mean(axis=1),
    )


def bin_label(values: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """One value for each bin.

    Parameters
    ----------
    values : ndarray of shape (n_bins, n_samples_per_bin) or (n_bins, n_samples_per_bin, n_columns)
    kind : {"continuous", "circular", "discrete"}
        A mean, a circular mean of angles in radians, or the sample in the middle.

    Returns
    -------
    ndarray of shape (n_bins, n_columns)
    """
    columns = values if values.ndim == 3 else values[:, :, None]
    if kind == "discrete":
        return columns[:, columns.shape[1] // 2].astype(np.float64)
    columns = columns.astype(np.float64)
    if kind == "circular":
        return np.arctan2(np.sin(columns).mean(axis=1), np.cos(columns).mean(axis=1))
    return columns.mean(axis=1)


def label_of(name: str, values: NDArray[Any], kind: str) -> Label:
    """The label as the estimator understands it."""
    columns = np.asarray(values)
    return make_label(name, columns.reshape(len(columns), -1), LabelSpec(kind=kind))


def _uninterrupted(time: NDArray[np.float64], shortest: int) -> list[tuple[int, int]]:
    """Stretches without a gap in the clock, of at least so many samples."""
    steps = np.diff(time)
    cuts = np.flatnonzero(steps > _GAP * np.median(steps)) + 1
    edges = [0, *cuts.tolist(), len(time)]
    return [(start, stop) for start, stop in pairwise(edges) if stop - start >= shortest]


def _rows_of_bins(runs: list[tuple[int, int]], factor: int) -> NDArray[np.int64]:
    """Samples of each bin, of shape (n_bins, factor); no bin crosses a gap."""
    parts = []
    for start, stop in runs:
        n = (stop - start) // factor
        parts.append(np.arange(start, start + n * factor).reshape(n, factor))
    return np.concatenate(parts)
