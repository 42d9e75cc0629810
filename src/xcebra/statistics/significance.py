"""Test whether each neuron is connected to a block, given all other blocks.

What the block adds to the prediction of a neuron (`xcebra.statistics.block_gains`) is compared with
what it adds after circular shifts in time, apart from what leaks through an imperfect embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, false_discovery_control, pearson3
from scipy.stats import t as student_t

from xcebra.statistics.block_gains import Gains, group_gains
from xcebra.statistics.held_out_time import N_STRETCHES

Array = NDArray[np.float64]

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
# Where all blocks together explain less than this share of a neuron's variance, a block's part of
# it is not stated, because it would be a ratio of two numbers that are mostly noise. Not tuned.
LEAST_EXPLAINED = 0.01
# Level of the confidence intervals, by convention.
_LEVEL = 0.95
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
        P-values of the surrogate units, which cannot be connected.
    """

    share: Array
    low: Array
    high: Array
    p_values: Array
    explained: Array | None = None
    controls: Array | None = None

    def significant(self, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Neurons that are called connected, at a false discovery rate of ``alpha``.

        This is the procedure of Benjamini and Hochberg, applied to neurons and surrogate units
        together. If more surrogate units are called connected than chance explains, the test is
        not valid for this recording and no neuron is called connected.

        Returns
        -------
        ndarray of bool of shape (n_neurons,)
        """
        called = self._called(alpha)[: len(self.p_values)]
        return called & self.controls_hold(alpha)

    def controls_called(self, alpha: float = 0.05) -> int:
        """Number of surrogate units that are called connected."""
        return int(self._called(alpha)[len(self.p_values) :].sum())

    def controls_hold(self, alpha: float = 0.05) -> bool:
        """Whether chance explains the number of surrogate units that are called connected.

        The limit is the 95 % quantile of the binomial distribution in which each of them is called
        connected with probability ``alpha``.
        """
        n = 0 if self.controls is None else len(self.controls)
        return n == 0 or self.controls_called(alpha) <= int(binom.ppf(0.95, n, alpha))

    def in_words(self, alpha: float = 0.05) -> str:
        """How many neurons are called connected, and how many surrogate units, in one sentence."""
        n, n_called = len(self.p_values), int(self.significant(alpha).sum())
        if self.controls is None:
            return f"{n_called} of {n} neurons are connected to it, beyond what all others explain"
        carried = f"{self.controls_called(alpha)} of {len(self.controls)} surrogate units"
        if not self.controls_hold(alpha):
            return (
                f"no neuron is called connected, because {carried}, which cannot carry it, "
                "were called connected too: the test does not hold for this recording"
            )
        return (
            f"{n_called} of {n} neurons are connected to it, beyond what all others explain; "
            f"{carried}, which cannot carry it, were called connected"
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
        Number of circular shifts; `xcebra.statistics.block_gains.N_SHIFTS` if not given.
    seed : int
        Seed of the shifts and of the random regressors.

    Returns
    -------
    Connections
    """
    return merge_groups([group_gains(activity, block, others, kind, clear, n_shifts, seed)])


def merge_groups(groups: Sequence[Gains], controls: Gains | None = None) -> Connections:
    """Compute shares, intervals and p-values from the gains of several groups of neurons.

    Parameters
    ----------
    groups : sequence of Gains
        Gains of the recorded neurons.
    controls : Gains, optional
        Gains of the surrogate units. They are tested with the same allowance as neurons, but do not
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
    quantile = float(student_t.ppf((1 + _LEVEL) / 2, N_STRETCHES - 1))
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
