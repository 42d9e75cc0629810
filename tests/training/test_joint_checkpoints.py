"""Joint fits that are stopped, in training or between sessions, end as an undisturbed one does."""

import os
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import xcebra
from xcebra import XCEBRA, Recording
from xcebra.attribution import fitting, joint_fitting
from xcebra.caveats import InterruptedFitWarning, XcebraWarning
from xcebra.common.errors import InputError
from xcebra.common.tensor_file import read_tensors, write_tensors
from xcebra.training.plan import make_plan
from xcebra.training.settings import RECIPES

# A few steps teach a model nothing, which it says.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

STEPS = 16
SETTINGS = {"time_dims": 1, "steps": STEPS, "batch_size": 32, "window": 1, "random_state": 0}
NAMES = ("a", "b")


@pytest.fixture(scope="module", autouse=True)
def _short_decoders():
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in RECIPES.items():
            patch.setitem(RECIPES, name, replace(recipe, decoder_steps=20))
        # The mixtures take most of the time of a short fit, and are not what these tests are about.
        patch.setattr(fitting, "fit_crossed_mixtures", lambda *_: {})
        yield


@pytest.fixture(autouse=True)
def _checkpoint_at_every_step(monkeypatch):
    monkeypatch.setattr("xcebra.training.loop._CHECKPOINT_SECONDS", -1.0)


@pytest.fixture(scope="module")
def recs():
    return {
        name: xcebra.datasets.synthetic(
            n_hidden=1, n_observed=1, n_steps=200, seed=100 + i, n_neurons=5 + i
        )
        for i, name in enumerate(NAMES)
    }


def quick(**settings):
    return XCEBRA(**SETTINGS | settings)


CASES = {
    "shared": {},
    "own": {"time_block": "own"},
    # The search for the weight trains a twin of all encoders.
    "search": {"jacobian_weight": "auto"},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def undisturbed(request, recs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        return request.param, quick(**request.param).fit(recs, label="z2")


def assert_same_bits(model, other):
    for name, values in model.history_.items():
        assert np.array_equal(values, other.history_[name], equal_nan=True), name
    for session, one in model.sessions_.items():
        two = other.sessions_[session]
        assert one.goodness_of_fit_ == two.goodness_of_fit_
        assert one.units_.keys() == two.units_.keys()
        for network in ("encoder_", "decoder_", "crossed_decoder_"):
            ours = getattr(one, network).state_dict()
            theirs = getattr(two, network).state_dict()
            for name, value in ours.items():
                assert torch.equal(value, theirs[name]), (session, network, name)
    assert model.goodness_of_fit_ == other.goodness_of_fit_


class Stopped(Exception):
    """The process ends here."""


def stopping_after(n_steps):
    def callback(step, _):
        if step > n_steps:
            raise Stopped

    return callback


@pytest.fixture
def calls(monkeypatch):
    """Count training steps and sessions whose decoders are fitted; stop before some session."""

    class Calls:
        steps = 0
        sessions = 0
        stop_before = None

    original = joint_fitting.fit_networks

    def fit_networks(*arguments, **settings):
        if Calls.sessions == Calls.stop_before:
            raise Stopped
        Calls.sessions += 1
        return original(*arguments, **settings)

    monkeypatch.setattr(joint_fitting, "fit_networks", fit_networks)
    original_train = fitting.train

    def train(*arguments, callback=None, **settings):
        def counting(step):
            Calls.steps += 1
            if callback is not None:
                callback(step)

        return original_train(*arguments, callback=counting, **settings)

    monkeypatch.setattr(fitting, "train", train)
    return Calls


def test_training_that_is_stopped_goes_on_to_the_same_bits(recs, undisturbed, calls, tmp_path):
    settings, expected = undisturbed
    path = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        quick(**settings).fit(recs, label="z2", checkpoint=path, callback=stopping_after(7))
    assert read_tensors(path, "xcebra-checkpoint")[1]["step"] == 7
    assert calls.sessions == 0
    calls.steps = 0
    model = quick(**settings).fit(recs, label="z2", checkpoint=path)
    assert calls.steps == STEPS - 7
    assert_same_bits(model, expected)


def test_finished_sessions_are_not_fitted_again(recs, undisturbed, calls, tmp_path):
    settings, expected = undisturbed
    path = tmp_path / "checkpoint"
    calls.stop_before = 1
    with pytest.raises(Stopped):
        quick(**settings).fit(recs, label="z2", checkpoint=path)
    calls.stop_before, calls.sessions, calls.steps = None, 0, 0
    model = quick(**settings).fit(recs, label="z2", checkpoint=path)
    assert (calls.steps, calls.sessions) == (0, 1)
    assert_same_bits(model, expected)
    # Now all of them are done.
    calls.sessions = 0
    again = quick(**settings).fit(recs, label="z2", checkpoint=path)
    assert (calls.steps, calls.sessions) == (0, 0)
    assert_same_bits(again, expected)
    assert list(again.sessions_) == list(NAMES)


def test_ctrl_c_keeps_what_was_learned_and_the_rest_is_trained_later(recs, calls, tmp_path):
    """Decoders of encoders that were half trained are not taken for those of the whole fit."""
    path = tmp_path / "checkpoint"
    expected = quick().fit(recs, label="z2")
    calls.sessions = 0

    def interrupt(step, _):
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match=f"stopped at step 5 of {STEPS}"):
        half = quick().fit(recs, label="z2", checkpoint=path, callback=interrupt)
    assert len(half.history_["penalty"]) == 5
    assert calls.sessions == len(NAMES)
    model = quick().fit(recs, label="z2", checkpoint=path)
    assert calls.sessions == 2 * len(NAMES)
    assert_same_bits(model, expected)
    for name in NAMES:
        weights = [m.sessions_[name].encoder_.network[0].weight for m in (half, model)]
        assert not torch.equal(*weights)


AREAS = ["ca1"] * 6


def changed(rec, **others):
    given = {"units": rec.units, "label_info": rec.label_info, **others}
    return Recording(rec.neural, rec.labels, rec.epochs, **given)


@pytest.mark.parametrize("what", ["names", "units"])
def test_sessions_are_fitted_again_if_what_is_known_of_neurons_has_changed(
    recs, what, calls, tmp_path
):
    """Names of neurons, for instance, do not matter to training, but they do to a model."""
    path = tmp_path / "checkpoint"
    quick().fit(recs, label="z2", checkpoint=path)
    calls.sessions = 0
    given = {"neuron_names": tuple("pqrstu")} if what == "names" else {"units": {"area": AREAS}}
    model = quick().fit({**recs, "b": changed(recs["b"], **given)}, label="z2", checkpoint=path)
    assert calls.sessions > 0
    session = model.sessions_["b"]
    if what == "names":
        assert session.neuron_names_ == tuple("pqrstu")
    else:
        assert list(session.units_["area"]) == AREAS


def test_sessions_are_fitted_again_if_held_out_activity_has_changed(recs, calls, tmp_path):
    path = tmp_path / "checkpoint"
    long = xcebra.datasets.synthetic(n_hidden=1, n_observed=1, n_steps=600, seed=102, n_neurons=5)
    model = quick().fit({**recs, "b": long}, label="z2", checkpoint=path)
    held_out = make_plan(
        Recording(long.neural, long.labels), model.sessions_["b"].get_params()
    ).held_out
    neural = long.neural.copy()
    neural[held_out.indices()[0]] += 1.0
    other = {**recs, "b": Recording(neural, long.labels)}
    calls.sessions, calls.steps = 0, 0
    again = quick().fit(other, label="z2", checkpoint=path)
    assert (calls.steps, calls.sessions) == (0, len(NAMES))
    for name, values in model.sessions_["b"].encoder_.state_dict().items():
        assert torch.equal(again.sessions_["b"].encoder_.state_dict()[name], values)
    assert_same_bits(again, quick().fit(other, label="z2"))


def test_a_checkpoint_of_other_sessions_is_refused(recs, tmp_path):
    path = tmp_path / "checkpoint"
    quick(steps=2).fit(recs, label="z2", checkpoint=path)
    others = [
        {"a": recs["a"]},
        {name: recs[name] for name in "ba"},
        {f"{name}!": rec for name, rec in recs.items()},
    ]
    for other in others:
        with pytest.raises(InputError, match="belongs to another fit"):
            quick(steps=2).fit(other, label="z2", checkpoint=path)
    with pytest.raises(InputError, match="belongs to another fit"):
        quick(steps=2, time_block="own").fit(recs, label="z2", checkpoint=path)


def test_a_checkpoint_of_one_recording_from_an_earlier_release_goes_on(recs, tmp_path):
    """Its encoder has no number."""
    path, rec = tmp_path / "checkpoint", recs["a"]
    expected = quick().fit(rec, label="z2")
    with pytest.raises(Stopped):
        quick().fit(rec, label="z2", checkpoint=path, callback=stopping_after(6))
    tensors, header = read_tensors(path, "xcebra-checkpoint")
    earlier = {name.replace("encoder/0/", "encoder/"): value for name, value in tensors.items()}
    assert earlier.keys() != tensors.keys()
    write_tensors(path, "xcebra-checkpoint", earlier, header)
    model = quick().fit(rec, label="z2", checkpoint=path)
    assert torch.equal(model.encoder_.network[0].weight, expected.encoder_.network[0].weight)
    assert np.array_equal(model.history_["loss/z2"], expected.history_["loss/z2"])
