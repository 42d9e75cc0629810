"""Is a neuron connected to a block, given everything else? Nested regressions against shifts.

A neuron is regressed on the other blocks alone, and on them together with the block in question;
what the block adds on time that was held out is its share. The same with the block moved in time,
circularly, says what nothing would add: both keep their autocorrelation, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import false_discovery_control
from scipy.stats import t as student_t

Array = NDArray[np.float64]
Singles = NDArray[np.float32]
Moments = tuple[Array, ...]

# Ranks are among the shifts of all neurons together: fewer are enough than for one alone.
N_SHIFTS = 99
# What an embedding that is not perfect lets through, as a share of what a typical connected neuron
# owes to the block. Chosen on dataset seeds 100 and above.
ALLOWANCE = 0.1
_STRETCHES, _FOLDS = 20, 4
_OTHER_WAVES, _JOINT_WAVES = 200, 300
_ROWS_A_WAVE = 20
_WAVELENGTH = 1.5
_RIDGE = 1e-3
_LEAST_EXPLAINED = 0.02
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Connections:
    """What each neuron owes to a block beyond the others, and whether that may be nothing.

    Parameters
    ----------
    share : ndarray of shape (n_neurons,)
        Of the variance that all blocks together explain, the part that is lost without this one;
        held out.
    low, high : ndarray of shape (n_neurons,)
        Ends of its 95 % interval over stretches of time.
    p_values : ndarray of shape (n_neurons,)
        Of no connection, but for what leaks through an imperfect embedding (`ALLOWANCE`); one
        neuron at a time.
    """

    share: Array
    low: Array
    high: Array
    p_values: Array

    def significant(self, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Neurons whose connection stands, with a share ``alpha`` of false ones expected.

        Benjamini and Hochberg's procedure.
        """
        return np.asarray(false_discovery_control(self.p_values) <= alpha)


def find_connections(
    activity: Array, block: Array, others: Array, *, n_shifts: int | None = None, seed: int = 0
) -> Connections:
    """Test every neuron's connection to a block, given the others.

    Parameters
    ----------
    activity : ndarray of shape (n_times, n_neurons)
    block : ndarray of shape (n_times, n_columns)
    others : ndarray of shape (n_times, n_other_columns)
        May have no columns.
    n_shifts : int, optional
        `N_SHIFTS` if not given.
    seed : int
        Of the shifts and the regressors.
    """
    n = len(activity)
    rng = np.random.default_rng(seed)
    x, block, others = (_standardised(each) for each in (activity, block, others))
    stretch = np.arange(n) * _STRETCHES // n
    fold = stretch % _FOLDS
    regression = _Nested(x, others, fold, rng)
    as_given = without = _by_stretch(regression.errors_without(), stretch)
    for version in _cleared(others, block, fold, rng):
        errors_then = _Nested(x, version, fold, rng).errors_without()
        other_way = _by_stretch(errors_then, stretch)
        without = np.where(other_way.sum(axis=0) < without.sum(axis=0), other_way, without)
    waves = _Waves.draw(others.shape[1] + block.shape[1], _JOINT_WAVES, n, rng)

    def errors(moved: Array) -> Array:
        joint = np.concatenate([others, moved], axis=1)
        return _by_stretch(regression.errors_with(waves.of(joint)), stretch)

    with_block = errors(block)
    total = _by_stretch(np.square(x), stretch)
    margin = max(1, n // _STRETCHES)
    shifts = rng.integers(margin, max(margin + 1, n - margin), size=n_shifts or N_SHIFTS)
    shifted = [errors(np.roll(block, shift, axis=0)) for shift in shifts]
    nulls = np.array([_gain(as_given, each, total) for each in shifted])
    # Columns that tell nothing cost something: shifted ones say how much, and that is made up for.
    fair = with_block - (np.mean(shifted, axis=0) - as_given)
    share, low, high = _shares(without, fair, total)
    explained = np.maximum(_gain(total, fair, total), 0.0)
    # What shifts alone make of a typical share is none: then nothing can leak.
    by_chance = (nulls - nulls.mean(axis=0)) / np.maximum(explained, _LEAST_EXPLAINED)
    owed = typical(share) - float(np.mean([typical(each) for each in by_chance]))
    leak = ALLOWANCE * max(0.0, owed) * explained
    return Connections(share, low, high, _p_values(_gain(without, with_block, total) - leak, nulls))


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
    return Connections(share, share - whole, share + whole, p_merged)


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


def _cleared(
    others: Array, block: Array, fold: NDArray[np.int64], rng: np.random.Generator
) -> list[Array]:
    """The others without what they have of the block: all of it, and all but what is linear.

    Other latents may hold functions of the block, of which a neuron that follows the rest of them
    is free; only with the block at hand could it be read from them. That is no connection: a neuron
    counts as connected if no version of the others does without the block.
    """
    if others.shape[1] == 0:
        return []
    target = _Nested(others, block, fold, rng)
    all_of_it = target.predicted_without()
    linear = block @ np.linalg.lstsq(block, others, rcond=None)[0]
    return [_standardised(others - all_of_it), _standardised(others - all_of_it + linear)]


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
        # Single precision for the products, which take the time; the ridge bears it.
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

    def errors_with(self, more: Singles) -> Array:
        """Squared errors with more columns."""
        design = np.concatenate([self._base, more], axis=1)
        moments = [self._moments(design[rows], rows) for rows in self._folds]
        return np.square(self._misses(design, moments))

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


def _gain(before: Array, after: Array, total: Array) -> Array:
    """Share of the variance by which errors fall; zero for a neuron that does not vary."""
    whole = total.sum(axis=0)
    return np.where(whole > 0, (before - after).sum(axis=0) / np.where(whole > 0, whole, 1), 0.0)


def _shares(without: Array, with_block: Array, total: Array) -> tuple[Array, Array, Array]:
    """What is lost of what was explained, with an interval from leaving stretches out."""

    def share(keep: NDArray[np.bool_]) -> Array:
        lost = _gain(without[keep], with_block[keep], total[keep])
        explained = _gain(total[keep], with_block[keep], total[keep])
        return lost / np.maximum(explained, _LEAST_EXPLAINED)

    n = len(total)
    whole = share(np.ones(n, dtype=bool))
    left_out = np.array([share(np.arange(n) != k) for k in range(n)])
    error = np.sqrt((n - 1) / n * np.square(left_out - left_out.mean(axis=0)).sum(axis=0))
    reach = float(student_t.ppf((1 + _LEVEL) / 2, n - 1)) * error
    return whole, whole - reach, whole + reach


def typical(share: Array) -> float:
    """The share that half of their sum lies above: a connected neuron's, however few there are."""
    order = np.sort(np.maximum(share, 0.0))
    return float(order[np.searchsorted(np.cumsum(order), order.sum() / 2)])


def _p_values(found: Array, nulls: Array) -> Array:
    """Ranks among shifts, of all neurons together once each is in units of its own shifts."""
    centre, spread = nulls.mean(axis=0), nulls.std(axis=0, ddof=1)
    varies = spread > 0
    unit = np.where(varies, spread, 1.0)
    pool = np.sort(((nulls - centre) / unit)[:, varies].ravel())
    # A shift lies nearer to the centre of shifts, of which it is one, than what is not among them.
    outside = np.sqrt((len(nulls) - 1) / (len(nulls) + 1))
    beaten = len(pool) - np.searchsorted(pool, outside * (found - centre) / unit)
    return np.where(varies, (1 + beaten) / (1 + len(pool)), 1.0)


def _by_stretch(values: Array, stretch: NDArray[np.int64]) -> Array:
    """Sums over each stretch of time, of shape (n_stretches, n_neurons)."""
    return np.add.reduceat(values, np.flatnonzero(np.diff(stretch, prepend=-1)), axis=0)


def _standardised(values: Array) -> Array:
    values = np.asarray(values, dtype=np.float64)
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
