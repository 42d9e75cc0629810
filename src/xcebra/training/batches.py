"""Objectives, and the batches drawn for them."""

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
    """One contrastive term: which latents it shapes, and who is a positive.

    Parameters
    ----------
    name : str
    block : slice
        Latents it acts on.
    pairs : Pairs
    weight : float
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
    target : ndarray of shape (n_times, n_columns)
    valid : ndarray of shape (n_times,)
    """

    name: str
    block: slice
    target: NDArray[np.float64]
    valid: NDArray[np.bool_]
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Part:
    """Where one objective finds its rows in a drawn batch."""

    rows: Tensor | slice
    positives: slice
    negatives: Tensor | slice
    target: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of one step, references first, and where each objective finds its rows."""

    rows: Tensor
    n_references: int
    parts: list[Part]


class Batches:
    """Draws references and negatives shared by all objectives, and the positives of each.

    ``read`` gives the samples at some times, as the encoder takes them.
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
        self._contrastive = any(isinstance(o, Objective) for o in objectives)

    def draw(self, rng: np.random.Generator) -> Batch:
        """One batch; random draws happen in a fixed order."""
        reference = self._epochs.draw(self._batch_size, rng)
        negative = self._epochs.draw(self._batch_size if self._contrastive else 0, rng)
        rows = [reference, negative]
        at = len(negative)
        parts = []
        for objective in self._objectives:
            if isinstance(objective, Regression):
                known = np.flatnonzero(objective.valid[reference])
                target = self._tensor(objective.target[reference[known]])
                parts.append(Part(self._index(known, reference), slice(0), slice(0), target))
                continue
            positive = objective.pairs.positives(reference, rng)
            found = np.flatnonzero(positive != NONE)
            usable = np.flatnonzero(objective.pairs.takes_part(negative))
            parts.append(
                Part(
                    self._index(found, reference),
                    slice(at, at + len(found)),
                    self._index(usable, negative),
                )
            )
            rows.append(positive[found])
            at += len(found)
        return Batch(self._read(np.concatenate(rows)), len(reference), parts)

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    def _index(self, rows: IntArray, of: IntArray) -> Tensor | slice:
        """Rows as an index; all of them as a slice, which costs nothing."""
        if len(rows) == len(of):
            return slice(0, len(of))
        return torch.from_numpy(rows).to(self._device)
