"""XCEBRA: the contract of scikit-learn, bad input, and what a fit leaves behind."""

import copy
import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import xcebra
from xcebra import XCEBRA, Recording
from xcebra.caveats import (
    LabelKindWarning,
    MissingFactorWarning,
    MissingLabelWarning,
    ShortRecordingWarning,
    SilentNeuronWarning,
    SparseBasisWarning,
    XcebraWarning,
)
from xcebra.metrics import auroc

# What check_estimator runs on a transformer; a new scikit-learn may add to it.
N_CHECKS = 47
# Skipped by scikit-learn itself unless an environment variable asks for other array libraries.
SKIPPED = {"check_array_api_input"}
# It shuffles samples without a seed and wants nine digits of single precision; see the test below.
ORDER = {"check_methods_sample_order_invariance": "nine digits are more than single precision has"}


@pytest.fixture(scope="module")
def rec():
    return xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=1000, seed=7, n_neurons=20)


@pytest.fixture(scope="module")
def fitted(rec):
    return quick().fit(rec.neural, rec.labels["z2"])


def quick(**settings):
    return XCEBRA(**{"time_dims": 2, "steps": 10, "batch_size": 128, "random_state": 0} | settings)


def test_scikit_learn_checks_pass_and_none_is_lost():
    with warnings.catch_warnings():
        # Data of the checks are tiny, with integer labels and constant columns.
        warnings.simplefilter("ignore", XcebraWarning)
        warnings.filterwarnings("ignore", message="Can't check dok sparse matrix")
        results = check_estimator(
            XCEBRA(steps=2), on_fail=None, on_skip=None, expected_failed_checks=ORDER
        )
    by_status = {}
    for result in results:
        by_status.setdefault(result["status"], set()).add(result["check_name"])
    assert by_status.get("failed", set()) == set()
    assert by_status.get("xfail", set()) <= set(ORDER)
    assert by_status.get("skipped", set()) == SKIPPED
    assert len(results) == N_CHECKS


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_samples_does_not_matter_to_single_precision(rec, fitted, seed):
    order = np.random.default_rng(seed).permutation(300)
    x = rec.neural[:300]
    embedding = fitted.transform(x)
    size = np.abs(embedding).max()
    np.testing.assert_allclose(
        fitted.transform(x[order]), embedding[order], rtol=0, atol=1e-5 * size
    )


def test_clone_pipeline_grid_search_and_set_output(rec):
    neural, label = rec.neural, rec.labels["z2"]
    model = quick(steps=2)
    assert clone(model).get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), model)
    assert pipeline.fit_transform(neural, label).shape == (1000, 4)
    search = GridSearchCV(quick(steps=2), {"time_dims": [1, 2]}, cv=2)
    search.fit(neural, label)
    assert np.isfinite(search.best_score_)
    table = clone(model).set_output(transform="pandas").fit_transform(neural, label)
    assert list(table.columns) == ["label0", "label1", "time0", "time1"]


def test_blocks_history_config_and_goodness_of_fit_are_complete(rec, fitted):
    assert fitted.blocks_ == {"label": slice(0, 2), "time": slice(2, 4)}
    assert set(fitted.history_) == {
        "loss/label", "chance/label", "loss/time", "chance/time",
        "penalty", "weight", "learning_rate",
    }  # fmt: skip
    assert all(len(values) == 10 for values in fitted.history_.values())
    assert all(value is not None for name, value in fitted.config_.items() if name != "progress")
    assert fitted.config_["batch_size"] == 128
    # Recipe xcebra has the positive in the sum: chance is log(N + 1).
    assert fitted.history_["chance/label"][0] == pytest.approx(np.log(129))
    assert set(fitted.goodness_of_fit_) == {"label", "time"}
    assert fitted.goodness_of_fit_["label"].learned in (True, False)


def test_labels_as_array_frame_mapping_or_from_a_recording_give_the_same_model(rec, fitted):
    expected = fitted.transform(rec.neural)
    label = rec.labels["z2"]
    for model in (
        quick().fit(rec.neural, pd.DataFrame(label, columns=["x", "y"])),
        quick().fit(rec.neural, {"z2": label}),
        quick().fit(rec, label="z2"),
        quick(label_dims={"z2": 2}).fit(Recording(rec.neural, {"z2": label}), label="z2"),
    ):
        assert np.array_equal(model.transform(rec.neural), expected)
    assert list(model.blocks_) == ["z2", "time"]


def test_a_recording_with_labels_asks_which_one(rec):
    with pytest.raises(ValueError, match=r"labels \['z2'\]; say which to use with label="):
        quick().fit(rec)
    assert list(quick(steps=2).fit(rec, label=[]).blocks_) == ["time"]
    with pytest.raises(ValueError, match="got 'speed'"):
        quick().fit(rec, label="speed")


def test_blocks_stand_in_the_order_of_label_dims(rec):
    labels = {"a": rec.latents["z1"], "b": rec.latents["z2"]}
    model = quick(label_dims={"b": 1, "a": 3}, time_dims=1, steps=2).fit(rec.neural, labels)
    assert model.blocks_ == {"b": slice(0, 1), "a": slice(1, 4), "time": slice(4, 5)}
    assert list(model.goodness_of_fit_) == ["b", "a", "time"]


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [
        ({"time_dims": 0}, ["label"]),
        ({"objective": "regression", "time_dims": 0}, ["label"]),
        ({"distance": "cosine"}, ["label", "time"]),
        ({"time_on": "block"}, ["label", "time"]),
        ({"jacobian_weight": 0.0}, ["label", "time"]),
        ({"recipe": "paper", "steps": 5}, ["label", "time"]),
    ],
)
def test_every_way_of_training_runs_saves_and_loads_to_the_same_bits(
    rec, settings, blocks, tmp_path
):
    model = quick(**settings).fit(rec.neural, rec.labels["z2"])
    assert list(model.blocks_) == blocks
    model.save(tmp_path / "model.safetensors")
    again = XCEBRA.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.transform(rec.neural), model.transform(rec.neural))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xcebra.caveats.XcebraWarning)
        maps = [m.attribute(rec.neural[:500]) for m in (model, again)]
    assert np.array_equal(maps[0].values, maps[1].values)
    assert again.score(rec.neural, rec.labels["z2"]) == model.score(rec.neural, rec.labels["z2"])
    assert again.config_ == model.config_
    assert list(again.history_) == list(model.history_)
    assert again.goodness_of_fit_ == model.goodness_of_fit_
    assert {k: v for k, v in again.get_params().items() if k != "device"} == {
        k: v for k, v in model.get_params().items() if k != "device"
    }


def test_a_loaded_model_cut_short_or_edited_is_refused(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        XCEBRA.load(path)
    edited = whole.replace(b'\\"batch_size\\": 128', b'\\"batch_size\\": 129')
    assert edited != whole
    path.write_bytes(edited)
    with pytest.raises(ValueError, match="does not match its own digest"):
        XCEBRA.load(path)


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(rec, fitted):
    again = quick().fit(rec.neural, rec.labels["z2"])
    assert np.array_equal(again.transform(rec.neural), fitted.transform(rec.neural))
    other = quick(random_state=1).fit(rec.neural, rec.labels["z2"])
    assert not np.array_equal(other.transform(rec.neural), fitted.transform(rec.neural))


def test_fitting_leaves_torch_and_numpy_as_they_were(rec):
    torch.manual_seed(3)
    np.random.seed(3)
    quick(steps=3).fit(rec.neural, rec.labels["z2"])
    drawn = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(3)
    np.random.seed(3)
    assert drawn == (torch.rand(1).item(), np.random.rand())


def test_silent_neurons_pass_with_one_warning_and_score_exactly_zero(rec):
    neural = np.column_stack([np.full(1000, 3.0), rec.neural, np.full(1000, 0.1)])
    with pytest.warns(SilentNeuronWarning, match=r"2 of 22 neurons never change \(neurons 0, 21\)"):
        model = quick().fit(neural, rec.labels["z2"])
    for method in ("inverted-gradient", "gradient"):
        for units in ("standardised", "raw"):
            amap = attribute(model, neural, method=method, units=units)
            assert (amap.values[[0, 21]] == 0).all()
            assert (amap.values[1:21] > 0).all()


def test_an_adjusting_default_batch_and_a_short_recording():
    rng = np.random.default_rng(0)
    with pytest.warns(ShortRecordingWarning, match="too short to hold out"):
        model = XCEBRA(steps=3, random_state=0).fit(rng.normal(size=(60, 8)))
    assert model.config_["batch_size"] == 60
    assert model.goodness_of_fit_["time"].learned is None


def test_missing_labels_are_counted_and_left_out(rec):
    label = rec.labels["z2"].copy()
    label[100:400] = np.nan
    with pytest.warns(MissingLabelWarning, match=r"missing .* at 300 of 1000 samples"):
        model = quick().fit(rec.neural, label)
    assert np.isfinite(model.transform(rec.neural)).all()
    assert np.isfinite(model.score(rec.neural, label))


def test_discrete_and_circular_labels(rec):
    angle = np.arctan2(*rec.latents["z2"].T)
    side = np.where(rec.latents["z1"][:, 0] > 0, "left", "right")
    kinds = {"angle": "circular", "side": "discrete"}
    model = quick(label_kind=kinds).fit(rec.neural, {"angle": angle, "side": side})
    assert model.config_["label_dims"] == {"angle": 2, "side": 1}
    # A test set that lacks a class is scored by the fit's own classes.
    only_left = side == "left"
    found = model.score(rec.neural[only_left], {"angle": angle[only_left]})
    assert np.isfinite(found)
    assert np.isfinite(model.score(rec.neural, {"angle": angle, "side": side}))
    with pytest.raises(ValueError, match=r"classes \['up'\] that the fit did not see"):
        model.score(rec.neural, {"side": np.full(1000, "up")})


def test_integer_labels_warn_what_was_assumed(rec):
    label = (rec.latents["z2"][:, 0] > 0).astype(int)
    with pytest.warns(LabelKindWarning, match="2 different ones, and was taken as discrete"):
        quick(steps=2).fit(rec.neural, label)


def test_a_memory_mapped_recording_is_used_in_place(rec, tmp_path, fitted):
    path = tmp_path / "neural.npy"
    np.save(path, rec.neural)
    mapped = np.load(path, mmap_mode="r")
    model = quick()
    recording = model._recording(mapped, reset=True)
    assert np.shares_memory(recording.neural, mapped)
    expected = fitted.transform(rec.neural)
    assert np.array_equal(quick().fit(mapped, rec.labels["z2"]).transform(mapped), expected)


def test_neuron_names_reach_the_map_and_the_file(rec, tmp_path):
    names = [f"cell {i}" for i in range(20)]
    frame = pd.DataFrame(rec.neural, columns=names)
    model = quick(steps=2).fit(frame, rec.labels["z2"])
    assert attribute(model, frame).neuron_names == tuple(names)
    model.save(tmp_path / "m.safetensors")
    loaded = XCEBRA.load(tmp_path / "m.safetensors")
    assert attribute(loaded, frame).neuron_names == tuple(names)


def test_time_only_scores_nats_below_chance(rec, short_decoders):
    model = quick(steps=200).fit(rec.neural)
    assert list(model.blocks_) == ["time"]
    assert 0.3 < model.score(rec.neural) < np.log(129)
    shuffled = np.random.default_rng(0).permutation(rec.neural)
    assert model.score(shuffled) < 0.1


def test_epochs_restrict_what_a_map_is_made_of(rec, fitted):
    first = attribute(fitted, rec.neural, epochs=[(0, 500)], smooth=1)
    assert np.allclose(first.values, attribute(fitted, rec.neural[:500], smooth=1).values)
    assert first.made["n_samples"] == 500


def test_units_and_methods_that_are_unknown_are_named(rec, fitted):
    with pytest.raises(ValueError, match=r"method must be one of .*got 'magic'.*units must be"):
        fitted.attribute(rec.neural, method="magic", units="volts")


def test_progress_shows_losses_chance_and_time_left(rec, capsys):
    quick(steps=12, progress=True).fit(rec.neural, rec.labels["z2"])
    shown = capsys.readouterr().err
    assert "label " in shown
    assert "(chance 4.86)" in shown
    assert "<" in shown  # elapsed<remaining


def good():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 10)), rng.normal(size=(300, 2))


def with_(position, value):
    neural, _ = good()
    neural[position] = value
    return neural


@pytest.mark.parametrize(
    ("settings", "neural", "label", "fit", "message"),
    [
        ({}, with_((17, 3), np.nan), None, {}, "NaN at time 17, neuron 3"),
        ({}, with_((0, 9), np.inf), None, {}, "inf at time 0, neuron 9"),
        ({}, np.zeros(10), None, {}, "Expected 2D array, got 1D"),
        ({}, np.zeros((4, 4, 4)), None, {}, "dim 3"),
        ({}, None, np.zeros(299), {}, "label 'label' has 299 samples, but the neural data has 300"),
        ({}, None, np.zeros(300), {}, "constant .column 0 is always 0"),
        ({}, None, np.full(300, np.nan), {}, "missing .NaN. everywhere"),
        ({}, None, np.array(["a"] * 300), {}, "constant .column 0 is always 1"),
        ({}, np.full((300, 3), "a"), None, {}, "numeric|could not convert|dtype"),
        ({"batch_size": 301}, None, None, {}, "batch_size is 301, but there are only 300"),
        ({"label_dims": 0}, None, "y", {}, r"label_dims\['label'\] must be .* 1 or more, got 0"),
        ({"label_dims": 9, "time_dims": 4}, None, "y", {}, "9 . 4 latents, but 10"),
        ({"time_dims": -1}, None, None, {}, "time_dims must be .* 0 or more, got -1"),
        ({"time_dims": 0}, None, None, {}, "nothing to learn"),
        ({"recipe": "soup"}, None, None, {}, "recipe must be one of .*got 'soup'"),
        ({"objective": "x"}, None, None, {}, "objective must be one of"),
        ({"distance": "x"}, None, None, {}, "distance must be one of"),
        ({"steps": 2.5}, None, None, {}, "steps must be a whole number .* got 2.5"),
        ({"steps": "many"}, None, None, {}, "steps must be a whole number .* got 'many'"),
        ({"learning_rate": 0}, None, None, {}, "learning_rate must be a number above 0, got 0"),
        ({"temperature": np.nan}, None, None, {}, "temperature must be a number above 0, got nan"),
        ({"jacobian_weight": -1}, None, None, {}, "jacobian_weight must be .* got -1"),
        ({"device": "abacus"}, None, None, {}, "device='abacus' cannot be used"),
        ({"label_kind": "square"}, None, "y", {}, "label_kind.* must be one of"),
        ({"label_kind": {"z": "discrete"}}, None, "y", {}, "label_kind names 'z'"),
        ({"label_delay": 0.5}, None, "y", {}, "label_delay.* whole number"),
        ({}, None, {"time": np.arange(300.0)}, {}, "'time' names the time block"),
        ({}, None, {}, {}, "empty mapping"),
        ({"time_offset": 500}, None, None, {}, "no epoch is long enough.*time_offset=500"),
        ({"time_offset": 9}, None, None, {"epochs": [(0, 5), (9, 14)]}, "longest epoch has 5"),
        ({}, None, None, {"epochs": [(0, 400)]}, "stop <= 300"),
        ({}, None, None, {"label": "z"}, "chooses from a Recording"),
        ({}, np.ones((300, 10)), None, {}, "none of the 10 neurons ever changes"),
        ({"objective": "regression"}, None, None, {}, "needs labels"),
        ({"objective": "regression", "time_dims": 2}, None, "y", {}, "time_dims must be 0"),
    ],
)
def test_bad_input_is_refused_before_any_training(
    settings, neural, label, fit, message, monkeypatch
):
    def no_training(*_args, **_kwargs):
        raise AssertionError("training was started")

    monkeypatch.setattr("xcebra.attribution.fitting.train", no_training)
    neural = good()[0] if neural is None else neural
    label = good()[1] if isinstance(label, str) else label
    with pytest.raises(ValueError, match=message):
        XCEBRA(**{"steps": 2} | settings).fit(neural, label, **fit)


def test_unknown_parameters_are_refused():
    with pytest.raises(TypeError, match="magic"):
        XCEBRA(magic=1)


def test_the_wrong_number_of_neurons_is_refused_later_too(rec, fitted):
    with pytest.raises(ValueError, match="19 features"):
        fitted.transform(rec.neural[:, :19])
    with pytest.raises(ValueError, match="NaN at time 2"):
        fitted.transform(np.where(np.arange(1000)[:, None] == 2, np.nan, rec.neural))


def test_short_epochs_are_dropped_with_one_counted_warning(rec):
    epochs = [(0, 900), (900, 903), (910, 912)]
    with pytest.warns(ShortRecordingWarning, match="2 of 3 epochs are no longer than") as caught:
        quick(time_offset=4, steps=2).fit(rec.neural, rec.labels["z2"], epochs=epochs)
    assert len(caught) == 1


def attribute(model, X, **settings):
    """A map of a model too briefly trained to have learned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xcebra.caveats.UnlearnedLabelWarning)
        warnings.simplefilter("ignore", SparseBasisWarning)
        return model.attribute(X, **settings)


def test_auroc_names_what_it_can_compare(rec, fitted):
    amap = attribute(fitted, rec.neural[:200])
    with pytest.raises(ValueError, match="connects 20 of 20 neurons"):
        auroc(amap, rec.ground_truth, block="label", factor="z1")


METHODS = (
    "decoder-gradient",
    "inverted-gradient",
    "gradient",
    "integrated-gradients",
    "shap-zeros",
    "shap-shuffled",
    "feature-ablation",
)
each_method = pytest.mark.parametrize("method", METHODS)


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.fixture(scope="module")
def trained(full_decoders):
    """Long enough for every neuron to have its place."""
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=6000, seed=114)
    with full_decoders():
        return rec, quick(steps=150, batch_size=256).fit(rec.neural, rec.labels["z2"])


@each_method
@pytest.mark.parametrize("basis", ["raw", "label", "sparse"])
def test_the_size_of_a_batch_and_the_order_of_time_change_nothing(trained, method, basis):
    rec, model = trained
    x = rec.neural[:20]
    options = {"method": method, "basis": basis}
    whole = model.attribute(x, **options)
    for batch_size in (1, 7, 20):
        parts = model.attribute(x, **options, batch_size=batch_size)
        assert relative(parts.values, whole.values) < 1e-4
        assert relative(parts.block("label"), whole.block("label")) < 1e-4
    if not method.startswith("shap"):  # their random draws belong to places in time
        order = np.random.default_rng(0).permutation(20)
        permuted = model.attribute(x[order], **options)
        assert relative(permuted.values, whole.values) < 1e-4


@each_method
def test_a_model_and_its_encoder_as_a_bare_module_have_the_same_map(trained, method):
    rec, model = trained
    if method == "decoder-gradient":
        with pytest.raises(ValueError, match="needs a decoder, which XCEBRA fits"):
            xcebra.attribute(model.encoder_, rec.neural[:9], method=method)
        return
    x = rec.neural[:50]
    ours = model.attribute(x, method=method, basis="raw", smooth=1, units="raw")
    bare = xcebra.attribute(
        model.encoder_, x, method=method, blocks=model.blocks_, random_state=ours_seed(model)
    )
    if method == "inverted-gradient":
        # The inverse is taken in the metric that was penalised; by raw neurons it is another one.
        scale = model.encoder_.scale.numpy()
        in_place = xcebra.attribute(
            Standardised(model.encoder_), model.encoder_.standardised(torch.from_numpy(x)).numpy()
        )
        assert relative(ours.values, in_place.values * scale[:, None]) < 1e-4
    else:
        assert relative(ours.values, bare.values) < 1e-4
        assert relative(ours.block("label"), bare.block("label")) < 1e-4


def ours_seed(model):
    return model.config_["random_state"]


class Standardised(torch.nn.Module):
    """An encoder as it acts on standardised neurons."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        return self.encoder.network(x @ self.encoder.loadings)


@each_method
def test_time_resolved_maps_aggregate_to_the_global_one(trained, method):
    rec, model = trained
    plain = model.attribute(rec.neural[:40], method=method)
    kept = model.attribute(rec.neural[:40], method=method, keep_time=True)
    assert relative(np.abs(kept.steps.maps).mean(axis=0), plain.values) < 1e-5
    assert relative(kept.aggregated("mean").block("time"), plain.block("time")) < 1e-5
    if method not in ("inverted-gradient", "gradient") and not method.startswith("shap"):
        # In axes of the fit: those of the sparse basis are found from the samples given.
        told = {"method": method, "basis": "label"}
        kept = model.attribute(rec.neural[:40], keep_time=True, **told)
        alone = model.attribute(rec.neural[:40], smooth=1, epochs=[(7, 8)], **told)
        assert relative(kept.at(7).values, alone.values) < 1e-5


def test_the_decoder_expects_what_the_neurons_do(trained):
    rec, model = trained
    expected = model.inverse_transform(model.transform(rec.neural))
    assert expected.shape == rec.neural.shape
    # Of the stretches that are held out, every second one, which did not stop training.
    held_out = np.r_[1450:1550, 3450:3550, 5450:5550]
    error = np.square(rec.neural[held_out] - expected[held_out]).mean(axis=0)
    explained = 1 - error / rec.neural[held_out].var(axis=0)
    assert explained.mean() > 0.9
    # From labels and from what the other neurons know, on all of the time: hardly less.
    np.testing.assert_allclose(model.variance_explained_["all"], explained, atol=0.02)
    for name in ("label", "time"):
        assert (model.variance_explained_[name] > -1e-3).all()
    with_z2, without = (
        model.variance_explained_["label"][rec.ground_truth["z2"] == k] for k in (True, False)
    )
    assert np.median(with_z2) > 5 * np.median(without)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros((3, 5)), "Z has 5 columns, but the embedding has 4 latents"),
        (np.full((3, 4), np.nan), "Z contains NaN"),
    ],
)
def test_points_that_are_not_of_the_embedding_are_refused(trained, points, message):
    with pytest.raises(ValueError, match=message):
        trained[1].inverse_transform(points)


def test_a_saved_model_keeps_decoder_variance_and_mixture(trained, tmp_path):
    rec, model = trained
    model.save(tmp_path / "model.safetensors")
    loaded = XCEBRA.load(tmp_path / "model.safetensors")
    z = model.transform(rec.neural[:50])
    assert np.array_equal(loaded.inverse_transform(z), model.inverse_transform(z))
    assert list(loaded.variance_explained_) == ["all", "label", "time"]
    for name, share in model.variance_explained_.items():
        assert np.array_equal(loaded.variance_explained_[name], share)
    ours, theirs = model.mixture_["label"], loaded.mixture_["label"]
    assert np.array_equal(ours.weights, theirs.weights)
    assert (ours.gap, ours.n_unconnected, ours.instability, ours.trusted) == (
        theirs.gap,
        theirs.n_unconnected,
        theirs.instability,
        theirs.trusted,
    )
    for basis in ("raw", "label", "sparse"):
        a, b = (m.attribute(rec.neural[:50], basis=basis) for m in (model, loaded))
        assert np.array_equal(a.values, b.values)


@pytest.mark.parametrize("method", [None, "decoder-gradient"])
def test_a_block_can_be_a_name_or_a_slice(trained, method):
    rec, model = trained
    told = {"basis": "raw", "method": method}
    x = rec.neural[:80]
    whole = model.attribute(x, **told)
    named = model.attribute(x, block="time", **told)
    assert list(named.blocks) == ["time"]
    assert named.latent_names == ("time0", "time1")
    np.testing.assert_allclose(named.values, whole.values[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(named.block("time"), whole.block("time"), rtol=1e-6)
    cut = model.attribute(x, block=slice(1, 3), **told)
    np.testing.assert_allclose(cut.values, whole.values[:, 1:3], rtol=1e-5, atol=1e-7)


def test_a_block_can_be_directions_of_the_embedding(trained):
    """Which labels know nothing of: the map is then that of the decoder."""
    rec, model = trained
    x = rec.neural[:80]
    whole = model.attribute(x, basis="raw", method="decoder-gradient")
    axis = model.attribute(x, block=[[0, 0, 2.0, 0]])
    assert axis.made["method"] == "decoder-gradient"
    np.testing.assert_allclose(axis.values[:, 0], whole.values[:, 2], rtol=1e-5)
    plane = model.attribute(x, block=[[0, 0, 1.0, 0.3], [0, 0, -2.0, 5.0]])
    np.testing.assert_allclose(plane.block("directions"), whole.block("time"), rtol=1e-4)
    with pytest.raises(ValueError, match="so basis must be 'raw', got 'sparse'"):
        model.attribute(x, block=[[0, 0, 1.0, 0]], basis="sparse")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method must be one of .*decoder-gradient"),
        ({"basis": "best"}, "basis must be one of"),
        ({"aggregate": "median"}, "'median' needs every time step: give keep_time=True"),
        ({"method": "shap-zeros", "smooth": 4}, "smooth=4 averages Jacobians"),
        ({"block": "speed"}, "block must be one of \\['label', 'time'\\]"),
        ({"block": slice(3, 9)}, "must choose one or more neighbours of the 4 latents"),
        ({"block": np.ones((2, 4))}, "span only 1 dimensions"),
        ({"keep_time": "/no/such/folder/map.npy"}, "there is no folder '/no/such/folder'"),
        (
            {"method": "crossed-gradient", "block": np.eye(4)},
            "knows labels and time latents, not any direction",
        ),
        ({"method": "crossed-gradient", "smooth": 4}, "smooth=4 averages Jacobians"),
        ({"batch_size": 0}, "batch_size must be a whole number of 1 or more, got 0"),
    ],
)
def test_maps_that_cannot_be_made_are_refused(trained, options, message):
    rec, model = trained
    with pytest.raises(ValueError, match=message):
        model.attribute(rec.neural[:5], **options)


def test_the_unit_of_a_label_changes_no_map(rec):
    """Metres or millimetres: also where the block has more latents than the label has columns."""
    maps = {}
    for unit in (1.0, 1000.0):
        model = quick(label_dims=3, label_kind="continuous").fit(
            rec.neural, unit * rec.labels["z2"]
        )
        for method in ("crossed-gradient", "decoder-gradient", "inverted-gradient"):
            for basis in ("label", "sparse"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", XcebraWarning)
                    amap = model.attribute(rec.neural[:200], method=method, basis=basis)
                maps[unit, method, basis] = amap
    for (unit, method, basis), amap in maps.items():
        assert relative(amap.values, maps[1.0, method, basis].values) < 0.02, (unit, method, basis)


@pytest.mark.parametrize("seed", range(4))
def test_classes_keep_learned_axes_as_their_columns_follow_from_each_other(rec, seed):
    classes = (rec.labels["z2"][:, 0] > 0).astype(int)
    model = quick(label_dims=2, label_kind="discrete", random_state=seed, steps=5)
    model.fit(rec.neural, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        learned, label = (
            model.attribute(rec.neural[:50], basis=b, method="decoder-gradient")
            for b in ("raw", "label")
        )
        columns = model.attribute(rec.neural[:50], basis="label")
    assert relative(label.values, learned.values) < 1e-5
    # A map of the label itself shows its columns: differences d_c from the mean over classes, with
    # s_0 d_0 + s_1 d_1 = 0, times the root of the share s_c.
    shares = np.bincount(classes) / len(classes)
    first, second = columns.values[:, :2].T
    np.testing.assert_allclose(first, second * np.sqrt(shares[1] / shares[0]), rtol=1e-3, atol=1e-5)
    both = np.hypot(first, second)
    agree = columns.block("label") > 0
    assert agree.any()
    np.testing.assert_allclose(both[agree], columns.block("label")[agree], rtol=1e-3)


def test_a_label_cannot_take_a_name_that_means_something_else(rec):
    for name in ("time", "all"):
        with pytest.raises(ValueError, match=f"'{name}' .* cannot be a label"):
            quick().fit(rec.neural, {name: rec.labels["z2"]})


def test_a_mixture_that_is_not_trusted_is_told_wherever_it_matters(trained):
    rec, model = trained
    doubtful = copy.copy(model)
    mixture = model.mixture_["label"]
    weights = np.full_like(mixture.weights, 0.1)
    doubtful.mixture_ = {"label": dataclasses.replace(mixture, weights=weights, instability=0.5)}
    x = rec.neural[:30]
    for block in (None, "label", slice(1, 3)):
        with pytest.warns(SparseBasisWarning, match="changes by 50% without a fifth"):
            doubtful.attribute(x, block=block)
    doubtful.attribute(x, block="time")
    doubtful.attribute(x, block="label", method="gradient", basis="sparse")
    with pytest.warns(SparseBasisWarning):
        doubtful.attribute(x, block="time", method="gradient", basis="sparse")
    assert doubtful.attribute(x, method="gradient").made["basis"] == "label"


def test_defaults_of_a_map_are_those_of_the_fit(trained):
    rec, model = trained
    changed = copy.copy(model).set_params(recipe="paper")
    assert changed.attribute(rec.neural[:20]).made["method"] == "crossed-gradient"


def test_a_factor_without_a_latent_is_told(trained, tmp_path):
    rec, model = trained
    lacking = copy.copy(model)
    lacking.left_over_ = 0.3
    with pytest.warns(
        MissingFactorWarning, match="holds 30% of the neurons' variance .* time_dims=3"
    ):
        lacking.attribute(rec.neural[:20])
    lacking.save(tmp_path / "model.safetensors")
    assert XCEBRA.load(tmp_path / "model.safetensors").left_over_ == 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lacking.attribute(rec.neural[:20], method="gradient")
