"""Choose epochs by a condition on labels and series of the source, such as ``"speed > 5"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.conditions import Condition
from xcebra.data.units import column_values
from xcebra.io import clock
from xcebra.io.contents import Contents, Floats, Intervals, IntervalValues, Series, Spikes
from xcebra.io.derived import derive
from xcebra.io.epoch_choice import find_intervals
from xcebra.io.lookup import part

_EXAMPLE = '"speed > 5 and x < 100"'
# Texts with one of these are conditions, unless the source has intervals of that name.
_SIGNS = re.compile(r"[<>=!]|\b(and|or|not|in)\b")

Operand = Series | IntervalValues | Intervals


def is_condition(contents: Contents, epochs: object, labels: Mapping[str, object]) -> bool:
    """Whether epochs are given by a condition, and not by a name of intervals or in seconds.

    A series or label of truth values is a condition by itself.
    """
    if not isinstance(epochs, str) or epochs in contents.unread:
        return False
    if find_intervals(contents, epochs):
        return False
    if _SIGNS.search(epochs) and epochs not in contents.entries:
        return True
    named = labels.get(epochs, contents.entries.get(epochs))
    return isinstance(named, Series) and named.values.dtype.kind == "b"


def epochs_where(
    text: str,
    contents: Contents,
    labels: Mapping[str, Series | IntervalValues],
    activity: Series | Spikes,
    recorded: Intervals,
) -> Intervals:
    """Return the stretches of time in which a condition holds.

    The condition is evaluated at the samples of the series in it that has the most of them per
    second; the others are interpolated there, as labels are. Without a series, it is evaluated for
    each interval. Where a series is missing, a comparison with it does not hold.

    Parameters
    ----------
    text : str
        Comparisons of labels, series, columns of intervals or functions of series with values.
        Names and tags of intervals hold inside these intervals.
    contents : Contents
    labels : mapping of str to Series or IntervalValues
        Labels of the recording, which are found before entries of the source.
    activity : Series or Spikes
    recorded : Intervals
        When the activity was recorded; nothing outside is chosen.

    Returns
    -------
    Intervals
        In seconds; in samples if the activity has no times.

    Raises
    ------
    ValueError
        If the condition cannot be read, names something else, or holds at no time.
    """
    condition = Condition(text, "epochs", _EXAMPLE, origin=contents.origin, derived=True)
    operands = {
        name: _with_times(_operand(condition, contents, labels, name), activity)
        for name in condition.names
    }
    if not operands:
        raise condition.error("names no label or series; write a condition such as " + _EXAMPLE)
    moments = _moments(condition, operands)
    values, known = {}, {}
    for name, operand in operands.items():
        values[name], known[name] = _at(condition, name, operand, moments.times)
    holds = condition.holds(values.__getitem__, len(moments.times), known)
    if not holds.any():
        described = [
            f"{name!r} has {column_values(values[name][known[name]])}"
            for name in operands
            if known[name].any()
        ]
        raise condition.error(f"holds at no time; {', '.join(described)}")
    chosen = _overlap(moments.intervals(holds), recorded)
    if chosen is None:
        raise condition.error(
            "holds only where there is no activity, which was recorded from "
            f"{recorded.starts[0]:g} to {recorded.stops[-1]:g}; are they on one clock?"
        )
    return chosen


@dataclass(frozen=True, eq=False)
class _Moments:
    """When a condition is evaluated, and which stretch of time each moment stands for.

    Parameters
    ----------
    times : ndarray of shape (n,)
    starts, stops : ndarray of shape (n,)
        Stretches of time around the moments.
    first : ndarray of bool of shape (n,)
        Moments that begin a new epoch, whatever was before them.
    """

    times: Floats
    starts: Floats
    stops: Floats
    first: NDArray[np.bool_]

    def intervals(self, holds: NDArray[np.bool_]) -> Intervals:
        """Return the stretches of moments at which a condition holds."""
        before = np.concatenate([[False], holds[:-1]])
        begins = holds & (self.first | ~before)
        after = np.concatenate([holds[1:], [False]])
        ends = holds & (np.concatenate([self.first[1:], [True]]) | ~after)
        return Intervals(self.starts[begins], self.stops[ends])


def _moments(condition: Condition, operands: Mapping[str, Operand]) -> _Moments:
    """Return the samples of the quickest series, or one moment for each interval."""
    series = [operand for operand in operands.values() if isinstance(operand, Series)]
    lists = [
        operand.intervals if isinstance(operand, IntervalValues) else operand
        for operand in operands.values()
        if not isinstance(operand, Series)
    ]
    borders = np.unique(np.concatenate([[], *(np.r_[own.starts, own.stops] for own in lists)]))
    if not series:
        starts, stops = borders[:-1], borders[1:]
        return _Moments((starts + stops) / 2, starts, stops, np.ones(len(starts), dtype=bool))
    quickest = min(series, key=lambda operand: operand.interval)
    if quickest.times is None:
        if len({len(operand.values) for operand in series}) > 1 or lists:
            raise condition.error(
                "needs the times of all that it names, because they are not samples of the activity"
            )
        rows = np.arange(len(quickest.values), dtype=np.float64)
        return _Moments(rows, rows, rows + 1, np.zeros(len(rows), dtype=bool))
    times = quickest.times
    first = np.zeros(len(times) + 1, dtype=bool)
    first[clock.stretches(quickest).starts] = True
    first[np.searchsorted(times, borders)] = True  # epochs do not cross borders of intervals
    # A sample stands for half an interval on either side, or for half the way to its neighbour.
    half = quickest.interval / 2
    middles = (times[1:] + times[:-1]) / 2
    starts = np.maximum(times - half, np.append(-np.inf, middles))
    stops = np.minimum(times + half, np.append(middles, np.inf))
    return _Moments(times, starts, stops, first[:-1])


def _operand(
    condition: Condition,
    contents: Contents,
    labels: Mapping[str, Series | IntervalValues],
    name: str,
) -> Operand:
    """Return what a name in the condition stands for."""
    if name in labels:
        operand: Operand = labels[name]
    else:
        found = find_intervals(contents, name)
        if len(found) == 1:
            return next(iter(found.values()))
        operand = derive(contents, name, "epochs")
    if isinstance(operand, Series) and operand.values.shape[1] > 1:
        titles = operand.info.columns or operand.columns
        single = [title for title in titles if _is_entry(contents, title)]
        single = single or [f"`{name}/{title}`" for title in titles]
        hint = f"compare one of them, such as {single[0]}" if single else "give it one column"
        raise condition.error(
            f"names {name!r}, which has {operand.values.shape[1]} columns; {hint}"
        )
    return operand


def _is_entry(contents: Contents, name: str) -> bool:
    try:
        part(contents, name)
    except InputError:
        return False
    return True


def _with_times(operand: Operand, activity: Series | Spikes) -> Operand:
    """Return a series without times with those of the activity, if its rows belong to it."""
    if not isinstance(operand, Series) or operand.times is not None:
        return operand
    if isinstance(activity, Series) and len(operand.values) == len(activity.values):
        return replace(operand, times=activity.times)
    return operand


def _at(
    condition: Condition, name: str, operand: Operand, times: Floats
) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Return the values of an operand at some times, and where they are known."""
    if isinstance(operand, Intervals):
        index = np.searchsorted(operand.starts, times, side="right") - 1
        inside = (index >= 0) & (times < operand.stops[np.maximum(index, 0)])
        return inside, np.ones(len(times), dtype=bool)
    try:
        if isinstance(operand, IntervalValues):
            values = clock.sample_intervals(operand, times)[:, 0]
        elif operand.times is None:
            values = operand.values[:, 0]
        else:
            values = clock.sample(operand, times, operand.info.kind == "circular")[:, 0]
    except InputError:
        raise condition.error(
            f"names {name!r}, which is not known at the times of the others; are they on one clock?"
        ) from None
    known = values != "" if values.dtype.kind == "U" else ~np.isnan(values.astype(np.float64))
    if operand.values.dtype.kind == "b":
        values = values == 1  # truth values became numbers where they are missing
    return values, known


def _overlap(first: Intervals, second: Intervals) -> Intervals | None:
    """Return the stretches that lie in both lists of intervals; None if there is none."""
    starts, stops = [], []
    for start, stop in zip(first.starts, first.stops, strict=True):
        near = slice(
            int(np.searchsorted(second.stops, start, side="right")),
            int(np.searchsorted(second.starts, stop)),
        )
        starts.append(np.maximum(second.starts[near], start))
        stops.append(np.minimum(second.stops[near], stop))
    all_starts, all_stops = np.concatenate(starts), np.concatenate(stops)
    return Intervals(all_starts, all_stops) if len(all_starts) else None
