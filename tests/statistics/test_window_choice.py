"""How many samples a point is read from: what averages out, and what is lost."""

import numpy as np
import pytest
from scipy.signal import lfilter

import xcebra
from xcebra.data.labels import LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.statistics.window_choice import choose_window, shared_activity

N, D = 6000, 12


def factor(memory, seed=0):
    shocks = np.random.default_rng(seed).standard_normal((N, 1))
    return lfilter([np.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)


def neurons(shared, noise=1.0, seed=1, **kwargs):
    """Every neuron is what all share plus noise of its own, new at every sample."""
    rng = np.random.default_rng(seed)
    return Recording(shared * np.ones(D) + noise * rng.standard_normal((N, D)), **kwargs)


def chosen(recording, labels=(), **kwargs):
    return choose_window(recording, labels, recording.epochs, **kwargs)


def test_what_the_other_half_predicts_has_a_closed_form():
    """Of a factor of variance 1 with noise of variance s, six others explain 6 / (6 + s) of it."""
    recording = neurons(factor(0.0), noise=2.0)
    found = shared_activity(recording, [], np.arange(N), [1])[1]
    # Of the whole variance 1 + 4, the factor is a fifth.
    assert found == pytest.approx(6 / (6 + 4) / 5, rel=0.06)


def test_averaging_over_a_window_has_a_closed_form():
    """With a factor of memory a, the mean of three has covariance (1 + 2 a) / 3 with the middle."""
    memory, s = 0.9, 9.0
    recording = neurons(factor(memory), noise=np.sqrt(s))
    found = shared_activity(recording, [], np.arange(N), [1, 3])
    with_middle = (1 + 2 * memory) / 3
    variance = (3 + 4 * memory + 2 * memory**2) / 9
    expected = with_middle**2 / (variance + s / 3 / 6) / (1 + s)
    assert found[3] == pytest.approx(expected, rel=0.1)
    assert found[1] == pytest.approx(6 / (6 + s) / (1 + s), rel=0.1)


def test_slow_factors_behind_noise_take_a_window():
    assert chosen(neurons(factor(0.98), noise=2.0)) > 1


def test_what_is_shared_for_one_sample_takes_none():
    assert chosen(neurons(factor(0.0))) == 1


def test_without_noise_there_is_nothing_to_average():
    assert chosen(neurons(factor(0.98), noise=0.01)) == 1


def test_nothing_shared_takes_none():
    assert chosen(neurons(np.zeros((N, 1)))) == 1


def test_what_a_label_tells_does_not_count():
    z = factor(0.98)
    label = make_label("z", z, LabelSpec("continuous"))
    assert chosen(neurons(z, noise=2.0), [label]) == 1


def test_a_given_offset_and_short_epochs_limit_it():
    slow = factor(0.98)
    assert chosen(neurons(slow, noise=2.0), longest=2) == 1
    assert chosen(neurons(slow, noise=2.0), longest=3) == 3
    trials = [(k, k + 30) for k in range(0, N, 30)]
    assert chosen(neurons(slow, noise=2.0, epochs=trials)) == 1


@pytest.mark.parametrize("recipe", ["xcebra", "paper"])
def test_the_estimator_says_what_was_chosen(recipe):
    recording = neurons(factor(0.98), noise=2.0)
    model = xcebra.XCEBRA(time_dims=1, steps=2, recipe=recipe, random_state=0, progress=False)
    model.fit(recording, label=[])
    assert (model.config_["window"] > 1) == (recipe == "xcebra")
    assert model.encoder_.window == model.config_["window"]
    assert model.get_params()["window"] is None
