"""What is known of a label stays with it, and decides its kind."""

import json
import pickle

import numpy as np
import pytest

import xcebra
from xcebra.common.errors import InputError
from xcebra.data.label_info import (
    NOTHING_KNOWN,
    LabelInfo,
    column_titles,
    infos_from_plain,
    plain_infos,
    scales_differ,
)
from xcebra.data.labels import LabelSpec, make_label

INFOS = {
    "heading": LabelInfo("circular", unit="rad"),
    "position": LabelInfo(None, ("x", "z"), "cm", "x, z"),
    "nothing": NOTHING_KNOWN,
}


def test_it_comes_back_from_json():
    plain = json.loads(json.dumps(plain_infos(INFOS)))
    assert plain == {
        "heading": {"kind": "circular", "unit": "rad"},
        "position": {"columns": ["x", "z"], "unit": "cm", "source": "x, z"},
    }
    assert infos_from_plain(plain) == {name: INFOS[name] for name in plain}


def test_what_a_later_version_adds_is_left_out_and_nonsense_is_nothing():
    assert infos_from_plain({"a": {"unit": "cm", "colour": "red"}}) == {"a": LabelInfo(unit="cm")}
    for nonsense in (None, [], "text", 3, {"a": 3}):
        assert infos_from_plain(nonsense) == {}


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match=r"kind of a label must be one of \[.*\], got 'round'"):
        LabelInfo("round")


def test_titles_of_columns():
    assert column_titles("speed", LabelInfo(unit="cm/s"), 1) == ("speed (cm/s)",)
    assert column_titles("position", INFOS["position"], 2) == ("x (cm)", "z (cm)")
    assert column_titles("pose", NOTHING_KNOWN, 2) == ("pose 1", "pose 2")


def test_scales_differ_by_the_ratio_of_standard_deviations():
    unit = np.array([-1.0, 1.0] * 50)
    assert scales_differ(np.stack([unit, 10.5 * unit], axis=1)) == (1, 0)
    assert scales_differ(np.stack([unit, 9.5 * unit], axis=1)) is None
    assert scales_differ(np.stack([np.r_[np.nan, unit[1:]], 11 * unit], axis=1)) == (1, 0)
    assert scales_differ(np.stack([unit, 0 * unit], axis=1)) is None
    assert scales_differ(unit[:, None]) is None
    assert scales_differ(np.array([["a", "b"]])) is None


class TestRecording:
    def make(self, **changes):
        values = np.arange(6.0).reshape(3, 2)
        return xcebra.Recording(np.zeros((3, 2)), {"position": values}, **changes)

    def test_every_label_has_an_info(self):
        assert self.make().label_info == {"position": NOTHING_KNOWN}
        info = LabelInfo(unit="cm")
        rec = self.make(label_info={"position": info})
        assert pickle.loads(pickle.dumps(rec)).label_info == {"position": info}

    @pytest.mark.parametrize(
        ("info", "message"),
        [
            ({"speed": LabelInfo()}, r"label_info describes 'speed', but the labels are \['pos"),
            ({"position": "circular"}, r"label_info\['position'\] must be a LabelInfo, got 'circ"),
            ({"position": LabelInfo(columns=("x",))}, r"names 1 columns.*'position' has 2"),
        ],
    )
    def test_an_info_that_does_not_fit_is_refused(self, info, message):
        with pytest.raises(InputError, match=message):
            self.make(label_info=info)


class TestText:
    """Text is a class, and empty text is missing."""

    def test_classes_are_the_texts(self):
        label = make_label("a", np.array([["left"], [""], ["right"], ["left"]]), LabelSpec())
        assert label.kind == "discrete"
        assert label.classes == ("left", "right")
        assert label.valid.tolist() == [True, False, True, True]
        assert label.points[label.valid].tolist() == [[1, 0], [0, 1], [1, 0]]
        assert not label.points[1].any()

    def test_text_cannot_be_a_quantity(self):
        with pytest.raises(InputError, match=r"label 'a' holds text, got 'left'; say label_kind"):
            make_label("a", np.array([["left"], ["right"]]), LabelSpec("continuous"))

    def test_missing_objects_are_empty_text(self):
        values = np.array(["left", None, float("nan"), "right"], dtype=object)
        rec = xcebra.Recording(np.zeros((4, 1)), {"choice": values})
        assert rec.labels["choice"].ravel().tolist() == ["left", "", "", "right"]
