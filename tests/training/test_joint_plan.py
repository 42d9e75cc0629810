"""The plan of a joint fit: what sessions have in common, and what is refused."""

import warnings

import numpy as np
import pytest
import torch

import xcebra
from xcebra import XCEBRA, Recording
from xcebra.caveats import LabelKindWarning, XcebraWarning
from xcebra.common.errors import InputError
from xcebra.data.label_info import LabelInfo
from xcebra.training.joint_plan import make_joint_plan, make_session_plan
from xcebra.training.plan import make_plan

# The recordings are short, which is told.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

SETTINGS = {"time_dims": 2, "steps": 8, "batch_size": 32, "random_state": 0, "window": 1}


def params(**settings):
    return XCEBRA(**SETTINGS | settings).get_params()


def plan_of(recs, controls=(), **settings):
    return make_joint_plan(recs, params(**settings), controls)


def simulated(seed, n_neurons=8, n_steps=300, sigma=0.1):
    return xcebra.datasets.synthetic(
        n_hidden=1,
        n_observed=1,
        n_steps=n_steps,
        seed=seed,
        n_neurons=n_neurons,
        noise=0.5,
        sigma=sigma,
    )


def activity(n_times=200, n_neurons=5, seed=0):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.standard_normal((n_times, n_neurons)), axis=0)


def labelled(labels, info=None, n_times=200, seed=0, n_neurons=5, **others):
    x = activity(n_times, n_neurons, seed)
    return Recording(x, labels, label_info=info or {}, **others)


WAVE = np.sin(np.arange(200) / 9)


@pytest.fixture(scope="module")
def three():
    """Sessions that change at different speeds, with 6 to 10 neurons."""
    sigmas = (0.05, 0.2, 0.4)
    return {f"day {i}": simulated(100 + i, 6 + 2 * i, sigma=s) for i, s in enumerate(sigmas)}


def test_one_session_has_the_plan_of_a_single_fit(three):
    rec = three["day 0"]
    alone = make_plan(rec, params())
    joint = plan_of({"a": rec})
    assert joint.decisions is joint.plans["a"].decisions
    assert joint.plans["a"].fingerprint(rec) == alone.fingerprint(rec)
    assert joint.fingerprint({"a": rec}) == alone.fingerprint(rec)
    assert joint.batch_sizes == (alone.decisions.train.batch_size,)
    assert not joint.shared


def test_offset_and_temperature_are_common_to_all_sessions(three, monkeypatch):
    """The median of the offsets, and the geometric mean of the temperatures at this offset."""
    offsets = iter([2, 9, 4])
    monkeypatch.setattr("xcebra.training.plan.choose_offset", lambda *_: next(offsets))
    joint = plan_of(three)
    decided = [plan.decisions for plan in joint.plans.values()]
    assert {d.time_offset for d in decided} == {4} == {joint.decisions.time_offset}
    again = [make_plan(rec, params(time_offset=4)).decisions for rec in three.values()]
    temperatures = [d.train.temperature for d in again]
    assert len(set(temperatures)) == 3
    expected = np.prod(temperatures) ** (1 / 3)
    assert joint.decisions.train.temperature == pytest.approx(expected, rel=1e-12)
    assert {d.train.temperature for d in decided} == {joint.decisions.train.temperature}


def test_given_offset_and_temperature_are_kept(three):
    joint = plan_of(three, time_offset=7, temperature=0.3)
    for decided in (joint.decisions, *(plan.decisions for plan in joint.plans.values())):
        assert decided.time_offset == 7
        assert decided.train.temperature == pytest.approx(0.3, rel=1e-12)


def test_the_common_offset_is_longer_than_every_window_and_overlap():
    recs = {
        "a": labelled({"z": WAVE}, overlap=11),
        "b": labelled({"z": WAVE}, seed=1),
        "c": labelled({"z": WAVE}, seed=2),
    }
    assert plan_of(recs, window=3).decisions.time_offset >= 14


@pytest.mark.parametrize(
    ("time_block", "expected"), [("shared", [3, 3, 3]), ("own", [1, 0, 3])], ids=["shared", "own"]
)
def test_a_shared_time_block_is_as_large_as_the_largest(three, monkeypatch, time_block, expected):
    needed = {6: 1, 8: 0, 10: 3}
    monkeypatch.setattr(
        "xcebra.training.plan.shared_dimensions", lambda rec, *_: needed[rec.n_neurons]
    )
    joint = plan_of(three, time_dims=None, time_block=time_block)
    blocks = [plan.decisions.blocks.get("time", slice(0, 0)) for plan in joint.plans.values()]
    assert [block.stop - block.start for block in blocks] == expected
    assert joint.decisions.blocks == {"z2": slice(0, 1), "time": slice(1, 4)}
    widths = [e.network[-2].out_features for e in joint.make_encoders(torch.device("cpu"))]
    assert widths == [1 + n for n in expected]
    assert joint.shared == (time_block == "shared")


def test_a_shared_time_block_leaves_no_session_more_latents_than_neurons(monkeypatch):
    monkeypatch.setattr("xcebra.training.plan.shared_dimensions", lambda rec, *_: rec.n_neurons - 1)
    recs = {"a": simulated(100, 3), "b": simulated(101, 9)}
    joint = plan_of(recs, time_dims=None)
    assert joint.decisions.blocks["time"] == slice(1, 3)


def test_classes_are_those_of_all_sessions():
    rng = np.random.default_rng(0)
    odours = {
        name: np.array(classes)[rng.integers(len(classes), size=200)]
        for name, classes in {"a": ("mint", "rose"), "b": ("rose", "clove", "pine")}.items()
    }
    recs = {name: labelled({"odour": values}) for name, values in odours.items()}
    joint = plan_of(recs)
    (label,) = joint.labels
    assert label.classes == ("clove", "mint", "pine", "rose")
    assert joint.decisions.labels["odour"].classes == label.classes
    both = np.concatenate(list(odours.values()))
    assert np.array_equal(label.points, both[:, None] == np.array(label.classes))
    for plan in joint.plans.values():
        assert plan.decisions.labels["odour"].classes == label.classes
        # Four classes need three latents, also in a session with two of them.
        assert plan.decisions.blocks["odour"] == slice(0, 3)


def test_circular_labels_lie_on_the_circle_in_all_sessions():
    angles = {"a": np.arange(200) / 7, "b": np.arange(150) / 5}
    recs = {
        name: labelled({"heading": np.angle(np.exp(1j * v))}, n_times=len(v))
        for name, v in angles.items()
    }
    joint = plan_of(recs, label_kind="circular")
    (label,) = joint.labels
    angle = np.concatenate(list(angles.values()))
    assert label.kind == "circular"
    np.testing.assert_allclose(label.points, np.stack([np.cos(angle), np.sin(angle)], 1), atol=1e-9)
    assert joint.decisions.blocks["heading"] == slice(0, 2)


def test_labels_that_a_session_lacks_are_missing_on_the_line():
    recs = {
        "a": labelled({"place": WAVE}),
        "b": labelled({"speed": WAVE**2, "place": -WAVE}, seed=1),
        "c": labelled({"head": WAVE**3}, seed=2),
    }
    joint = plan_of(recs, time_block="own", time_dims=1)
    blocks = {"speed": slice(0, 1), "place": slice(1, 2), "head": slice(2, 3), "time": slice(3, 4)}
    assert joint.decisions.blocks == blocks
    by_name = {label.name: label for label in joint.labels}
    nothing = np.zeros(200)
    for name, parts in {
        "place": (WAVE, -WAVE, nothing),
        "speed": (nothing, WAVE**2, nothing),
        "head": (nothing, nothing, WAVE**3),
    }.items():
        known = np.repeat([part is not nothing for part in parts], 200)
        assert np.array_equal(by_name[name].valid, known)
        assert np.array_equal(by_name[name].points[:, 0], np.concatenate(parts))
    assert [joint.own_latents(name) for name in recs] == [[1, 3], [0, 1, 3], [2, 3]]
    assert [e.network[-2].out_features for e in joint.make_encoders(torch.device("cpu"))] == [4] * 3


def test_own_latents_follow_the_order_of_a_session_s_own_blocks(monkeypatch):
    monkeypatch.setattr(
        "xcebra.training.plan.shared_dimensions", lambda rec, *_: {5: 1, 8: 3}[rec.n_neurons]
    )
    recs = {
        "a": labelled({"place": WAVE, "speed": WAVE**2}),
        "b": labelled({"speed": WAVE}, n_neurons=8),
    }
    joint = plan_of(recs, time_dims=None, time_block="own")
    assert joint.own_latents("a") == [0, 1, 2]
    assert joint.own_latents("b") == [1, 2, 3, 4]


def test_controls_come_after_the_labels_that_are_asked_about():
    recs = {
        "a": labelled({"place": WAVE, "speed": WAVE**2}),
        "b": labelled({"head": WAVE**3, "speed": WAVE**2}, seed=1),
    }
    joint = plan_of(recs, ("speed",))
    assert joint.decisions.controls == ("speed",)
    for plan in joint.plans.values():
        assert plan.decisions.controls == ("speed",)
        assert list(plan.decisions.blocks)[1] == "speed"


# References of each session


@pytest.mark.parametrize(
    ("weight", "expected"), [("equal", (64, 64, 64)), ("samples", (20, 60, 112))]
)
def test_references_follow_the_weight_of_sessions(weight, expected):
    # Nine tenths of these are training samples.
    recs = {name: simulated(100, n_steps=n) for name, n in (("a", 100), ("b", 300), ("c", 560))}
    joint = plan_of(recs, batch_size=64, session_weight=weight, time_offset=2)
    sizes = np.array([plan.training.size for plan in joint.plans.values()])
    if weight == "samples":
        expected = np.round(192 * sizes / sizes.sum())
    assert joint.batch_sizes == tuple(expected)
    samples = joint.samples(joint.make_encoders(torch.device("cpu")), recs)
    assert [s.n_references for s in samples] == list(expected)
    assert [s.n_negatives for s in samples] == list(expected)


def test_samples_lie_on_the_line_one_session_after_another(three):
    joint = plan_of(three)
    encoders = joint.make_encoders(torch.device("cpu"))
    samples = joint.samples(encoders, three)
    assert [(s.start, s.stop) for s in samples] == [(0, 300), (300, 600), (600, 900)]
    everything = zip(samples, joint.plans.values(), three.values(), encoders, strict=True)
    for s, plan, rec, encoder in everything:
        assert np.array_equal(s.epochs.indices(), plan.training.indices() + s.start)
        times = np.array([0, 17, 299])
        components = encoder.components(torch.from_numpy(rec.neural[times]))
        assert torch.allclose(s.read(times), components, rtol=1e-5, atol=1e-6)
    assert np.array_equal(
        joint.training.indices(), np.concatenate([s.epochs.indices() for s in samples])
    )


def test_the_fingerprint_depends_on_all_that_matters(three):
    def changed(name):
        rec = three[name]
        neural = rec.neural.copy()
        neural[5, 0] += 1
        return {**three, name: Recording(neural, rec.labels)}

    def digest(recs, **settings):
        return plan_of(recs, time_offset=5, **settings).fingerprint(recs)

    first = digest(three)
    assert digest(three) == first
    others = [
        digest(changed("day 0")),
        digest(changed("day 2")),
        digest(dict(reversed(three.items()))),
        digest({f"x{name}": rec for name, rec in three.items()}),
        digest(three, time_block="own"),
        digest(three, random_state=1),
        digest({**three, "day 0": simulated(7, 6, 600)}, session_weight="samples"),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_another_weight_of_the_penalty_is_that_of_all_sessions(three):
    joint = plan_of(three).with_penalty_weight(0.7)
    decided = [joint.decisions, *(plan.decisions for plan in joint.plans.values())]
    assert {d.train.jacobian_weight for d in decided} == {0.7}


# What is refused

CIRCLE = {"z": LabelInfo(kind="circular")}
LINE = {"z": LabelInfo(kind="continuous")}
ANGLE = np.angle(np.exp(1j * np.arange(200) / 9))


@pytest.mark.parametrize(
    ("first", "second", "settings", "message"),
    [
        (
            labelled({"z": WAVE}),
            labelled({"z": activity(200, 2)}),
            {},
            "label 'z' has 1 columns in session 'a' and 2 in session 'b'; give it the same",
        ),
        (
            labelled({"z": WAVE}, {"z": LabelInfo(unit="cm")}),
            labelled({"z": WAVE}, {"z": LabelInfo(unit="m")}),
            {},
            "label 'z' is in cm in session 'a' and in m in session 'b'; convert one of them",
        ),
        (
            labelled({"z": ANGLE}, CIRCLE),
            labelled({"z": ANGLE}, LINE),
            {},
            "label 'z' is continuous in session 'b' and circular in another one; .*label_kind=",
        ),
        (
            labelled({"z": ANGLE}),
            labelled({"z": WAVE}),
            {},
            "label 'z' was taken as .*circular in session 'a'.*; say label_kind=",
        ),
        (
            labelled({"z": (WAVE > 0).astype(int)}),
            labelled({"z": WAVE}),
            {},
            "label 'z' was taken as .*discrete in session 'a'",
        ),
        (
            labelled({"z": np.where(WAVE > 0, "left", "right")}),
            labelled({"z": (WAVE > 0).astype(int)}),
            {"label_kind": "discrete"},
            "label 'z' has text as classes .*'left' in session 'a', 0 in session 'b'.; give its",
        ),
        (
            labelled({"z": np.where(WAVE > 0, "left", "right")}),
            labelled({"z": WAVE}),
            {"label_kind": "continuous"},
            "session 'a': label 'z' holds text",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": np.zeros(200)}),
            {},
            "session 'b': label 'z' is constant",
        ),
        (
            labelled({"z": WAVE}),
            Recording(np.ones((200, 4)), {"z": WAVE}),
            {},
            "session 'b': none of the 4 neurons ever changes",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": WAVE}),
            {"objective": "regression", "time_dims": None},
            "objective='regression' cannot be fitted to several sessions at once; fit them one",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": WAVE}),
            {"label_dims": {"y": 2}},
            "label_dims names 'y'",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": WAVE}),
            {"label_kind": {"y": "circular"}},
            "label_kind names 'y'",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": WAVE}, n_neurons=2),
            {"time_dims": 3},
            "session 'b': label_dims and time_dims ask for 1 . 3 latents, but 2 neurons",
        ),
        (
            labelled({"z": WAVE}),
            labelled({"z": WAVE[:20]}, n_times=20),
            {"time_offset": 30},
            "session 'b': no epoch is long enough",
        ),
    ],
)
def test_sessions_that_contradict_each_other_are_refused(first, second, settings, message):
    with pytest.raises(InputError, match=message):
        plan_of({"a": first, "b": second}, **settings)


def test_what_the_user_says_of_a_kind_wins_over_the_recordings():
    recs = {"a": labelled({"z": ANGLE}, CIRCLE), "b": labelled({"z": ANGLE}, LINE, seed=1)}
    for kind in ("circular", {"z": "circular"}):
        assert plan_of(recs, label_kind=kind).labels[0].kind == "circular"


def test_units_that_are_not_known_everywhere_are_no_contradiction():
    recs = {
        "a": labelled({"z": WAVE}, {"z": LabelInfo(unit="cm")}),
        "b": labelled({"z": WAVE}, seed=1),
    }
    assert list(plan_of(recs).plans) == ["a", "b"]


def test_a_kind_that_is_guessed_is_told_once():
    recs = {name: labelled({"z": (WAVE > 0).astype(int)}, seed=i) for i, name in enumerate("abc")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", XcebraWarning)
        warnings.simplefilter("always", LabelKindWarning)
        plan_of(recs)
    assert [w.category for w in caught] == [LabelKindWarning]
    assert "label 'z' holds whole numbers, 2 different ones" in str(caught[0].message)


def test_a_new_session_has_the_settings_of_the_joint_fit(three):
    joint = plan_of(three, time_offset=None)
    rec = simulated(110, 9)
    for shared in (True, False):
        plan = make_session_plan(
            "new", rec, params(), joint.decisions, joint.labels, rec.label_info, shared=shared
        )
        decided = plan.decisions
        assert decided.time_offset == joint.decisions.time_offset
        assert decided.train.temperature == joint.decisions.train.temperature
        assert decided.blocks == joint.decisions.blocks
