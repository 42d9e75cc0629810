"""The real recordings of the benchmark, by file name, and how they are read and binned.

To add a recording, add one entry to `RECORDINGS`; ``docs/real_recordings.md`` says what it needs.
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

# Stretches between two gaps in the clock that are shorter than this are left out. A larger value
# leaves out more data; a smaller one keeps more short epochs. Not tuned.
_SHORTEST_RUN_SECONDS = 5.0
# A time step is a gap if it is longer than this many median steps. One missing sample gives a step
# of 2; values close to 1 would take the jitter of the clock for gaps. Not tuned.
_GAP = 1.5


@dataclass(frozen=True)
class RealLabel:
    """A label of a recording of the benchmark.

    Parameters
    ----------
    kind : {"continuous", "circular", "discrete"}
    entries : tuple of str
        Entries of the file that are the columns of the label. If empty, the entry has the name of
        the label.
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
        Number of units. Foreign neurons are taken first from recordings with many units.
    animal : str
        Name of the animal. Neurons and labels of the same animal are never foreign to each other.
    labels : mapping of str to RealLabel
        All labels of the recording; the first one is the main label.
    bins_ms : tuple of float
        Allowed bin sizes in milliseconds, in increasing order. For files with counts they are
        multiples of the first one, which is the bin size of the file.
    main_bin_ms : float
        Bin size of the parts of the benchmark that use one bin size only.
    spikes : bool
        True if the file holds spike times (.nwb), False if it holds counts (.npz).
    carriers : mapping of str to tuple of int
        For labels whose carriers are known: the indices of the units that carry the label. All
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
        """The label of the parts of the benchmark that use one label only."""
        return next(iter(self.labels))

    def nearest_bin(self, bin_ms: float) -> float:
        """Return the allowed bin size whose ratio to ``bin_ms`` is closest to one."""
        return min(self.bins_ms, key=lambda size: abs(np.log(size / bin_ms)))


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
    # It is not known whether the next two recordings are of the same rat, so they have the same
    # animal here.
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
    """A folder with some of the recordings, under the file names in `RECORDINGS`."""

    path: str

    def files(self) -> tuple[str, ...]:
        """Return the file names of the recordings in the folder, in the order of `RECORDINGS`.

        Raises
        ------
        ValueError
            If the folder does not exist, or contains none of the recordings.
        """
        folder = Path(self.path)
        if not folder.is_dir():
            raise InputError(f"there is no folder {self.path!r}; give the folder of the recordings")
        present = tuple(name for name in RECORDINGS if (folder / name).is_file())
        if not present:
            raise InputError(
                f"the folder {self.path!r} holds none of the recordings; known are "
                f"{', '.join(RECORDINGS)}"
            )
        return present


def read_recording(folder: str, file: str, bin_ms: float) -> Recording:
    """Read one of the recordings with all its labels.

    Parameters
    ----------
    folder : str
        Folder of the recordings.
    file : str
        One of `RECORDINGS`.
    bin_ms : float
        One of the recording's ``bins_ms``.

    Returns
    -------
    Recording
        Circular labels have one column, in radians.
    """
    info = RECORDINGS[file]
    if bin_ms not in info.bins_ms:
        raise InputError(f"bin_ms={bin_ms!r} is not one of {info.bins_ms} of {file!r}")
    path = Path(folder) / file
    if info.spikes:
        entries = {name: list(spec.entries or (name,)) for name, spec in info.labels.items()}
        angles = [name for name, spec in info.labels.items() if spec.kind == "circular"]
        return read(path, labels=entries, bin_size=bin_ms / 1000, circular=angles)
    with np.load(path) as archive:
        counts, time = archive["neural"], archive["time"].astype(np.float64)
        labels = {name: archive[name] for name in info.labels}
        units = archive["unit"].tolist() if "unit" in archive else range(counts.shape[1])
    factor = round(bin_ms / info.bins_ms[0])
    runs = _uninterrupted(time, max(factor, round(1000 * _SHORTEST_RUN_SECONDS / info.bins_ms[0])))
    rows = _rows_of_bins(runs, factor)
    lengths = [(stop - start) // factor for start, stop in runs]
    ends = np.cumsum(lengths)
    return Recording(
        neural=counts[rows].sum(axis=1, dtype=np.float32),
        labels={
            name: bin_label(values[rows], info.labels[name].kind) for name, values in labels.items()
        },
        epochs=list(zip((ends - lengths).tolist(), ends.tolist(), strict=True)),  # type: ignore[arg-type]
        neuron_names=tuple(str(unit) for unit in units),
        time=time[rows].mean(axis=1),
    )


def bin_label(values: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """Reduce the samples of each bin to one value.

    Parameters
    ----------
    values : ndarray of shape (n_bins, n_samples_per_bin) or (n_bins, n_samples_per_bin, n_columns)
    kind : {"continuous", "circular", "discrete"}
        The value is the mean, the circular mean of angles in radians, or the middle sample.

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
    """Make a `Label`, as the estimator does.

    Parameters
    ----------
    name : str
    values : ndarray of shape (n_times,) or (n_times, n_columns)
    kind : {"continuous", "circular", "discrete"}
    """
    columns = np.asarray(values)
    return make_label(name, columns.reshape(len(columns), -1), LabelSpec(kind=kind))


def _uninterrupted(time: NDArray[np.float64], shortest: int) -> list[tuple[int, int]]:
    """Return (start, stop) of stretches without a gap, with at least ``shortest`` samples."""
    steps = np.diff(time)
    cuts = np.flatnonzero(steps > _GAP * np.median(steps)) + 1
    edges = [0, *cuts.tolist(), len(time)]
    return [(start, stop) for start, stop in pairwise(edges) if stop - start >= shortest]


def _rows_of_bins(runs: list[tuple[int, int]], factor: int) -> NDArray[np.int64]:
    """Return the samples of each bin, of shape (n_bins, factor); no bin crosses a gap."""
    parts = []
    for start, stop in runs:
        n = (stop - start) // factor
        parts.append(np.arange(start, start + n * factor).reshape(n, factor))
    return np.concatenate(parts)
