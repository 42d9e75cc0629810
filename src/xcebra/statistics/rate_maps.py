"""Rate maps: mean activity by position, and the spatial information in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.statistics.tuning_inputs import paired, refuse_negative, sums_by_bin

Array = NDArray[np.float64]
Extent = tuple[tuple[float, float], tuple[float, float]]

# Default bin size and smoothing as shares of the longest side of the box: 2.5 cm and 5 cm in a box
# of one metre.
_BIN_SHARE, _SMOOTH_SHARE = 1 / 40, 1 / 20
# More bins along a side are refused, since the bin size is then probably in another unit than the
# position. Larger values need more memory; not tuned.
_MOST_BINS = 500


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
    x, position = paired(activity, position, "position", columns=(2,))
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
    refuse_negative(rates, "maps")
    share = time / time.sum()
    mean = rates @ share
    ratio = rates / np.where(mean > 0, mean, 1.0)[:, None]
    bits = ratio * np.log2(np.where(ratio > 0, ratio, 1.0))
    # The sum is not negative, apart from rounding errors.
    return np.maximum(bits @ share, 0.0)


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
    sums = sums_by_bin(x, index, n_bins).reshape(-1, *shape)
    sums = ndimage.gaussian_filter(sums, (0, width, width), mode="constant")
    rates = np.where(visited, sums / np.where(visited, time, 1.0), np.nan)
    return RateMaps(rates, occupancy, edges)
