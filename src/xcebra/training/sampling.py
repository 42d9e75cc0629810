"""Choice of the positives: later samples, samples with a similar label or of the same class.

Every sampler has a method ``positives(reference, rng)``. It returns -1 for references that have no
positive: at the end of an epoch, if the label is missing, or if a class has only one sample.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.training.neighbours import neighbours

# The index of the positive of a reference that has none.
NONE = -1


class Pairs(Protocol):
    """A sampler that chooses a positive for each reference."""

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """Choose a positive for each reference.

        Parameters
        ----------
        reference : ndarray of shape (n_references,)
            Indices of the samples.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of shape (n_references,)
            Indices of the positives, -1 for references that have none.
        """
        ...

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Whether samples can be used by this sampler, in pairs or as negatives.

        Parameters
        ----------
        times : ndarray of shape (n_times,)
            Indices of the samples.

        Returns
        -------
        ndarray of shape (n_times,)
        """
        ...


class TimeOffset:
    """The positive is the sample ``offset`` steps later in the same epoch.

    Parameters
    ----------
    epochs : Epochs
    offset : int
    """

    def __init__(self, epochs: Epochs, offset: int) -> None:
        self._epochs = epochs
        self._offset = offset

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the later samples, or -1 at the end of an epoch; nothing is random."""
        later = reference + self._offset
        return np.where(later < self._epochs.stop_of(reference), later, NONE)

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Return True for all samples, because every sample has a time."""
        return np.ones(len(times), dtype=bool)


class NearestLabel:
    """The positive has the label that is nearest to the reference's label after a random step.

    A step ``c(tau + offset) - c(tau)`` of the label ``c`` is drawn from all steps inside an epoch.
    It is added to the label of the reference; for circular labels, the label is rotated by it. The
    positive is the exact nearest neighbour of the result. It may be in any epoch, because the pair
    depends on the label and not on time. Samples with equal distances are equally likely.

    Parameters
    ----------
    points : ndarray of shape (n_times, n_columns)
        Columns of the label.
    epochs : Epochs
    offset : int
        In samples.
    valid : ndarray of shape (n_times,), optional
        False where the label is missing.
    circular : bool
        Whether the columns are cosine and sine of an angle.
    exclude_self : bool
        Whether a sample is never paired with itself.
    threads : int
        Number of threads of the search. It does not change the result.
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
        # Samples with equal labels share one place. _members lists the samples, place after place;
        # _first and _count are the first entry and the number of entries of each place.
        order = np.lexsort(points[times].T)
        sorted_points = points[times[order]]
        new = np.ones(len(times), dtype=bool)
        new[1:] = (sorted_points[1:] != sorted_points[:-1]).any(axis=1)
        self._members = times[order]
        self._first = np.flatnonzero(new)
        self._count = np.diff(np.append(self._first, len(times)))
        self._places = neighbours(sorted_points[new], threads)
        # The place of each sample, and its rank among the samples of this place.
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
        """Number of steps in the data. There are no pairs if it is zero."""
        return len(self._steps)

    def positives(self, reference: IntArray, rng: np.random.Generator) -> IntArray:
        """Choose the nearest neighbours; -1 if the label of the reference is missing."""
        tau = self._steps[rng.integers(len(self._steps), size=len(reference))]
        lottery = rng.random(len(reference))
        result = np.full(len(reference), NONE, dtype=np.int64)
        rows = np.flatnonzero(self._valid[reference])
        target = self._stepped(reference[rows], tau[rows])
        n_places = self._places.n
        k = min(2, n_places)
        while len(rows):
            distance, place = self._places.query(target, k)
            allowed = np.ones_like(distance, dtype=bool)
            if self._exclude_self:
                alone = self._count[place] == 1
                allowed = ~(alone & (self._members[self._first[place]] == reference[rows, None]))
            distance = np.where(allowed, distance, np.inf)
            nearest = distance.min(axis=1, keepdims=True)
            tied = (distance == nearest) & allowed
            # If the last of the k places is tied, or if no place is allowed, there may be others
            # among the places that were not searched.
            unsure = (tied[:, -1] | ~allowed.any(axis=1)) & (k < n_places)
            done = ~unsure & allowed.any(axis=1)
            result[rows[done]] = self._draw(
                reference[rows[done]], place[done], tied[done], lottery[rows[done]]
            )
            rows, target = rows[unsure], target[unsure]
            k = min(2 * k, n_places)
        return result

    def takes_part(self, times: IntArray) -> NDArray[np.bool_]:
        """Return True for samples at which the label is known."""
        return self._valid[times]

    def _stepped(self, reference: IntArray, tau: IntArray) -> NDArray[np.float64]:
        """Labels of the references after the steps from ``tau`` to ``tau + offset``."""
        label, before, after = (self._points[i] for i in (reference, tau, tau + self._offset))
        if not self._circular:
            return label + after - before
        as_complex = [p[:, 0] + 1j * p[:, 1] for p in (label, before, after)]
        rotated = as_complex[0] * as_complex[2] * as_complex[1].conj()
        return np.stack([rotated.real, rotated.imag], axis=1)

    def _draw(
        self,
        reference: IntArray,
        place: IntArray,
        tied: NDArray[np.bool_],
        lottery: NDArray[np.float64],
    ) -> IntArray:
        """Draw one of the samples at the tied places, all equally likely.

        With ``exclude_self``, the reference itself is never drawn.

        Parameters
        ----------
        reference : ndarray of shape (n_references,)
        place : ndarray of shape (n_references, k)
            The nearest places.
        tied : ndarray of shape (n_references, k)
            Whether the distance of a place is the smallest one.
        lottery : ndarray of shape (n_references,)
            Random numbers from 0 to 1.
        """
        counts = np.where(tied, self._count[place], 0)
        ends = np.cumsum(counts, axis=1)
        total = ends[:, -1]
        before = ends - counts
        # Rank of the reference itself among the tied samples, or -1.
        own = np.full(len(reference), -1)
        if self._exclude_self:
            row, column = np.nonzero(tied & (place == self._place[reference][:, None]))
            own[row] = before[row, column] + self._rank[reference[row]]
        n_allowed = total - (own >= 0)
        rank = np.minimum((lottery * n_allowed).astype(np.int64), n_allowed - 1)
        rank += (own >= 0) & (rank >= own)
        column = (rank[:, None] >= ends).sum(axis=1)
        row = np.arange(len(reference))
        within = rank - before[row, column]
        return self._members[self._first[place[row, column]] + within]


class SameClass:
    """The positive is a random sample of the same class.

    Parameters
    ----------
    codes : ndarray of shape (n_times,)
        Class of each sample.
    epochs : Epochs
    valid : ndarray of shape (n_times,), optional
        False where the label is missing.
    exclude_self : bool
        Whether a sample is never paired with itself.
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
        """Draw a sample of the same class; -1 for missing labels and classes of one sample."""
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
        """Return True for samples at which the label is known."""
        return self._valid[times]
