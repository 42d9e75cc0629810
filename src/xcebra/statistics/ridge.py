"""Ridge regressions of many targets on the same features, with every stretch of time held out.

Their closed form needs sums of products only. One eigendecomposition of the features per fold
serves every target and every penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add, sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import IntArray

Array = NDArray[np.float64]
Singles = NDArray[np.float32]

# As in the test of connections: enough stretches to spread each fold through a whole session.
N_STRETCHES, N_FOLDS = 20, 5
# With features of variance about one. On real recordings the best lies between.
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


class Fold(NamedTuple):
    """Rows that are tested, and rows beside them that are left out of training."""

    test: IntArray
    purged: IntArray


def make_folds(times: IntArray, reach: int) -> list[Fold]:
    """Stretches of samples in turn; ``reach`` samples on either side are left out of training."""
    n = len(times)
    borders = np.arange(N_STRETCHES + 1) * n // N_STRETCHES
    stretch = np.searchsorted(borders, np.arange(n), side="right") - 1
    folds = []
    for k in range(N_FOLDS):
        near = np.zeros(n, dtype=bool)
        for i in range(k, N_STRETCHES, N_FOLDS):
            first, last = times[borders[i]], times[borders[i + 1] - 1]
            near[np.searchsorted(times, first - reach) : borders[i]] = True
            near[borders[i + 1] : np.searchsorted(times, last + reach, side="right")] = True
        test = stretch % N_FOLDS == k
        folds.append(Fold(np.flatnonzero(test), np.flatnonzero(near & ~test)))
    return folds


def held_out_errors(features: Singles, targets: Singles, folds: list[Fold]) -> Array:
    """Held-out squared errors, summed over samples, of shape (n_ridges, n_targets).

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
    targets : ndarray of shape (n_samples, n_targets)
    folds : list of Fold
        Every sample is tested in one of them.
    """
    tested = [_Moments.of(features[fold.test], targets[fold.test]) for fold in folds]
    whole = reduce(_Moments.plus, tested)
    result = np.zeros((len(RIDGES), targets.shape[1]))
    for fold, test in zip(folds, tested, strict=True):
        purged = _Moments.of(features[fold.purged], targets[fold.purged])
        train = whole.minus(test).minus(purged)
        solver = _Solver.of(train)
        rotated = solver.seen(test)
        for i, ridge in enumerate(RIDGES):
            weights = solver.weights(ridge)
            explained = np.einsum("ij,ij->j", weights, 2 * rotated.cross - rotated.gram @ weights)
            result[i] += rotated.squares - explained
    return result


def held_out_predictions(
    features: Singles, target: Singles, folds: list[Fold], ridge: float
) -> Array:
    """Held-out predictions of one target, of shape (n_samples, n_columns)."""
    result = np.empty(target.shape)
    for fold in folds:
        keep = np.ones(len(features), dtype=bool)
        keep[fold.test] = keep[fold.purged] = False
        solver = _Solver.of(_Moments.of(features[keep], target[keep]))
        weights = solver.directions @ solver.weights(ridge)
        result[fold.test] = (features[fold.test] - solver.centre) @ weights + solver.mean
    return result


class _Moments(NamedTuple):
    """What a least-squares fit needs to know of some samples."""

    n: float
    sums: Array
    target_sums: Array
    gram: Array
    cross: Array
    squares: Array

    @classmethod
    def of(cls, features: Singles, targets: Singles) -> _Moments:
        # Single precision is accurate enough for the products because of the ridge penalty.
        return cls(
            float(len(features)),
            features.sum(axis=0, dtype=np.float64),
            targets.sum(axis=0, dtype=np.float64),
            (features.T @ features).astype(np.float64),
            (features.T @ targets).astype(np.float64),
            np.einsum("ij,ij->j", targets, targets).astype(np.float64),
        )

    def plus(self, other: _Moments) -> _Moments:
        """Of both sets of samples together."""
        return _Moments(*map(add, self, other))

    def minus(self, other: _Moments) -> _Moments:
        """Without some of the samples."""
        return _Moments(*map(sub, self, other))

    def around(self, centre: Array, mean: Array) -> _Moments:
        """The same of features and targets that are counted from a centre and a mean."""
        n, sums, target_sums, gram, cross, squares = self
        moved = sums - n * centre
        return _Moments(
            n,
            moved,
            target_sums - n * mean,
            gram - np.outer(centre, sums) - np.outer(moved, centre),
            cross - np.outer(centre, target_sums) - np.outer(moved, mean),
            squares - 2 * mean * target_sums + n * mean**2,
        )


@dataclass(frozen=True, eq=False)
class _Solver:
    """Ridge regressions of many targets on the same samples, by their principal directions."""

    centre: Array
    mean: Array
    values: Array
    directions: Array
    cross: Array

    @classmethod
    def of(cls, train: _Moments) -> _Solver:
        centre, mean = train.sums / train.n, train.target_sums / train.n
        centred = train.around(centre, mean)
        values, directions = np.linalg.eigh(centred.gram / train.n)
        cross = directions.T @ (centred.cross / train.n)
        return cls(centre, mean, np.maximum(values, 0.0), directions, cross)

    def weights(self, ridge: float) -> Array:
        """Weights along the principal directions, of shape (n_features, n_targets)."""
        return self.cross / (self.values + ridge)[:, None]

    def seen(self, test: _Moments) -> _Moments:
        """Moments of other samples, along the principal directions."""
        moved = test.around(self.centre, self.mean)
        gram = self.directions.T @ moved.gram @ self.directions
        return moved._replace(gram=gram, cross=self.directions.T @ moved.cross)
