"""The encoding model: held-out R^2 against cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from xcebra.data.labels import Label, LabelSpec, make_label
from xcebra.statistics import encoding_strength as module
from xcebra.statistics.encoding_strength import encoding_strength

N = 8_000


def _label(values: NDArray[np.float64], kind: str = "continuous") -> Label:
    columns = values if values.ndim == 2 else values[:, None]
    return make_label("label", columns, LabelSpec(kind=kind))


def _walk(rng: np.random.Generator, n: int = N, columns: int = 1) -> NDArray[np.float64]:
    """Moves within 0 and 1, and comes back everywhere many times."""
    steps = rng.normal(scale=0.05, size=(n, columns)).cumsum(axis=0)
    return np.abs((steps % 2.0) - 1.0)


def _with_noise(
    signal: NDArray[np.float64], share: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Add noise until the signal is this share of the variance."""
    scale = signal.std() * np.sqrt((1 - share) / share)
    return signal + rng.normal(scale=scale, size=signal.shape)


def _strength(activity: NDArray[np.float64], label: Label, **options: int) -> NDArray[np.float64]:
    return encoding_strength(activity, label, np.arange(len(activity)), **options)


def test_function_of_the_label_is_explained() -> None:
    rng = np.random.default_rng(0)
    one, two, three = _walk(rng), _walk(rng, columns=2), _walk(rng, columns=3)
    heading = rng.normal(scale=0.3, size=N).cumsum() % (2 * np.pi)
    cases = [
        (_label(one), np.sin(5 * one[:, 0])),
        (_label(two), np.exp(-np.square(two - 0.4).sum(axis=1) / (2 * 0.2**2))),
        (_label(three), np.sin(2 * three.sum(axis=1))),
        (_label(heading, "circular"), np.exp(2 * np.cos(heading - 1.0))),
    ]
    for label, signal in cases:
        assert _strength(signal[:, None], label)[0] > 0.97, label.points.shape


def test_independent_noise_is_not_explained() -> None:
    rng = np.random.default_rng(1)
    noise = rng.poisson(0.3, size=(N, 40)).astype(float)
    two, heading = _walk(rng, columns=2), rng.normal(scale=0.3, size=N).cumsum() % (2 * np.pi)
    for label in (_label(two), _label(two[:, :1]), _label(heading, "circular")):
        strength = _strength(noise, label)
        assert strength.max() <= 0.01
        assert np.abs(strength).mean() < 0.005


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_known_signal_to_noise_ratio(share: float) -> None:
    rng = np.random.default_rng(2)
    place = _walk(rng, 40_000)
    signal = np.repeat(np.exp(-0.5 * np.square((place - 0.5) / 0.1)), 10, axis=1)
    strength = _strength(_with_noise(signal, share, rng), _label(place))
    assert strength.mean() == pytest.approx(share, abs=0.005)


def test_angle_wraps() -> None:
    """A bump at the seam is one bump, wherever the angle is cut."""
    rng = np.random.default_rng(3)
    heading = rng.normal(scale=0.3, size=N).cumsum()
    activity = _with_noise(np.exp(3 * np.cos(heading)), 0.5, rng)[:, None]
    around_zero = _strength(activity, _label((heading + np.pi) % (2 * np.pi) - np.pi, "circular"))
    around_pi = _strength(activity, _label(heading % (2 * np.pi), "circular"))
    assert around_zero[0] == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(around_zero, around_pi, atol=1e-8)


def test_discrete_label_explains_differences_between_classes() -> None:
    rng = np.random.default_rng(4)
    classes = np.repeat(rng.integers(0, 3, size=N // 20), 20)
    means = np.array([0.0, 1.0, -1.0])[classes]
    activity = np.stack([_with_noise(means, 0.3, rng), rng.normal(size=N)], axis=1)
    strength = _strength(activity, _label(classes.astype(float), "discrete"))
    assert strength[0] == pytest.approx(0.3, abs=0.03)
    assert abs(strength[1]) < 0.005


def test_only_the_given_times_and_known_samples_count() -> None:
    rng = np.random.default_rng(5)
    place = _walk(rng)[:, 0]
    activity = np.sin(5 * place)
    activity[N // 2 :] = rng.normal(size=N // 2)
    first_half = np.arange(N // 2)
    assert encoding_strength(activity[:, None], _label(place), first_half)[0] > 0.97
    missing = place.copy()
    missing[N // 2 :] = np.nan
    assert _strength(activity[:, None], _label(missing))[0] > 0.97


def test_constant_neurons_and_negative_values() -> None:
    rng = np.random.default_rng(6)
    place = _walk(rng, 400)[:, 0]
    drifting = np.linspace(0, 1, 400) + rng.normal(scale=0.1, size=400)
    strength = _strength(np.stack([np.full(400, 3.1), drifting], axis=1), _label(place))
    assert strength[0] == 0.0
    assert np.isfinite(strength[1])
    assert strength[1] < 1.0


def test_scale_of_the_activity_does_not_matter() -> None:
    rng = np.random.default_rng(7)
    place = _walk(rng)
    activity = _with_noise(np.repeat(place, 3, axis=1), 0.2, rng)
    np.testing.assert_allclose(
        _strength(activity, _label(place)), _strength(1e3 * activity + 7, _label(100 * place))
    )


def test_outliers_of_the_label_do_not_hide_the_rest() -> None:
    rng = np.random.default_rng(8)
    place = _walk(rng)
    activity = _with_noise(np.exp(-0.5 * np.square((place - 0.5) / 0.1)), 0.5, rng)
    place[::1_000] = 1e4
    assert _strength(activity, _label(place))[0] > 0.45


def test_too_few_samples_are_refused() -> None:
    place = np.linspace(0, 1, 9)
    with pytest.raises(ValueError, match="times holds 9 samples"):
        _strength(place[:, None], _label(place))


def test_neurons_are_regressed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    label = _label(_walk(rng))
    activity = label.points @ rng.standard_normal((1, 7)) + rng.standard_normal((N, 7))
    whole = _strength(activity, label)
    monkeypatch.setattr(module, "_VALUES_AT_ONCE", 3 * N)
    np.testing.assert_allclose(_strength(activity, label), whole, rtol=1e-10)
