"""Samplers: every positive against brute force, every draw against the distribution it claims."""

import time

import numpy as np
import pytest
from scipy import stats

from xcebra.data.epochs import Epochs
from xcebra.training.sampling import NearestLabel, SameClass, TimeOffset


def rng(seed=0):
    return np.random.default_rng(seed)


def whole(n):
    return Epochs.check(None, n)


def on_circle(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def looks_like(counts, expected):
    """Counts agree with expected shares; a true sampler fails once in 10,000 seeds."""
    expected = np.asarray(expected) / np.sum(expected) * np.sum(counts)
    return stats.chisquare(counts, expected).pvalue > 1e-4


def draw(sampler, reference, seed=0):
    """Positives, and the start of the step drawn for each, in a recording without gaps.

    The sampler draws steps before anything else, so the same seed tells which.
    """
    tau = rng(seed).integers(sampler.n_steps, size=len(reference))
    return sampler.positives(reference, rng(seed)), tau


# Time


def test_time_offset_is_the_later_sample_and_minus_one_where_the_epoch_ends():
    pairs = TimeOffset(Epochs.check([(0, 5), (5, 7), (10, 20)], 20), 3)
    reference = np.array([0, 1, 2, 4, 5, 6, 10, 16, 17, 19])
    assert pairs.positives(reference, rng()).tolist() == [3, 4, -1, -1, -1, -1, 13, 19, -1, -1]
    assert pairs.takes_part(reference).all()


@pytest.mark.parametrize("offset", [1, 2, 7, 50])
def test_time_offset_never_crosses_an_epoch(offset):
    epochs = Epochs.check([(3, 10), (10, 40), (41, 43), (60, 100)], 100)
    times = epochs.indices()
    found = TimeOffset(epochs, offset).positives(times, rng())
    for time_, positive in zip(times, found, strict=True):
        stop = next(b for a, b in epochs.pairs() if a <= time_ < b)
        assert positive == (time_ + offset if time_ + offset < stop else -1)


# Nearest label, against brute force


@pytest.mark.parametrize("exclude_self", [True, False])
@pytest.mark.parametrize("offset", [1, 5])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 6])
def test_the_nearest_label_is_that_of_brute_force(exclude_self, offset, n_columns):
    n = 400
    points = np.cumsum(rng(n_columns).normal(size=(n, n_columns)), axis=0) * 0.1
    sampler = NearestLabel(points, whole(n), offset, exclude_self=exclude_self)
    reference = rng(1).integers(n, size=2_000)
    found, tau = draw(sampler, reference)
    target = points[reference] + points[tau + offset] - points[tau]
    distance = np.linalg.norm(target[:, None] - points, axis=2)
    if exclude_self:
        distance[np.arange(2_000), reference] = np.inf
    assert np.array_equal(found, distance.argmin(axis=1))
    assert (found == reference).any() != exclude_self


@pytest.mark.parametrize("exclude_self", [True, False])
def test_on_a_lattice_the_nearest_is_at_the_smallest_distance_of_all(exclude_self):
    points = rng(2).integers(5, size=(120, 2)) / 4
    sampler = NearestLabel(points, whole(120), 1, exclude_self=exclude_self)
    reference = rng(1).integers(120, size=3_000)
    found, tau = draw(sampler, reference)
    target = points[reference] + points[tau + 1] - points[tau]
    distance = np.square(target[:, None] - points).sum(axis=2)
    if exclude_self:
        distance[np.arange(3_000), reference] = np.inf
    assert np.array_equal(distance[np.arange(3_000), found], distance.min(axis=1))


@pytest.mark.parametrize("exclude_self", [True, False])
def test_on_the_circle_the_nearest_is_that_of_brute_force_over_angles(exclude_self):
    n, offset = 400, 2
    angle = np.cumsum(rng(3).normal(size=n)) * 0.3
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    sampler = NearestLabel(
        on_circle(angle), whole(n), offset, circular=True, exclude_self=exclude_self
    )
    reference = rng(1).integers(n, size=2_000)
    found, tau = draw(sampler, reference)
    target = angle[reference] + angle[tau + offset] - angle[tau]
    distance = np.abs((target[:, None] - angle + np.pi) % (2 * np.pi) - np.pi)
    if exclude_self:
        distance[np.arange(2_000), reference] = np.inf
    assert distance[np.arange(2_000), found] == pytest.approx(distance.min(axis=1), abs=1e-12)


def test_on_the_circle_a_step_goes_on_past_pi():
    """Steps of +0.1 only, references just below pi: the positive is just above -pi."""
    angle = np.concatenate([np.arange(-3.1, 3.1, 0.1), [0.0]])
    epochs = Epochs.check([(0, 62), (62, 63)], 63)
    sampler = NearestLabel(on_circle(angle), epochs, 1, circular=True)
    found = sampler.positives(np.full(50, 61), rng())
    assert angle[61] == pytest.approx(3.0)
    assert angle[found] == pytest.approx(3.1 - 2 * np.pi, abs=0.1)
    assert len(np.unique(found)) == 1


@pytest.mark.parametrize("turn", [0.7, np.pi, -2.5])
def test_on_the_circle_where_zero_lies_does_not_matter(turn):
    angle = rng(4).uniform(-np.pi, np.pi, 300)
    reference = rng(1).integers(300, size=500)
    here = NearestLabel(on_circle(angle), whole(300), 1, circular=True)
    there = NearestLabel(on_circle(angle + turn), whole(300), 1, circular=True)
    assert np.array_equal(here.positives(reference, rng()), there.positives(reference, rng()))


# Nearest label: steps and epochs


def test_steps_are_drawn_as_often_as_the_data_has_them():
    """Labels on whole numbers, all of them visited: the positive tells the step."""
    step = rng(5).choice([-2, -1, 0, 1, 3], p=[0.1, 0.2, 0.4, 0.25, 0.05], size=5_000)
    walk = np.abs(np.cumsum(step) % 40 - 20).astype(float)
    assert len(np.unique(walk)) == 21
    sampler = NearestLabel(walk[:, None], whole(5_000), 1)
    middle = int(np.flatnonzero(walk == 10)[0])
    found = sampler.positives(np.full(20_000, middle), rng(6))
    seen, counts = np.unique(walk[found] - 10, return_counts=True)
    steps, shares = np.unique(np.diff(walk), return_counts=True)
    assert np.array_equal(seen, steps)
    assert looks_like(counts, shares)


def test_no_step_crosses_an_epoch_or_a_missing_sample():
    """Inside epochs the label climbs by one; between them, and beside the gap, it leaps."""
    values = np.concatenate([np.arange(10), 1_000 + np.arange(10), 50 + np.arange(10)]) * 1.0
    valid = np.ones(30, dtype=bool)
    values[25], valid[25] = np.nan, False
    epochs = Epochs.check([(0, 10), (10, 20), (20, 30)], 30)
    sampler = NearestLabel(values[:, None], epochs, 1, valid)
    assert sampler.n_steps == 9 + 9 + 9 - 2
    found = sampler.positives(np.full(500, 4), rng())
    assert set(values[found]) == {5.0}


def test_steps_are_as_long_as_the_offset_inside_each_epoch():
    epochs = Epochs.check([(0, 3), (3, 4), (4, 9)], 9)
    for offset, n_steps in [(1, 2 + 0 + 4), (2, 1 + 0 + 3), (3, 0 + 0 + 2), (5, 0)]:
        assert NearestLabel(np.arange(9.0)[:, None], epochs, offset).n_steps == n_steps


def test_a_positive_may_lie_in_another_epoch_but_not_outside_all():
    values = np.array([0.0, 1.0, 2.0, 99.0, 99.0, 2.1, 3.0, 4.0])
    epochs = Epochs.check([(0, 3), (5, 8)], 8)
    sampler = NearestLabel(values[:, None], epochs, 1)
    found = sampler.positives(epochs.indices().repeat(200), rng())
    assert set(found) <= set(epochs.indices())
    assert set(sampler.positives(np.full(200, 2), rng())) & {5, 6}


def test_a_missing_label_is_neither_reference_nor_positive_nor_negative():
    points = rng(7).normal(size=(300, 2))
    valid = rng(8).random(300) > 0.3
    points[~valid] = np.nan
    sampler = NearestLabel(points, whole(300), 1, valid)
    found = sampler.positives(np.arange(300), rng())
    assert np.array_equal(found == -1, ~valid)
    assert valid[found[valid]].all()
    assert np.array_equal(sampler.takes_part(np.arange(300)), valid)


# Nearest label: ties


@pytest.mark.parametrize("exclude_self", [True, False])
def test_equal_labels_are_drawn_evenly(exclude_self):
    """Two values that alternate: every step leads to the other value, or two steps back home."""
    values = np.tile([0.0, 1.0], 15)
    sampler = NearestLabel(values[:, None], whole(30), 2, exclude_self=exclude_self)
    found = sampler.positives(np.full(15_000, 4), rng())
    counts = np.bincount(found, minlength=30)
    assert counts[1::2].sum() == 0
    others = np.arange(0, 30, 2)
    if exclude_self:
        assert counts[4] == 0
        others = others[others != 4]
    assert looks_like(counts[others], np.ones(len(others)))


def test_distinct_labels_at_equal_distance_are_drawn_evenly_by_sample():
    """Without itself, the reference at 2 has one sample at 1 and three at 3, all as near."""
    values = np.array([2.0, 1.0, 3.0, 3.0, 3.0])
    found, tau = draw(NearestLabel(values[:, None], whole(5), 1), np.zeros(40_000, dtype=int))
    stood_still = values[tau + 1] == values[tau]
    counts = np.bincount(found[stood_still], minlength=5)
    assert stood_still.mean() == pytest.approx(0.5, abs=0.02)
    assert counts[0] == 0
    assert looks_like(counts[1:], np.ones(4))


@pytest.mark.parametrize("n_corners", [2, 3, 5, 8, 16])
def test_all_of_many_places_at_equal_distance_can_be_drawn(n_corners):
    """The reference alone in the middle, two samples in each corner; the only step is none."""
    corners = np.eye(n_corners) * 4.0
    still = np.full((2, n_corners), 100.0)
    points = np.concatenate([np.zeros((1, n_corners)), corners, corners, still])
    n = len(points)
    epochs = Epochs.check([*((i, i + 1) for i in range(n - 2)), (n - 2, n)], n)
    sampler = NearestLabel(points, epochs, 1)
    assert sampler.n_steps == 1
    counts = np.bincount(sampler.positives(np.zeros(20_000, dtype=int), rng()), minlength=n)
    assert counts[0] == counts[-1] == counts[-2] == 0
    assert looks_like(counts[1:-2], np.ones(2 * n_corners))


def test_ties_on_a_lattice_are_drawn_as_by_brute_force():
    """Every reference and step: the share of each sample, against all pairs."""
    values = rng(9).integers(4, size=24) * 1.0
    sampler = NearestLabel(values[:, None], whole(24), 1)
    steps = np.diff(values)
    for reference in (0, 7, 23):
        expected = np.zeros(24)
        for step in steps:
            distance = np.abs(values[reference] + step - values)
            distance[reference] = np.inf
            tied = distance == distance.min()
            expected += tied / tied.sum() / len(steps)
        counts = np.bincount(sampler.positives(np.full(30_000, reference), rng(10)), minlength=24)
        assert counts[expected == 0].sum() == 0
        assert looks_like(counts[expected > 0], expected[expected > 0])


# Nearest label: the smallest and the oddest data


def test_two_samples_are_each_other_s_positive():
    sampler = NearestLabel(np.array([[0.0], [1.0]]), whole(2), 1)
    assert sampler.positives(np.array([0, 1, 0]), rng()).tolist() == [1, 0, 1]


def test_two_equal_samples_are_each_other_s_positive():
    sampler = NearestLabel(np.zeros((2, 1)), whole(2), 1)
    assert sampler.positives(np.array([0, 1, 0]), rng()).tolist() == [1, 0, 1]


def test_all_labels_equal_but_one():
    values = np.zeros(50)
    values[20] = 1.0
    sampler = NearestLabel(values[:, None], whole(50), 1)
    found = sampler.positives(np.repeat(np.arange(50), 400), rng()).reshape(50, 400)
    assert (found != np.arange(50)[:, None]).all()
    assert (found >= 0).all()
    # The step up is one of 49, and leads to the one that differs.
    share = (np.delete(found, 20, axis=0) == 20).mean()
    assert share == pytest.approx(1 / 49, rel=0.2)
    assert 20 not in found[20]


def test_all_labels_equal_never_pairs_a_sample_with_itself():
    sampler = NearestLabel(np.zeros((5, 2)), whole(5), 1)
    found = sampler.positives(np.zeros(4_000, dtype=int), rng())
    counts = np.bincount(found, minlength=5)
    assert counts[0] == 0
    assert looks_like(counts[1:], np.ones(4))


def test_no_references_give_no_positives():
    nothing = np.array([], dtype=np.int64)
    for sampler in (
        NearestLabel(np.arange(5.0)[:, None], whole(5), 1),
        SameClass(np.array([0, 0, 1, 1, 1]), whole(5)),
        TimeOffset(whole(5), 1),
    ):
        assert sampler.positives(nothing, rng()).shape == (0,)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_bits(seed):
    points = rng(11).integers(6, size=(500, 2)) * 1.0
    reference = rng(12).integers(500, size=1_000)
    codes = rng(13).integers(4, size=500)
    for make in (
        lambda: NearestLabel(points, whole(500), 1),
        lambda: SameClass(codes, whole(500)),
    ):
        first, second = make(), make()
        found = first.positives(reference, rng(seed))
        assert np.array_equal(found, first.positives(reference, rng(seed)))
        assert np.array_equal(found, second.positives(reference, rng(seed)))
        assert not np.array_equal(found, first.positives(reference, rng(seed + 100)))


def test_the_caller_s_labels_are_left_as_they_were():
    points, reference = rng(14).normal(size=(50, 2)), np.arange(50)
    before = points.copy()
    NearestLabel(points, whole(50), 1).positives(reference, rng())
    assert np.array_equal(points, before)
    assert np.array_equal(reference, np.arange(50))


# Nearest label: speed


def fastest(sampler, n_times, batch=5_000):
    """Least of three, in seconds: what the work takes when nobody else is working."""
    reference = rng(1).integers(n_times, size=batch)
    found = []
    for _ in range(3):
        start = time.perf_counter()
        sampler.positives(reference, rng())
        found.append(time.perf_counter() - start)
    return min(found)


def test_5000_positives_out_of_100000_take_far_less_than_a_second():
    walk = np.cumsum(rng(15).normal(size=(100_000, 2)) * 0.05, axis=0)
    inside = np.abs(walk % 4 - 2)
    assert fastest(NearestLabel(inside, whole(100_000), 1), 100_000) < 0.25


@pytest.mark.parametrize("n_values", [3, 50])
def test_few_values_over_many_samples_are_as_fast(n_values):
    values = rng(16).integers(n_values, size=(50_000, 1)) * 1.0
    assert fastest(NearestLabel(values, whole(50_000), 1), 50_000) < 0.1


def test_a_circle_of_many_angles_is_as_fast():
    angle = np.cumsum(rng(17).normal(size=100_000) * 0.1)
    sampler = NearestLabel(on_circle(angle), whole(100_000), 1, circular=True)
    assert fastest(sampler, 100_000) < 0.25


# Classes


def test_the_positive_is_of_the_same_class_and_never_the_reference():
    codes = rng(18).integers(5, size=400)
    reference = rng(1).integers(400, size=5_000)
    found = SameClass(codes, whole(400)).positives(reference, rng())
    assert np.array_equal(codes[found], codes[reference])
    assert (found != reference).all()


@pytest.mark.parametrize("exclude_self", [True, False])
@pytest.mark.parametrize("reference", [0, 6, 11])
def test_every_member_of_a_class_is_drawn_evenly(exclude_self, reference):
    codes = np.array([1, 0, 1, 0, 2, 2, 1, 0, 1, 0, 2, 1])
    sampler = SameClass(codes, whole(12), exclude_self=exclude_self)
    counts = np.bincount(sampler.positives(np.full(10_000, reference), rng()), minlength=12)
    members = np.array([i for i in (0, 2, 6, 8, 11) if i != reference or not exclude_self])
    assert counts.sum() == counts[members].sum()
    assert looks_like(counts[members], np.ones(len(members)))


def test_a_class_of_one_has_no_positive_unless_itself_is_allowed():
    codes = np.array([0, 1, 0])
    assert SameClass(codes, whole(3)).positives(np.array([0, 1, 2]), rng()).tolist() == [2, -1, 0]
    found = SameClass(codes, whole(3), exclude_self=False).positives(np.array([1]), rng())
    assert found.tolist() == [1]


def test_a_missing_class_is_neither_reference_nor_positive_nor_negative():
    codes = rng(19).integers(3, size=300)
    valid = rng(20).random(300) > 0.3
    sampler = SameClass(codes, whole(300), valid)
    found = sampler.positives(np.arange(300), rng())
    assert np.array_equal(found == -1, ~valid)
    assert valid[found[valid]].all()
    assert np.array_equal(codes[found[valid]], codes[valid])
    assert np.array_equal(sampler.takes_part(np.arange(300)), valid)


def test_members_come_from_inside_the_epochs_only():
    codes = np.zeros(20, dtype=np.int64)
    epochs = Epochs.check([(2, 5), (9, 12)], 20)
    found = SameClass(codes, epochs).positives(epochs.indices().repeat(50), rng())
    assert set(found) == set(epochs.indices())


def test_a_class_that_no_epoch_holds_has_no_positive():
    codes = np.array([0, 0, 2, 2, 0])
    found = SameClass(codes, Epochs.check([(0, 2), (4, 5)], 5)).positives(np.array([0, 4]), rng())
    assert (codes[found] == 0).all()
