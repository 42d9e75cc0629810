"""The map as a value: aggregates against numpy, parts of it against loops, intervals by repeats."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.stats

from xcebra.attribution.attribution_map import AttributionMap, standardised
from xcebra.attribution.steps import Steps
from xcebra.common.choices import AGGREGATES
from xcebra.data.epochs import Epochs

BLOCKS = {"position": slice(0, 2), "time": slice(2, 3)}
LATENTS = ("position0", "position1", "time0")
NEURONS = tuple("abcde")
COMBINE = {"mean": np.mean, "max": np.max, "sum": np.sum, "median": np.median}
# Sample indices with a gap, and an odd and an even number of samples among them.
TIMES = np.r_[3:20, 40:64]


def small_map(values=None):
    values = (
        np.array([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4], [0.5, 0.0]]) if values is None else values
    )
    scores = {"c": np.linalg.norm(values, axis=1)}
    return AttributionMap(values, scores, {"c": slice(0, 2)}, tuple("abcd"), ("c0", "c1"))


def signed_maps(n_times=41, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_times, len(NEURONS), len(LATENTS))).astype(np.float32)


def from_maps(maps, times=None, aggregate="mean", **made):
    times = np.arange(len(maps)) if times is None else times
    return AttributionMap.from_steps(
        Steps(maps, times), BLOCKS, NEURONS, LATENTS, aggregate=aggregate, made=made
    )


def of_one_latent(series):
    """A map whose block score at every step is the series itself, (time, neuron), if positive."""
    steps = Steps(series[:, :, None].astype(np.float32), np.arange(len(series)))
    names = tuple(map(str, range(series.shape[1])))
    return AttributionMap.from_steps(steps, {"c": slice(0, 1)}, names, ("c0",))


def assert_aggregate(amap, maps, aggregate, rtol=1e-6):
    """The map equals what numpy makes of the signed maps in float64."""
    combine, maps = COMBINE[aggregate], maps.astype(np.float64)
    np.testing.assert_allclose(amap.values, combine(np.abs(maps), axis=0), rtol=rtol)
    assert list(amap.scores) == list(BLOCKS)
    for name, block in BLOCKS.items():
        norms = np.sqrt((maps[:, :, block] ** 2).sum(axis=2))
        np.testing.assert_allclose(amap.block(name), combine(norms, axis=0), rtol=rtol)


def assert_same(found, expected):
    assert np.array_equal(found.values, expected.values)
    for name in expected.blocks:
        assert np.array_equal(found.block(name), expected.block(name))
    assert np.array_equal(found.steps.times, expected.steps.times)
    assert np.array_equal(found.steps.maps, expected.steps.maps)


# The value


def test_a_map_does_not_change():
    amap = small_map()
    with pytest.raises(ValueError, match="read-only"):
        amap.values[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        amap.block("c")[0] = 1.0
    with pytest.raises(TypeError):
        amap.scores["c"] = np.zeros(4)
    with pytest.raises(TypeError):
        amap.blocks["c"] = slice(0, 1)
    with pytest.raises(TypeError):
        amap.made["method"] = "other"
    with pytest.raises(FrozenInstanceError):
        amap.values = np.zeros((4, 2))


@pytest.mark.parametrize("restricted", [False, True])
def test_the_steps_of_a_map_do_not_change(restricted):
    amap = from_maps(signed_maps(), TIMES)
    amap = amap.restrict(epochs=[(3, 50)]) if restricted else amap
    for array in (amap.steps.stored, amap.steps.times, amap.steps.rows):
        if array is not None:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    with pytest.raises(FrozenInstanceError):
        amap.steps.times = np.arange(3)


def test_steps_are_not_copied_and_leave_the_caller_its_rights():
    maps, times = signed_maps(), TIMES.copy()
    steps = Steps(maps, times)
    assert np.shares_memory(steps.stored, maps)
    assert maps.flags.writeable
    assert times.flags.writeable


def test_a_map_is_independent_of_the_arrays_it_was_made_from():
    base = np.ones((2, 4, 2))
    amap = small_map(base[0])
    base[0] = 7.0
    assert (amap.values == 1.0).all()
    own = np.ones((4, 2))
    small_map(own)
    assert own.flags.writeable


def test_an_unknown_block_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"block must be one of \['c'\], got 'speed'"):
        small_map().block("speed")


def test_z_scores_have_mean_zero_and_variance_one():
    amap = small_map()
    score = amap.block("c")
    np.testing.assert_allclose(amap.z_scores("c"), (score - score.mean()) / score.std())
    assert np.array_equal(amap.is_connected("c"), score > score.mean())
    assert np.array_equal(amap.is_connected("c", 1.0), score > score.mean() + score.std())


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e-300])
@pytest.mark.parametrize("n", [1, 3, 4, 10])
def test_equal_scores_have_z_scores_of_zero_though_their_mean_is_rounded(value, n):
    score = np.full(n, value)
    amap = AttributionMap(score[:, None], {"c": score}, {"c": slice(0, 1)}, ("a",) * n, ("c0",))
    assert not amap.z_scores("c").any()
    assert not amap.is_connected("c").any()


def test_rows_are_standardised_each_by_itself():
    rows = np.array([[1.0, 3.0], [0.1, 0.1], [-4.0, 0.0]])
    assert np.array_equal(standardised(rows), [[-1, 1], [0, 0], [-1, 1]])


def test_a_ranking_starts_with_the_highest_and_leaves_equals_in_their_order():
    score = np.array([0.5, 2.0, 0.5, 3.0, 2.0])
    amap = AttributionMap(score[:, None], {"c": score}, {"c": slice(0, 1)}, NEURONS, ("c0",))
    expected = [("d", 3.0), ("b", 2.0), ("e", 2.0), ("a", 0.5), ("c", 0.5)]
    assert amap.ranking("c") == expected


def test_a_map_tells_its_size_blocks_and_steps():
    told = repr(from_maps(signed_maps(), TIMES, method="gradient"))
    assert told == (
        "AttributionMap(5 neurons x 3 latents, blocks {position: 2, time: 1}, "
        "method='gradient', 41 time steps)"
    )
    assert "time steps" not in repr(small_map())


# Aggregates


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("n_times", [1, 2, 41])
def test_aggregates_of_signed_maps_equal_numpy(aggregate, n_times):
    maps = signed_maps(n_times)
    amap = from_maps(maps, aggregate=aggregate, method="gradient")
    assert_aggregate(amap, maps, aggregate)
    assert amap.made == {"method": "gradient", "aggregate": aggregate, "n_samples": n_times}
    np.testing.assert_allclose(amap.signed(), maps.astype(float).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("entries", [1, 3 * 5 * 7, 2**22])
def test_how_time_is_cut_into_parts_changes_nothing(aggregate, entries, monkeypatch):
    maps = signed_maps()
    whole = from_maps(maps, TIMES, aggregate)
    monkeypatch.setattr("xcebra.attribution.steps._ENTRIES_AT_ONCE", entries)
    parts = from_maps(maps, TIMES, aggregate)
    for amap in (parts, whole.restrict(times=TIMES), whole.aggregated(aggregate)):
        np.testing.assert_allclose(amap.values, whole.values, rtol=1e-14)
        for name in BLOCKS:
            np.testing.assert_allclose(amap.block(name), whole.block(name), rtol=1e-14)
    np.testing.assert_allclose(parts.signed(), whole.signed(), rtol=1e-12, atol=1e-15)
    first, second = [(3, 20)], [(40, 64)]
    compared = parts.compare(first, second, "position"), whole.compare(first, second, "position")
    assert np.array_equal(compared[0].low, compared[1].low)


def test_parts_are_no_larger_than_asked_for_and_hold_every_step_once(monkeypatch):
    maps = signed_maps()
    rows = np.arange(0, len(maps), 2)
    monkeypatch.setattr("xcebra.attribution.steps._ENTRIES_AT_ONCE", 4 * maps[0].size)
    for steps, expected in (
        (Steps(maps, TIMES), maps),
        (Steps(maps, TIMES).choose(rows), maps[rows]),
    ):
        parts = list(steps.parts())
        assert max(map(len, parts)) == 4
        assert np.array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_many_equal_steps_add_up_in_double_precision(aggregate):
    """In float32 the sum of 200,000 tenths is wrong in its third digit."""
    n = 200_000
    maps = np.full((n, 1, 2), np.float32(-0.1))
    steps = Steps(maps, np.arange(n))
    amap = AttributionMap.from_steps(
        steps, {"c": slice(0, 1)}, ("a",), ("c0", "c1"), aggregate=aggregate
    )
    each = float(np.float32(0.1))
    expected = each * n if aggregate == "sum" else each
    np.testing.assert_allclose(amap.values, expected, rtol=1e-10)
    np.testing.assert_allclose(amap.block("c"), expected, rtol=1e-10)
    np.testing.assert_allclose(amap.signed(), -each, rtol=1e-10)
    compared = amap.compare([(0, n // 2)], [(n // 2, n)], "c")
    np.testing.assert_allclose(compared.first, each, rtol=1e-7)
    assert not compared.differs.any()


def test_another_aggregate_is_made_of_the_same_steps():
    maps = signed_maps()
    amap = from_maps(maps, TIMES, method="gradient")
    for aggregate in AGGREGATES:
        again = amap.aggregated(aggregate)
        assert_aggregate(again, maps, aggregate)
        assert again.made == {"method": "gradient", "aggregate": aggregate, "n_samples": 41}
        assert again.steps is amap.steps
    assert_aggregate(amap.restrict(epochs=[(40, 64)]).aggregated("max"), maps[17:], "max")


@pytest.mark.parametrize("make", [from_maps(signed_maps()).aggregated, None])
def test_an_unknown_aggregate_is_refused(make):
    with pytest.raises(ValueError, match=r"aggregate must be one of \['mean', .*got 'mode'"):
        make("mode") if make else from_maps(signed_maps(), aggregate="mode")


# Parts of the recording


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_times_mask_and_epochs_give_the_map_of_these_samples(aggregate):
    maps = signed_maps()
    amap = from_maps(maps, TIMES, aggregate, method="gradient")
    chosen = np.flatnonzero((TIMES < 10) | (TIMES >= 50))
    mask = np.ones(70, dtype=bool)
    mask[10:50] = False
    found = [
        amap.restrict(times=TIMES[chosen]),
        amap.restrict(times=TIMES[chosen].tolist()[::-1]),
        amap.restrict(times=(int(t) for t in TIMES[chosen])),
        amap.restrict(times=set(TIMES[chosen].tolist())),
        amap.restrict(times=TIMES[chosen].astype(np.uint8)),
        amap.restrict(times=mask),
        amap.restrict(times=mask.tolist()),
        amap.restrict(times=mask[:64]),
        amap.restrict(epochs=[(0, 10), (50, 64)]),
        amap.restrict(epochs=np.array([[0, 10], [50, 64]])),
        amap.restrict(epochs=iter([(0, 10), (50, 64)])),
        amap.restrict(epochs=Epochs(np.array([0, 50]), np.array([10, 64]))),
        # The recording may be longer than the map.
        amap.restrict(epochs=[(0, 10), (50, 10**15)]),
    ]
    for each in found:
        assert_aggregate(each, maps[chosen], aggregate)
        assert np.array_equal(each.steps.maps, maps[chosen])
        assert np.array_equal(each.steps.times, TIMES[chosen])
        assert each.made == {**amap.made, "n_samples": len(chosen)}


def test_a_part_of_a_part_is_a_part_of_the_whole():
    amap = from_maps(signed_maps(), TIMES)
    part = amap.restrict(epochs=[(10, 60)]).restrict(times=np.arange(70) % 2 == 0)
    wanted = [t for t in TIMES if 10 <= t < 60 and t % 2 == 0]
    assert_same(part, amap.restrict(times=wanted))
    with pytest.raises(ValueError, match="asks for sample 11, which the map does not have"):
        part.restrict(times=[12, 11])


def test_the_map_of_one_sample_is_found_by_its_index_in_the_recording():
    maps = signed_maps()
    amap = from_maps(maps, TIMES)
    for row in (0, 16, 17, 40):
        one = amap.at(int(TIMES[row]))
        assert np.array_equal(one.values, np.abs(maps[row]))
        assert np.array_equal(one.signed(), maps[row])
        assert one.steps.times == TIMES[row]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give either times or epochs"),
        ({"times": [3], "epochs": [(3, 5)]}, "give either times or epochs"),
        ({"times": [3, 25]}, "times asks for sample 25, which the map does not have"),
        ({"times": [-1]}, "times asks for sample -1, which"),
        ({"times": [64]}, "times asks for sample 64, which"),
        ({"times": []}, "times holds no sample of the map"),
        ({"times": 3}, "times must hold sample indices or a mask, got 3"),
        ({"times": [3.5]}, r"times must hold sample indices or a mask, got \[3.5\]"),
        ({"times": [[3, 4]]}, "times must hold sample indices or a mask"),
        ({"times": np.ones((70, 2), bool)}, "times must hold sample indices or a mask"),
        ({"times": np.ones(63, bool)}, "a mask of 63 samples, but the map reaches sample 63"),
        ({"times": np.arange(70) > 63}, "times holds no sample of the map"),
        ({"epochs": [(20, 40)]}, "epochs holds no sample of the map"),
        ({"epochs": [(64, 90)]}, "epochs holds no sample of the map"),
        ({"epochs": [(0, 3)]}, "epochs holds no sample of the map"),
        ({"epochs": [(9, 9)]}, r"epochs\[0\] is \(9, 9\), but an epoch needs"),
        ({"epochs": [(-3, 9)]}, r"epochs\[0\] is \(-3, 9\), but an epoch needs"),
        ({"epochs": [(3, 9), (8, 12)]}, "merge those that overlap"),
        ({"epochs": []}, "epochs must be a list of"),
        ({"epochs": 3}, "epochs must be a list of"),
        ({"epochs": [3, 9]}, "epochs must be a list of"),
    ],
)
def test_samples_that_are_not_there_are_named(asked, message):
    with pytest.raises(ValueError, match=message):
        from_maps(signed_maps(), TIMES).restrict(**asked)


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda amap: amap.signed(), "signed"),
        (lambda amap: amap.at(0), "restrict"),
        (lambda amap: amap.restrict(times=[0]), "restrict"),
        (lambda amap: amap.aggregated("max"), "aggregated"),
        (lambda amap: amap.compare([(0, 1)], [(1, 2)], "c"), "compare"),
    ],
)
def test_what_needs_every_step_says_how_to_keep_them(ask, name):
    with pytest.raises(ValueError, match=rf"{name} needs the map of every .*keep_time=True"):
        ask(small_map())


class Watched(np.memmap):
    """A file that notes how many bytes are taken from it at once."""

    taken = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        if not np.shares_memory(found, self):
            Watched.taken = max(Watched.taken, found.nbytes)
        return np.asarray(found)


def test_parts_of_a_mapped_file_are_not_read_whole(tmp_path, monkeypatch):
    n = 4_000
    maps = signed_maps(n)
    maps.tofile(tmp_path / "maps")
    stored = Watched(tmp_path / "maps", np.float32, "r", shape=maps.shape)
    amap = AttributionMap.from_steps(Steps(stored, np.arange(n)), BLOCKS, NEURONS, LATENTS)
    assert isinstance(amap.steps.stored, np.memmap)
    monkeypatch.setattr("xcebra.attribution.steps._ENTRIES_AT_ONCE", 100 * maps[0].size)
    Watched.taken = 0
    chosen = amap.steps.choose(np.arange(0, n, 2))
    assert np.shares_memory(chosen.stored, stored)
    assert Watched.taken == 0
    half = amap.restrict(times=np.arange(n) % 2 == 0)
    assert np.shares_memory(half.steps.stored, stored)
    assert_aggregate(half, maps[::2], "mean")
    half.signed()
    half.compare([(0, n // 2)], [(n // 2, n)], "time")
    assert 0 < Watched.taken <= 100 * maps[0].nbytes


# Two conditions


def test_a_comparison_gives_the_means_of_both_conditions():
    maps = signed_maps()
    amap = from_maps(maps, TIMES, "max")
    compared = amap.compare([(0, 12)], [(15, 18), (45, 64)], "position")
    norms = np.linalg.norm(maps[:, :, :2].astype(float), axis=2)
    first = np.mean([n for n, t in zip(norms, TIMES, strict=True) if t < 12], axis=0)
    second = [n for n, t in zip(norms, TIMES, strict=True) if 15 <= t < 18 or t >= 45]
    np.testing.assert_allclose(compared.first, first, rtol=1e-6)
    np.testing.assert_allclose(compared.second, np.mean(second, axis=0), rtol=1e-6)
    assert np.array_equal(compared.difference, compared.first - compared.second)
    assert (compared.low <= compared.difference).all()
    assert (compared.difference <= compared.high).all()
    assert compared.neuron_names == NEURONS
    assert compared.level == 0.95


def test_masks_epochs_and_times_give_the_same_comparison():
    amap = from_maps(signed_maps(), TIMES)
    masks = np.arange(80) < 20, np.arange(80) >= 45
    expected = amap.compare([(0, 20)], [(45, 80)], "time")
    for first, second in (
        masks,
        (masks[0].tolist(), [(45, 64)]),
        (TIMES[TIMES < 20], TIMES[TIMES >= 45]),
    ):
        found = amap.compare(first, second, "time")
        for name in ("first", "second", "difference", "low", "high"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))


MEMORY = 0.6


def slow(rng, n_times, n_series, memory=MEMORY):
    """Series around 10 with variance one whose neighbours correlate; all of them positive."""
    noise = rng.standard_normal((n_times, n_series)) * np.sqrt(1 - memory**2)
    series = np.empty_like(noise)
    series[0] = rng.standard_normal(n_series)
    for t in range(1, n_times):
        series[t] = memory * series[t - 1] + noise[t]
    return series + 10


N_REPEATS = 600
HALVES = [(0, 2000)], [(2000, 4000)]


@pytest.fixture(scope="module")
def repeats():
    """Every neuron is a repeat of the same experiment, in which the conditions are equal."""
    return slow(np.random.default_rng(0), 4000, N_REPEATS)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_intervals_of_slow_activity_hold_the_true_difference_as_often_as_they_say(repeats, level):
    shift = np.linspace(-1, 1, N_REPEATS)
    series = repeats.copy()
    series[:2000] += shift
    compared = of_one_latent(series).compare(*HALVES, "c", level=level)
    held = np.mean((compared.low <= shift) & (shift <= compared.high))
    # Two standard errors of a share of 600 repeats, and a point for stretches that touch.
    assert abs(held - level) < 2 * np.sqrt(level * (1 - level) / N_REPEATS) + 0.01
    # Neither by being wide: the standard error of a mean of an AR(1) is known.
    error = np.sqrt(2 / 2000 * (1 + MEMORY) / (1 - MEMORY))
    width = {0.95: 1.960, 0.8: 1.2816}[level] * 2 * error
    assert np.mean(compared.high - compared.low) == pytest.approx(width, rel=0.1)
    assert compared.differs[np.abs(shift) > 8 * error].all()


def test_equal_conditions_are_called_different_in_about_five_of_a_hundred(repeats):
    amap = of_one_latent(repeats)
    called = np.mean(amap.compare(*HALVES, "c").differs)
    assert 0.03 < called < 0.075
    # What single samples would say: too sure by far.
    assert np.mean(amap.compare(*HALVES, "c", n_stretches=2000).differs) > 0.2


def test_swapping_the_conditions_turns_every_sign(repeats):
    series = repeats[:, :20].copy()
    series[:2000] += np.linspace(-1, 1, 20)
    amap = of_one_latent(series)
    there, back = (amap.compare(*pair, "c") for pair in (HALVES, HALVES[::-1]))
    assert np.array_equal(there.difference, -back.difference)
    assert np.array_equal(there.first, back.second)
    np.testing.assert_allclose(there.low, -back.high, rtol=1e-12)
    np.testing.assert_allclose(there.high, -back.low, rtol=1e-12)


def test_the_interval_is_welchs_over_stretches():
    rng = np.random.default_rng(3)
    series = rng.random((90, 4)) + 1
    compared = of_one_latent(series).compare([(0, 60)], [(60, 90)], "c", n_stretches=6)
    stretches = series[:60].reshape(6, 10, 4).mean(1), series[60:].reshape(6, 5, 4).mean(1)
    expected = scipy.stats.ttest_ind(*stretches, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(compared.low, expected.low, rtol=1e-5)
    np.testing.assert_allclose(compared.high, expected.high, rtol=1e-5)


def test_a_map_survives_pickling():
    amap = from_maps(signed_maps(), TIMES)
    again = pickle.loads(pickle.dumps(amap))
    assert np.array_equal(again.values, amap.values)
    assert np.array_equal(again.steps.maps, amap.steps.maps)
    assert dict(again.made) == dict(amap.made)
    with pytest.raises(ValueError, match="read-only"):
        again.values[0, 0] = 1.0


@pytest.mark.parametrize(
    ("first", "second", "options", "message"),
    [
        ([(3, 9)], [(40, 50)], {"block": "speed"}, r"block must be one of \['position', 'time'\]"),
        ([(3, 9)], [(40, 50)], {"level": 0.0}, "level must lie between 0 and 1, got 0.0"),
        ([(3, 9)], [(40, 50)], {"level": 95}, "level must lie between 0 and 1, got 95"),
        ([(3, 9)], [(40, 50)], {"level": float("nan")}, "level must lie between 0 and 1"),
        ([(3, 9)], [(40, 50)], {"n_stretches": 1}, "n_stretches must be 2 or more, got 1"),
        ([(20, 30)], [(40, 50)], {}, "first holds no sample of the map"),
        ([(3, 9)], [(20, 30)], {}, "second holds no sample of the map"),
        ([(3, 9)], np.zeros(70, bool), {}, "second holds no sample of the map"),
        ([(3, 9)], np.ones(50, bool), {}, "second is a mask of 50 samples"),
        ([(3, 9)], [(40, 41)], {}, "second holds 1 sample of the map; an interval needs 2"),
        ([(3, 9)], [(7, 50)], {}, "first and second share 2 samples"),
        ([(3, 3)], [(40, 41)], {}, r"epochs\[0\] is \(3, 3\)"),
    ],
)
def test_what_cannot_be_compared_is_named(first, second, options, message):
    amap = from_maps(signed_maps(), TIMES)
    with pytest.raises(ValueError, match=message):
        amap.compare(first, second, **{"block": "time", **options})
