"""Autocorrelograms and grid scores: against loops and turned pictures, and of known grids."""

import numpy as np
import pytest
from boxes import UNIT, as_maps, centres, visits
from scipy import ndimage

from xcebra.statistics.grid_score import autocorrelogram, grid_score
from xcebra.statistics.rate_maps import rate_maps

HEXAGON, SQUARE, STRIPES = np.deg2rad([0, 60, 120]), np.deg2rad([0, 90]), np.array([0.0])


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
