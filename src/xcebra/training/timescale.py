"""Choice of the time offset and the temperature from the speed of the activity and the labels.

A positive that is ``k`` steps away has information about its reference. InfoNCE with N negatives
can express at most log N nats of it. The information is estimated from the canonical correlations
``rho`` between ``x(t)`` and ``x(t + k)``, by a Gaussian approximation: ``-1/2 sum log(1 - rho^2)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording, rows_at_once
from xcebra.networks.encoder import Inputs

# Time offsets to choose from, in samples.
OFFSETS = (1, 2, 4, 8, 16, 32, 64)
# Largest number of pairs to use, approximately. More pairs give more precise correlations and take
# longer; not tuned.
_MOST_PAIRS = 20_000
# Largest information of a pair, as a share of log N. Chosen on dataset seeds 100 and above. Smaller
# values lead to longer offsets.
_SHARE = 1.0
# Variance per latent that the temperature is chosen for: that of a uniform distribution on [-1, 1].
_VARIANCE = 1 / 3
# Upper limit of correlations, so that the information is finite.
_MOST_CORRELATED = 1 - 1e-9
# Smaller correlations may be due to chance, and the noise is not estimated from them. Smaller
# values use more columns and make the estimate noisier; not tuned.
_LEAST_KNOWN = 0.1
# An offset is allowed if the autocorrelation of the signals after this offset, corrected for noise,
# is at least _LEAST_LEFT, except for a share _FORGOTTEN of the signals (docs/method.md, "Why an
# offset"). The rule for the offset was chosen on dataset seeds 100 and above. Larger values of
# _LEAST_LEFT lead to shorter offsets.
_LEAST_LEFT = 0.7
_FORGOTTEN = 0.05

# A function of sample indices that returns an array of shape (n_times, n_columns).
Series = Callable[[IntArray], NDArray[Any]]
# A function of an offset that returns the correlation of each column over this offset.
ByOffset = Callable[[int], NDArray[np.float64]]


def component_series(recording: Recording, inputs: Inputs) -> Series:
    """Return a function that gives the components of the standardised activity at any samples."""
    reciprocal, loadings = inputs.reciprocal, inputs.loadings

    def components(times: IntArray) -> NDArray[np.float64]:
        result = np.empty((len(times), loadings.shape[1]))
        step = rows_at_once(len(reciprocal), _MOST_PAIRS)
        for start in range(0, len(times), step):
            x = recording.rows(times[start : start + step]) - inputs.mean
            result[start : start + step] = (x * reciprocal) @ loadings
        return result

    return components


def step_correlations(
    series: Series, epochs: Epochs, offset: int, n_latents: int
) -> NDArray[np.float64]:
    """Canonical correlations between each sample and the sample ``offset`` steps later.

    Parameters
    ----------
    series : Series
    epochs : Epochs
    offset : int
        In samples.
    n_latents : int
        Number of correlations to return.

    Returns
    -------
    ndarray of shape (n_latents,)
        Largest first, and zero beyond the number of dimensions of the data.
    """
    correlations = np.zeros(n_latents)
    start = _pair_starts(epochs, offset)
    if len(start) < 3:
        return correlations
    now = series(start)
    # If there were more components than a tenth of the pairs, they would correlate by chance.
    columns = np.argsort(-now.var(axis=0))[: max(1, len(start) // 10)]
    now, later = _centred(now, columns), _centred(series(start + offset), columns)
    # These are the products of the whitened columns, without the columns themselves.
    products = _whitening(now).T @ (now.T @ later / len(start)) @ _whitening(later)
    rho = np.linalg.svd(products, compute_uv=False)[:n_latents]
    correlations[: len(rho)] = np.clip(rho, 0.0, _MOST_CORRELATED)
    return correlations


def _centred(x: NDArray[Any], columns: IntArray) -> NDArray[Any]:
    """Some of the columns minus their means, without a second copy if all are chosen."""
    chosen = x if len(columns) == x.shape[1] else x[:, columns]
    return chosen - chosen.mean(axis=0)


def _correlations_after(
    series: Series, epochs: Epochs, n_latents: int, offset: int
) -> NDArray[np.float64]:
    return step_correlations(series, epochs, offset, n_latents)


def _pair_starts(epochs: Epochs, offset: int) -> IntArray:
    """First samples of pairs that are inside an epoch: all of them, or every n-th one."""
    epochs = epochs.longer_than(offset)
    if len(epochs) == 0:
        return np.empty(0, dtype=np.int64)
    start = epochs.indices()
    start = start[start + offset < epochs.stop_of(start)]
    return start[:: max(1, len(start) // _MOST_PAIRS)]


def information(rho: NDArray[np.float64]) -> float:
    """Information in nats that Gaussian variables with these canonical correlations share.

    Parameters
    ----------
    rho : ndarray of shape (n_correlations,)
    """
    return float(-0.5 * np.log1p(-np.square(rho)).sum())


def choose_offset(
    series: list[tuple[Series, int]],
    epochs: Epochs,
    n_negatives: int,
    signals: Sequence[Series] = (),
) -> int:
    """Choose the smallest offset whose pairs have no more information than the loss can express.

    The information is that of the factors, without noise: noise in the neurons lowers the
    correlations, but it averages out over neurons, and the embedding follows the factors. If many
    neurons follow one slow factor, each in a different way, the information is overestimated.
    Therefore the offset must also be so short that the fastest signals are still correlated with
    themselves after this offset.

    Parameters
    ----------
    series : list of (Series, int)
        The time series of each objective, and its number of latents.
    epochs : Epochs
    n_negatives : int
    signals : sequence of Series
        Neurons and labels that must still be correlated with themselves after the offset.
    """
    limit = _SHARE * math.log(n_negatives)
    longest = max(1, min(epochs.size // 500, int(np.median(epochs.lengths)) // 10))
    allowed = [k for k in OFFSETS if k <= longest]
    # The same lags are needed several times.
    autocorrelations = [cache(partial(_autocorrelations, s, epochs)) for s in signals]
    allowed = [k for k in allowed if all(_outlasts(a, k) for a in autocorrelations)] or [1]
    correlations = [cache(partial(_correlations_after, s, epochs, d)) for s, d in series]
    reliabilities = [_reliability(c) for c in correlations]
    for offset in allowed:
        measured = [by_offset(offset) for by_offset in correlations]
        corrected = [
            np.minimum(rho / factor, _MOST_CORRELATED)
            for rho, factor in zip(measured, reliabilities, strict=True)
        ]
        if all(information(rho) <= limit for rho in corrected):
            return offset
    return allowed[-1]


def outlasts_offset(series: Series, epochs: Epochs, offset: int) -> bool:
    """Whether nearly all columns, corrected for noise, are still correlated after the offset.

    Noise lowers the autocorrelations at all lags by the same factor; see `reliability`. Columns
    that are not correlated from one sample to the next, such as white noise, are ignored.
    """
    return _outlasts(partial(_autocorrelations, series, epochs), offset)


def _outlasts(autocorrelations: ByOffset, offset: int) -> bool:
    """See `outlasts_offset`; the first argument gives the autocorrelations at any lag."""
    if offset == 1:
        return True
    lag_1, lag_2, later = (autocorrelations(k) for k in (1, 2, offset))
    known = (lag_1 > _LEAST_KNOWN) & (lag_2 > 0)
    if not known.any():
        return True
    noise_free = later[known] / np.minimum(lag_1[known] ** 2 / lag_2[known], 1.0)
    return bool(np.quantile(noise_free, _FORGOTTEN) >= _LEAST_LEFT)


def _autocorrelations(series: Series, epochs: Epochs, offset: int) -> NDArray[np.float64]:
    """Autocorrelation of each column at one lag; zero for columns that do not change."""
    start = _pair_starts(epochs, offset)
    origin = series(start[:1]).astype(np.float64)
    # Sums over pairs of both columns, of their squares and of their products, in parts. The first
    # sample is subtracted, so that a large mean does not cost precision.
    sums = np.zeros((5, origin.shape[1]))
    step = rows_at_once(origin.shape[1], len(start) or 1)
    for first in range(0, len(start), step):
        part = start[first : first + step]
        now, later = series(part) - origin, series(part + offset) - origin
        products = now, later, np.square(now), np.square(later), now * later
        sums += [product.sum(axis=0) for product in products]
    now_mean, later_mean, now_square, later_square, product_mean = sums / max(1, len(start))
    variances = now_square - np.square(now_mean), later_square - np.square(later_mean)
    scale = np.sqrt(np.maximum(variances[0], 0.0) * np.maximum(variances[1], 0.0))
    covariance = product_mean - now_mean * later_mean
    return np.where(scale > 0, covariance / np.where(scale > 0, scale, 1.0), 0.0)


def reliability(series: Series, epochs: Epochs, n_latents: int) -> NDArray[np.float64]:
    """Factor by which noise lowers each canonical correlation over time.

    The noise is independent from sample to sample. If the signal decays exponentially, its
    correlations over one and two samples are ``c a`` and ``c a^2``, where ``c`` is the factor.
    Signals that change smoothly give a value above 1, which is set to 1 (no noise). The factor is
    also 1 if the correlations are too small to estimate it.

    Returns
    -------
    ndarray of shape (n_latents,)
    """
    return _reliability(partial(_correlations_after, series, epochs, n_latents))


def _reliability(correlations: ByOffset) -> NDArray[np.float64]:
    """See `reliability`; the argument gives the canonical correlations after any offset."""
    lag_1, lag_2 = correlations(1), correlations(2)
    known = (lag_1 > _LEAST_KNOWN) & (lag_2 > _LEAST_KNOWN)
    factor = np.where(known, lag_1**2 / np.where(known, lag_2, 1.0), 1.0)
    return np.minimum(factor, 1.0)


def choose_temperature(series: list[tuple[Series, int]], epochs: Epochs, offset: int) -> float:
    """Choose the temperature at which the optimal embedding approximately fills the unit box.

    The mean squared step of a latent with variance ``v`` is ``2 v (1 - rho)``. At the optimum, the
    temperature is twice this value. If there are only classes, which have no steps, it is 1.

    Parameters
    ----------
    series : list of (Series, int)
        The time series of each objective, and its number of latents.
    epochs : Epochs
    offset : int
        Time offset of pairs, in samples.
    """
    if not series:
        return 1.0
    rho = np.concatenate([step_correlations(s, epochs, offset, d) for s, d in series])
    return float(np.clip(4 * _VARIANCE * np.mean(1 - rho), 1e-3, 1.0))


def _whitening(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix that rotates and scales centred columns to unit variance.

    Directions of no variance are left out.
    """
    variances, axes = np.linalg.eigh(x.T @ x / len(x))
    varies = variances > 1e-10 * variances[-1]
    return np.asarray(axes[:, varies] / np.sqrt(variances[varies]))
