"""Is there anything to attribute? Held-out losses against what chance would give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.epochs import IntArray
from xcebra.infonce import chance_level, pair_losses
from xcebra.sampling import NONE, Pairs

N_SHIFTS = 199
LEVEL = 0.01
_MOST_NEGATIVES = 1024


@dataclass(frozen=True)
class GoodnessOfFit:
    """Held-out loss of one objective, beside chance.

    Parameters
    ----------
    loss : float
        In nats (mean squared error for regression).
    chance : float
        The loss of a constant embedding.
    learned : bool or None
        Whether the loss is lower than under circular shifts of the pairs; None if nothing could
        be held out.
    p_value : float or None
        Rank of the loss among the shifted ones.
    shifted : float or None
        Median loss under shifts.
    """

    loss: float
    chance: float
    learned: bool | None
    p_value: float | None = None
    shifted: float | None = None


def goodness_of_fit(
    embedding: Tensor,
    times: IntArray,
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    shift_references: bool,
    slowness: int,
    similarity: str,
    temperature: float,
    include_positive: bool,
) -> GoodnessOfFit | None:
    """Compare true pairs with pairs moved against the activity by circular shifts.

    A label that has nothing to do with the neurons is as far from them after a shift as before, and
    shifting keeps the autocorrelation of both. For a label, reference and positive move together;
    for time, the positive moves away from its reference.

    Parameters
    ----------
    embedding : Tensor of shape (n_held_out, n_latents)
        Of the objective's block.
    times : ndarray of shape (n_held_out,)
        Sample indices of its rows, in order.
    pairs : Pairs
        Over the held-out samples only.
    rng : numpy.random.Generator
    shift_references : bool
        True for labels, False for time.
    slowness : int
        Autocorrelation time in samples; shifts are at least this long.
    similarity, temperature, include_positive
        As in training.

    Returns
    -------
    GoodnessOfFit or None
        None if the held-out samples have no pair.
    """
    n = len(times)
    positive = pairs.positives(times, rng)
    rows = np.flatnonzero(positive != NONE)
    candidates = np.flatnonzero(pairs.takes_part(times))
    if len(rows) == 0 or len(candidates) == 0:
        return None
    partners = np.searchsorted(times, positive[rows])
    negatives = rng.permutation(candidates)[:_MOST_NEGATIVES]
    losses = pair_losses(
        embedding,
        embedding[torch.from_numpy(negatives)],
        similarity=similarity,
        temperature=temperature,
        include_positive=include_positive,
    )

    def shifted_loss(shift: int) -> float:
        x = (rows + shift) % n if shift_references else rows
        y = (partners + shift) % n
        found = losses(torch.from_numpy(x), embedding[torch.from_numpy(y)])
        return float(found.double().mean())

    loss = shifted_loss(0)
    shortest = int(np.clip(slowness, 1, n // 4))
    nulls = np.array(
        [shifted_loss(int(s)) for s in rng.integers(shortest, n - shortest + 1, size=N_SHIFTS)]
    )
    p_value = float((1 + (nulls <= loss).sum()) / (1 + N_SHIFTS))
    chance = chance_level(len(negatives), include_positive)
    return GoodnessOfFit(loss, chance, p_value <= LEVEL, p_value, float(np.median(nulls)))


def autocorrelation_time(series: NDArray[np.float64]) -> int:
    """First lag at which the correlation of a series with itself falls below 1/e, in samples.

    Parameters
    ----------
    series : ndarray of shape (n_times, n_columns)
        The slowest column counts.
    """
    x = series - series.mean(axis=0)
    n = len(x)
    spectrum = np.abs(np.fft.rfft(x, n=2 * n, axis=0)) ** 2
    correlation = np.fft.irfft(spectrum, axis=0)[:n]
    power = correlation[0]
    if not (power > 0).any():
        return 1
    below = correlation[:, power > 0] < power[power > 0] / np.e
    firsts = np.where(below.any(axis=0), below.argmax(axis=0), n)
    return int(max(1, firsts.max()))
