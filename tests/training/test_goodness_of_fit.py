"""Whether an objective was learned: sure where it was, and rarely where there is nothing."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.signal import lfilter

from xcebra.data.epochs import Epochs
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.batches import Objective, Regression
from xcebra.training.goodness_of_fit import (
    LEVEL,
    N_SHIFTS,
    GoodnessOfFit,
    autocorrelation_time,
    held_out_fit,
    margin,
    n_collapsed,
    training_fit,
    with_decoding,
)
from xcebra.training.infonce import chance_level
from xcebra.training.loop import TrainConfig
from xcebra.training.sampling import NearestLabel, SameClass, TimeOffset
from xcebra.training.shift_tests import _information

SMALLEST = 1 / (1 + N_SHIFTS)


@pytest.fixture(autouse=True)
def one_thread():
    """Idle threads that wait slow small work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config(seed=0, **changed):
    usual = {
        "steps": 1,
        "batch_size": 128,
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "schedule": "constant",
        "jacobian_weight": 0.0,
        "temperature": 0.3,
        "similarity": "euclidean",
        "include_positive": True,
        "penalty_samples": 256,
        "seed": seed,
    }
    return TrainConfig(**{**usual, **changed})


def autoregressive(n, d, rho, seed):
    """Independent AR(1) columns of variance 1, stationary from the start."""
    shocks = np.random.default_rng(seed).standard_normal((n, d))
    shocks[1:] *= math.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], shocks, axis=0)


def walk(n, d, seed):
    """A random walk, standardised over its own course."""
    x = np.cumsum(np.random.default_rng(seed).standard_normal((n, d)), axis=0)
    return (x - x.mean(axis=0)) / x.std(axis=0)


def tensor(z):
    return torch.from_numpy(z.astype(np.float32))


def label_fit(z, label, seed=0, epochs=None, valid=None, **options):
    """Judge a continuous label against an embedding of the same samples."""
    epochs = Epochs.check(epochs, len(label))
    times = epochs.indices()
    pairs = NearestLabel(label, epochs, 1, valid)
    objective = Objective("label", slice(0, z.shape[1]), pairs)
    slowness = autocorrelation_time(label[times])
    return held_out_fit(objective, tensor(z)[times], times, config(seed, **options), slowness)


def time_fit(z, offset=1, seed=0, epochs=None):
    epochs = Epochs.check(epochs, len(z))
    times = epochs.indices()
    objective = Objective("time", slice(0, z.shape[1]), TimeOffset(epochs, offset))
    slowness = autocorrelation_time(z[times])
    return held_out_fit(objective, tensor(z)[times], times, config(seed), slowness)


def regression_fit(z, target, seed=0, valid=None):
    times = np.arange(len(z))
    valid = np.ones(len(z), dtype=bool) if valid is None else valid
    objective = Regression("label", slice(0, z.shape[1]), target, valid)
    slowness = autocorrelation_time(target[valid])
    return held_out_fit(objective, tensor(z), times, config(seed), slowness)


@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9, 0.95])
def test_autocorrelation_time_of_an_autoregressive_process(rho):
    """The first whole lag past -1 / log(rho), within the error of 50,000 samples."""
    found = autocorrelation_time(autoregressive(50_000, 1, rho, seed=0))
    exact = -1 / math.log(rho)
    assert math.floor(0.88 * exact) <= found <= math.floor(1.12 * exact) + 1


def test_autocorrelation_time_of_a_sine_is_where_its_cosine_falls_below_one_over_e():
    x = np.sin(2 * np.pi * np.arange(10_000) / 100)[:, None]
    assert autocorrelation_time(x) == math.floor(100 * math.acos(1 / math.e) / (2 * math.pi)) + 1


def test_autocorrelation_time_is_that_of_the_slowest_column():
    slow, fast = (autoregressive(5000, 1, rho, seed=1) for rho in (0.95, 0.2))
    constant = np.ones((5000, 1))
    both = np.hstack([fast, slow, constant])
    assert autocorrelation_time(both) == autocorrelation_time(slow)
    assert autocorrelation_time(3 * both + 7) == autocorrelation_time(slow)


def test_autocorrelation_time_is_one_at_least():
    assert autocorrelation_time(np.ones((50, 2))) == 1
    assert autocorrelation_time(np.random.default_rng(0).standard_normal((500, 1))) == 1
    assert autocorrelation_time(np.array([[1.0], [-1.0]] * 50)) == 1


@pytest.mark.parametrize("similarity", ["euclidean", "cosine"])
@pytest.mark.parametrize("include_positive", [True, False])
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_a_label_that_is_the_embedding_is_learned(rho, include_positive, similarity):
    z = autoregressive(400, 2, rho, seed=0)
    found = label_fit(z, z, include_positive=include_positive, similarity=similarity)
    assert found.learned is True
    assert found.p_value == SMALLEST
    assert found.loss < found.shifted
    if rho > 0:  # steps of white noise lead so far away that no positive is near
        assert found.loss < found.chance


def test_a_noisy_linear_image_of_the_label_is_learned_in_every_seed():
    for seed in range(5):
        label = autoregressive(600, 1, 0.9, seed)
        noise = np.random.default_rng(100 + seed).standard_normal((600, 2))
        assert label_fit(label * [1.0, -2.0] + 0.5 * noise, label, seed).p_value == SMALLEST


def test_classes_that_separate_the_embedding_are_learned_and_others_are_not():
    rng = np.random.default_rng(0)
    epochs = Epochs.check(None, 400)
    z = autoregressive(400, 2, 0.9, seed=0)
    own = (z[:, 0] > 0).astype(np.int64)
    found = []
    for codes in (own, rng.integers(2, size=400)):
        objective = Objective("label", slice(0, 2), SameClass(codes, epochs))
        slowness = autocorrelation_time(codes[:, None].astype(float))
        found.append(held_out_fit(objective, tensor(z), np.arange(400), config(), slowness))
    assert [f.learned for f in found] == [True, False]


def test_samples_are_found_wherever_the_held_out_epochs_lie():
    """The same samples, one gap made longer: the same verdict, the same loss."""
    z = autoregressive(301, 2, 0.8, seed=0)
    apart = np.full((1000, 2), 1e3)
    apart[100:250], apart[800:950] = z[:150], z[151:]
    near = label_fit(z, z, epochs=[(0, 150), (151, 301)])
    assert label_fit(apart, apart, epochs=[(100, 250), (800, 950)]) == near
    assert near.p_value == SMALLEST


def test_missing_labels_take_no_part():
    z = autoregressive(400, 2, 0.8, seed=0)
    label = z.copy()
    valid = np.random.default_rng(0).random(400) < 0.7
    label[~valid] = 1e6
    found = label_fit(z, label, valid=valid)
    assert found.p_value == SMALLEST
    assert found.chance == chance_level(int(valid.sum()), True)


def test_only_the_objectives_own_block_is_judged():
    label = autoregressive(400, 1, 0.9, seed=0)
    z = np.hstack([autoregressive(400, 1, 0.9, seed=1), label])
    pairs = NearestLabel(label, Epochs.check(None, 400), 1)
    learned = [
        held_out_fit(
            Objective("label", block, pairs), tensor(z), np.arange(400), config(), 10
        ).learned
        for block in (slice(0, 1), slice(1, 2))
    ]
    assert learned == [False, True]


def test_the_same_seed_gives_the_same_verdict():
    z, label = autoregressive(300, 2, 0.5, seed=0), autoregressive(300, 1, 0.5, seed=1)
    assert label_fit(z, label, seed=3) == label_fit(z, label, seed=3)


def test_a_constant_embedding_has_the_chance_loss_and_is_not_learned():
    found = label_fit(np.ones((300, 2)), autoregressive(300, 1, 0.5, seed=0))
    assert found.loss == pytest.approx(found.chance, rel=1e-6)
    assert found.chance == chance_level(300, True)
    assert found.p_value == 1.0
    assert found.learned is False


def test_chance_counts_no_more_negatives_than_were_used():
    z = autoregressive(1500, 1, 0.5, seed=0)
    assert label_fit(z, z).chance == chance_level(1024, True)


def test_p_values_of_labels_that_have_nothing_to_do_with_the_embedding_are_uniform():
    p = [
        label_fit(autoregressive(100, 2, 0.0, s), autoregressive(100, 1, 0.0, 1000 + s), s).p_value
        for s in range(200)
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.001


@pytest.mark.parametrize("fit", [label_fit, regression_fit])
def test_an_independent_random_walk_is_not_learned(fit):
    """At a level of 0.01, four or more false alarms in 50 have a chance below 0.002."""
    assert stats.binom.sf(3, 50, LEVEL) < 0.002
    alarms = [fit(walk(400, 2, s), walk(400, 2, 1000 + s), s).learned for s in range(50)]
    assert sum(alarms) <= 3


def test_an_independent_label_is_not_learned_from_many_short_epochs():
    epochs = [(i, i + 30) for i in range(0, 900, 90)]
    alarms = [
        label_fit(
            autoregressive(900, 2, 0.99, s), autoregressive(900, 2, 0.99, 1000 + s), s, epochs
        ).learned
        for s in range(50)
    ]
    assert sum(alarms) <= 3


def test_time_is_learned_from_a_process_with_memory():
    for seed in range(5):
        found = time_fit(autoregressive(400, 2, 0.9, seed), seed=seed)
        assert found.learned is True
        assert found.p_value == SMALLEST


def test_time_is_not_learned_from_white_noise():
    """At a level of 0.01, three or more false alarms in 20 have a chance of 0.001."""
    alarms = sum(time_fit(autoregressive(300, 2, 0.0, s), seed=s).learned for s in range(20))
    assert alarms <= 2


def test_p_values_of_time_on_white_noise_are_uniform():
    p = [time_fit(autoregressive(100, 2, 0.0, s), seed=s).p_value for s in range(100)]
    assert stats.kstest(p, "uniform").pvalue > 0.001


@pytest.mark.parametrize(("rho", "offset", "n"), [(0.6, 2, 200), (0.95, 8, 200), (0.9, 8, 400)])
def test_time_is_learned_at_an_offset_as_long_as_the_memory(rho, offset, n):
    learned = [time_fit(autoregressive(n, 2, rho, s), offset, seed=s).learned for s in range(20)]
    assert sum(learned) >= 18


def test_an_objective_without_pairs_is_not_learned():
    n = 60
    pairs = SameClass(np.arange(n), Epochs.check(None, n))  # every class has one member
    z = tensor(autoregressive(n, 2, 0.5, seed=0))
    found = held_out_fit(Objective("label", slice(0, 2), pairs), z, np.arange(n), config(), 1)
    assert not found.learned


def test_an_embedding_of_nan_is_not_learned():
    assert not time_fit(np.full((100, 2), np.nan)).learned


def test_a_regression_that_hits_its_target_is_learned():
    z = autoregressive(400, 2, 0.9, seed=0)
    found = regression_fit(z, z)
    assert found.loss == pytest.approx(0.0, abs=1e-12)
    assert found.chance == 1.0
    assert found.p_value == SMALLEST
    assert found.learned is True


def test_a_regression_loss_is_the_mean_squared_error_where_the_label_is_known():
    z, target = autoregressive(300, 2, 0.0, seed=0), autoregressive(300, 2, 0.0, seed=1)
    valid = np.random.default_rng(0).random(300) < 0.5
    target[~valid] = np.nan
    found = regression_fit(z, target, valid=valid)
    assert found.loss == pytest.approx(np.square(z - target)[valid].mean(), rel=1e-5)


def test_p_values_of_regression_on_noise_are_uniform():
    p = [
        regression_fit(
            autoregressive(200, 1, 0.0, s), autoregressive(200, 1, 0.0, 1000 + s), s
        ).p_value
        for s in range(200)
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.001


def test_the_chance_of_regression_is_the_loss_of_a_constant():
    target = walk(300, 1, seed=0)
    found = regression_fit(np.zeros((300, 1)), target)
    assert found.loss == pytest.approx(found.chance, rel=1e-6)
    assert found.p_value == 1.0


def test_without_held_out_samples_there_are_losses_and_no_verdict():
    history = {
        "loss/label": np.concatenate([np.full(50, 9.0), np.full(99, 2.0), [np.nan]]),
        "chance/label": np.concatenate([np.full(50, 9.0), np.full(99, 4.0), [np.nan]]),
    }
    found = training_fit("label", history)
    assert (found.loss, found.chance) == (2.0, 4.0)
    assert found.learned is found.p_value is found.shifted is None


def time_margin(z, offset=1, seed=0, **options):
    pairs = TimeOffset(Epochs.check(None, len(z)), offset)
    objective = Objective("time", slice(0, z.shape[1]), pairs)
    return margin(objective, tensor(z), np.arange(len(z)), config(seed, **options))


def test_the_margin_of_a_constant_embedding_is_zero():
    for include_positive in (True, False):
        found = time_margin(np.ones((300, 2)), include_positive=include_positive)
        assert found == pytest.approx(0.0, abs=1e-6)


def test_the_margin_is_positive_with_memory_and_negative_on_white_noise():
    assert time_margin(autoregressive(500, 2, 0.99, seed=0)) > 0.5
    assert time_margin(autoregressive(500, 2, 0.0, seed=0)) < 0


def test_the_margin_is_chance_minus_loss_by_hand():
    """Two far clusters, one per half: a positive at distance 0, half of the negatives too."""
    z = np.repeat([[0.0], [1e3]], 64, axis=0)
    times, epochs = np.arange(128), Epochs.check([(0, 64), (64, 128)], 128)
    objective = Objective("time", slice(0, 1), TimeOffset(epochs, 1))
    found = margin(objective, tensor(z), times, config(include_positive=False))
    drawn = np.random.default_rng(0)
    rows = drawn.permutation(np.setdiff1d(times, [63, 127]))[:128]
    negatives = drawn.integers(128, size=128)
    near = np.array([np.sum(negatives // 64 == row // 64) for row in rows])
    assert found == pytest.approx(math.log(128) - np.log(near).mean(), rel=1e-5)


def test_a_margin_without_pairs_is_an_error():
    with pytest.raises(ValueError, match="no pair for the 'time' objective"):
        time_margin(np.ones((5, 1)), offset=5)


# Information and collapse


def on_circle(angles):
    return tensor(np.column_stack([np.cos(angles), np.sin(angles)]))


@pytest.mark.parametrize("concentration", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("n_negatives", [256, 1024])
def test_information_of_angles_that_differ_by_von_mises_noise(concentration, n_negatives):
    """The cosine is their best critic: what they share is known, whatever the negatives."""
    rng = np.random.default_rng(0)
    first, other = rng.uniform(0, 2 * np.pi, 10_000), rng.uniform(0, 2 * np.pi, n_negatives)
    second = first + rng.vonmises(0, concentration, 10_000)
    found = _information(
        on_circle(first),
        on_circle(second),
        on_circle(other),
        # Too sure by far, or not at all: the factor makes up for it.
        config(similarity="cosine", temperature=0.25 / concentration),
    )
    exact = math.log(2 * np.pi) - stats.vonmises(concentration).entropy()
    assert found == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_information_never_exceeds_what_gaussians_share(rho):
    x, noise, other = np.random.default_rng(0).standard_normal((3, 10_000, 1))
    y = rho * x + math.sqrt(1 - rho**2) * noise
    found = _information(tensor(x), tensor(y), tensor(other[:1000]), config())
    exact = -0.5 * math.log(1 - rho**2)
    assert found <= exact + 0.02
    assert found >= 0.9 * exact - 0.05


def test_an_embedding_too_sure_of_itself_has_the_same_information():
    """Its held-out loss lies above chance, and yet it tells as much."""
    z = autoregressive(2000, 2, 0.98, seed=0)
    label = z + 0.3 * autoregressive(2000, 2, 0.0, seed=1)
    sure, modest = (label_fit(z, label, temperature=each) for each in (0.01, 0.3))
    assert sure.loss > sure.chance
    assert modest.loss < modest.chance
    assert sure.learned is True
    assert sure.information == pytest.approx(modest.information, rel=0.05)


def test_an_unrelated_label_has_hardly_any_information():
    z, label = autoregressive(2000, 2, 0.9, seed=0), autoregressive(2000, 2, 0.9, seed=1)
    assert label_fit(z, label).effect < 0.05


def test_the_effect_hardly_depends_on_how_much_was_held_out():
    effects = [label_fit(z, z).effect for z in (autoregressive(n, 2, 0.9, 0) for n in (400, 4000))]
    assert effects[0] == pytest.approx(effects[1], abs=0.1)


def test_the_effect_of_gaussians_is_their_squared_correlation():
    assert GoodnessOfFit(1.0, 2.0, True, information=-0.5 * math.log(1 - 0.36)).effect == (
        pytest.approx(0.36)
    )
    assert GoodnessOfFit(1.0, 2.0, None).effect is None


def test_the_effect_of_a_regression_is_what_it_explains():
    target = autoregressive(4000, 1, 0.9, seed=0)
    target /= target.std()
    z = target + 0.5 * autoregressive(4000, 1, 0.0, seed=1)
    assert regression_fit(z, target).effect == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("similarity", ["euclidean", "cosine"])
def test_directions_that_hold_nothing_are_counted(similarity):
    z = autoregressive(1000, 3, 0.5, seed=0)
    mixed = z @ np.random.default_rng(0).standard_normal((3, 3))
    assert n_collapsed(tensor(mixed), config(similarity=similarity)) == 0
    flat = np.column_stack([z[:, :2], z[:, 0] + z[:, 1] + 1e-3 * z[:, 2]])
    assert n_collapsed(tensor(flat), config(similarity=similarity)) == 1
    assert n_collapsed(tensor(np.ones((50, 3))), config(similarity=similarity)) == 3


def test_all_nulls_are_kept_with_the_loss():
    z = autoregressive(400, 2, 0.9, seed=0)
    found = label_fit(z, z)
    assert len(found.nulls) == N_SHIFTS
    assert np.median(found.nulls) == found.shifted
    assert found.p_value == (1 + np.sum(np.array(found.nulls) <= found.loss)) / (1 + N_SHIFTS)


# Verdicts


def read_with(p_value, r2=0.4, **options):
    usual = {"error": 12.0, "chance_error": 88.0, "unit": "degrees"}
    return Decoding(r2, p_value, r2, **{**usual, **options})


def loss_fit(p_value):
    return GoodnessOfFit(4.0, 6.0, p_value <= LEVEL, p_value, loss_p_value=p_value)


@pytest.mark.parametrize(
    ("decoding_p", "r2", "loss_p", "verdict"),
    [
        (0.005, 0.05, 0.005, "yes"),
        (0.01, 0.05, 0.05, "yes"),
        (0.005, 0.05, None, "yes"),  # nothing held out: the decoding alone
        (0.005, 0.1, 0.06, "unclear"),  # it is there, and the embedding has not learned it
        (0.005, 0.11, 0.06, "yes"),  # it is plainly there
        (0.02, 0.4, 0.005, "unclear"),
        (0.015, 0.4, 0.3, "unclear"),
        (0.025, 0.4, 0.005, "no"),
        (0.6, 0.4, None, "no"),
    ],
)
def test_the_verdict_on_a_label(decoding_p, r2, loss_p, verdict):
    fit = GoodnessOfFit(4.0, 6.0, None) if loss_p is None else loss_fit(loss_p)
    found = with_decoding(fit, read_with(decoding_p, r2))
    assert found.verdict == verdict
    assert found.learned is {"yes": True, "unclear": None, "no": False}[verdict]
    assert found.p_value == decoding_p
    assert found.loss_p_value == loss_p
    assert f"p = {decoding_p:.3f}" in found.explanation("heading")
    assert f"R^2 {r2:.2f}, median error 12 degrees, chance 88" in found.explanation("heading")


def test_what_cannot_be_judged_is_unclear():
    assert with_decoding(loss_fit(0.005), None).verdict == "unclear"
    assert GoodnessOfFit(4.0, 6.0, None).verdict == "unclear"
    # A label that is read worse than by its mean, and an embedding that is not a number.
    assert with_decoding(loss_fit(0.005), read_with(0.005, r2=-0.07)).verdict == "unclear"
    broken = GoodnessOfFit(math.nan, 6.0, None)
    assert with_decoding(broken, read_with(0.005)).verdict == "unclear"
    assert "could not be judged" in with_decoding(loss_fit(0.005), None).explanation("speed")


def test_the_explanation_says_what_is_wrong():
    no = with_decoding(loss_fit(0.005), read_with(0.4))
    assert no.explanation("heading").startswith(
        "heading was not found in the activity: on held-out time it is read no better than a "
        "shifted label (R^2 0.40"
    )
    weak = with_decoding(loss_fit(0.005), read_with(0.02)).explanation("heading")
    assert "hardly better than shifted labels" in weak
    unlearned = with_decoding(loss_fit(0.3), read_with(0.005, 0.05)).explanation("heading")
    assert "unclear whether the embedding has learned it" in unlearned
    assert unlearned.endswith("no lower than with shifted labels (p = 0.300)")
    assert loss_fit(0.005).explanation("time") == (
        "time was learned better than by chance on held-out samples "
        "(held-out loss 4.00, chance 6.00; p = 0.005)"
    )
    assert "time was learned no better than by chance" in loss_fit(0.3).explanation("time")


def test_labels_of_separate_stretches_are_refused_when_they_have_nothing_to_do_with_it():
    """Stretches as they are held out of a recording; at 0.01, three or more of 20 are unlikely."""
    stretches = [(k, k + 100) for k in range(450, 6_000, 1_000)]
    p = [
        label_fit(walk(6_000, 2, s), walk(6_000, 2, 1_000 + s), s, stretches).p_value
        for s in range(20)
    ]
    assert sum(each <= LEVEL for each in p) <= 2
    z = autoregressive(6_000, 2, 0.95, 0)
    assert label_fit(z, z, epochs=stretches).p_value == SMALLEST
