"""Classical scores of navigation cells: rate maps, grid score, mean vector length, speed score.

Each looks at one neuron and one behaviour at a time. ``activity`` is always of shape (n_times,
n_neurons), firing rates or spike counts of equal time steps. A sample whose behaviour is NaN is
left out.
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

# Of the longest side of the box: 2.5 cm and 5 cm in a box of one metre.
_BIN_SHARE, _SMOOTH_SHARE = 1 / 40, 1 / 20
_MOST_BINS = 500
# The central peak of an autocorrelogram ends where the mean around it falls below this.
_PEAK_ENDS = 0.2
# The ring reaches at least this many times the radius of the central peak, so that it can hold
# neighbouring fields, and at most this share of the shorter side, beyond which few bins overlap.
_LEAST_REACH, _MOST_REACH = 2.5, 0.8
_DEGREES = 2
# Rounding of the transforms makes variances of about 1e-15 out of nothing.
_NO_VARIANCE = 1e-9
# A spread smaller than this share of the largest value is rounding.
_NO_SPREAD = 1e-10
# Degrees of heading that may be unseen in one piece.
_WIDEST_GAP = 180
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class RateMaps:
    """Mean activity of every neuron at every place.

    Parameters
    ----------
    rates : ndarray of shape (n_neurons, n_x, n_y)
        In the unit of the activity; NaN in bins that were not visited.
    occupancy : ndarray of shape (n_x, n_y)
        Samples in each bin.
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
    """Mean activity by place, however long each place was visited.

    Activity and visits are smoothed separately and then divided. So a bin that was hardly visited
    borrows from its neighbours, and one that was never visited does not drag them down.

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
    position : array of shape (n_times, 2)
        In any unit.
    bin_size : float, optional
        Side of a square bin, in the unit of the position. If not given, 1/40 of the longest side
        of the box: 2.5 cm in a box of one metre.
    smooth : float, optional
        Standard deviation of the Gaussian, in the unit of the position; 0 for none. If not given,
        1/20 of the longest side: 5 cm in a box of one metre.
    extent : ((x_min, x_max), (y_min, y_max)), optional
        The box; samples outside are left out. If not given, the range of the positions.
    least_time : int
        Samples that a bin needs to count as visited.

    Returns
    -------
    RateMaps

    Notes
    -----
    The defaults grow with the box, so that they hold in any unit. Firing fields do not grow with
    it: in a box much larger than one metre give ``bin_size`` and ``smooth``, for example 0.025 and
    0.05 in metres. A field should be a few times wider than both. Give ``extent`` to compare
    recordings in the same box.

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
    x, where = _paired(activity, position, "position", columns=(2,))
    box = _range(where) if extent is None else np.asarray(extent, dtype=np.float64)
    _check_box(box, extent)
    longest = float(np.ptp(box, axis=1).max())
    bin_size = _BIN_SHARE * longest if bin_size is None else bin_size
    smooth = _SMOOTH_SHARE * longest if smooth is None else smooth
    edges = _edges(box, bin_size)
    inside = ((where >= box[:, 0]) & (where <= box[:, 1])).all(axis=1)
    if not inside.any():
        raise InputError(
            f"extent {box.tolist()} holds none of the {len(where)} positions, which range over "
            f"{_range(where).tolist()}; give both in the same unit"
        )
    return _mean_by_bin(x[inside], where[inside], edges, smooth / bin_size, least_time)


def spatial_information(maps: RateMaps) -> Array:
    """What a spike tells about the place, in bits (Skaggs et al. 1993).

    The mean over time of ``r / m * log2(r / m)``, where r is the rate at the place and m its mean.
    It is 0 for a neuron that fires the same everywhere, or never, and log2(1 / f) for one that
    fires the same within a share f of the time and is silent otherwise.

    Parameters
    ----------
    maps : RateMaps
        Of rates or counts of 0 or more.

    Returns
    -------
    ndarray of shape (n_neurons,)

    Notes
    -----
    Rates do not matter, only their ratios. Few spikes or short visits make it too large: compare
    with the same neuron's activity moved in time.
    """
    visited = ~np.isnan(maps.rates[0])
    rates, time = maps.rates[:, visited], maps.occupancy[visited]
    _refuse_negative(rates, "maps")
    share = time / time.sum()
    mean = rates @ share
    ratio = rates / np.where(mean > 0, mean, 1.0)[:, None]
    bits = ratio * np.log2(np.where(ratio > 0, ratio, 1.0))
    # Never below zero but for rounding.
    return np.maximum(bits @ share, 0.0)


def autocorrelogram(rate_map: Any, least_overlap: int = 20) -> Array:
    """Correlation of a rate map with itself, moved by every number of bins.

    Parameters
    ----------
    rate_map : array of shape (n_x, n_y), or (..., n_x, n_y) for several at once
        NaN in bins that take no part.
    least_overlap : int
        Bins that must be known both in the map and in the moved map.

    Returns
    -------
    ndarray of shape (..., 2 * n_x - 1, 2 * n_y - 1)
        Pearson correlation over the bins known in both; no displacement is in the middle. NaN where
        too few overlap, and 0 where the overlapping part of either does not vary.
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
    map_, square, mask = (np.fft.rfft2(each, size) for each in (x, x * x, known.astype(np.float64)))

    def correlated(first: Any, second: Any) -> Array:
        found = np.fft.irfft2(first * second.conj(), size)
        return np.asarray(np.roll(found, (n_x - 1, n_y - 1), axis=(-2, -1)))

    n = np.round(correlated(mask, mask))
    enough = n >= least_overlap
    n = np.where(enough, n, 1.0)
    here, moved = correlated(map_, mask) / n, correlated(mask, map_) / n
    covariance = correlated(map_, map_) / n - here * moved
    variance_here = correlated(square, mask) / n - here**2
    variance_moved = correlated(mask, square) / n - moved**2
    # Rounding is relative to the whole map's sum of squares, not to the overlap's.
    least = _NO_VARIANCE * known.sum(axis=(-2, -1), keepdims=True) / n
    varies = (variance_here > least) & (variance_moved > least)
    found = np.where(varies, covariance, 0.0)
    found /= np.sqrt(np.where(varies, variance_here * variance_moved, 1.0))
    return np.where(enough, np.clip(found, -1.0, 1.0), np.nan)


def grid_score(maps: RateMaps) -> Array:
    """How hexagonal the fields of each neuron lie (Sargolini et al. 2006).

    The map's autocorrelogram is turned and correlated with itself on a ring around its central
    peak. The score is the lower of the correlations at 60 and 120 degrees less the highest at 30,
    90 and 150 degrees. It lies between -2 and 2, above 1 for a clear hexagonal grid and about 0 or
    less otherwise.

    Parameters
    ----------
    maps : RateMaps

    Returns
    -------
    ndarray of shape (n_neurons,)
        NaN for neurons whose map does not vary, whose central peak fills the box, or whose ring is
        known by less than half.

    Notes
    -----
    The ring begins where the mean of the autocorrelogram around its centre falls below 0.2 or
    first rises again. Its outer radius is the one, in steps of a bin, with the best score, from
    2.5 times the inner radius (or less, if there is no room) to 0.8 of the shorter side of the
    box. Since the best is taken, maps of noise may score up to about 0.5: compare with the same
    neuron's activity moved in time. A grid is found if its spacing is less than about two thirds
    of the shorter side.
    """
    widths = np.concatenate([np.diff(each) for each in maps.edges])
    if not np.allclose(widths, widths[0], rtol=1e-6, atol=0):
        raise InputError(
            f"maps must have square bins to be turned, got sides from {widths.min():.6g} to "
            f"{widths.max():.6g}; make them with rate_maps"
        )
    # In parts, since many neurons' autocorrelograms at once take much memory.
    parts = [maps.rates[i : i + _AT_ONCE] for i in range(0, len(maps.rates), _AT_ONCE)]
    return np.concatenate([_hexagonal(_polar(autocorrelogram(each))) for each in parts])


def head_direction_curves(activity: Any, heading: Any, *, n_bins: int = 60) -> Array:
    """Mean activity by heading, however long each heading was taken.

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
    heading : array of shape (n_times,) or (n_times, 2)
        Radians, or cosine and sine; the length of that vector does not matter.
    n_bins : int
        Equal bins of the circle; bin i is around ``(i + 0.5) * 2 * pi / n_bins``.

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
    # The smallest negative angles become a whole turn when rounded.
    index = np.floor(angle / (2 * np.pi) % 1 * n_bins).astype(np.int64) % n_bins
    time = np.bincount(index, minlength=n_bins)
    return np.where(time > 0, _sums(x, index, n_bins) / np.maximum(time, 1), np.nan)


def mean_vector_length(activity: Any, heading: Any, *, n_bins: int = 60) -> Array:
    """How sharply each neuron is tuned to heading: 0 for not at all, 1 for a single direction.

    The length of the mean of the directions, each weighted by the mean activity there. Every
    direction counts the same, however long the animal looked that way. So a neuron without tuning
    has 0 even if the animal looks one way only most of the time, and a tuning of exp(k cos) has
    the Bessel functions' ratio I1(k) / I0(k).

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
        Of 0 or more on average over every heading.
    heading : array of shape (n_times,) or (n_times, 2)
        Radians, or cosine and sine.
    n_bins : int
        Equal bins of the circle. The default, 6 degrees, makes lengths smaller by 0.05 %; in a
        recording of a few minutes take fewer, so that every bin holds some tens of samples.

    Returns
    -------
    ndarray of shape (n_neurons,)
        0 for silent neurons.

    Notes
    -----
    Headings that were never taken are filled in by a line between their neighbours; leaving them
    out would look like tuning. Gaps of more than half a turn are refused.
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
        Smooth spike counts first, or take steps long enough to hold several spikes: the noise of
        single spikes lowers the score.
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
    """Activity (n, n_neurons) and behaviour (n, n_columns) of the samples that are known."""
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
    given = b.shape
    b = b[:, None] if b.ndim == 1 else b
    if b.ndim != 2 or b.shape[1] not in columns:
        wanted = " or ".join("(n_times,)" if n == 1 else f"(n_times, {n})" for n in columns)
        raise InputError(f"{name} must have shape {wanted}, got {given}; give one row per sample")
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


def _range(where: Array) -> Array:
    """Lowest and highest of x and of y, shape (2, 2)."""
    return np.stack([where.min(axis=0), where.max(axis=0)], axis=1)


def _check_box(box: Array, extent: Any) -> None:
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
    """Limits of square bins along x and y; the last may reach beyond the box."""
    # A box of 1 with bins of 0.1 has ten of them, whatever rounding makes of it.
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
    x: Array, where: Array, edges: tuple[Array, Array], width: float, least_time: int
) -> RateMaps:
    """Mean of x by place, smoothed over ``width`` bins."""
    shape = (len(edges[0]) - 1, len(edges[1]) - 1)
    # A sample between two bins belongs to the higher one, and on the far wall to the last.
    at = [
        np.clip(np.searchsorted(limits, column, side="right") - 1, 0, n - 1)
        for limits, column, n in zip(edges, where.T, shape, strict=True)
    ]
    index = np.ravel_multi_index((at[0], at[1]), shape)
    n_bins = shape[0] * shape[1]
    occupancy = np.bincount(index, minlength=n_bins).astype(np.float64).reshape(shape)
    visited = occupancy >= least_time
    if not visited.any():
        raise InputError(
            f"least_time {least_time} is more than the {occupancy.max():.0f} samples of the bin "
            "visited most; lower it, or make bin_size larger"
        )
    # Beyond the walls there is neither activity nor time.
    time = ndimage.gaussian_filter(occupancy, width, mode="constant")
    sums = _sums(x, index, n_bins).reshape(-1, *shape)
    sums = ndimage.gaussian_filter(sums, (0, width, width), mode="constant")
    rates = np.where(visited, sums / np.where(visited, time, 1.0), np.nan)
    return RateMaps(rates, occupancy, edges)


def _sums(x: Array, index: NDArray[np.int64], n_bins: int) -> Array:
    """Sum of every neuron's activity in each bin, shape (n_neurons, n_bins)."""
    return np.array([np.bincount(index, weights=each, minlength=n_bins) for each in x.T])


def _refuse_negative(rates: Array, name: str) -> None:
    """Refuse mean rates below zero, of shape (n_neurons, n_bins), that cannot be weights."""
    lowest = np.nanmin(rates, axis=1)
    if (lowest < 0).any():
        neuron = int(lowest.argmin())
        raise InputError(
            f"{name} must hold rates of 0 or more, got {lowest[neuron]:.3g} for neuron {neuron}; "
            "give spike counts or rates that are not centred, or np.maximum(activity, 0)"
        )


def _unit_variance(rate_map: Array, known: NDArray[np.bool_]) -> Array:
    """Maps with mean 0 and variance 1 over their known bins, and 0 elsewhere or if constant."""
    n = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    x = np.where(known, rate_map, 0.0)
    largest = np.abs(x).max(axis=(-2, -1), keepdims=True)
    x = np.where(known, x - x.sum(axis=(-2, -1), keepdims=True) / n, 0.0)
    spread = np.sqrt(np.square(x).sum(axis=(-2, -1), keepdims=True) / n)
    varies = spread > _NO_SPREAD * largest
    return np.where(varies, x / np.where(varies, spread, 1.0), 0.0)


def _standardised(x: Array) -> Array:
    """Columns with mean 0 and variance 1, or 0 if they do not vary."""
    largest = np.abs(x).max(axis=0)
    x = x - x.mean(axis=0)
    spread = x.std(axis=0)
    varies = spread > _NO_SPREAD * largest
    return np.where(varies, x / np.where(varies, spread, 1.0), 0.0)


def _polar(correlograms: Array) -> Array:
    """Autocorrelograms by radius and angle, shape (n_maps, n_radii, n_angles); NaN if not known.

    Radii are 1, 2, ... bins. Half a turn of angles is enough, as the other half is the same. In
    this form turning is moving along the last axis.
    """
    middle = (np.array(correlograms.shape[1:]) - 1) / 2
    n_radii = max(1, int(_MOST_REACH * (middle.min() + 1)))
    angle = np.deg2rad(np.arange(0, 180, _DEGREES))
    radius = np.arange(1, n_radii + 1)[:, None]
    at = [middle[0] + radius * np.cos(angle), middle[1] + radius * np.sin(angle)]
    known = ~np.isnan(correlograms)
    values = np.where(known, correlograms, 0.0)

    def sampled(image: Array) -> Array:
        return np.asarray(ndimage.map_coordinates(image, at, order=1))

    total = np.array([sampled(each) for each in values])
    # Values that are not known have no weight.
    weight = np.array([sampled(each.astype(np.float64)) for each in known])
    near = weight >= 0.5
    return np.where(near, total / np.where(near, weight, 1.0), np.nan)


def _hexagonal(values: Array) -> Array:
    """Grid scores of autocorrelograms in polar form, shape (n_maps,)."""
    n_radii = values.shape[1]
    radius = np.arange(1, n_radii + 1)
    inner = _peak_radius(values)[:, None]
    # Half a turn changes nothing, so 120 degrees are as good as -60, the same as 60; 150 as 30.
    at_60, at_30, at_90 = (_ring_correlations(values, angle, inner) for angle in (60, 30, 90))
    scores = at_60 - np.maximum(at_30, at_90)
    # A wide central peak may leave room only for a narrower ring.
    wide = (radius >= np.minimum(_LEAST_REACH * inner, n_radii)) & (radius > inner)
    best = np.where(wide & ~np.isnan(scores), scores, -np.inf).max(axis=1)
    return np.where(np.isinf(best), np.nan, best)


def _peak_radius(values: Array) -> Array:
    """Radius of each central peak in bins, shape (n_maps,); inf if it does not end."""
    known = ~np.isnan(values)
    mean = np.where(known, values, 0.0).sum(axis=2) / np.maximum(known.sum(axis=2), 1)
    rises = np.diff(mean, axis=1, append=np.inf) >= 0
    rises[:, -1:] = False
    ends = (mean < _PEAK_ENDS) | rises
    return np.where(ends.any(axis=1), ends.argmax(axis=1) + 1.0, np.inf)


def _ring_correlations(values: Array, angle: int, inner: Array) -> Array:
    """Correlation of rings with themselves turned, for every outer radius: (n_maps, n_radii).

    ``inner``, of shape (n_maps, 1), is where each ring begins.
    """
    turned = np.roll(values, angle // _DEGREES, axis=2)
    radius = np.arange(1, values.shape[1] + 1.0)
    # A circle further out passes more bins.
    weight = radius * (radius >= inner)
    both = ~np.isnan(values) & ~np.isnan(turned)
    x, y = np.where(both, values, 0.0), np.where(both, turned, 0.0)
    share, *means = (
        np.cumsum(weight * each.mean(axis=2), axis=1)
        for each in (both.astype(np.float64), x, y, x * x, y * y, x * y)
    )
    mean_x, mean_y, xx, yy, xy = (each / np.where(share > 0, share, 1.0) for each in means)
    variance_x, variance_y = xx - mean_x**2, yy - mean_y**2
    varies = (variance_x > _NO_VARIANCE) & (variance_y > _NO_VARIANCE)
    # What is known of less than half a ring may look like anything.
    usable = varies & (2 * share >= np.cumsum(weight, axis=1))
    product = np.where(usable, variance_x * variance_y, 1.0)
    return np.where(usable, (xy - mean_x * mean_y) / np.sqrt(product), np.nan)


def _angle(heading: Array) -> Array:
    """Angle of (cosine, sine) rows."""
    none = (heading == 0).all(axis=1)
    if none.any():
        raise InputError(
            f"heading has no direction in {int(none.sum())} samples, cosine and sine are both 0; "
            "set them to NaN to leave them out"
        )
    return np.arctan2(heading[:, 1], heading[:, 0])
