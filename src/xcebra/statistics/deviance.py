"""How much of the Poisson deviance of counts is explained by predicted rates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

Array = NDArray[np.float64]

# Smallest predicted rate of counts, as a share of the neuron's mean. Smaller values punish
# predictions near zero or below more strongly. Not tuned.
_LEAST_RATE = 0.1


def poisson_deviance_explained(counts: Array, predicted: Array) -> Array:
    """Share of each column's Poisson deviance from its mean that predictions explain.

    Least squares can predict negative rates, for which the deviance is not defined. Predictions
    are therefore raised to at least a tenth of the neuron's mean.

    Parameters
    ----------
    counts, predicted : ndarray of shape (n_times, n_neurons)

    Returns
    -------
    ndarray of shape (n_neurons,)
    """
    fires = counts.any(axis=0)
    mean = np.where(fires, counts.mean(axis=0), 1.0)
    rates = np.maximum(predicted, _LEAST_RATE * mean)
    logs = xlogy(counts, counts)
    left, whole = (
        (logs - xlogy(counts, rate) - counts + rate).sum(axis=0) for rate in (rates, mean)
    )
    varies = fires & (whole > 0)
    return np.where(varies, 1 - left / np.where(varies, whole, 1.0), 0.0)
