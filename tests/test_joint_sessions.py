"""XCEBRA with several sessions: what is joint, what is not, and what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import xcebra
from xcebra import XCEBRA, PooledMaps, Recording
from xcebra.attribution import fitting
from xcebra.caveats import XcebraWarning
from xcebra.common.errors import InputError
from xcebra.data.label_info import LabelInfo
from xcebra.metrics import r_squared
from xcebra.training.goodness_of_fit import over_sessions
from xcebra.training.settings import RECIPES

# Ten steps on short recordings teach a model little, which it says.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

N = 300
SETTINGS = {"time_dims": 1, "steps": 10, "batch_size": 64, "window": 1, "random_state": 0}


with_mixtures = fitting.fit_crossed_mixtures


@pytest.fixture(scope="module", autouse=True)
def _short_decoders():
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in RECIPES.items():
            patch.setitem(RECIPES, name, replace(recipe, decoder_steps=40))
        # Mixtures take most of the time of a short fit, and most tests here are not about them.
        patch.setattr(fitting, "fit_crossed_mixtures", lambda *_: {})
        yield


def quick(**settings):
    return XCEBRA(**SETTINGS | settings)


def simulated(seed, n_neurons=8, n_steps=N, **settings):
    return xcebra.datasets.synthetic(
        n_hidden=1, n_observed=1, n_steps=n_steps, seed=seed, n_neurons=n_neurons, **settings
    )


def fitted(model, *arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        return model.fit(*arguments, **settings)


@pytest.fixture(scope="module")
def recs():
    return {"day 1": simulated(101), "day 2": simulated(102, 6, 600)}


@pytest.fixture(scope="module")
def joint(recs):
    return fitted(quick(), recs, label="z2")


@pytest.fixture(scope="module")
def lacking_recs():
    """Three labels; each session lacks one or two of them."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal((N, 3)), axis=0) / 5
    labels = {
        "place": np.sin(walk[:, 0]),
        "heading": np.angle(np.exp(1j * walk[:, 1])),
        "side": np.where(walk[:, 2] > np.median(walk[:, 2]), "left", "right"),
    }
    driven = np.stack([*(f(walk[:, i]) for i in range(3) for f in (np.sin, np.cos))], axis=1)

    def session(names, n_neurons, seed):
        noise = np.random.default_rng(seed)
        x = driven @ noise.standard_normal((6, n_neurons))
        x += 0.2 * noise.standard_normal(x.shape)
        return Recording(x, {name: labels[name] for name in names})

    return {
        "a": session(["place", "heading"], 9, 1),
        "b": session(["heading", "side"], 8, 2),
        "c": session(["place"], 7, 3),
    }


KINDS = {"place": "continuous", "heading": "circular", "side": "discrete"}


@pytest.fixture(scope="module", params=["euclidean", "cosine"])
def lacking(request, lacking_recs):
    """A fit, and the encoders as they were trained, with the latents of all labels."""
    trained = {}

    def remember(step, encoders):
        assert step <= 10
        trained.update(encoders)

    model = quick(distance=request.param, label_kind=KINDS, time_dims=2)
    fitted(model, lacking_recs, label=list(KINDS), callback=remember)
    return model, trained


def state(model):
    """All tensors of a session's networks, by name."""
    networks = {
        "encoder": model.encoder_,
        "decoder": model.decoder_,
        "crossed": model.crossed_decoder_,
    }
    return {f"{n} {k}": v for n, net in networks.items() for k, v in net.state_dict().items()}


def assert_same_bits(model, other):
    ours, theirs = state(model), state(other)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    assert model.goodness_of_fit_ == other.goodness_of_fit_
    for name, values in model.history_.items():
        assert np.array_equal(values, other.history_[name], equal_nan=True), name


# One session


@pytest.mark.parametrize("sessions", ["list", "mapping"])
def test_one_session_among_several_is_bitwise_a_fit_to_one_recording(recs, sessions, monkeypatch):
    monkeypatch.setattr(fitting, "fit_crossed_mixtures", with_mixtures)
    rec = recs["day 1"]
    alone = quick().fit(rec, label="z2")
    X = [rec] if sessions == "list" else {"only": rec}
    model = quick().fit(X, label="z2")
    name = "0" if sessions == "list" else "only"
    assert list(model.sessions_) == [name]
    assert_same_bits(model.sessions_[name], alone)
    embedding = model.transform(X)
    embedding = embedding[0] if sessions == "list" else embedding["only"]
    assert np.array_equal(embedding, alone.transform(rec))
    assert model.goodness_of_fit_ == alone.goodness_of_fit_
    assert model.blocks_ == alone.blocks_
    amap, expected = model.attribute(X)[name], alone.attribute(rec)
    assert np.array_equal(amap.values, expected.values)
    for block, scores in expected.scores.items():
        assert np.array_equal(amap.scores[block], scores)


# What a joint fit has


def test_every_session_has_a_model_like_one_of_a_single_fit(recs, joint):
    assert list(joint.sessions_) == ["day 1", "day 2"]
    alone = quick().fit(recs["day 1"], label="z2")
    for name, model in joint.sessions_.items():
        assert type(model) is XCEBRA
        assert not model.is_joint
        assert {n for n in vars(alone) if n.endswith("_")} - {"sessions_"} <= vars(model).keys()
        assert model.transform(recs[name]).shape == (recs[name].n_times, 2)
        assert model.neuron_names_ == recs[name].neuron_names
        assert model.inverse_transform(np.zeros((3, 2))).shape == (3, recs[name].n_neurons)
        assert model.blocks_ == joint.blocks_ == {"z2": slice(0, 1), "time": slice(1, 2)}
    assert np.array_equal(joint.get_feature_names_out(), model.get_feature_names_out())


def test_arrays_with_labels_give_the_same_fit_as_recordings(recs, joint):
    X = {name: rec.neural for name, rec in recs.items()}
    by_name = {name: {"z2": rec.labels["z2"]} for name, rec in recs.items()}
    model = quick().fit(X, by_name)
    frames = [pd.DataFrame(x) for x in X.values()]
    in_order = quick().fit(frames, list(by_name.values()))
    for ours, named, listed in zip(
        joint.sessions_.values(),
        model.sessions_.values(),
        in_order.sessions_.values(),
        strict=True,
    ):
        assert_same_bits(ours, named)
        assert_same_bits(ours, listed)
    assert joint.score(recs) == pytest.approx(model.score(X, by_name))


def test_transform_keeps_the_form_of_its_input(recs, joint):
    embedding = joint.transform(recs)
    assert list(embedding) == list(recs)
    for name, z in embedding.items():
        assert np.array_equal(z, joint.sessions_[name].transform(recs[name]))
    listed = joint.transform(list(recs.values()))
    assert isinstance(listed, list)
    assert np.array_equal(listed[1], embedding["day 2"])
    assert list(joint.transform({"day 2": recs["day 2"]})) == ["day 2"]


def test_the_score_is_the_mean_over_sessions(recs, joint):
    alone = [
        joint.sessions_[name].score(rec.neural, {"z2": rec.labels["z2"]})
        for name, rec in recs.items()
    ]
    assert joint.score(recs) == pytest.approx(np.mean(alone))


def test_maps_are_pooled(recs, joint):
    pooled = joint.attribute(recs)
    assert isinstance(pooled, PooledMaps)
    assert list(pooled) == list(recs)
    for name, amap in pooled.items():
        alone = joint.sessions_[name].attribute(recs[name])
        assert np.array_equal(amap.values, alone.values)
        assert amap.opinions.keys() == alone.opinions.keys()
    assert list(joint.attribute({"day 2": recs["day 2"]})) == ["day 2"]


def test_maps_of_every_sample_can_be_kept(recs, joint):
    pooled = joint.attribute(recs, keep_time=True, every=2)
    for name, amap in pooled.items():
        assert len(amap.steps) == (recs[name].n_times + 1) // 2


def test_goodness_of_fit_is_that_of_all_sessions(joint):
    for block, fit in joint.goodness_of_fit_.items():
        sessions = [model.goodness_of_fit_[block] for model in joint.sessions_.values()]
        assert fit == over_sessions(sessions)


def test_sessions_share_no_memory_after_the_fit(recs, joint):
    def addresses(*modules):
        tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
        return {t.data_ptr() for t in tensors if t.numel()}

    parts = [
        addresses(m.encoder_, m.decoder_, m.crossed_decoder_) for m in joint.sessions_.values()
    ]
    parts.append(addresses(joint.shared_))
    for i, part in enumerate(parts):
        for other in parts[:i]:
            assert not part & other
    # They were shared during training: their values are the same to the bit.
    first, second = (list(m.encoder_.network)[2:] for m in joint.sessions_.values())
    for one, other, common in zip(first, second, joint.shared_, strict=True):
        for a, b, c in zip(one.parameters(), other.parameters(), common.parameters(), strict=True):
            assert torch.equal(a, b)
            assert torch.equal(a, c)
            assert not c.requires_grad


def test_sessions_with_layers_of_their_own_share_none(recs):
    model = quick(time_block="own", steps=2).fit(recs, label="z2")
    assert model.shared_ is None
    first, second = (m.encoder_.network[2].weight for m in model.sessions_.values())
    assert not torch.equal(first, second)


def test_the_callback_sees_the_encoders_of_all_sessions(recs):
    seen = []
    quick(steps=3).fit(
        recs, label="z2", callback=lambda step, encoders: seen.append((step, list(encoders)))
    )
    assert seen == [(1, list(recs)), (2, list(recs)), (3, list(recs))]


def test_parameters_clone_and_output_containers(recs):
    model = quick(time_block="own", session_weight="samples").set_output(transform="pandas")
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert other.get_params()["session_weight"] == "samples"
    embedding = other.fit_transform(recs, label="z2")
    assert list(embedding) == list(recs)
    for name, frame in embedding.items():
        assert isinstance(frame, pd.DataFrame)
        assert list(frame.columns) == list(other.get_feature_names_out())
        assert np.array_equal(frame, other.sessions_[name].transform(recs[name]))
    # One recording gives one table, as before.
    rec = recs["day 1"]
    assert isinstance(clone(model).fit_transform(rec, label="z2"), pd.DataFrame)


def test_a_model_that_is_fitted_again_keeps_nothing_of_the_first_fit(recs):
    model = quick(steps=2).fit(recs["day 1"], label="z2").fit(recs, label="z2")
    assert model.is_joint
    for name in ("encoder_", "decoder_", "readout_", "neuron_names_", "n_features_in_"):
        assert not hasattr(model, name), name
    model.fit(recs["day 1"], label="z2")
    assert not model.is_joint
    assert not hasattr(model, "shared_")
    assert model.transform(recs["day 1"]).shape == (N, 2)


def test_the_joint_fit_is_shown_as_html(joint):
    assert "z2" in joint._repr_html_()


# Labels that some sessions lack


def test_latents_of_labels_that_a_session_lacks_are_removed(lacking_recs, lacking):
    model, trained = lacking
    assert list(model.blocks_) == ["place", "heading", "side", "time"]
    own_blocks = {
        "a": {"place": slice(0, 1), "heading": slice(1, 3), "time": slice(3, 5)},
        "b": {"heading": slice(0, 2), "side": slice(2, 3), "time": slice(3, 5)},
        "c": {"place": slice(0, 1), "time": slice(1, 3)},
    }
    for name, rec in lacking_recs.items():
        session = model.sessions_[name]
        assert session.blocks_ == own_blocks[name]
        with torch.no_grad():
            whole = trained[name](torch.from_numpy(rec.neural)).numpy()
        z = session.transform(rec)
        for block, latents in session.blocks_.items():
            np.testing.assert_allclose(z[:, latents], whole[:, model.blocks_[block]], atol=1e-6)
        amap = session.attribute(rec)
        assert list(amap.blocks) == list(own_blocks[name])
        assert list(session.goodness_of_fit_) == list(own_blocks[name])


def test_blocks_and_goodness_of_a_joint_fit_are_complete(lacking_recs, lacking):
    model, _ = lacking
    pooled = model.attribute(lacking_recs)
    assert set(pooled.blocks) == {"place", "heading", "side", "time"}
    having = {"place": "ac", "heading": "ab", "side": "b", "time": "abc"}
    assert list(model.goodness_of_fit_) == list(having)
    for block, names in having.items():
        fits = [model.sessions_[name].goodness_of_fit_[block] for name in names]
        assert model.goodness_of_fit_[block] == over_sessions(fits)


def test_a_map_of_one_block_names_the_session_that_lacks_it(lacking_recs, lacking):
    model, _ = lacking
    with pytest.raises(InputError, match="session 'b': block must be one of"):
        model.attribute(lacking_recs, block="place")
    chosen = {name: lacking_recs[name] for name in "ac"}
    assert model.attribute(chosen, block="place").blocks == ("place",)


# Refits


@pytest.mark.parametrize("form", ["list", "arrays"])
def test_refits_are_merged_session_by_session(form, monkeypatch):
    recs = {"day 1": simulated(101, 5, 420), "day 2": simulated(102, 6, 400)}
    model = quick(steps=2).fit(recs, label="z2")
    given, y = recs, None
    if form == "list":
        given = list(recs.values())
    if form == "arrays":
        given = {name: rec.neural for name, rec in recs.items()}
        y = {name: {"z2": rec.labels["z2"]} for name, rec in recs.items()}
    others = []
    original = XCEBRA.fit

    def noting(self, *arguments, **settings):
        others.append(self)
        return original(self, *arguments, **settings)

    monkeypatch.setattr(XCEBRA, "fit", noting)
    pooled = model.attribute(given, y, test=True, refits=1, controls=False)
    assert list(pooled) == list(recs)
    assert len(others) == 1
    assert others[0].random_state != model.random_state
    for name, rec in recs.items():
        alone = [m.sessions_[name]._tested(rec, None, False) for m in (model, *others)]
        for block, merged in pooled[name].connections.items():
            expected = xcebra.statistics.significance.merged([one[block] for one in alone])
            assert np.array_equal(merged.p_values, expected.p_values)


@pytest.mark.parametrize(
    ("sessions", "settings", "message"),
    [
        (["day 1", "day 2"], {"refits": 1}, "refits=1 are for the test: say test=True too"),
        (["day 1", "day 2"], {"refits": -1, "test": True}, "refits must be .* got -1"),
        (["day 1", "day 2"], {"refits": "no", "test": True}, "refits must be .* got 'no'"),
        (["day 1"], {"refits": 1, "test": True}, "refits=1 fit all sessions again; give the data"),
        (["day 1"], {"keep_time": "a.nc"}, "keep_time='a.nc' names one file for several sessions"),
        (["day 1"], {"epochs": [(0, 9)]}, "epochs are those of one recording; give each session"),
        (["day 1"], {"method": "magic"}, "method must be one of"),
    ],
)
def test_maps_that_cannot_be_made_are_refused_before_any_is(
    recs, joint, sessions, settings, message, monkeypatch
):
    monkeypatch.setattr(XCEBRA, "_map", lambda *_: pytest.fail("a map was made"))
    with pytest.raises(InputError, match=message):
        joint.attribute({name: recs[name] for name in sessions}, **settings)


# What is refused before training


def without_training(monkeypatch):
    def no_training(*_arguments, **_settings):
        raise AssertionError("training was started")

    for module in ("fitting", "joint_fitting"):
        monkeypatch.setattr(f"xcebra.attribution.{module}.train", no_training)


X = np.cumsum(np.random.default_rng(0).standard_normal((N, 5)), axis=0)
WAVE = np.sin(np.arange(N) / 9)
ANGLE = np.angle(np.exp(1j * np.arange(N) / 9))


def rec_of(kind=None, unit="", **labels):
    info = {name: LabelInfo(kind=kind, unit=unit) for name in labels}
    return Recording(X, labels, label_info=info)


@pytest.mark.parametrize(
    ("data", "y", "fit", "settings", "message"),
    [
        ({}, None, {}, {}, "X holds no session; give one recording, or several by name"),
        ([], None, {}, {}, "X holds no session"),
        ({1: X, "1": X}, None, {}, {}, "X has two sessions named '1'; give each another name"),
        ({"": X}, None, {}, {}, "X has a session with an empty name; give it a name"),
        ({"a": X, "b": None}, None, {}, {}, r"X\['b'\] must be a Recording"),
        ([rec_of(z=WAVE), 4], None, {}, {}, r"X\['1'\] must be a Recording"),
        ({"a": X, "b": X[:0]}, [WAVE, WAVE], {}, {}, r"X\['b'\] is empty"),
        ({"a": X, "b": X}, {"c": WAVE}, {}, {}, "y names 'c', but the sessions are"),
        ({"a": X, "b": X}, {"a": WAVE}, {}, {}, "session 'b' has none of the labels"),
        ([X, X], [WAVE], {}, {}, "y must have one entry for each of the 2 sessions, got 1"),
        ([X, X], WAVE, {}, {}, "y must have one entry for each of the 2 sessions, got a ndarray"),
        ([X, X], None, {}, {}, "joined by their labels, and they have none; give labels as y"),
        ([X, X], [WAVE, WAVE[:9]], {}, {}, "session '1': label 'label' has 9 samples, but"),
        ([rec_of(z=WAVE)] * 2, None, {}, {}, r"sessions have labels \['z'\]; say which"),
        ([rec_of(z=WAVE)] * 2, None, {"label": "q"}, {}, "label names 'q', but the sessions have"),
        ([rec_of(z=WAVE)] * 2, None, {"label": 3}, {}, "label must name labels of the sessions"),
        ([rec_of(z=WAVE)] * 2, None, {"label": []}, {}, "no label is asked about; name one"),
        (
            {"a": rec_of(z=WAVE, u=WAVE), "b": rec_of(z=WAVE)},
            None,
            {"label": "u"},
            {},
            "session 'b' has none of the labels",
        ),
        (
            {"a": rec_of(z=WAVE, u=WAVE), "b": rec_of(z=WAVE)},
            None,
            {"label": "z", "control": "u"},
            {},
            "session 'b' lacks 'u', which is controlled for; leave the session out",
        ),
        (
            {"a": rec_of(z=WAVE), "b": rec_of(z=X[:, :2])},
            None,
            {"label": "z"},
            {},
            "label 'z' has 1 columns in session 'a' and 2 in session 'b'",
        ),
        (
            {"a": rec_of(z=WAVE, unit="cm"), "b": rec_of(z=WAVE, unit="m")},
            None,
            {"label": "z"},
            {},
            "label 'z' is in cm in session 'a' and in m in session 'b'; convert",
        ),
        (
            {"a": rec_of(z=ANGLE, kind="circular"), "b": rec_of(z=ANGLE, kind="continuous")},
            None,
            {"label": "z"},
            {},
            "label 'z' is continuous in session 'b' and circular in another one",
        ),
        (
            {"a": rec_of(z=ANGLE), "b": rec_of(z=WAVE)},
            None,
            {"label": "z"},
            {},
            "label 'z' was taken as .*circular in session 'a'.*; say label_kind=",
        ),
        (
            {"a": rec_of(z=WAVE), "b": rec_of(z=WAVE)},
            None,
            {"label": "z"},
            {"objective": "regression", "time_dims": None},
            "objective='regression' cannot be fitted to several sessions",
        ),
        (
            {"a": rec_of(z=WAVE), "b": rec_of(z=WAVE)},
            None,
            {"label": "z", "epochs": [(0, 9)]},
            {},
            "epochs are those of one recording; give each session its own",
        ),
        (
            {"a": rec_of(z=WAVE)},
            None,
            {"label": "z"},
            {"time_block": "common"},
            "time_block must be one of",
        ),
        (
            {"a": rec_of(z=WAVE)},
            None,
            {"label": "z"},
            {"session_weight": 2},
            "session_weight must be one of",
        ),
    ],
)
def test_bad_input_is_refused_before_any_training(data, y, fit, settings, message, monkeypatch):
    without_training(monkeypatch)
    with pytest.raises(InputError, match=message):
        quick(**settings).fit(data, y, **fit)


def test_an_empty_recording_cannot_even_be_made():
    with pytest.raises(InputError, match="none of them empty"):
        Recording(X[:0], {"z": WAVE[:0]})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("transform", r"fitted to the sessions \['day 1', 'day 2'\]; give several .*sessions_"),
        ("score", "fitted to the sessions"),
        ("attribute", "fitted to the sessions"),
        ("inverse_transform", r"inverse_transform is for one session; use model.sessions_\[name\]"),
    ],
)
def test_one_recording_is_refused_by_a_joint_model(recs, joint, method, message):
    with pytest.raises(InputError, match=message):
        getattr(joint, method)(recs["day 1"])


def test_sessions_that_the_model_does_not_know_are_refused(recs, joint):
    other = {"day 3": recs["day 1"]}
    for method in (joint.transform, joint.score, joint.attribute):
        with pytest.raises(InputError, match=r"session 'day 3', .* add it with fit_session first"):
            method(other)
    with pytest.raises(InputError, match=r"X has 1 sessions, but the model was fitted to 2"):
        joint.transform([recs["day 1"]])
    with pytest.raises(InputError, match="y names 'day 3'"):
        joint.score(recs, {"day 3": recs["day 1"].labels["z2"]})
    with pytest.raises(InputError, match="epochs are those of one recording"):
        joint.transform(recs, epochs=[(0, 10)])


# A session that is added later


@pytest.fixture(scope="module")
def added(recs):
    """A joint fit before and after a session was added to it, and the session."""
    model = fitted(quick(), recs, label="z2")
    before = {
        **{f"{n} {k}": v.clone() for n, m in model.sessions_.items() for k, v in state(m).items()},
        **{f"shared {k}": v.clone() for k, v in model.shared_.state_dict().items()},
    }
    rec = simulated(103, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        new = model.fit_session(rec, name="day 3")
    return model, before, rec, new


def test_adding_a_session_leaves_the_others_as_they_are(added):
    model, before, _, _ = added
    after = {
        **{f"{n} {k}": v for n, m in model.sessions_.items() for k, v in state(m).items()},
        **{f"shared {k}": v for k, v in model.shared_.state_dict().items()},
    }
    for name, value in before.items():
        assert torch.equal(after[name], value), name


def test_the_added_session_has_the_shared_layers_and_a_first_layer_of_its_own(added):
    model, _, rec, new = added
    assert model.sessions_["day 3"] is new
    assert new.blocks_ == model.blocks_
    for layer, common in zip(list(new.encoder_.network)[2:], model.shared_, strict=True):
        for one, other in zip(layer.parameters(), common.parameters(), strict=True):
            assert torch.equal(one, other)
            assert one.data_ptr() != other.data_ptr()
    assert len(new.encoder_.mean) == 7
    assert list(model.transform({"day 3": rec})) == ["day 3"]
    assert model.goodness_of_fit_["z2"] == over_sessions(
        [m.goodness_of_fit_["z2"] for m in model.sessions_.values()]
    )


def test_adding_a_session_twice_gives_the_same_bits(recs, added):
    _, _, rec, new = added
    model = quick().fit(recs, label="z2")
    assert_same_bits(model.fit_session(rec.neural, {"z2": rec.labels["z2"]}, name="day 3"), new)


def test_a_session_can_be_added_that_lacks_labels(lacking_recs, lacking):
    model, _ = lacking
    rec = lacking_recs["c"]
    before = dict(model.sessions_)
    new = model.fit_session(rec, name=4)
    try:
        assert list(new.blocks_) == ["place", "time"]
        assert new.decisions_.trained_latents == 6
        assert list(model.attribute({"4": rec})["4"].blocks) == ["place", "time"]
    finally:
        model.sessions_ = before


def test_an_added_session_keeps_the_weight_that_was_searched_for(recs):
    model = quick(jacobian_weight="auto", steps=16).fit(recs, label="z2")
    new = model.fit_session(simulated(103), name="new")
    assert model.config_["jacobian_weight"] == model.history_["weight"][-1]
    assert new.config_["jacobian_weight"] == new.history_["weight"][-1]


@pytest.mark.parametrize(
    ("data", "y", "name", "message"),
    [
        (rec_of(z2=WAVE), None, "day 1", "name='day 1' must be the name of a new session; there"),
        (rec_of(z2=WAVE), None, " ", "name=' ' must be the name of a new session"),
        (rec_of(z=WAVE), None, "new", r"session 'new' has none of the labels \['z2'\]; it has"),
        (X, WAVE, "new", r"session 'new' has none of the labels \['z2'\]"),
        (X, None, "new", "session 'new' has none of the labels"),
        (rec_of(z2=X[:, :2]), None, "new", "session 'new': label 'z2' has 2 columns, but 1 in"),
        (rec_of(z2=WAVE * 0), None, "new", "session 'new': label 'z2' is constant"),
        (rec_of(z2=ANGLE, kind="circular"), None, "new", "label 'z2' is circular, but continuous"),
        (None, None, "new", r"X\['new'\] must be a Recording"),
        (X[:0], {"z2": WAVE[:0]}, "new", r"X\['new'\] is empty"),
    ],
)
def test_sessions_that_cannot_be_added_are_refused(joint, data, y, name, message, monkeypatch):
    without_training(monkeypatch)
    before = list(joint.sessions_)
    with pytest.raises(InputError, match=message):
        joint.fit_session(data, y, name=name)
    assert list(joint.sessions_) == before


def test_an_added_session_is_checked_against_what_is_known_of_the_labels(monkeypatch):
    """Units, and classes that the joint fit did not see."""
    sides = np.where(WAVE > 0, "left", "right")
    labels = {"place": WAVE, "side": sides}
    info = {"place": LabelInfo(unit="cm")}
    recs = [Recording(X, labels, label_info=info), Recording(X[::-1], labels)]
    model = quick(steps=2).fit(recs, label=["place", "side"])
    without_training(monkeypatch)
    with pytest.raises(InputError, match=r"session 'n': label 'place' is in m, but in cm in the"):
        model.fit_session(rec_of(place=WAVE, unit="m"), name="n")
    with pytest.raises(InputError, match=r"session 'n': label 'side' has classes \['up'\] that"):
        model.fit_session(rec_of(side=np.where(WAVE > 0, "left", "up")), name="n")


def test_a_session_needs_the_controls_of_the_joint_fit(monkeypatch):
    recs = [rec_of(z=WAVE, speed=WAVE**2), Recording(X[::-1], {"z": WAVE, "speed": WAVE**3})]
    model = quick(steps=2).fit(recs, label="z", control="speed")
    assert model.controls_ == ("speed",)
    assert model.sessions_["1"].controls_ == ("speed",)
    without_training(monkeypatch)
    with pytest.raises(
        InputError, match="session 'n' lacks 'speed', which the joint fit controls for"
    ):
        model.fit_session(rec_of(z=WAVE), name="n")


def test_only_joint_models_take_more_sessions(recs):
    model = quick(steps=2).fit(recs["day 1"], label="z2")
    with pytest.raises(InputError, match="fit_session is for models of several sessions; fit a"):
        model.fit_session(recs["day 2"], name="b")


# Label spaces


@pytest.fixture(scope="module")
def readable():
    """Sessions without noise, with other neurons and other random walks."""
    return {
        name: xcebra.datasets.synthetic(
            n_hidden=1, n_observed=2, n_steps=400, seed=seed, n_neurons=12, sigma=0.3
        )
        for name, seed in (("a", 110), ("b", 111), ("c", 112))
    }


TRAINED = {"steps": 150, "batch_size": 128, "time_dims": 1}


def crossed_r2(reader, other, rec):
    """R^2 of the label of a session that is predicted by the readout of another one."""
    block = other.transform(rec)[:, other.blocks_["z2"]]
    return r_squared(rec.labels["z2"], reader.readout_["z2"].predict(block))


@pytest.fixture(scope="module")
def aligned(readable):
    model = fitted(quick(**TRAINED), {name: readable[name] for name in "ab"}, label="z2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit_session(readable["c"], name="c")
    return model.sessions_


@pytest.fixture(scope="module")
def separate(readable):
    return {
        name: fitted(quick(**TRAINED | {"random_state": i}), rec, label="z2")
        for i, (name, rec) in enumerate(readable.items())
    }


def test_joint_training_aligns_the_label_spaces(readable, aligned, separate):
    for one, other in (("a", "b"), ("b", "a")):
        rec = readable[other]
        assert crossed_r2(aligned[one], aligned[other], rec) > 0.9
        assert crossed_r2(separate[one], separate[other], rec) < 0.3


def test_an_added_session_has_the_label_space_of_the_others(readable, aligned, separate):
    rec = readable["c"]
    for one in "ab":
        assert crossed_r2(aligned[one], aligned["c"], rec) > 0.6
        assert crossed_r2(separate[one], separate["c"], rec) < 0.3


# Files that are larger than memory


def test_mapped_sessions_are_read_in_batches_and_not_copied(recs, tmp_path, monkeypatch):
    # As if the components of all samples did not fit into memory.
    monkeypatch.setattr("xcebra.networks.encoder._MOST_KEPT", 0)
    files, mapped = {}, {}
    for name, rec in recs.items():
        path = tmp_path / f"{name}.npy"
        np.save(path, rec.neural)
        files[rec.n_neurons] = np.load(path, mmap_mode="r")
        mapped[name] = Recording(files[rec.n_neurons], rec.labels)
    expected = quick(batch_size=16).fit(recs, label="z2")
    read, in_training = [], []
    original = Recording.rows

    def noting(self, times):
        rows = original(self, times)
        read.append((np.shares_memory(self.neural, files[self.n_neurons]), len(rows)))
        return rows

    def after_step(step, _):
        # Before the first step, the activity is also read to decide on settings.
        in_training.extend(read if step > 1 else [])
        read.clear()

    monkeypatch.setattr(Recording, "rows", noting)
    model = quick(batch_size=16).fit(mapped, label="z2", callback=after_step)
    assert len(in_training) == 9 * 2
    assert all(in_place for in_place, _ in in_training)
    # Of a session: references, negatives, positives in time, and all positives of the label.
    assert max(n for _, n in in_training) <= 16 * 5 < N
    for name in recs:
        assert_same_bits(model.sessions_[name], expected.sessions_[name])
