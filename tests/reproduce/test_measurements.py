"""Pieces of work: what is measured is what the fitted model and the metrics say."""

import copy
import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score, roc_auc_score

from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.metrics import accuracy, auroc
from xcebra.reproduce import measurements as work
from xcebra.reproduce.measurements import (
    AGGREGATED,
    MAPS,
    Consistency,
    Encoding,
    Fit,
    Portrait,
    Training,
    measure,
)
from xcebra.reproduce.sources import Data
from xcebra.training.settings import RECIPES

pytestmark = pytest.mark.filterwarnings(f"ignore::{XcebraWarning.__module__}.XcebraWarning")

DATA = Data(2, n_steps=1500, seed=3)
HYBRID = Training("hybrid contrastive", steps=10, seed=1)
SCORES = {"entries", "neurons", "accuracy", "accuracy_neurons"}


@pytest.fixture(autouse=True, scope="module")
def _short_decoders():
    """Tiny fits: of the decoder too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECIPES, "xcebra", replace(RECIPES["xcebra"], decoder_steps=40))
        yield


@pytest.fixture(scope="module")
def found():
    return measure(Fit(DATA, HYBRID, n_samples=700))


@pytest.fixture(scope="module")
def watched():
    """The same fit, made without the code under test, and its encoder after 8 steps."""
    import xcebra

    recording = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=1500, seed=3)
    model = xcebra.XCEBRA(2, 2, steps=10, random_state=1, progress=False)
    looks = {}
    model.fit(
        recording.neural,
        recording.labels["z2"],
        callback=lambda step, encoder: looks.setdefault(step, copy.deepcopy(encoder)),
    )
    return model, recording, looks[8]


@pytest.fixture(scope="module")
def by_hand(watched):
    return watched[:2]


def areas(truth, scores):
    """auROC of each row: the U of Mann and Whitney, as a share."""
    u = mannwhitneyu(scores[:, truth], scores[:, ~truth], axis=1).statistic
    return u / (truth.sum() * (~truth).sum())


def is_plain(value):
    """Whether JSON gives it back as it is."""
    return json.loads(json.dumps(value, allow_nan=False)) == value


def test_a_fit_has_all_maps_as_plain_numbers(found):
    assert is_plain(found)
    assert set(found) == {
        *("fit_seconds", "r2", "variance_explained", "left_over", "learned", "settings"),
        *("maps", "map_seconds", "aggregates", "warnings"),
    }
    assert list(found["maps"]) == list(found["map_seconds"]) == list(MAPS)
    for scores in found["maps"].values():
        assert set(scores) == SCORES
        assert all(0 <= score <= 1 for score in scores.values())
    assert found["fit_seconds"] > 0
    assert all(isinstance(name, str) for name in found["warnings"])


def test_scores_are_those_of_the_same_fit_made_by_hand(found, by_hand):
    model, recording = by_hand
    shown = recording.neural[np.floor(np.linspace(0, 1499, 700)).astype(int)]
    truth = recording.ground_truth["z2"]
    assert truth.sum() == 25
    for name, options in MAPS.items():
        amap = model.attribute(shown, block="label", **options)
        scores = found["maps"][name]
        assert scores["entries"] == auroc(amap, truth, block="label")
        assert scores["entries"] == pytest.approx(
            roc_auc_score(np.repeat(truth, 2), amap.values.ravel())
        )
        assert scores["neurons"] == auroc(amap, truth, block="label", score="block")
        assert scores["accuracy"] == accuracy(amap, truth, block="label", score="entries")
        assert scores["accuracy_neurons"] == accuracy(amap, truth, block="label")
    assert len({scores["entries"] for scores in found["maps"].values()}) > 3


def test_ways_to_sum_up_are_those_of_the_map_of_every_step(found, by_hand):
    model, recording = by_hand
    shown = recording.neural[np.floor(np.linspace(0, 1499, 700)).astype(int)]
    truth = recording.ground_truth["z2"]
    assert set(found["aggregates"]) == set(AGGREGATED)
    for name in AGGREGATED:
        amap = model.attribute(shown, block="label", keep_time=True, **MAPS[name])
        steps = np.abs(amap.steps.maps)
        ways = found["aggregates"][name]
        assert set(ways) == {"mean", "median", "max", "single step"}
        assert ways["mean"] == found["maps"][name]
        wide = np.repeat(truth, 2)
        for way in ("median", "max"):
            entries = getattr(np, way)(steps, axis=0).ravel()
            assert ways[way]["entries"] == pytest.approx(roc_auc_score(wide, entries))
        each = areas(wide, steps.reshape(len(steps), -1))
        assert ways["single step"]["entries"] == pytest.approx(each.mean())
        norms = areas(truth, np.linalg.norm(steps, axis=2))
        assert ways["single step"]["neurons"] == pytest.approx(norms.mean(), abs=1e-4)


def test_what_is_said_of_the_model_is_the_models_own(found, by_hand):
    model, recording = by_hand
    embedding = model.transform(recording.neural)
    design = np.column_stack([embedding, np.ones(len(embedding))])
    for name in ("z1", "z2"):
        latent = recording.latents[name]
        guess = design @ np.linalg.lstsq(design, latent, rcond=None)[0]
        assert found["r2"][name] == pytest.approx(r2_score(latent, guess), abs=1e-6)
    assert found["r2"]["label"] == model.score(recording.neural, recording.labels["z2"])
    assert found["variance_explained"] == pytest.approx(model.variance_explained_["all"].mean())
    assert found["left_over"] == model.left_over_
    assert found["learned"] == {n: fit.learned for n, fit in model.goodness_of_fit_.items()}
    assert found["settings"] == {
        name: model.config_[name] for name in found["settings"] if name in model.config_
    }
    assert (found["settings"]["steps"], found["settings"]["batch_size"]) == (10, 1024)


def test_a_factor_without_a_block_has_no_maps():
    item = Fit(replace(DATA, observed="z1"), Training("supervised", steps=10))
    found = measure(item)
    assert is_plain(found)
    assert "maps" not in found
    assert "aggregates" not in found
    assert set(found["r2"]) == {"z1", "z2", "label"}
    assert list(found["learned"]) == ["label"]


@pytest.mark.parametrize(
    ("observed", "blocks", "expected"),
    [
        ("z2", ("label", "time"), "label"),
        ("z2", ("label",), "label"),
        ("z2", ("time",), None),
        ("z1", ("label", "time"), "time"),
        ("z1", ("label",), None),
        ("z1", ("time",), None),
    ],
)
def test_the_block_that_stands_for_z2(observed, blocks, expected):
    model = SimpleNamespace(blocks_=dict.fromkeys(blocks))
    assert work._block(Data(2, observed=observed), model) == expected


def test_consistency_without_a_label_has_no_maps():
    training = Training("time contrastive", time_dims=2, steps=10)
    found = measure(Consistency(DATA, training, 2))
    assert is_plain(found)
    assert set(found) == {"consistency", "maps"}
    assert found["maps"] == []
    assert set(found["consistency"]) == {"time", "all"}
    assert len(found["consistency"]["all"]) == 2
    # Fits of the same seed would agree fully.
    assert all(0 < value < 0.9999 for value in found["consistency"]["all"])


def test_a_portrait_looks_at_training_and_at_the_end_of_it(watched):
    model, recording, encoder = watched
    found = measure(Portrait(DATA, HYBRID, 4))
    assert is_plain(found)
    over = found["over_training"]
    assert over["steps"] == [1, 4, 8]
    assert all(len(over[name]) == 3 for name in ("auroc", "r2"))
    # The last look is after 8 steps: the plain map, and how the label's block fits the label.
    early = copy.copy(model)
    early.encoder_ = encoder
    plain = early.attribute(recording.neural, **MAPS["inverted-gradient, plain"])
    truth = recording.ground_truth["z2"]
    assert over["auroc"][-1] == pytest.approx(auroc(plain, truth, block="label"), abs=1e-6)
    block = early.transform(recording.neural)[:, :2]
    guess = LinearRegression().fit(block, recording.labels["z2"]).predict(block)
    assert over["r2"][-1] == pytest.approx(r2_score(recording.labels["z2"], guess), abs=1e-5)
    # What is shown beside it is the model as it ended.
    rows = np.floor(np.linspace(0, 1499, 300)).astype(int)
    latents = np.concatenate([recording.latents["z1"], recording.latents["z2"]], axis=1)
    embedding = model.transform(recording.neural)
    np.testing.assert_allclose(found["latents"], latents[rows, :3], atol=6e-5)
    np.testing.assert_allclose(found["activity"], recording.neural[rows, :3], atol=6e-5)
    np.testing.assert_allclose(found["embedding"], embedding[rows, :3], atol=6e-5)
    design = np.column_stack([embedding, np.ones(len(embedding))])
    aligned = design @ np.linalg.lstsq(design, latents, rcond=None)[0]
    np.testing.assert_allclose(found["aligned"], aligned[rows, :3], atol=1e-3)


def test_an_encoding_model_is_scored_like_a_map():
    found = measure(Encoding(DATA))
    assert is_plain(found)
    (scores,) = found["maps"].values()
    assert set(scores) == {*SCORES, "variance"}
    assert all(0 <= score <= 1 for score in scores.values())


def test_each_kind_of_training_makes_its_estimator():
    data = Data(5, 3)
    supervised = Training("supervised").model(data)
    assert supervised.objective == "regression"
    assert not supervised.time_dims
    kinds = {
        "supervised contrastive": (3, 0),
        "time contrastive": (None, 8),
        "hybrid contrastive": (3, 5),
    }
    for kind, dims in kinds.items():
        model = Training(kind).model(data)
        assert (model.label_dims, model.time_dims) == dims
        assert model.objective == "contrastive"
    chosen = Training("hybrid contrastive", label_dims=2, time_dims=4).model(data)
    assert (chosen.label_dims, chosen.time_dims) == (2, 4)
    assert Training("supervised contrastive", label_dims=7).model(data).label_dims == 7
    assert Training("time contrastive", time_dims=7).model(data).time_dims == 7


@pytest.mark.parametrize("kind", ["supervised", "supervised contrastive", "hybrid contrastive"])
def test_settings_reach_the_estimator(kind):
    assert Training(kind, penalty=False).model(DATA).jacobian_weight == 0.0
    plain = Training(kind).model(DATA)
    # Left to the recipe.
    assert (plain.jacobian_weight, plain.batch_size, plain.steps) == (None, None, None)
    assert (plain.recipe, plain.random_state) == ("xcebra", 0)
    other = Training(kind, batch_size=64, steps=7, recipe="paper", seed=5).model(DATA)
    assert (other.batch_size, other.steps) == (64, 7)
    assert (other.recipe, other.random_state) == ("paper", 5)


@pytest.mark.parametrize(("n", "most", "expected"), [(5, 10, 5), (10, 10, 10), (1001, 10, 10)])
def test_samples_are_spread_over_the_recording(n, most, expected):
    times = work.samples_of(Recording(np.zeros((n, 1))), most)
    assert len(times) == expected
    assert (times[0], times[-1]) == (0, n - 1)
    assert np.ptp(np.diff(times)) <= 1


def test_samples_lie_in_epochs():
    recording = Recording(np.zeros((100, 1)), epochs=[(10, 20), (50, 60)])
    assert work.samples_of(recording, 4).tolist() == [10, 16, 52, 59]


def test_a_recording_is_what_its_specification_says():
    easy = Data(3, n_steps=400, connected=0.2, seed=4)
    assert easy.make().ground_truth["z2"].sum() == 10
    assert asdict(easy)["connected"] == 0.2
    np.testing.assert_array_equal(easy.make().neural, easy.make().neural)
    noisy, counted = (
        replace(easy, **changes).make() for changes in ({"noise": 1.0}, {"counts": 1})
    )
    assert not np.allclose(noisy.neural, easy.make().neural)
    assert (counted.neural == np.round(counted.neural)).all()
    tied = replace(easy, n_steps=20_000, correlation=0.9).make().latents
    r = np.corrcoef(tied["z1"][:, 0], tied["z2"][:, 0])[0, 1]
    assert math.isclose(r, 0.9, abs_tol=0.05)


def test_other_work_is_refused():
    with pytest.raises(TypeError, match=r"there is no such work as Data\(n_hidden=2"):
        measure(Data(2))
