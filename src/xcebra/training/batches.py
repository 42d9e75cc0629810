"""Objectives, and the random batches that they are computed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    within_sessions : bool
        Whether the negatives of a reference are samples of its own session. Labels mean the same in
        all sessions, so that their negatives come from all of them. Time does not: with negatives
        of other sessions, the time block would only learn to tell sessions apart.
    """

    name: str
    block: slice
    pairs: Pairs
    weight: float = 1.0
    within_sessions: bool = False


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


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionSamples:
    """Where the samples of one session come from.

    The sessions of a joint fit lie one after another on a common line of sample indices. A fit to
    one recording has one session, which starts at 0.

    Parameters
    ----------
    read : callable
        ``read(times)`` returns the inputs of the network of the session's encoder. The times are
        indices of the session's own samples.
    epochs : Epochs
        Samples to draw from, on the common line.
    start, stop : int
        First sample of the session on the common line, and the sample after its last one.
    n_references, n_negatives : int
        Number of samples of this session that are drawn in each step.
    """

    read: Callable[[IntArray], Tensor]
    epochs: Epochs
    start: int
    stop: int
    n_references: int
    n_negatives: int


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a batch on which one objective, or its part in one session, is computed.

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
    share : float
        Share of the objective's references that belong to this part.
    """

    rows: Tensor | slice
    positives: slice
    negatives: Tensor | slice
    target: Tensor | None = None
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of one step. They are read by the workers that embed them.

    Parameters
    ----------
    sessions : sequence of SessionSamples
    times : list of ndarray of shape (n_rows,)
        For each session, indices of its own samples. The references come first.
    n_references : list of int
        Number of references of each session.
    order : Tensor or None
        Indices that sort the embedded rows of all sessions into the common order: the references of
        all sessions, their negatives, then the positives of each objective. None if the rows are in
        this order already.
    parts : list of list of Part
        For each objective, its parts.
    """

    sessions: Sequence[SessionSamples]
    times: list[IntArray]
    n_references: list[int]
    order: Tensor | None
    parts: list[list[Part]]


class Batches:
    """Draws references and negatives of each session, and positives for each objective.

    Parameters
    ----------
    sessions : sequence of SessionSamples
    objectives : list of Objective or Regression
        Their indices of samples are those of the common line.
    device : torch.device
    """

    def __init__(
        self,
        sessions: Sequence[SessionSamples],
        objectives: list[Objective | Regression],
        device: torch.device,
    ) -> None:
        self._sessions = sessions
        self._starts = np.array([session.start for session in sessions])
        self._objectives = objectives
        self._device = device
        self._contrastive = any(isinstance(term, Objective) for term in objectives)

    def draw(self, rng: np.random.Generator) -> Batch:
        """Draw one batch. The order of the random draws is fixed."""
        references, negatives = [], []
        for session in self._sessions:
            references.append(session.epochs.draw(session.n_references, rng))
            n_negatives = session.n_negatives if self._contrastive else 0
            negatives.append(session.epochs.draw(n_negatives, rng))
        reference, negative = np.concatenate(references), np.concatenate(negatives)
        times = [reference, negative]
        start = len(negative)
        parts: list[list[Part]] = []
        for objective in self._objectives:
            if isinstance(objective, Regression):
                known = np.flatnonzero(objective.valid[reference])
                target = self._tensor(objective.target[reference[known]])
                parts.append([Part(self._index(known, reference), slice(0), slice(0), target)])
                continue
            positive = objective.pairs.positives(reference, rng)
            paired = np.flatnonzero(positive != NONE)
            usable = np.flatnonzero(objective.pairs.takes_part(negative))
            if objective.within_sessions and len(self._sessions) > 1:
                parts.append(self._parts_by_session(paired, usable, start, references, negatives))
            else:
                rows, others = self._index(paired, reference), self._pooled(usable, negatives)
                parts.append([Part(rows, slice(start, start + len(paired)), others)])
            times.append(positive[paired])
            start += len(paired)
        by_session, order = self._by_session(np.concatenate(times))
        n_references = [len(own) for own in references]
        return Batch(self._sessions, by_session, n_references, order, parts)

    def _by_session(self, times: IntArray) -> tuple[list[IntArray], Tensor | None]:
        """Divide samples by session, and return the order of the embedded rows."""
        if len(self._sessions) == 1:
            return [times], None
        session = np.searchsorted(self._starts, times, side="right") - 1
        by_session = np.argsort(session, kind="stable")
        ends = np.cumsum(np.bincount(session, minlength=len(self._sessions)))
        members = np.split(by_session, ends[:-1])
        rows = [
            times[own] - samples.start for samples, own in zip(self._sessions, members, strict=True)
        ]
        order = np.empty_like(by_session)
        order[by_session] = np.arange(len(times))
        return rows, torch.from_numpy(order).to(self._device)

    def _pooled(self, usable: IntArray, negatives: list[IntArray]) -> Tensor | slice:
        """Select negatives of all sessions, as many as a session has on average.

        Every session contributes in proportion to its number of negatives. The number does not grow
        with the number of sessions, so that the work grows linearly with it.
        """
        n_sessions = len(negatives)
        if n_sessions == 1:
            return self._index(usable, negatives[0])
        chosen, first = [], 0
        for own in negatives:
            chosen.append(first + np.arange(max(1, round(len(own) / n_sessions))))
            first += len(own)
        selected = np.intersect1d(np.concatenate(chosen), usable, assume_unique=True)
        # A label that few sessions have may have no sample among the selected ones.
        return torch.from_numpy(selected if len(selected) else usable).to(self._device)

    def _parts_by_session(
        self,
        paired: IntArray,
        usable: IntArray,
        start: int,
        references: list[IntArray],
        negatives: list[IntArray],
    ) -> list[Part]:
        """Divide the pairs of an objective by session; negatives are those of the same session."""
        ends = np.cumsum([len(own) for own in references])
        negative_ends = np.cumsum([len(own) for own in negatives])
        # Rows are sorted, so that those of a session are next to each other.
        cuts = np.concatenate([[0], np.searchsorted(paired, ends)])
        usable_cuts = np.concatenate([[0], np.searchsorted(usable, negative_ends)])
        return [
            Part(
                torch.from_numpy(paired[a:b]).to(self._device),
                slice(start + a, start + b),
                torch.from_numpy(usable[c:d]).to(self._device),
                share=(b - a) / max(1, len(paired)),
            )
            for (a, b), (c, d) in zip(
                pairwise(cuts.tolist()), pairwise(usable_cuts.tolist()), strict=True
            )
        ]

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    def _index(self, rows: IntArray, samples: IntArray) -> Tensor | slice:
        """Return an index of the rows; it is a slice, which needs no copy, if all are selected."""
        if len(rows) == len(samples):
            return slice(0, len(samples))
        return torch.from_numpy(rows).to(self._device)
