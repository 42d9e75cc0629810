"""From a recording to an answer, on small data whose answer is known."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import xcebra
from xcebra import XCEBRA
from xcebra.caveats import SparseBasisWarning, UnlearnedLabelWarning
from xcebra.metrics import auroc
from xcebra.report import write_report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def journey():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=4_000, seed=110)
    model = XCEBRA(label_dims=2, time_dims=2, steps=100, batch_size=256, random_state=0)
    model.fit(rec.neural, rec.labels["z2"])
    return rec, model, model.attribute(rec.neural)


def test_hybrid_learning_finds_the_neurons_that_carry_the_label(journey):
    rec, model, amap = journey
    assert model.score(rec.neural, rec.labels["z2"]) > 0.97
    assert model.goodness_of_fit_["label"].learned is True
    assert model.goodness_of_fit_["time"].learned is True
    assert auroc(amap, rec.ground_truth, block="label", factor="z2") > 0.97
    assert auroc(amap, rec.ground_truth, block="label", factor="z2", score="block") > 0.99


def test_the_loss_ends_below_chance_but_above_its_floor(journey):
    _, model, _ = journey
    loss, chance = (model.history_[f"{kind}/label"][-50:].mean() for kind in ("loss", "chance"))
    assert 0 < loss < chance - 0.5


def test_an_unrelated_label_is_not_learned_and_its_map_comes_with_a_warning(
    journey, short_decoders
):
    rec, _, _ = journey
    other = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=4_000, seed=111)
    model = XCEBRA(label_dims=2, time_dims=2, steps=75, batch_size=256, random_state=0)
    model.fit(rec.neural, other.labels["z2"])
    assert model.goodness_of_fit_["label"].learned is False
    with pytest.warns(UnlearnedLabelWarning, match="'label' was not found in the activity"):
        model.attribute(rec.neural[:100])


def test_a_hidden_factor_is_found_through_time():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=8_000, seed=110)
    model = XCEBRA(label_dims=2, time_dims=2, steps=150, batch_size=256, random_state=0)
    model.fit(rec.neural, rec.latents["z1"])
    # Every neuron carries z1: there is nothing to find out a mixture by, and the map says so.
    with pytest.warns(SparseBasisWarning, match="of 50 neurons"):
        amap = model.attribute(rec.neural)
    assert auroc(amap, rec.ground_truth, block="time", factor="z2", score="block") > 0.95
    inverted = model.attribute(rec.neural, method="inverted-gradient", basis="label")
    assert auroc(inverted, rec.ground_truth, block="time", factor="z2", score="block") > 0.95


def test_the_sparse_basis_undoes_what_correlated_factors_mix():
    rec = xcebra.datasets.synthetic(
        n_hidden=2, n_observed=2, n_steps=8_000, correlation=0.7, seed=113
    )
    model = XCEBRA(label_dims=2, time_dims=2, steps=150, batch_size=256, random_state=0)
    model.fit(rec.neural, rec.labels["z2"])
    assert model.mixture_["label"].trusted
    scores = {
        (method, basis): auroc(
            model.attribute(rec.neural[::4], method=method, basis=basis),
            rec.ground_truth,
            block="label",
            factor="z2",
        )
        for method in ("decoder-gradient", "inverted-gradient")
        for basis in ("label", "sparse")
    }
    for method in ("decoder-gradient", "inverted-gradient"):
        assert scores[method, "label"] < 0.9
        assert scores[method, "sparse"] > 0.97


def test_directions_on_the_sphere_are_learned_with_the_cosine():
    rec = xcebra.datasets.synthetic(
        n_hidden=3, n_observed=3, n_steps=4_000, seed=112, space="sphere", observed="z2"
    )
    model = XCEBRA(
        label_dims=3, time_dims=3, distance="cosine", steps=100, batch_size=256, random_state=0
    ).fit(rec.neural, rec.labels["z2"])
    assert model.score(rec.neural, rec.labels["z2"]) > 0.9
    z = model.transform(rec.neural[:100])
    for block in model.blocks_.values():
        assert np.allclose(np.linalg.norm(z[:, block], axis=1), 1, atol=1e-5)
    decoded = model.attribute(rec.neural)
    assert decoded.made["basis"] == "label"
    assert auroc(decoded, rec.ground_truth, block="label", factor="z2", score="block") > 0.9
    with pytest.raises(ValueError, match="basis='sparse' needs distance='euclidean'"):
        model.attribute(rec.neural[:10], basis="sparse")
    amap = model.attribute(rec.neural, method="inverted-gradient")
    # Each unit-norm block loses one rank: the inverse must not explode.
    assert amap.made["rank_lost"] == 1.0
    assert amap.made["condition_worst"] < 1e4


def test_regression_learns_the_label_too(journey, short_decoders):
    rec, _, _ = journey
    model = XCEBRA(objective="regression", steps=150, batch_size=256, random_state=0)
    model.fit(rec.neural, rec.labels["z2"])
    assert model.score(rec.neural, rec.labels["z2"]) > 0.97
    assert model.goodness_of_fit_["label"].learned is True
    assert model.goodness_of_fit_["label"].loss < 0.05


def test_a_delayed_label_is_found_at_its_delay(journey, short_decoders):
    rec, _, _ = journey
    lag = 25
    behaviour = np.roll(rec.labels["z2"], lag, axis=0)  # comes 25 samples after the activity
    settings = {"label_dims": 2, "time_dims": 2, "steps": 75, "batch_size": 256}
    scores = {}
    for delay in (0, lag):
        model = XCEBRA(**settings, label_delay=delay, random_state=0).fit(rec.neural, behaviour)
        scores[delay] = model.score(rec.neural, behaviour)
    assert scores[lag] > 0.95 > scores[0] + 0.05


def test_the_report_is_one_page_with_its_pictures_inside(journey, tmp_path):
    rec, model, amap = journey
    page = write_report(
        tmp_path / "new" / "report.html",
        model,
        amap,
        title="A <tagged> title",
        truth=rec.ground_truth,
        recording=rec,
        scores={"auROC": 1.0},
    ).read_text()
    assert "A &lt;tagged&gt; title" in page
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", page)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["report.html"]


def test_the_readme_shows_the_example_that_draws_its_picture():
    example = (ROOT / "examples" / "readme.py").read_text().split('"""')[2].strip()
    assert example in (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_defaults_reach_what_the_readme_says(seed):
    rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=100_000, seed=seed)
    model = XCEBRA(label_dims=2, time_dims=4, random_state=seed)
    model.fit(rec.neural, rec.labels["z2"])
    assert model.score(rec.neural, rec.labels["z2"]) >= 0.98
    amap = model.attribute(rec.neural, method="inverted-gradient")
    assert auroc(amap, rec.ground_truth, block="label", factor="z2") >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_unrelated_brownian_labels_are_never_learned(seed):
    rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=100_000, seed=seed)
    other = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=100_000, seed=seed + 50)
    model = XCEBRA(label_dims=2, time_dims=4, steps=400, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnedLabelWarning)
        model.fit(rec.neural, other.labels["z2"])
    assert model.goodness_of_fit_["label"].learned is False
