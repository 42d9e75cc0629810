"""Sparse axes: known mixtures are found, the convex optimum is scipy's, odd maps break nothing."""

import numpy as np
import pytest
from scipy.optimize import minimize

from xcebra.attribution.label_axes import Readout, label_axes, sparse_axes
from xcebra.attribution.sparse_basis import _Problem, sparsest

BLOCK, OTHERS = slice(0, 2), np.arange(2, 5)
# Of the sum of norms before: norms are roots of sums that cancel, half of the digits are left.
ROUNDING = 2e-7


@pytest.fixture(autouse=True)
def _one_leave_out(monkeypatch):
    """What is left out tells about trust and changes no weight: once is enough, and fast."""
    monkeypatch.setattr("xcebra.attribution.sparse_basis._LEAVE_OUT_TIMES", 1)


def mixed(unconnected, *, n_neurons=50, n_times=60, size=1.0, seed=0, constant=False):
    """Jacobians whose first two columns were mixed, the mixture to find, who is unconnected."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((1 if constant else n_times, n_neurons, 5))
    silent = rng.permutation(n_neurons) < round(unconnected * n_neurons)
    maps[:, silent, BLOCK] = 0
    mixture = size * rng.standard_normal((3, 2))
    maps[:, :, BLOCK] -= maps[:, :, OTHERS] @ mixture
    return maps, mixture, silent


def moments(maps):
    return np.einsum("tni,tnj->nij", maps, maps) / len(maps)


def solve(maps):
    return sparsest(moments(maps), BLOCK, OTHERS)


def problem(maps):
    m = moments(maps)
    return _Problem(
        m[None, :, OTHERS[:, None], OTHERS],
        m[None, :, OTHERS, BLOCK],
        np.trace(m[:, BLOCK, BLOCK], axis1=1, axis2=2)[None],
    )


def least_sum(problem):
    """The solution of a single problem and its gap."""
    solutions, gaps = problem.least_sum()
    assert len(solutions) == len(gaps) == 1
    return solutions[0], gaps[0]


def norms(maps, mixture):
    """Root mean square over time, without moments."""
    rows = maps[:, :, BLOCK] + maps[:, :, OTHERS] @ mixture
    return np.sqrt(np.square(rows).sum(axis=2).mean(axis=0))


def by_scipy(maps, n_starts=8, seed=0):
    """The least sum of norms that BFGS finds from many starts; smooth unless a norm vanishes."""
    of = moments(maps)

    def value_and_slope(flat):
        m = flat.reshape(3, 2)
        size = norms(maps, m)
        slope = of[:, OTHERS, BLOCK] + of[:, OTHERS[:, None], OTHERS] @ m
        return size.sum(), np.einsum("n,nij->ij", 1 / size, slope).ravel()

    starts = np.random.default_rng(seed).standard_normal((n_starts, 6))
    found = [minimize(value_and_slope, s, jac=True, method="BFGS", tol=1e-10) for s in starts]
    return min(found, key=lambda each: each.fun)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("constant", [True, False])
def test_the_convex_stage_reaches_the_optimum_of_scipy_and_its_gap_bounds_the_distance(
    seed, constant
):
    maps = mixed(0.0, n_neurons=15, seed=seed, constant=constant)[0]
    found, gap = least_sum(problem(maps))
    least, expected = norms(maps, found).sum(), by_scipy(maps)
    rounding = ROUNDING * norms(maps, np.zeros((3, 2))).sum()
    assert 0 <= gap <= 1e-6
    assert least * (1 - gap) <= expected.fun + rounding
    assert least <= expected.fun / (1 - gap) + rounding
    # At the minimum of a smooth function, weights are off by the square root of the value.
    np.testing.assert_allclose(found, expected.x.reshape(3, 2), atol=2e-2)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unconnected", [0.1, 0.5, 0.9, 0.98])
def test_no_mixture_at_all_goes_below_the_bound_that_the_gap_states(unconnected, seed, constant):
    maps, truth, _ = mixed(unconnected, seed=seed, constant=constant)
    found, gap = least_sum(problem(maps))
    least = norms(maps, found).sum()
    rng = np.random.default_rng(0)
    near = [found + scale * rng.standard_normal((3, 2)) for scale in np.geomspace(1e-8, 1, 200)]
    assert gap <= 1e-6
    lowest = least * (1 - gap) - ROUNDING * norms(maps, np.zeros((3, 2))).sum()
    assert all(norms(maps, m).sum() >= lowest for m in [truth, *near])


@pytest.mark.parametrize("iterations", [1, 2, 5, 20])
def test_the_gap_is_a_true_bound_long_before_it_closes(iterations, monkeypatch):
    maps = mixed(0.0, n_neurons=15)[0]
    monkeypatch.setattr("xcebra.attribution.sparse_basis._MOST_ITERATIONS", iterations)
    found, gap = least_sum(problem(maps))
    least, optimum = norms(maps, found).sum(), by_scipy(maps).fun
    assert least * (1 - gap) <= optimum <= least
    assert gap > 1e-6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("unconnected", "tolerance"),
    [(0.98, 1e-7), (0.9, 1e-7), (0.8, 1e-7), (0.5, 1e-4), (0.2, 2e-3), (0.1, 5e-3)],
)
def test_a_known_mixture_is_found_and_leaves_only_the_connected_neurons(
    unconnected, tolerance, seed
):
    maps, mixture, silent = mixed(unconnected, seed=seed)
    found = solve(maps)
    assert np.abs(found.weights - mixture).max() < tolerance
    # Norms are roots of sums that cancel: half of the digits are left.
    assert found.after[silent].max() < max(2 * tolerance, 1e-6)
    assert found.after[~silent].min() > 1
    assert found.before.min() > 0.3
    np.testing.assert_allclose(found.before, norms(maps, np.zeros((3, 2))), rtol=1e-10)
    np.testing.assert_allclose(found.after, norms(maps, found.weights), rtol=1e-6, atol=1e-6)
    assert 0 <= found.gap <= 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_a_map_that_never_changes_gives_its_mixture_away_too(seed):
    maps, mixture, silent = mixed(0.5, n_neurons=60, seed=seed, constant=True)
    found = solve(maps)
    assert np.abs(found.weights - mixture).max() < 1e-2
    assert found.after[silent].max() < 2e-2


@pytest.mark.parametrize("seed", range(4))
def test_logarithms_need_fewer_unconnected_neurons_than_the_convex_sum(seed):
    maps, mixture, _ = mixed(0.15, n_neurons=60, seed=seed, constant=True)
    convex, _ = problem(maps).least_sum()
    sharp = solve(maps).weights
    assert np.abs(sharp - mixture).max() < 0.1 * np.abs(convex - mixture).max()


@pytest.mark.parametrize(("unconnected", "most"), [(0.5, 1e-4), (0.2, 2e-3), (0.0, 0.05)])
def test_where_nothing_was_mixed_nothing_is_added(unconnected, most):
    maps, _, silent = mixed(unconnected, size=0.0, n_times=2000)
    found = solve(maps)
    assert np.abs(found.weights).max() < most
    np.testing.assert_allclose(found.after[~silent], found.before[~silent], rtol=0.01)
    assert not found.before[silent].any()


def turned(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


CHANGES = {
    "time columns rescaled": (np.eye(2), np.diag([0.1, 3.0, 10.0])),
    "time columns rotated": (np.eye(2), turned(3)),
    "time columns mixed": (np.eye(2), turned(3) @ np.diag([0.5, 1, 2]) @ turned(3, 1)),
    "block columns rescaled": (np.diag([7.0, 7.0]), np.eye(3)),
    "block columns rotated": (turned(2), np.eye(3)),
    "everything": (0.3 * turned(2), 50 * turned(3, 4)),
}


@pytest.mark.parametrize("unconnected", [0.1, 0.5])
@pytest.mark.parametrize("change", CHANGES)
def test_weights_follow_the_axes_they_are_told_in(change, unconnected):
    block, others = CHANGES[change]
    maps = mixed(unconnected)[0]
    plain = solve(maps)
    assert plain.found
    changed = np.concatenate([maps[:, :, BLOCK] @ block, maps[:, :, OTHERS] @ others], axis=2)
    found = solve(changed)
    expected = np.linalg.inv(others) @ plain.weights @ block
    np.testing.assert_allclose(found.weights, expected, atol=1e-6 * np.abs(expected).max())
    size = np.linalg.norm(block, 2)
    np.testing.assert_allclose(found.after, size * plain.after, rtol=1e-4, atol=1e-6 * size)


def test_the_order_of_neurons_means_nothing():
    maps = mixed(0.3)[0]
    order = np.random.default_rng(1).permutation(50)
    plain, found = solve(maps), solve(maps[:, order])
    np.testing.assert_allclose(found.weights, plain.weights, atol=1e-8)
    np.testing.assert_allclose(found.after, plain.after[order], atol=1e-7)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_silent_neurons_make_no_difference_however_many(share):
    maps, mixture, unconnected = mixed(0.5, n_neurons=30)
    n_silent = round(30 * share / (1 - share))
    found = solve(np.concatenate([maps, np.zeros((60, n_silent, 5))], axis=1))
    assert np.abs(found.weights - mixture).max() < 1e-3
    assert not found.before[30:].any()
    assert not found.after[30:].any()
    assert found.after[:30][unconnected].max() < 2e-3
    assert found.after[:30][~unconnected].min() > 0.5


def test_a_map_of_zeros_needs_no_mixture():
    found = solve(np.zeros((5, 4, 5)))
    assert not found.weights.any()
    assert not found.before.any()
    assert not found.after.any()
    assert found.gap == 0


def test_a_block_of_zeros_stays_zero_whatever_could_be_added():
    maps = mixed(0.5)[0]
    maps[:, :, BLOCK] = 0
    found = solve(maps)
    assert not found.weights.any()
    assert not found.after.any()


def test_columns_of_zeros_cannot_be_added():
    maps = mixed(0.5)[0]
    maps[:, :, OTHERS] = 0
    found = solve(maps)
    assert not found.weights.any()
    np.testing.assert_array_equal(found.after, found.before)


def test_one_other_column_has_the_weighted_median_as_its_best_weight():
    # Sum of |b_i + a_i m|: the least is where m is a weighted median of -b / a.
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((1, 31, 2))
    m = moments(maps)
    found, gap = least_sum(_Problem(m[None, :, 1:, 1:], m[None, :, 1:, :1], m[None, :, 0, 0]))
    b, a = maps[0].T
    sums = [np.abs(b + a * each).sum() for each in -b / a]
    assert np.abs(b + a * found[0, 0]).sum() == pytest.approx(min(sums), rel=2e-6)
    assert gap <= 1e-6


def test_of_equal_columns_each_takes_its_share():
    maps, mixture, silent = mixed(0.5)
    twice = np.concatenate([maps, maps[:, :, 4:]], axis=2)
    found = sparsest(moments(twice), BLOCK, np.arange(2, 6))
    expected = np.concatenate([mixture[:2], mixture[2:] / 2, mixture[2:] / 2])
    np.testing.assert_allclose(found.weights, expected, atol=1e-4)
    assert found.after[silent].max() < 1e-3


@pytest.mark.parametrize("connected", [True, False])
def test_the_convex_optimum_of_one_neuron_is_least_squares(connected):
    maps = mixed(0.0 if connected else 1.0, n_neurons=1)[0]
    found, gap = least_sum(problem(maps))
    expected = -np.linalg.lstsq(maps[:, 0, OTHERS], maps[:, 0, BLOCK], rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert 0 <= gap <= 1e-6


@pytest.mark.parametrize("n_neurons", [1, 2, 3])
def test_no_more_neurons_than_other_columns_tell_no_mixture(n_neurons):
    maps = mixed(1.0, n_neurons=n_neurons)[0]
    found = solve(maps)
    assert not found.weights.any()
    np.testing.assert_array_equal(found.after, found.before)
    assert not found.found
    assert np.isfinite([found.gap, found.instability]).all()


@pytest.mark.parametrize(("unconnected", "trusted"), [(0.9, True), (0.5, True), (0.0, False)])
def test_a_mixture_is_trusted_where_unconnected_neurons_tell_it(unconnected, trusted):
    maps, _, silent = mixed(unconnected)
    found = solve(maps)
    assert found.n_unconnected == silent.sum()
    assert found.trusted == found.found == trusted
    assert (found.instability < 1e-3) == trusted


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_the_unit_of_the_map_changes_no_weight(scale):
    maps = mixed(0.3)[0]
    found = solve(scale * maps)
    np.testing.assert_allclose(found.weights, solve(maps).weights, atol=1e-8)


def test_each_of_several_blocks_finds_its_own_mixture_and_the_axes_undo_them_all():
    rng = np.random.default_rng(0)
    blocks = {"position": slice(0, 2), "speed": slice(2, 3), "time": slice(3, 6)}
    others = np.arange(3, 6)
    truth = rng.standard_normal((80, 60, 6))
    truth[:, :25, :2] = 0
    truth[:, 20:50, 2] = 0
    mixtures = {"position": rng.standard_normal((3, 2)), "speed": rng.standard_normal((3, 1))}
    maps = truth.copy()
    for name, mixture in mixtures.items():
        maps[:, :, blocks[name]] -= truth[:, :, 3:] @ mixture
    found = {name: sparsest(moments(maps), blocks[name], others) for name in mixtures}
    for name, mixture in mixtures.items():
        np.testing.assert_allclose(found[name].weights, mixture, atol=1e-3)
    # Columns of a map follow the inverse of the axes of the embedding.
    readouts = {
        "position": Readout(rng.standard_normal((2, 2)), np.zeros(2), np.array([0.5, 3.0])),
        "speed": Readout(np.array([[2.0]]), np.zeros(1), np.ones(1)),
    }
    learned = maps @ label_axes(readouts, blocks)
    sparse = learned @ np.linalg.inv(sparse_axes(readouts, found, blocks))
    np.testing.assert_allclose(sparse, truth, atol=1e-2)
    np.testing.assert_allclose(sparse[:, :, 3:], truth[:, :, 3:], atol=1e-12)


def test_a_mixture_that_was_not_found_can_be_written_to_a_file():
    # Files refuse arrays that share their memory.
    moments = np.tile(np.eye(3), (4, 1, 1))
    for found in (
        sparsest(moments, slice(0, 1), np.array([1, 2])),
        sparsest(0 * moments, slice(0, 1), np.array([1, 2])),
    ):
        assert not found.found
        assert not np.shares_memory(found.before, found.after)


def test_problems_that_are_solved_together_have_the_solutions_of_each_alone():
    maps = [mixed(share, n_neurons=20, seed=k)[0] for k, share in enumerate((0.0, 0.3, 0.9))]
    alone = [problem(each) for each in maps]
    together = _Problem(
        *(np.concatenate([getattr(p, name) for p in alone]) for name in ("aa", "ab", "bb"))
    )
    solutions, gaps = together.least_sum()
    floor = np.full(3, 0.05)
    sharpened = together.least_log_sum(solutions, floor)
    for k, single in enumerate(alone):
        expected, gap = least_sum(single)
        np.testing.assert_allclose(solutions[k], expected, rtol=1e-9, atol=1e-9)
        assert gaps[k] == pytest.approx(gap, abs=1e-12)
        log_sum = single.least_log_sum(expected[None], floor[:1])[0]
        np.testing.assert_allclose(sharpened[k], log_sum, rtol=1e-7, atol=1e-7)


def test_a_problem_that_is_not_convex_ends_before_the_last_iteration(monkeypatch):
    # Products of two noisy estimates: some neurons have negative moments, and no gap closes.
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((2, 40, 30, 5))
    crossed = np.einsum("tni,tnj->nij", maps[0], maps[1]) / 40
    m = (crossed + crossed.transpose(0, 2, 1)) / 2
    noisy = _Problem(
        m[None, :, OTHERS[:, None], OTHERS],
        m[None, :, OTHERS, BLOCK],
        np.trace(m[:, BLOCK, BLOCK], axis1=1, axis2=2)[None],
    )
    n_iterations = []
    weighted = _Problem.weighted
    monkeypatch.setattr(
        _Problem, "weighted", lambda self, w: n_iterations.append(1) or weighted(self, w)
    )
    gap = least_sum(noisy)[1]
    assert gap > 1e-3
    assert len(n_iterations) <= 1000
