"""Synthetic recordings: the law of every step, the wiring, and each harder variant."""

import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats
from scipy.special import ive

from xcebra.datasets import synthetic
from xcebra.datasets.synthetic import _mix, _well_conditioned

HALVES = {"z1": np.ones(50, dtype=bool), "z2": np.arange(50) >= 25}


def small(**settings):
    return synthetic(**{"n_hidden": 2, "n_observed": 2, "n_steps": 3_000} | settings)


def walks(n_columns, n_steps, **settings):
    """Many independent columns of one factor that drives nothing, which costs no mixing."""
    rec = synthetic(
        factors={"wide": n_columns, "other": 2},
        wiring={"wide": [0], "other": [1]},
        observed="wide",
        n_steps=n_steps,
        **settings,
    )
    return rec.latents["wide"]


# The paper's data


@pytest.mark.parametrize(("observed", "n_z1", "n_z2"), [("z2", 3, 2), ("z1", 2, 3)])
def test_shapes_types_and_ground_truth_are_the_paper_s(observed, n_z1, n_z2):
    rec = synthetic(n_hidden=3, n_observed=2, n_steps=1_000, observed=observed)
    assert rec.neural.shape == (1_000, 50)
    assert rec.neural.dtype == np.float32
    assert {name: z.shape for name, z in rec.latents.items()} == {
        "z1": (1_000, n_z1),
        "z2": (1_000, n_z2),
    }
    assert list(rec.labels) == [observed]
    assert np.array_equal(rec.labels[observed], rec.latents[observed])
    for name, connected in HALVES.items():
        assert np.array_equal(rec.ground_truth[name], connected)
        assert rec.ground_truth[name].dtype == bool
    assert rec.epochs.pairs() == [(0, 1_000)]


def test_which_factor_is_observed_changes_the_label_only():
    one, other = small(observed="z1"), small(observed="z2")
    assert np.array_equal(one.neural, other.neural)
    assert all(np.array_equal(one.latents[k], other.latents[k]) for k in ("z1", "z2"))


# Walks in the box


def test_walks_stay_inside_the_box_and_no_sample_is_on_the_wall():
    z = walks(20, 5_000)
    assert np.abs(z).max() < 1
    assert np.abs(z).max() > 0.99


def test_walks_start_uniformly():
    assert stats.kstest(walks(2_000, 2)[0], "uniform", args=(-1, 2)).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.5, 3.0])
def test_every_step_is_a_truncated_normal_everywhere_in_the_box(sigma):
    """Each step's rank under scipy's law is uniform, in the middle and beside the walls."""
    z = walks(30, 1_500, sigma=sigma)
    at, to = z[:-1].ravel(), z[1:].ravel()
    rank = stats.truncnorm.cdf(to, (-1 - at) / sigma, (1 - at) / sigma, loc=at, scale=sigma)
    for place in (np.abs(at) <= 1, np.abs(at) < 0.5, at > 0.9, at < -0.9):
        assert stats.kstest(rank[place], "uniform").pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.05, 0.1])
def test_far_from_the_walls_the_step_s_standard_deviation_is_sigma(sigma):
    z = walks(30, 3_000, sigma=sigma)
    step = np.diff(z, axis=0)[np.abs(z[:-1]) < 1 - 6 * sigma]
    # The error of a standard deviation is sigma / sqrt(2 n); five of them.
    assert step.std() == pytest.approx(sigma, abs=5 * sigma / np.sqrt(2 * len(step)))
    assert step.mean() == pytest.approx(0, abs=5 * sigma / np.sqrt(len(step)))


def test_columns_walk_independently_of_each_other():
    step = np.diff(walks(10, 10_000), axis=0)
    correlation = np.corrcoef(step.T)[np.triu_indices(10, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(10_000)


# Walks on the sphere


@pytest.mark.parametrize("width", [2, 3])
def test_on_the_sphere_every_sample_has_unit_norm(width):
    rec = small(space="sphere", n_observed=width, n_hidden=3)
    for z, n in ((rec.labels["z2"], width), (rec.latents["z1"], 3)):
        assert z.shape[1] == n
        assert np.linalg.norm(z, axis=1) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_the_mean_cosine_of_a_step_is_the_ratio_of_bessel_functions(width, sigma):
    z = walks(width, 20_000, space="sphere", sigma=sigma)
    cosine = (z[1:] * z[:-1]).sum(axis=1)
    order, kappa = width / 2, 1 / sigma**2
    expected = ive(order, kappa) / ive(order - 1, kappa)
    assert cosine.mean() == pytest.approx(expected, abs=5 * cosine.std() / np.sqrt(len(cosine)))


def test_on_the_circle_turns_are_von_mises():
    z = walks(2, 20_000, space="sphere", sigma=0.4)
    turn = np.angle((z[1:, 0] + 1j * z[1:, 1]) * (z[:-1, 0] - 1j * z[:-1, 1]))
    assert stats.kstest(turn, stats.vonmises(1 / 0.4**2).cdf).pvalue > 1e-3


def test_on_the_sphere_cosines_follow_von_mises_fisher_and_all_directions_are_alike():
    kappa = 1 / 0.4**2
    z = walks(3, 20_000, space="sphere", sigma=0.4)
    at, to = z[:-1], z[1:]
    cosine = (at * to).sum(axis=1)
    rank = np.expm1(kappa * (cosine + 1)) / np.expm1(2 * kappa)
    assert stats.kstest(rank, "uniform").pvalue > 1e-3
    # Azimuth of the step around the point it leaves, from an arbitrary direction.
    east = np.cross(at, [0.3, 0.5, -0.8])
    north = np.cross(at, east)
    azimuth = np.arctan2((to * east).sum(axis=1), (to * north).sum(axis=1))
    assert stats.kstest(azimuth, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3


# Mixing


def test_moving_z2_alone_moves_exactly_the_neurons_connected_to_it():
    """Correlation changes z2 and nothing else: z1, the mixing and the seed stay."""
    here, there = small(), small(correlation=0.6)
    assert np.array_equal(here.latents["z1"], there.latents["z1"])
    moved = (here.neural != there.neural).mean(axis=0)
    assert (moved[~HALVES["z2"]] == 0).all()
    assert (moved[HALVES["z2"]] > 0.99).all()


def test_moving_z1_alone_moves_every_neuron():
    """The same with the roles changed: the second factor is the one that correlation moves."""
    order = {"z2": 2, "z1": 2}
    here, there = (
        small(factors=order, wiring=HALVES, correlation=correlation) for correlation in (0.0, 0.6)
    )
    assert np.array_equal(here.latents["z2"], there.latents["z2"])
    assert ((here.neural != there.neural).mean(axis=0) > 0.99).all()


def test_the_numerical_jacobian_of_the_mixing_is_zero_where_the_truth_says_so():
    factors = {"z1": 3, "z2": 2}
    rng = np.random.default_rng(0)
    z = {name: rng.uniform(-1, 1, size=(40, width)) for name, width in factors.items()}

    def mixed(latents):
        return _mix(latents, HALVES, np.random.default_rng(1))

    for name, width in factors.items():
        slope = np.zeros((width, 50))
        for k in range(width):
            moved = z[name].copy()
            moved[:, k] += 1e-6
            slope[k] = np.abs(mixed({**z, name: moved}) - mixed(z)).max(axis=0) / 1e-6
        assert np.array_equal(slope.max(axis=0) > 0, HALVES[name])
        assert slope[:, HALVES[name]].min() > 1e-3


def test_the_mixing_is_a_leaky_relu_between_two_linear_maps():
    """With one latent the slopes on either side are 1 and 0.2 of each other, without a bias."""
    rec = small(n_hidden=1, n_observed=1)
    z = rec.latents["z1"][:, 0]
    slope = rec.neural[:, :25] / z[:, None]
    clear = np.abs(z) > 0.05
    up, down = slope[clear & (z > 0)], slope[clear & (z < 0)]
    assert np.ptp(up, axis=0) == pytest.approx(0, abs=1e-5)
    assert np.ptp(down, axis=0) == pytest.approx(0, abs=1e-5)
    ratio = down.mean(axis=0) / up.mean(axis=0)
    assert np.ptp(ratio) < 1e-4
    assert min(abs(ratio[0] - 0.2), abs(ratio[0] - 5)) < 1e-4


def test_the_odd_part_of_the_mixing_is_linear_and_no_part_is_more_than_that():
    """For h = LeakyReLU_0.2(u): h(u) - h(-u) = 1.2 u, and h(c u) = c h(u) for c > 0."""
    rng = np.random.default_rng(2)
    z = {"z1": rng.uniform(-1, 1, (200, 3)), "z2": rng.uniform(-1, 1, (200, 2))}

    def mixed(scale):
        scaled = {name: scale * values for name, values in z.items()}
        return _mix(scaled, HALVES, np.random.default_rng(1))

    odd, whole = mixed(1) - mixed(-1), np.concatenate(list(z.values()), axis=1)
    linear = np.linalg.lstsq(whole, odd, rcond=None)[0]
    assert whole @ linear == pytest.approx(odd, abs=1e-9)
    assert linear[3:, :25] == pytest.approx(0, abs=1e-9)
    assert mixed(2.5) == pytest.approx(2.5 * mixed(1), abs=1e-9)
    even = mixed(1) + mixed(-1)
    assert np.linalg.norm(even - whole @ np.linalg.lstsq(whole, even, rcond=None)[0]) > 1


def test_each_half_has_as_many_dimensions_as_factors_drive_it():
    rec = synthetic(n_hidden=3, n_observed=2, n_steps=2_000)
    assert np.linalg.matrix_rank(rec.neural[:, :25], tol=1e-2) == 3
    assert np.linalg.matrix_rank(rec.neural[:, 25:], tol=1e-2) == 5


@pytest.mark.parametrize(("size", "worst"), [(1, 1.0001), (2, 1.1), (3, 1.1), (6, 2.5)])
def test_mixing_matrices_are_well_conditioned_with_unit_columns(size, worst):
    for seed in range(3):
        matrix = _well_conditioned(size, np.random.default_rng(seed))
        assert matrix.shape == (size, size)
        assert np.linalg.norm(matrix, axis=0) == pytest.approx(1)
        assert np.linalg.cond(matrix) < worst


# Harder variants


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.95])
def test_correlation_mixes_z1_into_z2_column_by_column(rho):
    plain = synthetic(n_hidden=3, n_observed=2, n_steps=2_000)
    mixed = synthetic(n_hidden=3, n_observed=2, n_steps=2_000, correlation=rho)
    z1, z2 = plain.latents["z1"], plain.latents["z2"]
    assert mixed.latents["z2"] == pytest.approx(rho * z1[:, :2] + np.sqrt(1 - rho**2) * z2)
    assert np.array_equal(mixed.labels["z2"], mixed.latents["z2"])
    assert np.array_equal(mixed.latents["z1"], z1)


def test_correlated_columns_have_that_correlation_and_the_others_none():
    rec = synthetic(n_hidden=2, n_observed=2, n_steps=300_000, correlation=0.7, sigma=0.5)
    found = np.corrcoef(rec.latents["z1"].T, rec.latents["z2"].T)[:2, 2:]
    assert found == pytest.approx(0.7 * np.eye(2), abs=0.03)


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_noise_is_gaussian_white_and_in_units_of_each_neuron(noise):
    clean, noisy = small(n_steps=20_000), small(n_steps=20_000, noise=noise)
    added = noisy.neural.astype(float) - clean.neural
    share = added.std(axis=0) / clean.neural.std(axis=0)
    assert share == pytest.approx(noise, rel=5 / np.sqrt(2 * 20_000))
    standard = added / added.std(axis=0)
    assert stats.kstest(standard[::10].ravel(), "norm").pvalue > 1e-3
    assert np.abs((standard[1:] * standard[:-1]).mean(axis=0)).max() < 5 / np.sqrt(20_000)
    across = np.corrcoef(added.T)[np.triu_indices(50, 1)]
    assert np.abs(across).max() < 5 / np.sqrt(20_000)


def test_counts_are_poisson_with_the_rate_that_was_promised():
    clean, counted = small(n_steps=20_000), small(n_steps=20_000, counts=True)
    counts = counted.neural.astype(float)
    assert (counts >= 0).all()
    assert np.array_equal(counts, np.round(counts))
    x = clean.neural.astype(float)
    rate = np.exp(0.8 * (x - x.mean(axis=0)) / x.std(axis=0) - 0.5)
    # Mean and variance of a Poisson are its rate, at every level of it.
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1.5), (1.5, 9)):
        here = (rate >= low) & (rate < high)
        surprise = (counts - rate)[here].sum() / np.sqrt(rate[here].sum())
        assert abs(surprise) < 5
        assert np.square((counts - rate)[here] / np.sqrt(rate[here])).mean() == pytest.approx(
            1, abs=0.05
        )
    surprise = (counts - rate).sum(axis=0) / np.sqrt(rate.sum(axis=0))
    assert np.abs(surprise).max() < 5


def test_counts_and_noise_together_start_from_the_noisy_activity():
    noisy, counted = small(noise=0.5), small(noise=0.5, counts=True)
    corr = [np.corrcoef(noisy.neural[:, i], counted.neural[:, i])[0, 1] for i in range(50)]
    assert min(corr) > 0.4


@pytest.mark.parametrize(("connected", "n"), [(0.0, 0), (0.1, 5), (0.5, 25), (0.9, 45), (1.0, 50)])
def test_the_last_share_of_the_neurons_is_connected(connected, n):
    rec = small(connected=connected, n_steps=100)
    assert np.array_equal(rec.ground_truth["z2"], np.arange(50) >= 50 - n)
    moved = (rec.neural != small(connected=connected, n_steps=100, correlation=0.5).neural).any(0)
    assert np.array_equal(moved, rec.ground_truth["z2"])


def test_the_number_of_neurons_is_as_asked():
    rec = small(n_neurons=12, connected=0.25, n_steps=100)
    assert rec.neural.shape == (100, 12)
    assert rec.ground_truth["z2"].sum() == 3


# A wiring of one's own


def test_any_number_of_factors_drives_the_neurons_it_is_wired_to():
    wiring = {
        "position": [1, 1, 1, 0, 0, 0, 0, 1] * 3,
        "speed": [0, 1, 1, 1, 1, 0, 0, 0] * 3,
        "reward": [0, 0, 1, 0, 1, 1, 0, 0] * 3,
    }
    rec = synthetic(
        factors={"position": 2, "speed": 1, "reward": 1},
        wiring=wiring,
        observed=["reward", "position"],
        n_steps=2_000,
    )
    truth = {name: np.array(row, dtype=bool) for name, row in wiring.items()}
    assert list(rec.labels) == ["reward", "position"]
    assert list(rec.latents) == ["position", "speed", "reward"]
    for name, row in truth.items():
        assert np.array_equal(rec.ground_truth[name], row)
    widths = {"position": 2, "speed": 1, "reward": 1}
    for i in range(8):
        parents = [name for name in widths if truth[name][i]]
        group = rec.neural[:, i::8]
        if parents:
            z = np.concatenate([rec.latents[name] for name in parents], axis=1)
            assert np.linalg.matrix_rank(group, tol=1e-2) == min(3, z.shape[1])
            assert explained(z, group) > 0.5
        others = [rec.latents[name] for name in widths if name not in parents]
        if parents and others:
            assert explained(np.concatenate(others, axis=1), group) < 0.4


def explained(z, x):
    """Largest share of a neuron's variance that z explains linearly."""
    z = np.column_stack([z, np.ones(len(z))])
    rest = x - z @ np.linalg.lstsq(z, x, rcond=None)[0]
    return (1 - rest.var(axis=0) / x.var(axis=0)).max()


def test_neurons_that_nothing_drives_are_white_standard_normal():
    rec = synthetic(
        factors={"a": 2, "b": 1},
        wiring={"a": [1, 0, 0, 1], "b": [1, 0, 0, 0]},
        observed="a",
        n_steps=20_000,
    )
    noise = rec.neural[:, 1:3].astype(float)
    assert stats.kstest(noise[:, 0], "norm").pvalue > 1e-3
    assert stats.kstest(noise[:, 1], "norm").pvalue > 1e-3
    assert np.abs((noise[1:] * noise[:-1]).mean(axis=0)).max() < 5 / np.sqrt(20_000)
    assert explained(np.concatenate(list(rec.latents.values()), axis=1), noise) < 5e-3
    assert not any(rec.ground_truth[name][1:3].any() for name in ("a", "b"))


# Seeds and speed


@pytest.mark.parametrize(
    "variant",
    [{}, {"noise": 0.3}, {"counts": True}, {"space": "sphere"}, {"correlation": 0.5}],
)
def test_the_same_seed_gives_the_same_bits_and_another_seed_other_data(variant):
    first, again, other = (small(n_steps=200, seed=seed, **variant) for seed in (3, 3, 4))
    assert np.array_equal(first.neural, again.neural)
    assert np.array_equal(first.labels["z2"], again.labels["z2"])
    assert not np.array_equal(first.neural, other.neural)
    assert not np.array_equal(first.labels["z2"], other.labels["z2"])


def test_global_random_states_are_neither_read_nor_changed():
    np.random.seed(0)
    first = small(n_steps=50)
    after = np.random.random()
    np.random.seed(0)
    assert np.random.random() == after
    assert np.array_equal(first.neural, small(n_steps=50).neural)


def test_100000_steps_take_about_a_second():
    synthetic(n_steps=100)
    start = time.perf_counter()
    synthetic(n_steps=100_000)
    assert time.perf_counter() - start < 3


# Bad arguments

TWO = {"a": 2, "b": 2}
WIRED = {"a": [1, 0], "b": [1, 1]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_hidden": 0}, "'z1' has 0 dimensions, needs 1 or more"),
        ({"n_observed": -1}, "'z2' has -1 dimensions, needs 1 or more"),
        ({"n_observed": 1, "space": "sphere"}, "'z2' has 1 dimensions, needs 2 or more"),
        ({"n_steps": 1}, "n_steps must be a whole number of 2 or more, got 1"),
        ({"n_neurons": 0}, "n_neurons.*got 0"),
        ({"n_neurons": -3}, "n_neurons.*got -3"),
        ({"observed": "z3"}, "observed must be 'z1' or 'z2', got 'z3'"),
        ({"connected": 1.5}, "connected must be a share between 0 and 1, got 1.5"),
        ({"connected": -0.1}, "connected must be a share between 0 and 1, got -0.1"),
        ({"connected": float("nan")}, "connected must be a share between 0 and 1, got nan"),
        ({"correlation": 1.0}, "correlation must be at least 0 and below 1, got 1.0"),
        ({"correlation": -0.5}, "correlation must be at least 0 and below 1, got -0.5"),
        ({"correlation": float("nan")}, "correlation must be .*, got nan"),
        ({"correlation": 0.5, "n_hidden": 1}, "second no wider than the first.*'z1': 1"),
        ({"correlation": 0.5, "space": "sphere"}, "two factors in a box.*in a sphere"),
        ({"noise": -1.0}, "noise must be 0 or more and finite, got -1.0"),
        ({"noise": float("nan")}, "noise must.*got nan"),
        ({"noise": float("inf")}, "noise must.*got inf"),
        ({"sigma": 0.0}, "sigma must be above 0 and below 100, got 0.0"),
        ({"sigma": -0.1}, "sigma must be above 0 and below 100, got -0.1"),
        ({"sigma": float("nan")}, "sigma must be above 0 and below 100, got nan"),
        ({"space": "torus"}, "space must be 'box' or 'sphere', got 'torus'"),
        ({"wiring": WIRED}, "wiring needs factors"),
        ({"factors": TWO, "observed": "a"}, r"wiring must name the factors \['a', 'b'\], got \[\]"),
        (
            {"factors": TWO, "observed": "a", "wiring": {"a": [1, 0]}},
            r"wiring must name the factors \['a', 'b'\], got \['a'\]",
        ),
        (
            {"factors": TWO, "observed": "a", "wiring": {"a": [1, 0], "b": [1, 1, 1]}},
            "wiring must hold bool arrays of one length",
        ),
        (
            {"factors": TWO, "observed": "a", "wiring": {"a": [[1, 0]], "b": [[1, 1]]}},
            "wiring must hold bool arrays of one length",
        ),
        (
            {"factors": TWO, "observed": "a", "wiring": {"a": [3, 4], "b": [7, 9]}},
            "wiring must hold bool",
        ),
        (
            {"factors": TWO, "observed": "c", "wiring": WIRED},
            r"observed must name factors of \['a', 'b'\], got 'c'",
        ),
        (
            {"factors": {"a": 1, "b": 1, "c": 1}, "observed": "a", "correlation": 0.5}
            | {"wiring": {"a": [1], "b": [1], "c": [1]}},
            "correlation needs two factors",
        ),
        ({"n_steps": 10.5}, "n_steps.*10.5"),
        ({"n_hidden": 1.5}, "'z1'.*1.5"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named_with_its_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthetic(**{"n_steps": 10} | arguments)


def test_every_bad_argument_is_named_in_one_error():
    with pytest.raises(ValueError) as caught:
        synthetic(n_hidden=0, n_steps=1, noise=-1, sigma=-1, correlation=2, space="torus")
    for name in ("'z1'", "n_steps", "noise", "sigma", "correlation", "space"):
        assert name in str(caught.value)


def test_steps_without_end_are_refused_not_waited_for():
    """In a process of its own, since compiled loops do not listen to signals."""
    code = "from xcebra.datasets import synthetic; synthetic(n_steps=10, sigma=float('inf'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    assert "InputError: sigma must" in done.stderr
