"""How fast the activity and the labels change, and the time offset and temperature that follow.

A positive pair ``k`` steps apart carries information about its reference; InfoNCE with N negatives
can express log N nats of it and no more. Correlations between ``x(t)`` and ``x(t + k)`` say how
much there is, to the accuracy of a Gaussian approximation: ``-1/2 sum log(1 - rho^2)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording
from xcebra.networks.encoder import Inputs

OFFSETS = (1, 2, 4, 8, 16, 32, 64)
_MOST_PAIRS = 20_000
# Share of log N that a pair's information may reach. Chosen on dataset seeds 100 and above.
_SHARE = 1.0
# Variance per latent that the temperature aims at: that of the unit box.
_VARIANCE = 1 / 3
_MOST_CORRELATED = 1 - 1e-9
# Weaker correlations may be chance: they tell nothing of noise.
_LEAST_KNOWN = 0.1
# What must be left of a signal's correlation with itself from one sample of a pair to the other,
# and the share of the signals that may be forgotten faster.
_LEAST_LEFT = 0.7
_FORGOTTEN = 0.05

Series = Callable[[IntArray], NDArray[Any]]


def component_series(recording: Recording, inputs: Inputs) -> Series:
    """Principal components of the standardised activity at given times."""
    reciprocal = inputs.reciprocal
    return lambda times: ((recording.rows(times) - inputs.mean) * reciprocal) @ inputs.loadings


def step_correlations(
    series: Series, epochs: Epochs, offset: int, n_latents: int
) -> NDArray[np.float64]:
    """Canonical correlations between now and ``offset`` steps later, largest first.

    Returns
    -------
    ndarray of shape (n_latents,)
        Zero where the data has fewer dimensions.
    """
    found = np.zeros(n_latents)
    start = _pair_starts(epochs, offset)
    if len(start) < 3:
        return found
    now, later = series(start), series(start + offset)
    # More components than a tenth of the pairs would correlate by chance.
    keep = np.argsort(-now.var(axis=0))[: max(1, len(start) // 10)]
    now, later = (_whitened(s[:, keep]) for s in (now, later))
    rho = np.linalg.svd(now.T @ later / len(start), compute_uv=False)[:n_latents]
    found[: len(rho)] = np.clip(rho, 0.0, _MOST_CORRELATED)
    return found


def _pair_starts(epochs: Epochs, offset: int) -> IntArray:
    """First samples of pairs inside an epoch, all or evenly chosen ones."""
    epochs = epochs.longer_than(offset)
    if len(epochs) == 0:
        return np.empty(0, dtype=np.int64)
    start = epochs.indices()
    start = start[start + offset < epochs.stop_of(start)]
    return start[:: max(1, len(start) // _MOST_PAIRS)]


def information(rho: NDArray[np.float64]) -> float:
    """Nats that a pair with these correlations shares, were it Gaussian."""
    return float(-0.5 * np.log1p(-np.square(rho)).sum())


def choose_offset(
    series: list[tuple[Series, int]],
    epochs: Epochs,
    n_negatives: int,
    signals: Sequence[Series] = (),
) -> int:
    """The smallest offset whose pairs carry no more information than the loss can express.

    What counts is what the factors share from one sample to the other; noise in the neurons hides a
    part of it from the loss, but the embedding follows the factors, as noise averages out. Many
    neurons that see one slow factor each in its own way seem to carry more than there is, so
    the offset stays short enough for the fastest signals to last from one sample to the other.

    Parameters
    ----------
    series : list of (Series, int)
        What each objective follows, and how many latents it has for it.
    epochs : Epochs
    n_negatives : int
    signals : sequence of Series
        Neurons and labels, none of whose columns a pair may forget.
    """
    limit = _SHARE * math.log(n_negatives)
    longest = max(1, min(epochs.size // 500, int(np.median(epochs.lengths)) // 10))
    allowed = [k for k in OFFSETS if k <= longest]
    allowed = [k for k in allowed if all(outlasts_offset(s, epochs, k) for s in signals)] or [1]
    kept = [reliability(s, epochs, d) for s, d in series]
    for offset in allowed:
        found = [step_correlations(s, epochs, offset, d) for s, d in series]
        clean = [np.minimum(r / c, _MOST_CORRELATED) for r, c in zip(found, kept, strict=True)]
        if all(information(rho) <= limit for rho in clean):
            return offset
    return allowed[-1]


def outlasts_offset(series: Series, epochs: Epochs, offset: int) -> bool:
    """Whether all columns but a few, noise set aside, are still like themselves so much later.

    Noise lowers correlations over one, two and more samples by one factor; see `reliability`.
    Columns that do not last from one sample to the next at all, white noise, have no say.
    """
    if offset == 1:
        return True
    one, two, later = (_autocorrelations(series, epochs, k) for k in (1, 2, offset))
    known = (one > _LEAST_KNOWN) & (two > 0)
    if not known.any():
        return True
    noise_free = later[known] / np.minimum(one[known] ** 2 / two[known], 1.0)
    return bool(np.quantile(noise_free, _FORGOTTEN) >= _LEAST_LEFT)


def _autocorrelations(series: Series, epochs: Epochs, offset: int) -> NDArray[np.float64]:
    """Of each column; zero where it does not change."""
    start = _pair_starts(epochs, offset)
    now, later = (series(times).astype(np.float64) for times in (start, start + offset))
    now, later = (each - each.mean(axis=0) for each in (now, later))
    scale = np.sqrt(np.square(now).mean(axis=0) * np.square(later).mean(axis=0))
    return (now * later).mean(axis=0) / np.where(scale > 0, scale, 1.0)


def reliability(series: Series, epochs: Epochs, n_latents: int) -> NDArray[np.float64]:
    """The factor by which noise, new at every sample, lowers each correlation over time.

    If what lasts decays evenly, its correlations over one and two samples are ``c a`` and
    ``c a^2``; what changes smoothly gives more than 1, which is cut: no noise. Where correlations
    are too weak to tell, it is 1 too.
    """
    one, two = (step_correlations(series, epochs, offset, n_latents) for offset in (1, 2))
    known = (one > _LEAST_KNOWN) & (two > _LEAST_KNOWN)
    factor = np.where(known, one**2 / np.where(known, two, 1.0), 1.0)
    return np.minimum(factor, 1.0)


def choose_temperature(series: list[tuple[Series, int]], epochs: Epochs, offset: int) -> float:
    """The temperature at which the optimal embedding fills about the unit box.

    A latent of variance ``v`` steps by ``2 v (1 - rho)`` on average, and the optimum has the
    temperature at twice its step variance. Where nothing moves step by step (classes) it is 1.
    """
    if not series:
        return 1.0
    rho = np.concatenate([step_correlations(s, epochs, offset, d) for s, d in series])
    return float(np.clip(4 * _VARIANCE * np.mean(1 - rho), 1e-3, 1.0))


def _whitened(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = x - x.mean(axis=0)
    variances, axes = np.linalg.eigh(x.T @ x / len(x))
    visited = variances > 1e-10 * variances[-1]
    return x @ (axes[:, visited] / np.sqrt(variances[visited]))
