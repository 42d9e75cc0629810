"""How many latents neurons share: the count itself, and labels that are known now and then."""

import numpy as np
import pytest
from scipy.signal import lfilter

import xcebra
from xcebra.data.labels import LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.statistics import shared_dimensions as module
from xcebra.statistics.shared_dimensions import shared_dimensions

N, D = 12_000, 20


def factors(n_factors, seed=0):
    shocks = np.random.default_rng(seed).standard_normal((N, n_factors))
    return lfilter([0.3], [1.0, -0.95], shocks, axis=0)


def population(z, noise=0.5, seed=1):
    rng = np.random.default_rng(seed)
    return z @ rng.standard_normal((z.shape[1], D)) + noise * rng.standard_normal((N, D))


@pytest.mark.parametrize("n_factors", [0, 1, 3])
def test_as_many_as_there_are(n_factors):
    recording = Recording(population(factors(n_factors)))
    assert shared_dimensions(recording, [], recording.epochs) == n_factors


def test_what_labels_tell_is_not_counted():
    z = factors(3)
    label = make_label("z", z[:, :2], LabelSpec("continuous"))
    recording = Recording(population(z))
    assert shared_dimensions(recording, [label], recording.epochs) == 1


@pytest.mark.parametrize("known", ["4 of 5 samples", "every other sample", "short epochs", "none"])
def test_labels_and_epochs_with_gaps_are_counted_by_single_samples(known):
    z = factors(3)
    values, epochs = z[:, :2].copy(), None
    if known == "4 of 5 samples":
        values[::5] = np.nan
    elif known == "every other sample":
        values[::2] = np.nan
    elif known == "none":
        values[:] = np.nan
        values[:5] = 0.0
    else:
        epochs = [(k, k + 4) for k in range(0, N - 4, 6)]
    label = make_label("z", values, LabelSpec("continuous"))
    recording = Recording(population(z), epochs=epochs)
    expected = 0 if known == "none" else 1
    assert shared_dimensions(recording, [label], recording.epochs) == expected


def test_a_fit_without_time_latents_makes_every_map(recwarn):
    """Patterns that are left over give it a mixture, but there is no time block to mix with."""
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=1, n_steps=3000, n_neurons=20, seed=100)
    model = xcebra.XCEBRA(time_dims=0, steps=20, random_state=0, progress=False)
    model.fit(rec, label="z2")
    assert model.crossed_decoder_.patterns.shape[1] > 0
    for method in ("gradient", "inverted-gradient", "decoder-gradient"):
        assert np.isfinite(model.attribute(rec, method=method).values).all()
    assert np.isfinite(model.attribute(rec, method="gradient", basis="sparse").values).all()


def test_refits_keep_what_the_fit_has_chosen():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=1, n_steps=4000, n_neurons=20, seed=100)
    model = xcebra.XCEBRA(steps=2, batch_size=128, random_state=0, progress=False)
    model.fit(rec, label="z2")
    refitted = next(model._refitted(rec, None, None, 1))
    assert refitted.time_dims == model.config_["time_dims"] > 0
    assert refitted.window == model.config_["window"]


def test_of_very_many_neurons_some_are_enough(monkeypatch):
    recording = Recording(population(factors(3)))
    monkeypatch.setattr(module, "_MOST_NEURONS", 14)
    neurons = module.chosen_neurons(D)
    assert len(np.unique(neurons)) == 14
    times = np.array([5, 3, 8])
    chosen = module.columns_of(recording, times, neurons)
    assert np.array_equal(chosen, recording.neural[times][:, neurons])
    assert shared_dimensions(recording, [], recording.epochs) == 3
