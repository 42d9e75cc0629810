"""Labels: their kinds, their missing samples, and the delay that never crosses an epoch."""

import re

import numpy as np
import pytest

from xcebra import Recording
from xcebra.caveats import LabelKindWarning, MissingLabelWarning
from xcebra.data.epochs import Epochs
from xcebra.data.labels import LabelSpec, check_varies, delayed, make_label, warn_missing


def label(values, kind=None, delay=0, epochs=None, classes=None, name="a"):
    """Through a Recording, as a user's values come."""
    values = np.asarray(values)
    rec = Recording(np.zeros((len(values), 1)), {name: values}, epochs)
    made = make_label(name, rec.labels[name], LabelSpec(kind, delay, classes))
    return delayed(made, delay, rec.epochs)


def test_floats_are_continuous_and_kept_as_given():
    found = label([[0.5, 2.0], [1.5, 3.0], [2.5, 1.0]])
    assert found.kind == "continuous"
    assert found.points.tolist() == [[0.5, 2.0], [1.5, 3.0], [2.5, 1.0]]
    assert found.valid.all()
    assert found.classes == ()
    assert found.width == 2


@pytest.mark.parametrize("kind", ["continuous", "discrete", "circular"])
def test_points_are_float64_and_the_kind_is_kept(kind):
    found = label([0, 1, 2, 1], kind)
    assert found.kind == kind
    assert found.points.dtype == np.float64
    assert found.valid.dtype == bool


@pytest.mark.parametrize(
    ("n_values", "kind"), [(2, "discrete"), (20, "discrete"), (21, "continuous")]
)
def test_integers_warn_what_was_assumed_and_how_to_say_it(n_values, kind):
    told = f"'a'.*{n_values} different ones.*taken as {kind}.*label_kind={{'a': 'continuous'}}"
    with pytest.warns(LabelKindWarning, match=told):
        found = label(np.arange(100) % n_values)
    assert found.kind == kind


def test_whole_numbers_with_gaps_say_that_they_may_be_classes():
    """A missing sample turns integers into floats; nobody should lose their classes by it."""
    trial_types = np.append(np.arange(99) % 3, np.nan)
    with pytest.warns(LabelKindWarning, match="'a'.*3 different ones.*taken as continuous"):
        assert label(trial_types).kind == "continuous"
    assert label(trial_types, "discrete").kind == "discrete"
    assert label(trial_types + 0.5).kind == "continuous"
    assert label(np.arange(100.0)).kind == "continuous"


@pytest.mark.parametrize("kind", ["continuous", "discrete", "circular"])
def test_integers_with_a_kind_do_not_warn(kind):
    assert label(np.arange(10) % 5, kind).kind == kind


def test_bools_are_classes_without_asking():
    found = label([True, False, False, True])
    assert found.kind == "discrete"
    assert found.classes == (False, True)
    assert found.codes().tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("values", "classes", "codes"),
    [
        ([7, 3, 7, 9], (3, 7, 9), [1, 0, 1, 2]),
        ([0.5, -1.0, 0.5], (-1.0, 0.5), [1, 0, 1]),
        (["left", "right", "left"], ("left", "right"), [0, 1, 0]),
        ([True, False], (False, True), [1, 0]),
        ([[0, 1], [1, 0], [0, 0], [0, 1]], ((0, 0), (0, 1), (1, 0)), [1, 2, 0, 1]),
        ([["a", "x"], ["b", "x"], ["a", "x"]], (("a", "x"), ("b", "x")), [0, 1, 0]),
    ],
)
def test_discrete_labels_have_one_column_per_class(values, classes, codes):
    found = label(values, "discrete")
    assert found.classes == classes
    assert found.codes().tolist() == codes
    assert np.array_equal(found.points, np.eye(len(classes))[codes])
    assert found.valid.all()


def test_classes_are_plain_python_values_that_a_file_can_hold():
    assert [type(c) for c in label(np.array([1, 2], np.int32), "discrete").classes] == [int, int]
    assert [type(c) for c in label(["a", "b"], "discrete").classes] == [str, str]


@pytest.mark.parametrize(("n_classes", "width"), [(2, 1), (3, 2), (4, 3), (5, 3), (30, 3)])
def test_a_discrete_label_needs_one_dimension_less_than_classes_up_to_three(n_classes, width):
    assert label(np.arange(60) % n_classes, "discrete").width == width


@pytest.mark.parametrize(
    ("values", "kind", "width"),
    [
        (np.arange(5.0), "continuous", 1),
        (np.arange(15.0).reshape(5, 3), "continuous", 3),
        (np.arange(5.0), "circular", 2),
        (np.stack([np.cos(np.arange(5)), np.sin(np.arange(5))], axis=1), "circular", 2),
    ],
)
def test_continuous_labels_are_as_wide_as_their_columns_and_angles_take_two(values, kind, width):
    assert label(values, kind).width == width


def test_classes_known_from_a_fit_keep_their_columns():
    found = label(["c", "a", "c"], "discrete", classes=("a", "b", "c"))
    assert found.points.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert found.classes == ("a", "b", "c")


def test_a_class_the_fit_did_not_see_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'a' has classes \['d'\].*knows \['a', 'c'\]"):
        label(["c", "d"], "discrete", classes=("a", "c"))


def test_an_angle_becomes_cosine_and_sine():
    angle = np.linspace(-np.pi, np.pi, 9)
    found = label(angle, "circular")
    assert np.array_equal(found.points, np.stack([np.cos(angle), np.sin(angle)], axis=1))
    assert found.points[0] == pytest.approx(found.points[-1])


@pytest.mark.parametrize("shift", [0.0, 2 * np.pi, -2 * np.pi])
def test_a_whole_turn_changes_nothing(shift):
    angle = np.linspace(0.1, 6.0, 9)
    assert label(angle + shift, "circular").points == pytest.approx(label(angle, "circular").points)


def test_cosine_and_sine_are_taken_as_they_are():
    pair = np.stack([np.cos(np.arange(9.0)), np.sin(np.arange(9.0))], axis=1)
    assert np.array_equal(label(pair, "circular").points, pair)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (np.arange(0.0, 360.0, 10), "circular", r"radians.*spans 350.*np\.deg2rad"),
        (np.ones((4, 2)), "circular", "cosine and sine; got 2 columns, norm up to 1.41"),
        (np.eye(3), "circular", "got 3 columns.*several angles as several labels"),
    ],
)
def test_values_that_do_not_fit_their_kind_are_refused(values, kind, message):
    with pytest.raises(ValueError, match=message):
        label(values, kind)


def test_text_is_taken_as_class_names_and_empty_text_is_missing():
    named = label(["left", "right", "", "left"])
    assert named.kind == "discrete"
    assert named.classes == ("left", "right")
    assert named.valid.tolist() == [True, True, False, True]


@pytest.mark.parametrize("kind", ["continuous", "circular"])
def test_text_asks_to_be_called_discrete_in_words_that_can_be_pasted(kind):
    with pytest.raises(ValueError, match="label 'a' holds text") as caught:
        label(["left", "right"], kind)
    assert "say label_kind={'a': 'discrete'} for class names" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([2.0, 2.0, 2.0], "continuous", "'a' is constant.*column 0 is always 2.*leave that"),
        ([2.0, np.nan, 2.0], "continuous", "'a' is constant"),
        ([[0.0, 3.0], [1.0, 3.0]], "continuous", "column 1 is always 3"),
        ([0.3, 0.3, 0.3], "circular", "'a' is constant"),
        ([4, 4, 4], "discrete", "'a' is constant"),
        (["x", "x"], "discrete", "'a' is constant"),
        ([np.nan, np.nan], "continuous", "'a' is missing .*everywhere"),
        ([np.nan, np.nan], "circular", "'a' is missing .*everywhere"),
        ([[0.0, np.nan], [np.nan, 1.0]], "continuous", "'a' is missing .*everywhere"),
        ([np.nan, np.nan], "discrete", "'a' is missing .*everywhere"),
    ],
)
def test_a_label_that_makes_no_pairs_is_refused(values, kind, message):
    with pytest.raises(ValueError, match=message):
        check_varies(label(values, kind))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, 1e-300], "continuous"),
        ([0.0, 1.0, np.nan], "continuous"),
        ([0, 1], "discrete"),
        ([0.1, 0.2], "circular"),
    ],
)
def test_a_label_that_changes_passes(values, kind):
    check_varies(label(values, kind))


def test_an_angle_that_flips_between_two_sides_changes_though_its_cosine_does_not():
    check_varies(label([np.pi / 2, -np.pi / 2, np.pi / 2], "circular"))


@pytest.mark.parametrize(
    ("values", "kind", "valid"),
    [
        ([0.0, np.nan, 2.0], "continuous", [True, False, True]),
        ([[0.0, 1.0], [np.nan, 1.0], [2.0, np.nan]], "continuous", [True, False, False]),
        ([0.0, np.nan, 2.0], "circular", [True, False, True]),
        ([[1.0, 0.0], [np.nan, np.nan], [0.0, 1.0]], "circular", [True, False, True]),
        ([0.0, np.nan, 2.0], "discrete", [True, False, True]),
        ([[0.0, 1.0], [np.nan, 1.0], [2.0, 0.0]], "discrete", [True, False, True]),
    ],
)
def test_nan_in_any_column_makes_a_sample_missing(values, kind, valid):
    assert label(values, kind).valid.tolist() == valid


def test_a_missing_sample_is_no_class():
    found = label([1.0, np.nan, 2.0], "discrete")
    assert found.classes == (1.0, 2.0)
    assert found.points.tolist() == [[1, 0], [0, 0], [0, 1]]


def test_missing_samples_are_counted_in_one_warning_inside_epochs_only():
    values = np.arange(20.0)
    values[[2, 3, 10]] = np.nan
    found = label(values)
    with pytest.warns(MissingLabelWarning, match=r"'a' is missing \(NaN\) at 2 of 8 samples") as w:
        warn_missing(found, Epochs.check([(0, 5), (15, 18)], 20))
    assert len(w) == 1
    warn_missing(found, Epochs.check([(15, 20)], 20))


@pytest.mark.parametrize("delay", [0, 1, 3, -1, -3, 4, -4, 5, -5, 99, -99])
def test_activity_at_t_goes_with_the_label_at_t_plus_delay_inside_its_epoch(delay):
    epochs = [(0, 5), (5, 9), (12, 20)]
    found = label(np.arange(20.0), delay=delay, epochs=epochs)
    for start, stop in epochs:
        for t in range(start, stop):
            there = start <= t + delay < stop
            assert found.valid[t] == there
            if there:
                assert found.points[t, 0] == t + delay


def test_a_delay_moves_missing_samples_with_their_values():
    values = np.arange(6.0)
    values[2] = np.nan
    assert label(values, delay=1).valid.tolist() == [True, False, True, True, True, False]
    assert label(values, delay=-1).valid.tolist() == [False, True, True, False, True, True]


def test_a_delay_keeps_the_classes_and_leaves_the_label_it_was_given_alone():
    made = label(["x", "y", "x", "z"], "discrete")
    moved = delayed(made, 1, Epochs.check(None, 4))
    assert moved.classes == made.classes == ("x", "y", "z")
    assert moved.codes()[:3].tolist() == [1, 0, 2]
    assert made.codes().tolist() == [0, 1, 0, 2]
    assert made.valid.all()


def test_the_warning_and_the_errors_quote_the_name_the_user_gave():
    with pytest.warns(LabelKindWarning, match=re.escape("label_kind={'head \"dir\"':")):
        label([0, 1], name='head "dir"')


def test_an_angle_that_is_not_called_one_is_noticed():
    t = np.arange(500) / 10
    with pytest.warns(LabelKindWarning, match="'a' jumps by a whole turn.*'continuous'"):
        assert label(np.angle(np.exp(1j * t))).kind == "circular"
    assert label(np.angle(np.exp(1j * t)), "continuous").kind == "continuous"
    assert label(np.angle(np.exp(1j * t)), "circular").kind == "circular"
    assert label(np.sin(t)).kind == "continuous"
    assert label(np.random.default_rng(0).uniform(-np.pi, np.pi, 500)).kind == "continuous"
