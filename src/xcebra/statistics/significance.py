"""Is a neuron connected to a block, given everything else? What the block adds, against shifts.

What the other blocks predict of a neuron is taken out of it, on time that was held out. What is
left is regressed on functions of the block, and of the block together with the others: what that
explains on held-out time is what the block adds. The same with the neuron's remainder moved in
time, circularly, says what nothing would add: both keep their autocorrelation, their drift and
their bursts, and each shift is fitted anew.
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

N_SHIFTS = 199
# What an embedding that is not perfect lets through, as a share of what a typical connected neuron
# owes to the block, of what is explained of each: this much, and more the better the others predict
# the block, since what they miss of a neuron is then the more like it. Chosen on dataset seeds 100
# and above.
ALLOWANCE, RELATED_ALLOWANCE = 0.03, 0.4
# What a label lets through by being correlated with something that nobody measured, as a share of
# the variance that it explains of a typical connected neuron. Hippocampal units beside
# head-direction cells follow heading a little, since the animal faces different ways in different
# places; this leaves out those of which heading explains less than 1 %.
LEAST_EFFECT = 0.03
_STRETCHES, _FOLDS = 20, 4
_OTHER_WAVES = 150
_ROWS_A_WAVE = 20
_WAVELENGTH = 1.5
_RIDGE = 1e-3
# Functions of the block: the leading components of a smooth basis, with a ridge that grows as
# components become rougher; products of the smoothest of them with the other blocks' columns.
_MOST_FUNCTIONS, _SMOOTHEST, _MOST_OTHERS = 60, 6, 8
_LEAST_COMPONENT, _ROUGH_RIDGE = 1e-4, 2e-3
# Below this share of the variance explained, no part of it is stated: both would be mostly noise.
LEAST_EXPLAINED = 0.01
_LEVEL = 0.95
# Surrogates of a block, if the others predict at least this share of its variance.
_N_SURROGATES, _LEAST_RELATED = 9, 0.01
# Shifted neurons that are regressed together: products of large matrices are quick.
_COLUMNS_AT_ONCE = 128
# A tail fitted to a few hundred shifts is not known beyond this.
_LEAST_P = 1e-8


@dataclass(frozen=True, eq=False)
class Connections:
    """What a block adds to each neuron beyond the others, and whether that may be nothing.

    Parameters
    ----------
    share : ndarray of shape (n_neurons,)
        Share of the neuron's variance that this block explains beyond all others, on held-out
        time, less what a shifted block seems to explain. It is 0 on average where there is
        nothing, and at most 1.
    low, high : ndarray of shape (n_neurons,)
        Ends of its 95 % interval over stretches of time.
    p_values : ndarray of shape (n_neurons,)
        Of no connection, but for what leaks through an imperfect embedding (`ALLOWANCE`); one
        neuron at a time.
    explained : ndarray of shape (n_neurons,), optional
        Share of the variance that all blocks together explain, on held-out time.
    controls : ndarray of shape (n_controls,), optional
        P-values of controls that were carried along: units that cannot be connected.
    """

    share: Array
    low: Array
    high: Array
    p_values: Array
    explained: Array | None = None
    controls: Array | None = None

    def significant(self, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Neurons whose connection stands, with a share ``alpha`` of false ones expected.

        Benjamini and Hochberg's procedure, over neurons and controls together. If more controls
        are called connected than chance explains, no neuron is: the test does not hold here.
        """
        called = self._called(alpha)[: len(self.p_values)]
        return called & self.controls_hold(alpha)

    def controls_called(self, alpha: float = 0.05) -> int:
        """How many of the controls are called connected."""
        return int(self._called(alpha)[len(self.p_values) :].sum())

    def controls_hold(self, alpha: float = 0.05) -> bool:
        """Whether no more controls are called connected than a share ``alpha`` of them may be.

        The limit is the 95 % quantile of the binomial distribution.
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
        """The share as a part of all that is explained of a neuron, between 0 and 1.

        It is NaN where less than 1 % of a neuron's variance is explained.
        """
        if self.explained is None:
            return np.full(len(self.share), np.nan)
        enough = self.explained >= LEAST_EXPLAINED
        part = self.share / np.where(enough, self.explained, 1.0)
        return np.where(enough, np.clip(part, 0.0, 1.0), np.nan)


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
    """Test every neuron's connection to a block, given the others.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    block : ndarray of shape (n_times, n_columns)
    others : ndarray of shape (n_times, n_other_columns)
        May have no columns.
    kind : {"continuous", "discrete", "circular"}
        Of the block's columns.
    clear : bool
        Also try the others without what they have of the block. Other latents may hold functions of
        the block, of which a neuron that follows the rest of them is free; only with the block at
        hand could it be read from them. That is no connection.
    n_shifts : int, optional
        `N_SHIFTS` if not given.
    seed : int
        Of the shifts and the regressors.
    """
    return merge_groups([group_gains(activity, block, others, kind, clear, n_shifts, seed)])


@dataclass(frozen=True, eq=False)
class Gains:
    """What a block adds to some neurons, by stretch of time and under shifts.

    Parameters
    ----------
    by_stretch : ndarray of shape (n_stretches, n_neurons)
        Sum of squares that the block explains, held out.
    nulls : ndarray of shape (n_shifts, n_neurons)
        The same over all of time, under shifts.
    leaked : ndarray of shape (n_neurons,)
        Sum of squares that a block explains which follows the others as this one does, and is
        otherwise unrelated to the neurons.
    left : ndarray of shape (n_neurons,)
        Sum of squares that the others leave.
    related : ndarray of shape (n_neurons,)
        Share of the block's variance that the others predict, held out; the same for neurons that
        share their regressors.
    total : ndarray of shape (n_stretches, n_neurons)
        Sum of squares from the mean.
    """

    by_stretch: Array
    nulls: Array
    leaked: Array
    left: Array
    related: Array
    total: Array

    @classmethod
    def together(cls, parts: Sequence[Gains], order: NDArray[np.int64] | None = None) -> Gains:
        """Neurons that were regressed in several groups, one after another or in another order."""
        joined = [
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("by_stretch", "nulls", "leaked", "left", "related", "total")
        ]
        return cls(*(each if order is None else each[..., order] for each in joined))


def group_gains(
    activity: Array,
    block: Array,
    others: Array,
    kind: str = "continuous",
    clear: bool = True,
    n_shifts: int | None = None,
    seed: int = 0,
) -> Gains:
    """What a block adds to neurons that share their regressors; arguments as `find_connections`."""
    n = len(activity)
    rng = np.random.default_rng(seed)
    x, others = _standardised(activity), _standardised(others)
    stretch = np.arange(n) * _STRETCHES // n
    fold = stretch % _FOLDS
    functions, roughness = _block_functions(block, others, kind, seed)
    rest = x - _Nested(x, others, fold, rng).predicted_without()
    if clear and others.shape[1]:
        told = _Nested(others, _standardised(block), fold, rng).predicted_without()
        cleared = _standardised(others - told)
        again = x - _Nested(x, cleared, fold, rng).predicted_without()
        rest = np.where(np.square(again).sum(axis=0) < np.square(rest).sum(axis=0), again, rest)
    left = np.square(rest).sum(axis=0)
    rest = (rest - rest.mean(axis=0)).astype(np.float32)
    ridge = _HeldOutRidge(functions, stretch, roughness)
    margin = max(1, n // _STRETCHES)
    shifts = rng.integers(margin, max(margin + 1, n - margin), size=n_shifts or N_SHIFTS)
    at_once = max(1, _COLUMNS_AT_ONCE // rest.shape[1])
    nulls = []
    for start in range(0, len(shifts), at_once):
        some = shifts[start : start + at_once]
        moved = np.concatenate([np.roll(rest, shift, axis=0) for shift in some], axis=1)
        nulls.append(ridge.gains(moved).sum(axis=0).reshape(len(some), -1))
    by_chance = np.concatenate(nulls)
    leaked, related = np.zeros(x.shape[1]), 0.0
    if clear and others.shape[1]:
        centred = block - block.mean(axis=0)
        told = _Nested(centred, others, fold, rng).predicted_without()
        whole = max(float(np.square(centred).sum()), float(np.finfo(float).tiny))
        related = 1 - float(np.square(centred - told).sum()) / whole
        if related >= _LEAST_RELATED:
            leaked = _leaked(rest, block, told, others, kind, stretch, rng, seed)
            leaked = np.maximum(leaked - by_chance.mean(axis=0), 0.0)
    return Gains(
        by_stretch=ridge.gains(rest),
        nulls=by_chance,
        leaked=leaked,
        left=left,
        related=np.full(x.shape[1], max(0.0, related)),
        total=_by_stretch(np.square(x), stretch),
    )


def _leaked(
    rest: Singles,
    block: Array,
    told: Array,
    others: Array,
    kind: str,
    stretch: NDArray[np.int64],
    rng: np.random.Generator,
    seed: int,
) -> Array:
    """What surrogates of the block explain, that follow the others as the block does.

    A surrogate is ``told``, what the others predict of the block, plus the rest of the block moved
    in time. A neuron that follows the others alone has as much to do with the surrogates as with
    the block, whatever the regression on the others has missed; a neuron that follows the block has
    not. The mean over surrogates and two standard deviations of it are taken, so that chance is
    covered.
    """
    n, centred = len(block), block - block.mean(axis=0)
    margin = max(1, n // _STRETCHES)
    found = []
    for shift in rng.integers(margin, max(margin + 1, n - margin), size=_N_SURROGATES):
        surrogate = block.mean(axis=0) + told + np.roll(centred - told, shift, axis=0)
        functions, roughness = _block_functions(surrogate, others, kind, seed)
        found.append(_HeldOutRidge(functions, stretch, roughness).gains(rest).sum(axis=0))
    return np.mean(found, axis=0) + 2 * np.std(found, axis=0, ddof=1)


def merge_groups(groups: Sequence[Gains], controls: Gains | None = None) -> Connections:
    """Shares, intervals and p-values of neurons that were regressed in several groups.

    Controls are held to what a typical neuron of the recording owes to the block, of which they
    tell nothing themselves.
    """
    neurons = Gains.together(groups)
    everyone = neurons if controls is None else Gains.together([neurons, controls])
    whole = everyone.total.sum(axis=0)
    whole = np.where(whole > 0, whole, 1.0)
    found, by_chance = everyone.by_stretch.sum(axis=0) / whole, everyone.nulls / whole
    expected = everyone.nulls.mean(axis=0) + everyone.leaked
    share, low, high = _shares(everyone.by_stretch, expected, everyone.total)
    explained = np.clip(1 - everyone.left / whole + np.maximum(share, 0.0), 0.0, 1.0)
    n = neurons.total.shape[1]
    allowance = (ALLOWANCE + RELATED_ALLOWANCE * everyone.related) * explained
    leak = allowance * _typical_part(share[:n], by_chance[:, :n], explained[:n])
    leak = leak + LEAST_EFFECT * typical(share[:n]) + everyone.leaked / whole
    p_values = _p_values(found - leak, by_chance)
    return Connections(
        share=share[:n],
        low=low[:n],
        high=high[:n],
        p_values=p_values[:n],
        explained=explained[:n],
        controls=None if controls is None else p_values[n:],
    )


def _typical_part(share: Array, by_chance: Array, explained: Array) -> float:
    """What a typical connected neuron owes to the block, of what is explained of it.

    What shifts alone make of it is taken off: without any connection it is none.
    """
    of = np.maximum(explained, LEAST_EXPLAINED)
    moved = [typical(each / of) for each in by_chance - by_chance.mean(axis=0)]
    return float(np.clip(typical(share / of) - np.mean(moved), 0.0, 1.0))


def merged(found: Sequence[Connections]) -> Connections:
    """The connections of several fits as one.

    Twice the median p-value holds however the fits depend on each other. The share is the mean, and
    its interval holds both how it varies over time and how it varies between fits.
    """
    if len(found) == 1:
        return found[0]
    shares, p_values = (np.array([getattr(f, k) for f in found]) for k in ("share", "p_values"))
    reach = np.array([(each.high - each.low) / 2 for each in found])
    # Rubin's rules, both parts in units of the interval's reach.
    quantile = float(student_t.ppf((1 + _LEVEL) / 2, _STRETCHES - 1))
    between = shares.var(axis=0, ddof=1) * (1 + 1 / len(found))
    whole = np.sqrt(np.square(reach).mean(axis=0) + quantile**2 * between)
    share = shares.mean(axis=0)
    p_merged = np.minimum(1.0, 2 * np.median(p_values, axis=0))
    known = [each.explained for each in found if each.explained is not None]
    explained = np.mean(known, axis=0) if known else None
    high = np.minimum(share + whole, 1.0)
    carried = [each.controls for each in found if each.controls is not None]
    controls = np.minimum(1.0, 2 * np.median(carried, axis=0)) if carried else None
    return Connections(share, share - whole, high, p_merged, explained, controls)


def share_told(target: Array, source: Array) -> float:
    """Share of a target's variance that a smooth function of the source tells, held out.

    Parameters
    ----------
    target : ndarray of shape (n_times, n_columns)
    source : ndarray of shape (n_times, n_source_columns)
    """
    x, known = _standardised(target), _standardised(source)
    fold = np.arange(len(x)) * _STRETCHES // len(x) % _FOLDS
    left = _Nested(x, known, fold, np.random.default_rng(0)).errors_without()
    return 1.0 - float(left.sum() / max(float(np.square(x).sum()), 1e-300))


def _block_functions(block: Array, others: Array, kind: str, seed: int) -> tuple[Singles, Array]:
    """Functions of the block and their products with the others, and how rough each of them is."""
    n = len(block)
    basis = smooth_functions(kind, block, seed=seed)
    basis = basis - basis.mean(axis=0)
    values, axes = np.linalg.eigh(basis.T @ basis / n)
    kept = np.flatnonzero(values > _LEAST_COMPONENT * values[-1])[::-1][:_MOST_FUNCTIONS]
    if len(kept) == 0 or values[-1] <= 0:
        return np.zeros((n, 1), dtype=np.float32), np.ones(1)
    main = basis @ (axes[:, kept] / np.sqrt(values[kept]))
    roughness = values[kept[0]] / values[kept]
    few, with_them = main[:, :_SMOOTHEST], others[:, :_MOST_OTHERS]
    products = (few[:, :, None] * with_them[:, None, :]).reshape(n, -1)
    both = np.concatenate([main, products - products.mean(axis=0)], axis=1)
    return both.astype(np.float32), np.concatenate(
        [roughness, np.repeat(roughness[: few.shape[1]], with_them.shape[1])]
    )


class _HeldOutRidge:
    """What fixed regressors explain of anything on held-out time, by sums of products alone."""

    def __init__(self, design: Singles, stretch: NDArray[np.int64], roughness: Array):
        self._design = design
        self._starts = np.flatnonzero(np.diff(stretch, prepend=-1))
        bounds = [*self._starts, len(design)]
        self._rows = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        self._inner = [(design[r].T @ design[r]).astype(np.float64) for r in self._rows]
        whole, n = sum(self._inner), len(design)
        self._inverses = []
        for k in range(_FOLDS):
            own = sum(self._inner[k::_FOLDS])
            n_train = n - sum(r.stop - r.start for r in self._rows[k::_FOLDS])
            ridge = np.diag(_ROUGH_RIDGE * n_train * roughness)
            self._inverses.append(np.linalg.inv(whole - own + ridge))

    def gains(self, x: Singles) -> Array:
        """Sum of squares explained in each stretch, (n_stretches, n_columns)."""
        cross = np.array([self._design[r].T @ x[r] for r in self._rows], dtype=np.float64)
        whole = cross.sum(axis=0)
        found = np.empty((len(cross), x.shape[1]))
        for k, inverse in enumerate(self._inverses):
            weights = inverse @ (whole - cross[k::_FOLDS].sum(axis=0))
            for i in range(k, len(cross), _FOLDS):
                inner = (weights * (self._inner[i] @ weights)).sum(axis=0)
                found[i] = 2 * (weights * cross[i]).sum(axis=0) - inner
        return found


@dataclass(frozen=True, eq=False)
class _Waves:
    """Cosines of random directions, whose sums follow any smooth function."""

    directions: Singles
    phases: Singles

    @classmethod
    def draw(cls, width: int, most: int, n: int, rng: np.random.Generator) -> _Waves:
        """As many as the samples bear."""
        size = min(most, n // _ROWS_A_WAVE)
        scale = _WAVELENGTH * np.sqrt(max(1, width))
        directions = rng.standard_normal((width, size)) / scale
        phases = rng.uniform(0, 2 * np.pi, size=size)
        return cls(directions.astype(np.float32), phases.astype(np.float32))

    def of(self, points: Array) -> Singles:
        """The points themselves, and their waves, in single precision."""
        single = points.astype(np.float32)
        angles = single @ self.directions
        angles += self.phases
        # Torch's cosine: numpy's takes ten times as long, and more than all the rest.
        return np.concatenate([single, torch.from_numpy(angles).cos_().numpy()], axis=1)


class _Nested:
    """Ridge regressions on the same rows, with and without more columns, each fold held out."""

    def __init__(self, x: Array, others: Array, fold: NDArray[np.int64], rng: np.random.Generator):
        # Single precision is accurate enough here because of the ridge penalty.
        self._x = x.astype(np.float32)
        self._folds = [np.flatnonzero(fold == k) for k in range(_FOLDS)]
        waves = _Waves.draw(others.shape[1], _OTHER_WAVES, len(x), rng)
        self._base = waves.of(others) if others.shape[1] else others.astype(np.float32)
        self._base_moments = [self._moments(self._base[rows], rows) for rows in self._folds]

    def errors_without(self) -> Array:
        """Squared errors of the smaller regression, of shape (n_times, n_neurons)."""
        return np.square(self._misses(self._base, self._base_moments))

    def predicted_without(self) -> Array:
        """What the smaller regression expects."""
        return self._x - self._misses(self._base, self._base_moments)

    def _moments(self, design: Singles, rows: NDArray[np.int64]) -> Moments:
        x = self._x[rows]
        sums = design.T @ design, design.T @ x, design.sum(axis=0), x.sum(axis=0)
        return tuple(each.astype(np.float64) for each in sums)

    def _misses(self, design: Singles, moments: list[Moments]) -> Array:
        found = np.empty(self._x.shape)
        gram, cross, sums, means = (sum(each) for each in zip(*moments, strict=True))
        for rows, own in zip(self._folds, moments, strict=True):
            n = len(self._x) - len(rows)
            centre, mean = (sums - own[2]) / n, (means - own[3]) / n
            inner = gram - own[0] - n * np.outer(centre, centre)
            inner[np.diag_indices(len(inner))] += _RIDGE * n
            weights = np.linalg.solve(inner, cross - own[1] - n * np.outer(centre, mean))
            constant = mean - centre @ weights
            found[rows] = self._x[rows] - design[rows] @ weights.astype(np.float32) - constant
        return found


def _shares(gains: Array, by_chance: Array, total: Array) -> tuple[Array, Array, Array]:
    """What is gained of the variance, with an interval from leaving stretches out."""
    n = len(total)

    def share(keep: NDArray[np.bool_]) -> Array:
        whole = total[keep].sum(axis=0)
        net = gains[keep].sum(axis=0) - by_chance * keep.mean()
        return np.where(whole > 0, net / np.where(whole > 0, whole, 1.0), 0.0)

    found = share(np.ones(n, dtype=bool))
    left_out = np.array([share(np.arange(n) != k) for k in range(n)])
    error = np.sqrt((n - 1) / n * np.square(left_out - left_out.mean(axis=0)).sum(axis=0))
    reach = float(student_t.ppf((1 + _LEVEL) / 2, n - 1)) * error
    return found, found - reach, np.minimum(found + reach, 1.0)


def typical(share: Array) -> float:
    """The share that half of their sum lies above: a connected neuron's, however few there are."""
    order = np.sort(np.maximum(share, 0.0))
    return float(order[np.searchsorted(np.cumsum(order), order.sum() / 2)])


def _p_values(found: Array, nulls: Array) -> Array:
    """Rank of each neuron among its own shifts; beyond all of them, by the tail of their spread.

    The tail is that of Pearson's third kind with the mean, variance and skewness of the shifts, the
    usual approximation of a permutation distribution.
    """
    n = len(nulls)
    beaten = (nulls >= found).sum(axis=0)
    ranks = (1 + beaten) / (1 + n)
    centre, spread = nulls.mean(axis=0), nulls.std(axis=0, ddof=1)
    varies = spread > 0
    unit = np.where(varies, spread, 1.0)
    skew = (((nulls - centre) / unit) ** 3).mean(axis=0)
    tail = pearson3.sf((found - centre) / unit, np.clip(skew, 0.1, 8.0))
    beyond = np.clip(tail, _LEAST_P, ranks)
    return np.where(varies, np.where(beaten == 0, beyond, ranks), 1.0)


def _by_stretch(values: Array, stretch: NDArray[np.int64]) -> Array:
    """Sums over each stretch of time, of shape (n_stretches, n_neurons)."""
    return np.add.reduceat(values, np.flatnonzero(np.diff(stretch, prepend=-1)), axis=0)


def _standardised(values: Array) -> Array:
    values = np.asarray(values, dtype=np.float64)
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
