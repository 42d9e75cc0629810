"""Contents of a source: named series, spike times and intervals, not yet with a role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.recording import from_objects

Floats = NDArray[np.float64]


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
    unit : (float, float)
        Factor by which the values are to be multiplied, and offset that is added afterwards.
    """

    values: NDArray[Any]
    times: Floats | None = None
    columns: tuple[str, ...] = ()
    activity: bool = False
    label: bool = False
    unit: tuple[float, float] = (1.0, 0.0)

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
        """Return the series in memory, with its unit applied.

        Until this call, large series may be left in their file.
        """
        values = np.asarray(self.values[...])
        if self.unit != (1.0, 0.0):
            values = values * self.unit[0] + self.unit[1]
        return replace(self, values=values, unit=(1.0, 0.0))

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
    """

    trains: Mapping[str, Floats]
    support: Intervals | None = None
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


@dataclass(frozen=True, eq=False)
class Intervals:
    """Stretches of time, in seconds.

    Parameters
    ----------
    starts, stops : ndarray of shape (n_intervals,)
        In increasing order, without overlap.
    """

    starts: Floats
    stops: Floats

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
