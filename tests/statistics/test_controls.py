"""Controls: units in the place of neurons that cannot be connected, and what follows from them."""

import numpy as np
import pytest
from scipy.stats import binom, false_discovery_control

from xcebra.data.recording import Recording
from xcebra.statistics.controls import with_controls
from xcebra.statistics.significance import Connections, merged

N = 900


def recorded(n_neurons=30, *, epochs=None, seed=0):
    """Counts of different rates, of which no two samples in a row are the same for long."""
    rng = np.random.default_rng(seed)
    return Recording(rng.poisson(np.geomspace(0.05, 20, n_neurons), (N, n_neurons)), epochs=epochs)


@pytest.mark.parametrize(
    ("n_neurons", "n_controls"), [(2, 2), (4, 4), (15, 4), (63, 6), (120, 12), (400, 20)]
)
def test_a_tenth_of_the_neurons_four_to_twenty_are_replaced(n_neurons, n_controls):
    found = with_controls(recorded(n_neurons), 0)
    assert len(found.neurons) == n_controls
    assert len(np.unique(found.neurons)) == n_controls
    assert found.activity.shape == (N, n_controls)


def test_only_the_chosen_neurons_are_replaced():
    recording = recorded()
    found = with_controls(recording, 0)
    times = np.array([5, 899, 0, 5])
    rows = found.rows(times)
    kept = np.setdiff1d(np.arange(30), found.neurons)
    np.testing.assert_array_equal(rows[:, kept], recording.rows(times)[:, kept])
    np.testing.assert_array_equal(rows[:, found.neurons], found.activity[times])
    assert (found.rows(np.arange(N)) != recording.rows(np.arange(N))).any(axis=0).sum() == len(
        found.neurons
    )


def test_the_recording_itself_is_left_as_it_is():
    recording = recorded()
    before = recording.neural.copy()
    found = with_controls(recording, 0)
    found.rows(np.arange(N))[:] = -1
    found.windows(np.arange(N), 3)
    np.testing.assert_array_equal(recording.neural, before)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_are_rows_around_each_sample_and_stay_in_their_epoch(size):
    recording = recorded(epochs=[(0, 400), (450, N)])
    found = with_controls(recording, 1)
    times = np.array([0, 1, 200, 399, 450, 451, 899])
    windows = found.windows(times, size)
    rows = recording.epochs.windows(times, size, N)
    assert windows.shape == (len(times), size, 30)
    for i in range(len(times)):
        np.testing.assert_array_equal(windows[i], found.rows(rows[i]))
    kept = np.setdiff1d(np.arange(30), found.neurons)
    np.testing.assert_array_equal(windows[..., kept], recording.windows(times, size)[..., kept])


def test_it_is_read_as_the_recording_is():
    recording = Recording(recorded().neural, epochs=[(10, 400)], overlap=3)
    found = with_controls(recording, 0)
    assert found.epochs is recording.epochs
    assert (found.n_times, found.n_neurons, found.overlap) == (N, 30, 3)


def test_counts_stay_counts_of_the_same_distribution():
    recording = recorded()
    found = with_controls(recording, 0)
    for i, neuron in enumerate(found.neurons):
        own = recording.neural[:, neuron]
        np.testing.assert_array_equal(np.sort(found.activity[:, i]), np.sort(own))


def test_they_are_moved_far_in_time_and_shuffled_in_turn():
    """A moved copy is the neuron at another time; of a shuffled one no order is left."""
    walks = np.random.default_rng(0).standard_normal((N, 12)).cumsum(axis=0)
    recording = Recording(walks)
    found = with_controls(recording, 0)
    for i, neuron in enumerate(found.neurons):
        own, control = recording.neural[:, neuron], found.activity[:, i]
        shifts = [s for s in range(N) if np.array_equal(np.roll(own, s), control)]
        if i % 2 == 0:
            assert len(shifts) == 1
            assert N // 10 <= shifts[0] <= N - N // 10
        else:
            assert not shifts
            steps = np.diff(control.astype(np.float64)).var()
            # Differences of independent draws have twice the variance.
            assert steps == pytest.approx(2 * own.astype(np.float64).var(), rel=0.2)


def test_the_seed_chooses_them():
    first, again, other = (with_controls(recorded(), seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.neurons, again.neurons)
    np.testing.assert_array_equal(first.activity, again.activity)
    assert not np.array_equal(first.neurons, other.neurons)


# What the test makes of them


def connections(p_values, controls):
    none = np.zeros(len(p_values))
    return Connections(none, none, none, np.array(p_values), none, np.array(controls))


def test_neurons_and_controls_are_corrected_together():
    p, c = np.array([1e-6, 0.004, 0.02, 0.6]), np.array([0.03, 0.7, 0.9, 0.5])
    found = connections(p, c)
    called = false_discovery_control(np.concatenate([p, c])) <= 0.05
    np.testing.assert_array_equal(found.significant(), called[:4])
    assert found.controls_called() == called[4:].sum() == 0
    # Without them the same p-values would do.
    alone = Connections(*[np.zeros(4)] * 3, p)
    assert alone.significant().sum() >= found.significant().sum()


@pytest.mark.parametrize("n", [1, 4, 6, 12, 20])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_as_many_controls_may_be_called_as_chance_explains(n, alpha):
    """Up to the 95 % quantile of the binomial; one more, and nobody is called."""
    most = int(binom.ppf(0.95, n, alpha))
    assert binom.sf(most, n, alpha) <= 0.05
    assert most == 0 or binom.sf(most - 1, n, alpha) > 0.05
    for called in range(n + 1):
        controls = [1e-9] * called + [0.99] * (n - called)
        found = connections([1e-9] * 30, controls)
        assert found.controls_called(alpha) == called
        assert found.controls_hold(alpha) is (called <= most)
        assert found.significant(alpha).all() == (called <= most)
        assert found.significant(alpha).any() == (called <= most)


def test_where_controls_fail_no_neuron_is_called_and_the_words_say_why():
    found = connections([1e-9] * 10, [1e-9, 1e-9, 0.5, 0.9])
    assert not found.controls_hold()
    assert not found.significant().any()
    assert "no neuron is called connected" in found.in_words()
    assert "2 of 4 surrogate units" in found.in_words()
    assert "control" not in found.in_words()  # that is a label
    holds = connections([1e-9] * 10, [0.4, 0.3, 0.5, 0.9])
    assert holds.significant().all()
    assert holds.in_words().startswith("10 of 10 neurons are connected to it")
    assert "0 of 4 surrogate units" in holds.in_words()


def test_without_controls_there_is_nothing_to_fail():
    found = Connections(*[np.zeros(3)] * 3, np.array([1e-9, 0.5, 0.9]))
    assert found.controls_hold()
    assert found.controls_called() == 0
    assert found.significant().tolist() == [True, False, False]
    assert "control" not in found.in_words()


def test_controls_of_several_fits_count_by_twice_the_median_as_neurons_do():
    fits = [connections([0.01], c) for c in ([0.1, 0.02], [0.3, 0.04], [0.2, 0.9])]
    assert merged(fits).controls == pytest.approx([0.4, 0.08])
    assert merged(fits).p_values == pytest.approx([0.02])
