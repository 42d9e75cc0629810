"""Put activity and labels on one clock: bin spikes, average samples, interpolate labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs
from xcebra.io.contents import Floats, Intervals, IntervalValues, Series, Spikes

# A label is not interpolated across a gap of more than this many of its usual intervals, that is,
# of the median time between its samples. Larger values fill longer gaps in tracking with a straight
# line; smaller ones lose more samples. Not tuned.
_MOST_INTERVALS = 5
# Samples further apart than this many usual intervals belong to different epochs. The value lies
# between 1, no missing sample, and 2, one missing sample, with room for jitter on both sides.
_BREAK = 1.5
# Times closer than this share of a bin, or of the usual interval, are taken as equal. Larger values
# allow for more rounding error in the times, smaller ones separate times that differ; not tuned.
_ROUNDING = 1e-6


def bin_edges(within: Intervals, width: float) -> list[Floats]:
    """Return the edges of the whole bins that fit in each interval, from its start on.

    Parameters
    ----------
    within : Intervals
    width : float
        Width of a bin in seconds.

    Returns
    -------
    list of ndarray of shape (n_bins + 1,)
        One array for each interval in which at least one bin fits.

    Raises
    ------
    ValueError
        If no bin fits in any interval.
    """
    # A last bin that is complete except for rounding counts.
    numbers = np.floor((within.stops - within.starts) / width + _ROUNDING).astype(int)
    edges = [
        start + width * np.arange(n + 1)
        for start, n in zip(within.starts, numbers, strict=True)
        if n > 0
    ]
    if not edges:
        longest = float((within.stops - within.starts).max())
        raise InputError(
            f"bin_size={width:g} s is longer than the longest stretch of recording, {longest:g} s",
            ("bin_size",),
        )
    return edges


def bin_spikes(spikes: Spikes, within: Intervals, width: float) -> tuple[Series, Epochs]:
    """Count the spikes of each unit in each bin.

    Parameters
    ----------
    spikes : Spikes
    within : Intervals
        Stretches of time to bin.
    width : float
        Width of a bin in seconds.

    Returns
    -------
    series : Series
        Values of shape (n_bins, n_units); times are the centres of the bins.
    epochs : Epochs
        One epoch for each interval in which at least one bin fits.

    Raises
    ------
    ValueError
        If there is no spike in any bin.
    """
    edges = bin_edges(within, width)
    trains = spikes.trains.values()
    counts = np.concatenate(
        [
            np.column_stack([np.diff(_first(train, epoch_edges, width)) for train in trains])
            for epoch_edges in edges
        ]
    )
    if not counts.any():
        raise InputError(
            f"has no spike inside the epochs: it runs from {spikes.start:g} to {spikes.stop:g} s, "
            f"they from {within.starts[0]:g} to {within.stops[-1]:g} s; are they on one clock?"
        )
    centres, names = _centres(edges), tuple(spikes.trains)
    series = Series(counts.astype(np.float32), centres, names, True, units=spikes.units)
    return series, _epochs([len(epoch_edges) - 1 for epoch_edges in edges])


def bin_series(series: Series, within: Intervals, width: float) -> tuple[Series, Epochs]:
    """Average the samples in each bin; whole numbers, which are counts, are added.

    Parameters
    ----------
    series : Series
        With times; values of shape (n_times, n_columns).
    within : Intervals
        Stretches of time to bin.
    width : float
        Width of a bin in seconds.

    Returns
    -------
    series : Series
        Values of shape (n_bins, n_columns); times are the centres of the bins.
    epochs : Epochs
        One epoch for each interval in which at least one bin fits.

    Raises
    ------
    ValueError
        If a bin has no sample.
    """
    assert series.times is not None
    edges = bin_edges(within, width)
    # Whole numbers are counts, which are added, so that they stay counts in each bin.
    counts, usual = series.values.dtype.kind in "iu", width / series.interval
    usual = round(usual) if abs(usual - round(usual)) < _ROUNDING * usual else usual
    means = []
    for epoch_edges in edges:
        first = _first(series.times, epoch_edges, width)
        sizes = np.diff(first)
        if (sizes == 0).any():
            i = int(np.flatnonzero(sizes == 0)[0])
            raise InputError(
                f"has no sample between {epoch_edges[i]:g} s and {epoch_edges[i + 1]:g} s: "
                f"bin_size={width:g} s is too small for samples about {series.interval:g} s apart, "
                "or epochs cover a pause",
                ("bin_size", "epochs"),
            )
        values = np.asarray(series.values[first[0] : first[-1]], dtype=np.float64)
        total = np.add.reduceat(values, first[:-1] - first[0], axis=0)
        if not counts:
            total /= sizes[:, None]
        elif (sizes != usual).any():
            # Bins that hold more samples than others do not have more spikes.
            total *= usual / sizes[:, None]
        means.append(total)
    binned = replace(series, values=np.concatenate(means), times=_centres(edges))
    return binned, _epochs([len(epoch_edges) - 1 for epoch_edges in edges])


def cut(series: Series, within: Intervals | None) -> tuple[Series, Epochs]:
    """Return the samples inside the intervals, and their epochs.

    A pause in the times of the series ends an epoch as well.

    Parameters
    ----------
    series : Series
        With times.
    within : Intervals, optional
        By default, all samples are kept.

    Returns
    -------
    series : Series
    epochs : Epochs

    Raises
    ------
    ValueError
        If there is no sample inside the intervals.
    """
    assert series.times is not None
    times = series.times
    whole = stretches(series)
    if within is None:
        return series, whole
    breaks = whole.starts[1:]
    slack = _ROUNDING * series.interval
    firsts = np.searchsorted(times, within.starts - slack)
    lasts = np.searchsorted(times, within.stops + slack, side="right")
    # Two intervals that touch must not share a sample.
    firsts[1:] = np.maximum(firsts[1:], lasts[:-1])
    parts, lengths = [], []
    for first, last in zip(firsts, lasts, strict=True):
        inner = breaks[(breaks > first) & (breaks < last)]
        borders = np.concatenate([[first], inner, [last]])
        parts.append(np.arange(first, max(first, last)))
        lengths += [int(n) for n in np.diff(borders) if n > 0]
    rows = np.concatenate(parts)
    if len(rows) == 0:
        raise InputError(
            f"has no sample inside the epochs: it runs from {times[0]:g} to {times[-1]:g} s, "
            f"they from {within.starts[0]:g} to {within.stops[-1]:g} s; are they on one clock?"
        )
    inside = replace(series, values=series.values[rows], times=times[rows])
    return inside, _epochs(lengths)


def stretches(series: Series, longest: float = 0.0) -> Epochs:
    """Return the epochs of samples without a pause between them.

    Parameters
    ----------
    series : Series
        With times.
    longest : float
        Gaps of up to this many seconds are never a pause.
    """
    assert series.times is not None
    pause = np.diff(series.times) > max(_BREAK * series.interval, longest)
    borders = np.concatenate([[0], np.flatnonzero(pause) + 1, [len(pause) + 1]])
    return _epochs(np.diff(borders).tolist())


def spans(times: Floats, epochs: Epochs, interval: float) -> Intervals:
    """Return when epochs begin and end: half an interval beyond their first and last samples.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
        Times of the samples in seconds.
    epochs : Epochs
        In samples.
    interval : float
        Usual time between samples in seconds.
    """
    starts = times[epochs.starts] - interval / 2
    stops = times[epochs.stops - 1] + interval / 2
    # Epochs that touch share their border exactly, without a difference by rounding.
    touch = starts[1:] < stops[:-1] + _ROUNDING * interval
    stops[:-1][touch] = starts[1:][touch]
    return Intervals(starts, stops)


def smoothed(series: Series, epochs: Epochs, width: float) -> Series:
    """Smooth each epoch with a Gaussian whose standard deviation is ``width`` seconds.

    Parameters
    ----------
    series : Series
        Values of shape (n_times, n_columns).
    epochs : Epochs
        In samples of the series.
    width : float
    """
    values = np.array(series.values, np.float32)
    for start, stop in epochs.pairs():
        values[start:stop] = gaussian_filter1d(
            np.asarray(series.values[start:stop], dtype=np.float64),
            width / series.interval,
            axis=0,
            mode="reflect",
        )
    return replace(series, values=values)


def sample(series: Series, new_times: Floats, circular: bool = False) -> NDArray[Any]:
    """Return the values of a label at other times.

    Numbers are interpolated, angles on the circle. Whole numbers, truth values and names are
    taken from the nearest sample. The label is missing outside its own times, next to a missing
    value and across gaps.

    Parameters
    ----------
    series : Series
        The label, with times; values of shape (n_samples, n_columns).
    new_times : ndarray of shape (n_times,)
        Times in seconds at which the label is needed.
    circular : bool
        Whether the label is an angle: one column in radians, or two columns, cosine and sine.

    Returns
    -------
    ndarray of shape (n_times, n_columns)
        Where the label is missing, NaN for numbers and empty text for names.

    Raises
    ------
    ValueError
        If the label is missing at all times.
    """
    assert series.times is not None
    times, values = series.times, series.values
    if np.array_equal(times, new_times):
        return values
    after = np.clip(np.searchsorted(times, new_times), 1, max(1, len(times) - 1))
    before = after - 1
    after = np.minimum(after, len(times) - 1)
    slack = 0.5 * series.interval
    known = (new_times >= times[0] - slack) & (new_times <= times[-1] + slack)
    if not known.any():
        raise InputError(
            f"runs from {times[0]:g} s to {times[-1]:g} s, but the neural activity from "
            f"{new_times[0]:g} s to {new_times[-1]:g} s: they are not on one clock"
        )
    nearest = np.where(new_times - times[before] <= times[after] - new_times, before, after)
    exact = np.abs(times[nearest] - new_times) <= _ROUNDING * series.interval
    gap = times[after] - times[before] > _MOST_INTERVALS * series.interval
    known &= ~gap | exact | (np.abs(times[nearest] - new_times) <= slack)
    if values.dtype.kind != "f":
        return _nearest(values[nearest], known)
    sampled = values[nearest].astype(np.float64)
    span = np.where(after > before, times[after] - times[before], 1.0)
    share = np.clip((new_times - times[before]) / span, 0.0, 1.0)[:, None]
    between = ~exact & ~gap & (new_times >= times[0]) & (new_times <= times[-1])
    low, high = values[before].astype(np.float64), values[after].astype(np.float64)
    # Between infinities or opposite directions there is no middle value: it becomes NaN.
    with np.errstate(invalid="ignore"):
        if circular and values.shape[1] == 1:
            turn = (high - low + np.pi) % (2 * np.pi) - np.pi
            mixed = low + share * turn
        else:
            mixed = low + share * (high - low)
            if circular:
                mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    sampled[between] = mixed[between]
    sampled[~known] = np.nan
    return sampled


def sample_intervals(label: IntervalValues, new_times: Floats) -> NDArray[Any]:
    """Return the value of the interval that each time lies in.

    Parameters
    ----------
    label : IntervalValues
    new_times : ndarray of shape (n_times,)
        Times in seconds at which the label is needed.

    Returns
    -------
    ndarray of shape (n_times, 1)
        The label is missing between intervals: NaN for numbers, empty for text.

    Raises
    ------
    ValueError
        If no time lies in an interval.
    """
    starts, stops = label.intervals.starts, label.intervals.stops
    index = np.searchsorted(starts, new_times, side="right") - 1
    known = (index >= 0) & (new_times < stops[index])
    if not known.any():
        raise InputError(
            f"has intervals from {starts[0]:g} s to {stops[-1]:g} s, but the neural activity runs "
            f"from {new_times[0]:g} s to {new_times[-1]:g} s: they are not on one clock"
        )
    return _nearest(label.values[np.maximum(index, 0)][:, None], known)


def _nearest(values: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Return values, with NaN, or empty text for names, where they are not known."""
    if known.all():
        return values
    if values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        numbers[~known] = np.nan
        return numbers
    return np.where(known[:, None], values, "")


def _first(times: Floats, edges: Floats, width: float) -> NDArray[np.intp]:
    """Return the index of the first time in each bin.

    A time that lies on an edge, except for rounding, belongs to the bin after the edge.
    """
    return np.searchsorted(times, edges - _ROUNDING * width)


def _centres(edges: list[Floats]) -> Floats:
    return np.concatenate([(epoch_edges[1:] + epoch_edges[:-1]) / 2 for epoch_edges in edges])


def _epochs(lengths: list[int]) -> Epochs:
    ends = np.cumsum(lengths)
    return Epochs(ends - np.array(lengths), ends)
