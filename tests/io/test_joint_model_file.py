"""Files of joint models: what comes back, and the files of sessions beside a checkpoint."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import xcebra
from xcebra import XCEBRA, Recording
from xcebra.common.errors import InputError
from xcebra.common.tensor_file import read_tensors, write_tensors
from xcebra.data.label_info import LabelInfo
from xcebra.io.model_file import ModelStore, remove_checkpoint
from xcebra.training.settings import RECIPES

# A few steps teach a model nothing, which it says.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

SETTINGS = {"time_dims": 1, "steps": 3, "batch_size": 32, "window": 1, "random_state": 0}


@pytest.fixture(scope="module", autouse=True)
def _short_decoders():
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in RECIPES.items():
            patch.setitem(RECIPES, name, replace(recipe, decoder_steps=40))
        yield


def quick(**settings):
    return XCEBRA(**SETTINGS | settings)


def recordings():
    """Two sessions of which the second one lacks a label, and a third one."""
    recs = [
        xcebra.datasets.synthetic(n_hidden=1, n_observed=2, n_steps=n, seed=s, n_neurons=k)
        for s, k, n in ((101, 7, 240), (102, 6, 600), (103, 6, 200))
    ]
    first = recs[0]
    labels = {**first.labels, "side": np.where(first.latents["z1"][:, 0] > 0, "left", "right")}
    info = {"z2": LabelInfo(unit="cm")}
    units = {"area": ["ca1"] * 7}
    recs[0] = Recording(first.neural, labels, label_info=info, units=units)
    return dict(zip(("a", "b", "new"), recs, strict=True))


CASES = {
    "shared": {},
    "own": {"time_block": "own"},
    "unit length": {"distance": "cosine", "time_dims": 2},
    "window": {"window": 3, "time_offset": 5, "jacobian_weight": "auto", "steps": 16},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def saved(request, tmp_path_factory):
    """Recordings, a joint model of labels that one session lacks, and the model that was read."""
    recs = recordings()
    # A block of one latent has only two points on a sphere.
    settings = {"label_dims": {"side": 2}, **request.param}
    model = quick(**settings).fit({n: recs[n] for n in "ab"}, label=["z2", "side"])
    path = tmp_path_factory.mktemp("joint") / "model.safetensors"
    model.save(path)
    return recs, model, XCEBRA.load(path)


def assert_same_session(model, other, rec):
    assert np.array_equal(model.transform(rec), other.transform(rec))
    for network in ("encoder_", "decoder_", "crossed_decoder_"):
        ours, theirs = getattr(model, network), getattr(other, network)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        for name, value in ours.state_dict().items():
            assert torch.equal(value, theirs.state_dict()[name]), (network, name)
    assert asdict(model.decisions_) == asdict(other.decisions_)
    assert {**model.config_, "device": ""} == {**other.config_, "device": ""}
    for name in ("blocks_", "goodness_of_fit_", "left_over_", "label_info_", "neuron_names_"):
        assert getattr(model, name) == getattr(other, name), name
    assert {k: list(v) for k, v in model.units_.items()} == {
        k: list(v) for k, v in other.units_.items()
    }
    amap, again = model.attribute(rec), other.attribute(rec)
    assert np.array_equal(amap.values, again.values)


def assert_same_joint(model, other, recs):
    assert other.is_joint
    assert list(model.sessions_) == list(other.sessions_)
    for name, session in model.sessions_.items():
        assert_same_session(session, other.sessions_[name], recs[name])
    assert asdict(model.decisions_) == asdict(other.decisions_)
    assert {**model.config_, "device": ""} == {**other.config_, "device": ""}
    for name in ("blocks_", "controls_", "goodness_of_fit_", "label_info_"):
        assert getattr(model, name) == getattr(other, name), name
    assert list(model.history_) == list(other.history_)
    for name, values in model.history_.items():
        assert np.array_equal(values, other.history_[name], equal_nan=True)
    assert {**model.get_params(), "device": ""} == {**other.get_params(), "device": ""}
    assert (model.shared_ is None) == (other.shared_ is None)
    if model.shared_ is not None:
        for name, value in model.shared_.state_dict().items():
            assert torch.equal(value, other.shared_.state_dict()[name])
            assert not any(p.requires_grad for p in other.shared_.parameters())


def test_a_joint_model_comes_back_bit_for_bit(saved):
    recs, model, again = saved
    assert (model.shared_ is None) == (model.time_block == "own")
    assert list(model.sessions_["b"].readout_) == ["z2"]
    assert_same_joint(model, again, recs)


def test_a_session_is_added_to_a_model_that_was_read_as_to_the_first_one(saved, tmp_path):
    recs, model, again = saved
    before = dict(model.sessions_), dict(model.goodness_of_fit_)
    ours = model.fit_session(recs["new"], name="new")
    theirs = again.fit_session(recs["new"], name="new")
    assert_same_session(ours, theirs, recs["new"])
    model.save(tmp_path / "model.safetensors")
    assert_same_joint(model, XCEBRA.load(tmp_path / "model.safetensors"), recs)
    model.sessions_, model.goodness_of_fit_ = before


def test_one_session_by_name_comes_back_as_a_joint_model(tmp_path):
    recs = recordings()
    model = quick().fit({"b": recs["b"]}, label="z2")
    model.save(tmp_path / "model.safetensors")
    assert_same_joint(model, XCEBRA.load(tmp_path / "model.safetensors"), recs)


def test_a_model_of_one_recording_is_written_as_before(tmp_path):
    """Its file has no sessions, and is read by earlier releases."""
    rec = recordings()["b"]
    model = quick().fit(rec, label="z2")
    model.save(tmp_path / "model.safetensors")
    tensors, header = read_tensors(tmp_path / "model.safetensors", "xcebra-model")
    assert "sessions" not in header
    assert {name.split("/")[0] for name in tensors} >= {"encoder", "decoder", "crossed"}
    again = XCEBRA.load(tmp_path / "model.safetensors")
    assert not again.is_joint
    assert_same_session(model, again, rec)


def test_a_file_of_a_release_without_joint_fits_is_read(tmp_path):
    """Such a file knows nothing of the new parameters, nor of latents that were removed."""
    rec = recordings()["b"]
    model = quick().fit(rec, label="z2")
    path = tmp_path / "model.safetensors"
    model.save(path)
    tensors, header = read_tensors(path, "xcebra-model")
    for name in ("time_block", "session_weight"):
        del header["params"][name], header["config"][name]
    del header["decisions"]["trained_latents"]
    write_tensors(path, "xcebra-model", tensors, header)
    again = XCEBRA.load(path)
    assert np.array_equal(model.transform(rec), again.transform(rec))
    assert again.time_block == "shared"
    again.save(path)
    assert np.array_equal(XCEBRA.load(path).transform(rec), model.transform(rec))


# Files of finished sessions


@pytest.fixture(scope="module")
def session():
    rec = recordings()["b"]
    return rec, quick().fit(rec, label="z2")


def stored(path, fingerprint="f", names=("a", "b")):
    store = ModelStore(path, fingerprint, list(names))
    return store, store.load(XCEBRA, torch.device("cpu"))


def test_finished_sessions_are_read_if_they_are_of_the_same_fit(session, tmp_path):
    rec, model = session
    checkpoint = tmp_path / "run.checkpoint"
    store, models = stored(checkpoint)
    assert (store.finished, models) == ([], {})
    store.save("b", model)
    store, models = stored(checkpoint)
    assert store.finished == ["b"]
    assert_same_session(models["b"], model, rec)
    assert stored(checkpoint, "another fit")[1] == {}
    assert stored(checkpoint, names=("a", "c"))[1] == {}
    assert stored(tmp_path / "run.other")[1] == {}


def test_a_damaged_file_of_a_session_is_passed_over(session, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    store, _ = stored(checkpoint)
    store.save("a", session[1])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:1000])
    assert stored(checkpoint)[1] == {}


def test_a_session_s_file_is_no_model(session, tmp_path):
    store, _ = stored(tmp_path / "checkpoint")
    store.save("a", session[1])
    (path,) = tmp_path.iterdir()
    with pytest.raises(InputError):
        XCEBRA.load(path)


@pytest.mark.parametrize("name", ["run.1", "run [a]", "run"])
def test_removing_a_checkpoint_removes_its_own_sessions_only(session, name, tmp_path):
    own, other = tmp_path / name, tmp_path / "run.2"
    for checkpoint in (own, other):
        checkpoint.write_text("")
        stored(checkpoint)[0].save("a", session[1])
    remove_checkpoint(own)
    assert not own.exists()
    assert stored(own)[1] == {}
    assert list(stored(other)[1]) == ["a"]
    remove_checkpoint(other)
    assert not list(tmp_path.iterdir())
    remove_checkpoint(other)
