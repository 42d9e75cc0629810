"""Stretches of uninterrupted recording. No pair in time, and no window, may cross their borders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError

IntArray = NDArray[np.int64]


def evenly_spaced(items: NDArray[Any], most: int) -> NDArray[Any]:
    """At most ``most`` of the items, evenly spaced and in order; all if there are no more."""
    return items[np.unique(np.linspace(0, len(items) - 1, most).astype(np.int64))]


def samples_before(window: int) -> int:
    """How many samples of a window lie before its own."""
    return window // 2


@dataclass(frozen=True, eq=False)
class Epochs:
    """Half-open stretches ``[start, stop)`` of sample indices, in order, not overlapping.

    Parameters
    ----------
    starts, stops : ndarray of shape (n_epochs,)
        First sample of each epoch, and the one after its last.
    """

    starts: IntArray
    stops: IntArray

    @classmethod
    def check(cls, epochs: Iterable[tuple[int, int]] | Epochs | None, n_times: int) -> Epochs:
        """Turn what a user gave into epochs of a recording with ``n_times`` samples.

        Raises
        ------
        ValueError
            If an epoch is empty, outside the recording, not made of whole numbers, or overlaps
            the one before it.
        """
        if isinstance(epochs, Epochs):
            epochs = epochs.pairs()
        if epochs is None:
            return cls(np.array([0]), np.array([n_times]))
        try:
            table = np.array([tuple(epoch) for epoch in epochs], dtype=float)
        except (TypeError, ValueError):
            table = np.empty((0, 0))
        if table.ndim != 2 or table.shape[1:] != (2,) or len(table) == 0:
            raise InputError(
                "epochs must be a list of (start, stop) sample indices, for instance "
                f"[(0, 500), (600, {n_times})]; got {epochs!r}"
            )
        if not np.array_equal(table, np.round(table)):
            raise InputError(
                f"epochs must hold whole sample indices, got {epochs!r}; "
                "multiply times by the sampling rate and round them"
            )
        starts, stops = table.astype(np.int64).T
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            if not 0 <= start < stop <= n_times:
                raise InputError(
                    f"epochs[{i}] is ({start}, {stop}), but an epoch needs "
                    f"0 <= start < stop <= {n_times}, the number of samples"
                )
            if i and start < stops[i - 1]:
                raise InputError(
                    f"epochs[{i}] starts at {start}, before epochs[{i - 1}] stops at "
                    f"{stops[i - 1]}; sort the epochs and merge those that overlap"
                )
        return cls(starts, stops)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> IntArray:
        """Number of samples in each epoch."""
        return self.stops - self.starts

    @property
    def size(self) -> int:
        """Number of samples in all epochs."""
        return int(self.lengths.sum())

    def pairs(self) -> list[tuple[int, int]]:
        """The epochs as plain (start, stop) tuples."""
        return [(int(a), int(b)) for a, b in zip(self.starts, self.stops, strict=True)]

    def indices(self) -> IntArray:
        """Every sample index inside an epoch, in order."""
        return np.concatenate([np.arange(a, b) for a, b in self.pairs()])

    def stop_of(self, times: IntArray) -> IntArray:
        """Where the epoch that holds each of ``times`` ends."""
        return self.stops[np.searchsorted(self.starts, times, side="right") - 1]

    def neighbours(
        self, times: IntArray, before: int = 1, after: int = 1
    ) -> tuple[IntArray, IntArray]:
        """The samples so many before and after each of ``times``, in its own epoch.

        At an edge both are the one there is; where there is neither, both are the edges, so that a
        sample that is alone is its own neighbour.
        """
        which = np.searchsorted(self.starts, times, side="right") - 1
        first, last = self.starts[which], self.stops[which] - 1
        earlier, later = times - before, times + after
        return (
            np.where(earlier >= first, earlier, np.where(later <= last, later, first)),
            np.where(later <= last, later, np.where(earlier >= first, earlier, last)),
        )

    def windows(self, times: IntArray, size: int, n_times: int) -> IntArray:
        """Samples of the window around each of ``times``, of shape (n, size).

        It begins ``size // 2`` samples before. What would lie beyond the edge of an epoch, or of
        a gap between epochs, is the sample at that edge.
        """
        edges = np.unique(np.concatenate([[0], self.starts, self.stops, [n_times]]))
        stretch = np.searchsorted(edges, times, side="right") - 1
        first, last = edges[stretch], edges[stretch + 1] - 1
        offsets = np.arange(size) - samples_before(size)
        return np.clip(times[:, None] + offsets, first[:, None], last[:, None])

    def inside(self, window: int) -> Epochs:
        """What is left of each epoch when the window around every sample is to lie in it."""
        before = samples_before(window)
        starts, stops = self.starts + before, self.stops - (window - 1 - before)
        keep = starts < stops
        return Epochs(starts[keep], stops[keep])

    def longer_than(self, n: int) -> Epochs:
        """The epochs with more than ``n`` samples."""
        keep = self.lengths > n
        return Epochs(self.starts[keep], self.stops[keep])

    def split(self, held_out: float) -> tuple[Epochs, Epochs]:
        """Cut every epoch in two: its first part, and the last share ``held_out`` of it."""
        cuts = self.stops - np.floor(self.lengths * held_out).astype(np.int64)
        return Epochs(self.starts, cuts), Epochs(cuts, self.stops).longer_than(0)

    def cut(self, n: int, length: int, least: int = 0) -> tuple[Epochs, Epochs]:
        """Take ``n`` stretches of ``length`` samples out, spread evenly through all epochs.

        A stretch lies inside one epoch, which must be longer. It is moved to the edge of its epoch
        where no more than ``least`` samples would be left before or after it.

        Returns
        -------
        rest, stretches : Epochs
        """
        ends = np.cumsum(self.lengths)
        taken = []
        for i in range(n):
            centre = (2 * i + 1) * self.size // (2 * n)
            which = int(np.searchsorted(ends, centre, side="right"))
            first, stop = int(self.starts[which]), int(self.stops[which])
            start = stop - (int(ends[which]) - centre) - length // 2
            start = min(max(start, first), stop - length)
            if start - first <= least:
                start = first
            elif stop - (start + length) <= least:
                start = stop - length
            taken.append((start, start + length))
        starts, stops = np.array(taken, dtype=np.int64).reshape(-1, 2).T
        # What is left begins where an epoch or the end of a stretch is, and ends likewise.
        rest = Epochs(
            np.sort(np.concatenate([self.starts, stops])),
            np.sort(np.concatenate([self.stops, starts])),
        )
        return rest.longer_than(0), Epochs(starts, stops)

    def thin(self, share: float) -> tuple[Epochs, Epochs]:
        """Part whole epochs in two: most of them, and ``share`` of the samples, spread evenly."""
        taken, n_taken = np.zeros(len(self), dtype=bool), 0
        for i, (length, end) in enumerate(zip(self.lengths, np.cumsum(self.lengths), strict=True)):
            # Half an epoch early, so that those taken lie in the middle of their share.
            if share * end >= n_taken + length / 2 and n_taken + length <= share * self.size:
                taken[i] = True
                n_taken += length
        return self.every(~taken), self.every(taken)

    def every(self, which: slice | NDArray[np.bool_]) -> Epochs:
        """Some of the epochs."""
        return Epochs(self.starts[which], self.stops[which])

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw ``n`` samples uniformly, with replacement; memory does not grow with time."""
        ends = np.cumsum(self.lengths)
        flat = rng.integers(ends[-1], size=n)
        which = np.searchsorted(ends, flat, side="right")
        return self.stops[which] - (ends[which] - flat)
