"""Regression on smooth functions of other columns, against scikit-learn, and what it predicts."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter
from sklearn.linear_model import Ridge

from xcebra.statistics.held_out_time import N_FOLDS
from xcebra.statistics.smooth_regression import _RIDGE, SmoothRegression, share_predicted


def slow(width, seed, n, memory=0.9):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 200, width))
    return lfilter([math.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[200:]


def noise(width, seed, n):
    return np.random.default_rng(1000 + seed).standard_normal((n, width))


def test_the_regression_on_the_others_is_ridge_with_folds_held_out():
    x, others = noise(5, 5, 600), slow(2, 9, 600)
    fold = np.arange(600) * 20 // 600 % N_FOLDS
    regression = SmoothRegression(x, others, fold, np.random.default_rng(0))
    design = regression._design.astype(float)
    expected = np.empty_like(x)
    for k in range(N_FOLDS):
        train, test = fold != k, fold == k
        ridge = Ridge(alpha=_RIDGE * train.sum()).fit(design[train], x[train])
        expected[test] = ridge.predict(design[test])
    predicted = regression.predictions()
    np.testing.assert_allclose(predicted, expected, atol=2e-4)
    np.testing.assert_allclose(regression.errors(), np.square(x - predicted), atol=1e-5)


def test_without_others_nothing_is_explained_by_them():
    x = noise(2, 6, 600)
    regression = SmoothRegression(
        x, np.empty((600, 0)), np.arange(600) % N_FOLDS, np.random.default_rng(0)
    )
    found = regression.errors()
    for k in range(N_FOLDS):
        held = np.arange(600) % N_FOLDS == k
        np.testing.assert_allclose(
            found[held], np.square(x[held] - x[~held].mean(axis=0)), atol=1e-5
        )


def test_what_a_smooth_function_tells_is_told_and_noise_is_not():
    rng = np.random.default_rng(0)
    source = np.sin(np.cumsum(0.1 * rng.standard_normal((4000, 1)), axis=0))
    bent = np.exp(source) / np.exp(source).std()
    assert share_predicted(bent, source) > 0.99
    assert share_predicted(bent + rng.standard_normal((4000, 1)), source) == pytest.approx(
        0.5, abs=0.05
    )
    assert share_predicted(rng.standard_normal((4000, 2)), source) < 0.02
