"""Who is a positive: samples a little later, with a nearby label, or of the same class.

Every sampler has one verb, ``positives(reference, rng)``, and the mark -1 for "this reference has
none" (the end of an epoch, a missing label, a class with one member).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.training.neighbours import neighbours

NONE = -1


class Pairs(Protocol):
    """Anything that finds a positive for each reference."""

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """Sample indices of shape (n_references,), -1 where there is none."""
        ...

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Whether samples may stand in this sampler's pairs at all, as negatives too."""
        ...


class TimeOffset:
    """The sample ``offset`` steps later, in the same epoch.

    Parameters
    ----------
    epochs : Epochs
    offset : int
    """

    def __init__(self, epochs: Epochs, offset: int) -> None:
        self._epochs = epochs
        self._offset = offset

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """The later sample, or -1 at an epoch's end; nothing is drawn at random."""
        later = reference + self._offset
        return np.where(later < self._epochs.stop_of(reference), later, NONE)

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Always: every sample has a time."""
        return np.ones(len(times), dtype=bool)


class NearestLabel:
    """The sample whose label is nearest to the reference's label after a step seen in the data.

    A step ``c(tau + offset) - c(tau)`` is drawn from all that lie inside an epoch, added to the
    reference's label (turned by it, on the circle), and the exact nearest neighbour taken. It may
    lie in any epoch: the label, not time, makes this pair. Equal distances are drawn at random.

    Parameters
    ----------
    points : ndarray of shape (n_times, n_columns)
    epochs : Epochs
    offset : int
    valid : ndarray of shape (n_times,)
        False where the label is missing.
    circular : bool
        Points are (cosine, sine).
    exclude_self : bool
        Never pair a sample with itself.
    threads : int
        For the search; they do not change what is found.
    """

    def __init__(
        self,
        points: NDArray[np.float64],
        epochs: Epochs,
        offset: int,
        valid: NDArray[np.bool_] | None = None,
        *,
        circular: bool = False,
        exclude_self: bool = True,
        threads: int = 1,
    ) -> None:
        self._points = points
        self._valid = np.ones(len(points), dtype=bool) if valid is None else valid
        self._circular = circular
        self._exclude_self = exclude_self
        self._offset = offset
        times = epochs.indices()
        times = times[self._valid[times]]
        # Equal labels share one place; members lists their samples place by place.
        order = np.lexsort(points[times].T)
        sorted_points = points[times[order]]
        new = np.ones(len(times), dtype=bool)
        new[1:] = (sorted_points[1:] != sorted_points[:-1]).any(axis=1)
        self._members = times[order]
        self._first = np.flatnonzero(new)
        self._count = np.diff(np.append(self._first, len(times)))
        self._places = neighbours(sorted_points[new], threads)
        # Where each sample stands: its place, and its rank among the members there.
        self._place = np.full(len(points), NONE, dtype=np.int32)
        self._rank = np.zeros(len(points), dtype=np.int32)
        self._place[self._members] = np.repeat(np.arange(len(self._first)), self._count)
        self._rank[self._members] = np.arange(len(times)) - np.repeat(self._first, self._count)
        later = times + offset
        inside = later < epochs.stop_of(times)
        inside[inside] = self._valid[later[inside]]
        self._steps = times[inside]

    @property
    def n_steps(self) -> int:
        """How many steps the data has; without one there is nothing to draw."""
        return len(self._steps)

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """Nearest neighbours of stepped labels; -1 where the reference's label is missing."""
        tau = self._steps[rng.integers(len(self._steps), size=len(reference))]
        lottery = rng.random(len(reference))
        result = np.full(len(reference), NONE, dtype=np.int64)
        rows = np.flatnonzero(self._valid[reference])
        target = self._stepped(reference[rows], tau[rows])
        n_places = self._places.n
        k = min(2, n_places)
        while len(rows):
            distance, place = self._places.query(target, k)
            open_ = np.ones_like(distance, dtype=bool)
            if self._exclude_self:
                alone = self._count[place] == 1
                open_ = ~(alone & (self._members[self._first[place]] == reference[rows, None]))
            distance = np.where(open_, distance, np.inf)
            nearest = distance.min(axis=1, keepdims=True)
            tied = (distance == nearest) & open_
            # The last column equal to the nearest, or none open: there may be more further out.
            unsure = (tied[:, -1] | ~open_.any(axis=1)) & (k < n_places)
            done = ~unsure & open_.any(axis=1)
            result[rows[done]] = self._draw(
                reference[rows[done]], place[done], tied[done], lottery[rows[done]]
            )
            rows, target = rows[unsure], target[unsure]
            k = min(2 * k, n_places)
        return result

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Where the label is known."""
        return self._valid[times]

    def _stepped(self, reference: IntArray, tau: IntArray) -> NDArray[np.float64]:
        at, before, after = (self._points[i] for i in (reference, tau, tau + self._offset))
        if not self._circular:
            return at + after - before
        as_complex = [p[:, 0] + 1j * p[:, 1] for p in (at, before, after)]
        turned = as_complex[0] * as_complex[2] * as_complex[1].conj()
        return np.stack([turned.real, turned.imag], axis=1)

    def _draw(
        self,
        reference: IntArray,
        place: IntArray,
        tied: NDArray[np.bool_],
        lottery: NDArray[np.float64],
    ) -> IntArray:
        """One member of the tied places, each sample equally likely, never the reference itself."""
        counts = np.where(tied, self._count[place], 0)
        ends = np.cumsum(counts, axis=1)
        total = ends[:, -1]
        before = ends - counts
        # Rank of the reference itself among the tied members, or -1.
        own = np.full(len(reference), -1)
        if self._exclude_self:
            row, column = np.nonzero(tied & (place == self._place[reference][:, None]))
            own[row] = before[row, column] + self._rank[reference[row]]
        n_open = total - (own >= 0)
        rank = np.minimum((lottery * n_open).astype(np.int64), n_open - 1)
        rank += (own >= 0) & (rank >= own)
        column = (rank[:, None] >= ends).sum(axis=1)
        row = np.arange(len(reference))
        within = rank - before[row, column]
        return self._members[self._first[place[row, column]] + within]


class SameClass:
    """Any sample of the reference's class.

    Parameters
    ----------
    codes : ndarray of shape (n_times,)
        Class of each sample.
    epochs : Epochs
    valid : ndarray of shape (n_times,)
    exclude_self : bool
    """

    def __init__(
        self,
        codes: NDArray[np.int64],
        epochs: Epochs,
        valid: NDArray[np.bool_] | None = None,
        *,
        exclude_self: bool = True,
    ) -> None:
        self._codes = codes
        self._valid = np.ones(len(codes), dtype=bool) if valid is None else valid
        self._exclude_self = exclude_self
        times = epochs.indices()
        times = times[self._valid[times]]
        order = np.argsort(codes[times], kind="stable")
        self._members = times[order]
        n_classes = int(codes.max()) + 1
        self._count = np.bincount(codes[times], minlength=n_classes)
        self._first = np.cumsum(self._count) - self._count
        self._rank = np.full(len(codes), NONE, dtype=np.int64)
        self._rank[self._members] = np.arange(len(times)) - self._first[codes[self._members]]

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """A member of the same class; -1 for missing labels and classes of one."""
        code = self._codes[reference]
        others = self._count[code] - self._exclude_self
        rank = (rng.random(len(reference)) * others).astype(np.int64)
        if self._exclude_self:
            rank += rank >= self._rank[reference]
        usable = self._valid[reference] & (others > 0)
        result = np.full(len(reference), NONE, dtype=np.int64)
        result[usable] = self._members[(self._first[code] + rank)[usable]]
        return result

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Where the label is known."""
        return self._valid[times]
