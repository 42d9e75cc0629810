"""Measures of a map against the known wiring: by counting, by hand, and against scikit-learn."""

import re

import numpy as np
import pytest
import sklearn.metrics
from sklearn.metrics import average_precision_score, roc_auc_score

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.steps import Steps
from xcebra.metrics import accuracy, auroc, average_precision, gap, r_squared, roc_curve

BLOCKS = {"c": slice(0, 2), "d": slice(2, 5)}
N = 9
TRUTH = np.arange(N) % 3 == 0
FUNCTIONS = [auroc, roc_curve, average_precision, accuracy, gap]
STEPWISE = [auroc, average_precision, accuracy, gap]


def small_map(values=None):
    values = (
        np.array([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4], [0.5, 0.0]]) if values is None else values
    )
    scores = {"c": np.linalg.norm(values, axis=1)}
    return AttributionMap(values, scores, {"c": slice(0, 2)}, tuple("abcd"), ("c0", "c1"))


def stepwise(seed=0, ties=False, n_times=25):
    """A map of single steps; with ties, of entries from a handful of values."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((n_times, N, 5))
    maps = np.round(maps) if ties else maps
    return AttributionMap.from_steps(
        Steps(maps.astype(np.float32), np.arange(n_times)),
        BLOCKS,
        tuple(map(str, range(N))),
        tuple(f"z{i}" for i in range(5)),
        aggregate="median" if ties else "mean",
    )


def by_counting(truth, scores):
    """Share of (connected, unconnected) pairs in the right order; ties count half."""
    ahead = scores[truth][:, None] - scores[~truth][None]
    return float(np.mean((ahead > 0) + 0.5 * (ahead == 0)))


def decided(amap, block, score):
    """Truth and scores of everything that is decided on."""
    if score == "block":
        return TRUTH, amap.block(block)
    entries = amap.values[:, BLOCKS[block]]
    return np.repeat(TRUTH, entries.shape[1]), entries.ravel()


@pytest.mark.parametrize(
    "truth", [[True, True, False, False], [True, False, False, True], [False, False, True, False]]
)
def test_auroc_counts_pairs_in_the_right_order(truth):
    amap, truth = small_map(), np.array(truth)
    entries = by_counting(np.repeat(truth, 2), amap.values.ravel())
    assert auroc(amap, truth, block="c") == pytest.approx(entries)
    assert auroc(amap, {"z": truth}, block="c", score="entries") == pytest.approx(entries)
    block = by_counting(truth, amap.block("c"))
    assert auroc(amap, truth, block="c", score="block") == pytest.approx(block)
    assert block == pytest.approx(roc_auc_score(truth, amap.block("c")))


def test_auroc_is_one_for_the_truth_itself_and_a_half_for_equal_scores():
    truth = np.array([True, False, True, False])
    perfect = small_map(np.repeat(truth[:, None], 2, axis=1).astype(float))
    for score in ("entries", "block"):
        assert auroc(perfect, truth, block="c", score=score) == 1
        assert auroc(perfect, ~truth, block="c", score=score) == 0
        assert auroc(small_map(np.ones((4, 2))), truth, block="c", score=score) == 0.5


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("score", ["entries", "block"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_auroc_and_average_precision_equal_counting_and_scikit_learn(seed, ties, score, block):
    amap = stepwise(seed, ties)
    truth, scores = decided(amap, block, score)
    assert (len(np.unique(scores)) < len(scores)) == ties
    options = {"block": block, "score": score}
    found = auroc(amap, TRUTH, **options)
    assert isinstance(found, float)
    assert found == pytest.approx(by_counting(truth, scores), abs=1e-12)
    assert found == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    found = average_precision(amap, TRUTH, **options)
    assert isinstance(found, float)
    assert found == pytest.approx(average_precision_score(truth, scores), abs=1e-12)


@pytest.mark.parametrize("score", ["entries", "block"])
@pytest.mark.parametrize("ties", [False, True])
def test_the_area_under_the_curve_is_the_auroc(ties, score):
    amap = stepwise(ties=ties)
    for block in BLOCKS:
        curve = roc_curve(amap, TRUTH, block=block, score=score)
        area = sklearn.metrics.auc(curve.false_positive, curve.true_positive)
        assert area == pytest.approx(auroc(amap, TRUTH, block=block, score=score), abs=1e-12)
        truth, scores = decided(amap, block, score)
        for false_positive, true_positive, threshold in zip(*curve, strict=True):
            assert true_positive == pytest.approx((scores[truth] >= threshold).mean())
            assert false_positive == pytest.approx((scores[~truth] >= threshold).mean())
        assert (np.diff(curve.thresholds) < 0).all()


def test_average_precision_by_hand():
    """In order of score: hit, miss, hit, miss: precisions 1 and 2/3."""
    amap = small_map(np.array([[4.0, 0], [3, 0], [2, 0], [1, 0]]))
    truth = np.array([True, False, True, False])
    assert average_precision(amap, truth, block="c", score="block") == pytest.approx(5 / 6)
    # Passed all at once, the precision is the share that is connected.
    equal = small_map(np.ones((4, 2)))
    for wired in (truth, ~truth, np.array([True, False, False, False])):
        assert average_precision(equal, wired, block="c") == pytest.approx(wired.mean())


@pytest.mark.parametrize("score", ["entries", "block"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("measure", STEPWISE)
def test_each_step_is_measured_as_the_map_of_that_step(
    measure, restricted, ties, score, monkeypatch
):
    amap = stepwise(ties=ties)
    amap = amap.restrict(times=np.arange(25) % 2 == 0) if restricted else amap
    for block in BLOCKS:
        options = {"block": block, "score": score}
        expected = [measure(amap.at(int(t)), TRUTH, **options) for t in amap.steps.times]
        found = measure(amap, TRUTH, each_step=True, **options)
        if measure is gap:
            found, expected = np.array(found), np.array(expected).T
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        with monkeypatch.context() as small:
            small.setattr("xcebra.attribution.steps._ENTRIES_AT_ONCE", 100)
            again = measure(amap, TRUTH, each_step=True, **options)
        assert np.array_equal(again, found)


@pytest.mark.parametrize("ties", [False, True])
def test_each_step_equals_a_loop_over_scikit_learn(ties):
    amap = stepwise(ties=ties)
    truth = np.repeat(TRUTH, 3)
    entries = np.abs(amap.steps.maps[:, :, 2:]).reshape(25, -1)
    options = {"block": "d", "each_step": True}
    np.testing.assert_allclose(
        auroc(amap, TRUTH, **options), [roc_auc_score(truth, e) for e in entries], atol=1e-12
    )
    np.testing.assert_allclose(
        average_precision(amap, TRUTH, **options),
        [average_precision_score(truth, e) for e in entries],
        atol=1e-12,
    )


def test_accuracy_by_hand():
    # Block scores 3, 1, 2, 0: mean 1.5, z-scores of +-0.447 and +-1.342.
    amap = small_map(np.array([[3.0, 0], [1, 0], [2, 0], [0, 0]]))
    truth = np.array([True, True, False, False])
    assert accuracy(amap, truth, block="c") == 0.5
    assert accuracy(amap, truth, block="c", threshold=1.0) == 0.75
    assert accuracy(amap, truth, block="c", threshold=-1.0) == 0.75
    assert accuracy(amap, truth, block="c", threshold=2.0) == 0.5
    # Entries 3, 0, 1, 0, 2, 0, 0, 0: mean 0.75; above are 3, 1 and 2.
    assert accuracy(amap, truth, block="c", score="entries") == 5 / 8


def test_accuracy_calls_no_neuron_connected_if_all_score_the_same():
    """Though the mean of equal numbers is not always that number."""
    truth = np.array([True, False, False])
    for value in (0.1, 0.7, 1.0):
        score = np.full(3, value)
        amap = AttributionMap(score[:, None], {"c": score}, {"c": slice(0, 1)}, ("a",) * 3, ("c",))
        assert accuracy(amap, truth, block="c") == pytest.approx(2 / 3)


def test_gap_by_hand():
    amap = small_map(np.array([[3.0, 4.0], [1, 0], [0, 2], [0, 0]]))
    truth = np.array([True, False, True, False])
    assert gap(amap, truth, block="c") == (3.5 - 0.5, 2 - 1)
    # Connected entries 3, 4, 0, 2 and unconnected 1, 0, 0, 0.
    assert gap(amap, truth, block="c", score="entries") == (2.25 - 0.25, 0 - 1)
    assert gap(amap, ~truth, block="c") == (-3, -5)


def test_a_gap_above_zero_means_that_a_threshold_separates():
    for seed in range(20):
        amap = stepwise(seed, n_times=1)
        truth = amap.block("c") > np.sort(amap.block("c"))[N - 2 - seed % 4]
        assert gap(amap, truth, block="c").worst > 0
        assert auroc(amap, truth, block="c", score="block") == 1
        assert average_precision(amap, truth, block="c", score="block") == 1


@pytest.mark.parametrize("measure", FUNCTIONS)
def test_the_named_block_and_factor_count_and_no_other(measure):
    amap = stepwise()
    truth = {"z1": ~TRUTH, "z2": TRUTH}
    only = AttributionMap(
        amap.values[:, 2:],
        {"d": amap.block("d")},
        {"d": slice(0, 3)},
        amap.neuron_names,
        ("z2", "z3", "z4"),
    )
    found = measure(amap, truth, block="d", factor="z2")
    np.testing.assert_equal(found, measure(only, TRUTH, block="d"))
    np.testing.assert_equal(found, measure(only, {"any": TRUTH.astype(int)}, block="d"))


@pytest.mark.parametrize(
    ("truth", "options", "message"),
    [
        ([True] * 4, {}, "connects 4 of 4 neurons"),
        ([False] * 4, {}, "connects 0 of 4 neurons"),
        ([True, False], {}, "has shape \\(2,\\), but the map has 4 neurons"),
        ([True, False] * 2, {"block": "d"}, "block must be one of \\['c'\\]"),
        ([True, False] * 2, {"score": "mean"}, "score must be 'entries' or 'block', got 'mean'"),
        ({"a": [True] * 4, "b": [True] * 4}, {}, "factor must be one of \\['a', 'b'\\]"),
        ({"a": [True] * 4}, {"factor": "b"}, "factor must be one of \\['a'\\], got 'b'"),
    ],
)
@pytest.mark.parametrize("measure", FUNCTIONS)
def test_what_is_wrong_with_the_truth_is_said(measure, truth, options, message):
    if isinstance(truth, list):
        truth = np.array(truth)
    with pytest.raises(ValueError, match=message):
        measure(small_map(), truth, **{"block": "c", **options})


@pytest.mark.parametrize("measure", STEPWISE)
def test_each_step_of_a_map_without_steps_says_how_to_keep_them(measure):
    for score in ("entries", "block"):
        with pytest.raises(ValueError, match=re.escape("attribute(..., keep_time=True)")):
            measure(
                small_map(), np.array([True, False] * 2), block="c", score=score, each_step=True
            )


def test_r_squared_by_hand():
    y = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    assert r_squared(y, y) == 1
    assert r_squared(y, np.tile([2.0, 5.0], (3, 1))) == 0
    # Squared errors 1, 0, 1 against a total of 2; the second column does not vary.
    assert r_squared(y, y + np.array([[1.0, 9.0], [0.0, 9.0], [-1.0, 9.0]])) == 0
    assert r_squared(np.ones((3, 1)), np.zeros((3, 1))) == 0
