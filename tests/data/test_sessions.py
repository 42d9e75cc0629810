"""Several sessions: which data are several, their names, and the labels of each of them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from xcebra import Recording
from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.sessions import (
    chosen_by_session,
    is_several,
    labels_by_session,
    named_sessions,
)

X = np.arange(12.0).reshape(6, 2)


def rec(*labels):
    return Recording(X, {name: np.arange(6.0) for name in labels})


@pytest.mark.parametrize(
    ("data", "several"),
    [
        ({"a": X}, True),
        ({}, True),
        ([], True),
        ([X, X], True),
        ((X,), True),
        ([rec(), X], True),
        ([pd.DataFrame(X), X], True),
        ([X, "not data"], True),
        (X, False),
        (X.tolist(), False),
        ([np.arange(3), np.arange(3)], False),
        ([[1, 2], [3, 4]], False),
        (rec(), False),
        (pd.DataFrame(X), False),
        (scipy.sparse.dok_matrix(X), False),
        ("a file", False),
    ],
)
def test_mappings_and_lists_of_arrays_are_several_sessions(data, several):
    assert is_several(data) is several


def test_sessions_keep_their_order_and_lists_are_numbered():
    assert list(named_sessions({"b": X, 3: rec(), "a": X})) == ["b", "3", "a"]
    assert list(named_sessions([X, X, rec()])) == ["0", "1", "2"]
    assert named_sessions([X])["0"] is X


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({}, InputError, "X holds no session; give one recording, or several by name"),
        ([], InputError, "X holds no session"),
        ({1: X, "1": X}, InputError, "X has two sessions named '1'; give each another name"),
        ({" ": X}, InputError, "X has a session with an empty name; give it a name"),
        ({"": X}, InputError, "X has a session with an empty name"),
        ({"a": X, "b": 3}, InputTypeError, r"X\['b'\] must be a Recording, an array .* got int"),
        ([X, None], InputTypeError, r"X\['1'\] must be a Recording, .* got NoneType"),
        ({"a": X[0]}, InputTypeError, r"X\['a'\] must be a Recording"),
        ({"a": [[1, 2], [3, 4]]}, InputTypeError, r"X\['a'\] must be .* got list"),
        ({"a": X, "b": X[:0]}, InputError, r"X\['b'\] is empty, it has shape \(0, 2\); leave"),
        ({"b": pd.DataFrame(X[:, :0])}, InputError, r"X\['b'\] is empty"),
    ],
)
def test_sessions_that_cannot_be_used_are_refused(data, error, message):
    with pytest.raises(error, match=message) as raised:
        named_sessions(data)
    assert raised.value.arguments == ("X",)


def test_labels_are_given_by_name_or_in_order():
    sessions = {"a": X, "b": X}
    assert labels_by_session(sessions, None) == {"a": None, "b": None}
    assert labels_by_session(sessions, [1, 2]) == {"a": 1, "b": 2}
    assert labels_by_session(sessions, {"b": 2}) == {"a": None, "b": 2}
    assert labels_by_session({"1": X}, {1: "y"}) == {"1": "y"}


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ({"c": 1}, r"y names 'c', but the sessions are \['a', 'b'\]; .* one entry for each"),
        ([1], "y must have one entry for each of the 2 sessions, got 1 entries"),
        ([1, 2, 3], "y must have one entry for each of the 2 sessions, got 3 entries"),
        (np.zeros(6), "y must have one entry for each of the 2 sessions, got a ndarray"),
        (pd.DataFrame(X), "got a DataFrame"),
    ],
)
def test_labels_of_other_sessions_are_refused(y, message):
    with pytest.raises(InputError, match=message) as raised:
        labels_by_session({"a": X, "b": X}, y)
    assert raised.value.arguments == ("y",)


def chosen(recordings, label=None, control=None, y=None):
    return chosen_by_session(recordings, labels_by_session(recordings, y), label, control)


def test_every_session_has_those_of_the_labels_that_it_knows():
    sessions = {"a": rec("speed", "place", "room"), "b": rec("place"), "c": rec("speed", "head")}
    assert chosen(sessions, ["place", "speed"]) == (
        {"a": ["place", "speed"], "b": ["place"], "c": ["speed"]},
        (),
    )
    assert chosen({"a": sessions["a"]}, ("room",))[0] == {"a": ["room"]}


def test_controls_come_last_and_are_not_asked_about():
    sessions = {"a": rec("speed", "place"), "b": rec("place", "speed", "head")}
    labels, controls = chosen(sessions, ["speed", "place", "head"], "speed")
    assert labels == {"a": ["place", "speed"], "b": ["place", "head", "speed"]}
    assert controls == ("speed",)


def test_labels_of_y_need_not_be_named():
    labels = {"a": np.zeros(6), "b": np.zeros(6)}
    assert chosen({"a": X, "b": X}, y=labels)[0] == {"a": ["label"], "b": ["label"]}
    named = [{"u": X[:, 0], "v": X[:, 1]}, {"v": X[:, 0]}]
    assert chosen({"a": X, "b": X}, y=named)[0] == {"a": ["u", "v"], "b": ["v"]}
    assert chosen({"a": X, "b": X}, "v", y=named)[0] == {"a": ["v"], "b": ["v"]}


@pytest.mark.parametrize(
    ("label", "control", "argument", "message"),
    [
        (None, None, "label", r"labels \['place', 'speed'\]; say which to use with label="),
        ("plaice", None, "label", "label names 'plaice', .*did you mean 'place'"),
        ("place", "sped", "control", "control names 'sped', .*did you mean 'speed'"),
        ("speed", None, "label", r"session 'b' has none of the labels \['speed'\]; .*leave the"),
        ("place", "speed", "control", "session 'b' lacks 'speed', which is controlled for; leave"),
        ("place", "place", "label", "joined by their labels, and no label is asked about"),
        ([], None, "label", "joined by their labels, and no label is asked about"),
        (5, None, "label", "label must name labels of the sessions, got int"),
        ([5], None, "label", "label must name labels of the sessions, got list"),
        ("place", {"speed": X}, "control", "control must name labels of the sessions, got dict"),
    ],
)
def test_labels_that_do_not_join_sessions_are_refused(label, control, argument, message):
    with pytest.raises(InputError, match=message) as raised:
        chosen({"a": rec("place", "speed"), "b": rec("place")}, label, control)
    assert raised.value.arguments == (argument,)


def test_sessions_without_any_label_cannot_be_joined():
    with pytest.raises(InputError, match="joined by their labels, and they have none; give") as e:
        chosen({"a": X, "b": rec()})
    assert e.value.arguments == ("y",)
    with pytest.raises(InputError, match=r"session 'b' has none of the labels .* it has none"):
        chosen({"a": X, "b": X}, y={"a": np.zeros(6)})
