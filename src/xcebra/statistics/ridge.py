"""Ridge regressions of many targets on the same features, with every stretch of time held out.

Their closed form needs only sums of products. One eigendecomposition of the features per fold is
enough for all targets and all penalties.
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

# Number of stretches, as in the test of connections: enough to distribute each fold over a whole
# session. Number of folds: more folds leave more samples for training and take longer; not tuned.
N_STRETCHES, N_FOLDS = 20, 5
# Ridge penalties for features with a variance of about 1. On real recordings the best penalty lies
# between the smallest and the largest of them.
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


class Fold(NamedTuple):
    """Indices of the rows to test, and of rows next to them that are left out of training."""

    test: IntArray
    purged: IntArray


def make_folds(times: IntArray, reach: int) -> list[Fold]:
    """Assign contiguous stretches of samples to folds in turn.

    Parameters
    ----------
    times : ndarray of int of shape (n_samples,)
        Indices of the samples in the recording, in order.
    reach : int
        Samples that lie at most this far from a test stretch are left out of training.

    Returns
    -------
    list of Fold
        With indices into ``times``.
    """
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
    test_moments = [_Moments.of(features[fold.test], targets[fold.test]) for fold in folds]
    total = reduce(_Moments.plus, test_moments)
    errors = np.zeros((len(RIDGES), targets.shape[1]))
    for fold, test in zip(folds, test_moments, strict=True):
        purged = _Moments.of(features[fold.purged], targets[fold.purged])
        train = total.minus(test).minus(purged)
        solver = _Solver.of(train)
        rotated = solver.rotated(test)
        for i, ridge in enumerate(RIDGES):
            weights = solver.weights(ridge)
            explained = np.einsum("ij,ij->j", weights, 2 * rotated.cross - rotated.gram @ weights)
            errors[i] += rotated.squares - explained
    return errors


def held_out_predictions(
    features: Singles, target: Singles, folds: list[Fold], ridge: float
) -> Array:
    """Held-out predictions of one target, of shape (n_samples, n_columns).

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
    target : ndarray of shape (n_samples, n_columns)
    folds : list of Fold
        Every sample is tested in one of them.
    ridge : float
        Penalty.
    """
    predictions = np.empty(target.shape)
    for fold in folds:
        keep = np.ones(len(features), dtype=bool)
        keep[fold.test] = keep[fold.purged] = False
        solver = _Solver.of(_Moments.of(features[keep], target[keep]))
        weights = solver.directions @ solver.weights(ridge)
        predictions[fold.test] = (features[fold.test] - solver.centre) @ weights + solver.mean
    return predictions


class _Moments(NamedTuple):
    """Sums over samples from which a least-squares fit can be computed.

    Number of samples, sums of features and of targets, sums of products of features (``gram``) and
    of features with targets (``cross``), and sums of squares of the targets.
    """

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
        """Moments of both sets of samples together."""
        return _Moments(*map(add, self, other))

    def minus(self, other: _Moments) -> _Moments:
        """Moments without the samples of ``other``."""
        return _Moments(*map(sub, self, other))

    def around(self, centre: Array, mean: Array) -> _Moments:
        """Moments after subtracting ``centre`` from the features and ``mean`` from the targets."""
        n, sums, target_sums, gram, cross, squares = self
        centred_sums = sums - n * centre
        return _Moments(
            n,
            centred_sums,
            target_sums - n * mean,
            gram - np.outer(centre, sums) - np.outer(centred_sums, centre),
            cross - np.outer(centre, target_sums) - np.outer(centred_sums, mean),
            squares - 2 * mean * target_sums + n * mean**2,
        )


@dataclass(frozen=True, eq=False)
class _Solver:
    """Ridge regressions of many targets on the same features, along their principal directions."""

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

    def rotated(self, test: _Moments) -> _Moments:
        """Moments of other samples along the principal directions of the training samples."""
        centred = test.around(self.centre, self.mean)
        gram = self.directions.T @ centred.gram @ self.directions
        return centred._replace(gram=gram, cross=self.directions.T @ centred.cross)
