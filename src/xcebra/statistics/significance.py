"""Test whether each neuron is connected to a block, given all other blocks.

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
from numpy.typing import NDArray
from scipy.stats import binom, false_discovery_control, pearson3
from scipy.stats import t as student_t

from xcebra.statistics.encoding_strength import smooth_functions

Array = NDArray[np.float64]
Singles = NDArray[np.float32]
Moments = tuple[Array, ...]

# Number of circular shifts: the smallest p-value by rank is then 1 / 200.
N_SHIFTS = 199
# With an imperfect embedding, part of the effect of the other blocks appears as an effect of the
# block. Before the test, the effect on a typical connected neuron, multiplied by ALLOWANCE +
# RELATED_ALLOWANCE * R^2, is therefore subtracted. Effects are relative to what all blocks explain
# of a neuron. R^2 is how well the others predict the block: the better they do, the more similar
# to the block is what they missed of a neuron. Both values were chosen on dataset seeds 100 and
# above.
ALLOWANCE, RELATED_ALLOWANCE = 0.03, 0.4
# A label that is correlated with a factor that was not measured seems to have a small effect on
# neurons that follow this factor. This share of the variance that the label explains of a typical
# connected neuron is therefore subtracted too. Hippocampal units that were recorded together with
# head-direction cells follow heading a little, because the animal faces different directions in
# different places; this value excludes those of which heading explains less than 1 %.
LEAST_EFFECT = 0.03
# The recording is cut into 20 contiguous stretches of time, assigned to 4 folds in turn. More
# stretches spread each fold more evenly over the recording; longer ones are more independent of
# their neighbours. Not tuned.
_STRETCHES, _FOLDS = 20, 4
# Random cosines of the other blocks: at most 150, and at least 20 samples for each of them. More of
# them follow finer functions, take longer and overfit sooner. Not tuned.
_OTHER_WAVES = 150
_ROWS_A_WAVE = 20
# Wavelengths in units of the width of the data: larger values make smoother functions. Not tuned.
_WAVELENGTH = 1.5
# Ridge penalty for regressors of variance about 1: larger values make the predictions from the
# other blocks more stable and less complete. Not tuned.
_RIDGE = 1e-3
# Functions of the block: the leading components of a smooth basis, and products of the smoothest of
# them with the columns of the other blocks. More functions follow finer tuning and take longer. Not
# tuned.
_MOST_FUNCTIONS, _SMOOTHEST, _MOST_OTHERS = 60, 6, 8
# Components with less than this share of the largest variance are left out. The ridge penalty is
# inversely proportional to a component's variance, so that rough components are penalised more, and
# has this value for the smoothest one. Larger values of either give smoother fits. Not tuned.
_LEAST_COMPONENT, _ROUGH_RIDGE = 1e-4, 2e-3
# Where all blocks together explain less than this share of a neuron's variance, a block's part of
# it is not stated, because it would be a ratio of two numbers that are mostly noise. Not tuned.
LEAST_EXPLAINED = 0.01
# Level of the confidence intervals, by convention.
_LEVEL = 0.95
# Number of surrogates of a block; they are used if the others predict at least this share of the
# block's variance. More surrogates estimate the leak better and take longer. Not tuned.
_N_SURROGATES, _LEAST_RELATED = 9, 0.01
# Number of shifted neurons that are regressed together: larger matrix products are faster, but need
# more memory. It has no effect on the results beyond rounding.
_COLUMNS_AT_ONCE = 128
# Smallest p-value that is stated: the tail of a distribution that was fitted to a few hundred
# shifts is not known any further. Not tuned.
_LEAST_P = 1e-8


@dataclass(frozen=True, eq=False)
class Connections:
    """What a block explains of each neuron beyond the other blocks, with intervals and p-values.

    Parameters
    ----------
    share : ndarray of shape (n_neurons,)
        Share of the neuron's variance that this block explains beyond all others on held-out
        time, minus the mean share under circular shifts. It is 0 on average for a neuron that is
        not connected, and at most 1.
    low, high : ndarray of shape (n_neurons,)
        Limits of the 95 % confidence interval of the share, by leaving out stretches of time.
    p_values : ndarray of shape (n_neurons,)
        P-value of each neuron for the hypothesis that it is not connected, apart from what leaks
        through an imperfect embedding (`ALLOWANCE`). Not corrected for the number of neurons.
    explained : ndarray of shape (n_neurons,), optional
        Share of the neuron's variance that all blocks together explain on held-out time.
    controls : ndarray of shape (n_controls,), optional
        P-values of the controls, which are units that cannot be connected.
    """

    share: Array
    low: Array
    high: Array
    p_values: Array
    explained: Array | None = None
    controls: Array | None = None

    def significant(self, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Neurons that are called connected, at a false discovery rate of ``alpha``.

        This is the procedure of Benjamini and Hochberg, applied to neurons and controls together.
        If more controls are called connected than chance explains, the test is not valid for this
        recording and no neuron is called connected.

        Returns
        -------
        ndarray of bool of shape (n_neurons,)
        """
        called = self._called(alpha)[: len(self.p_values)]
        return called & self.controls_hold(alpha)

    def controls_called(self, alpha: float = 0.05) -> int:
        """Number of controls that are called connected."""
        return int(self._called(alpha)[len(self.p_values) :].sum())

    def controls_hold(self, alpha: float = 0.05) -> bool:
        """Whether the number of controls that are called connected can be explained by chance.

        The limit is the 95 % quantile of the binomial distribution in which each control is called
        connected with probability ``alpha``.
        """
        n = 0 if self.controls is None else len(self.controls)
        return n == 0 or self.controls_called(alpha) <= int(binom.ppf(0.95, n, alpha))

    def in_words(self, alpha: float = 0.05) -> str:
        """How many neurons are called connected, and how many controls, in one sentence."""
        n, n_called = len(self.p_values), int(self.significant(alpha).sum())
        if self.controls is None:
            return f"{n_called} of {n} neurons are connected to it, beyond what all others explain"
        carried = f"{self.controls_called(alpha)} of {len(self.controls)} controls"
        if not self.controls_hold(alpha):
            return (
                f"no neuron is called connected, because {carried}, units that cannot carry it, "
                "were called connected too: the test does not hold for this recording"
            )
        return (
            f"{n_called} of {n} neurons are connected to it, beyond what all others explain; "
            f"{carried}, units that cannot carry it, were called connected"
        )

    def _called(self, alpha: float) -> NDArray[np.bool_]:
        extra = np.empty(0) if self.controls is None else self.controls
        return np.asarray(false_discovery_control(np.append(self.p_values, extra)) <= alpha)

    @property
    def of_explained(self) -> Array:
        """The share divided by what all blocks together explain of the neuron, between 0 and 1.

        It is NaN where less than 1 % of a neuron's variance is explained.
        """
        if self.explained is None:
            return np.full(len(self.share), np.nan)
        enough = self.explained >= LEAST_EXPLAINED
        ratio = self.share / np.where(enough, self.explained, 1.0)
        return np.where(enough, np.clip(ratio, 0.0, 1.0), np.nan)


def find_connections(
    activity: Array,
    block: Array,
    others: Array,
    *,
    kind: str = "continuous",
    clear: bool = True,
    n_shifts: int | None = None,
    seed: int = 0,
) -> Connections:
    """Test whether each neuron is connected to a block, given the other blocks.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    block : ndarray of shape (n_times, n_columns)
    others : ndarray of shape (n_times, n_other_columns)
        Columns of all other blocks. There may be none.
    kind : {"continuous", "discrete", "circular"}
        Kind of the block's columns.
    clear : bool
        Whether to also predict the neurons from the others after subtracting what the block
        predicts of them; for each neuron, the better of the two predictions is used. Other latents
        may contain functions of the block. A neuron that follows only the remaining part of these
        latents is predicted well only when the functions of the block are removed, so without this
        step the block would seem to add something although there is no connection.
    n_shifts : int, optional
        Number of circular shifts; `N_SHIFTS` if not given.
    seed : int
        Seed of the shifts and of the random regressors.

    Returns
    -------
    Connections
    """
    return merge_groups([group_gains(activity, block, others, kind, clear, n_shifts, seed)])


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
) -> Gains:
    """What a block adds to neurons that share their regressors.

    The parameters are those of `find_connections`.
    """
    n = len(activity)
    rng = np.random.default_rng(seed)
    x, others = _standardised(activity), _standardised(others)
    stretch = np.arange(n) * _STRETCHES // n
    fold = stretch % _FOLDS
    functions, roughness = _block_functions(block, others, kind, seed)
    residual = x - _Nested(x, others, fold, rng).predicted_without()
    if clear and others.shape[1]:
        others_from_block = _Nested(others, _standardised(block), fold, rng).predicted_without()
        cleared = _standardised(others - others_from_block)
        residual_cleared = x - _Nested(x, cleared, fold, rng).predicted_without()
        better = np.square(residual_cleared).sum(axis=0) < np.square(residual).sum(axis=0)
        residual = np.where(better, residual_cleared, residual)
    left = np.square(residual).sum(axis=0)
    residual = (residual - residual.mean(axis=0)).astype(np.float32)
    ridge = _HeldOutRidge(functions, stretch, roughness)
    margin = max(1, n // _STRETCHES)
    shifts = rng.integers(margin, max(margin + 1, n - margin), size=n_shifts or N_SHIFTS)
    batch_size = max(1, _COLUMNS_AT_ONCE // residual.shape[1])
    nulls = []
    for start in range(0, len(shifts), batch_size):
        batch = shifts[start : start + batch_size]
        shifted = np.concatenate([np.roll(residual, shift, axis=0) for shift in batch], axis=1)
        nulls.append(ridge.gains(shifted).sum(axis=0).reshape(len(batch), -1))
    by_chance = np.concatenate(nulls)
    leaked, related = np.zeros(x.shape[1]), 0.0
    if clear and others.shape[1]:
        centred = block - block.mean(axis=0)
        predicted = _Nested(centred, others, fold, rng).predicted_without()
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
    margin = max(1, n // _STRETCHES)
    gains = []
    for shift in rng.integers(margin, max(margin + 1, n - margin), size=_N_SURROGATES):
        surrogate = block.mean(axis=0) + predicted + np.roll(centred - predicted, shift, axis=0)
        functions, roughness = _block_functions(surrogate, others, kind, seed)
        gains.append(_HeldOutRidge(functions, stretch, roughness).gains(residual).sum(axis=0))
    return np.mean(gains, axis=0) + 2 * np.std(gains, axis=0, ddof=1)


def merge_groups(groups: Sequence[Gains], controls: Gains | None = None) -> Connections:
    """Compute shares, intervals and p-values from the gains of several groups of neurons.

    Parameters
    ----------
    groups : sequence of Gains
        Gains of the recorded neurons.
    controls : Gains, optional
        Gains of the controls. They are tested with the same allowance as neurons, but do not
        contribute to the estimate of a typical connected neuron from which the allowance follows.

    Returns
    -------
    Connections
    """
    neurons = Gains.together(groups)
    everyone = neurons if controls is None else Gains.together([neurons, controls])
    total = everyone.total.sum(axis=0)
    total = np.where(total > 0, total, 1.0)
    gain, by_chance = everyone.by_stretch.sum(axis=0) / total, everyone.nulls / total
    expected = everyone.nulls.mean(axis=0) + everyone.leaked
    share, low, high = _shares(everyone.by_stretch, expected, everyone.total)
    explained = np.clip(1 - everyone.left / total + np.maximum(share, 0.0), 0.0, 1.0)
    n = neurons.total.shape[1]
    allowance = (ALLOWANCE + RELATED_ALLOWANCE * everyone.related) * explained
    leak = allowance * _typical_part(share[:n], by_chance[:, :n], explained[:n])
    leak = leak + LEAST_EFFECT * typical(share[:n]) + everyone.leaked / total
    p_values = _p_values(gain - leak, by_chance)
    return Connections(
        share=share[:n],
        low=low[:n],
        high=high[:n],
        p_values=p_values[:n],
        explained=explained[:n],
        controls=None if controls is None else p_values[n:],
    )


def _typical_part(share: Array, by_chance: Array, explained: Array) -> float:
    """What the block explains of a typical connected neuron, relative to what all blocks explain.

    The mean of the same quantity under shifts is subtracted, so that the result is about 0 if no
    neuron is connected.
    """
    divisor = np.maximum(explained, LEAST_EXPLAINED)
    nulls = [typical(null / divisor) for null in by_chance - by_chance.mean(axis=0)]
    return float(np.clip(typical(share / divisor) - np.mean(nulls), 0.0, 1.0))


def merged(fits: Sequence[Connections]) -> Connections:
    """Merge the connections of several fits to the same neurons.

    The p-value is twice the median over fits, which is valid whatever the dependence between fits.
    The share is the mean over fits, and its interval covers both the variation over time and the
    variation between fits.
    """
    if len(fits) == 1:
        return fits[0]
    shares, p_values = (np.array([getattr(fit, k) for fit in fits]) for k in ("share", "p_values"))
    half_widths = np.array([(fit.high - fit.low) / 2 for fit in fits])
    # Rubin's rules; the within-fit and the between-fit part are both in units of the half-width.
    quantile = float(student_t.ppf((1 + _LEVEL) / 2, _STRETCHES - 1))
    between = shares.var(axis=0, ddof=1) * (1 + 1 / len(fits))
    half_width = np.sqrt(np.square(half_widths).mean(axis=0) + quantile**2 * between)
    share = shares.mean(axis=0)
    p_merged = np.minimum(1.0, 2 * np.median(p_values, axis=0))
    explained_by_fit = [fit.explained for fit in fits if fit.explained is not None]
    explained = np.mean(explained_by_fit, axis=0) if explained_by_fit else None
    high = np.minimum(share + half_width, 1.0)
    controls_by_fit = [fit.controls for fit in fits if fit.controls is not None]
    controls = np.minimum(1.0, 2 * np.median(controls_by_fit, axis=0)) if controls_by_fit else None
    return Connections(share, share - half_width, high, p_merged, explained, controls)


def share_told(target: Array, source: Array) -> float:
    """Share of a target's variance that a smooth function of the source predicts when held out.

    Parameters
    ----------
    target : ndarray of shape (n_times, n_columns)
    source : ndarray of shape (n_times, n_source_columns)
    """
    x, predictors = _standardised(target), _standardised(source)
    fold = np.arange(len(x)) * _STRETCHES // len(x) % _FOLDS
    errors = _Nested(x, predictors, fold, np.random.default_rng(0)).errors_without()
    return 1.0 - float(errors.sum() / max(float(np.square(x).sum()), 1e-300))


def _block_functions(block: Array, others: Array, kind: str, seed: int) -> tuple[Singles, Array]:
    """Functions of the block and their products with the others, and the roughness of each.

    Returns arrays of shape (n_times, n_functions) and (n_functions,).
    """
    n = len(block)
    basis = smooth_functions(kind, block, seed=seed)
    basis = basis - basis.mean(axis=0)
    values, axes = np.linalg.eigh(basis.T @ basis / n)
    leading = np.flatnonzero(values > _LEAST_COMPONENT * values[-1])[::-1][:_MOST_FUNCTIONS]
    if len(leading) == 0 or values[-1] <= 0:
        return np.zeros((n, 1), dtype=np.float32), np.ones(1)
    components = basis @ (axes[:, leading] / np.sqrt(values[leading]))
    roughness = values[leading[0]] / values[leading]
    smoothest, factors = components[:, :_SMOOTHEST], others[:, :_MOST_OTHERS]
    products = (smoothest[:, :, None] * factors[:, None, :]).reshape(n, -1)
    functions = np.concatenate([components, products - products.mean(axis=0)], axis=1)
    return functions.astype(np.float32), np.concatenate(
        [roughness, np.repeat(roughness[: smoothest.shape[1]], factors.shape[1])]
    )


class _HeldOutRidge:
    """Ridge regression of any targets on fixed regressors, evaluated on held-out time.

    It is computed from sums of products in each stretch of time.
    """

    def __init__(self, design: Singles, stretch: NDArray[np.int64], roughness: Array):
        self._design = design
        self._starts = np.flatnonzero(np.diff(stretch, prepend=-1))
        bounds = [*self._starts, len(design)]
        self._rows = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        self._inner = [(design[r].T @ design[r]).astype(np.float64) for r in self._rows]
        total, n = sum(self._inner), len(design)
        self._inverses = []
        for k in range(_FOLDS):
            held_out = sum(self._inner[k::_FOLDS])
            n_train = n - sum(r.stop - r.start for r in self._rows[k::_FOLDS])
            ridge = np.diag(_ROUGH_RIDGE * n_train * roughness)
            self._inverses.append(np.linalg.inv(total - held_out + ridge))

    def gains(self, x: Singles) -> Array:
        """Sum of squares that is explained in each stretch, of shape (n_stretches, n_columns)."""
        cross = np.array([self._design[r].T @ x[r] for r in self._rows], dtype=np.float64)
        total = cross.sum(axis=0)
        explained = np.empty((len(cross), x.shape[1]))
        for k, inverse in enumerate(self._inverses):
            weights = inverse @ (total - cross[k::_FOLDS].sum(axis=0))
            for i in range(k, len(cross), _FOLDS):
                inner = (weights * (self._inner[i] @ weights)).sum(axis=0)
                explained[i] = 2 * (weights * cross[i]).sum(axis=0) - inner
        return explained


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


class _Nested:
    """Ridge regression of ``x`` on smooth functions of the others, each fold held out in turn."""

    def __init__(self, x: Array, others: Array, fold: NDArray[np.int64], rng: np.random.Generator):
        # Single precision is accurate enough here because of the ridge penalty.
        self._x = x.astype(np.float32)
        self._folds = [np.flatnonzero(fold == k) for k in range(_FOLDS)]
        waves = _Waves.draw(others.shape[1], _OTHER_WAVES, len(x), rng)
        self._base = waves.of(others) if others.shape[1] else others.astype(np.float32)
        self._base_moments = [self._moments(self._base[rows], rows) for rows in self._folds]

    def errors_without(self) -> Array:
        """Squared errors of the prediction from the others, of the shape of ``x``."""
        return np.square(self._residuals(self._base, self._base_moments))

    def predicted_without(self) -> Array:
        """Held-out prediction from the others, without the block, of the shape of ``x``."""
        return self._x - self._residuals(self._base, self._base_moments)

    def _moments(self, design: Singles, rows: NDArray[np.int64]) -> Moments:
        x = self._x[rows]
        sums = design.T @ design, design.T @ x, design.sum(axis=0), x.sum(axis=0)
        return tuple(array.astype(np.float64) for array in sums)

    def _residuals(self, design: Singles, moments: list[Moments]) -> Array:
        """Differences between ``x`` and its held-out prediction."""
        residuals = np.empty(self._x.shape)
        gram, cross, sums, x_sums = (sum(moment) for moment in zip(*moments, strict=True))
        for rows, held_out in zip(self._folds, moments, strict=True):
            n = len(self._x) - len(rows)
            centre, mean = (sums - held_out[2]) / n, (x_sums - held_out[3]) / n
            inner = gram - held_out[0] - n * np.outer(centre, centre)
            inner[np.diag_indices(len(inner))] += _RIDGE * n
            weights = np.linalg.solve(inner, cross - held_out[1] - n * np.outer(centre, mean))
            constant = mean - centre @ weights
            residuals[rows] = self._x[rows] - design[rows] @ weights.astype(np.float32) - constant
        return residuals


def _shares(gains: Array, by_chance: Array, total: Array) -> tuple[Array, Array, Array]:
    """Share of the variance that is gained, and its confidence interval.

    The interval is a jackknife over stretches of time. Parameters and result are arrays of shape
    (n_stretches, n_neurons) for ``gains`` and ``total``, otherwise of shape (n_neurons,).
    """
    n = len(total)

    def share(keep: NDArray[np.bool_]) -> Array:
        variance = total[keep].sum(axis=0)
        net = gains[keep].sum(axis=0) - by_chance * keep.mean()
        return np.where(variance > 0, net / np.where(variance > 0, variance, 1.0), 0.0)

    estimate = share(np.ones(n, dtype=bool))
    left_out = np.array([share(np.arange(n) != k) for k in range(n)])
    error = np.sqrt((n - 1) / n * np.square(left_out - left_out.mean(axis=0)).sum(axis=0))
    half_width = float(student_t.ppf((1 + _LEVEL) / 2, n - 1)) * error
    return estimate, estimate - half_width, np.minimum(estimate + half_width, 1.0)


def typical(share: Array) -> float:
    """Share of a typical connected neuron, an estimate that does not depend on how many there are.

    It is the weighted median of the shares, each weighted by itself: neurons with at least this
    share have about half of the sum of all shares.

    Parameters
    ----------
    share : ndarray of shape (n_neurons,)
        Negative shares count as 0.
    """
    ascending = np.sort(np.maximum(share, 0.0))
    return float(ascending[np.searchsorted(np.cumsum(ascending), ascending.sum() / 2)])


def _p_values(gain: Array, nulls: Array) -> Array:
    """P-value of each neuron, from the rank of its gain among the gains under shifts.

    If the gain is larger than under every shift, the p-value is the tail probability of a Pearson
    type III distribution with the mean, variance and skewness of the shifts, the usual
    approximation of a permutation distribution.

    Parameters
    ----------
    gain : ndarray of shape (n_neurons,)
    nulls : ndarray of shape (n_shifts, n_neurons)
    """
    n = len(nulls)
    n_larger = (nulls >= gain).sum(axis=0)
    by_rank = (1 + n_larger) / (1 + n)
    centre, deviation = nulls.mean(axis=0), nulls.std(axis=0, ddof=1)
    varies = deviation > 0
    unit = np.where(varies, deviation, 1.0)
    skew = (((nulls - centre) / unit) ** 3).mean(axis=0)
    # With negative skewness the distribution would have an upper end, and the tail would be 0
    # beyond it. The limits are not tuned.
    tail = pearson3.sf((gain - centre) / unit, np.clip(skew, 0.1, 8.0))
    by_tail = np.clip(tail, _LEAST_P, by_rank)
    return np.where(varies, np.where(n_larger == 0, by_tail, by_rank), 1.0)


def _by_stretch(values: Array, stretch: NDArray[np.int64]) -> Array:
    """Sums over each stretch of time, of shape (n_stretches, n_neurons)."""
    return np.add.reduceat(values, np.flatnonzero(np.diff(stretch, prepend=-1)), axis=0)


def _standardised(values: Array) -> Array:
    """Columns with mean 0 and standard deviation 1; columns that do not vary are 0."""
    values = np.asarray(values, dtype=np.float64)
    scale = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
