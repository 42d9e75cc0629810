"""Significance of encoding strength, by comparison with circular shifts of the activity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from xcebra.data.labels import Label
from xcebra.statistics.encoding_strength import encoding_strength

# Number of circular shifts. More shifts give more precise p-values and take longer; not tuned.
N_SHIFTS = 99
# Number of shifted copies that are regressed together. They share the regressors, which saves time;
# more copies need more memory.
_AT_ONCE = 11


def encoding_p_values(
    activity: NDArray[np.floating],
    label: Label,
    times: NDArray[np.int64],
    *,
    n_shifts: int = N_SHIFTS,
    seed: int = 0,
) -> NDArray[np.float64]:
    """P-value of each neuron's encoding strength, if its activity were unrelated to the label.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    label : Label
    times : ndarray of int
        Samples to use; the activity at these samples is shifted circularly among them.
    n_shifts : int
        Number of circular shifts.
    seed : int
        Seed of the shifts.

    Returns
    -------
    ndarray of shape (n_neurons,)
        Each neuron's strengths are standardised by the mean and standard deviation of its own
        shifts, then ranked among the shifts of all neurons. Because the shifts are pooled, p-values
        can be smaller than one over the number of shifts.
    """
    rows = times[label.valid[times]]
    rng = np.random.default_rng(seed)
    margin = max(1, len(rows) // 20)
    shifts = rng.integers(margin, max(margin + 1, len(rows) - margin), size=n_shifts)
    n_neurons = activity.shape[1]
    x = np.zeros((len(activity), _AT_ONCE * n_neurons), dtype=np.float32)
    nulls = []
    for part in np.array_split(shifts, -(-n_shifts // _AT_ONCE)):
        copies = [np.roll(activity[rows], shift, axis=0) for shift in part]
        shifted = x[:, : len(part) * n_neurons]
        shifted[rows] = np.concatenate(copies, axis=1)
        nulls.append(encoding_strength(shifted, label, rows).reshape(len(part), n_neurons))
    null = np.concatenate(nulls)
    centre, scale = null.mean(axis=0), null.std(axis=0, ddof=1)
    varies = scale > 0
    divisor = np.where(varies, scale, 1.0)
    pool = np.sort(((null - centre) / divisor)[:, varies].ravel())
    observed = (encoding_strength(activity, label, rows) - centre) / divisor
    n_larger = len(pool) - np.searchsorted(pool, observed)
    return np.where(varies, (1 + n_larger) / (1 + len(pool)), 1.0)


def encoding_significant(
    activity: NDArray[np.floating],
    label: Label,
    times: NDArray[np.int64],
    *,
    alpha: float = 0.05,
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Neurons whose encoding strength is significant, by Benjamini and Hochberg's procedure.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    label : Label
    times : ndarray of int
        Samples to use.
    alpha : float
        False discovery rate.
    seed : int
        Seed of the circular shifts.

    Returns
    -------
    ndarray of bool of shape (n_neurons,)
    """
    p_values = encoding_p_values(activity, label, times, seed=seed)
    return np.asarray(false_discovery_control(p_values) <= alpha)
