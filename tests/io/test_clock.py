"""One clock: bins, means, interpolation and smoothing against references; epochs in seconds."""

import numpy as np
import pynapple as nap
import pytest
from scipy.ndimage import gaussian_filter1d

import xcebra
from xcebra.caveats import LabelKindWarning
from xcebra.data.epochs import Epochs
from xcebra.io import Intervals, Series, clock


def spike_times(n_units=5, length=20.0):
    rng = np.random.default_rng(1)
    return {str(i): np.sort(rng.uniform(0, length, 30 * i + 20)) for i in range(n_units)}


def jittered(n, interval, start=0.0):
    """A clock whose intervals differ by up to a fifth."""
    return start + interval * np.cumsum(np.random.default_rng(2).uniform(0.8, 1.2, n))


def traces(n, n_neurons=3):
    return np.random.default_rng(3).normal(size=(n, n_neurons))


def group(trains, epochs):
    within = nap.IntervalSet(*np.transpose(epochs))
    return nap.TsGroup({int(i): nap.Ts(t) for i, t in trains.items()}, time_support=within)


def at_times(label, at, **kinds):
    """A label (times, values) read at the times of some activity."""
    source = {"neural": (at, np.ones((len(at), 2))), "label": label}
    return xcebra.read(source, labels="label", **kinds).labels["label"]


# Bins


@pytest.mark.parametrize("width", [0.05, 0.1, 1 / 3, 0.37])
def test_spikes_are_counted_as_by_numpy_s_histogram(width):
    trains, epochs = spike_times(), [(0.0, 7.4), (9.1, 20.0)]
    rec = xcebra.read({"units": trains}, epochs=epochs, bin_size=width)
    counts, centres = [], []
    for start, stop in epochs:
        edges = start + width * np.arange(int((stop - start) / width + 1e-6) + 1)
        counts.append(np.column_stack([np.histogram(t, edges)[0] for t in trains.values()]))
        centres.append(edges[:-1] + width / 2)
    np.testing.assert_array_equal(rec.neural, np.concatenate(counts))
    np.testing.assert_allclose(rec.time, np.concatenate(centres), rtol=1e-12)
    n = len(counts[0])
    assert rec.epochs.pairs() == [(0, n), (n, n + len(counts[1]))]
    assert rec.neuron_names == tuple(trains)


@pytest.mark.parametrize(
    "trains",
    [spike_times(), {"0": np.arange(2000) / 100, "7": np.arange(200) / 10}],
    ids=["anywhere", "on edges"],
)
@pytest.mark.parametrize("width", [0.05, 0.1, 0.2])
def test_spikes_are_counted_as_by_pynapple(trains, width):
    epochs = [(0.0, 5.0), (6.2, 12.0), (12.0, 20.0)]
    expected = group(trains, [(0.0, 5.0), (6.2, 12.0)]).count(width)
    rec = xcebra.read({"units": trains}, epochs=epochs, bin_size=width)
    np.testing.assert_array_equal(rec.neural[: len(expected)], expected.values)
    np.testing.assert_allclose(rec.time[: len(expected)], expected.times(), rtol=1e-12)


def test_spikes_are_counted_where_a_group_was_recorded():
    given = group(spike_times(), [(0.5, 5.5), (8.0, 10.0), (13.0, 19.0)])
    rec = xcebra.read(given, bin_size=0.25)
    expected = given.count(0.25)
    np.testing.assert_array_equal(rec.neural, expected.values)
    np.testing.assert_allclose(rec.time, expected.times(), rtol=1e-12)
    assert rec.epochs.pairs() == [(0, 20), (20, 28), (28, 52)]


def test_what_is_left_after_the_last_whole_bin_is_not_counted():
    rec = xcebra.read({"units": {"a": [0.05, 0.95, 1.04]}}, epochs=[(0, 1.07)], bin_size=0.1)
    assert rec.neural.ravel().tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_a_last_bin_that_is_whole_but_for_rounding_counts():
    # 0.7 - 0.1 is less than six times 0.1.
    rec = xcebra.read({"units": {"a": [0.65]}}, epochs=[(0.1, 0.7)], bin_size=0.1)
    assert rec.neural.ravel().tolist() == [0, 0, 0, 0, 0, 1]


def test_unsorted_spikes_and_silent_units_are_counted():
    trains = {"a": [0.95, 0.05], "silent": []}
    rec = xcebra.read({"units": trains}, epochs=[(0, 1)], bin_size=0.5)
    assert rec.neural.tolist() == [[1, 0], [1, 0]]


def test_samples_in_a_bin_are_averaged_as_by_a_loop():
    times, values = jittered(2000, 0.01), traces(2000)
    epochs, width = [(1.0, 9.0), (10.0, 18.6)], 0.25
    rec = xcebra.read({"neural": (times, values)}, epochs=epochs, bin_size=width)
    means = [
        values[(times >= start + k * width) & (times < start + (k + 1) * width)].mean(axis=0)
        for start, n in ((1.0, 32), (10.0, 34))
        for k in range(n)
    ]
    np.testing.assert_allclose(rec.neural, means, rtol=1e-6, atol=1e-7)
    assert rec.epochs.pairs() == [(0, 32), (32, 66)]


def test_samples_on_an_edge_belong_to_the_bin_after_it_whatever_the_rounding():
    # Multiples of 0.01 and of 0.1 are not rounded alike: 3 * 0.1 > 30 * 0.01.
    source = {"neural": (0.01 * np.arange(300), np.arange(600.0).reshape(300, 2))}
    rec = xcebra.read(source, epochs=[(0, 3)], bin_size=0.1)
    assert rec.neural[:, 0].tolist() == [20 * k + 9 for k in range(30)]


def test_without_epochs_bins_begin_half_an_interval_before_the_first_sample():
    source = {"neural": (0.1 * np.arange(10), np.arange(20.0).reshape(10, 2))}
    rec = xcebra.read(source, bin_size=0.2)
    assert rec.neural[:, 0].tolist() == [1, 5, 9, 13, 17]
    np.testing.assert_allclose(rec.time, [0.05, 0.25, 0.45, 0.65, 0.85])


def test_bins_do_not_reach_over_a_pause():
    times = np.concatenate([0.1 * np.arange(50), 20 + 0.1 * np.arange(30)])
    rec = xcebra.read({"neural": (times, traces(80))}, bin_size=0.5)
    assert rec.epochs.pairs() == [(0, 10), (10, 16)]
    np.testing.assert_allclose(rec.time[[0, 10]], [0.2, 20.2])


def test_a_sample_that_is_missing_inside_a_longer_bin_is_no_pause():
    times, values = np.delete(0.1 * np.arange(50), 22), np.delete(traces(50), 22, axis=0)
    rec = xcebra.read({"neural": (times, values)}, bin_size=0.5)
    assert rec.epochs.pairs() == [(0, 10)]
    np.testing.assert_allclose(rec.neural[4], values[20:24].mean(axis=0), rtol=1e-6)
    assert xcebra.read({"neural": (times, values)}).epochs.pairs() == [(0, 22), (22, 49)]


# Labels


@pytest.mark.parametrize("n_columns", [1, 2, 5])
def test_numbers_are_interpolated_as_by_numpy_and_by_pynapple(n_columns):
    times, values = jittered(900, 1 / 30), traces(900, n_columns)
    at = jittered(500, 1 / 20, start=2.0)
    found = at_times((times, values), at)
    expected = np.column_stack([np.interp(at, times, column) for column in values.T])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    theirs = nap.TsdFrame(t=times, d=values).interpolate(nap.Ts(at))
    np.testing.assert_allclose(found, theirs.values, rtol=1e-12, atol=1e-13)


def test_the_clock_of_the_behaviour_may_run_at_another_rate_and_begin_elsewhere():
    times, at = 90 + np.arange(4000) / 77, 100 + np.arange(500) / 25
    found = at_times((times, 3 * times + 1), at)
    np.testing.assert_allclose(found[:, 0], 3 * at + 1, rtol=1e-13)


@pytest.mark.parametrize("rate", [20, 30, 59.94])
def test_a_label_at_the_centres_of_the_bins_is_taken_as_it_is(rate):
    n = 400
    centres = 7 + (np.arange(n) + 0.5) / rate
    label = traces(n, 2)
    source = {"units": {"a": centres, "b": centres[::2]}, "label": (centres, label)}
    rec = xcebra.read(source, epochs=[(7, 7 + n / rate)], bin_size=1 / rate)
    np.testing.assert_array_equal(rec.neural[:, 0], np.ones(n))
    np.testing.assert_array_equal(rec.labels["label"], label)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(300) % 7,
        (np.arange(300) % 5).astype(np.uint8),
        np.arange(300) % 3 == 0,
        np.array(["left", "right", "centre"])[np.arange(300) % 3],
        np.array(["left", "right"], dtype=object)[np.arange(300) % 2],
    ],
    ids=["int", "uint8", "bool", "text", "text as objects"],
)
def test_what_is_no_measurement_takes_the_nearest_sample(values):
    times, at = jittered(300, 1 / 30), jittered(150, 1 / 20, start=1.0)
    found = at_times((times, values), at)
    nearest = np.abs(times[:, None] - at).argmin(axis=0)
    np.testing.assert_array_equal(found[:, 0], values[nearest])
    assert found.dtype.kind == ("U" if values.dtype == object else values.dtype.kind)


GAP = (np.array([0.0, 1, 2, 3, 4, 9.5, 10.5]), np.array([0.0, 10, 20, 30, 40, 95, 105]))
HOLE = (np.arange(8.0), np.array([0, 10, 20, np.nan, 40, 50, 60, 70]))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (HOLE, {1.5: 15, 2: 20, 2.1: np.nan, 3: np.nan, 3.9: np.nan, 4: 40, 4.5: 45}),
        (HOLE, {-0.6: np.nan, -0.5: 0, -0.1: 0, 7.5: 70, 7.51: np.nan, 20: np.nan}),
        (GAP, {3.5: 35, 4.2: 40, 4.5: 40, 4.6: np.nan, 8.9: np.nan, 9.1: 95, 9.6: 96}),
        ((GAP[0] - (GAP[0] > 5) / 2, GAP[1]), {4.2: 42.2, 6.5: 67.5, 8.9: 93.9}),
        ((GAP[0], GAP[1].astype(int)), {3.4: 30, 4.2: 40, 6.0: np.nan, 9.6: 95, 12: np.nan}),
        ((GAP[0], GAP[1] > 35), {3.4: 0, 4.2: 1, 6.0: np.nan, 9.6: 1}),
        ((np.array([5.0]), np.array([3.0])), {4.4: np.nan, 4.6: 3, 5.4: 3, 5.6: np.nan}),
    ],
    ids=["missing", "outside", "gap", "no gap", "gap of ints", "gap of bools", "one sample"],
)
def test_where_a_label_is_not_known_it_is_missing(label, expected):
    found = at_times(label, np.array(list(expected), dtype=float))
    np.testing.assert_allclose(found[:, 0], list(expected.values()), rtol=1e-12)


def test_a_name_that_is_missing_is_empty():
    label = (GAP[0], np.array(list("aabbccd")))
    assert at_times(label, np.array([1.0, 4.0, 7.0]))[:, 0].tolist() == ["a", "c", ""]


@pytest.mark.parametrize("speed", [1.7, -1.7])
def test_angles_turn_through_the_border_and_not_back_through_zero(speed):
    times, at = np.arange(300) / 30, 0.5 + np.arange(400) / 50
    angle = np.angle(np.exp(1j * speed * times))
    assert np.ptp(angle) > 6
    found = at_times((times, angle), at, circular="label")[:, 0]
    np.testing.assert_allclose(np.exp(1j * found), np.exp(1j * speed * at), atol=1e-12)
    with pytest.warns(LabelKindWarning, match="taken as an angle, because it jumps by a whole"):
        recognised = at_times((times, angle), at)[:, 0]
    np.testing.assert_array_equal(recognised, found)
    straight = at_times((times, angle), at, label_kind={"label": "continuous"})[:, 0]
    assert np.abs(np.exp(1j * straight) - np.exp(1j * speed * at)).max() > 1


def test_an_angle_that_stays_stays():
    angle = np.full(30, 3.1)
    found = at_times((np.arange(30.0), angle), 0.37 + np.arange(20.0), circular=["label"])
    np.testing.assert_array_equal(found[:, 0], angle[:20])


def test_cosine_and_sine_stay_on_the_circle_and_halfway_is_halfway():
    times = np.arange(100) / 10
    angle = np.cumsum(np.random.default_rng(0).uniform(-1.5, 1.5, 100))
    label = (times, np.column_stack([np.cos(angle), np.sin(angle)]))
    anywhere = at_times(label, jittered(180, 1 / 20), circular="label")
    np.testing.assert_allclose(np.linalg.norm(anywhere, axis=1), 1, rtol=1e-12)
    found = at_times(label, times[:-1] + 0.05, circular="label")
    half = (angle[1:] + angle[:-1]) / 2
    np.testing.assert_allclose(found, np.column_stack([np.cos(half), np.sin(half)]), atol=1e-12)


def test_halfway_between_opposite_directions_is_missing():
    label = (np.arange(3.0), np.array([[1.0, 0], [-1, 0], [-1, 0]]))
    found = at_times(label, np.array([0.5, 1.5]), circular="label")
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [-1, 0]])


def test_an_infinite_label_is_refused():
    label = (np.arange(4.0), np.array([0, np.inf, np.inf, 3]))
    with pytest.raises(ValueError, match="label 'label' has inf"):
        at_times(label, np.array([0.5, 1.0, 1.5, 2.5]))


def test_rows_without_times_belong_to_the_rows_of_the_activity():
    times, values = np.arange(100) / 10, traces(100)
    source = {"neural": (times, values), "label": np.arange(100.0)}
    cut = xcebra.read(source, epochs=[(2, 4.95)])
    assert cut.labels["label"][:, 0].tolist() == list(range(20, 50))
    binned = xcebra.read(source, bin_size=0.2)
    np.testing.assert_allclose(binned.labels["label"][:, 0], 2 * np.arange(50) + 0.5, rtol=1e-12)


# Smoothing


def test_smoothing_is_scipy_s_on_each_epoch_alone():
    times, values = np.arange(500) / 50, traces(500)
    source = {"neural": (times, values)}
    rec = xcebra.read(source, epochs=[(0, 3.99), (4, 9.99)], smooth=0.1)
    assert rec.epochs.pairs() == [(0, 200), (200, 500)]
    alone = [gaussian_filter1d(values[a:b], 5.0, axis=0) for a, b in rec.epochs.pairs()]
    np.testing.assert_allclose(rec.neural, np.concatenate(alone), rtol=1e-5, atol=1e-7)


def test_smoothing_does_not_leak_over_a_border():
    values = np.zeros((500, 2))
    values[199] = 100
    rec = xcebra.read(
        {"neural": (np.arange(500) / 50, values)}, epochs=[(0, 3.99), (4, 9.99)], smooth=0.1
    )
    assert rec.neural[190].min() > 0
    assert not rec.neural[200:].any()
    np.testing.assert_allclose(rec.neural.sum(axis=0), 100, rtol=1e-5)


def test_smoothing_keeps_a_constant_and_no_smoothing_keeps_everything():
    times = np.arange(60) / 20
    rec = xcebra.read({"neural": (times, np.full((60, 2), 3.0))}, smooth=0.3)
    np.testing.assert_allclose(rec.neural, 3.0, rtol=1e-6)
    values = traces(60)
    rec = xcebra.read({"neural": (times, values)}, smooth=0)
    np.testing.assert_array_equal(rec.neural, values.astype(np.float32))


def test_smoothing_leaves_samples_outside_epochs_as_they_are():
    series = Series(traces(30), np.arange(30) / 10)
    found = clock.smoothed(series, Epochs.check([(0, 10), (20, 30)], 30), 0.2)
    np.testing.assert_array_equal(found.values[10:20], series.values[10:20].astype(np.float32))
    assert (found.values[:10] != series.values[:10].astype(np.float32)).all()


def test_spikes_are_counted_first_and_smoothed_then():
    rec = xcebra.read({"units": spike_times()}, epochs=[(0, 20)], bin_size=0.1, smooth=0.2)
    counts = xcebra.read({"units": spike_times()}, epochs=[(0, 20)], bin_size=0.1).neural
    expected = gaussian_filter1d(counts.astype(float), 2.0, axis=0)
    np.testing.assert_allclose(rec.neural, expected, rtol=1e-5, atol=1e-7)


# Epochs


PAIRS = [(1.0, 2.95), (4.0, 5.95)]


@pytest.mark.parametrize(
    "epochs",
    [
        PAIRS,
        tuple(PAIRS),
        np.array(PAIRS),
        "trials",
        nap.IntervalSet([1.0, 4.0], [2.95, 5.95]),
        Intervals(np.array([1.0, 4.0]), np.array([2.95, 5.95])),
        Epochs.check([(10, 30), (40, 60)], 100),
    ],
    ids=["list", "tuple", "array", "name", "IntervalSet", "Intervals", "samples"],
)
def test_epochs_are_given_in_any_form(epochs):
    times = np.arange(100) / 10
    source = {
        "neural": (times, traces(100)),
        "label": (times, np.arange(100.0)),
        "trials": nap.IntervalSet([1.0, 4.0], [2.95, 5.95]),
    }
    rec = xcebra.read(source, epochs=epochs)
    rows = rec.epochs.indices()
    assert rec.epochs.lengths.tolist() == [20, 20]
    np.testing.assert_array_equal(rec.labels["label"][rows, 0], [*range(10, 30), *range(40, 60)])
    np.testing.assert_array_equal(rec.time[rows], times[[*range(10, 30), *range(40, 60)]])


def test_intervals_that_touch_share_no_sample():
    times = np.arange(11.0)
    rec = xcebra.read({"neural": (times, traces(11))}, epochs=[(0, 5), (5, 8), (8, 10)])
    assert rec.epochs.pairs() == [(0, 6), (6, 9), (9, 11)]
    np.testing.assert_array_equal(rec.time, times)


@pytest.mark.filterwarnings("ignore:Some starts and ends are equal:UserWarning")
def test_intervals_of_pynapple_that_touch_lose_no_bin():
    # It takes a microsecond off each.
    epochs = nap.IntervalSet([0.0, 5.0, 10.0], [5.0, 10.0, 15.0])
    assert epochs.end[0] < 5
    rec = xcebra.read({"units": spike_times()}, epochs=epochs, bin_size=0.1)
    assert rec.epochs.pairs() == [(0, 50), (50, 100), (100, 150)]
    whole = xcebra.read({"units": spike_times()}, epochs=[(0, 15)], bin_size=0.1)
    np.testing.assert_array_equal(rec.neural, whole.neural)


def test_a_sample_on_the_border_of_an_epoch_is_inside_whatever_the_rounding():
    times = 0.1 * np.arange(10)
    assert times[3] > 0.3
    rec = xcebra.read({"neural": (times, traces(10))}, epochs=[(0.1, 0.3)])
    np.testing.assert_array_equal(rec.time, times[1:4])


def test_a_pause_in_the_clock_splits_epochs_given_or_not():
    times = np.concatenate([np.arange(30), 50 + np.arange(20)]) / 10
    source = {"neural": (times, traces(50))}
    assert xcebra.read(source).epochs.pairs() == [(0, 30), (30, 50)]
    rec = xcebra.read(source, epochs=[(1, 6), (6.05, 7)])
    assert rec.epochs.pairs() == [(0, 20), (20, 31), (31, 40)]
    np.testing.assert_array_equal(rec.time, times[10:])


def test_epochs_without_times_are_samples():
    rec = xcebra.read({"neural": traces(50)}, epochs=[(0, 20), (30, 50)])
    assert rec.time is None
    assert rec.n_times == 50
    assert rec.epochs.pairs() == [(0, 20), (30, 50)]


def test_without_epochs_bins_cover_what_activity_and_labels_share():
    label = (2 + np.arange(61) / 10, np.arange(61.0))
    rec = xcebra.read({"units": spike_times(), "label": label}, bin_size=0.1)
    np.testing.assert_allclose(rec.time, 2 + np.arange(61) / 10, rtol=1e-12)
    np.testing.assert_allclose(rec.labels["label"][:, 0], np.arange(61), atol=1e-9)
    assert (
        xcebra.read({"units": spike_times(), "label": label}, labels=[], bin_size=1).n_times == 19
    )


def test_a_label_that_ends_early_ends_the_last_stretch_and_drops_those_after():
    given = group(spike_times(), [(0.0, 5.0), (6.0, 10.0), (15.0, 20.0)])
    label = (np.arange(81) / 10, np.arange(81.0))
    rec = xcebra.read({"units": given, "label": label}, bin_size=0.5)
    assert rec.epochs.pairs() == [(0, 10), (10, 14)]
    assert rec.time[-1] == pytest.approx(7.75)


@pytest.mark.parametrize("width", [0.1, 0.07])
def test_counts_are_added_so_that_rates_stay(width):
    times = 0.01 + 0.02 * np.arange(3_000)
    counts = np.random.default_rng(0).poisson(0.4, (3_000, 3))
    rec = xcebra.read({"neural": (times, counts)}, bin_size=width, labels=[])
    rates = rec.neural.mean(axis=0) / width
    np.testing.assert_allclose(rates, counts.mean(axis=0) / 0.02, rtol=0.01)
    if width == 0.1:  # five samples in each bin: the counts themselves
        np.testing.assert_array_equal(rec.neural, counts.reshape(-1, 5, 3).sum(axis=1))
    traces = xcebra.read({"neural": (times, counts.astype(float))}, bin_size=0.1, labels=[])
    np.testing.assert_allclose(traces.neural, counts.reshape(-1, 5, 3).mean(axis=1), rtol=1e-6)
