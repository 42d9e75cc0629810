"""Tested maps: from a fit to significant neurons, saved, read and asked for what they lack."""

import copy

import numpy as np
import pytest

import xcebra
from xcebra import XCEBRA, AttributionMap
from xcebra.statistics.significance import merged

FIELDS = ("share", "low", "high", "p_values", "explained", "controls")


@pytest.fixture(autouse=True)
def few_shifts(monkeypatch):
    monkeypatch.setattr("xcebra.statistics.block_gains.N_SHIFTS", 19)


@pytest.fixture(scope="module")
def fitted():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=4000, noise=0.1, seed=301)
    model = XCEBRA(2, 2, steps=100, batch_size=256, random_state=0, progress=False)
    return rec, model.fit(rec.neural, rec.labels["z2"])


@pytest.fixture(scope="module")
def tested(fitted):
    rec, model = fitted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xcebra.statistics.block_gains.N_SHIFTS", 19)
        return model.attribute(rec.neural, rec.labels["z2"], test=True)


def test_the_wired_neurons_are_found_and_hardly_any_other(fitted, tested):
    rec, _ = fitted
    truth, found = rec.ground_truth["z2"], tested.significant("label")
    assert found[truth].mean() >= 0.9
    assert (found & ~truth).sum() <= 1
    share = tested.connections["label"].share
    assert share[truth].min() > share[~truth].max()
    assert found.sum() <= tested.significant("label", alpha=0.5).sum()
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1, got 1"):
        tested.significant("label", alpha=1)


def test_a_tested_map_is_the_map_and_its_test(fitted, tested):
    rec, model = fitted
    np.testing.assert_array_equal(tested.values, model.attribute(rec.neural).values)
    assert set(tested.connections) == {"label", "time"}
    again = model.attribute(rec.neural, rec.labels["z2"], test=True, block="label")
    assert set(again.connections) == {"label"}
    for field in FIELDS:
        np.testing.assert_array_equal(
            getattr(again.connections["label"], field), getattr(tested.connections["label"], field)
        )


def test_it_is_saved_with_the_map(tested, tmp_path):
    tested.save(tmp_path / "map.nc")
    again = AttributionMap.load(tmp_path / "map.nc")
    assert set(again.connections) == set(tested.connections)
    for name, each in tested.connections.items():
        for field in FIELDS:
            np.testing.assert_array_equal(
                getattr(again.connections[name], field), getattr(each, field)
            )
    np.testing.assert_array_equal(again.significant("time"), tested.significant("time"))


def test_a_map_without_its_null_says_how_to_get_one(fitted):
    rec, model = fitted
    with pytest.raises(ValueError, match=r"'label' was not tested: .*test=True"):
        model.attribute(rec.neural[:100]).significant("label")


def test_without_labels_or_samples_it_is_refused_before_any_work(fitted):
    rec, model = fitted
    with pytest.raises(ValueError, match=r"test=True needs the labels \['label'\]"):
        model.attribute(rec.neural, test=True)
    with pytest.raises(ValueError, match=r"needs 400 samples or more .* got 300"):
        model.attribute(rec.neural[:300], rec.labels["z2"][:300], test=True)
    with pytest.raises(ValueError, match=r"refits=2 are for the test: say test=True too"):
        model.attribute(rec.neural, refits=2)
    with pytest.raises(ValueError, match=r"refits must be a whole number of 0 or more, got -1"):
        model.attribute(rec.neural, rec.labels["z2"], test=True, refits=-1)


def test_samples_without_a_label_take_no_part(fitted, tested):
    rec, model = fitted
    label = rec.labels["z2"].copy()
    label[::2] = np.nan
    found = model.attribute(rec.neural, label, test=True).significant("label")
    assert (found == tested.significant("label")).mean() > 0.9


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")  # three steps teach nothing
def test_refits_differ_in_their_seed_alone_and_are_merged(fitted):
    rec, _ = fitted
    x, label = rec.neural[:600], rec.labels["z2"][:600]
    model = XCEBRA(2, 2, steps=3, batch_size=64, random_state=0, progress=False).fit(x, label)
    tested = model.attribute(x, label, test=True)
    thorough = model.attribute(x, label, test=True, refits=1)
    seed = int(np.random.default_rng(model.config_["random_state"]).integers(2**31, size=1)[0])
    other = copy.copy(model).set_params(random_state=seed).fit(x, label)
    beside = other.attribute(x, label, test=True)
    expected = merged([tested.connections["label"], beside.connections["label"]])
    for field in FIELDS:
        found = getattr(thorough.connections["label"], field)
        np.testing.assert_allclose(found, getattr(expected, field), rtol=1e-12)
    np.testing.assert_array_equal(thorough.values, tested.values)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_refits_of_a_recording_know_their_labels(fitted):
    whole, _ = fitted
    rec = xcebra.Recording(whole.neural[:600], {"z2": whole.labels["z2"][:600]})
    model = XCEBRA(2, 2, steps=3, batch_size=64, random_state=0, progress=False).fit(
        rec, label="z2"
    )
    found = model.attribute(rec, test=True, refits=1)
    assert set(found.connections) == {"z2", "time"}


def test_a_fit_to_time_alone_can_be_tested_too():
    """Half of the neurons follow a slow signal, the others are noise."""
    rng = np.random.default_rng(0)
    slow = np.sin(np.cumsum(0.1 * rng.standard_normal((4000, 2)), axis=0))
    x = rng.standard_normal((4000, 20))
    x[:, :10] += slow @ rng.standard_normal((2, 10)) * 3
    model = XCEBRA(time_dims=2, steps=60, batch_size=256, random_state=0, progress=False).fit(x)
    found = model.attribute(x, test=True).significant("time")
    assert found[:10].all()
    assert found[10:].sum() <= 1
