"""Classical scores of navigation cells: rate maps, grid score, mean vector length, speed score.

Each score relates one neuron to one behaviour. ``activity`` always has shape (n_times, n_neurons)
and holds firing rates, or spike counts in time steps of equal length. Samples whose behaviour is
NaN are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError

Array = NDArray[np.float64]
Extent = tuple[tuple[float, float], tuple[float, float]]

# Default bin size and smoothing as shares of the longest side of the box: 2.5 cm and 5 cm in a box
# of one metre.
_BIN_SHARE, _SMOOTH_SHARE = 1 / 40, 1 / 20
# More bins along a side are refused, since the bin size is then probably in another unit than the
# position. Larger values need more memory; not tuned.
_MOST_BINS = 500
# The central peak of an autocorrelogram ends where the mean around its centre falls below this.
# Larger values make the ring begin further inside; not tuned.
_PEAK_ENDS = 0.2
# The outer radius of the ring is at least this many times the radius of the central peak, so that
# the ring can hold the neighbouring fields. It is at most this share of the shorter side, because
# few bins overlap at larger displacements. Not tuned.
_LEAST_REACH, _MOST_REACH = 2.5, 0.8
# Resolution of angles on the ring, in degrees; 30, 60 and 90 are multiples of it. Smaller values
# take longer.
_DEGREES = 2
# Smaller variances count as 0: rounding errors of the Fourier transforms are about 1e-15.
_NO_VARIANCE = 1e-9
# A standard deviation below this share of the largest value is a rounding error.
_NO_SPREAD = 1e-10
# Widest gap in degrees between headings that were taken; wider gaps are not interpolated. Larger
# values rely more on the interpolation; not tuned.
_WIDEST_GAP = 180
# Autocorrelograms that are computed together: larger values need more memory. Not tuned.
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class RateMaps:
    """Mean activity of every neuron at every place.

    Parameters
    ----------
    rates : ndarray of shape (n_neurons, n_x, n_y)
        Mean activity in the unit of the activity; NaN in bins that were not visited.
    occupancy : ndarray of shape (n_x, n_y)
        Number of samples in each bin.
    edges : tuple of two ndarrays of shapes (n_x + 1,) and (n_y + 1,)
        Limits of the bins along x and y, in the unit of the position.
    """

    rates: Array
    occupancy: Array
    edges: tuple[Array, Array]


def rate_maps(
    activity: Any,
    position: Any,
    *,
    bin_size: float | None = None,
    smooth: float | None = None,
    extent: Extent | None = None,
    least_time: int = 1,
) -> RateMaps:
    """Mean activity of each neuron as a function of position.

    The sum of the activity and the number of samples in each bin are smoothed separately and then
    divided. The rate of a bin with few samples is therefore mostly determined by its neighbours,
    and bins that were never visited do not lower the rates of their neighbours.

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
    position : array of shape (n_times, 2)
        Position in any unit.
    bin_size : float, optional
        Side of a square bin, in the unit of the position. If not given, 1/40 of the longest side
        of the box: 2.5 cm in a box of one metre.
    smooth : float, optional
        Standard deviation of the Gaussian filter, in the unit of the position; 0 for no smoothing.
        If not given, 1/20 of the longest side: 5 cm in a box of one metre.
    extent : ((x_min, x_max), (y_min, y_max)), optional
        Limits of the box; samples outside are left out. If not given, the range of the positions.
    least_time : int
        Number of samples that a bin needs to count as visited.

    Returns
    -------
    RateMaps

    Notes
    -----
    The defaults are proportional to the size of the box, so that they are suitable in any unit.
    Firing fields do not grow with the box: in a box much larger than one metre, set ``bin_size``
    and ``smooth``, for example to 0.025 and 0.05 if positions are in metres. A field should be a
    few times wider than both. Set ``extent`` to compare recordings in the same box.

    Examples
    --------
    >>> position = [[0.5, 0.5], [0.5, 0.5], [1.5, 0.5]]
    >>> maps = rate_maps([[1.0], [3.0], [5.0]], position, bin_size=1, smooth=0,
    ...                  extent=((0, 2), (0, 1)))
    >>> maps.rates[0, :, 0].tolist()
    [2.0, 5.0]
    """
    problems: list[str] = []
    number(problems, "bin_size", bin_size, least=0, above=True)
    number(problems, "smooth", smooth, least=0)
    number(problems, "least_time", least_time, least=1, whole=True)
    raise_if(problems)
    x, position = _paired(activity, position, "position", columns=(2,))
    box = _range(position) if extent is None else np.asarray(extent, dtype=np.float64)
    _check_box(box, extent)
    longest = float(np.ptp(box, axis=1).max())
    bin_size = _BIN_SHARE * longest if bin_size is None else bin_size
    smooth = _SMOOTH_SHARE * longest if smooth is None else smooth
    edges = _edges(box, bin_size)
    inside = ((position >= box[:, 0]) & (position <= box[:, 1])).all(axis=1)
    if not inside.any():
        raise InputError(
            f"extent {box.tolist()} holds none of the {len(position)} positions, which range over "
            f"{_range(position).tolist()}; give both in the same unit"
        )
    return _mean_by_bin(x[inside], position[inside], edges, smooth / bin_size, least_time)


def spatial_information(maps: RateMaps) -> Array:
    """Spatial information of each neuron, in bits per spike (Skaggs et al. 1993).

    This is the mean over time of ``r / m * log2(r / m)``, where r is the rate at the current
    position and m is the mean rate. It is 0 for a neuron that fires at the same rate everywhere, or
    never. It is log2(1 / f) for a neuron that fires at a constant rate in a share f of the time and
    is silent otherwise.

    Parameters
    ----------
    maps : RateMaps
        Maps of rates or counts, which must not be negative.

    Returns
    -------
    ndarray of shape (n_neurons,)

    Notes
    -----
    Only the ratios of rates matter, not their unit. The estimate is too large if there are few
    spikes or short visits; compare it with the value for the same activity shifted in time.
    """
    visited = ~np.isnan(maps.rates[0])
    rates, time = maps.rates[:, visited], maps.occupancy[visited]
    _refuse_negative(rates, "maps")
    share = time / time.sum()
    mean = rates @ share
    ratio = rates / np.where(mean > 0, mean, 1.0)[:, None]
    bits = ratio * np.log2(np.where(ratio > 0, ratio, 1.0))
    # The sum is not negative, apart from rounding errors.
    return np.maximum(bits @ share, 0.0)


def autocorrelogram(rate_map: Any, least_overlap: int = 20) -> Array:
    """Correlation of a rate map with copies of itself that are displaced by every number of bins.

    Parameters
    ----------
    rate_map : array of shape (n_x, n_y), or (..., n_x, n_y) for several at once
        NaN in bins that are left out.
    least_overlap : int
        Number of bins that must be known both in the map and in the displaced map.

    Returns
    -------
    ndarray of shape (..., 2 * n_x - 1, 2 * n_y - 1)
        Pearson correlation over the bins that are known in both, with zero displacement in the
        middle. NaN if too few bins overlap, and 0 if the overlapping part of either map does not
        vary.
    """
    problems: list[str] = []
    number(problems, "least_overlap", least_overlap, least=2, whole=True)
    raise_if(problems)
    rate_map = np.asarray(rate_map, dtype=np.float64)
    if rate_map.ndim < 2 or 0 in rate_map.shape[-2:]:
        raise InputError(
            f"rate_map must have shape (n_x, n_y), got {rate_map.shape}; give one of "
            "rate_maps(...).rates"
        )
    if np.isinf(rate_map).any():
        raise InputError("rate_map must be finite or NaN, got inf; set bins not known to NaN")
    known = ~np.isnan(rate_map)
    x = _unit_variance(rate_map, known)
    n_x, n_y = rate_map.shape[-2:]
    size = (2 * n_x - 1, 2 * n_y - 1)
    images = (x, x * x, known.astype(np.float64))
    map_, square, mask = (np.fft.rfft2(image, size) for image in images)

    def correlated(first: Any, second: Any) -> Array:
        sums = np.fft.irfft2(first * second.conj(), size)
        return np.asarray(np.roll(sums, (n_x - 1, n_y - 1), axis=(-2, -1)))

    n = np.round(correlated(mask, mask))
    enough = n >= least_overlap
    n = np.where(enough, n, 1.0)
    here, moved = correlated(map_, mask) / n, correlated(mask, map_) / n
    covariance = correlated(map_, map_) / n - here * moved
    variance_here = correlated(square, mask) / n - here**2
    variance_moved = correlated(mask, square) / n - moved**2
    # Rounding errors are relative to the sum of squares of the whole map, not of the overlap.
    least = _NO_VARIANCE * known.sum(axis=(-2, -1), keepdims=True) / n
    varies = (variance_here > least) & (variance_moved > least)
    correlation = np.where(varies, covariance, 0.0)
    correlation /= np.sqrt(np.where(varies, variance_here * variance_moved, 1.0))
    return np.where(enough, np.clip(correlation, -1.0, 1.0), np.nan)


def grid_score(maps: RateMaps) -> Array:
    """Grid score: how hexagonal the firing fields of each neuron are (Sargolini et al. 2006).

    The autocorrelogram of the rate map is rotated and correlated with itself on a ring around its
    central peak. The score is the lower of the correlations at 60 and 120 degrees minus the highest
    of those at 30, 90 and 150 degrees. It lies between -2 and 2: above 1 for a clear hexagonal
    grid, and about 0 or less otherwise.

    Parameters
    ----------
    maps : RateMaps

    Returns
    -------
    ndarray of shape (n_neurons,)
        NaN for neurons whose map does not vary, whose central peak fills the box, or for which less
        than half of the ring is known.

    Notes
    -----
    The inner radius of the ring is where the mean of the autocorrelogram around its centre falls
    below 0.2 or first rises again. The outer radius is the one with the highest score, in steps of
    a bin, from 2.5 times the inner radius (or less, if the box is too small) to 0.8 of the shorter
    side of the box. Since the highest score is used, maps of noise may have scores up to about 0.5;
    compare with the score of the same activity shifted in time. A grid can be recognised if its
    spacing is less than about two thirds of the shorter side.
    """
    widths = np.concatenate([np.diff(limits) for limits in maps.edges])
    if not np.allclose(widths, widths[0], rtol=1e-6, atol=0):
        raise InputError(
            f"maps must have square bins to be turned, got sides from {widths.min():.6g} to "
            f"{widths.max():.6g}; make them with rate_maps"
        )
    # In parts, because the autocorrelograms of many neurons need much memory.
    parts = [maps.rates[i : i + _AT_ONCE] for i in range(0, len(maps.rates), _AT_ONCE)]
    return np.concatenate([_hexagonal(_polar(autocorrelogram(part))) for part in parts])


def head_direction_curves(activity: Any, heading: Any, *, n_bins: int = 60) -> Array:
    """Mean activity of each neuron as a function of heading.

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
    heading : array of shape (n_times,) or (n_times, 2)
        Angles in radians, or vectors of cosine and sine, whose length does not matter.
    n_bins : int
        Number of equal bins of the circle; the centre of bin i is ``(i + 0.5) * 2 * pi / n_bins``.

    Returns
    -------
    ndarray of shape (n_neurons, n_bins)
        NaN for headings that were not taken.
    """
    problems: list[str] = []
    number(problems, "n_bins", n_bins, least=3, whole=True)
    raise_if(problems)
    x, heading = _paired(activity, heading, "heading", columns=(1, 2))
    angle = heading[:, 0] if heading.shape[1] == 1 else _angle(heading)
    # A negative angle close to 0 may be rounded to a whole turn, which belongs to bin 0.
    index = np.floor(angle / (2 * np.pi) % 1 * n_bins).astype(np.int64) % n_bins
    time = np.bincount(index, minlength=n_bins)
    return np.where(time > 0, _sums(x, index, n_bins) / np.maximum(time, 1), np.nan)


def mean_vector_length(activity: Any, heading: Any, *, n_bins: int = 60) -> Array:
    """How sharply each neuron is tuned to heading, from 0 (not tuned) to 1 (a single direction).

    This is the length of the mean of unit vectors in all directions, weighted by the mean activity
    in each direction. It does not depend on how long the animal faced each direction: a neuron
    without tuning has 0 even if the animal mostly faces one direction. A tuning curve of exp(k cos)
    has the ratio of Bessel functions I1(k) / I0(k).

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
        The mean activity at each heading must not be negative.
    heading : array of shape (n_times,) or (n_times, 2)
        Angles in radians, or cosine and sine.
    n_bins : int
        Number of equal bins of the circle. The default, bins of 6 degrees, makes lengths smaller by
        0.05 %. For a recording of a few minutes use fewer, so that every bin has some tens of
        samples.

    Returns
    -------
    ndarray of shape (n_neurons,)
        0 for silent neurons.

    Notes
    -----
    The activity at headings that were never taken is interpolated linearly; leaving them out would
    look like tuning. Gaps of more than half a turn raise an error.
    """
    curves = head_direction_curves(activity, heading, n_bins=n_bins)
    _refuse_negative(curves, "activity")
    centres = (np.arange(n_bins) + 0.5) * 2 * np.pi / n_bins
    seen = np.flatnonzero(~np.isnan(curves[0]))
    gap = 360 / n_bins * (np.diff(seen, append=seen[0] + n_bins).max() - 1)
    if gap > _WIDEST_GAP:
        raise InputError(
            f"heading leaves {gap:.0f} degrees in one piece unseen, at most {_WIDEST_GAP} can be "
            "filled in; give radians, and a recording in which the animal turns"
        )
    full = np.array(
        [np.interp(centres, centres[seen], curve[seen], period=2 * np.pi) for curve in curves]
    )
    total = full.sum(axis=1)
    return np.abs(full @ np.exp(1j * centres)) / np.where(total > 0, total, 1.0)


def speed_score(activity: Any, speed: Any) -> Array:
    """Pearson correlation of each neuron's activity with speed (Kropff et al. 2015).

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
        Smooth spike counts before, or use time steps that are long enough to contain several
        spikes, because the noise of single spikes lowers the score.
    speed : array of shape (n_times,) or (n_times, 1)

    Returns
    -------
    ndarray of shape (n_neurons,)
        Between -1 and 1; 0 if the activity or the speed does not vary.

    Examples
    --------
    >>> speed_score([[1.0, 3.0], [3.0, 3.0], [5.0, 3.0]], [0.0, 0.1, 0.2]).round(6).tolist()
    [1.0, 0.0]
    """
    x, v = _paired(activity, speed, "speed", columns=(1,))
    x, v = _standardised(x), _standardised(v)
    return np.clip((x * v).mean(axis=0), -1.0, 1.0)


def _paired(
    activity: Any, behaviour: Any, name: str, columns: tuple[int, ...]
) -> tuple[Array, Array]:
    """Check activity and behaviour, and select the samples at which the behaviour is known.

    Returns arrays of shape (n, n_neurons) and (n, n_columns).
    """
    x, b = np.asarray(activity, dtype=np.float64), np.asarray(behaviour, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] == 0:
        raise InputError(
            f"activity must have shape (n_times, n_neurons), got {x.shape}; for one neuron give "
            "activity[:, None]"
        )
    if not np.isfinite(x).all():
        raise InputError(
            f"activity must be finite, got {int((~np.isfinite(x)).sum())} values that are NaN or "
            f"inf; to leave out a sample set its {name} to NaN"
        )
    shape = b.shape
    b = b[:, None] if b.ndim == 1 else b
    if b.ndim != 2 or b.shape[1] not in columns:
        allowed = " or ".join("(n_times,)" if n == 1 else f"(n_times, {n})" for n in columns)
        raise InputError(f"{name} must have shape {allowed}, got {shape}; give one row per sample")
    if len(b) != len(x):
        raise InputError(
            f"{name} has {len(b)} samples, but activity has {len(x)}; give one row of each per "
            "time step"
        )
    if np.isinf(b).any():
        raise InputError(f"{name} must be finite or NaN, got inf; set samples not known to NaN")
    known = ~np.isnan(b).any(axis=1)
    if not known.any():
        raise InputError(f"{name} is NaN in all {len(b)} samples; at least one must be known")
    return x[known], b[known]


def _range(position: Array) -> Array:
    """Minimum and maximum of x and of y, of shape (2, 2)."""
    return np.stack([position.min(axis=0), position.max(axis=0)], axis=1)


def _check_box(box: Array, extent: Any) -> None:
    """Raise an error if the box has no size or ``extent`` is not a valid box."""
    if extent is None and not np.ptp(box, axis=1).any():
        raise InputError(
            f"position is {box[:, 0].tolist()} in all samples; at least one of x and y must vary: "
            "give extent, or another position"
        )
    if extent is not None and (
        box.shape != (2, 2) or not np.isfinite(box).all() or not (box[:, 0] < box[:, 1]).all()
    ):
        raise InputError(
            "extent must be ((x_min, x_max), (y_min, y_max)), numbers with each min below its "
            f"max, got {extent!r}"
        )


def _edges(box: Array, bin_size: float) -> tuple[Array, Array]:
    """Limits of square bins along x and y; the last bin may extend beyond the box."""
    # 1e-6 is subtracted so that, despite rounding errors, a box of 1 has ten bins of 0.1.
    n = np.maximum(np.ceil(np.ptp(box, axis=1) / bin_size - 1e-6), 1)
    if n.max() > _MOST_BINS:
        raise InputError(
            f"bin_size {bin_size:g} makes {n.max():.0f} bins along a side of "
            f"{np.ptp(box, axis=1).max():g}, at most {_MOST_BINS} are allowed; give bin_size in "
            "the unit of position"
        )
    x, y = (low + bin_size * np.arange(int(k) + 1) for low, k in zip(box[:, 0], n, strict=True))
    return x, y


def _mean_by_bin(
    x: Array, position: Array, edges: tuple[Array, Array], width: float, least_time: int
) -> RateMaps:
    """Mean of ``x`` by position, smoothed by a Gaussian; ``width`` is in bins."""
    shape = (len(edges[0]) - 1, len(edges[1]) - 1)
    # A sample on the border of two bins belongs to the higher one, and a sample at the upper end of
    # the box to the last bin.
    bins = [
        np.clip(np.searchsorted(limits, column, side="right") - 1, 0, n - 1)
        for limits, column, n in zip(edges, position.T, shape, strict=True)
    ]
    index = np.ravel_multi_index((bins[0], bins[1]), shape)
    n_bins = shape[0] * shape[1]
    occupancy = np.bincount(index, minlength=n_bins).astype(np.float64).reshape(shape)
    visited = occupancy >= least_time
    if not visited.any():
        raise InputError(
            f"least_time {least_time} is more than the {occupancy.max():.0f} samples of the bin "
            "visited most; lower it, or make bin_size larger"
        )
    # Outside the box, both activity and time are 0.
    time = ndimage.gaussian_filter(occupancy, width, mode="constant")
    sums = _sums(x, index, n_bins).reshape(-1, *shape)
    sums = ndimage.gaussian_filter(sums, (0, width, width), mode="constant")
    rates = np.where(visited, sums / np.where(visited, time, 1.0), np.nan)
    return RateMaps(rates, occupancy, edges)


def _sums(x: Array, index: NDArray[np.int64], n_bins: int) -> Array:
    """Sum of the activity of each neuron in each bin, of shape (n_neurons, n_bins)."""
    return np.array([np.bincount(index, weights=neuron, minlength=n_bins) for neuron in x.T])


def _refuse_negative(rates: Array, name: str) -> None:
    """Raise an error if a rate is negative; ``rates`` has shape (n_neurons, n_bins)."""
    lowest = np.nanmin(rates, axis=1)
    if (lowest < 0).any():
        neuron = int(lowest.argmin())
        raise InputError(
            f"{name} must hold rates of 0 or more, got {lowest[neuron]:.3g} for neuron {neuron}; "
            "give spike counts or rates that are not centred, or np.maximum(activity, 0)"
        )


def _unit_variance(rate_map: Array, known: NDArray[np.bool_]) -> Array:
    """Maps with mean 0 and variance 1 over their known bins.

    Bins that are not known are 0, and so are all bins of a constant map.
    """
    n = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    x = np.where(known, rate_map, 0.0)
    largest = np.abs(x).max(axis=(-2, -1), keepdims=True)
    x = np.where(known, x - x.sum(axis=(-2, -1), keepdims=True) / n, 0.0)
    deviation = np.sqrt(np.square(x).sum(axis=(-2, -1), keepdims=True) / n)
    varies = deviation > _NO_SPREAD * largest
    return np.where(varies, x / np.where(varies, deviation, 1.0), 0.0)


def _standardised(x: Array) -> Array:
    """Columns with mean 0 and variance 1; columns that do not vary are 0."""
    largest = np.abs(x).max(axis=0)
    x = x - x.mean(axis=0)
    deviation = x.std(axis=0)
    varies = deviation > _NO_SPREAD * largest
    return np.where(varies, x / np.where(varies, deviation, 1.0), 0.0)


def _polar(correlograms: Array) -> Array:
    """Autocorrelograms in polar coordinates, of shape (n_maps, n_radii, n_angles).

    Radii are 1, 2, ... bins. Angles cover half a turn, because the other half is the same. In this
    form, a rotation is a circular shift along the last axis. Values that are not known are NaN.
    """
    middle = (np.array(correlograms.shape[1:]) - 1) / 2
    n_radii = max(1, int(_MOST_REACH * (middle.min() + 1)))
    angle = np.deg2rad(np.arange(0, 180, _DEGREES))
    radius = np.arange(1, n_radii + 1)[:, None]
    coordinates = [middle[0] + radius * np.cos(angle), middle[1] + radius * np.sin(angle)]
    known = ~np.isnan(correlograms)
    values = np.where(known, correlograms, 0.0)

    def sampled(image: Array) -> Array:
        return np.asarray(ndimage.map_coordinates(image, coordinates, order=1))

    total = np.array([sampled(image) for image in values])
    # Values that are not known have a weight of 0.
    weight = np.array([sampled(mask.astype(np.float64)) for mask in known])
    enough = weight >= 0.5
    return np.where(enough, total / np.where(enough, weight, 1.0), np.nan)


def _hexagonal(values: Array) -> Array:
    """Grid scores of autocorrelograms in polar coordinates, of shape (n_maps,)."""
    n_radii = values.shape[1]
    radius = np.arange(1, n_radii + 1)
    inner = _peak_radius(values)[:, None]
    # An autocorrelogram is the same after half a turn. A rotation by 120 degrees is therefore the
    # same as one by -60 degrees, with the same correlation as 60 degrees; likewise 150 and 30.
    at_60, at_30, at_90 = (_ring_correlations(values, angle, inner) for angle in (60, 30, 90))
    scores = at_60 - np.maximum(at_30, at_90)
    # If the central peak is wide, there may be room only for a narrower ring.
    wide = (radius >= np.minimum(_LEAST_REACH * inner, n_radii)) & (radius > inner)
    best = np.where(wide & ~np.isnan(scores), scores, -np.inf).max(axis=1)
    return np.where(np.isinf(best), np.nan, best)


def _peak_radius(values: Array) -> Array:
    """Radius of each central peak in bins, of shape (n_maps,); inf if the peak does not end."""
    known = ~np.isnan(values)
    mean = np.where(known, values, 0.0).sum(axis=2) / np.maximum(known.sum(axis=2), 1)
    rises = np.diff(mean, axis=1, append=np.inf) >= 0
    rises[:, -1:] = False
    ends = (mean < _PEAK_ENDS) | rises
    return np.where(ends.any(axis=1), ends.argmax(axis=1) + 1.0, np.inf)


def _ring_correlations(values: Array, angle: int, inner: Array) -> Array:
    """Correlation of rings with their rotated copies for every outer radius.

    Parameters
    ----------
    values : ndarray of shape (n_maps, n_radii, n_angles)
        Autocorrelograms in polar coordinates.
    angle : int
        Angle of the rotation in degrees.
    inner : ndarray of shape (n_maps, 1)
        Inner radius of each ring.

    Returns
    -------
    ndarray of shape (n_maps, n_radii)
    """
    rotated = np.roll(values, angle // _DEGREES, axis=2)
    radius = np.arange(1, values.shape[1] + 1.0)
    # A circle of larger radius passes through more bins.
    weight = radius * (radius >= inner)
    known = ~np.isnan(values) & ~np.isnan(rotated)
    x, y = np.where(known, values, 0.0), np.where(known, rotated, 0.0)
    share, *sums = (
        np.cumsum(weight * term.mean(axis=2), axis=1)
        for term in (known.astype(np.float64), x, y, x * x, y * y, x * y)
    )
    mean_x, mean_y, xx, yy, xy = (total / np.where(share > 0, share, 1.0) for total in sums)
    variance_x, variance_y = xx - mean_x**2, yy - mean_y**2
    varies = (variance_x > _NO_VARIANCE) & (variance_y > _NO_VARIANCE)
    # If less than half of a ring is known, its correlation is not reliable.
    usable = varies & (2 * share >= np.cumsum(weight, axis=1))
    product = np.where(usable, variance_x * variance_y, 1.0)
    return np.where(usable, (xy - mean_x * mean_y) / np.sqrt(product), np.nan)


def _angle(heading: Array) -> Array:
    """Angle in radians of rows of cosine and sine, of shape (n_times,)."""
    zero = (heading == 0).all(axis=1)
    if zero.any():
        raise InputError(
            f"heading has no direction in {int(zero.sum())} samples, cosine and sine are both 0; "
            "set them to NaN to leave them out"
        )
    return np.arctan2(heading[:, 1], heading[:, 0])
