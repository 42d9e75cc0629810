"""All classical scores side by side: what they leave out and refuse, and a simulated rat."""

import numpy as np
import pytest
from boxes import UNIT, as_maps

from xcebra.datasets import navigation
from xcebra.statistics.tuning_scores import (
    RateMaps,
    autocorrelogram,
    grid_score,
    mean_vector_length,
    rate_maps,
    spatial_information,
    speed_score,
)


def test_samples_that_are_not_known_are_left_out():
    rng = np.random.default_rng(0)
    n = 3000
    activity, where, angle = (
        rng.poisson(1, size=(n, 3)),
        rng.uniform(size=(n, 2)),
        rng.vonmises(1.0, 1.2, size=n),
    )
    vector, speed = np.stack([np.cos(angle), np.sin(angle)], axis=1), rng.uniform(size=n)
    gone = rng.uniform(size=n) < 0.2
    for score, behaviour in [
        (lambda *given: rate_maps(*given, extent=UNIT).rates, where),
        (mean_vector_length, angle),
        (mean_vector_length, vector),
        (speed_score, speed),
    ]:
        holed = behaviour.copy()
        # One unknown column is enough.
        holed.reshape(n, -1)[gone, -1] = np.nan
        expected = score(activity[~gone], behaviour[~gone])
        np.testing.assert_array_equal(score(activity, holed), expected)


def test_a_simulated_rat_has_cells_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path))
    rec = navigation(seed=300, n_steps=6000, n_cells=10)
    # Differences of Gaussians are negative around the field.
    rates = np.maximum(rec.neural, 0)
    maps = rate_maps(rates, rec.labels["position"], extent=UNIT)

    def medians(scores):
        assert np.isfinite(scores).all()
        return np.median(scores.reshape(4, 10), axis=1)

    place, grid, head, speed = medians(grid_score(maps))
    assert grid > 1.2
    assert max(place, head, speed) < 0.2
    place, grid, head, speed = medians(spatial_information(maps))
    assert min(place, grid) > 0.5
    assert max(head, speed) < 0.1
    place, grid, head, speed = medians(mean_vector_length(rates, rec.labels["heading"]))
    assert head > 0.5
    assert max(place, grid, speed) < 0.2
    place, grid, head, speed = medians(speed_score(rates, rec.labels["speed"]))
    assert speed > 0.8
    assert max(place, grid, head) < 0.2


SAMPLES = np.ones((4, 2))
OBLONG = RateMaps(np.ones((1, 3, 3)), np.ones((3, 3)), (np.arange(4.0), 2 * np.arange(4.0)))


@pytest.mark.parametrize(
    ("score", "given", "words"),
    [
        (spatial_information, (as_maps(np.eye(3)[None] - 0.5),), "maps.*0 or more.*-0.5.*neuron 0"),
        (autocorrelogram, (np.ones(3),), r"rate_map.*\(n_x, n_y\), got \(3,\)"),
        (autocorrelogram, (np.full((3, 3), np.inf),), "rate_map.*inf.*NaN"),
        (autocorrelogram, (np.ones((3, 3)), 1), "least_overlap.*2 or more, got 1"),
        (grid_score, (OBLONG,), "square bins.*from 1 to 2.*rate_maps"),
        (
            mean_vector_length,
            (SAMPLES, np.ones((4, 3))),
            r"heading.*\(n_times,\) or \(n_times, 2\)",
        ),
        (mean_vector_length, (SAMPLES, np.zeros((4, 2))), "heading has no direction in 4.*NaN"),
        (mean_vector_length, (SAMPLES, np.zeros(4)), "heading leaves 354 degrees.*at most 180"),
        (mean_vector_length, (-SAMPLES, np.arange(4.0)), "activity.*0 or more, got -1.*centred"),
        (speed_score, (SAMPLES, np.ones((4, 2))), r"speed must have shape \(n_times,\), got"),
        (speed_score, (SAMPLES, np.ones(3)), "speed has 3 samples, but activity has 4"),
    ],
)
def test_what_cannot_be_scored_is_refused(score, given, words):
    with pytest.raises(ValueError, match=words):
        score(*given)
