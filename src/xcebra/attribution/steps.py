"""Maps of single time steps: choosing some of them, and aggregating them in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs, IntArray

Array = NDArray[np.float64]
# Entries of maps that are processed at once. It limits memory and does not change the result.
_ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Steps:
    """Signed maps of single time steps.

    Parameters
    ----------
    stored : ndarray of shape (n_stored, n_neurons, n_latents)
        Maps in memory, or memory-mapped from a file.
    times : ndarray of shape (n_times,)
        Sample index of each map.
    rows : ndarray of shape (n_times,), optional
        Indices of these maps among the stored maps. None means all of them.
    """

    stored: NDArray[np.float32]
    times: IntArray
    rows: IntArray | None = None

    def __post_init__(self) -> None:
        for name in ("stored", "times", "rows"):
            if (array := getattr(self, name)) is not None:
                # A view is made read-only: large arrays are not copied, and the caller's own array
                # stays writeable.
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def maps(self) -> NDArray[np.float32]:
        """Every map, of shape (n_times, n_neurons, n_latents)."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def choose(self, rows: IntArray) -> Steps:
        """The steps at these rows, without a copy.

        Parameters
        ----------
        rows : ndarray of int
            Positions among the steps of this object.
        """
        return Steps(self.stored, self.times[rows], rows if self.rows is None else self.rows[rows])

    def parts(self) -> Iterator[NDArray[np.float32]]:
        """Yield the maps in parts that are small enough to be processed at once.

        Each part has shape (n_steps_of_the_part, n_neurons, n_latents).
        """
        at_once = max(1, _ENTRIES_AT_ONCE // max(1, int(np.prod(self.stored.shape[1:]))))
        for start in range(0, len(self), at_once):
            part = slice(start, start + at_once)
            yield self.stored[part if self.rows is None else self.rows[part]]

    def norms(self, block: slice) -> NDArray[np.float32]:
        """Norm over a block's latents at every step, of shape (n_times, n_neurons)."""
        return np.concatenate([np.linalg.norm(p[:, :, block], axis=2) for p in self.parts()])

    def median(self) -> Array:
        """Median over time of absolute values, of shape (n_neurons, n_latents)."""
        n_neurons, n_latents = self.stored.shape[1:]
        at_once = max(1, _ENTRIES_AT_ONCE // max(1, len(self) * n_latents))
        medians = []
        for start in range(0, n_neurons, at_once):
            part = slice(start, start + at_once)
            entries = self.stored[:, part] if self.rows is None else self.stored[self.rows, part]
            medians.append(np.median(np.abs(entries), axis=0))
        return np.concatenate(medians).astype(np.float64)


class Gather:
    """Aggregate maps over time, for each entry and each block, in constant memory.

    Parameters
    ----------
    aggregate : {"mean", "max", "sum"}
    blocks : tuple of slice
    """

    def __init__(self, aggregate: str, blocks: tuple[slice, ...]) -> None:
        self._aggregate = aggregate
        self._blocks = blocks
        self._n = 0
        self._state: list[Array] = []

    def add(self, maps: Any) -> None:
        """Add maps.

        Parameters
        ----------
        maps : ndarray or Tensor of shape (n_samples, n_neurons, n_latents)
        """
        parts = [abs(maps), *(_norm(maps[:, :, b]) for b in self._blocks)]
        if self._aggregate == "max":
            new = [_as_double(p.amax(0) if hasattr(p, "amax") else p.max(0)) for p in parts]
            merge: Any = np.maximum
        else:
            new = [_as_double(p.sum(0)) for p in parts]
            merge = np.add
        if self._state:
            new = [merge(a, b) for a, b in zip(self._state, new, strict=True)]
        self._state = new
        self._n += len(maps)

    def result(self) -> tuple[Array, list[Array]]:
        """Values of shape (n_neurons, n_latents), and each block's scores of shape (n_neurons,)."""
        divide = self._n if self._aggregate == "mean" else 1
        values, *scores = [s / divide for s in self._state]
        return values, scores


def _norm(entries: Any) -> Any:
    return (entries * entries).sum(2) ** 0.5


def _as_double(values: Any) -> Array:
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values, dtype=np.float64)


def rows_at(known: IntArray, times: Any, name: str) -> IntArray:
    """Positions of the requested samples, by index or mask, among the samples of a map."""
    try:
        wanted = np.asarray(times if isinstance(times, np.ndarray) else list(times))
    except (TypeError, ValueError):
        wanted = np.empty((0, 0))
    if wanted.ndim == 1 and len(wanted) == 0:
        wanted = wanted.astype(np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "biu":
        raise InputError(f"{name} must hold sample indices or a mask, got {times!r}")
    if wanted.dtype == bool:
        last = int(known.max())
        if len(wanted) <= last:
            raise InputError(
                f"{name} is a mask of {len(wanted)} samples, but the map reaches sample {last} of "
                "the recording"
            )
        wanted = np.flatnonzero(wanted)
    elif len(missing := np.setdiff1d(wanted, known)):
        raise InputError(f"{name} asks for sample {missing[0]}, which the map does not have")
    return _nonempty(np.isin(known, wanted), name)


def rows_in_epochs(known: IntArray, epochs: Any, name: str) -> IntArray:
    """The same for epochs of the recording, which may end after the map's last sample."""
    epochs = list(epochs) if isinstance(epochs, Iterable) else epochs
    try:
        reach = max(int(stop) for _, stop in epochs)
    except (TypeError, ValueError, OverflowError):
        reach = 0
    checked = Epochs.check(epochs, max(reach, int(known.max()) + 1))
    epoch = np.searchsorted(checked.starts, known, side="right") - 1
    return _nonempty((epoch >= 0) & (known < checked.stops[epoch]), name)


def _nonempty(inside: NDArray[np.bool_], name: str) -> IntArray:
    """Positions where ``inside`` is True, or an error if there are none."""
    if not inside.any():
        raise InputError(f"{name} holds no sample of the map")
    return np.flatnonzero(inside)
