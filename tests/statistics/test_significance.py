"""Connections given everything else: closed forms, and chance."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter
from scipy.stats import kstest

from xcebra.statistics.significance import (
    ALLOWANCE,
    LEAST_EFFECT,
    Connections,
    _p_values,
    find_connections,
    merged,
    typical,
)

N = 4000


def slow(width, seed, n=N, memory=0.9):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 200, width))
    return lfilter([math.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[200:]


def noise(width, seed, n=N):
    return np.random.default_rng(1000 + seed).standard_normal((n, width))


def missed_by(x, *regressors):
    """Share of the variance that a linear regression leaves."""
    design = np.column_stack([*regressors, np.ones(len(x))])
    return (x - design @ np.linalg.lstsq(design, x, rcond=None)[0]).var(axis=0) / x.var(axis=0)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_share_is_that_of_the_variance(part):
    """x = sqrt(1 - p) o + sqrt(p) b + e / 2: of a variance of 1.25, b adds p and both explain 1."""
    o, b = slow(1, 1), slow(1, 2)
    x = math.sqrt(1 - part) * o + math.sqrt(part) * b + 0.5 * noise(3, 1)
    found = find_connections(x, b, o, n_shifts=20)
    truth = part / 1.25
    np.testing.assert_allclose(found.share, truth, atol=0.015)
    assert (found.low < found.share).all()
    assert (found.low < truth).all()
    assert (found.high > truth).all()
    np.testing.assert_allclose(found.explained, 1 - missed_by(x, o, b), atol=0.02)
    np.testing.assert_allclose(found.of_explained, part, atol=0.06)


def test_a_share_is_zero_on_average_where_there_is_nothing_and_never_above_one():
    shares = np.array(
        [
            find_connections(
                noise(8, seed, 1000), slow(1, seed, 1000), slow(1, 50 + seed, 1000), n_shifts=19
            ).share
            for seed in range(12)
        ]
    )
    assert abs(shares.mean()) < 3 * shares.std() / math.sqrt(shares.size)
    assert (shares < 0).any()
    b = slow(1, 1)
    found = find_connections(np.repeat(b, 2, axis=1), b, slow(1, 2), n_shifts=19)
    assert (found.share > 0.99).all()
    assert (found.high <= 1).all()
    assert (found.explained <= 1).all()


def test_the_part_of_what_is_explained_lies_between_zero_and_one_or_is_unknown():
    none = np.zeros(5)
    share, explained = np.array([0.2, -0.1, 0.5, 0.004, 0.1]), np.array([0.4, 0.3, 0.4, 0.009, 0.0])
    found = Connections(share, none, none, none, explained)
    np.testing.assert_array_equal(found.of_explained, [0.5, 0.0, 1.0, np.nan, np.nan])
    assert np.isnan(Connections(share, none, none, none).of_explained).all()


@pytest.mark.parametrize("kind", ["circular", "discrete"])
def test_angles_and_classes_are_followed_in_any_shape(kind):
    """Two neurons that follow it, narrowly tuned or by class; two that follow another factor."""
    rng = np.random.default_rng(0)
    o = slow(1, 21)
    angle = np.cumsum(0.3 * rng.standard_normal(N))
    if kind == "circular":
        block = np.column_stack([np.cos(angle), np.sin(angle)])
        tuned = np.column_stack([np.exp(4 * np.cos(angle - c)) for c in (0.5, 3.0)])
    else:
        codes = (angle // (2 * np.pi / 3)).astype(int) % 3
        block = np.eye(3)[codes]
        tuned = block @ np.array([[1.0, 0.0, 0.0], [0.5, -1.0, 0.5]]).T
    tuned = tuned / tuned.std(axis=0)
    x = np.concatenate([tuned, o, -o], axis=1) + 0.7 * noise(4, 9)
    found = find_connections(x, block, o, kind=kind)
    assert found.significant().tolist() == [True, True, False, False]
    np.testing.assert_allclose(found.share[:2], 1 / 1.49, atol=0.05)
    assert np.abs(found.share[2:]).max() < 0.02


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


def test_a_trace_of_an_effect_beside_large_ones_is_not_a_connection():
    """A unit that follows the block by 1 % of what typical ones do, and surely so."""
    o, b = slow(1, 17, 20_000), slow(1, 18, 20_000)
    follows = np.array([1.0, 1.0, 1.0, 0.07])
    x = b * follows + noise(4, 19, 20_000)
    found = find_connections(x, b, o)
    assert found.low[3] > 0
    assert found.share[3] == pytest.approx(0.0049 / 1.0049, abs=0.003)
    assert found.share[3] < LEAST_EFFECT * typical(found.share) + ALLOWANCE * found.explained[3]
    assert found.significant().tolist() == [True, True, True, False]
    # Alone, with nothing larger beside it, it is one.
    assert find_connections(x[:, 3:], b, o).significant().all()


def test_a_block_that_never_changes_adds_nothing():
    found = find_connections(noise(3, 24, 800), np.full((800, 1), 2.0), slow(1, 25, 800))
    assert (found.p_values == 1).all()
    assert np.abs(found.share).max() < 1e-12


def test_p_values_are_ranks_among_a_neurons_own_shifts():
    nulls = np.random.default_rng(0).standard_normal((99, 10)) * np.arange(1, 11) + 5
    for rank in (1, 10, 50, 99):
        # As large as the rank-th largest: that many shifts are no smaller.
        found = np.sort(nulls, axis=0)[-rank]
        np.testing.assert_allclose(_p_values(found, nulls), (1 + rank) / 100)
    assert (_p_values(nulls.min(axis=0) - 1, nulls) == 1).all()


def test_beyond_all_shifts_p_values_are_those_of_pearsons_third_kind():
    """A gamma distribution is one: its own tail comes out, and a rank never beats it."""
    nulls = np.random.default_rng(1).gamma(2.0, size=(199, 400))
    found = np.full(400, 14.0)
    p = _p_values(found, nulls)
    beyond = (nulls < 14).all(axis=0)
    centre, spread = nulls.mean(axis=0), nulls.std(axis=0, ddof=1)
    skew = (((nulls - centre) / spread) ** 3).mean(axis=0)
    tail = [stats.pearson3(g, c, s).sf(14.0) for g, c, s in zip(skew, centre, spread, strict=True)]
    np.testing.assert_allclose(p[beyond], np.clip(tail, 1e-8, 1 / 200)[beyond], rtol=1e-6)
    assert np.median(np.log(p[beyond])) == pytest.approx(stats.gamma(2.0).logsf(14.0), abs=1.0)
    # The tail of a few hundred shifts is not known beyond some point.
    assert (_p_values(found * 100, nulls) == 1e-8).all()
    # Just above the largest shift: no better than its rank.
    just = nulls.max(axis=0) + 1e-9
    assert (_p_values(just, nulls) <= 1 / 200).all()


def test_shifts_that_are_all_the_same_say_nothing():
    assert _p_values(np.array([1.0]), np.zeros((50, 1))).tolist() == [1.0]


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
