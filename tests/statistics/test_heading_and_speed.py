"""Tuning to heading and to speed: known values in closed form."""

import numpy as np
import pytest
from scipy.special import iv

from xcebra.statistics.heading_and_speed import (
    head_direction_curves,
    mean_vector_length,
    speed_score,
)

# Heading


def mostly_ahead(n=40_000, seed=0):
    """Headings of an animal that looks mostly in one direction."""
    return np.random.default_rng(seed).vonmises(1.0, 1.2, size=n)


@pytest.mark.parametrize("sharpness", [0.0, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("preferred", [0.0, 2.5])
def test_a_von_mises_curve_has_the_ratio_of_bessel_functions(sharpness, preferred):
    angle = mostly_ahead()
    assert np.abs(np.exp(1j * angle).mean()) > 0.5
    activity = np.exp(sharpness * np.cos(angle - preferred))[:, None]
    expected = iv(1, sharpness) / iv(0, sharpness)
    assert mean_vector_length(activity, angle)[0] == pytest.approx(expected, abs=0.004)
    even = np.linspace(0, 2 * np.pi, 60_000, endpoint=False)
    activity = np.exp(sharpness * np.cos(even - preferred))[:, None]
    assert mean_vector_length(activity, even)[0] == pytest.approx(expected, abs=5e-4)


def test_heading_may_be_an_angle_or_cosine_and_sine():
    rng = np.random.default_rng(0)
    angle = mostly_ahead(2000) + 2 * np.pi * rng.integers(-3, 3, size=2000)
    activity = rng.poisson(1, size=(2000, 4))
    found = mean_vector_length(activity, angle)
    vector = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for same in (vector, 7.5 * vector, angle[:, None]):
        np.testing.assert_allclose(mean_vector_length(activity, same), found, atol=1e-9)


def test_curves_are_means_over_equal_bins():
    angle = np.array([0.1, 0.2, 1.7, -0.1, -1e-20])
    curves = head_direction_curves([[1.0], [2], [5], [7], [9]], angle, n_bins=4)
    np.testing.assert_allclose(curves, [[(1 + 2 + 9) / 3, 5, np.nan, 7]])


def test_headings_not_taken_do_not_look_like_tuning():
    angle = np.linspace(0, 1.2 * np.pi, 5000)
    activity = np.stack([np.full(5000, 3.0), np.zeros(5000)], axis=1)
    np.testing.assert_allclose(mean_vector_length(activity, angle), 0, atol=1e-12)


def test_headings_not_taken_are_filled_in_around_the_circle():
    """Rates 2, 5, 4 in three quarters leave 3 for the first, between 4 and 2."""
    angle = np.deg2rad([135, 225, 315])
    found = mean_vector_length([[2.0], [5.0], [4.0]], angle, n_bins=4)
    # Opposite quarters differ by 3 - 5 and 2 - 4.
    assert found[0] == pytest.approx(np.sqrt(8) / 14)


def test_a_single_direction_has_length_one():
    angle = np.linspace(0, 2 * np.pi, 6000, endpoint=False)
    activity = ((angle > 1.26) & (angle < 1.35))[:, None]
    assert mean_vector_length(activity, angle)[0] == pytest.approx(1)


def test_a_circle_has_at_least_three_bins():
    with pytest.raises(ValueError, match=r"n_bins.*3 or more, got 2"):
        head_direction_curves(np.ones((4, 2)), np.zeros(4), n_bins=2)


# Speed


def test_the_speed_score_of_a_line_is_one():
    rng = np.random.default_rng(0)
    speed = rng.exponential(size=3000)
    noise = rng.standard_normal(3000)
    activity = np.stack([3 * speed + 1, 2 - speed, speed + noise, 0 * speed + 0.1], axis=1)
    found = speed_score(activity, speed)
    np.testing.assert_allclose(found[:2], [1, -1])
    assert found[2] == pytest.approx(np.corrcoef(activity[:, 2], speed)[0, 1])
    assert found[3] == 0
    np.testing.assert_allclose(speed_score(activity, speed[:, None]), found)
    assert (speed_score(activity, np.full(3000, 0.1)) == 0).all()
