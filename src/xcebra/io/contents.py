"""Contents of a source: named series, spike times and intervals, not yet with a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.label_info import NOTHING_KNOWN, LabelInfo
from xcebra.data.recording import from_objects
from xcebra.data.units import UnitTable

Floats = NDArray[np.float64]
# A series with more columns than this is not taken for a label unless the user names it. Larger
# values take more series for labels that are neural traces or other signals; not tuned.
MOST_LABEL_COLUMNS = 8


@dataclass(frozen=True, eq=False)
class Series:
    """Values over time.

    Parameters
    ----------
    values : ndarray of shape (n_times, n_columns)
    times : ndarray of shape (n_times,), optional
        Seconds, strictly increasing. Rows of series without times belong together by their
        position.
    columns : tuple of str, optional
        Names of the columns.
    activity, label : bool
        Whether the source says that the columns are neurons, or that the series is a label.
    scaling : (float, float)
        Factor by which the values are to be multiplied, and offset that is added afterwards.
    info : LabelInfo
        Kind and unit of the values, as far as the source says them.
    container : str
        Name of the group of series in the file that it belongs to, such as ``"Position"``.
    units : mapping of str to ndarray of shape (n_columns,)
        If the columns are neurons, what the source says of each of them.
    """

    values: NDArray[Any]
    times: Floats | None = None
    columns: tuple[str, ...] = ()
    activity: bool = False
    label: bool = False
    scaling: tuple[float, float] = (1.0, 0.0)
    info: LabelInfo = NOTHING_KNOWN
    container: str = ""
    units: UnitTable = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = self.values[:, None] if self.values.ndim == 1 else self.values
        if isinstance(values, np.ndarray) and values.dtype == object:
            if any(isinstance(value, (list, tuple, np.ndarray)) for value in values.flat):
                raise InputError("has lists in its rows; trials are for Recording.from_trials")
            values = from_objects(values)
        set_ = object.__setattr__
        set_(self, "values", values)
        if values.ndim != 2 or values.shape[1] == 0:
            raise InputError(
                f"has shape {values.shape}; a series has rows over time and one or more columns"
            )
        if len(values) == 0:
            raise InputError("is empty: it has no samples")
        if self.columns and len(self.columns) != values.shape[1]:
            raise InputError(f"has {values.shape[1]} columns, but {len(self.columns)} names")
        if self.times is not None:
            set_(self, "times", check_times(self.times, len(values)))

    def read(self) -> Series:
        """Return the series in memory, with its scaling applied.

        Until this call, large series may be left in their file.
        """
        values = np.asarray(self.values[...])
        if self.scaling != (1.0, 0.0):
            values = values * self.scaling[0] + self.scaling[1]
        return replace(self, values=values, scaling=(1.0, 0.0))

    @property
    def interval(self) -> float:
        """Median time between samples in seconds; 1 if there are no times."""
        if self.times is None or len(self.times) < 2:
            return 1.0
        return float(np.median(np.diff(self.times)))


@dataclass(frozen=True, eq=False)
class Spikes:
    """Spike times of units, in seconds.

    Parameters
    ----------
    trains : mapping of str to ndarray of shape (n_spikes,)
        Spike times of each unit.
    support : Intervals, optional
        When the units were recorded. By default, from the first to the last spike.
    units : mapping of str to ndarray of shape (n_units,)
        What the source says of each unit.
    """

    trains: Mapping[str, Floats]
    support: Intervals | None = None
    units: UnitTable = field(default_factory=dict)
    start: float = field(init=False)
    stop: float = field(init=False)

    def __post_init__(self) -> None:
        if not self.trains:
            raise InputError("is empty: it has no units")
        trains = {}
        for name, spike_times in self.trains.items():
            train = np.asarray(spike_times)
            if train.dtype.kind not in "fiu" or train.ndim != 1:
                raise InputError(f"unit {name!r} must have a list of times in seconds")
            train = train.astype(np.float64)
            if not np.isfinite(train).all():
                i = int(np.flatnonzero(~np.isfinite(train))[0])
                raise InputError(f"unit {name!r} has {train[i]} as spike time {i}; remove it")
            trains[str(name)] = np.sort(train)
        spikes = [train for train in trains.values() if len(train)]
        if not spikes:
            raise InputError("is empty: no unit has a spike")
        set_ = object.__setattr__
        set_(self, "trains", trains)
        if self.support is not None:
            set_(self, "start", float(self.support.starts[0]))
            set_(self, "stop", float(self.support.stops[-1]))
        else:
            set_(self, "start", min(float(train[0]) for train in spikes))
            set_(self, "stop", max(float(train[-1]) for train in spikes))

    @property
    def recorded(self) -> Intervals:
        """When the units were recorded: the support, or from the first to the last spike."""
        if self.support is None and self.start == self.stop:
            raise InputError(f"has spikes at {self.start:g} s only; say epochs, in seconds")
        return self.support or Intervals(np.array([self.start]), np.array([self.stop]))


@dataclass(frozen=True, eq=False)
class Intervals:
    """Stretches of time, in seconds.

    Parameters
    ----------
    starts, stops : ndarray of shape (n_intervals,)
        In increasing order, without overlap.
    columns : mapping of str to ndarray of shape (n_intervals,)
        What the source says of each interval, such as the choice in a trial or the tags of an
        epoch.
    """

    starts: Floats
    stops: Floats
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        starts = np.asarray(self.starts, dtype=np.float64)
        stops = np.asarray(self.stops, dtype=np.float64)
        if len(starts) == 0:
            raise InputError("is empty: it has no intervals")
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if not (np.isfinite([start, stop]).all() and start < stop):
                raise InputError(f"interval {i} goes from {start:g} s to {stop:g} s; correct it")
            if i and start < stops[i - 1]:
                raise InputError(
                    f"interval {i} starts at {start:g} s, before interval {i - 1} stops at "
                    f"{stops[i - 1]:g} s; sort them and merge those that overlap"
                )
        set_ = object.__setattr__
        set_(self, "starts", starts)
        set_(self, "stops", stops)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, eq=False)
class IntervalValues:
    """One value for each of a list of intervals, such as the choice in each trial.

    Parameters
    ----------
    intervals : Intervals
    values : ndarray of shape (n_intervals,)
        Numbers, truth values or text.
    info : LabelInfo
    """

    intervals: Intervals
    values: NDArray[Any]
    info: LabelInfo = NOTHING_KNOWN


Entry = Series | Spikes | Intervals


@dataclass(frozen=True)
class Contents:
    """Everything in one source.

    Parameters
    ----------
    origin : str
        Name of the source in error messages.
    entries : mapping of str to Series, Spikes or Intervals
    unread : mapping of str to str
        Names of the entries that cannot be used, with the reason.
    extra : mapping
        What only files written by this package have: names of neurons, epochs in samples, known
        wiring; and ``of``, the name of the entry that they belong to.
    """

    origin: str
    entries: Mapping[str, Entry]
    unread: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def joined_series(series: Sequence[Series], names: Sequence[str], origin: str, role: str) -> Series:
    """Return one series with the columns of several that have the same times.

    Parameters
    ----------
    series : sequence of Series
    names : sequence of str
        Name of each series. It is the name of its column, or stands before the names of its
        columns if there are several.
    origin, role : str
        Source and argument, for errors.

    Raises
    ------
    ValueError
        If the times differ.
    """
    first = series[0]
    for name, other in zip(names, series, strict=True):
        if not _same_times(first, other):
            raise InputError(
                f"{origin} {names[0]!r} and {name!r} have different times and cannot be columns of "
                f"one {'label' if role == 'labels' else 'array'}; name one of them",
                (role,),
            )
    columns = [
        column
        for name, other in zip(names, series, strict=True)
        for column in (
            [name]
            if other.values.shape[1] == 1
            else [f"{name}/{c}" for c in other.columns or range(other.values.shape[1])]
        )
    ]
    values = np.concatenate([other.values for other in series], axis=1)
    return Series(values, first.times, tuple(columns))


def _same_times(first: Series, second: Series) -> bool:
    """Whether two series have the same number of samples, at the same times if both have times."""
    if len(first.values) != len(second.values):
        return False
    if first.times is None or second.times is None:
        return first.times is second.times
    return bool(np.array_equal(first.times, second.times))


def time_range(entry: Entry | IntervalValues) -> tuple[float, float]:
    """Return when an entry begins and ends in seconds; in samples if it has no times."""
    if isinstance(entry, IntervalValues):
        entry = entry.intervals
    if isinstance(entry, Spikes):
        return entry.start, entry.stop
    if isinstance(entry, Intervals):
        return float(entry.starts[0]), float(entry.stops[-1])
    if entry.times is None:
        return 0.0, float(len(entry.values))
    half = entry.interval / 2
    return float(entry.times[0]) - half, float(entry.times[-1]) + half


def check_times(values: Any, n: int) -> Floats:
    """Check that times are in seconds, one per sample, and strictly increasing.

    Parameters
    ----------
    values : array-like of shape (n,)
        Times in seconds.
    n : int
        Number of samples.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    ValueError
        If they are not, with the first sample that is wrong.
    """
    times = np.asarray(values)
    if times.dtype.kind not in "fiu":
        raise InputError(f"has times of type {times.dtype}; they must be seconds as numbers")
    if times.shape != (n,):
        raise InputError(f"has {n} samples, but {times.size} times; there must be one for each")
    times = times.astype(np.float64)
    if not np.isfinite(times).all():
        i = int(np.flatnonzero(~np.isfinite(times))[0])
        raise InputError(f"has {times[i]} as time of sample {i}; cut that sample")
    back = np.flatnonzero(np.diff(times) <= 0)
    if len(back):
        i = int(back[0]) + 1
        how = "again" if times[i] == times[i - 1] else f"after {times[i - 1]:.6g} s"
        n_wrong = f" ({len(back)} such samples)" if len(back) > 1 else ""
        raise InputError(
            f"has the time {times[i]:.6g} s {how} at sample {i}{n_wrong}; times must increase: "
            "sort them and remove duplicates"
        )
    return times
