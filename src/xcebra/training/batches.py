"""Objectives, and the random batches that they are computed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.data.epochs import Epochs, IntArray
from xcebra.training.sampling import NONE, Pairs


@dataclass(frozen=True, eq=False)
class Objective:
    """A contrastive term of the loss: its latents and its pairs.

    Parameters
    ----------
    name : str
    block : slice
        Latents that it acts on.
    pairs : Pairs
        Chooses the positives.
    weight : float
        Factor of the term in the total loss.
    """

    name: str
    block: slice
    pairs: Pairs
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Regression:
    """The supervised baseline: squared error between latents and a standardised target.

    Parameters
    ----------
    name : str
    block : slice
        Latents that it acts on, one for each column of the target.
    target : ndarray of shape (n_times, n_columns)
        Standardised columns of the label.
    valid : ndarray of shape (n_times,)
        False where the label is missing.
    weight : float
        Factor of the term in the total loss.
    """

    name: str
    block: slice
    target: NDArray[np.float64]
    valid: NDArray[np.bool_]
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a batch that one objective uses.

    Parameters
    ----------
    rows : Tensor or slice
        References that the objective uses.
    positives : slice
        Their positives, among the rows after the references.
    negatives : Tensor or slice
        Negatives, among the rows after the references.
    target : Tensor of shape (n_rows, n_columns), optional
        Targets of a regression.
    """

    rows: Tensor | slice
    positives: slice
    negatives: Tensor | slice
    target: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of one step: references, negatives, then the positives of each objective."""

    rows: Tensor
    n_references: int
    parts: list[Part]


class Batches:
    """Draws references and negatives for all objectives, and positives for each of them.

    Parameters
    ----------
    read : callable
        ``read(times)`` returns the inputs of the encoder at these samples.
    epochs : Epochs
        Samples to draw from.
    objectives : list of Objective or Regression
    batch_size : int
        Number of references, and of negatives.
    device : torch.device
    """

    def __init__(
        self,
        read: Callable[[IntArray], Tensor],
        epochs: Epochs,
        objectives: list[Objective | Regression],
        batch_size: int,
        device: torch.device,
    ) -> None:
        self._read = read
        self._epochs = epochs
        self._objectives = objectives
        self._batch_size = batch_size
        self._device = device
        self._contrastive = any(isinstance(term, Objective) for term in objectives)

    def draw(self, rng: np.random.Generator) -> Batch:
        """Draw one batch. The order of the random draws is fixed."""
        reference = self._epochs.draw(self._batch_size, rng)
        negative = self._epochs.draw(self._batch_size if self._contrastive else 0, rng)
        rows = [reference, negative]
        start = len(negative)
        parts = []
        for objective in self._objectives:
            if isinstance(objective, Regression):
                known = np.flatnonzero(objective.valid[reference])
                target = self._tensor(objective.target[reference[known]])
                parts.append(Part(self._index(known, reference), slice(0), slice(0), target))
                continue
            positive = objective.pairs.positives(reference, rng)
            paired = np.flatnonzero(positive != NONE)
            usable = np.flatnonzero(objective.pairs.takes_part(negative))
            parts.append(
                Part(
                    self._index(paired, reference),
                    slice(start, start + len(paired)),
                    self._index(usable, negative),
                )
            )
            rows.append(positive[paired])
            start += len(paired)
        return Batch(self._read(np.concatenate(rows)), len(reference), parts)

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    def _index(self, rows: IntArray, samples: IntArray) -> Tensor | slice:
        """Return an index of the rows; it is a slice, which needs no copy, if all are selected."""
        if len(rows) == len(samples):
            return slice(0, len(samples))
        return torch.from_numpy(rows).to(self._device)
