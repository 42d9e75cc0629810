"""Which labels are asked about, and which are controlled for."""

import numpy as np
import pytest

from xcebra import XCEBRA, Recording
from xcebra.common.errors import InputError
from xcebra.data.label_selection import chosen_labels, with_controls
from xcebra.data.labels import LabelSpec, make_label
from xcebra.training.settings import resolve_blocks

N = 50
LABELS = {name: np.arange(float(N)) for name in ("position", "speed", "pupil")}
REC = Recording(np.zeros((N, 3)), LABELS)
X = np.zeros((N, 3))


def test_without_controls_nothing_changes():
    assert with_controls(REC, None, "position", None) == (None, ["position"], ())
    assert with_controls(X, LABELS, None, None) == (LABELS, None, ())


@pytest.mark.parametrize("control", ["speed", ["speed"], ("speed",)])
def test_labels_of_a_recording(control):
    y, label, controls = with_controls(REC, None, "position", control)
    assert (y, label, controls) == (None, ["position", "speed"], ("speed",))


def test_a_label_that_is_named_twice_is_a_control():
    assert with_controls(REC, None, ["speed", "position"], "speed")[1] == ["position", "speed"]


def test_labels_of_a_mapping():
    y, label, controls = with_controls(X, LABELS, None, ["speed", "position"])
    assert list(y) == ["pupil", "speed", "position"]
    assert (label, controls) == (None, ("speed", "position"))


@pytest.mark.parametrize("source", [(REC, None, "position"), (X, {"position": 1}, None)])
def test_data_of_its_own(source):
    y, label, controls = with_controls(*source, {"running": [1, 2]})
    assert list(y) == ["position", "running"]
    assert y["running"] == [1, 2]
    assert (label, controls) == (None, ("running",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (REC, None, "position", "sped"),
            r"control names 'sped', but the labels are \['position', .*; did you mean 'speed'\?",
        ),
        (
            (X, {"position": 1}, None, "speed"),
            r"control names 'speed', but the labels are \['position'\]; give its data with",
        ),
        ((REC, None, "speed", "speed"), r"control=\['speed'\] leaves no label to ask about; name"),
        ((X, LABELS["speed"], None, "label"), r"control=\['label'\] leaves no label to ask about"),
        ((REC, None, "position", 3), r"control must name labels, or be a mapping .*, got int"),
        ((REC, None, "position", [3]), r"control must name labels, or be a mapping .*, got list"),
        ((REC, None, "position", np.zeros(N)), r"control must name labels, .*, got ndarray; as in"),
        (
            (REC, None, "position", {"position": 1}),
            r"control names 'position', which is a label already; rename one",
        ),
    ],
)
def test_what_cannot_be_controlled_for(arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        with_controls(*arguments)
    assert caught.value.arguments == ("control",)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("control", ["speed", {"running": np.zeros(N)}])
def test_a_recording_with_several_labels_asks_which_to_use(control):
    """Controls alone do not say what is asked about."""
    with pytest.raises(InputError, match=r"the recording has labels .*; say which to use with lab"):
        XCEBRA().fit(REC, control=control)


def test_a_label_that_does_not_exist():
    with pytest.raises(InputError, match=r"label must name labels of \['position', .*got 'x'"):
        chosen_labels(LABELS, "x")


@pytest.mark.parametrize(
    "label_dims",
    [None, 1, {"position": 1}, {"position": 1, "speed": 1}, {"speed": 1, "position": 1}],
)
def test_blocks_are_labels_then_controls_then_time(label_dims):
    params = {"objective": "contrastive", "label_dims": label_dims, "time_dims": 2}
    params |= {"distance": "euclidean", "recipe": "xcebra"}
    rng = np.random.default_rng(0)
    labels = [make_label(n, rng.random((N, 1)), LabelSpec()) for n in ("speed", "position")]
    blocks = resolve_blocks(params, labels, 10, controls=("speed",))
    assert blocks == {"position": slice(0, 1), "speed": slice(1, 2), "time": slice(2, 4)}
