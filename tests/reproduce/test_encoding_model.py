"""The encoding model: derivatives and shares of variance in closed form."""

import numpy as np
import pytest

from xcebra.data.recording import Recording
from xcebra.reproduce.encoding_model import encoding_map

N = 20_000
WEIGHTS = np.array([[2.0, 0.0], [0.0, -3.0], [0.5, 0.5], [-1.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
NOISE = np.array([0, 0, 0, 0, 1.0, 2.0])


@pytest.fixture(scope="module")
def made():
    """Six neurons that are linear in the label, three of noise, one that falls silent."""
    rng = np.random.default_rng(0)
    # Columns of different size and origin, neurons of different scale.
    label = rng.uniform(-1, 1, size=(N, 2)) * [1.0, 4.0] + [5.0, -2.0]
    linear = label @ WEIGHTS.T
    spread = np.array([1.0, 4.0]) / np.sqrt(3)
    linear[:, 4:] += NOISE[4:] * spread * rng.standard_normal((N, 2))
    noise = rng.standard_normal((N, 4))
    noise[-N // 10 :, 3] = 0.5
    recording = Recording(np.concatenate([7 * linear + 3, noise], axis=1), {"z2": label})
    found = encoding_map(recording, label, np.arange(0, N, 3))
    return recording, label, found


def test_the_map_is_the_weights_in_units_of_standard_deviations(made):
    """d (x / sd x) / d (y / sd y) = w sd y / sd x, at every sample."""
    recording, label, (amap, _) = made
    train = slice(0, N - N // 10)
    neurons = recording.neural[train, :6].std(axis=0)
    expected = 7 * np.abs(WEIGHTS) * label[train].std(axis=0) / neurons[:, None]
    np.testing.assert_allclose(amap.values[:4], expected[:4], atol=0.03)
    np.testing.assert_allclose(amap.values[4:6], expected[4:], atol=0.1)
    length = np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(amap.block("label")[:4], length[:4], atol=0.03)
    # Without noise, and with one column alone, it is 1.
    assert amap.values[0, 0] == pytest.approx(1, abs=0.03)
    assert amap.values[1, 1] == pytest.approx(1, abs=0.03)


def test_neurons_that_know_nothing_of_the_label_are_near_zero(made):
    _, _, (amap, explained) = made
    assert amap.block("label")[6:].max() < 0.1
    assert amap.block("label")[6:].max() < 0.3 * amap.block("label")[:6].min()
    assert (explained[6:9] < 0.02).all()
    assert (explained[6:9] > -0.1).all()


def test_variance_explained_is_the_signals_share(made):
    """Noise of a times the signal's standard deviation leaves 1 / (1 + a^2)."""
    _, _, (_, explained) = made
    np.testing.assert_allclose(explained[:6], 1 / (1 + NOISE**2), atol=0.08)
    assert (explained[:4] > 0.98).all()


def test_a_neuron_that_is_silent_where_it_is_judged_has_no_share(made):
    _, _, (_, explained) = made
    assert explained[9] == 0
    assert np.isfinite(explained).all()


def test_names_and_blocks(made):
    recording, _, (amap, explained) = made
    assert amap.values.shape == (10, 2)
    assert explained.shape == (10,)
    assert dict(amap.blocks) == {"label": slice(0, 2)}
    assert amap.latent_names == ("label0", "label1")
    assert amap.neuron_names == recording.neuron_names
