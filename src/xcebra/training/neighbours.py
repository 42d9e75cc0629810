"""Exact nearest neighbours among fixed points, by a tree or by matrix products."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

Floats = NDArray[np.float64]
# Distances, and indices of the points.
Found = tuple[Floats, NDArray[np.int64]]

# With this many columns or more, a tree has to visit so many of its leaves that matrix products are
# faster.
_MANY_COLUMNS = 12
# The following values change only the speed and the memory, never the result.
_GROUP = 64  # points in a group, of which only the minimum is compared
_AT_ONCE = 16  # targets in one matrix product, so that its result stays in the cache
_NUMBERS = 1 << 20  # differences in double precision that are computed at once
_SPARE = 2  # groups that are searched in addition to the k that are necessary


class Neighbours(Protocol):
    """Search for the nearest of ``n`` fixed points."""

    n: int

    def query(self, targets: Floats, k: int) -> Found:
        """Find the ``k`` nearest points of each target, nearest first.

        Parameters
        ----------
        targets : ndarray of shape (n_targets, n_columns)
        k : int

        Returns
        -------
        distance, place : ndarray of shape (n_targets, k)
            Euclidean distances, and indices of the points.
        """


def neighbours(points: Floats, threads: int = 1) -> Neighbours:
    """Choose the fastest search for these points.

    Parameters
    ----------
    points : ndarray of shape (n_points, n_columns)
    threads : int
        Number of threads of the tree.
    """
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
    """Search by matrix products, for many columns.

    The points are divided into groups. Distances in single precision select the groups that may
    contain the nearest points. Inside these groups, distances are computed in double precision. A
    bound of the rounding error proves that no other group has a point that is as near. If it does
    not prove this for a target, the distances to all points are computed in double precision.
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
        for start in range(0, len(targets) if chosen < len(self._half) // _GROUP else 0, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
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
        remaining = np.flatnonzero(unsure)
        for part in np.array_split(remaining, 1 + len(remaining) * self._points.size // _NUMBERS):
            squares = np.square(self._points - targets[part, None]).sum(axis=2)
            distance[part], place[part] = _first(squares, everywhere, k)
        return distance, place

    def _groups(self, targets: Floats, chosen: int) -> tuple[NDArray[np.int64], Floats]:
        """Select the groups with the nearest points of each target.

        Groups are compared by half the squared distance, minus a term that is the same for all
        points.

        Parameters
        ----------
        targets : ndarray of shape (n_targets, n_columns)
        chosen : int
            Number of groups to select.

        Returns
        -------
        group : ndarray of shape (n_targets, chosen)
        outside : ndarray of shape (n_targets,)
            The smallest value in all other groups.
        """
        centred = torch.from_numpy((targets - self._centre).astype(np.float32))
        part = torch.addmm(self._half, centred, self._columns, alpha=-1)
        least = part.view(len(targets), -1, _GROUP).amin(dim=2)
        value, group = least.topk(chosen + 1, dim=1, largest=False)
        return group[:, :-1].numpy(), value[:, -1].double().numpy()

    def _rounding(self, lengths: Floats) -> Floats:
        """Bound of the error in single precision: every product and every sum rounds once."""
        n_columns = len(self._columns)
        products = self._longest**2 / 2 + self._longest * lengths
        return 2 * (n_columns + 4) * float(np.finfo(np.float32).eps) * products


def _first(squares: Floats, places: NDArray[np.int64], k: int) -> Found:
    """Select the ``k`` smallest entries of each row, in increasing order.

    Parameters
    ----------
    squares : ndarray of shape (n_targets, n_points)
        Squared distances.
    places : ndarray of shape (n_targets, n_points) or (1, n_points)
        Indices of the points.

    Returns
    -------
    distance, place : ndarray of shape (n_targets, k)
    """
    first = np.argpartition(squares, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(squares, first, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    first = np.take_along_axis(first, order, axis=1)
    distance = np.sqrt(np.take_along_axis(values, order, axis=1))
    return distance, np.take_along_axis(np.broadcast_to(places, squares.shape), first, axis=1)
