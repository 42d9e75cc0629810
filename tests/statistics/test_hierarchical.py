"""Means, shares and differences of clustered neurons, against textbook formulas and simulation."""

import numpy as np
import pytest
from scipy.stats import f_oneway, norm, ttest_1samp, ttest_ind, ttest_rel
from scipy.stats import t as student_t

from xcebra.attribution.groups import wilson_interval
from xcebra.statistics.hierarchical import (
    cluster_means,
    difference_interval,
    mean_interval,
    share_interval,
    wilson,
)

Z = norm.ppf(0.975)


def constant_clusters(means, size, prefix="animal"):
    """Every neuron of a cluster has the same value."""
    names = np.repeat([f"{prefix}{k}" for k in range(len(means))], size)
    return cluster_means(np.repeat(np.asarray(means, float), size), names)


def shares(successes, trials, names=None):
    """Clusters of neurons that are called connected or not."""
    names = names or [f"animal{k}" for k in range(len(trials))]
    values = [np.arange(n) < k for k, n in zip(successes, trials, strict=True)]
    return cluster_means(np.concatenate(values).astype(float), np.repeat(names, trials))


class TestClusterMeans:
    def test_every_cluster_counts_the_same_and_inside_it_every_neuron(self):
        values = cluster_means(np.array([1.0, 3.0, 10.0]), np.array(["b", "b", "a"]))
        assert values.names == ("a", "b")
        assert values.means.tolist() == [10.0, 2.0]
        assert values.mean == 6.0
        assert values.within == 2.0

    def test_the_equivalent_number_of_neurons(self):
        assert shares([1, 2, 3], [8, 8, 8]).n_equivalent == pytest.approx(24)
        # The variance of the mean is the mean of 1/2 and 1/8, divided by 2.
        assert shares([1, 4], [2, 8]).n_equivalent == pytest.approx(4 / (1 / 2 + 1 / 8))

    def test_one_neuron_in_each_cluster_has_no_variance_within(self):
        assert np.isnan(cluster_means(np.arange(3.0), np.arange(3)).within)


class TestMean:
    def test_without_variation_inside_animals_it_is_the_interval_of_student(self):
        means = np.array([0.3, 0.9, 0.4, 0.6])
        estimate = mean_interval(constant_clusters(means, 7), 0.9)
        expected = ttest_1samp(means, 0).confidence_interval(0.9)
        assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))
        assert estimate.value == pytest.approx(means.mean())

    def test_balanced_standard_error_is_the_mean_square_between_animals(self):
        rng = np.random.default_rng(0)
        values = rng.normal(size=(5, 1)) + 0.5 * rng.normal(size=(5, 12))
        names = np.repeat(np.arange(5), 12)
        # In a one-way analysis of variance, F = MS_between / MS_within.
        within = values.var(axis=1, ddof=1).mean()
        error = np.sqrt(f_oneway(*values).statistic * within / values.size)
        estimate = mean_interval(cluster_means(values.ravel(), names))
        reach = student_t.ppf(0.975, 4) * error
        assert estimate.high - estimate.value == pytest.approx(reach)

    def test_the_variance_is_right_on_average_for_animals_of_different_sizes(self):
        rng = np.random.default_rng(1)
        sizes, deviation, noise = np.array([2, 5, 30]), 0.6, 1.5
        names = np.repeat(np.arange(3), sizes)
        exact = (deviation**2 + noise**2 / sizes).sum() / 9
        estimates, means = [], []
        for _ in range(4000):
            values = np.repeat(rng.normal(0, deviation, 3), sizes) + rng.normal(0, noise, 37)
            clusters = cluster_means(values, names)
            estimates.append(clusters.variance / 3)
            means.append(clusters.mean)
        assert np.var(means) == pytest.approx(exact, rel=0.06)
        assert np.mean(estimates) == pytest.approx(exact, rel=0.06)

    def test_it_is_not_narrower_than_that_of_independent_neurons(self):
        # Animals have the same mean although their neurons vary.
        values = np.tile([0.0, 1.0, 2.0], 3)
        estimate = mean_interval(cluster_means(values, np.repeat(np.arange(3), 3)))
        assert estimate.high - 1 == pytest.approx(Z * np.sqrt(1.0 / 9))

    def test_a_single_cluster_is_the_interval_of_its_neurons(self):
        values = np.array([1.0, 2.0, 4.0])
        estimate = mean_interval(cluster_means(values, np.zeros(3)))
        expected = ttest_1samp(values, 0).confidence_interval()
        assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))

    def test_a_single_neuron_has_no_interval(self):
        estimate = mean_interval(cluster_means(np.ones(1), np.zeros(1)))
        assert estimate.value == 1.0
        assert np.isnan([estimate.low, estimate.high]).all()


class TestShare:
    def test_ends_are_the_shares_at_the_quantile_of_student(self):
        called = shares([4, 9, 2, 7], [10, 12, 10, 8])
        estimate = share_interval(called)
        variance = np.var(called.means, ddof=1) / 4
        for end in (estimate.low, estimate.high):
            scaled = variance * end * (1 - end) / (called.mean * (1 - called.mean))
            assert abs(end - called.mean) == pytest.approx(
                student_t.ppf(0.975, 3) * np.sqrt(scaled)
            )

    @pytest.mark.parametrize("k", [0, 6, 3])
    def test_animals_without_variation_have_the_interval_of_independent_neurons(self, k):
        estimate = share_interval(shares([k] * 4, [6] * 4))
        assert (estimate.low, estimate.high) == pytest.approx(wilson_interval(4 * k, 24))
        assert estimate.high - estimate.low > 0.1

    @pytest.mark.parametrize("n_animals", [1, 2, 3, 6])
    def test_it_is_never_narrower_than_that_of_independent_neurons(self, n_animals):
        rng = np.random.default_rng(n_animals)
        for _ in range(200):
            trials = rng.integers(1, 20, n_animals)
            called = shares(rng.binomial(trials, rng.random()), trials)
            estimate = share_interval(called)
            low, high = wilson(called.mean, called.n_equivalent, Z)
            assert 0 <= estimate.low <= low + 1e-12
            assert high - 1e-12 <= estimate.high <= 1

    def test_one_cluster_is_wilsons_interval(self):
        estimate = share_interval(shares([3], [10]))
        assert (estimate.low, estimate.high) == pytest.approx(wilson_interval(3, 10))

    def test_connected_and_not_connected_mirror_each_other(self):
        estimate = share_interval(shares([1, 5, 0], [9, 11, 4]))
        mirrored = share_interval(shares([8, 6, 4], [9, 11, 4]))
        assert mirrored.low == pytest.approx(1 - estimate.high)
        assert mirrored.high == pytest.approx(1 - estimate.low)


class TestDifference:
    FIRST, SECOND = np.array([0.9, 0.7, 0.8, 0.4]), np.array([0.5, 0.6, 0.2, 0.1])

    def test_in_the_same_animals_it_is_the_paired_t_test(self):
        result = difference_interval(
            constant_clusters(self.FIRST, 5), constant_clusters(self.SECOND, 9)
        )
        expected = ttest_rel(self.FIRST, self.SECOND)
        interval = expected.confidence_interval()
        assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
        assert result.p_value == pytest.approx(expected.pvalue)

    def test_in_other_animals_it_is_the_test_of_welch(self):
        other = constant_clusters(self.SECOND[:3], 9, "other")
        result = difference_interval(constant_clusters(self.FIRST, 5), other)
        expected = ttest_ind(self.FIRST, self.SECOND[:3], equal_var=False)
        interval = expected.confidence_interval()
        assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
        assert result.p_value == pytest.approx(expected.pvalue)

    def test_what_all_areas_of_an_animal_have_in_common_does_not_count(self):
        shift = np.array([0.0, 5.0, -3.0, 10.0])
        plain = difference_interval(
            constant_clusters(self.FIRST, 5), constant_clusters(self.SECOND, 5)
        )
        shifted = difference_interval(
            constant_clusters(self.FIRST + shift, 5), constant_clusters(self.SECOND + shift, 5)
        )
        assert shifted.low == pytest.approx(plain.low)
        assert shifted.p_value == pytest.approx(plain.p_value)

    def test_the_variance_is_right_on_average_if_some_animals_lack_an_area(self):
        rng = np.random.default_rng(2)
        names = np.array(list("abcdef"))
        differences, reaches = [], []
        for _ in range(3000):
            common = rng.normal(0, 1, 6)
            first = cluster_means((common + rng.normal(0, 0.5, 6))[:5], names[:5])
            second = cluster_means((common + rng.normal(0, 0.5, 6))[1:], names[1:])
            result = difference_interval(first, second)
            differences.append(result.value)
            reaches.append(result.low <= 0 <= result.high)
        # Both means are over 5 animals of which they share 4.
        exact = 2 * (1 + 0.25) / 5 - 2 * 4 / 25
        assert np.var(differences) == pytest.approx(exact, rel=0.06)
        assert 0.94 < np.mean(reaches) < 0.98

    def test_p_value_and_interval_agree(self):
        rng = np.random.default_rng(3)
        for _ in range(200):
            trials = rng.integers(2, 15, 4)
            groups = [shares(rng.binomial(trials, p), trials) for p in rng.random(2)]
            result = difference_interval(*groups, shares=True)
            excluded = result.low > 0 or result.high < 0
            assert excluded == (result.p_value < 0.05)
            assert -1 <= result.low <= result.value <= result.high <= 1

    def test_the_other_way_round(self):
        first, second = shares([3, 5, 1], [9, 9, 4]), shares([0, 2, 1], [9, 9, 4])
        one = difference_interval(first, second, shares=True)
        other = difference_interval(second, first, shares=True)
        assert (other.low, other.high) == pytest.approx((-one.high, -one.low))
        assert other.p_value == pytest.approx(one.p_value)

    def test_equal_animals_do_not_make_a_certain_difference(self):
        # 1 of 5 against 0 of 5 in each of 3 animals: no variation between animals at all.
        result = difference_interval(
            shares([1] * 3, [5] * 3), shares([0] * 3, [5] * 3), shares=True
        )
        assert result.low < 0 < result.high
        assert result.p_value > 0.05
        same = difference_interval(shares([5] * 3, [5] * 3), shares([5] * 3, [5] * 3), shares=True)
        assert same.low < 0 < same.high
        assert same.p_value == 1.0

    def test_one_session_counts_neurons_as_independent(self):
        first, second = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.0, 0.5, 0.1])
        result = difference_interval(
            cluster_means(first, np.zeros(4)), cluster_means(second, np.zeros(3))
        )
        expected = ttest_ind(first, second, equal_var=False)
        assert result.p_value == pytest.approx(expected.pvalue)
        assert result.low == pytest.approx(expected.confidence_interval().low)
        alone = difference_interval(
            cluster_means(first, np.zeros(4)), cluster_means(second[:1], np.zeros(1))
        )
        assert np.isnan([alone.low, alone.high, alone.p_value]).all()
        assert alone.value == 2.5


@pytest.mark.parametrize("n_animals", [3, 6])
def test_intervals_hold_the_truth_and_few_differences_are_false(n_animals):
    """A small part of ``studies/pooled_groups.py``; 600 simulations have an error of 0.9 points."""
    rng = np.random.default_rng(10 + n_animals)
    names = [f"animal{k}" for k in range(n_animals)]
    held, held_difference, false = [], [], []
    for _ in range(600):
        share = rng.beta(2, 2, n_animals)
        groups = []
        for shift in (0.0, 0.0, -0.5):
            trials = rng.integers(5, 60, n_animals)
            groups.append(shares(rng.binomial(trials, share * (1 + shift)), trials, names))
        estimate = share_interval(groups[0])
        held.append(estimate.low <= 0.5 <= estimate.high)
        difference = difference_interval(groups[0], groups[2], shares=True)
        held_difference.append(difference.low <= 0.25 <= difference.high)
        false.append(difference_interval(groups[0], groups[1], shares=True).p_value < 0.05)
    assert 0.93 < np.mean(held) < 0.985
    assert 0.93 < np.mean(held_difference) < 0.985
    assert np.mean(false) < 0.06
