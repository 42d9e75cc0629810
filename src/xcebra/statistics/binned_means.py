"""Mean activity in bins of a behaviour, with standard errors that allow for slow changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.statistics.tuning_inputs import sums_by_bin

Array = NDArray[np.float64]


def means_by_bin(
    activity: Any, index: Any, n_bins: int, *, n_stretches: int = 20
) -> tuple[Array, Array, Array]:
    """Mean activity of each neuron in each bin of a behaviour, with its standard error.

    Neighbouring samples are correlated, and counting them as independent would make the standard
    error too small. The recording is therefore cut into stretches of time, and the standard error
    comes from leaving out one stretch at a time (jackknife).

    Parameters
    ----------
    activity : array of shape (n_times, n_neurons)
    index : array of int of shape (n_times,)
        Bin of each sample; samples with a negative index are left out.
    n_bins : int
    n_stretches : int
        Number of stretches of time.

    Returns
    -------
    means, errors : ndarray of shape (n_neurons, n_bins)
        NaN for bins without a sample. The standard error is also NaN for bins that were visited in
        a single stretch.
    counts : ndarray of shape (n_bins,)
        Number of samples in each bin.

    Examples
    --------
    >>> means, errors, counts = means_by_bin([[1.0], [3.0], [5.0]], [0, 0, 1], 2, n_stretches=3)
    >>> means.tolist(), errors[0, 0].item(), counts.tolist()
    ([[2.0, 5.0]], 1.0, [2.0, 1.0])
    """
    x, index = np.asarray(activity, dtype=np.float64), np.asarray(index, dtype=np.int64)
    stretch = np.arange(len(x)) * n_stretches // max(1, len(x))
    kept = index >= 0
    cell = stretch[kept] * n_bins + index[kept]
    shape = (n_stretches, n_bins)
    time = np.bincount(cell, minlength=n_stretches * n_bins).reshape(shape).astype(np.float64)
    sums = sums_by_bin(x[kept], cell, n_stretches * n_bins).reshape(-1, *shape)
    counts, total = time.sum(axis=0), sums.sum(axis=1)
    means = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    # Only stretches in which a bin was visited say anything about it.
    visited = time > 0
    n_visited = visited.sum(axis=0)
    known = n_visited > 1
    rest = np.where(known, counts - time, 1.0)
    others = np.where(visited & known, (total[:, None] - sums) / np.where(rest > 0, rest, 1), 0.0)
    centre = others.sum(axis=1) / np.maximum(n_visited, 1)
    squares = np.where(visited, (others - centre[:, None]) ** 2, 0.0).sum(axis=1)
    errors = np.sqrt((n_visited - 1) / np.maximum(n_visited, 1) * squares)
    return means, np.where(known, errors, np.nan), counts
