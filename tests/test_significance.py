"""Connections given everything else: closed forms, a dense reference, and chance."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter
from scipy.stats import kstest
from sklearn.linear_model import Ridge

from xcebra.significance import (
    _FOLDS,
    _RIDGE,
    ALLOWANCE,
    Connections,
    _Nested,
    _p_values,
    find_connections,
    merged,
    share_told,
    typical,
)

N = 4000


def slow(width, seed, n=N, memory=0.9):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 200, width))
    return lfilter([math.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[200:]


def noise(width, seed, n=N):
    return np.random.default_rng(1000 + seed).standard_normal((n, width))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_share_is_that_of_the_variance(part):
    """x = sqrt(1 - p) o + sqrt(p) b: without b, a share p of what was explained is lost."""
    o, b = slow(1, 1), slow(1, 2)
    x = math.sqrt(1 - part) * o + math.sqrt(part) * b + 0.5 * noise(3, 1)
    found = find_connections(x, b, o, n_shifts=20)
    np.testing.assert_allclose(found.share, part, atol=0.08)
    assert (found.low < found.share).all()
    assert (found.low < part).all()
    assert (found.high > part).all()


def test_what_is_only_correlated_with_a_block_is_not_connected_to_it():
    o = slow(1, 3)
    b = 0.8 * o + 0.6 * slow(1, 4)
    x = np.concatenate([np.repeat(o, 4, axis=1), np.repeat(b, 4, axis=1)], axis=1)
    x += 0.5 * noise(8, 2)
    found = find_connections(x, b, o)
    assert np.abs(found.share[:4]).max() < 0.02
    assert found.significant().tolist() == [False] * 4 + [True] * 4
    alone = find_connections(x, b, np.empty((N, 0)))
    assert alone.significant().all()


def test_a_block_counts_however_bent_its_effect():
    """Neither has much of a correlation with the block: a bump, a product with another factor."""
    o, b = slow(1, 5), slow(1, 6)
    bump, product = np.exp(-(b**2) / 0.5), o * b
    x = np.concatenate([bump, product, o], axis=1)
    x = x / x.std(axis=0) + 0.3 * noise(3, 3)
    found = find_connections(x, b, o)
    assert np.abs(np.corrcoef(np.concatenate([x, b], axis=1).T)[:2, 3]).max() < 0.3
    assert found.share[:2].min() > 0.7
    assert found.significant().tolist() == [True, True, False]


def test_what_leaks_through_an_imperfect_embedding_is_allowed_for():
    """The other factor is known but for a trace of the block; the trace alone would be certain."""
    o, b = slow(1, 7), slow(1, 8)
    seen = o + 0.05 * b
    x = np.concatenate([o, o, b, b], axis=1) + 0.02 * noise(4, 4)
    found = find_connections(x, b, seen)
    leaked = found.share[:2]
    assert (found.low[:2] > 0).all()  # surely more than nothing
    assert (leaked < ALLOWANCE * found.share[2:].min()).all()
    assert found.significant().tolist() == [False, False, True, True]


def test_the_regression_is_ridge_with_folds_held_out():
    x, others, more = noise(5, 5, 600), slow(2, 9, 600), slow(3, 10, 600)
    fold = np.arange(600) * 20 // 600 % _FOLDS
    nested = _Nested(x, others, fold, np.random.default_rng(0))
    found = nested.errors_with(more)
    design = np.concatenate([nested._base.astype(float), more], axis=1)
    expected = np.empty_like(x)
    for k in range(_FOLDS):
        train, test = fold != k, fold == k
        ridge = Ridge(alpha=_RIDGE * train.sum()).fit(design[train], x[train])
        expected[test] = np.square(x[test] - ridge.predict(design[test]))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_without_others_nothing_is_explained_by_them():
    x = noise(2, 6, 600)
    nested = _Nested(x, np.empty((600, 0)), np.arange(600) % _FOLDS, np.random.default_rng(0))
    found = nested.errors_without()
    for k in range(_FOLDS):
        held = np.arange(600) % _FOLDS == k
        np.testing.assert_allclose(
            found[held], np.square(x[held] - x[~held].mean(axis=0)), atol=1e-5
        )


def test_ranks_are_among_the_shifts_of_all_neurons():
    nulls = np.random.default_rng(0).standard_normal((99, 10)) * np.arange(1, 11) + 5
    far = nulls.mean(axis=0) + 100 * nulls.std(axis=0)
    np.testing.assert_allclose(_p_values(far, nulls), 1 / 991)
    middle = _p_values(nulls.mean(axis=0), nulls)
    assert np.abs(middle - 0.5).max() < 0.06
    assert (_p_values(-far, nulls) == 1).all()


def test_a_neuron_that_never_changes_is_connected_to_nothing():
    o, b = slow(1, 11), slow(1, 12)
    x = np.concatenate([np.full((N, 1), 3.0), b], axis=1)
    found = find_connections(x, b, o, n_shifts=50)
    assert found.p_values[0] == 1
    assert found.share[0] == 0
    assert found.significant().tolist() == [False, True]


def test_the_typical_share_is_that_of_the_connected_however_few():
    assert typical(np.array([0.0] * 98 + [0.4, 0.5])) >= 0.4
    assert typical(np.array([-0.1, 0.0, 0.0])) == 0


def test_false_discoveries_are_controlled_by_benjamini_and_hochberg():
    """Their procedure by hand: the largest k with p_(k) <= k alpha / m, and all below."""
    p = np.array([0.001, 0.012, 0.014, 0.02, 0.2, 0.9])
    none = np.zeros(6)
    found = Connections(none, none, none, p).significant(0.05)
    below = [k for k in range(1, 7) if np.sort(p)[k - 1] <= 0.05 * k / 6]
    assert found.sum() == max(below) == 4
    assert Connections(none, none, none, p).significant(0.01).tolist() == [True] + 5 * [False]


def test_the_same_seed_finds_the_same():
    o, b = slow(1, 13, 800), slow(1, 14, 800)
    x = o + noise(3, 7, 800)
    first, second = (find_connections(x, b, o, n_shifts=10, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.p_values, second.p_values)
    np.testing.assert_array_equal(first.share, second.share)


def null_p_values(n_recordings, n_neurons=6, n=1000):
    """Neurons that follow a factor, and a slow label that nothing follows."""
    found = []
    for seed in range(n_recordings):
        o, b = slow(2, 2 * seed, n, memory=0.95), slow(2, 2 * seed + 1, n, memory=0.95)
        mixing = np.random.default_rng(seed).standard_normal((2, n_neurons))
        x = np.tanh(o @ mixing) + 0.5 * noise(n_neurons, seed, n)
        found.append(find_connections(x, b, o, n_shifts=49, seed=seed).p_values)
    return np.array(found)


def test_an_unrelated_label_is_found_in_no_neuron_more_often_than_it_may():
    p = null_p_values(40)
    # Neurons of one recording share their luck: one of each counts.
    assert kstest(p[:, 0], "uniform").pvalue > 0.01
    assert (p <= 0.05).mean() < 0.12


@pytest.mark.slow
def test_p_values_are_uniform_under_the_complete_null():
    p = null_p_values(400, n=2000)
    for neuron in range(p.shape[1]):
        assert kstest(p[:, neuron], "uniform").pvalue > 0.01
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.02)


# Several fits


def connections(share, reach, p):
    share, reach, p = (np.atleast_1d(np.array(each, dtype=float)) for each in (share, reach, p))
    return Connections(share, share - reach, share + reach, p)


def test_of_several_fits_twice_the_median_p_counts():
    fits = [
        connections([0.5] * 3, [0.1] * 3, p)
        for p in ([0.001, 0.2, 0.9], [0.3, 0.01, 0.8], [0.002, 0.02, 0.7])
    ]
    assert merged(fits).p_values == pytest.approx([0.004, 0.04, 1.0])
    assert merged(fits).share == pytest.approx([0.5] * 3)


def test_fits_that_agree_keep_their_interval_and_others_widen_it():
    same = merged([connections(0.4, 0.1, 0.01)] * 4)
    assert (same.low[0], same.high[0]) == (pytest.approx(0.3), pytest.approx(0.5))
    apart = merged([connections(each, 0.1, 0.01) for each in (0.2, 0.4, 0.6)])
    # Rubin: within 0.1 / t, between 0.2 times sqrt(1 + 1/3).
    quantile = stats.t.ppf(0.975, 19)
    assert apart.share[0] == pytest.approx(0.4)
    assert apart.high[0] - 0.4 == pytest.approx(np.sqrt(0.1**2 + (quantile * 0.2) ** 2 * 4 / 3))


def test_one_fit_is_itself():
    one = connections(0.4, 0.1, 0.01)
    assert merged([one]) is one


def test_twice_the_median_p_is_rarely_small_where_there_is_nothing():
    """However fits depend on each other: here from not at all to being the same."""
    rng = np.random.default_rng(0)
    for shared in (0.0, 0.5, 0.9, 1.0):
        common, own = rng.standard_normal((1, 20_000)), rng.standard_normal((5, 20_000))
        z = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
        fits = [connections(np.zeros(20_000), np.ones(20_000), stats.norm.sf(each)) for each in z]
        assert (merged(fits).p_values <= 0.05).mean() <= 0.055


# One signal from another


def test_what_a_smooth_function_tells_is_told_and_noise_is_not():
    rng = np.random.default_rng(0)
    source = np.sin(np.cumsum(0.1 * rng.standard_normal((4000, 1)), axis=0))
    bent = np.exp(source) / np.exp(source).std()
    assert share_told(bent, source) > 0.99
    assert share_told(bent + rng.standard_normal((4000, 1)), source) == pytest.approx(0.5, abs=0.05)
    assert share_told(rng.standard_normal((4000, 2)), source) < 0.02
