"""Means, shares and differences of neurons that come in clusters, such as animals or sessions.

Neurons of one animal resemble each other more than neurons of different animals do, so that they
are not independent observations. The clusters are. Every cluster counts the same, and inside a
cluster every neuron counts the same. The variation of cluster means contains all variation below
it, between sessions and between neurons, and is not divided into parts.

Intervals have the quantiles of Student's t distribution with as many degrees of freedom as clusters
allow, and are never narrower than those of independent neurons. Resampling of clusters is not used:
with n clusters it underestimates the variance by the factor (n - 1) / n and ignores that the
variance itself is estimated; resampling of neurons inside resampled clusters counts the variation
between neurons twice. `studies/pooled_groups.py` measures both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student_t

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its confidence interval.

    Parameters
    ----------
    value : float
    low, high : float
        Ends of the interval; NaN if the data allow none, as the mean of a single neuron does.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Estimate):
    """A difference of two estimates with its interval and p-value.

    Parameters
    ----------
    value, low, high : float
        The first minus the second, and the ends of its interval.
    p_value : float
        Two-sided, for the hypothesis that there is no difference. It is below ``1 - level`` if and
        only if the interval excludes zero. NaN if the data allow no interval.
    """

    p_value: float


@dataclass(frozen=True, eq=False)
class ClusterMeans:
    """Values of neurons, averaged inside clusters.

    Parameters
    ----------
    names : tuple of str
        Name of each cluster. Clusters of the same name are the same animal or session in different
        groups of neurons.
    means : ndarray of shape (n_clusters,)
        Mean over the neurons of each cluster.
    sizes : ndarray of int of shape (n_clusters,)
        Number of neurons of each cluster.
    within : float
        Variance between the neurons of a cluster, pooled over clusters; NaN if every cluster has
        one neuron.
    """

    names: tuple[str, ...]
    means: Array
    sizes: NDArray[np.int64]
    within: float

    @property
    def mean(self) -> float:
        """Mean in which every cluster counts the same."""
        return float(self.means.mean())

    @property
    def variance(self) -> float:
        """Variance between the means of clusters; NaN for a single cluster."""
        return float(self.means.var(ddof=1)) if len(self.means) > 1 else float("nan")

    @property
    def n_equivalent(self) -> float:
        """Number of independent neurons with equal weights whose mean has the same variance.

        It is the number of neurons if all clusters have the same size, and smaller otherwise.
        """
        return float(len(self.sizes) ** 2 / (1.0 / self.sizes).sum())


def cluster_means(values: Array, clusters: NDArray[Any]) -> ClusterMeans:
    """Average the values of neurons inside clusters.

    Parameters
    ----------
    values : ndarray of shape (n_neurons,)
    clusters : ndarray of shape (n_neurons,)
        Name of the cluster of each neuron.

    Returns
    -------
    ClusterMeans
        Clusters in the order of their names.
    """
    values = np.asarray(values, dtype=np.float64)
    names, index, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    means = np.bincount(index, values) / sizes
    freedom = len(values) - len(names)
    within = np.square(values - means[index]).sum() / freedom if freedom else float("nan")
    return ClusterMeans(tuple(map(str, names)), means, sizes.astype(np.int64), float(within))


def wilson(share: float, trials: float, quantile: float) -> tuple[float, float]:
    """Interval of a share by Wilson's formula.

    It holds all shares p with ``|share - p| <= quantile * sqrt(p * (1 - p) / trials)``.

    Parameters
    ----------
    share : float
        Observed share, between 0 and 1.
    trials : float
        Number of independent observations; it need not be a whole number.
    quantile : float
        Quantile of the normal distribution, or of Student's.
    """
    centre = share + quantile**2 / (2 * trials)
    reach = quantile * np.sqrt(share * (1 - share) / trials + quantile**2 / (4 * trials**2))
    scale = 1 + quantile**2 / trials
    return max(0.0, float((centre - reach) / scale)), min(1.0, float((centre + reach) / scale))


def share_interval(called: ClusterMeans, level: float = 0.95) -> Estimate:
    """Estimate the mean share over clusters, with an interval for clusters that were not observed.

    The interval is Wilson's, with the effective number of neurons in place of their number, and
    with a quantile of Student's t distribution. The effective number is that of independent
    neurons whose share would vary as much as the shares of clusters do. It is limited so that the
    interval is never narrower than Wilson's for independent neurons, which is also the interval of
    a single cluster. The width is therefore not zero if all clusters have the same share.

    Parameters
    ----------
    called : ClusterMeans
        Of values that are 0 or 1.
    level : float
        Confidence level.

    References
    ----------
    Korn & Graubard (1998), Survey Methodology 24, for the effective number; Franco et al. (2019),
    Journal of Survey Statistics and Methodology 7, for Wilson's formula with it.
    """
    share, n_clusters, n_neurons = called.mean, len(called.means), called.n_equivalent
    normal = float(norm.ppf((1 + level) / 2))
    if n_clusters == 1:
        return Estimate(share, *wilson(share, n_neurons, normal))
    quantile = float(student_t.ppf((1 + level) / 2, n_clusters - 1))
    # With this number, Wilson's formula gives the interval of independent neurons.
    n_effective = n_neurons * (quantile / normal) ** 2
    variance = called.variance / n_clusters
    if variance * n_effective > share * (1 - share):
        n_effective = share * (1 - share) / variance
    return Estimate(share, *wilson(share, n_effective, quantile))


def mean_interval(values: ClusterMeans, level: float = 0.95) -> Estimate:
    """Estimate the mean over clusters, with an interval for clusters that were not observed.

    The interval is Student's for the means of clusters, or that of independent neurons if this is
    wider. For a single cluster, it is Student's for its neurons.

    Parameters
    ----------
    values : ClusterMeans
    level : float
        Confidence level.

    References
    ----------
    Ibragimov & Müller (2010), Journal of Business & Economic Statistics 28: the interval holds for
    clusters of different variances too, which clusters of different sizes have.
    """
    mean, n_clusters = values.mean, len(values.means)
    if n_clusters == 1:
        error = np.sqrt(values.within / values.n_equivalent)
        reach = _quantile(level, values.n_equivalent - 1) * error
        return Estimate(mean, mean - reach, mean + reach)
    reach = _quantile(level, n_clusters - 1) * np.sqrt(values.variance / n_clusters)
    reach = max(reach, _quantile(level, np.inf) * np.sqrt(_independent_variance(values)))
    return Estimate(mean, float(mean - reach), float(mean + reach))


def difference_interval(
    first: ClusterMeans, second: ClusterMeans, level: float = 0.95, *, shares: bool = False
) -> Difference:
    """Estimate the difference between the means of two groups, over the same or other clusters.

    A cluster with neurons of both groups counts as a pair: what both groups have in common in a
    cluster does not enter the variance of the difference. If all clusters have both groups, the
    test is the paired t-test of cluster means; if none has, it is Welch's. The interval is never
    narrower than that of independent neurons, and the p-value never smaller.

    Parameters
    ----------
    first, second : ClusterMeans
        With two or more clusters each, or with one cluster each, whose neurons then count as
        independent.
    level : float
        Confidence level.
    shares : bool
        Whether the values are 0 or 1.

    Returns
    -------
    Difference
    """
    difference = first.mean - second.mean
    parts = [_independent_variance(group, shares) for group in (first, second)]
    # Standard errors, each with its degrees of freedom; the interval is the widest of all.
    errors = [(float(np.sqrt(sum(parts))), np.inf)]
    if min(len(first.means), len(second.means)) > 1:
        errors.append(_clustered_error(first, second))
    elif not shares:
        sizes = first.n_equivalent, second.n_equivalent
        freedom = _satterthwaite(parts, [size - 1 for size in sizes])
        errors = [(errors[0][0], freedom)]
    reach = max(_quantile(level, freedom) * error for error, freedom in errors)
    p_value = max(_p_value(difference, error, freedom) for error, freedom in errors)
    low, high = difference - reach, difference + reach
    if shares:
        low, high = max(low, -1.0), min(high, 1.0)
    return Difference(difference, float(low), float(high), p_value)


def _clustered_error(first: ClusterMeans, second: ClusterMeans) -> tuple[float, float]:
    """Standard error of the difference of two means over clusters, and its degrees of freedom.

    The contributions of a cluster to both means are added before they are squared. Degrees of
    freedom are Satterthwaite's for this sum of squares if all clusters of a group have the same
    variance and the groups are independent: n - 1 for n pairs, Welch's if there are no pairs.
    """
    names = sorted({*first.names, *second.names})
    residuals = np.zeros(len(names))
    covariance = np.zeros((len(names), len(names)))
    for group, sign in ((first, 1.0), (second, -1.0)):
        n = len(group.means)
        rows = [names.index(name) for name in group.names]
        residuals[rows] += sign * (group.means - group.mean) / np.sqrt(n * (n - 1))
        centring = np.eye(n) - 1 / n
        covariance[np.ix_(rows, rows)] += group.variance * centring / (n * (n - 1))
    error = float(np.sqrt(np.square(residuals).sum()))
    total = np.square(covariance).sum()
    least = min(len(first.means), len(second.means)) - 1
    freedom = float(np.trace(covariance) ** 2 / total) if total > 0 else float(least)
    return error, freedom


def _independent_variance(group: ClusterMeans, shares: bool = False) -> float:
    """Variance of the mean if all neurons were independent; 0 if it is unknown."""
    n = group.n_equivalent
    if shares:
        # One success and one failure are added (Agresti & Caffo 2000), so that the variance is not
        # zero if all neurons are alike.
        share = (group.mean * n + 1) / (n + 2)
        return share * (1 - share) / n
    return 0.0 if np.isnan(group.within) and len(group.means) > 1 else group.within / n


def _satterthwaite(variances: list[float], freedoms: list[float]) -> float:
    """Degrees of freedom of a sum of independent estimates of variances."""
    if min(freedoms) < 1:
        return float("nan")
    parts = sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    return sum(variances) ** 2 / parts if parts > 0 else min(freedoms)


def _quantile(level: float, freedom: float) -> float:
    return float(student_t.ppf((1 + level) / 2, freedom))


def _p_value(difference: float, error: float, freedom: float) -> float:
    if np.isnan(error) or np.isnan(freedom):
        return float("nan")
    if difference == 0:
        return 1.0
    return float(2 * student_t.sf(abs(difference) / error, freedom)) if error > 0 else 0.0
