"""Held-out losses after circular shifts, for the test whether an objective was learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.data.epochs import IntArray
from xcebra.training.batches import Objective, Regression
from xcebra.training.infonce import chance_level, pair_losses
from xcebra.training.loop import TrainConfig
from xcebra.training.sampling import NONE

# Largest number of negatives of the held-out loss. Larger values give less noisy losses and take
# longer; not tuned.
_MOST_NEGATIVES = 1024
# Estimate of the information: largest number of pairs and of negatives, and factors of the
# similarity that are tried. Larger numbers give less noisy estimates and take longer; not tuned.
_MOST_PAIRS, _MOST_OTHERS = 1000, 512
_FACTORS = 2.0 ** np.arange(-8, 2.5)
# Smallest share of unexplained variance, so that its logarithm is finite.
_LEAST_LEFT = 1e-6


class ShiftTest(Protocol):
    """Losses as a function of the shift, and the pairs that may be compared.

    A circular shift separates some pairs at the end of the recording or at the border of an epoch.
    Such pairs have a larger loss whether or not anything was learned. Therefore they are excluded
    from both sides of the comparison.
    """

    @property
    def chance(self) -> float:
        """The chance level of the loss."""

    @property
    def shifts(self) -> tuple[int, int]:
        """Shortest and longest shift."""

    def losses(self, shift: int) -> NDArray[np.float64]:
        """Loss of every pair, of shape (n_pairs,)."""

    def comparable(self, shift: int) -> NDArray[np.bool_]:
        """True for the pairs to compare, of shape (n_pairs,)."""

    def information(self, shift: int) -> float:
        """The information in nats."""


@dataclass(frozen=True, eq=False)
class PairTest:
    """The test of a contrastive objective.

    For a label, references and positives are shifted together relative to the activity. For time,
    the positives are shifted relative to their references.

    Parameters
    ----------
    objective : Objective
        An objective over the held-out samples only.
    embedding : Tensor of shape (n_held_out, n_latents)
    times : ndarray of shape (n_held_out,)
        Indices of these samples, in increasing order.
    config : TrainConfig
    slowness : int
        Autocorrelation time in samples. Shifts of time pairs are at least this long.
    rows, partners : ndarray of shape (n_pairs,)
        Rows of the embedding that are references, and those of their positives.
    negatives : ndarray of shape (n_negatives,)
        Rows of the embedding that are negatives.
    """

    objective: Objective
    embedding: Tensor
    times: IntArray
    config: TrainConfig
    slowness: int
    rows: IntArray
    partners: IntArray
    negatives: IntArray

    @classmethod
    def draw(
        cls,
        objective: Objective,
        embedding: Tensor,
        times: IntArray,
        config: TrainConfig,
        slowness: int,
        rng: np.random.Generator,
    ) -> PairTest:
        """Draw positives and negatives. There are none of either if the other is missing."""
        positive = objective.pairs.positives(times, rng)
        rows = np.flatnonzero(positive != NONE)
        candidates = np.flatnonzero(objective.pairs.takes_part(times))
        if len(rows) == 0 or len(candidates) == 0:
            rows = candidates = np.empty(0, dtype=np.int64)
        partners = np.searchsorted(times, positive[rows])
        negatives = rng.permutation(candidates)[:_MOST_NEGATIVES]
        return cls(objective, embedding, times, config, slowness, rows, partners, negatives)

    @property
    def chance(self) -> float:
        """The chance level of the loss; NaN if there are no pairs."""
        if len(self.negatives) == 0:
            return math.nan
        return chance_level(len(self.negatives), self.config.include_positive)

    @property
    def shifts(self) -> tuple[int, int]:
        """Shortest and longest shift."""
        n = len(self.times)
        if len(self.rows) == 0:
            return 1, 0
        if self._by_label:
            return 1, n - 1
        # Shorter shifts, or shifts by nearly the whole length, could move positives closer to their
        # references.
        shortest = int(np.clip(self.slowness, 1, n // 4))
        return shortest, n - shortest - 2 * int(np.abs(self.partners - self.rows).max())

    def losses(self, shift: int) -> NDArray[np.float64]:
        """Loss of every pair, of shape (n_pairs,)."""
        if len(self.rows) == 0:
            return np.empty(0)
        x, y = self._shifted(shift, slice(None))
        return self._prepared(x, self._latents[y]).double().numpy()

    def comparable(self, shift: int) -> NDArray[np.bool_]:
        """True for the pairs to compare, of shape (n_pairs,)."""
        if not self._by_label:
            return np.ones(len(self.rows), dtype=bool)
        apart = self._unshifted & (np.abs(self.partners - self.rows) > 3 * self.slowness)
        return (self._together(shift) == self._unshifted) | apart

    def information(self, shift: int) -> float:
        """The information that references and positives share, in nats."""
        rng = np.random.default_rng(self.config.seed)
        subset = rng.permutation(len(self.rows))[:_MOST_PAIRS]
        x, y = self._shifted(shift, subset)
        z = self._latents
        others = z[torch.from_numpy(self.negatives[:_MOST_OTHERS])]
        return _information(z[x], z[y], others, self.config)

    @property
    def _by_label(self) -> bool:
        return self.objective.name != "time"

    @property
    def _latents(self) -> Tensor:
        return self.embedding[:, self.objective.block]

    def _shifted(self, shift: int, pairs: slice | IntArray) -> tuple[Tensor, Tensor]:
        """Rows of the references and of the positives of some pairs after a shift."""
        n = len(self.times)
        rows, partners = self.rows[pairs], self.partners[pairs]
        x = (rows + shift) % n if self._by_label else rows
        return torch.from_numpy(x), torch.from_numpy((partners + shift) % n)

    @cached_property
    def _prepared(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The function from rows of references and from positives to their losses."""
        z = self._latents
        return pair_losses(
            z,
            z[torch.from_numpy(self.negatives)],
            similarity=self.config.similarity,
            temperature=self.config.temperature,
            include_positive=self.config.include_positive,
        )

    @cached_property
    def _stretch(self) -> IntArray:
        """Number of the uninterrupted stretch that each sample belongs to."""
        return np.concatenate([[0], np.cumsum(np.diff(self.times) > 1)])

    @cached_property
    def _unshifted(self) -> NDArray[np.bool_]:
        return self._together(0)

    def _together(self, shift: int) -> NDArray[np.bool_]:
        """Whether both samples of a pair are in the same uninterrupted stretch."""
        n, stretch = len(self.times), self._stretch
        x, y = self.rows + shift, self.partners + shift
        return np.asarray((stretch[x % n] == stretch[y % n]) & (x // n == y // n))


def _information(
    reference: Tensor, positive: Tensor, negative: Tensor, config: TrainConfig
) -> float:
    """A lower bound of the information that references and positives share, in nats.

    It is the bound of Donsker and Varadhan. The similarity is multiplied by the factor that gives
    the largest bound, so that an overconfident embedding has no disadvantage. The bound is zero if
    there is no information.

    Parameters
    ----------
    reference, positive : Tensor of shape (n_pairs, n_latents)
    negative : Tensor of shape (n_negatives, n_latents)
    config : TrainConfig
    """
    if config.similarity == "euclidean":
        matched = -(reference - positive).square().sum(dim=1)
        others = -torch.cdist(reference, negative).square()
    else:
        reference, positive, negative = (
            torch.nn.functional.normalize(z, dim=1) for z in (reference, positive, negative)
        )
        matched, others = (reference * positive).sum(dim=1), reference @ negative.T
    bounds = []
    for factor in (_FACTORS / config.temperature).tolist():
        partition = torch.logsumexp(factor * others, dim=1) - math.log(len(negative))
        bounds.append(float((factor * matched - partition).mean()))
    return max(0.0, *bounds)


@dataclass(frozen=True, eq=False)
class RegressionTest:
    """The test of a regression: the embedding is shifted relative to the label.

    Parameters
    ----------
    objective : Regression
        An objective over the held-out samples only.
    embedding : Tensor of shape (n_held_out, n_latents)
    times : ndarray of shape (n_held_out,)
        Indices of these samples, in increasing order.
    """

    objective: Regression
    embedding: Tensor
    times: IntArray

    @property
    def chance(self) -> float:
        """The mean squared error of the mean: targets have a variance of 1."""
        return 1.0

    @property
    def shifts(self) -> tuple[int, int]:
        """Shortest and longest shift."""
        return 1, len(self.times) - 1

    def losses(self, shift: int) -> NDArray[np.float64]:
        """Squared error of every sample whose label is known."""
        predicted = self._predicted[(self._known + shift) % len(self.times)]
        target = self.objective.target[self.times[self._known]]
        return np.asarray(np.square(predicted - target).mean(axis=1))

    def comparable(self, shift: int) -> NDArray[np.bool_]:
        """True in the longer of the two uninterrupted pieces that a circular shift makes."""
        n, moved = len(self.times), self._known + shift
        return moved < n if shift <= n // 2 else moved >= n

    def information(self, shift: int) -> float:
        """Information of Gaussian variables with this share of unexplained variance."""
        unexplained = float(self.losses(shift)[self.comparable(shift)].mean())
        return max(0.0, -0.5 * math.log(max(unexplained, _LEAST_LEFT)))

    @cached_property
    def _known(self) -> IntArray:
        return np.flatnonzero(self.objective.valid[self.times])

    @cached_property
    def _predicted(self) -> NDArray[np.float64]:
        return np.asarray(self.embedding[:, self.objective.block].double().numpy())
