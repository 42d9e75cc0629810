"""Encoding strength: the share of each neuron's variance that the label alone explains.

This is an encoding model in closed form: a ridge regression of the activity on smooth functions of
the label, evaluated on held-out time. It does not account for other factors, so a neuron that
follows a factor correlated with the label has a high encoding strength too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from xcebra.common.errors import InputError
from xcebra.data.labels import Label

Array = NDArray[np.float64]

# Contiguous stretches of time, assigned to the folds in turn, so that every fold sees the whole
# recording and a slow drift is not mistaken for a failure to generalise.
_N_STRETCHES = 20
# More samples make the estimate more precise and take longer; not tuned.
_MOST_SAMPLES = 50_000
# Number of values of the activity that are regressed at once, 64 MB in double precision. It limits
# the memory.
_VALUES_AT_ONCE = 1 << 23
# Ridge penalties as shares of the mean variance of the regressors; inner folds choose one for each
# neuron. With a smaller penalty, bumps in rarely visited places could take arbitrary weights.
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
# Number of regressors: harmonics of an angle, bumps on a line, and bumps along each axis of a
# plane. More of them follow finer tuning, but need more samples; not tuned.
_N_HARMONICS = 6
_N_BUMPS = 20
_N_BUMPS_PER_AXIS = 12
# A place in the plane counts as visited if it has at least this share of the samples. If all places
# of the 12 x 12 grid were visited equally, each would have 14 times as many.
_LEAST_VISITED = 5e-4
# Number of cosines of a label with three or more columns, and their wavelength in units of the
# width of the data. More and shorter waves follow finer tuning, but need more samples; not tuned.
_N_WAVES = 200
_WAVELENGTH = 1.5
# The bumps cover the range between these quantiles, so that single outliers, such as jumps of a
# tracker, do not extend it. Not tuned.
_RANGE_QUANTILES = (0.005, 0.995)


def encoding_strength(
    activity: NDArray[np.floating],
    label: Label,
    times: NDArray[np.integer],
    *,
    n_folds: int = 5,
    seed: int = 0,
) -> Array:
    """Share of each neuron's variance that a smooth function of the label explains when held out.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    label : Label
        Samples at which it is missing are left out.
    times : ndarray of int of shape (n_samples,)
        Indices of the samples to use, in order. At most 50,000 of them are used, evenly spaced.
    n_folds : int
        Number of folds of the cross-validation, which consist of contiguous stretches of time.
    seed : int
        Seed of the random regressors for a continuous label with more than two columns. It has no
        effect for other labels.

    Returns
    -------
    strength : ndarray of shape (n_neurons,)
        R^2 on held-out time, relative to a prediction by the mean of the training folds. It is
        negative if the regression predicts worse than this mean, and 0.0 for a constant neuron.

    Raises
    ------
    ValueError
        If there are fewer than two samples with a known label for each fold.
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
    design = smooth_functions(label.kind, label.points[rows], seed=seed)
    n_stretches = max(n_folds, min(_N_STRETCHES, len(rows)))
    fold = np.arange(len(rows)) * n_stretches // len(rows) % n_folds
    by_fold = [np.flatnonzero(fold == k) for k in range(n_folds)]
    n_neurons = activity.shape[1]
    # Some neurons at a time, so that wide recordings do not need much memory.
    step = max(1, _VALUES_AT_ONCE // len(rows))
    parts = [
        _strength(activity[rows, start : start + step], design, by_fold)
        for start in range(0, n_neurons, step)
    ]
    return np.concatenate(parts)


def _strength(
    activity: NDArray[np.floating], design: Array, by_fold: Sequence[NDArray[np.int64]]
) -> Array:
    """Held-out R^2 of a regression of some neurons on the design, of shape (n_neurons,)."""
    x = np.asarray(activity, dtype=np.float64)
    scale = x.std(axis=0)
    # A standard deviation below this is a rounding error of double precision.
    varies = scale > 1e-12 * np.maximum(1.0, np.abs(x).max(axis=0))
    x = (x - x.mean(axis=0)) / np.where(varies, scale, 1.0)
    moments = [_Moments.of(design[samples], x[samples]) for samples in by_fold]
    return np.where(varies, _held_out_r2(moments), 0.0)


def smooth_functions(
    kind: str, points: Array, *, seed: int = 0, dtype: DTypeLike = np.float64
) -> NDArray[Any]:
    """Regressors of a label; weighted sums of them approximate any smooth function of the label.

    Parameters
    ----------
    kind : {"continuous", "discrete", "circular"}
    points : ndarray of shape (n_samples, n_columns)
        As in `Label.points`. There must be no missing values.
    seed : int
        Seed of the random directions used for a continuous label of more than two columns.
    dtype : dtype
        Type of the result. Single precision takes less time.

    Returns
    -------
    design : ndarray of shape (n_samples, n_regressors)
        The columns are not centred, and there is no constant column.
    """
    if kind == "discrete":
        return points.astype(dtype, copy=False)
    if kind == "circular":
        angle = np.arctan2(points[:, 1], points[:, 0])
        multiples = np.outer(angle, np.arange(1, _N_HARMONICS + 1)).astype(dtype, copy=False)
        return np.concatenate([np.cos(multiples), np.sin(multiples)], axis=1)
    if points.shape[1] == 1:
        return _bumps(points[:, 0], _N_BUMPS, dtype)
    if points.shape[1] == 2:
        return _bumps_on_plane(points, dtype)
    return _waves(points, np.random.default_rng(seed), dtype)


def _bumps(values: Array, n_bumps: int, dtype: DTypeLike) -> NDArray[Any]:
    """Gaussian bumps that are evenly spaced over the range of the values.

    Returns an array of shape (n_samples, n_bumps).
    """
    low, high = np.quantile(values, _RANGE_QUANTILES)
    if not high > low:
        # Nearly all values are the same, so that the bumps would have no width.
        return values[:, None].astype(dtype, copy=False)
    centres = np.linspace(low, high, n_bumps)
    width = centres[1] - centres[0]
    # Distances between values of a similar size are computed in double precision.
    position = ((np.clip(values, low, high) - low) / width).astype(dtype, copy=False)
    distance = position[:, None] - np.arange(n_bumps, dtype=position.dtype)
    return np.exp(np.square(distance) * distance.dtype.type(-0.5))


def _bumps_on_plane(points: Array, dtype: DTypeLike) -> NDArray[Any]:
    """Products of bumps along the two axes, without those in places that were not visited."""
    axis_bumps = [_bumps(points[:, k], _N_BUMPS_PER_AXIS, dtype) for k in range(2)]
    n_second = axis_bumps[1].shape[1]
    cell = axis_bumps[0].argmax(axis=1) * n_second + axis_bumps[1].argmax(axis=1)
    visits = np.bincount(cell)
    visited = np.flatnonzero(visits >= max(1.0, _LEAST_VISITED * len(points)))
    first, second = np.divmod(visited, n_second)
    return axis_bumps[0][:, first] * axis_bumps[1][:, second]


def _waves(points: Array, rng: np.random.Generator, dtype: DTypeLike) -> NDArray[Any]:
    """The standardised columns and cosines of them along random directions."""
    scale = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    width = points.shape[1]
    directions = rng.standard_normal((width, _N_WAVES)) / (_WAVELENGTH * np.sqrt(width))
    phases = rng.uniform(0, 2 * np.pi, size=_N_WAVES)
    scaled, directions, phases = (a.astype(dtype, copy=False) for a in (scaled, directions, phases))
    # Torch's cosine is used because numpy's takes ten times as long.
    waves = torch.from_numpy(scaled @ directions + phases).cos_().numpy()
    return np.concatenate([scaled, waves], axis=1)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over samples, from which regressions and their errors can be computed.

    ``design`` and ``x`` are sums of regressors and neurons, the others are sums of their products.
    """

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
        """The same sums after these means are subtracted from the samples."""
        mixed = np.outer(self.design, design_mean)
        inner = self.design_design - mixed - mixed.T
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
        coefficients = [inner / (values + ridge * unit)[:, None] for ridge in _RIDGES]
        self._weights = [vectors @ coefficient for coefficient in coefficients]

    def errors(self, held_out: _Moments) -> tuple[Array, Array]:
        """Squared errors on other samples, and squared errors of a prediction by the training mean.

        Returns arrays of shape (n_ridges, n_neurons) and (n_neurons,).
        """
        centred = held_out.about(self._design_mean, self._x_mean)
        errors = [
            centred.x_x
            - 2 * (weights * centred.design_x).sum(axis=0)
            + (weights * (centred.design_design @ weights)).sum(axis=0)
            for weights in self._weights
        ]
        return np.array(errors), centred.x_x


def _held_out_r2(folds: Sequence[_Moments]) -> Array:
    """R^2 over all folds, each predicted from the others with a penalty chosen in the others."""
    n_folds, n_neurons = len(folds), len(folds[0].x)
    inner_errors = np.zeros((n_folds, len(_RIDGES), n_neurons))
    if n_folds > 2:
        for a, b in combinations(range(n_folds), 2):
            # Trained without a and b. The error on b is used to choose the penalty for fold a, and
            # the error on a to choose the penalty for fold b.
            fit = _Ridge(_Moments.total([f for k, f in enumerate(folds) if k not in (a, b)]))
            inner_errors[a] += fit.errors(folds[b])[0]
            inner_errors[b] += fit.errors(folds[a])[0]
    error, total = np.zeros(n_neurons), np.zeros(n_neurons)
    for k, held_out in enumerate(folds):
        fit = _Ridge(_Moments.total([f for j, f in enumerate(folds) if j != k]))
        by_ridge, of_mean = fit.errors(held_out)
        error += by_ridge[inner_errors[k].argmin(axis=0), np.arange(n_neurons)]
        total += of_mean
    return 1.0 - error / np.where(total > 0, total, 1.0)
