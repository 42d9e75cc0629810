"""Scores of navigation cells: known values in closed form, and a simulated rat."""

import numpy as np
import pytest
from scipy import ndimage
from scipy.special import iv

from xcebra.datasets import navigation
from xcebra.statistics.tuning_scores import (
    RateMaps,
    autocorrelogram,
    grid_score,
    head_direction_curves,
    mean_vector_length,
    rate_maps,
    spatial_information,
    speed_score,
)

UNIT = ((0, 1), (0, 1))
HEXAGON, SQUARE, STRIPES = np.deg2rad([0, 60, 120]), np.deg2rad([0, 90]), np.array([0.0])


def centres(n_x=40, n_y=None):
    """Positions of bin centres in bins of 1 / n_x, shape (n_x, n_y, 2)."""
    axes = [(np.arange(n) + 0.5) / n_x for n in (n_x, n_y or n_x)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def visits(n_x=40, times=1):
    """Positions that visit every bin equally often."""
    return np.repeat(centres(n_x).reshape(-1, 2), times, axis=0)


def as_maps(rates):
    """Rate maps of a box that is visited everywhere alike, one metre along x."""
    rates = np.asarray(rates, dtype=float)
    n_x, n_y = rates.shape[1:]
    return RateMaps(
        rates, np.ones((n_x, n_y)), (np.arange(n_x + 1) / n_x, np.arange(n_y + 1) / n_x)
    )


def waves(angles, spacing, turn=0.0, phase=(0.0, 0.0), where=None):
    """Rectified sum of plane waves; three of them make a hexagonal grid with this spacing."""
    where = (centres() if where is None else where) - np.asarray(phase)
    length = spacing * np.sqrt(3) / 2 if len(angles) == 3 else spacing
    ahead = [where @ [np.cos(turn + a), np.sin(turn + a)] for a in angles]
    return np.maximum(np.mean(np.cos(2 * np.pi / length * np.array(ahead)), axis=0), 0)


def many(angles, spacing, n=12, where=None):
    """Such maps at random orientations and phases."""
    rng = np.random.default_rng(0)
    return [waves(angles, spacing, *_any(rng), where=where) for _ in range(n)]


def _any(rng):
    return rng.uniform(0, np.pi), rng.uniform(0, 1, size=2)


def field(centre, width):
    return np.exp(-np.square(centres() - centre).sum(axis=-1) / (2 * width**2))


# Rate maps


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


# Autocorrelogram


def by_loops(rate_map, least):
    n_x, n_y = rate_map.shape
    found = np.full((2 * n_x - 1, 2 * n_y - 1), np.nan)
    for i in range(1 - n_x, n_x):
        for j in range(1 - n_y, n_y):
            pairs = [
                (rate_map[x, y], rate_map[x - i, y - j])
                for x in range(max(0, i), min(n_x, n_x + i))
                for y in range(max(0, j), min(n_y, n_y + j))
            ]
            pairs = np.array([pair for pair in pairs if not np.isnan(pair).any()])
            if len(pairs) >= least:
                varies = np.ptp(pairs, axis=0).all()
                found[i + n_x - 1, j + n_y - 1] = np.corrcoef(pairs.T)[0, 1] if varies else 0
    return found


@pytest.mark.parametrize("shape", [(9, 9), (8, 11), (1, 30)])
@pytest.mark.parametrize("holes", [0.0, 0.3])
@pytest.mark.parametrize("silent", [False, True])
def test_autocorrelogram_equals_loops_over_bins(shape, holes, silent):
    rng = np.random.default_rng(0)
    rate_map = 50 + rng.poisson(3, size=shape).astype(float)
    rate_map[rng.uniform(size=shape) < holes] = np.nan
    if silent:
        rate_map[:, shape[1] // 2 :] = 0
    for least in (2, 12):
        found = autocorrelogram(rate_map, least)
        np.testing.assert_allclose(found, by_loops(rate_map, least), atol=1e-7)
    assert np.isnan(autocorrelogram(rate_map)).any()


def test_autocorrelogram_is_one_in_the_middle_and_symmetric():
    rng = np.random.default_rng(0)
    rate_map = rng.exponential(size=(20, 14))
    rate_map[rng.uniform(size=rate_map.shape) < 0.2] = np.nan
    found = autocorrelogram(rate_map)
    assert found.shape == (39, 27)
    assert found[19, 13] == pytest.approx(1)
    np.testing.assert_allclose(found, found[::-1, ::-1], atol=1e-9)
    np.testing.assert_allclose(autocorrelogram(5 - 3 * rate_map), found, atol=1e-9)
    stack = autocorrelogram(np.stack([rate_map, rate_map**2]))
    np.testing.assert_allclose(stack[0], found, atol=1e-12)
    assert (autocorrelogram(np.full((9, 9), 0.1), 2)[8, 1:-1] == 0).all()


# Grid score


@pytest.mark.parametrize("spacing", [0.2, 0.3, 0.4, 0.5, 0.6])
def test_hexagonal_grids_score_above_one_at_any_orientation_and_phase(spacing):
    scores = grid_score(as_maps(many(HEXAGON, spacing)))
    assert scores.min() > 1.25
    assert scores.max() < 1.6


@pytest.mark.parametrize("spacing", [0.2, 0.3, 0.4, 0.5, 0.6])
@pytest.mark.parametrize(("angles", "limit"), [(SQUARE, -0.7), (STRIPES, 0.3)])
def test_square_grids_and_stripes_do_not(spacing, angles, limit):
    assert grid_score(as_maps(many(angles, spacing))).max() < limit


@pytest.mark.parametrize("width", [0.05, 0.1, 0.15])
def test_single_fields_do_not(width):
    rng = np.random.default_rng(0)
    scores = grid_score(as_maps([field(rng.uniform(size=2), width) for _ in range(20)]))
    assert scores.max() < 0.2
    assert np.median(scores) <= 0


@pytest.mark.parametrize("width", [0, 1, 2, 3])
def test_noise_scores_about_zero(width):
    noise = np.random.default_rng(0).standard_normal((40, 40, 40))
    scores = grid_score(as_maps(ndimage.gaussian_filter(noise, (0, width, width))))
    assert abs(np.median(scores)) < 0.15
    assert np.quantile(scores, 0.9) < 0.6
    assert scores.max() < 1


def by_turning_pictures(rate_map):
    """The grid score as it is written, with five turned pictures."""
    picture = autocorrelogram(rate_map)
    radius = np.linalg.norm(np.indices(picture.shape).T - 39, axis=-1).T
    circle = np.round(radius)
    inner = next(r for r in range(1, 32) if np.nanmean(picture[circle == r]) < 0.2)
    known = ~np.isnan(picture)

    def turned(angle):
        images = (np.where(known, picture, 0), known.astype(float))
        return [ndimage.rotate(each, angle, reshape=False, order=1) for each in images]

    pictures = {angle: turned(angle) for angle in (30, 60, 90, 120, 150)}

    def score(outer):
        r = {}
        for angle, (values, weight) in pictures.items():
            ring = (radius >= inner) & (radius <= outer) & known & (weight > 0.5)
            r[angle] = np.corrcoef(picture[ring], values[ring] / weight[ring])[0, 1]
        return min(r[60], r[120]) - max(r[30], r[90], r[150])

    return max(score(outer) for outer in range(int(np.ceil(2.5 * inner)), 33))


def test_grid_score_agrees_with_that_of_turned_pictures():
    noise = np.random.default_rng(5).standard_normal((4, 40, 40))
    noise = ndimage.gaussian_filter(noise, (0, 2, 2))
    noise[:, :9, :9] = np.nan
    rates = np.concatenate([many(HEXAGON, 0.35, n=3), noise])
    expected = [by_turning_pictures(each) for each in rates]
    # Pictures are cut into rings by whole bins, and blurred by turning.
    np.testing.assert_allclose(grid_score(as_maps(rates)), expected, atol=0.08)


@pytest.mark.parametrize("shape", [(20, 20), (27, 27), (40, 24), (60, 60)])
def test_the_box_and_the_bins_hardly_matter(shape):
    where = centres(*shape)
    grids = many(HEXAGON, 0.3, where=where)
    assert grid_score(as_maps(grids)).min() > 1.25
    assert grid_score(as_maps(many(SQUARE, 0.3, where=where))).max() < -0.7
    middle = np.array(shape) / shape[0] / 2
    round_ = np.linalg.norm(where - middle, axis=-1) < middle.min()
    assert grid_score(as_maps([np.where(round_, each, np.nan) for each in grids])).min() > 1.25


def test_grid_score_survives_noise_and_holes():
    rng = np.random.default_rng(0)
    maps = np.array(many(HEXAGON, 0.35))
    maps = maps + rng.standard_normal(maps.shape) * maps.std()
    maps[:, rng.uniform(size=(40, 40)) < 0.3] = np.nan
    assert grid_score(as_maps(maps)).min() > 0.8


def test_grid_score_does_not_change_with_scale_and_offset():
    rng = np.random.default_rng(0)
    noise = ndimage.gaussian_filter(rng.standard_normal((4, 40, 40)), (0, 2, 2))
    rates = np.concatenate([many(HEXAGON, 0.3, n=2), many(SQUARE, 0.3, n=2), noise])
    found = grid_score(as_maps(rates))
    np.testing.assert_allclose(grid_score(as_maps(20 * rates + 3)), found, atol=1e-6)


def test_grid_score_hardly_changes_when_the_box_is_turned():
    rng = np.random.default_rng(0)
    noise = ndimage.gaussian_filter(rng.standard_normal((6, 40, 40)), (0, 2, 2))
    rates = np.concatenate([many(HEXAGON, 0.35, n=3), many(SQUARE, 0.35, n=3), noise])
    found = grid_score(as_maps(rates))
    for turned in (np.rot90(rates, axes=(1, 2)), rates[:, ::-1], rates.transpose(0, 2, 1)):
        np.testing.assert_allclose(grid_score(as_maps(turned)), found, atol=1e-6)
    # By any other angle, in a round box, as much as interpolation changes the map.
    round_ = np.linalg.norm(centres() - 0.5, axis=-1) < 0.48
    turned = ndimage.rotate(rates, 25, axes=(1, 2), reshape=False, order=3)
    before, after = (
        grid_score(as_maps(np.where(round_, each, np.nan))) for each in (rates, turned)
    )
    np.testing.assert_allclose(after, before, atol=0.1)


def test_grid_score_of_maps_that_do_not_vary_is_not_a_number():
    where = np.random.default_rng(0).uniform(size=(3000, 2))
    activity = np.full((3000, 2), [0.0, 0.1])
    # Smoothing leaves rounding errors, which are no variance.
    maps = rate_maps(activity, where, extent=UNIT)
    assert np.isnan(grid_score(maps)).all()


def test_grid_score_without_a_ring_is_not_a_number():
    x, y = np.moveaxis(centres(), 2, 0)
    band = np.where(np.abs(x - y) < 0.1, waves(HEXAGON, 0.3), np.nan)
    assert np.isnan(grid_score(as_maps([x, 2 * x + y, band]))).all()
    track = rate_maps(x.reshape(-1, 1), visits() * [1, 0], bin_size=0.025)
    assert track.rates.shape == (1, 39, 1)
    assert np.isnan(grid_score(track)).all()


def test_many_neurons_score_as_each_alone():
    rates = ndimage.gaussian_filter(
        np.random.default_rng(0).standard_normal((150, 12, 12)), (0, 1, 1)
    )
    found = grid_score(as_maps(rates))
    for i in (0, 63, 64, 149):
        np.testing.assert_allclose(grid_score(as_maps(rates[i : i + 1]))[0], found[i])


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


# All


def test_samples_that_are_not_known_are_left_out():
    rng = np.random.default_rng(0)
    n = 3000
    activity, where, angle = rng.poisson(1, size=(n, 3)), rng.uniform(size=(n, 2)), mostly_ahead(n)
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
CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


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


def test_a_circle_has_at_least_three_bins():
    with pytest.raises(ValueError, match=r"n_bins.*3 or more, got 2"):
        head_direction_curves(SAMPLES, np.zeros(4), n_bins=2)
