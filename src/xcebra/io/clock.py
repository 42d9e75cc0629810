"""Activity and behaviour on one clock: spikes binned, samples averaged, labels interpolated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs
from xcebra.io.contents import Floats, Intervals, Series, Spikes

# A label is not interpolated across a gap of more than this many of its usual intervals.
_MOST_INTERVALS = 5
# Samples further apart than this many usual intervals belong to different epochs.
_BREAK = 1.5
# Moments closer than this share of a bin, or of the usual interval, are the same but for rounding.
_ROUNDING = 1e-6


def bin_edges(within: Intervals, width: float) -> list[Floats]:
    """Edges of the whole bins that fit in each interval, from its start on.

    Raises
    ------
    ValueError
        If none fits.
    """
    # A last bin that is whole but for rounding counts.
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
    """Number of spikes of each unit in each bin; times are the bins' centres.

    Raises
    ------
    ValueError
        If there is none.
    """
    edges = bin_edges(within, width)
    trains = spikes.trains.values()
    counts = np.concatenate(
        [
            np.column_stack([np.diff(_first(train, each, width)) for train in trains])
            for each in edges
        ]
    )
    if not counts.any():
        raise InputError(
            f"has no spike inside the epochs: it runs from {spikes.start:g} to {spikes.stop:g} s, "
            f"they from {within.starts[0]:g} to {within.stops[-1]:g} s; are they on one clock?"
        )
    series = Series(counts.astype(np.float32), _centres(edges), tuple(spikes.trains), True)
    return series, _epochs([len(each) - 1 for each in edges])


def bin_series(series: Series, within: Intervals, width: float) -> tuple[Series, Epochs]:
    """Mean of the samples in each bin.

    Raises
    ------
    ValueError
        If a bin has no sample.
    """
    assert series.times is not None
    edges = bin_edges(within, width)
    sums = []
    for each in edges:
        first = _first(series.times, each, width)
        sizes = np.diff(first)
        if (sizes == 0).any():
            at = int(np.flatnonzero(sizes == 0)[0])
            raise InputError(
                f"has no sample between {each[at]:g} s and {each[at + 1]:g} s: bin_size={width:g} "
                f"s is too small for samples about {series.interval:g} s apart, or epochs cover a "
                "pause",
                ("bin_size", "epochs"),
            )
        values = np.asarray(series.values[first[0] : first[-1]], dtype=np.float64)
        total = np.add.reduceat(values, first[:-1] - first[0], axis=0)
        sums.append(total / sizes[:, None])
    binned = Series(np.concatenate(sums), _centres(edges), series.columns, series.activity)
    return binned, _epochs([len(each) - 1 for each in edges])


def cut(series: Series, within: Intervals | None) -> tuple[Series, Epochs]:
    """The samples inside the intervals; a pause in the clock ends an epoch as well.

    Raises
    ------
    ValueError
        If there is no sample inside.
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
    # Intervals that touch do not share a sample.
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
    kept = Series(series.values[rows], times[rows], series.columns, series.activity)
    return kept, _epochs(lengths)


def stretches(series: Series, longest: float = 0.0) -> Epochs:
    """Samples without a pause between them; one up to ``longest`` seconds is none."""
    assert series.times is not None
    pause = np.diff(series.times) > max(_BREAK * series.interval, longest)
    borders = np.concatenate([[0], np.flatnonzero(pause) + 1, [len(pause) + 1]])
    return _epochs(np.diff(borders).tolist())


def spans(times: Floats, epochs: Epochs, interval: float) -> Intervals:
    """When epochs of samples begin and end: half an interval beyond their samples."""
    starts = times[epochs.starts] - interval / 2
    stops = times[epochs.stops - 1] + interval / 2
    # Those that touch share their border, whatever the rounding.
    touch = starts[1:] < stops[:-1] + _ROUNDING * interval
    stops[:-1][touch] = starts[1:][touch]
    return Intervals(starts, stops)


def smoothed(series: Series, epochs: Epochs, width: float) -> Series:
    """Convolved with a Gaussian whose standard deviation is ``width`` seconds, epoch by epoch."""
    values = np.array(series.values, np.float32)
    for start, stop in epochs.pairs():
        values[start:stop] = gaussian_filter1d(
            np.asarray(series.values[start:stop], dtype=np.float64),
            width / series.interval,
            axis=0,
            mode="reflect",
        )
    return Series(values, series.times, series.columns, series.activity)


def sample(series: Series, at: Floats, circular: bool = False) -> NDArray[Any]:
    """A label's values at given times.

    Numbers are interpolated, angles on the circle; whole numbers, truth values and names are
    those of the nearest sample. Outside the label's own times, beside a missing value and across
    gaps the label is missing.

    Raises
    ------
    ValueError
        If it is missing everywhere, or a class name would have to be.
    """
    assert series.times is not None
    times, values = series.times, series.values
    if np.array_equal(times, at):
        return values
    after = np.clip(np.searchsorted(times, at), 1, max(1, len(times) - 1))
    before = after - 1
    after = np.minimum(after, len(times) - 1)
    slack = 0.5 * series.interval
    known = (at >= times[0] - slack) & (at <= times[-1] + slack)
    if not known.any():
        raise InputError(
            f"runs from {times[0]:g} s to {times[-1]:g} s, but the neural activity from "
            f"{at[0]:g} s to {at[-1]:g} s: they are not on one clock"
        )
    nearest = np.where(at - times[before] <= times[after] - at, before, after)
    exact = np.abs(times[nearest] - at) <= _ROUNDING * series.interval
    gap = times[after] - times[before] > _MOST_INTERVALS * series.interval
    known &= ~gap | exact | (np.abs(times[nearest] - at) <= slack)
    if values.dtype.kind != "f":
        return _nearest(values[nearest], known)
    found = values[nearest].astype(np.float64)
    span = np.where(after > before, times[after] - times[before], 1.0)
    share = np.clip((at - times[before]) / span, 0.0, 1.0)[:, None]
    between = ~exact & ~gap & (at >= times[0]) & (at <= times[-1])
    low, high = (values[each].astype(np.float64) for each in (before, after))
    # What has no middle, infinities and opposite directions, is missing there.
    with np.errstate(invalid="ignore"):
        if circular and values.shape[1] == 1:
            turn = (high - low + np.pi) % (2 * np.pi) - np.pi
            mixed = low + share * turn
        else:
            mixed = low + share * (high - low)
            if circular:
                mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    found[between] = mixed[between]
    found[~known] = np.nan
    return found


def _nearest(values: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    if known.all():
        return values
    if values.dtype.kind in "iub":
        found = values.astype(np.float64)
        found[~known] = np.nan
        return found
    raise InputError(
        f"holds names, and is missing at {int((~known).sum())} of {len(known)} samples of the "
        "neural activity; choose epochs in which it is known"
    )


def _first(times: Floats, edges: Floats, width: float) -> NDArray[np.intp]:
    """Where each bin begins; what lies on an edge but for rounding belongs to the bin after it."""
    return np.searchsorted(times, edges - _ROUNDING * width)


def _centres(edges: list[Floats]) -> Floats:
    return np.concatenate([(each[1:] + each[:-1]) / 2 for each in edges])


def _epochs(lengths: list[int]) -> Epochs:
    ends = np.cumsum(lengths)
    return Epochs(ends - np.array(lengths), ends)
