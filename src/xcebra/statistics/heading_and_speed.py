"""Classical scores of tuning to heading and to speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.statistics.tuning_inputs import NO_DEVIATION, paired, refuse_negative, sums_by_bin

Array = NDArray[np.float64]

# Widest gap in degrees between headings that were taken; wider gaps are not interpolated. Larger
# values rely more on the interpolation; not tuned.
_WIDEST_GAP = 180


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
    x, heading = paired(activity, heading, "heading", columns=(1, 2))
    angle = heading[:, 0] if heading.shape[1] == 1 else _angle(heading)
    # A negative angle close to 0 may be rounded to a whole turn, which belongs to bin 0.
    index = np.floor(angle / (2 * np.pi) % 1 * n_bins).astype(np.int64) % n_bins
    time = np.bincount(index, minlength=n_bins)
    return np.where(time > 0, sums_by_bin(x, index, n_bins) / np.maximum(time, 1), np.nan)


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
    refuse_negative(curves, "activity")
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
    x, v = paired(activity, speed, "speed", columns=(1,))
    x, v = _with_unit_variance(x), _with_unit_variance(v)
    return np.clip((x * v).mean(axis=0), -1.0, 1.0)


def _angle(heading: Array) -> Array:
    """Angle in radians of rows of cosine and sine, of shape (n_times,)."""
    zero = (heading == 0).all(axis=1)
    if zero.any():
        raise InputError(
            f"heading has no direction in {int(zero.sum())} samples, cosine and sine are both 0; "
            "set them to NaN to leave them out"
        )
    return np.arctan2(heading[:, 1], heading[:, 0])


def _with_unit_variance(x: Array) -> Array:
    """Columns with mean 0 and variance 1; columns that do not vary are 0."""
    largest = np.abs(x).max(axis=0)
    x = x - x.mean(axis=0)
    deviation = x.std(axis=0)
    varies = deviation > NO_DEVIATION * largest
    return np.where(varies, x / np.where(varies, deviation, 1.0), 0.0)
