"""How much of each neuron's variance the label alone explains, on time that was held out.

This is an encoding model in closed form: ridge regression of the activity on smooth functions of
the label. It knows nothing of other factors, so a neuron that follows something correlated with the
label has a high encoding strength too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.labels import Label

Array = NDArray[np.float64]

# Contiguous stretches of time, assigned to the folds in turn, so that every fold sees the whole
# recording and a slow drift is not mistaken for a failure to generalise.
_N_STRETCHES = 20
_MOST_SAMPLES = 50_000
# As shares of the mean variance of the regressors; chosen for each neuron by inner folds. A smaller
# ridge would let bumps in rarely visited places take any weight.
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_N_HARMONICS = 6
_N_BUMPS = 20
_N_BUMPS_PER_AXIS = 12
# A place in the plane counts as visited with this share of the samples; on an even grid of 12 x 12
# each would have 14 times as many.
_LEAST_VISITED = 5e-4
_N_WAVES = 200
_WAVELENGTH = 1.5
# Single outliers, such as jumps of a tracker, do not stretch the range that the bumps cover.
_RANGE_QUANTILES = (0.005, 0.995)


def encoding_strength(
    activity: NDArray[np.floating],
    label: Label,
    times: NDArray[np.integer],
    *,
    n_folds: int = 5,
    seed: int = 0,
) -> Array:
    """Held-out share of each neuron's variance that a smooth function of the label explains.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    label : Label
        Samples where it is missing are left out.
    times : ndarray of int of shape (n_samples,)
        Indices of the samples to use, in order. At most 50,000 of them are used, evenly spaced.
    n_folds : int
        Folds of the cross-validation, over contiguous stretches of time.
    seed : int
        Seed of the random regressors of a label with more than two columns; of no effect for
        other labels.

    Returns
    -------
    strength : ndarray of shape (n_neurons,)
        R^2 on held-out time, where 0 is the prediction of the mean of the training folds. It is
        negative where the fit predicts worse than that mean, and 0.0 for a neuron that is constant.

    Raises
    ------
    ValueError
        If there are fewer samples with a label than two for each fold.
    """
    rows = np.asarray(times)
    rows = rows[label.valid[rows]]
    if len(rows) < 2 * n_folds:
        raise InputError(
            f"times holds {len(rows)} samples where label {label.name!r} is known, but "
            f"{n_folds} folds need {2 * n_folds} at least; give more samples, or fewer folds"
        )
    if len(rows) > _MOST_SAMPLES:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_SAMPLES).round().astype(np.int64)]
    x = np.asarray(activity[rows], dtype=np.float64)
    spread = x.std(axis=0)
    varies = spread > 1e-12 * np.maximum(1.0, np.abs(x).max(axis=0))
    x = (x - x.mean(axis=0)) / np.where(varies, spread, 1.0)
    design = smooth_functions(label.kind, label.points[rows], seed=seed)
    n_stretches = max(n_folds, min(_N_STRETCHES, len(rows)))
    fold = np.arange(len(rows)) * n_stretches // len(rows) % n_folds
    moments = [_Moments.of(design[fold == k], x[fold == k]) for k in range(n_folds)]
    return np.where(varies, _held_out_r2(moments), 0.0)


def smooth_functions(kind: str, points: Array, *, seed: int = 0) -> Array:
    """Regressors whose sums follow any smooth function of a label.

    Parameters
    ----------
    kind : {"continuous", "discrete", "circular"}
    points : ndarray of shape (n_samples, n_columns)
        As in `Label.points`, without missing values.
    seed : int
        Seed of the random directions used for a continuous label of more than two columns.

    Returns
    -------
    design : ndarray of shape (n_samples, n_regressors)
        Not centred, without a constant column.
    """
    if kind == "discrete":
        return points
    if kind == "circular":
        angle = np.arctan2(points[:, 1], points[:, 0])
        turns = np.outer(angle, np.arange(1, _N_HARMONICS + 1))
        return np.concatenate([np.cos(turns), np.sin(turns)], axis=1)
    if points.shape[1] == 1:
        return _bumps(points[:, 0], _N_BUMPS)
    if points.shape[1] == 2:
        return _bumps_on_plane(points)
    return _waves(points, np.random.default_rng(seed))


def _bumps(values: Array, n_bumps: int) -> Array:
    """Gaussian bumps, evenly spaced over the range of the values."""
    low, high = np.quantile(values, _RANGE_QUANTILES)
    if not high > low:
        # Nearly all values are the same: the bumps would have no width.
        return values[:, None]
    centres = np.linspace(low, high, n_bumps)
    width = centres[1] - centres[0]
    distance = (np.clip(values, low, high)[:, None] - centres) / width
    return np.exp(-0.5 * np.square(distance))


def _bumps_on_plane(points: Array) -> Array:
    """Products of bumps along the two axes, kept where the label has been."""
    along = [_bumps(points[:, k], _N_BUMPS_PER_AXIS) for k in range(2)]
    n_second = along[1].shape[1]
    cell = along[0].argmax(axis=1) * n_second + along[1].argmax(axis=1)
    visits = np.bincount(cell)
    visited = np.flatnonzero(visits >= max(1.0, _LEAST_VISITED * len(points)))
    first, second = np.divmod(visited, n_second)
    return along[0][:, first] * along[1][:, second]


def _waves(points: Array, rng: np.random.Generator) -> Array:
    """The columns themselves and cosines along random directions."""
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    width = points.shape[1]
    directions = rng.standard_normal((width, _N_WAVES)) / (_WAVELENGTH * np.sqrt(width))
    phases = rng.uniform(0, 2 * np.pi, size=_N_WAVES)
    return np.concatenate([scaled, np.cos(scaled @ directions + phases)], axis=1)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over samples from which regressions and their errors follow without the samples."""

    n: int
    design: Array
    x: Array
    design_design: Array
    design_x: Array
    x_x: Array

    @classmethod
    def of(cls, design: Array, x: Array) -> _Moments:
        return cls(
            n=len(x),
            design=design.sum(axis=0),
            x=x.sum(axis=0),
            design_design=design.T @ design,
            design_x=design.T @ x,
            x_x=np.square(x).sum(axis=0),
        )

    @classmethod
    def total(cls, parts: Sequence[_Moments]) -> _Moments:
        return cls(
            n=sum(part.n for part in parts),
            design=np.sum([part.design for part in parts], axis=0),
            x=np.sum([part.x for part in parts], axis=0),
            design_design=np.sum([part.design_design for part in parts], axis=0),
            design_x=np.sum([part.design_x for part in parts], axis=0),
            x_x=np.sum([part.x_x for part in parts], axis=0),
        )

    def about(self, design_mean: Array, x_mean: Array) -> _Moments:
        """The same sums of samples from which these means are subtracted."""
        across = np.outer(self.design, design_mean)
        inner = self.design_design - across - across.T
        cross = self.design_x - np.outer(self.design, x_mean) - np.outer(design_mean, self.x)
        return _Moments(
            n=self.n,
            design=self.design - self.n * design_mean,
            x=self.x - self.n * x_mean,
            design_design=inner + self.n * np.outer(design_mean, design_mean),
            design_x=cross + self.n * np.outer(design_mean, x_mean),
            x_x=self.x_x - 2 * self.x * x_mean + self.n * np.square(x_mean),
        )


class _Ridge:
    """Ridge regressions on one set of samples, for every penalty of `_RIDGES`."""

    def __init__(self, training: _Moments):
        self._design_mean, self._x_mean = training.design / training.n, training.x / training.n
        centred = training.about(self._design_mean, self._x_mean)
        values, vectors = np.linalg.eigh(centred.design_design)
        values = np.maximum(values, 0.0)
        unit = max(float(values.mean()), 1e-300)
        inner = vectors.T @ centred.design_x
        scaled = [inner / (values + ridge * unit)[:, None] for ridge in _RIDGES]
        self._weights = [vectors @ each for each in scaled]

    def errors(self, held_out: _Moments) -> tuple[Array, Array]:
        """Squared errors on other samples, and those of the training mean.

        Returns arrays of shape (n_ridges, n_neurons) and (n_neurons,).
        """
        there = held_out.about(self._design_mean, self._x_mean)
        left = [
            there.x_x
            - 2 * (weights * there.design_x).sum(axis=0)
            + (weights * (there.design_design @ weights)).sum(axis=0)
            for weights in self._weights
        ]
        return np.array(left), there.x_x


def _held_out_r2(folds: Sequence[_Moments]) -> Array:
    """R^2 over all folds, each predicted from the others with the ridge that suits these."""
    n_folds, n_neurons = len(folds), len(folds[0].x)
    inner = np.zeros((n_folds, len(_RIDGES), n_neurons))
    if n_folds > 2:
        for a, b in combinations(range(n_folds), 2):
            # Trained without a and b: b judges the ridge for fold a, and a the one for fold b.
            fit = _Ridge(_Moments.total([f for k, f in enumerate(folds) if k not in (a, b)]))
            inner[a] += fit.errors(folds[b])[0]
            inner[b] += fit.errors(folds[a])[0]
    error, total = np.zeros(n_neurons), np.zeros(n_neurons)
    for k, held_out in enumerate(folds):
        fit = _Ridge(_Moments.total([f for j, f in enumerate(folds) if j != k]))
        by_ridge, of_mean = fit.errors(held_out)
        error += by_ridge[inner[k].argmin(axis=0), np.arange(n_neurons)]
        total += of_mean
    return 1.0 - error / np.where(total > 0, total, 1.0)
