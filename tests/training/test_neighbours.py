"""Nearest neighbours: by tree and by matrix products, both exactly those of all distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from xcebra.training import neighbours as module
from xcebra.training.neighbours import neighbours

COLUMNS = (1, 2, module._MANY_COLUMNS - 1, module._MANY_COLUMNS, 25)


def reference(points, targets, k):
    distance = cdist(targets, points)
    place = np.argsort(distance, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distance, place, axis=1), place


@pytest.mark.parametrize("n_columns", COLUMNS)
@pytest.mark.parametrize("n_points", [1, 2, 63, 64, 65, 1000, 3001])
def test_the_nearest_are_those_of_all_distances(n_columns, n_points):
    rng = np.random.default_rng(n_points + n_columns)
    points = rng.normal(size=(n_points, n_columns))
    targets = rng.normal(size=(37, n_columns))
    found = neighbours(points)
    assert found.n == n_points
    for k in {1, min(2, n_points), min(70, n_points), n_points}:
        distance, place = found.query(targets, k)
        expected, where = reference(points, targets, k)
        np.testing.assert_allclose(distance, expected, rtol=1e-13)
        np.testing.assert_array_equal(place, where)


@pytest.mark.parametrize("n_columns", COLUMNS)
def test_no_target_has_no_neighbour(n_columns):
    distance, place = neighbours(np.zeros((5, n_columns))).query(np.empty((0, n_columns)), 2)
    assert distance.shape == place.shape == (0, 2)


def test_what_single_precision_cannot_tell_apart_is_told_apart():
    # A cluster far from the centre, narrower than its rounding: only double precision sees in it.
    rng = np.random.default_rng(0)
    cluster = 1000 + 1e-7 * rng.normal(size=(2000, 12))
    points = np.concatenate([-cluster, cluster])
    targets = cluster[:40] + 1e-8 * rng.normal(size=(40, 12))
    distance, place = neighbours(points).query(targets, 2)
    expected, where = reference(points, targets, 2)
    np.testing.assert_array_equal(place, where)
    np.testing.assert_allclose(distance, expected, rtol=1e-13)


def test_ties_across_groups_are_all_seen():
    # Corners of a cube, in any order: the twelve columns' neighbours of a corner are equally far.
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 12)).reshape(12, -1).T
    np.random.default_rng(0).shuffle(corners)
    target = corners[7:8]
    distance, place = neighbours(corners).query(target, 13)
    assert place[0, 0] == 7
    np.testing.assert_array_equal(distance[0], [0.0] + [1.0] * 12)
    assert set(place[0, 1:]) == set(np.flatnonzero((corners != target).sum(axis=1) == 1))


def test_rounding_is_bounded():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(640, 30)) * rng.uniform(0.1, 10, size=30) + 5
    blocks = module._Blocks(points)
    targets = 3 * rng.normal(size=(50, 30))
    centred = targets - blocks._centre
    lengths = np.linalg.norm(centred, axis=1)
    exact = (cdist(targets, points) ** 2 - lengths[:, None] ** 2) / 2
    least = exact.reshape(50, -1, module._GROUP).min(axis=2)
    group, outside = blocks._groups(targets, 4)
    rest = np.sort(least, axis=1)[:, 4]
    assert (np.abs(outside - rest) <= blocks._rounding(lengths)).all()
    assert (np.abs(outside - rest) > 0).any()
    assert group.shape == (50, 4)
