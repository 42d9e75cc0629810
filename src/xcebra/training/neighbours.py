"""Exact nearest neighbours among fixed points, for few columns and for many."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

Floats = NDArray[np.float64]
Found = tuple[Floats, NDArray[np.int64]]

# From here on a tree has to look at so many of its leaves that matrix products are faster.
_MANY_COLUMNS = 12
_GROUP = 64  # points that share one minimum
_AT_ONCE = 16  # targets in one product: its result stays in cache
_NUMBERS = 1 << 20  # differences in double precision at a time
_SPARE = 2  # groups looked into beside the k that must be


class Neighbours(Protocol):
    """Points that know which of them are nearest to others."""

    n: int

    def query(self, targets: Floats, k: int) -> Found:
        """The ``k`` nearest points of each target, from near to far.

        Returns
        -------
        distance, place : ndarray of shape (n_targets, k)
        """


def neighbours(points: Floats, threads: int = 1) -> Neighbours:
    """What finds the neighbours among points of shape (n_points, n_columns) fastest."""
    return _Blocks(points) if points.shape[1] >= _MANY_COLUMNS else _Tree(points, threads)


class _Tree:
    """A k-d tree, for few columns."""

    def __init__(self, points: Floats, threads: int) -> None:
        self._tree = KDTree(points, leafsize=32)
        self._threads = threads
        self.n = len(points)

    def query(self, targets: Floats, k: int) -> Found:
        distance, place = self._tree.query(targets, k=range(1, k + 1), workers=self._threads)
        return distance, place


class _Blocks:
    """Distances to all points by matrix products in single precision, then the few that matter.

    Points lie in groups. Single precision tells which groups may hold the nearest, double
    precision decides inside them. A bound on its rounding proves that no other group has a point as
    near; where it cannot, all points are looked at in double precision.
    """

    def __init__(self, points: Floats) -> None:
        self.n, n_columns = points.shape
        self._points = points
        self._centre = points.mean(axis=0)
        centred = points - self._centre
        self._longest = float(np.sqrt(np.square(centred).sum(axis=1).max()))
        empty = -self.n % _GROUP
        padded = np.zeros((n_columns, self.n + empty), np.float32)
        padded[:, : self.n] = centred.T
        half = np.full(self.n + empty, np.inf, np.float32)
        half[: self.n] = np.square(centred).sum(axis=1) / 2
        self._columns, self._half = torch.from_numpy(padded), torch.from_numpy(half)

    def query(self, targets: Floats, k: int) -> Found:
        distance = np.empty((len(targets), k))
        place = np.empty((len(targets), k), dtype=np.int64)
        chosen = k + _SPARE
        unsure = np.ones(len(targets), dtype=bool)
        for at in range(0, len(targets) if chosen < len(self._half) // _GROUP else 0, _AT_ONCE):
            rows = slice(at, at + _AT_ONCE)
            group, outside = self._groups(targets[rows], chosen)
            members = (group[:, :, None] * _GROUP + np.arange(_GROUP)).reshape(len(group), -1)
            there = np.minimum(members, self.n - 1)
            squares = np.square(self._points[there] - targets[rows, None]).sum(axis=2)
            squares[members >= self.n] = np.inf
            distance[rows], place[rows] = _first(squares, there, k)
            length = np.sqrt(np.square(targets[rows] - self._centre).sum(axis=1))
            inside = (distance[rows, -1] ** 2 - length**2) / 2
            unsure[rows] = outside - self._rounding(length) <= inside
        everywhere = np.arange(self.n)[None]
        left = np.flatnonzero(unsure)
        for part in np.array_split(left, 1 + len(left) * self._points.size // _NUMBERS):
            squares = np.square(self._points - targets[part, None]).sum(axis=2)
            distance[part], place[part] = _first(squares, everywhere, k)
        return distance, place

    def _groups(self, targets: Floats, chosen: int) -> tuple[NDArray[np.int64], Floats]:
        """The most promising groups of each target, and what all other groups have at least.

        Of half the squared distance, less a part that is the same for all points.
        """
        centred = torch.from_numpy((targets - self._centre).astype(np.float32))
        part = torch.addmm(self._half, centred, self._columns, alpha=-1)
        least = part.view(len(targets), -1, _GROUP).amin(dim=2)
        value, group = least.topk(chosen + 1, dim=1, largest=False)
        return group[:, :-1].numpy(), value[:, -1].double().numpy()

    def _rounding(self, lengths: Floats) -> Floats:
        """What single precision may be wrong by: every product and sum rounds once."""
        n_columns = len(self._columns)
        products = self._longest**2 / 2 + self._longest * lengths
        return 2 * (n_columns + 4) * float(np.finfo(np.float32).eps) * products


def _first(squares: Floats, places: NDArray[np.int64], k: int) -> Found:
    """The smallest of each row, in order: their roots, and the places they belong to."""
    first = np.argpartition(squares, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(squares, first, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    first = np.take_along_axis(first, order, axis=1)
    distance = np.sqrt(np.take_along_axis(values, order, axis=1))
    return distance, np.take_along_axis(np.broadcast_to(places, squares.shape), first, axis=1)
