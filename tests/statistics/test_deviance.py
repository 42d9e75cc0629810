"""Deviance explained: against scikit-learn, in the cases that are known by hand, and of a fit."""

import numpy as np
import pytest
from sklearn.metrics import d2_tweedie_score

import xcebra
from xcebra.statistics.deviance import poisson_deviance_explained


def test_it_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    rates = 0.2 + rng.gamma(2.0, 0.3, size=(500, 4))
    counts = rng.poisson(rates).astype(float)
    found = poisson_deviance_explained(counts, rates)
    expected = [d2_tweedie_score(counts[:, k], rates[:, k], power=1) for k in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_mean_explains_nothing_and_the_counts_themselves_everything():
    counts = np.random.default_rng(1).poisson(1.5, size=(300, 2)).astype(float)
    nothing = poisson_deviance_explained(counts, np.tile(counts.mean(axis=0), (300, 1)))
    np.testing.assert_allclose(nothing, 0.0, atol=1e-12)
    # Where the count is 0, a tenth of the mean is as near as a prediction may be.
    everything = poisson_deviance_explained(counts, counts)
    assert (everything > 0.85).all()
    assert (everything < 1.0).all()


def test_rates_below_zero_and_silent_neurons_are_no_problem():
    counts = np.zeros((50, 2))
    counts[::7, 0] = 1.0
    found = poisson_deviance_explained(counts, np.full((50, 2), -3.0))
    assert np.isfinite(found).all()
    assert found[0] < 0
    assert found[1] == 0.0


@pytest.mark.parametrize("counts", [True, False])
def test_a_fit_has_it_for_counts_alone(counts, tmp_path):
    # Of what is no count there is none, however long it was trained.
    n_steps, steps = (3000, 60) if counts else (1000, 2)
    rec = xcebra.datasets.synthetic(
        n_hidden=1, n_observed=1, n_steps=n_steps, n_neurons=12, counts=counts, seed=100
    )
    model = xcebra.XCEBRA(time_dims=1, steps=steps, random_state=0, progress=False)
    model.fit(rec, label="z2")
    model.save(tmp_path / "model.safetensors")
    again = xcebra.XCEBRA.load(tmp_path / "model.safetensors")
    if not counts:
        assert model.deviance_explained_ is None
        assert again.deviance_explained_ is None
        return
    np.testing.assert_array_equal(again.deviance_explained_, model.deviance_explained_)
    variance = model.variance_explained_["all"]
    assert np.corrcoef(variance, model.deviance_explained_)[0, 1] > 0.9
    assert (model.deviance_explained_[variance > 0.2] > 0.1).all()
