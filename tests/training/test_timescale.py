"""Correlations over time, offset and temperature, for processes whose answer is known."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from xcebra.data.epochs import Epochs
from xcebra.data.recording import Recording
from xcebra.networks.encoder import Inputs
from xcebra.training.timescale import (
    _SHARE,
    OFFSETS,
    choose_offset,
    choose_temperature,
    component_series,
    information,
    outlasts_offset,
    reliability,
    step_correlations,
)

WHITE = 0.0


def autoregressive(n, rhos, seed=0):
    """Independent AR(1) processes of variance 1, one column each, stationary from the start."""
    shocks = np.random.default_rng(seed).standard_normal((n, len(rhos)))
    columns = []
    for rho, e in zip(rhos, shocks.T, strict=True):
        e[1:] *= math.sqrt(1 - rho**2)
        columns.append(lfilter([1.0], [1.0, -rho], e))
    return np.stack(columns, axis=1)


def series(x):
    return lambda times: x[times]


def whole(x):
    return Epochs.check(None, len(x))


@pytest.mark.parametrize("offset", [1, 2, 5, 16])
@pytest.mark.parametrize("rhos", [[0.9], [0.5, 0.8, 0.95]])
def test_correlations_of_autoregressive_processes_fall_as_powers(rhos, offset):
    x = autoregressive(20_000, rhos)
    found = step_correlations(series(x), whole(x), offset, len(rhos))
    expected = np.sort(np.power(rhos, offset))[::-1]
    # Standard error of an autocorrelation by Bartlett: sqrt((1 + rho^2) / (1 - rho^2) / n).
    error = math.sqrt((1 + max(rhos) ** 2) / (1 - max(rhos) ** 2) / len(x))
    np.testing.assert_allclose(found, expected, atol=4 * error)


def test_correlations_do_not_depend_on_how_the_processes_are_mixed():
    x = autoregressive(5000, [0.5, 0.8, 0.95])
    mixing = np.random.default_rng(1).standard_normal((3, 3))
    plain = step_correlations(series(x), whole(x), 3, 3)
    mixed = step_correlations(series(x @ mixing + 100), whole(x), 3, 3)
    np.testing.assert_allclose(mixed, plain, rtol=1e-6)


def test_the_largest_correlations_are_kept_and_missing_ones_are_zero():
    x = autoregressive(5000, [0.5, 0.95])
    both = step_correlations(series(x), whole(x), 1, 2)
    assert step_correlations(series(x), whole(x), 1, 1).tolist() == [both[0]]
    assert step_correlations(series(x), whole(x), 1, 4)[2:].tolist() == [0.0, 0.0]
    assert both[0] > both[1]


def test_copies_of_a_column_add_no_correlation():
    x = autoregressive(2000, [0.9])
    once = step_correlations(series(x), whole(x), 1, 3)
    twice = step_correlations(series(np.hstack([x, 2 * x])), whole(x), 1, 3)
    np.testing.assert_allclose(twice, once, atol=1e-9)


def test_a_series_that_never_changes_has_no_correlation():
    x = np.ones((500, 2))
    assert step_correlations(series(x), whole(x), 1, 2).tolist() == [0.0, 0.0]


def test_too_few_pairs_say_nothing():
    x = autoregressive(3, [0.9])
    assert step_correlations(series(x), whole(x), 1, 1).tolist() == [0.0]


def test_no_pair_at_all_says_nothing():
    x = autoregressive(30, [0.9])
    epochs = Epochs.check([(0, 10), (10, 20), (20, 30)], 30)
    assert step_correlations(series(x), epochs, 10, 1).tolist() == [0.0]


def test_no_pair_crosses_the_border_of_an_epoch():
    """Alternating signs between adjacent epochs: only a pair across a border would see them."""
    length, n_epochs = 8, 50
    x = autoregressive(length * n_epochs, [0.9, 0.5])
    borders = np.arange(0, length * n_epochs, length)
    epochs = Epochs.check([(b, b + length - 1) for b in borders], len(x))
    asked = []

    def watched(times):
        asked.append(times)
        return x[times]

    step_correlations(watched, epochs, 3, 2)
    now, later = asked
    assert np.array_equal(later - now, np.full(len(now), 3))
    assert np.array_equal(now // length, later // length)
    assert (later % length < length - 1).all()  # the sample between two epochs belongs to none
    assert len(now) == n_epochs * (length - 1 - 3)


def test_samples_between_epochs_do_not_matter():
    x = autoregressive(1000, [0.9])
    epochs = Epochs.check([(0, 400), (500, 1000)], 1000)
    before = step_correlations(series(x), epochs, 2, 1)
    x[400:500] = 1e6
    assert np.array_equal(step_correlations(series(x), epochs, 2, 1), before)


@pytest.mark.parametrize("rhos", [[0.0], [0.3], [0.9, 0.5], [0.99, 0.9, 0.1]])
def test_information_is_that_of_gaussian_pairs(rhos):
    """Against entropies: H(x) + H(y) - H(x, y) from the determinant of the joint covariance."""
    joint = np.block([[np.eye(len(rhos)), np.diag(rhos)], [np.diag(rhos), np.eye(len(rhos))]])
    expected = -0.5 * np.linalg.slogdet(joint)[1]
    assert information(np.array(rhos)) == pytest.approx(expected, abs=1e-12)


def test_information_of_an_autoregressive_pair_is_recovered_from_data():
    rhos = [0.9, 0.7]
    x = autoregressive(20_000, rhos)
    found = information(step_correlations(series(x), whole(x), 2, 2))
    expected = -0.5 * sum(math.log(1 - rho**4) for rho in rhos)
    assert found == pytest.approx(expected, rel=0.05)


def test_information_of_perfect_correlation_is_finite():
    x = np.arange(1000.0)[:, None]
    assert np.isfinite(information(step_correlations(series(x), whole(x), 1, 1)))


def test_white_noise_needs_no_more_than_one_step():
    x = autoregressive(5000, [WHITE] * 5)
    assert choose_offset([(series(x), 3)], whole(x), 512) == 1


def test_slower_data_gets_a_longer_offset():
    chosen = []
    for rho in (0.5, 0.9, 0.99, 0.999):
        x = autoregressive(50_000, [rho] * 6)
        chosen.append(choose_offset([(series(x), 6)], whole(x), 512))
    assert chosen == sorted(chosen)
    assert chosen[0] == 1
    assert chosen[-1] > chosen[1]


def test_the_offset_is_the_smallest_that_the_loss_can_express():
    """Six latents at rho = 0.99 share -6/2 log(1 - rho^(2k)) nats, a share of log N at most."""
    x = autoregressive(50_000, [0.99] * 6)
    four, eight = (-3 * math.log(1 - 0.99 ** (2 * k)) for k in (4, 8))
    # As many negatives as put the limit half way between: sampling error does not decide.
    n_negatives = round(math.exp(math.sqrt(four * eight) / _SHARE))
    assert choose_offset([(series(x), 6)], whole(x), n_negatives) == 8


def test_more_negatives_allow_a_shorter_offset():
    x = autoregressive(50_000, [0.99] * 6)
    few, many = (choose_offset([(series(x), 6)], whole(x), n) for n in (16, 100_000))
    assert many < few


def test_the_slowest_of_several_series_decides():
    fast, slow = (autoregressive(50_000, [rho] * 6) for rho in (0.5, 0.99))
    epochs = whole(fast)
    alone = choose_offset([(series(slow), 6)], epochs, 512)
    assert choose_offset([(series(fast), 6), (series(slow), 6)], epochs, 512) == alone > 1


@pytest.mark.parametrize(
    ("n", "epochs", "longest"),
    [
        (400, None, 1),  # 500 samples a step at least
        (2500, None, 4),  # 2500 / 500 = 5
        (50_000, None, 64),
        (50_000, [(i, i + 50) for i in range(0, 50_000, 50)], 4),  # a tenth of an epoch
        (50_000, [(i, i + 5) for i in range(0, 50_000, 5)], 1),
    ],
)
def test_data_too_slow_for_any_offset_gets_the_longest_allowed(n, epochs, longest):
    x = np.cumsum(np.random.default_rng(0).standard_normal((n, 6)), axis=0)
    assert choose_offset([(series(x), 6)], Epochs.check(epochs, n), 8) == longest


@pytest.mark.parametrize("offset", [1, 4])
def test_temperature_is_four_thirds_of_the_mean_decorrelation(offset):
    x = autoregressive(5000, [0.9, 0.95])
    rho = step_correlations(series(x), whole(x), offset, 2)
    expected = 4 / 3 * (1 - rho.mean())
    found = choose_temperature([(series(x), 2)], whole(x), offset)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found == pytest.approx(4 / 3 * (1 - np.mean([0.9**offset, 0.95**offset])), rel=0.2)


def test_temperature_averages_over_all_latents_of_all_series():
    a, b = autoregressive(5000, [0.9, 0.95]), autoregressive(5000, [0.99], seed=1)
    both = choose_temperature([(series(a), 2), (series(b), 1)], whole(a), 2)
    alone = [choose_temperature([(series(s), n)], whole(a), 2) for s, n in ((a, 2), (b, 1))]
    assert both == pytest.approx((2 * alone[0] + alone[1]) / 3, rel=1e-12)


def test_temperature_stays_between_a_thousandth_and_one():
    white = autoregressive(5000, [WHITE] * 2)
    assert choose_temperature([(series(white), 2)], whole(white), 1) == 1.0
    line = np.arange(1000.0)[:, None]
    assert choose_temperature([(series(line), 1)], whole(line), 1) == 1e-3


def test_temperature_is_twice_the_step_variance_of_a_walk_that_fills_the_box():
    """The optimum of the loss: temperature = 2 E |z(t + k) - z(t)|^2 / 2 per latent."""
    x = autoregressive(20_000, [0.95, 0.95]) * math.sqrt(1 / 3)
    step = np.square(x[4:] - x[:-4]).mean()
    assert choose_temperature([(series(x), 2)], whole(x), 4) == pytest.approx(2 * step, rel=0.1)


def test_components_are_standardised_projections_and_silent_neurons_take_no_part():
    x = autoregressive(500, [0.9] * 4) * [1, 10, 100, 1000]
    x[:, 2] = 7.0
    recording = Recording(x)
    inputs = Inputs.measure(recording, recording.epochs, project=True)
    times = np.array([3, 3, 100, 499])
    found = component_series(recording, inputs)(times)
    active = [0, 1, 3]
    z = (x[times] - x.mean(axis=0))[:, active] / x.std(axis=0)[active]
    np.testing.assert_allclose(found, z @ inputs.loadings[active], atol=1e-5)


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_noise_does_not_change_the_offset(noise):
    x = autoregressive(40_000, [0.985] * 6)
    rng = np.random.default_rng(1)
    mixed = x @ rng.standard_normal((6, 40))
    noisy = mixed + noise * mixed.std(axis=0) * rng.standard_normal(mixed.shape)
    chosen = [choose_offset([(series(each), 6)], whole(each), 1024) for each in (x, noisy)]
    assert chosen[0] == chosen[1] > 1


def test_reliability_is_the_share_of_variance_that_lasts():
    x = autoregressive(200_000, [0.98])
    noisy = x + x.std() * np.random.default_rng(2).standard_normal(x.shape)
    assert reliability(series(noisy), whole(noisy), 1)[0] == pytest.approx(0.5, abs=0.02)
    assert reliability(series(x), whole(x), 1)[0] == pytest.approx(1.0, abs=0.01)


def test_what_changes_smoothly_has_no_noise():
    x = np.sin(np.arange(10_000) / 30)[:, None]
    assert reliability(series(x), whole(x), 1)[0] == 1.0


def test_a_fast_signal_keeps_the_offset_short():
    slow, fast = autoregressive(50_000, [0.99] * 6), autoregressive(50_000, [0.9] * 3, seed=1)
    alone = choose_offset([(series(slow), 6)], whole(slow), 64)
    both = np.concatenate([slow, fast], axis=1)
    kept = choose_offset([(series(slow), 6)], whole(slow), 64, [series(both)])
    assert alone >= 8
    assert kept == 2  # 0.9^2 = 0.81 is left, 0.9^4 = 0.66 would be too little


@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0])
def test_noise_does_not_hide_how_long_a_signal_lasts(noise):
    x = autoregressive(50_000, [0.95] * 4)
    x += noise * np.random.default_rng(1).standard_normal(x.shape)
    # 0.95^4 = 0.81, 0.95^8 = 0.66
    assert [k for k in OFFSETS if outlasts_offset(series(x), whole(x), k)] == [1, 2, 4]


def test_white_columns_and_constant_ones_have_no_say():
    slow, white = autoregressive(20_000, [0.99] * 3), autoregressive(20_000, [WHITE] * 3)
    x = np.concatenate([slow, white, np.ones((20_000, 2))], axis=1)
    assert outlasts_offset(series(x), whole(x), 16)
    assert outlasts_offset(series(white), whole(x), 64)
