"""What the classical scores of single cells share: checks of their inputs, and sums by bin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError

Array = NDArray[np.float64]

# A standard deviation below this share of the largest value is a rounding error.
NO_DEVIATION = 1e-10


def paired(
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


def refuse_negative(rates: Array, name: str) -> None:
    """Raise an error if a rate is negative; ``rates`` has shape (n_neurons, n_bins)."""
    lowest = np.nanmin(rates, axis=1)
    if (lowest < 0).any():
        neuron = int(lowest.argmin())
        raise InputError(
            f"{name} must hold rates of 0 or more, got {lowest[neuron]:.3g} for neuron {neuron}; "
            "give spike counts or rates that are not centred, or np.maximum(activity, 0)"
        )


def sums_by_bin(x: Array, index: NDArray[np.int64], n_bins: int) -> Array:
    """Sum of the activity of each neuron in each bin, of shape (n_neurons, n_bins)."""
    return np.array([np.bincount(index, weights=neuron, minlength=n_bins) for neuron in x.T])
