"""A real recording in which the answer is known: head-direction cells beside hippocampal units."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from xcebra import XCEBRA, Recording
from xcebra.reproduce.real.data import read_recording

DATA = Path(__file__).parents[3] / "shared" / "data"
FILE = "head_direction.nwb"
THALAMUS = np.arange(15) < 7  # by the area in the file; the others lie in CA1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (DATA / FILE).is_file(), reason=f"{FILE} is not in {DATA}"),
    # What a second opinion, or a rarely firing unit, has to say is not what these tests are about.
    pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning"),
]


@pytest.fixture(scope="module")
def recording():
    whole = read_recording(str(DATA), FILE, 50.0)
    heading = {"heading": whole.labels["heading"]}
    return Recording(whole.neural, heading, whole.epochs, whole.neuron_names, time=whole.time)


def fitted(recording, **settings):
    """A fit at defaults, and its tested map."""
    model = XCEBRA(label_kind={"heading": "circular"}, random_state=0, progress=False, **settings)
    model.fit(recording, label="heading")
    return model, model.attribute(recording, test=True)


@pytest.fixture(scope="module")
def at_defaults(recording):
    return fitted(recording)


@pytest.fixture(scope="module")
def with_noise(recording):
    """The units of CA1 are replaced by Poisson units of their rates."""
    x = recording.neural.copy()
    rng = np.random.default_rng(0)
    x[:, ~THALAMUS] = rng.poisson(x[:, ~THALAMUS].mean(axis=0), (len(x), 8))
    return fitted(Recording(x, dict(recording.labels), recording.epochs, time=recording.time))


def test_heading_is_found_in_the_recording(at_defaults):
    model, _ = at_defaults
    assert model.goodness_of_fit_["heading"].learned is True


def test_the_head_direction_cells_come_first(at_defaults):
    _, amap = at_defaults
    scores = amap.block("heading")
    assert scores[THALAMUS].min() > scores[~THALAMUS].max()
    assert roc_auc_score(THALAMUS, scores) == 1.0
    assert {name for name, _ in amap.ranking("heading")[:7]} == set(amap.neuron_names[:7])


def test_all_of_them_are_called_and_no_unit_that_carries_nothing(at_defaults):
    _, amap = at_defaults
    called, strength = amap.significant("heading"), amap.opinions["heading"].encoding
    assert called[THALAMUS].all()
    assert not called[strength < 0.01].any()
    found = amap.connections["heading"]
    assert found.controls_hold()
    assert (found.share <= 1).all()
    assert (found.explained <= 1).all()


def test_the_two_halves_of_the_time_and_an_encoding_model_agree_with_the_map(at_defaults):
    _, amap = at_defaults
    assert amap.made["halves_agree"]["heading"] > 0.7
    assert amap.agreement("heading") > 0.7


def test_noise_beside_them_is_neither_called_nor_ranked_above_them(with_noise):
    model, amap = with_noise
    assert model.goodness_of_fit_["heading"].learned is True
    called, scores = amap.significant("heading"), amap.block("heading")
    assert called[THALAMUS].all()
    assert not called[~THALAMUS].any()
    assert scores[THALAMUS].min() > scores[~THALAMUS].max()


def test_noise_is_not_explained_by_itself(with_noise):
    """Held out, and without the unit in the latents that explain it."""
    model, _ = with_noise
    assert model.variance_explained_["all"][~THALAMUS].max() < 0.02
    assert np.abs(model.variance_explained_["heading"][~THALAMUS]).max() < 0.02
    assert model.variance_explained_["all"][THALAMUS].min() > 0.2
