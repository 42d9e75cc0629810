"""A label that is controlled for: what follows only it is not called connected to another label."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

import xcebra
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.data.label_info import LabelInfo
from xcebra.data.label_selection import with_controls

pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

N, HALF = 2_500, 5
FOLLOWS_POSITION = np.arange(2 * HALF) < HALF


def slow(rng):
    values = gaussian_filter1d(rng.normal(size=N), 8)
    return (values - values.mean()) / values.std()


@pytest.fixture(scope="module")
def recording():
    """Position and speed are correlated by 0.6; each drives one half of the neurons."""
    rng = np.random.default_rng(100)
    common = slow(rng)
    position, speed = slow(rng) + 1.2 * common, slow(rng) + 1.2 * common
    gains = rng.uniform(0.8, 1.5, 2 * HALF) * rng.choice([-1, 1], 2 * HALF)
    drive = np.where(FOLLOWS_POSITION, position[:, None], speed[:, None]) / 1.6
    x = np.tanh(gains * drive + 0.5 * rng.normal(size=2 * HALF))
    x += 0.7 * rng.normal(size=x.shape)
    return xcebra.Recording(
        x,
        {"speed": speed, "position": position},
        units={"area": np.where(FOLLOWS_POSITION, "CA1", "V1"), "depth": np.arange(2 * HALF) / 2},
        label_info={"position": LabelInfo("continuous", unit="cm")},
    )


@pytest.fixture(scope="module")
def model(recording):
    model = xcebra.XCEBRA(time_dims=1, window=1, steps=80, random_state=0, progress=False)
    return model.fit(recording, label="position", control="speed")


@pytest.fixture(scope="module")
def amap(model, recording):
    return model.attribute(recording, test=True)


def test_a_neuron_that_follows_only_the_control_is_not_connected(amap, recording):
    position, speed = (recording.labels[name][:, 0] for name in ("position", "speed"))
    assert np.corrcoef(position, speed)[0, 1] > 0.5
    # Alone, position is read from all of them.
    assert (amap.opinions["position"].encoding[~FOLLOWS_POSITION] > 0.02).any()
    np.testing.assert_array_equal(amap.significant("position"), FOLLOWS_POSITION)
    scores = amap.block("position")
    assert scores[FOLLOWS_POSITION].min() > 2 * scores[~FOLLOWS_POSITION].max()


def test_blocks_are_labels_controls_time(model, amap):
    assert list(model.blocks_) == ["position", "speed", "time"]
    assert model.controls_ == amap.controls == ("speed",)
    assert model.config_["controls"] == ["speed"]
    assert amap.made["label_kinds"] == {"position": "continuous", "speed": "continuous"}


def test_a_map_of_one_block_names_only_its_own_controls(model, recording):
    assert model.attribute(recording, block="position", every=50).controls == ()
    assert model.attribute(recording, block="speed", every=50).controls == ("speed",)


def test_units_and_labels_go_from_the_recording_into_model_and_map(model, amap, recording):
    for units in (model.units_, amap.units):
        assert list(units) == ["area", "depth"]
        assert units["area"].tolist() == recording.units["area"].tolist()
    assert model.label_info_["position"] == LabelInfo("continuous", unit="cm")
    groups = amap.by("area").scores["position"]
    assert [(g.group, g.n_connected, g.n_neurons) for g in groups] == [
        ("CA1", HALF, HALF),
        ("V1", 0, HALF),
    ]


def test_a_file_keeps_it_all(model, amap, tmp_path):
    model.save(tmp_path / "model.safetensors")
    again = xcebra.XCEBRA.load(tmp_path / "model.safetensors")
    assert again.controls_ == ("speed",)
    assert again.label_info_ == model.label_info_
    assert again.decisions_.controls == ("speed",)
    for name, values in model.units_.items():
        assert again.units_[name].dtype == values.dtype
        np.testing.assert_array_equal(again.units_[name], values)
    amap.save(tmp_path / "map.nc")
    assert AttributionMap.load(tmp_path / "map.nc").controls == ("speed",)


def test_a_map_of_plain_arrays_has_the_units_of_the_fit(model, recording):
    amap = model.attribute(recording.neural, every=50)
    assert amap.units["area"].tolist() == recording.units["area"].tolist()
    assert amap.controls == ("speed",)


@pytest.mark.parametrize("as_mapping", [False, True])
def test_refits_keep_it(model, recording, monkeypatch, as_mapping):
    calls = []

    def fit(self, X, y=None, **options):
        options.pop("epochs")
        calls.append(with_controls(X, y, **options))
        return self

    monkeypatch.setattr(xcebra.XCEBRA, "fit", fit)
    y = dict(recording.labels) if as_mapping else None
    list(model._refitted(recording, y, None, 2))
    assert len(calls) == 2
    for y_used, label, controls in calls:
        assert controls == ("speed",)
        assert (list(y_used) if as_mapping else label) == ["position", "speed"]


def test_a_model_of_version_0_4_knows_no_units(model, tmp_path):
    from xcebra.common.tensor_file import read_tensors, write_tensors

    model.save(tmp_path / "model.safetensors")
    tensors, header = read_tensors(tmp_path / "model.safetensors", "xcebra-model")
    for name in ("units", "label_info"):
        del header[name]
    del header["decisions"]["controls"]
    write_tensors(tmp_path / "old.safetensors", "xcebra-model", tensors, header)
    old = xcebra.XCEBRA.load(tmp_path / "old.safetensors")
    assert old.units_ == {}
    assert old.controls_ == ()
    assert old.label_info_ == {"position": LabelInfo(), "speed": LabelInfo()}
