"""What a block explains of each neuron beyond all other blocks, on held-out time.

First, the activity of each neuron is predicted from the other blocks on held-out time, and the
prediction is subtracted. The residual is then regressed on functions of the block, and on products
of these functions with the other blocks. The variance that this regression explains on held-out
time is what the block adds.

For the null distribution, the residual is shifted circularly in time and the regression is fitted
again for each shift. A shifted residual keeps its autocorrelation, its drift and its bursts, but
has lost its relation to the block.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from xcebra.common.products import product
from xcebra.statistics.encoding_strength import smooth_functions
from xcebra.statistics.held_out_time import N_FOLDS, N_STRETCHES, folds, stretches
from xcebra.statistics.smooth_regression import SmoothRegression, standardised

Array = NDArray[np.float64]
Singles = NDArray[np.float32]

# Number of circular shifts: the smallest p-value by rank is then 1 / 200.
N_SHIFTS = 199
# Functions of the block: the leading components of a smooth basis, and products of the smoothest of
# them with the columns of the other blocks. More functions follow finer tuning and take longer. Not
# tuned.
_MOST_FUNCTIONS, _SMOOTHEST, _MOST_OTHERS = 60, 6, 8
# Components with less than this share of the largest variance are left out. The ridge penalty is
# inversely proportional to a component's variance, so that rough components are penalised more, and
# has this value for the smoothest one. Larger values of either give smoother fits. Not tuned.
_LEAST_COMPONENT, _ROUGH_RIDGE = 1e-4, 2e-3
# Number of surrogates of a block; they are used if the others predict at least this share of the
# block's variance. More surrogates estimate the leak better and take longer. Not tuned.
_N_SURROGATES, _LEAST_RELATED = 9, 0.01
# Number of shifted neurons that are regressed together: larger matrix products are faster, but need
# more memory. It has no effect on the results beyond rounding.
_COLUMNS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Gains:
    """What a block adds to a group of neurons, for each stretch of time and for each shift.

    Parameters
    ----------
    by_stretch : ndarray of shape (n_stretches, n_neurons)
        Sum of squares that the block explains on held-out time, beyond the others.
    nulls : ndarray of shape (n_shifts, n_neurons)
        The same, summed over all stretches, for each circular shift of the neurons.
    leaked : ndarray of shape (n_neurons,)
        Sum of squares that surrogates of the block explain. A surrogate is as closely related to
        the others as the block is, but otherwise unrelated to the neurons.
    left : ndarray of shape (n_neurons,)
        Residual sum of squares after the prediction from the others.
    related : ndarray of shape (n_neurons,)
        Share of the block's variance that the others predict on held-out time. It is the same for
        all neurons that share their regressors.
    total : ndarray of shape (n_stretches, n_neurons)
        Sum of squares about the mean.
    """

    by_stretch: Array
    nulls: Array
    leaked: Array
    left: Array
    related: Array
    total: Array

    @classmethod
    def together(cls, parts: Sequence[Gains], order: NDArray[np.int64] | None = None) -> Gains:
        """Join the gains of several groups of neurons.

        Parameters
        ----------
        parts : sequence of Gains
        order : ndarray of int of shape (n_neurons,), optional
            Index of each neuron of the result in the concatenated groups. If not given, the groups
            are concatenated as they are.
        """
        joined = [
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("by_stretch", "nulls", "leaked", "left", "related", "total")
        ]
        return cls(*(values if order is None else values[..., order] for values in joined))


def group_gains(
    activity: Array,
    block: Array,
    others: Array,
    kind: str = "continuous",
    clear: bool = True,
    n_shifts: int | None = None,
    seed: int = 0,
    functions: BlockFunctions | None = None,
) -> Gains:
    """What a block adds to neurons that share their regressors.

    The parameters are those of `xcebra.statistics.significance.find_connections`. Groups of neurons
    with the same block can share its ``functions``.
    """
    n = len(activity)
    rng = np.random.default_rng(seed)
    x, others = standardised(activity), standardised(others)
    stretch, fold = stretches(n), folds(n)
    functions = functions or BlockFunctions.of(block, kind, seed)
    residual = x - SmoothRegression(x, others, fold, rng).predictions()
    if clear and others.shape[1]:
        others_from_block = SmoothRegression(others, standardised(block), fold, rng).predictions()
        cleared = standardised(others - others_from_block)
        residual_cleared = x - SmoothRegression(x, cleared, fold, rng).predictions()
        better = np.square(residual_cleared).sum(axis=0) < np.square(residual).sum(axis=0)
        residual = np.where(better, residual_cleared, residual)
    # A prediction that is worse than the mean is not used. Its error is a function of the others,
    # which products of the block with the others would explain, although nothing follows the block.
    worse = np.square(residual).sum(axis=0) > np.square(x).sum(axis=0)
    residual = np.where(worse, x, residual)
    left = np.square(residual).sum(axis=0)
    residual = (residual - residual.mean(axis=0)).astype(np.float32)
    ridge = _HeldOutRidge(*functions.with_products(others), stretch)
    by_chance = ridge.shifted_gains(residual, _draw_shifts(n, n_shifts or N_SHIFTS, rng))
    leaked, related = np.zeros(x.shape[1]), 0.0
    if clear and others.shape[1]:
        centred = block - block.mean(axis=0)
        predicted = SmoothRegression(centred, others, fold, rng).predictions()
        block_total = max(float(np.square(centred).sum()), float(np.finfo(float).tiny))
        related = 1 - float(np.square(centred - predicted).sum()) / block_total
        if related >= _LEAST_RELATED:
            leaked = _leaked(residual, block, predicted, others, kind, stretch, rng, seed)
            leaked = np.maximum(leaked - by_chance.mean(axis=0), 0.0)
    return Gains(
        by_stretch=ridge.gains(residual),
        nulls=by_chance,
        leaked=leaked,
        left=left,
        related=np.full(x.shape[1], max(0.0, related)),
        total=_by_stretch(np.square(x), stretch),
    )


def _leaked(
    residual: Singles,
    block: Array,
    predicted: Array,
    others: Array,
    kind: str,
    stretch: NDArray[np.int64],
    rng: np.random.Generator,
    seed: int,
) -> Array:
    """Sum of squares of each neuron that surrogates of the block explain, of shape (n_neurons,).

    A surrogate is the sum of ``predicted``, which is the block as the others predict it, and the
    rest of the block, shifted circularly in time. It is therefore as closely related to the others
    as the block is. If a neuron follows only the others, then surrogates explain as much of it as
    the block does, whatever the regression on the others has missed. If it follows the block, the
    block explains more. The result is the mean over surrogates plus two standard deviations, an
    upper limit for surrogates that differ by chance.
    """
    n, centred = len(block), block - block.mean(axis=0)
    gains = []
    for shift in _draw_shifts(n, _N_SURROGATES, rng):
        surrogate = block.mean(axis=0) + predicted + np.roll(centred - predicted, shift, axis=0)
        functions = BlockFunctions.of(surrogate, kind, seed).with_products(others)
        gains.append(_HeldOutRidge(*functions, stretch).gains(residual).sum(axis=0))
    return np.mean(gains, axis=0) + 2 * np.std(gains, axis=0, ddof=1)


def _draw_shifts(n: int, n_shifts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw circular shifts of ``n`` samples that are at least as long as a stretch of time."""
    margin = max(1, n // N_STRETCHES)
    return rng.integers(margin, max(margin + 1, n - margin), size=n_shifts)


@dataclass(frozen=True, eq=False)
class BlockFunctions:
    """Smooth functions of a block, uncorrelated with each other, smoothest first.

    Parameters
    ----------
    components : ndarray of float32 of shape (n_times, n_functions)
        With mean 0 and variance 1.
    roughness : ndarray of shape (n_functions,)
        Variance of the smoothest function in the basis divided by the variance of each one.
    """

    components: Singles
    roughness: Array

    @classmethod
    def of(cls, block: Array, kind: str, seed: int) -> BlockFunctions:
        """Compute the functions of a block; the parameters are those of `group_gains`."""
        n = len(block)
        basis = smooth_functions(kind, block, seed=seed, dtype=np.float32)
        basis = basis - basis.mean(axis=0, dtype=np.float64).astype(np.float32)
        values, axes = np.linalg.eigh(sum(_products(basis, _rows(stretches(n)))) / n)
        leading = np.flatnonzero(values > _LEAST_COMPONENT * values[-1])[::-1][:_MOST_FUNCTIONS]
        if len(leading) == 0 or values[-1] <= 0:
            return cls(np.zeros((n, 1), dtype=np.float32), np.ones(1))
        weights = axes[:, leading] / np.sqrt(values[leading])
        return cls(basis @ weights.astype(np.float32), values[leading[0]] / values[leading])

    def with_products(self, others: Array) -> tuple[Singles, Array]:
        """Add products of the smoothest functions with other columns.

        Returns
        -------
        functions : ndarray of float32 of shape (n_times, n_functions)
        roughness : ndarray of shape (n_functions,)
        """
        n, n_components = self.components.shape
        factors = others[:, :_MOST_OTHERS].astype(np.float32)
        n_smooth, n_factors = min(_SMOOTHEST, n_components), factors.shape[1]
        functions = np.empty((n, n_components + n_smooth * n_factors), np.float32)
        functions[:, :n_components] = self.components
        products = functions[:, n_components:]
        for k in range(n_smooth):
            columns = slice(k * n_factors, (k + 1) * n_factors)
            np.multiply(self.components[:, k, None], factors, out=products[:, columns])
        products -= products.mean(axis=0, dtype=np.float64).astype(np.float32)
        roughness = np.repeat(self.roughness[:n_smooth], n_factors)
        return functions, np.concatenate([self.roughness, roughness])


class _HeldOutRidge:
    """Ridge regression of any targets on fixed regressors, evaluated on held-out time.

    It is computed from sums of products in each stretch of time.
    """

    def __init__(self, design: Singles, roughness: Array, stretch: NDArray[np.int64]):
        self._design = design
        self._rows = _rows(stretch)
        self._inner = _products(design, self._rows)
        total, n = sum(self._inner), len(design)
        self._held_out = [np.sum(self._inner[k::N_FOLDS], axis=0) for k in range(N_FOLDS)]
        self._inverses = []
        for k, held_out in enumerate(self._held_out):
            n_train = n - sum(r.stop - r.start for r in self._rows[k::N_FOLDS])
            ridge = np.diag(_ROUGH_RIDGE * n_train * roughness)
            self._inverses.append(np.linalg.inv(total - held_out + ridge))

    def gains(self, x: Singles) -> Array:
        """Sum of squares that is explained in each stretch, of shape (n_stretches, n_columns)."""
        cross = np.array([_product(self._design[r].T, x[r]) for r in self._rows], dtype=np.float64)
        total = cross.sum(axis=0)
        explained = np.empty((len(cross), x.shape[1]))
        for k, inverse in enumerate(self._inverses):
            weights = inverse @ (total - cross[k::N_FOLDS].sum(axis=0))
            for i in range(k, len(cross), N_FOLDS):
                explained[i] = _explained(weights, cross[i], self._inner[i])
        return explained

    def shifted_gains(self, x: Singles, shifts: NDArray[np.int64]) -> Array:
        """Sum of squares that is explained after circular shifts in time, over all stretches.

        Parameters
        ----------
        x : ndarray of float32 of shape (n_times, n_columns)
        shifts : ndarray of int of shape (n_shifts,)

        Returns
        -------
        ndarray of shape (n_shifts, n_columns)
        """
        n, n_columns = x.shape
        # Any part of a shifted column is a part of the column repeated twice.
        twice = np.ascontiguousarray(np.concatenate([x, x]).T)
        explained = np.zeros((len(shifts), n_columns))
        batch_size = max(1, _COLUMNS_AT_ONCE // n_columns)
        for first in range(0, len(shifts), batch_size):
            starts = n - shifts[first : first + batch_size]
            shape = n_columns * len(starts), self._design.shape[1]
            by_fold = np.zeros((N_FOLDS, *shape))
            for i, rows in enumerate(self._rows):
                windows = sliding_window_view(twice, rows.stop - rows.start, axis=1)
                shifted = windows[:, starts + rows.start].reshape(shape[0], -1)
                by_fold[i % N_FOLDS] += _product(shifted, self._design[rows])
            total = by_fold.sum(axis=0)
            gain = np.zeros(len(total))
            for k, cross in enumerate(by_fold):
                weights = self._inverses[k] @ (total - cross).T
                gain += _explained(weights, cross.T, self._held_out[k])
            explained[first : first + len(starts)] = gain.reshape(n_columns, -1).T
        return explained


def _explained(weights: Array, cross: Array, inner: Array) -> Array:
    """Sum of squares that regression weights explain, of shape (n_columns,).

    Parameters
    ----------
    weights : ndarray of shape (n_functions, n_columns)
    cross : ndarray of shape (n_functions, n_columns)
        Sums of products of the functions and the targets.
    inner : ndarray of shape (n_functions, n_functions)
        Sums of products of the functions.
    """
    return np.einsum("fc,fc->c", weights, 2 * cross - inner @ weights)


def _rows(stretch: NDArray[np.int64]) -> list[slice]:
    """Rows of each stretch of time."""
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    return [slice(a, b) for a, b in itertools.pairwise([*starts, len(stretch)])]


def _products(columns: Singles, rows: Sequence[slice]) -> list[Array]:
    """Sums of products of all columns with each other, over the rows of each stretch."""
    return [_product(columns[r].T, columns[r]).astype(np.float64) for r in rows]


def _product(left: Singles, right: Singles) -> Singles:
    """Matrix product in single precision."""
    return product(torch.from_numpy(left), torch.from_numpy(right).T).numpy()


def _by_stretch(values: Array, stretch: NDArray[np.int64]) -> Array:
    """Sums over each stretch of time, of shape (n_stretches, n_neurons)."""
    return np.add.reduceat(values, np.flatnonzero(np.diff(stretch, prepend=-1)), axis=0)
