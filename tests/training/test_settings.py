"""Settings: every bad value is named with its limit, and every default is resolved as promised."""

import itertools
import warnings

import numpy as np
import pytest

from xcebra import XCEBRA
from xcebra.caveats import ShortRecordingWarning
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label, LabelSpec
from xcebra.training.settings import (
    RECIPES,
    check_parameters,
    label_specs,
    resolve_batch_size,
    resolve_blocks,
    split_epochs,
    warn_split,
)


def params(**given):
    return XCEBRA(**given).get_params(deep=False)


def label(name, columns=1, kind="continuous"):
    return Label(name, kind, np.zeros((5, columns)), np.ones(5, dtype=bool))


def sizes(blocks):
    """Blocks as (name, start, stop), in order."""
    return [(name, block.start, block.stop) for name, block in blocks.items()]


# What needs no data


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recipe": "cebra"}, r"recipe must be one of \['xcebra', 'paper'\], got 'cebra'"),
        ({"recipe": None}, "recipe must be one of .*, got None"),
        ({"objective": "mse"}, r"objective must be one of \['contrastive', 'regression'\], got 'm"),
        ({"distance": "dot"}, r"distance must be one of \['euclidean', 'cosine'\], got 'dot'"),
        ({"time_on": "labels"}, r"time_on must be one of \['all', 'block'\], got 'labels'"),
        ({"steps": 0}, "steps must be a whole number of 1 or more, got 0"),
        ({"steps": 2.5}, "steps must be a whole number of 1 or more, got 2.5"),
        ({"steps": 100.0}, "steps must be a whole number of 1 or more, got 100.0"),
        ({"steps": True}, "steps must be a whole number of 1 or more, got True"),
        ({"steps": "many"}, "steps must be a whole number of 1 or more, got 'many'"),
        ({"steps": [3]}, r"steps must be a whole number of 1 or more, got \[3\]"),
        ({"batch_size": 1}, "batch_size must be a whole number of 2 or more, got 1"),
        ({"batch_size": 64.0}, "batch_size must be a whole number of 2 or more, got 64.0"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0, got 0"),
        ({"learning_rate": -1e-3}, "learning_rate must be a number above 0, got -0.001"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0, got nan"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number above 0, got inf"),
        ({"learning_rate": "1e-3"}, "learning_rate must be a number above 0, got '1e-3'"),
        ({"temperature": 0.0}, "temperature must be a number above 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be a number above 0, got nan"),
        ({"time_offset": 0}, "time_offset must be a whole number of 1 or more, got 0"),
        ({"time_offset": -3}, "time_offset must be a whole number of 1 or more, got -3"),
        ({"time_dims": -1}, "time_dims must be a whole number of 0 or more, got -1"),
        ({"time_dims": 1.5}, "time_dims must be a whole number of 0 or more, got 1.5"),
        ({"jacobian_weight": -0.1}, "jacobian_weight must be a number of 0 or more, got -0.1"),
        (
            {"jacobian_weight": "automatic"},
            "jacobian_weight must be a number of 0 or more or 'auto', got 'automatic'",
        ),
        ({"jacobian_weight": 1j}, "jacobian_weight must be a number of 0 or more, got 1j"),
        ({"progress": "yes"}, "progress must be True, False or None, got 'yes'"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_value_and_limit(given, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(params(**given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"steps": 1, "batch_size": 2, "time_offset": 1, "time_dims": 0, "jacobian_weight": 0},
        {"jacobian_weight": "auto"},
        {"steps": np.int32(5), "batch_size": np.int64(8), "time_dims": np.uint8(2)},
        {"learning_rate": np.float32(1e-3), "temperature": 1, "jacobian_weight": np.float64(0.1)},
        {"recipe": "paper", "objective": "regression", "distance": "cosine", "time_on": "block"},
        {"progress": True},
        {"progress": False},
    ],
)
def test_good_parameters_pass(given):
    check_parameters(params(**given))


def test_every_bad_parameter_is_named_in_one_error():
    bad = {
        "recipe": "x",
        "objective": "x",
        "distance": "x",
        "time_on": "x",
        "steps": 0,
        "batch_size": 0,
        "learning_rate": 0,
        "temperature": 0,
        "time_offset": 0,
        "time_dims": -1,
        "jacobian_weight": -1,
        "progress": "x",
    }
    with pytest.raises(ValueError) as caught:
        check_parameters(params(**bad))
    for name in bad:
        assert f"{name} must be" in str(caught.value)


def test_the_paper_s_recipe_is_the_paper_s():
    paper = RECIPES["paper"]
    assert (paper.steps, paper.batch_size, paper.learning_rate) == (20_000, 5_000, 3e-4)
    assert (paper.jacobian_weight, paper.temperature, paper.time_offset) == (0.1, 1.0, 1)
    assert (paper.schedule, paper.include_positive, paper.exclude_self) == (
        "constant",
        False,
        False,
    )
    assert not paper.project
    # The box at its optimal scale, 7.07, must fit inside the bound.
    assert paper.limit > np.sqrt(1 / (2 * 0.1**2))


# Kinds and delays of labels


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"a": LabelSpec(), "b": LabelSpec()}),
        ({"label_kind": "circular"}, {"a": LabelSpec("circular"), "b": LabelSpec("circular")}),
        ({"label_kind": {"b": "discrete"}}, {"a": LabelSpec(), "b": LabelSpec("discrete")}),
        ({"label_kind": {"b": None}}, {"a": LabelSpec(), "b": LabelSpec()}),
        ({"label_delay": -3}, {"a": LabelSpec(None, -3), "b": LabelSpec(None, -3)}),
        ({"label_delay": {"a": 2}}, {"a": LabelSpec(None, 2), "b": LabelSpec()}),
        ({"label_delay": np.int64(2)}, {"a": LabelSpec(None, 2), "b": LabelSpec(None, 2)}),
        ({"label_delay": None}, {"a": LabelSpec(), "b": LabelSpec()}),
        ({"label_delay": {"a": None}}, {"a": LabelSpec(), "b": LabelSpec()}),
    ],
)
def test_kinds_and_delays_are_for_all_labels_or_by_name(given, expected):
    assert label_specs(params(**given), ["a", "b"]) == expected


@pytest.mark.parametrize(
    ("given", "names", "message"),
    [
        (
            {"label_kind": "angle"},
            ["a"],
            r"label_kind\['a'\] must be one of .*'circular'\], got 'a",
        ),
        ({"label_kind": {"a": "x"}}, ["a", "b"], r"label_kind\['a'\] must be one of .*, got 'x'"),
        ({"label_kind": {"c": "discrete"}}, ["a", "b"], r"label_kind names 'c', but.*\['a', 'b'\]"),
        ({"label_delay": 1.5}, ["a"], r"label_delay\['a'\] must be a whole number.*got 1.5"),
        ({"label_delay": {"a": "1"}}, ["a"], r"label_delay\['a'\] must be .*got '1'"),
        ({"label_delay": True}, ["a"], r"label_delay\['a'\] must be .*got True"),
        ({"label_delay": {"c": 1}}, ["a"], "label_delay names 'c', but the labels are"),
        ({}, ["a", "time"], "'time' names the time block.*rename that label"),
    ],
)
def test_bad_kinds_delays_and_names_are_refused(given, names, message):
    with pytest.raises(ValueError, match=message):
        label_specs(params(**given), names)


def test_the_limit_of_a_delay_is_told_in_words():
    with pytest.raises(ValueError, match="label_delay") as caught:
        label_specs(params(label_delay=0.5), ["a"])
    assert "inf" not in str(caught.value)


@pytest.mark.parametrize(
    "given", [{"label_kind": {0: "circular"}}, {"label_delay": {0: 4}}, {"label_dims": {0: 3}}]
)
def test_a_label_named_by_a_number_is_found_by_that_number(given):
    """Labels {0: y} become "0"; a mapping by the same key must not be read as nothing."""
    specs = label_specs(params(**given), ["0"])
    blocks = resolve_blocks(params(**given), [label("0")], 10)
    told = {"label_kind": specs["0"].kind, "label_delay": specs["0"].delay}
    told["label_dims"] = blocks["0"].stop
    assert told[next(iter(given))] == next(iter(given.values()))[0]


# Blocks


@pytest.mark.parametrize(
    ("given", "labels", "expected"),
    [
        # Nothing said: each label its width, four dimensions for time.
        ({}, [label("a", 2)], [("a", 0, 2), ("time", 2, 6)]),
        ({}, [label("a", 2), label("b")], [("a", 0, 2), ("b", 2, 3), ("time", 3, 7)]),
        ({}, [], [("time", 0, 4)]),
        ({}, [label("a", 2, "circular")], [("a", 0, 2), ("time", 2, 6)]),
        ({}, [label("a", 5, "discrete")], [("a", 0, 3), ("time", 3, 7)]),
        ({}, [label("a", 2, "discrete")], [("a", 0, 1), ("time", 1, 5)]),
        # A number, for the only label.
        ({"label_dims": 3}, [label("a", 2)], [("a", 0, 3), ("time", 3, 7)]),
        ({"label_dims": np.int64(1)}, [label("a", 2)], [("a", 0, 1), ("time", 1, 5)]),
        # A mapping sets sizes and order; labels it leaves out follow with their width.
        (
            {"label_dims": {"b": 2, "a": 1}},
            [label("a"), label("b")],
            [("b", 0, 2), ("a", 2, 3), ("time", 3, 7)],
        ),
        (
            {"label_dims": {"c": 3}},
            [label("a", 2), label("b"), label("c")],
            [("c", 0, 3), ("a", 3, 5), ("b", 5, 6), ("time", 6, 10)],
        ),
        (
            {"label_dims": {"b": None, "a": 2}},
            [label("a"), label("b")],
            [("b", 0, 1), ("a", 1, 3), ("time", 3, 7)],
        ),
        ({"label_dims": {}}, [label("a")], [("a", 0, 1), ("time", 1, 5)]),
        # Dimensions for time.
        ({"time_dims": 0}, [label("a", 2)], [("a", 0, 2)]),
        ({"time_dims": 1}, [label("a", 2)], [("a", 0, 2), ("time", 2, 3)]),
        ({"time_dims": 8}, [label("a", 2)], [("a", 0, 2), ("time", 2, 10)]),
        ({"time_dims": 1}, [], [("time", 0, 1)]),
        # Regression: one output per column, of a discrete label too, and no time.
        ({"objective": "regression"}, [label("a", 3)], [("a", 0, 3)]),
        ({"objective": "regression"}, [label("a", 5, "discrete")], [("a", 0, 5)]),
        ({"objective": "regression", "time_dims": 0}, [label("a")], [("a", 0, 1)]),
        ({"objective": "regression", "label_dims": 3}, [label("a", 3)], [("a", 0, 3)]),
        (
            {"objective": "regression", "label_dims": {"b": 2}},
            [label("a"), label("b", 2)],
            [("b", 0, 2), ("a", 2, 3)],
        ),
    ],
)
def test_blocks_come_label_by_label_and_time_last(given, labels, expected):
    assert sizes(resolve_blocks(params(**given), labels, 10)) == expected


@pytest.mark.parametrize(
    ("n_neurons", "labels", "expected"),
    [
        (8, [label("a", 3)], [("a", 0, 3), ("time", 3, 7)]),
        (6, [label("a", 3)], [("a", 0, 3), ("time", 3, 6)]),
        (3, [label("a", 3)], [("a", 0, 3)]),
        (2, [], [("time", 0, 2)]),
        (1, [], [("time", 0, 1)]),
    ],
)
def test_time_left_unsaid_takes_what_the_neurons_leave(n_neurons, labels, expected):
    assert sizes(resolve_blocks(params(), labels, n_neurons)) == expected


REGRESSION = {"objective": "regression"}


@pytest.mark.parametrize(
    ("given", "labels", "message"),
    [
        ({"label_dims": 0}, [label("a")], r"label_dims\['a'\] must be a whole number of 1 or more"),
        ({"label_dims": 1.5}, [label("a")], r"label_dims\['a'\] must be .*, got 1.5"),
        ({"label_dims": True}, [label("a")], r"label_dims\['a'\] must be .*, got True"),
        ({"label_dims": {"a": "x"}}, [label("a")], r"label_dims\['a'\] must be .*, got 'x'"),
        ({"label_dims": [2]}, [label("a")], r"label_dims\['a'\] must be .*, got \[2\]"),
        (
            {"label_dims": {"c": 2}},
            [label("a"), label("b")],
            r"label_dims names 'c', but the labels are \['a', 'b'\]",
        ),
        (
            {"label_dims": 3},
            [label("a"), label("b", 2)],
            r"label_dims=3 does not say which of the labels \['a', 'b'\].*\{'a': 1, 'b': 2\}",
        ),
        ({"label_dims": 11}, [label("a")], "11 \\+ 0 latents, but 10 neurons.*ask for fewer"),
        ({"time_dims": 10}, [label("a")], "1 \\+ 10 latents, but 10 neurons"),
        ({"time_dims": 11}, [], "0 \\+ 11 latents, but 10 neurons"),
        ({"time_dims": 0}, [], r"nothing to learn: give labels \(y\) or time_dims of 1 or more"),
        (REGRESSION, [], "objective='regression' needs labels: give y"),
        (REGRESSION | {"time_dims": 2}, [label("a")], "time_dims must be 0 for regression, got 2"),
        (
            REGRESSION | {"label_dims": 2},
            [label("a", 3)],
            r"label_dims\['a'\] is 2, but regression has one output per label column, 3; leave",
        ),
        (
            REGRESSION | {"label_dims": {"b": 3}},
            [label("a"), label("b", 2)],
            r"label_dims\['b'\] is 3, but regression has one output per label column, 2",
        ),
    ],
)
def test_blocks_that_cannot_be_are_refused_with_a_remedy(given, labels, message):
    with pytest.raises(ValueError, match=message):
        resolve_blocks(params(**given), labels, 10)


def test_label_dims_without_any_label_is_refused_not_ignored():
    with pytest.raises(ValueError, match="label_dims"):
        resolve_blocks(params(label_dims=3), [], 10)


def test_several_problems_of_regression_are_told_at_once():
    with pytest.raises(ValueError) as caught:
        resolve_blocks(params(**REGRESSION, label_dims=2, time_dims=3), [label("a", 3)], 10)
    assert "label_dims['a'] is 2" in str(caught.value)
    assert "time_dims must be 0" in str(caught.value)


# Epochs and batches


@pytest.mark.parametrize(
    ("epochs", "offset", "training", "held_out"),
    [
        ([(0, 1_000)], 1, [(0, 450), (550, 1_000)], [(450, 550)]),
        ([(0, 1_000)], 25, [(0, 450), (550, 1_000)], [(450, 550)]),
        # A tenth shorter than four offsets, or than fifty samples, tells nothing.
        ([(0, 1_000)], 26, [(0, 1_000)], None),
        ([(0, 500)], 1, [(0, 225), (275, 500)], [(225, 275)]),
        ([(0, 499)], 1, [(0, 499)], None),
        # A longer recording has more of them.
        (
            [(0, 2_000)],
            1,
            [(0, 450), (550, 1_450), (1_550, 2_000)],
            [(450, 550), (1_450, 1_550)],
        ),
        # Too short for a pair: not trained on. Too short for a stretch: trained on whole.
        ([(0, 1_000), (1_000, 1_004)], 4, [(0, 450), (550, 1_000)], [(450, 550)]),
        (
            [(0, 1_000), (1_000, 1_020)],
            4,
            [(0, 449), (551, 1_000), (1_000, 1_020)],
            [(449, 551)],
        ),
        ([(0, 4), (10, 13)], 3, [(0, 4)], None),
        # Too short for a stretch of a hundred: shorter ones.
        (
            [(k, k + 200) for k in range(0, 1_000, 200)],
            1,
            [(0, 200), (200, 225), (275, 400), (400, 600), (600, 725), (775, 800), (800, 1_000)],
            [(225, 275), (725, 775)],
        ),
    ],
)
def test_a_tenth_spread_through_the_recording_is_held_out_if_it_can_tell_anything(
    epochs, offset, training, held_out
):
    kept, out = split_epochs(Epochs.check(epochs, 2_000), offset)
    assert kept.pairs() == training
    assert (None if out is None else out.pairs()) == held_out


def test_ten_stretches_at_even_distances_are_held_out_of_a_long_recording():
    training, held_out = split_epochs(Epochs.check(None, 50_000), 5)
    assert held_out.lengths.tolist() == [500] * 10
    assert (np.diff(held_out.starts) == 5_000).all()
    assert held_out.starts[0] == 2_250
    assert training.size == 45_000


def test_of_many_short_epochs_whole_ones_are_held_out_at_even_distances():
    epochs = Epochs.check([(k, k + 40) for k in range(0, 4_000, 40)], 4_000)
    training, held_out = split_epochs(epochs, 10)
    assert held_out.starts.tolist() == list(range(160, 4_000, 400))
    assert set(training.lengths) == set(held_out.lengths) == {40}


def test_no_sample_is_both_trained_on_and_held_out_and_every_part_holds_a_pair():
    rng = np.random.default_rng(0)
    for offset in (1, 4, 16):
        cuts = np.unique(rng.integers(0, 20_000, size=80))
        epochs = Epochs.check(list(itertools.pairwise(cuts)), 20_000)
        training, held_out = split_epochs(epochs, offset)
        assert not set(training.indices()) & set(held_out.indices())
        assert min(training.lengths) > offset
        assert min(held_out.lengths) > offset


def test_no_epoch_long_enough_is_refused_with_both_lengths():
    with pytest.raises(
        ValueError, match=r"time_offset=8.*longest epoch has 7 samples.*lower time_"
    ):
        split_epochs(Epochs.check([(0, 5), (5, 12)], 20), 8)


def test_dropped_epochs_are_counted_in_one_warning():
    epochs = Epochs.check([(0, 1_000), (1_000, 1_003), (1_003, 1_004)], 2_000)
    held_out = split_epochs(epochs, 4)[1]
    with pytest.warns(ShortRecordingWarning, match="2 of 3 epochs.*time_offset=4") as caught:
        warn_split(epochs, 4, held_out)
    assert len(caught) == 1


def test_every_epoch_is_trained_on_or_counted_as_left_out():
    """11 samples hold a pair 10 apart; with a part of them held out they hold none."""
    epochs = Epochs.check([(0, 1_000), (1_000, 1_011)], 2_000)
    training, held_out = split_epochs(epochs, 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_split(epochs, 10, held_out)
    assert min(training.lengths) > 10
    assert training.pairs()[-1] == (1_000, 1_011)
    assert caught == []


def test_a_recording_too_short_to_hold_anything_out_says_so():
    epochs = Epochs.check(None, 100)
    with pytest.warns(ShortRecordingWarning, match=r"too short to hold out.*100 samples"):
        warn_split(epochs, 1, None)


def test_nothing_is_said_where_nothing_was_lost():
    epochs = Epochs.check(None, 1_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_split(epochs, 1, split_epochs(epochs, 1)[1])
    assert caught == []


@pytest.mark.parametrize(
    ("given", "n_training", "expected"),
    [
        (None, 100_000, 1_024),
        (None, 1_024, 1_024),
        (None, 300, 300),
        (None, 1, 2),
        (64, 300, 64),
        (150, 300, 150),
        (5_000, 100_000, 5_000),
        (np.int64(64), 300, 64),
    ],
)
def test_the_batch_is_as_given_or_the_recipe_s_if_it_fits(given, n_training, expected):
    found = resolve_batch_size(given, RECIPES["xcebra"], n_training)
    assert found == expected
    assert type(found) is int


def test_a_batch_that_is_most_of_the_recording_is_told():
    with pytest.warns(
        ShortRecordingWarning, match=r"batch_size=151 is more than half .* to 37 for"
    ):
        assert resolve_batch_size(151, RECIPES["xcebra"], 300) == 151


def test_a_batch_larger_than_the_recording_is_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match=r"batch_size is 301.*only 300 samples.*lower it, or leave"
    ):
        resolve_batch_size(301, RECIPES["xcebra"], 300)
