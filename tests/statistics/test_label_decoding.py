"""Reading a label from the activity: as a dense reference does, and never by chance."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from sklearn.linear_model import Ridge

from xcebra.data.labels import LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.statistics.label_decoding import (
    LEAST_SAMPLES,
    N_SHIFTS,
    Decoding,
    _drift_basis,
    _features,
    _shifts,
    _smoothed,
    _without,
    decode,
)
from xcebra.statistics.ridge import RIDGES, held_out_errors, held_out_predictions, make_folds

SMALLEST = 1 / (1 + N_SHIFTS)


@pytest.fixture(autouse=True)
def one_thread():
    """Idle threads that wait slow small work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def autoregressive(n, d, rho, seed):
    """Independent AR(1) columns of variance 1, stationary from the start."""
    shocks = np.random.default_rng(seed).standard_normal((n, d))
    shocks[1:] *= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], shocks, axis=0)


def walk(n, d, seed):
    return np.cumsum(np.random.default_rng(seed).standard_normal((n, d)), axis=0)


def label(values, kind="continuous"):
    values = np.asarray(values)
    return make_label("y", values[:, None] if values.ndim == 1 else values, LabelSpec(kind))


# Ridge regressions


def rows_to_train_on(fold, n):
    keep = np.ones(n, dtype=bool)
    keep[fold.test] = keep[fold.purged] = False
    return np.flatnonzero(keep)


@pytest.mark.parametrize("reach", [0, 7])
def test_every_shift_has_the_errors_of_a_decoder_of_its_own(reach):
    n, times = 400, np.arange(400)
    x = autoregressive(n, 6, 0.9, 0).astype(np.float32) + 0.3
    y = (x[:, :2] + autoregressive(n, 2, 0.9, 1)).astype(np.float32)
    shifts = [0, 31, 200]
    folds = make_folds(times, reach)
    targets = np.concatenate([np.roll(y, s, axis=0) for s in shifts], axis=1)
    errors = held_out_errors(x, targets, folds)
    for i, ridge in enumerate(RIDGES):
        for j, shift in enumerate(shifts):
            expected, target = np.zeros(2), np.roll(y, shift, axis=0).astype(float)
            for fold in folds:
                train = rows_to_train_on(fold, n)
                fit = Ridge(alpha=ridge * len(train)).fit(x[train].astype(float), target[train])
                missed = fit.predict(x[fold.test]) - target[fold.test]
                expected += np.square(missed).sum(axis=0)
                if shift == 0:
                    found = held_out_predictions(x, y, folds, ridge)[fold.test]
                    np.testing.assert_allclose(
                        found, fit.predict(x[fold.test]), rtol=1e-3, atol=1e-4
                    )
            np.testing.assert_allclose(errors[i, 2 * j : 2 * j + 2], expected, rtol=1e-4)


def test_the_whole_decoding_is_that_of_a_dense_reference():
    """R^2, nulls and p-value, computed shift by shift with scikit-learn."""
    rec = Recording(autoregressive(400, 5, 0.8, 0))
    y = rec.neural[:, :1] + 0.5 * autoregressive(400, 1, 0.9, 1)
    found = decode(rec, label(y), n_shifts=5, seed=3)
    rng = np.random.default_rng(3)
    times = np.arange(400)
    shifts = [0, *_shifts(400, 5, rng)]
    y = y - y.mean()
    drift = _drift_basis(400).astype(float)
    plain, without = -np.inf, np.full(6, -np.inf)
    for width, make_features in _features(rec, times, 1, rng):
        folds = make_folds(times, width - 1)
        features = make_features().astype(float)
        clean = features - drift @ (drift.T @ features)
        for ridge in RIDGES:
            plain = max(plain, dense_r2(features, y, folds, ridge))
            for j, shift in enumerate(shifts):
                moved = np.roll(y, shift, axis=0)
                moved = moved - drift @ (drift.T @ moved)
                without[j] = max(without[j], dense_r2(clean, moved, folds, ridge))
    assert found.r2 == pytest.approx(plain, abs=1e-4)
    assert found.r2_without_drift == pytest.approx(without[0], abs=1e-4)
    np.testing.assert_allclose(found.nulls, without[1:], atol=1e-4)
    assert found.p_value == (1 + sum(without[1:] >= without[0])) / 6


def dense_r2(x, y, folds, ridge):
    missed = np.empty_like(y)
    for fold in folds:
        train = rows_to_train_on(fold, len(x))
        fit = Ridge(alpha=ridge * len(train)).fit(x[train], y[train])
        missed[fold.test] = y[fold.test] - fit.predict(x[fold.test]).reshape(-1, y.shape[1])
    return 1 - np.square(missed).sum() / np.square(y - y.mean(axis=0)).sum()


def test_folds_test_every_sample_once_and_train_on_none_that_is_near():
    times = np.sort(np.random.default_rng(0).choice(2_000, 1_000, replace=False))
    folds = make_folds(times, 10)
    tested = np.concatenate([fold.test for fold in folds])
    assert np.array_equal(np.sort(tested), np.arange(1_000))
    for fold in folds:
        train = rows_to_train_on(fold, 1_000)
        assert np.abs(times[train][:, None] - times[fold.test]).min() > 10
        assert len(train) > 600


# Features


def test_smoothing_is_the_mean_inside_the_epoch_however_the_rows_are_read(monkeypatch):
    rng = np.random.default_rng(0)
    rec = Recording(rng.standard_normal((100, 3)), epochs=[(0, 30), (30, 37), (50, 100)])
    times = rec.epochs.indices()[::2]
    projection = rng.standard_normal((3, 2)).astype(np.float32)
    expected = []
    for t in times:
        start, stop = next((a, b) for a, b in rec.epochs.pairs() if a <= t < b)
        around = rec.neural[max(start, t - 4) : min(stop, t + 5)]
        expected.append(around.mean(axis=0) @ projection)
    for at_once in (16_384, 7):
        monkeypatch.setattr("xcebra.statistics.label_decoding._ROWS_AT_ONCE", at_once)
        none, nine = _smoothed(rec, times, [1, 9], projection)
        np.testing.assert_allclose(nine, expected, atol=1e-5)
        np.testing.assert_allclose(none, rec.neural[times] @ projection, atol=1e-5)


def test_more_neurons_than_samples_and_silent_neurons_are_no_problem():
    x = np.zeros((250, 400))
    x[:, 5:] = autoregressive(250, 395, 0.5, 0)
    assert decode(Recording(x), label(x[:, 10:60].sum(axis=1)), n_shifts=19).r2 > 0.2
    assert decode(Recording(np.zeros((250, 4))), label(x[:, 10])) is None


def test_drift_is_taken_out_and_nothing_else():
    n = 1_000
    drift = _drift_basis(n)
    np.testing.assert_allclose(drift.T @ drift, np.eye(drift.shape[1]), atol=1e-5)
    slow = np.cos(np.pi * 4 * (np.arange(n) + 0.5) / n)[:, None].astype(np.float32)
    fast = np.cos(np.pi * 40 * (np.arange(n) + 0.5) / n)[:, None].astype(np.float32)
    np.testing.assert_allclose(_without(slow + fast, drift), fast, atol=1e-4)


# Labels that are there


def test_a_label_that_is_a_neuron_is_read_without_error():
    rec = Recording(autoregressive(2_000, 5, 0.5, 0))
    found = decode(rec, label(rec.neural[:, 2]))
    assert found.r2 > 0.99
    assert found.width == 1
    assert found.p_value == SMALLEST
    assert len(found.nulls) == N_SHIFTS
    assert found.error < 0.05 * found.chance_error
    deviation = np.abs(rec.neural[:, 2] - rec.neural[:, 2].mean())
    assert found.chance_error == pytest.approx(np.median(deviation), rel=1e-5)


def test_r2_is_the_share_of_the_signal():
    """A label that is two parts of three a neuron, and noise for the rest."""
    x, noise = autoregressive(10_000, 4, 0.5, 0), np.random.default_rng(1).standard_normal(10_000)
    y = np.sqrt(2 / 3) * x[:, 0] + np.sqrt(1 / 3) * noise
    assert decode(Recording(x), label(y), n_shifts=9).r2 == pytest.approx(2 / 3, abs=0.03)


def test_noise_of_single_samples_is_smoothed_away():
    slow = autoregressive(4_000, 1, 0.99, 0)
    x = slow + 3 * np.random.default_rng(1).standard_normal((4_000, 4))
    found = decode(Recording(x), label(slow))
    assert found.width > 5
    assert found.r2 > 0.6
    assert found.p_value == SMALLEST


def test_a_nonlinear_label_is_found():
    """Its correlation with every neuron is zero."""
    x = autoregressive(5_000, 3, 0.9, 0)
    found = decode(Recording(x), label(np.square(x[:, 0])))
    assert found.r2 > 0.5
    assert found.p_value == SMALLEST


def test_angles_are_read_in_degrees():
    angle = 3 * autoregressive(4_000, 1, 0.99, 0)[:, 0]
    angle = np.angle(np.exp(1j * angle))
    preferred = np.linspace(-np.pi, np.pi, 9)[:-1]
    x = np.exp(2 * np.cos(angle[:, None] - preferred))
    found = decode(Recording(x), label(angle, "circular"))
    assert found.unit == "degrees"
    assert found.error < 3
    assert 80 < found.chance_error < 100
    assert found.in_words.startswith("R^2 1.00, median error ")
    assert " degrees, chance 9" in found.in_words or " degrees, chance 8" in found.in_words


def test_classes_are_read_as_balanced_accuracy():
    rng = np.random.default_rng(0)
    z = autoregressive(4_000, 1, 0.95, 0)[:, 0]
    codes = np.digitize(z, [1.0, 1.5])  # most samples are of one class
    x = z[:, None] + 0.1 * rng.standard_normal((4_000, 3))
    found = decode(Recording(x), label(codes, "discrete"))
    assert found.error is None
    assert found.unit == "balanced accuracy"
    assert found.accuracy > 0.8
    assert found.chance_accuracy == pytest.approx(1 / 3)
    assert found.p_value == SMALLEST
    assert "chance 33%" in found.in_words


def test_missing_samples_and_gaps_between_epochs_take_no_part():
    x = autoregressive(3_000, 3, 0.8, 0)
    y = x[:, :1].copy()
    spoiled = x.copy()
    spoiled[1_000:2_000] = 1e6
    y[2_500:2_700] = np.nan
    rec = Recording(spoiled, epochs=[(0, 1_000), (2_000, 3_000)])
    found = decode(rec, label(y))
    assert found.r2 > 0.99
    assert found.p_value == SMALLEST


def test_the_window_of_the_fit_is_one_more_width():
    slow = autoregressive(4_000, 1, 0.9, 0)
    x = slow + 2 * np.random.default_rng(1).standard_normal((4_000, 2))
    assert decode(Recording(x), label(slow), window=9, n_shifts=9).width == 9


def test_the_same_seed_gives_the_same_numbers():
    rec, y = Recording(autoregressive(500, 3, 0.8, 0)), label(autoregressive(500, 1, 0.8, 1))
    assert decode(rec, y, seed=2) == decode(rec, y, seed=2)
    assert decode(rec, y, seed=2).nulls != decode(rec, y, seed=3).nulls


# Labels that are not


@pytest.mark.parametrize("rho", [0.9, 0.99, 0.999])
def test_slow_unrelated_labels_are_refused(rho):
    """At a level of 0.01, three or more false alarms in 20 have a chance of 0.001."""
    p = [
        decode(
            Recording(autoregressive(1_000, 8, rho, s)),
            label(autoregressive(1_000, 1, rho, 1_000 + s)),
            seed=s,
        ).p_value
        for s in range(20)
    ]
    assert sum(each <= 0.01 for each in p) <= 2
    assert np.median(p) > 0.2


def test_unrelated_random_walks_are_refused():
    """They drift through the whole recording, which a decoder reads: R^2 alone would not do."""
    found = [
        decode(Recording(walk(1_000, 8, s)), label(walk(1_000, 1, 1_000 + s)), seed=s)
        for s in range(20)
    ]
    assert max(each.r2 for each in found) > 0.3
    assert sum(each.p_value <= 0.01 for each in found) <= 2


def test_what_cannot_be_judged_is_none():
    few = LEAST_SAMPLES - 1
    x = autoregressive(1_000, 3, 0.5, 0)
    assert decode(Recording(x[:few]), label(x[:few, 0])) is None
    constant = label(x[:, 0])
    constant.points[:] = 1.0
    assert decode(Recording(x), constant) is None
    # Nothing but drift: there is no shift to compare it with.
    assert decode(Recording(x), label(np.cos(np.pi * (np.arange(1_000) + 0.5) / 1_000))) is None


def test_words_mention_drift_where_it_matters():
    plain = Decoding(0.3, 0.005, 0.35, error=2.0, chance_error=5.0)
    assert plain.in_words == "R^2 0.30, median error 2, chance 5"
    drifting = Decoding(-0.07, 0.005, 0.28, error=2.0, chance_error=5.0)
    assert drifting.in_words == "R^2 0.28 without slow drift, 0 or less with it"
