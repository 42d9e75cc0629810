"""Grid score: how hexagonal the firing fields in a rate map are, from its autocorrelogram."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.statistics.rate_maps import RateMaps
from xcebra.statistics.tuning_inputs import NO_DEVIATION

Array = NDArray[np.float64]

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
# Autocorrelograms that are computed together: larger values need more memory. Not tuned.
_AT_ONCE = 64


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


def _unit_variance(rate_map: Array, known: NDArray[np.bool_]) -> Array:
    """Maps with mean 0 and variance 1 over their known bins.

    Bins that are not known are 0, and so are all bins of a constant map.
    """
    n = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    x = np.where(known, rate_map, 0.0)
    largest = np.abs(x).max(axis=(-2, -1), keepdims=True)
    x = np.where(known, x - x.sum(axis=(-2, -1), keepdims=True) / n, 0.0)
    deviation = np.sqrt(np.square(x).sum(axis=(-2, -1), keepdims=True) / n)
    varies = deviation > NO_DEVIATION * largest
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
