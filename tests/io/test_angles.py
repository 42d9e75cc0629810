"""Angles are recognised by unit or jumps, in radians or degrees, and nothing else is."""

import numpy as np
import pytest

import xcebra
from xcebra.caveats import LabelKindWarning
from xcebra.data.label_info import LabelInfo
from xcebra.io import Series
from xcebra.io.angles import with_kind

N = 4_000
TIMES = np.arange(N) / 50
WALK = np.random.default_rng(0).normal(0, 0.15, N).cumsum() + 3 * np.sin(TIMES)
HEADING = np.angle(np.exp(1j * WALK))


def kind_of(values, unit="", said=None):
    return with_kind("a", Series(values, TIMES, info=LabelInfo(unit=unit)), said, "the data")


def read(values, **options):
    source = {"neural": (TIMES, np.zeros((N, 3))), "heading": (TIMES - 0.007, values)}
    return xcebra.read(source, **options)


def same_angles(first, second):
    known = np.isfinite(first)
    np.testing.assert_array_equal(known, np.isfinite(second))
    np.testing.assert_allclose(np.exp(1j * first[known]), np.exp(1j * second[known]), atol=1e-9)


@pytest.mark.parametrize("options", [{"circular": "heading"}, {}])
@pytest.mark.parametrize("turned", [False, True], ids=["-pi to pi", "0 to 2 pi"])
def test_degrees_give_the_same_recording_as_radians(options, turned):
    radians = HEADING % (2 * np.pi) if turned else HEADING
    with pytest.warns(LabelKindWarning) if not options else pytest.warns():
        in_degrees = read(np.rad2deg(radians), **options)
    if options:
        in_radians = read(radians, **options)
    else:
        with pytest.warns(LabelKindWarning, match="jumps by a whole turn"):
            in_radians = read(radians)
    same_angles(in_degrees.labels["heading"], in_radians.labels["heading"])
    assert in_degrees.label_info == in_radians.label_info
    assert in_degrees.label_info["heading"] == LabelInfo("circular", unit="rad")


def test_it_is_interpolated_on_the_circle():
    """A line from 3 to -3 passes pi, not zero."""
    source = {
        "neural": (np.array([0.0, 0.5, 1.0]), np.zeros((3, 2))),
        "heading": (np.array([0.0, 1.0]), np.array([3.0, -3.0])),
    }
    middle = xcebra.read(source, circular="heading").labels["heading"][1, 0]
    assert np.cos(middle) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *[(unit, 1.0) for unit in ("rad", "radians", "Radians", " radian ")],
        *[(unit, 180 / np.pi) for unit in ("deg", "degrees", "Degree", "°")],
    ],
)
def test_the_unit_in_the_file_decides(unit, factor):
    """Also for a short range, and for degrees that could be radians."""
    narrow = 0.1 * np.sin(TIMES)
    with pytest.warns(
        LabelKindWarning, match=r"taken as an angle, because its unit is .*; say lab"
    ):
        label = kind_of(factor * narrow, unit)
    assert label.info == LabelInfo("circular", unit="rad")
    np.testing.assert_allclose(label.values[:, 0], narrow, atol=1e-12)


def test_whole_degrees_with_a_unit_are_an_angle_too():
    with pytest.warns(LabelKindWarning, match="its unit is degrees"):
        label = kind_of(np.rad2deg(HEADING).round().astype(int), "degrees")
    assert label.info.kind == "circular"
    np.testing.assert_allclose(label.values[:, 0], HEADING, atol=np.deg2rad(0.5))


LAP = (TIMES % 10) / 10  # a run along a track, and back to its start at once
NO_ANGLES = {
    "a position": 50 * np.sin(TIMES),
    "a random walk": WALK,
    "white noise": np.random.default_rng(1).uniform(-np.pi, np.pi, N),
    "white noise in degrees": np.random.default_rng(1).uniform(0, 360, N),
    "a short range": 0.5 * np.sin(TIMES),
    "an angle without its jumps": np.clip(HEADING, -2, 2),
    "an angle that was unwrapped": np.unwrap(HEADING),
    "laps on a track of 1 m": LAP,
    "laps on a track of 5 m": 5 * LAP,
    "laps on a track of 120 cm": 120 * LAP,
    "laps on a track of 300 cm": 300 * LAP,
    "laps on a track of 10 m": 10 * LAP,
    "a constant": np.full(N, 1.0),
    "missing": np.full(N, np.nan),
}


@pytest.mark.parametrize("name", NO_ANGLES)
def test_recognition_does_not_fire_on(name):
    assert kind_of(NO_ANGLES[name]).info == LabelInfo()
    assert kind_of(NO_ANGLES[name], "cm").info == LabelInfo(unit="cm")


@pytest.mark.parametrize("unit", ["rad", "deg"])
def test_the_turns_of_a_wheel_are_a_quantity(unit):
    """They have the unit of an angle, and count its turns."""
    turns = 1_000.0 * TIMES
    label = kind_of(turns, unit)
    assert label.info == LabelInfo(unit=unit)
    np.testing.assert_array_equal(label.values[:, 0], turns)


@pytest.mark.parametrize("unit", ["", "rad", "deg"])
def test_what_is_declared_continuous_stays_so(unit):
    label = kind_of(np.rad2deg(HEADING), unit, "continuous")
    assert label.info == LabelInfo("continuous", unit=unit)
    np.testing.assert_array_equal(label.values[:, 0], np.rad2deg(HEADING))


def test_a_label_declared_continuous_stays_so_in_files(tmp_path):
    rec = read(HEADING, label_kind={"heading": "continuous"})
    for ending in ("npz", "nwb"):
        xcebra.write(rec, tmp_path / f"rec.{ending}")
        again = xcebra.read(tmp_path / f"rec.{ending}", neural="neural")
        assert again.label_info == rec.label_info
        np.testing.assert_array_equal(again.labels["heading"], rec.labels["heading"])


def test_kinds_of_labels_with_several_columns_stay_in_files(tmp_path):
    rec = xcebra.Recording(
        np.zeros((N, 3)),
        {
            "heading": np.stack([np.cos(HEADING), np.sin(HEADING)], axis=1),
            "cell": np.random.default_rng(0).integers(0, 3, (N, 2)),
        },
        time=TIMES,
        label_info={
            "heading": LabelInfo("circular", ("cosine", "sine")),
            "cell": LabelInfo("discrete", ("row", "column"), source="a grid"),
        },
    )
    for ending in ("npz", "nwb"):
        xcebra.write(rec, tmp_path / f"rec.{ending}")
        assert xcebra.read(tmp_path / f"rec.{ending}").label_info == rec.label_info


def test_wrong_kinds_are_refused_by_name():
    for options, message in (
        ({"circular": "head"}, r"circular names 'head', but the labels are \['heading'\]"),
        ({"label_kind": {"head": "circular"}}, r"label_kind names 'head', but the labels are"),
        ({"label_kind": {"heading": "round"}}, r"label_kind of 'heading' must be one of .*'round'"),
        ({"label_kind": "circular"}, r"label_kind must be a mapping from labels to kinds, got 'ci"),
    ):
        with pytest.raises(ValueError, match=message):
            read(WALK, **options)
