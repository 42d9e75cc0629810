"""Rate maps and spatial information: known values in closed form."""

import numpy as np
import pytest
from boxes import UNIT, as_maps, centres, visits

from xcebra.statistics.rate_maps import rate_maps, spatial_information

SAMPLES = np.ones((4, 2))
CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def test_without_smoothing_a_map_is_the_function_at_the_bin_centres():
    where = visits(times=3)
    functions = [where[:, 0], where[:, 1] ** 2, np.sin(9 * where).sum(axis=1)]
    maps = rate_maps(np.stack(functions, axis=1), where, bin_size=0.025, smooth=0, extent=UNIT)
    at = centres()
    expected = [at[..., 0], at[..., 1] ** 2, np.sin(9 * at).sum(axis=-1)]
    np.testing.assert_allclose(maps.rates, expected, atol=1e-12)
    assert (maps.occupancy == 3).all()
    for edges in maps.edges:
        np.testing.assert_allclose(edges, np.linspace(0, 1, 41))


@pytest.mark.parametrize("smooth", [0, 0.05, 0.3])
def test_an_uneven_path_does_not_bias_rates(smooth):
    """Many samples in one corner, few elsewhere."""
    rng = np.random.default_rng(0)
    where = np.concatenate([rng.beta(1, 4, size=(5000, 2)), visits(20)])
    level = np.floor(2 * where[:, 0]).clip(max=1)
    activity = np.stack([np.full(len(where), 7.0), level], axis=1)
    maps = rate_maps(activity, where, bin_size=0.05, smooth=smooth, extent=UNIT)
    assert np.ptp(maps.occupancy) > 100
    np.testing.assert_allclose(maps.rates[0], 7, rtol=1e-12)
    if smooth == 0:
        np.testing.assert_allclose(maps.rates[1], np.repeat([0, 1], 10)[:, None] * np.ones(20))
    assert spatial_information(maps)[0] == pytest.approx(0, abs=1e-12)


def test_smoothing_averages_samples_by_their_distance():
    """By hand: each bin's mean over all samples, weighted by a Gaussian of the distance."""
    rng = np.random.default_rng(1)
    where, activity = rng.uniform(size=(200, 2)), rng.poisson(2, size=(200, 3)).astype(float)
    maps = rate_maps(activity, where, bin_size=0.1, smooth=0.12, extent=UNIT)
    bins = np.floor(where * 10)
    at = np.stack(np.meshgrid(np.arange(10), np.arange(10), indexing="ij"), axis=-1)
    away = np.square(at[:, :, None] - bins).sum(axis=-1)
    weight = np.exp(-away / (2 * 1.2**2))
    expected = np.moveaxis(weight @ activity / weight.sum(axis=2)[..., None], 2, 0)
    visited = maps.occupancy > 0
    assert not visited.all()
    np.testing.assert_allclose(maps.rates[:, visited], expected[:, visited], rtol=1e-3)
    assert np.isnan(maps.rates[:, ~visited]).all()


def test_bins_that_are_not_visited_drag_nothing_down():
    where = visits()
    where = where[np.abs(where - 0.5).max(axis=1) > 0.2]
    maps = rate_maps(np.ones((len(where), 1)), where, extent=UNIT)
    hole = np.abs(centres() - 0.5).max(axis=-1) < 0.2
    assert np.isnan(maps.rates[0, hole]).all()
    np.testing.assert_allclose(maps.rates[0, ~hole], 1, rtol=1e-12)


def test_defaults_grow_with_the_box_and_nothing_depends_on_the_unit():
    rng = np.random.default_rng(0)
    where, activity = rng.uniform(size=(4000, 2)), rng.poisson(1.0, size=(4000, 5))
    metres = rate_maps(activity, where, extent=UNIT)
    assert metres.rates.shape == (5, 40, 40)
    given = rate_maps(activity, where, bin_size=0.025, smooth=0.05, extent=UNIT)
    np.testing.assert_array_equal(metres.rates, given.rates)
    for scale, move in ((128, 0), (1 / 64, 0), (1, -4)):
        other = rate_maps(
            activity, scale * where + move, extent=((move, scale + move), (move, scale + move))
        )
        np.testing.assert_allclose(other.rates, metres.rates, rtol=1e-6)
        np.testing.assert_allclose(other.edges[0], scale * metres.edges[0] + move, atol=1e-9)
    # Without an extent the box is where the animal was.
    assert rate_maps(activity, 100 * where).rates.shape == (5, 40, 40)
    oblong = rate_maps(activity, where * [3, 1.5])
    assert oblong.rates.shape == (5, 40, 20)


def test_samples_outside_the_extent_and_bins_visited_too_briefly_are_left_out():
    where = np.array([[0.5, 0.5]] * 3 + [[1.5, 0.5], [2.5, 0.5], [0.5, 1.0]])
    activity = np.array([[1.0], [2], [3], [4], [100], [6]])
    options = {"bin_size": 1, "smooth": 0, "extent": ((0, 2), (0, 1))}
    maps = rate_maps(activity, where, **options)
    # A sample on the wall is inside.
    np.testing.assert_allclose(maps.rates, [[[3.0], [4.0]]])
    np.testing.assert_array_equal(maps.occupancy, [[4], [1]])
    brief = rate_maps(activity, where, **options, least_time=2)
    np.testing.assert_allclose(brief.rates, [[[3.0], [np.nan]]])
    # Between two bins, the higher one counts.
    between = rate_maps([[1.0], [1.0], [1.0]], [[0, 0.5], [1, 0.5], [2, 0.5]], **options)
    np.testing.assert_array_equal(between.occupancy, [[1], [2]])


@pytest.mark.parametrize(
    ("activity", "position", "options", "words"),
    [
        (np.ones(4), CORNERS, {}, r"activity.*\(4,\).*activity\[:, None\]"),
        (np.ones((4, 0)), CORNERS, {}, r"activity.*n_neurons.*\(4, 0\)"),
        (SAMPLES * np.nan, CORNERS, {}, "activity must be finite, got 8.*position to NaN"),
        (SAMPLES[:3], CORNERS, {}, "position has 4 samples, but activity has 3"),
        (SAMPLES, CORNERS[:, 0], {}, r"position must have shape \(n_times, 2\), got \(4,\)"),
        (SAMPLES, CORNERS * np.nan, {}, "position is NaN in all 4"),
        (SAMPLES, np.where(CORNERS > 0, np.inf, 0), {}, "position.*inf.*NaN"),
        (SAMPLES, CORNERS * 0, {}, r"position is \[0.0, 0.0\] in all samples.*must vary"),
        (SAMPLES, CORNERS, {"bin_size": 0}, "bin_size.*above 0, got 0"),
        (SAMPLES, CORNERS, {"bin_size": 1e-3}, "bin_size 0.001 makes 1000 bins.*at most 500.*unit"),
        (SAMPLES, CORNERS, {"smooth": -1}, "smooth.*0 or more, got -1"),
        (SAMPLES, CORNERS, {"least_time": 0}, "least_time.*1 or more, got 0"),
        (SAMPLES, CORNERS, {"least_time": 2}, "least_time 2 is more than the 1 .*lower it"),
        (SAMPLES, CORNERS, {"extent": (0, 1)}, r"extent must be .*x_min.*got \(0, 1\)"),
        (SAMPLES, CORNERS, {"extent": ((0, 1), (1, 1))}, "extent.*each min below its max"),
        (SAMPLES, CORNERS, {"extent": ((5, 6), (5, 6))}, "extent.*none of the 4.*same unit"),
    ],
)
def test_what_makes_no_map_is_refused(activity, position, options, words):
    with pytest.raises(ValueError, match=words):
        rate_maps(activity, position, **options)


# Spatial information


@pytest.mark.parametrize("smallest", [1, 4, 10, 39])
def test_firing_in_a_share_of_the_box_tells_its_logarithm(smallest):
    where = visits()
    activity = np.where(where[:, :1] < smallest / 40, 5.0, 0.0)
    maps = rate_maps(activity, where, smooth=0, extent=UNIT)
    assert spatial_information(maps)[0] == pytest.approx(np.log2(40 / smallest))


def test_information_counts_the_time_spent_not_the_bins():
    """Fires in one of two bins, in which the animal spends a tenth of its time."""
    where = np.repeat([[0.5, 0.5], [1.5, 0.5]], [10, 90], axis=0)
    activity = (where[:, :1] < 1).astype(float)
    maps = rate_maps(activity, where, bin_size=1, smooth=0, extent=((0, 2), (0, 1)))
    assert spatial_information(maps)[0] == pytest.approx(np.log2(10))


def test_information_of_uniform_and_silent_neurons_is_none_and_scale_does_not_matter():
    rng = np.random.default_rng(0)
    rates = rng.exponential(size=(4, 40, 40))
    rates[:2] = [[[3.0]], [[0.0]]]
    rates[:, :5, :7] = np.nan
    found = spatial_information(as_maps(rates))
    np.testing.assert_allclose(found[:2], 0, atol=1e-12)
    # The mean of r log r of an exponential is 1 - Euler's constant.
    np.testing.assert_allclose(found[2:], (1 - np.euler_gamma) / np.log(2), rtol=0.1)
    np.testing.assert_allclose(spatial_information(as_maps(1000 * rates)), found, atol=1e-12)
