"""What a source holds before anyone says what it is: named series, spike times and intervals."""

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
        Seconds, strictly increasing. Without them a row is a moment, and rows of all series
        without times are the same moments.
    columns : tuple of str, optional
    activity, label : bool
        Whether its source says that these are neurons, or that it is a label.
    unit : (float, float)
        What the values are to be multiplied by, and what is then to be added to them.
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
        """Itself in memory and in its unit; files leave large series where they are until now."""
        values = np.asarray(self.values[...])
        if self.unit != (1.0, 0.0):
            values = values * self.unit[0] + self.unit[1]
        return replace(self, values=values, unit=(1.0, 0.0))

    @property
    def interval(self) -> float:
        """Median time between samples; 1 without a clock."""
        if self.times is None or len(self.times) < 2:
            return 1.0
        return float(np.median(np.diff(self.times)))


@dataclass(frozen=True, eq=False)
class Spikes:
    """Spike times of units, in seconds.

    Parameters
    ----------
    trains : mapping of str to ndarray
    support : Intervals, optional
        When there was recording; from the first to the last spike if not known.
    """

    trains: Mapping[str, Floats]
    support: Intervals | None = None
    start: float = field(init=False)
    stop: float = field(init=False)

    def __post_init__(self) -> None:
        if not self.trains:
            raise InputError("is empty: it has no units")
        trains = {}
        for name, given in self.trains.items():
            train = np.asarray(given)
            if train.dtype.kind not in "fiu" or train.ndim != 1:
                raise InputError(f"unit {name!r} must have a list of times in seconds")
            train = train.astype(np.float64)
            if not np.isfinite(train).all():
                at = int(np.flatnonzero(~np.isfinite(train))[0])
                raise InputError(f"unit {name!r} has {train[at]} as spike time {at}; remove it")
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
    """Stretches of time, in seconds."""

    starts: Floats
    stops: Floats

    def __post_init__(self) -> None:
        starts, stops = (np.asarray(each, dtype=np.float64) for each in (self.starts, self.stops))
        if len(starts) == 0:
            raise InputError("is empty: it has no intervals")
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if not (np.isfinite([start, stop]).all() and start < stop):
                raise InputError(f"interval {i} goes from {start:g} s to {stop:g} s; mend it")
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
        What errors call it.
    entries : mapping of str to Series, Spikes or Intervals
    unread : mapping of str to str
        Names of what is there and cannot be used, with the reason.
    extra : mapping
        What only our own files have: names of neurons, epochs in samples, known wiring; and
        ``of``, the entry that they belong to.
    """

    origin: str
    entries: Mapping[str, Entry]
    unread: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def check_times(given: Any, n: int) -> Floats:
    """Times in seconds, one per sample, strictly increasing.

    Raises
    ------
    ValueError
        With the first sample that is wrong.
    """
    times = np.asarray(given)
    if times.dtype.kind not in "fiu":
        raise InputError(f"has times of type {times.dtype}; they must be seconds as numbers")
    if times.shape != (n,):
        raise InputError(f"has {n} samples, but {times.size} times; there must be one for each")
    times = times.astype(np.float64)
    if not np.isfinite(times).all():
        at = int(np.flatnonzero(~np.isfinite(times))[0])
        raise InputError(f"has {times[at]} as time of sample {at}; cut that sample")
    back = np.flatnonzero(np.diff(times) <= 0)
    if len(back):
        at = int(back[0]) + 1
        how = "again" if times[at] == times[at - 1] else f"after {times[at - 1]:.6g} s"
        n_wrong = f" ({len(back)} such samples)" if len(back) > 1 else ""
        raise InputError(
            f"has the time {times[at]:.6g} s {how} at sample {at}{n_wrong}; times must increase: "
            "sort them and remove duplicates"
        )
    return times
