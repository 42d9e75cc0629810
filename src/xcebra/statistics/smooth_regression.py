"""Ridge regression on smooth functions of some columns, with folds of time held out in turn.

It is used to predict neurons from other blocks, one block from the others, and one label from
another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.statistics.held_out_time import N_FOLDS, folds

Array = NDArray[np.float64]
Singles = NDArray[np.float32]
Moments = tuple[Array, ...]

# Random cosines of the regressors: at most 150, and at least 20 samples for each of them. More of
# them follow finer functions, take longer and overfit sooner. Not tuned.
_MOST_WAVES = 150
_ROWS_A_WAVE = 20
# Wavelengths in units of the width of the data: larger values make smoother functions. Not tuned.
_WAVELENGTH = 1.5
# Ridge penalty for regressors of variance about 1: larger values make the predictions more stable
# and less complete. Not tuned.
_RIDGE = 1e-3


class SmoothRegression:
    """Ridge regression of ``x`` on smooth functions of other columns, each fold held out in turn.

    Parameters
    ----------
    x : ndarray of shape (n_times, n_targets)
    others : ndarray of shape (n_times, n_columns)
        Standardised columns. If there are none, the prediction is the mean over the other folds.
    fold : ndarray of int of shape (n_times,)
        Number of the fold that each sample belongs to.
    rng : numpy.random.Generator
        For the random cosines.
    """

    def __init__(self, x: Array, others: Array, fold: NDArray[np.int64], rng: np.random.Generator):
        # Single precision is accurate enough here because of the ridge penalty.
        self._x = x.astype(np.float32)
        self._folds = [np.flatnonzero(fold == k) for k in range(N_FOLDS)]
        waves = _Waves.draw(others.shape[1], _MOST_WAVES, len(x), rng)
        self._design = waves.of(others) if others.shape[1] else others.astype(np.float32)
        self._moments = [self._moments_of(rows) for rows in self._folds]

    def errors(self) -> Array:
        """Squared errors of the held-out prediction, of the shape of ``x``."""
        return np.square(self._residuals())

    def predictions(self) -> Array:
        """Held-out prediction, of the shape of ``x``."""
        return self._x - self._residuals()

    def _moments_of(self, rows: NDArray[np.int64]) -> Moments:
        design, x = self._design[rows], self._x[rows]
        sums = design.T @ design, design.T @ x, design.sum(axis=0), x.sum(axis=0)
        return tuple(array.astype(np.float64) for array in sums)

    def _residuals(self) -> Array:
        """Differences between ``x`` and its held-out prediction."""
        residuals = np.empty(self._x.shape)
        gram, cross, sums, x_sums = (sum(moment) for moment in zip(*self._moments, strict=True))
        for rows, held_out in zip(self._folds, self._moments, strict=True):
            n = len(self._x) - len(rows)
            centre, mean = (sums - held_out[2]) / n, (x_sums - held_out[3]) / n
            inner = gram - held_out[0] - n * np.outer(centre, centre)
            inner[np.diag_indices(len(inner))] += _RIDGE * n
            weights = np.linalg.solve(inner, cross - held_out[1] - n * np.outer(centre, mean))
            constant = mean - centre @ weights
            predicted = self._design[rows] @ weights.astype(np.float32)
            residuals[rows] = self._x[rows] - predicted - constant
        return residuals


def share_predicted(target: Array, source: Array) -> float:
    """Share of a target's variance that a smooth function of the source predicts when held out.

    Parameters
    ----------
    target : ndarray of shape (n_times, n_columns)
    source : ndarray of shape (n_times, n_source_columns)
    """
    x, predictors = standardised(target), standardised(source)
    errors = SmoothRegression(x, predictors, folds(len(x)), np.random.default_rng(0)).errors()
    return 1.0 - float(errors.sum() / max(float(np.square(x).sum()), 1e-300))


def standardised(values: Array) -> Array:
    """Columns with mean 0 and standard deviation 1; columns that do not vary are 0."""
    values = np.asarray(values, dtype=np.float64)
    scale = values.std(axis=0)
    centred = values - values.mean(axis=0)
    centred /= np.where(scale > 0, scale, 1.0)
    return centred


@dataclass(frozen=True, eq=False)
class _Waves:
    """Cosines along random directions; weighted sums of them approximate any smooth function."""

    directions: Singles
    phases: Singles

    @classmethod
    def draw(cls, width: int, most: int, n: int, rng: np.random.Generator) -> _Waves:
        """Draw at most ``most`` cosines of ``width`` columns, fewer if there are few samples."""
        size = min(most, n // _ROWS_A_WAVE)
        scale = _WAVELENGTH * np.sqrt(max(1, width))
        directions = rng.standard_normal((width, size)) / scale
        phases = rng.uniform(0, 2 * np.pi, size=size)
        return cls(directions.astype(np.float32), phases.astype(np.float32))

    def of(self, points: Array) -> Singles:
        """The points and their cosines side by side, in single precision."""
        single = points.astype(np.float32)
        angles = single @ self.directions
        angles += self.phases
        # Torch's cosine is used because numpy's takes ten times as long.
        return np.concatenate([single, torch.from_numpy(angles).cos_().numpy()], axis=1)
