"""Epochs: uninterrupted stretches of time. No pair in time and no window crosses their borders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError

IntArray = NDArray[np.int64]


def evenly_spaced(items: NDArray[Any], most: int) -> NDArray[Any]:
    """Select at most ``most`` evenly spaced items, in order; all items if there are no more."""
    if len(items) <= most:
        return items
    return items[np.unique(np.linspace(0, len(items) - 1, most).astype(np.int64))]


def samples_before(window: int) -> int:
    """Number of samples of a window that lie before its central sample."""
    return window // 2


@dataclass(frozen=True, eq=False)
class Epochs:
    """Half-open intervals ``[start, stop)`` of sample indices, in order and not overlapping.

    Parameters
    ----------
    starts, stops : ndarray of shape (n_epochs,)
        Index of the first sample of each epoch, and one more than the index of its last sample.
    """

    starts: IntArray
    stops: IntArray

    @classmethod
    def check(cls, epochs: Iterable[tuple[int, int]] | Epochs | None, n_times: int) -> Epochs:
        """Check the epochs of a user and convert them.

        Parameters
        ----------
        epochs : iterable of (start, stop), Epochs or None
            Sample indices. None is one epoch with all samples.
        n_times : int
            Number of samples of the recording.

        Returns
        -------
        Epochs

        Raises
        ------
        ValueError
            If an epoch is empty, lies outside the recording, overlaps the one before it, or if its
            limits are not whole numbers.
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
        """Number of samples in all epochs together."""
        return int(self.lengths.sum())

    def pairs(self) -> list[tuple[int, int]]:
        """The epochs as plain (start, stop) tuples."""
        return [(int(a), int(b)) for a, b in zip(self.starts, self.stops, strict=True)]

    def indices(self) -> IntArray:
        """Indices of all samples that lie in an epoch, in order."""
        return np.concatenate([np.arange(a, b) for a, b in self.pairs()])

    def stop_of(self, times: IntArray) -> IntArray:
        """End (exclusive) of the epoch in which each of ``times`` lies, of shape (n,)."""
        return self.stops[np.searchsorted(self.starts, times, side="right") - 1]

    def neighbours(
        self, times: IntArray, before: int = 1, after: int = 1
    ) -> tuple[IntArray, IntArray]:
        """Samples at a fixed distance before and after each of ``times``, in the same epoch.

        If one of the two would lie outside the epoch, the other one is used for both. If both would
        lie outside, they are the first and the last sample of the epoch; the only sample of an
        epoch is thus its own neighbour.

        Parameters
        ----------
        times : ndarray of int of shape (n,)
        before, after : int
            Distances in samples.

        Returns
        -------
        earlier, later : ndarrays of int of shape (n,)
        """
        epoch = np.searchsorted(self.starts, times, side="right") - 1
        first, last = self.starts[epoch], self.stops[epoch] - 1
        earlier, later = times - before, times + after
        return (
            np.where(earlier >= first, earlier, np.where(later <= last, later, first)),
            np.where(later <= last, later, np.where(earlier >= first, earlier, last)),
        )

    def windows(self, times: IntArray, size: int, n_times: int) -> IntArray:
        """Indices of the samples in the window around each of ``times``.

        A window begins ``size // 2`` samples before its central sample. Samples that would lie
        beyond the edge of an epoch, or of a gap between epochs, are replaced by the sample at that
        edge.

        Parameters
        ----------
        times : ndarray of int of shape (n,)
        size : int
            Samples in a window.
        n_times : int
            Number of samples of the recording.

        Returns
        -------
        ndarray of int of shape (n, size)
        """
        edges = np.unique(np.concatenate([[0], self.starts, self.stops, [n_times]]))
        stretch = np.searchsorted(edges, times, side="right") - 1
        first, last = edges[stretch], edges[stretch + 1] - 1
        offsets = np.arange(size) - samples_before(size)
        return np.clip(times[:, None] + offsets, first[:, None], last[:, None])

    def inside(self, window: int) -> Epochs:
        """Shorten each epoch to the samples whose whole window lies in it."""
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
        """Take out ``n`` stretches of ``length`` samples, evenly spaced over all epochs.

        Each stretch lies inside one epoch, which must be longer than the stretch. A stretch is
        moved to the edge of its epoch if ``least`` samples or fewer would be left between the two.

        Returns
        -------
        rest, stretches : Epochs
            What is left of the epochs, and what was taken out.
        """
        ends = np.cumsum(self.lengths)
        taken = []
        for i in range(n):
            centre = (2 * i + 1) * self.size // (2 * n)
            epoch = int(np.searchsorted(ends, centre, side="right"))
            first, stop = int(self.starts[epoch]), int(self.stops[epoch])
            start = stop - (int(ends[epoch]) - centre) - length // 2
            start = min(max(start, first), stop - length)
            if start - first <= least:
                start = first
            elif stop - (start + length) <= least:
                start = stop - length
            taken.append((start, start + length))
        starts, stops = np.array(taken, dtype=np.int64).reshape(-1, 2).T
        # What is left begins at the start of an epoch or at the end of a stretch. It ends at the
        # end of an epoch or at the start of a stretch.
        rest = Epochs(
            np.sort(np.concatenate([self.starts, stops])),
            np.sort(np.concatenate([self.stops, starts])),
        )
        return rest.longer_than(0), Epochs(starts, stops)

    def thin(self, share: float) -> tuple[Epochs, Epochs]:
        """Divide whole epochs into two groups, the second one with a ``share`` of the samples.

        The epochs of the second group are evenly spaced.
        """
        taken, n_taken = np.zeros(len(self), dtype=bool), 0
        for i, (length, end) in enumerate(zip(self.lengths, np.cumsum(self.lengths), strict=True)):
            # Half an epoch early, so that the epochs that are taken are centred among the others.
            if share * end >= n_taken + length / 2 and n_taken + length <= share * self.size:
                taken[i] = True
                n_taken += length
        return self.every(~taken), self.every(taken)

    def every(self, selection: slice | NDArray[np.bool_]) -> Epochs:
        """Select epochs by a slice, or by a boolean array of shape (n_epochs,)."""
        return Epochs(self.starts[selection], self.stops[selection])

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw ``n`` sample indices uniformly with replacement.

        The memory that is needed does not depend on the length of the epochs.
        """
        ends = np.cumsum(self.lengths)
        flat = rng.integers(ends[-1], size=n)
        epoch = np.searchsorted(ends, flat, side="right")
        return self.stops[epoch] - (ends[epoch] - flat)
