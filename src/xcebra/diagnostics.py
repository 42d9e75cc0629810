"""Is there anything to attribute? Held-out losses against what chance would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.batches import Objective, Regression
from xcebra.epochs import IntArray
from xcebra.infonce import chance_level, infonce, pair_losses
from xcebra.sampling import NONE
from xcebra.training import TrainConfig

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
        be held out, and then ``loss`` is the training loss.
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


def held_out_fit(
    objective: Objective | Regression,
    embedding: Tensor,
    times: IntArray,
    config: TrainConfig,
    slowness: int,
) -> GoodnessOfFit:
    """Compare an objective's loss with its loss after circular shifts.

    A label that has nothing to do with the neurons is as far from them after a shift as before,
    and shifting keeps the autocorrelation of both. For a label, reference and positive move
    together against the activity; for time, the positive moves away from its reference.

    Parameters
    ----------
    objective : Objective or Regression
        Over the held-out samples only.
    embedding : Tensor of shape (n_held_out, n_latents)
    times : ndarray of shape (n_held_out,)
        Sample indices of its rows, in order.
    config : TrainConfig
    slowness : int
        Autocorrelation time in samples; shifts are at least this long.
    """
    rng = np.random.default_rng(config.seed)
    if isinstance(objective, Regression):
        loss_at, chance = _regression_loss(objective, embedding, times)
    else:
        loss_at, chance = _pair_loss(objective, embedding, times, config, rng)
    n = len(times)
    shortest = int(np.clip(slowness, 1, n // 4))
    shifts = rng.integers(shortest, n - shortest + 1, size=N_SHIFTS)
    loss = loss_at(0)
    nulls = np.array([loss_at(int(shift)) for shift in shifts])
    p_value = float((1 + (nulls <= loss).sum()) / (1 + N_SHIFTS))
    return GoodnessOfFit(loss, chance, p_value <= LEVEL, p_value, float(np.median(nulls)))


def training_fit(
    objective: Objective | Regression, history: Mapping[str, NDArray[np.float64]]
) -> GoodnessOfFit:
    """What can be said without held-out samples: the last training losses, and no verdict."""
    loss, chance = (history[f"{kind}/{objective.name}"][-100:] for kind in ("loss", "chance"))
    return GoodnessOfFit(float(np.nanmean(loss)), float(np.nanmean(chance)), None)


def margin(objective: Objective, embedding: Tensor, times: IntArray, config: TrainConfig) -> float:
    """How far an objective's loss lies below chance, in nats, on a batch of the samples given."""
    rng = np.random.default_rng(config.seed)
    positive = objective.pairs.positives(times, rng)
    rows = np.flatnonzero(positive != NONE)
    if len(rows) == 0:
        raise ValueError(f"these samples hold no pair for the {objective.name!r} objective")
    rows = rng.permutation(rows)[: config.batch_size]
    partners = np.searchsorted(times, positive[rows])
    negatives = rng.integers(len(times), size=min(config.batch_size, len(times)))
    z = embedding[:, objective.block]
    loss = infonce(
        z[torch.from_numpy(rows)],
        z[torch.from_numpy(partners)],
        z[torch.from_numpy(negatives)],
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
    )
    return chance_level(len(negatives), config.include_positive) - float(loss)


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
    varies = correlation[0] > 0
    if not varies.any():
        return 1
    below = correlation[:, varies] < correlation[0, varies] / np.e
    firsts = np.where(below.any(axis=0), below.argmax(axis=0), n)
    return int(max(1, firsts.max()))


def _pair_loss(
    objective: Objective,
    embedding: Tensor,
    times: IntArray,
    config: TrainConfig,
    rng: np.random.Generator,
) -> tuple[Callable[[int], float], float]:
    n = len(times)
    z = embedding[:, objective.block]
    positive = objective.pairs.positives(times, rng)
    rows = np.flatnonzero(positive != NONE)
    partners = np.searchsorted(times, positive[rows])
    candidates = np.flatnonzero(objective.pairs.takes_part(times))
    negatives = rng.permutation(candidates)[:_MOST_NEGATIVES]
    losses = pair_losses(
        z,
        z[torch.from_numpy(negatives)],
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
    )
    together = objective.name != "time"

    def loss_at(shift: int) -> float:
        x = (rows + shift) % n if together else rows
        y = (partners + shift) % n
        return float(losses(torch.from_numpy(x), z[torch.from_numpy(y)]).double().mean())

    return loss_at, chance_level(len(negatives), config.include_positive)


def _regression_loss(
    objective: Regression, embedding: Tensor, times: IntArray
) -> tuple[Callable[[int], float], float]:
    z = embedding[:, objective.block].double().numpy()
    known = np.flatnonzero(objective.valid[times])
    target = objective.target[times[known]]

    def loss_at(shift: int) -> float:
        return float(np.square(z[(known + shift) % len(z)] - target).mean())

    return loss_at, 1.0
