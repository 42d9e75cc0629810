"""What a block adds beyond the others: against regressions in double precision."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter
from sklearn.linear_model import Ridge

from xcebra.statistics.block_gains import (
    _ROUGH_RIDGE,
    BlockFunctions,
    Gains,
    _HeldOutRidge,
    group_gains,
)
from xcebra.statistics.held_out_time import N_FOLDS, folds, stretches
from xcebra.statistics.smooth_regression import SmoothRegression, standardised

N = 4000


def slow(width, seed, n=N, memory=0.9):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 200, width))
    return lfilter([math.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[200:]


def noise(width, seed, n=N):
    return np.random.default_rng(1000 + seed).standard_normal((n, width))


def test_gains_are_those_of_ridge_regressions_with_folds_held_out():
    """Every sum of squares again, row by row, in double precision."""
    n = 611  # stretches of 30 and 31
    design, roughness = slow(7, 20, n).astype(np.float32), np.geomspace(1, 100, 7)
    x = (slow(3, 21, n) + design[:, :3]).astype(np.float32)
    stretch = np.arange(n) * 20 // n
    found = _HeldOutRidge(design, roughness, stretch).gains(x)
    design, x = design.astype(float), x.astype(float)
    expected = np.empty((20, 3))
    for k in range(N_FOLDS):
        train = stretch % N_FOLDS != k
        penalty = np.diag(_ROUGH_RIDGE * train.sum() * roughness)
        weights = np.linalg.solve(
            design[train].T @ design[train] + penalty, design[train].T @ x[train]
        )
        for i in range(k, 20, N_FOLDS):
            own = stretch == i
            missed = x[own] - design[own] @ weights
            expected[i] = np.square(x[own]).sum(axis=0) - np.square(missed).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    # The same by scikit-learn: columns scaled so that one penalty serves all.
    train, own = stretch % N_FOLDS != 1, stretch == 5
    scaled = design / np.sqrt(roughness)
    ridge = Ridge(alpha=_ROUGH_RIDGE * train.sum(), fit_intercept=False)
    missed = x[own] - ridge.fit(scaled[train], x[train]).predict(scaled[own])
    np.testing.assert_allclose(
        found[5], np.square(x[own]).sum(axis=0) - np.square(missed).sum(axis=0), rtol=1e-4
    )


def test_functions_of_a_block_are_uncorrelated_and_ordered_by_how_rough_they_are():
    block, others = slow(1, 22), slow(3, 23)
    functions, roughness = BlockFunctions.of(block, "continuous", 0).with_products(others)
    n_main = functions.shape[1] - 6 * 3
    main = functions[:, :n_main].astype(float)
    np.testing.assert_allclose(main.T @ main / N, np.eye(n_main), atol=1e-3)
    np.testing.assert_allclose(functions.mean(axis=0), 0, atol=1e-5)
    assert (np.diff(roughness[:n_main]) >= 0).all()
    assert roughness[0] == 1
    # Products of the smoothest with the others, each as rough as its function.
    product = main[:, 2] * others[:, 1]
    np.testing.assert_allclose(
        functions[:, n_main + 2 * 3 + 1], product - product.mean(), atol=1e-4
    )
    np.testing.assert_allclose(roughness[n_main:], np.repeat(roughness[:6], 3))


def test_every_shift_is_fitted_anew_and_groups_make_no_difference():
    x, b, o = noise(6, 26, 1000) + slow(1, 27, 1000), slow(1, 28, 1000), slow(1, 29, 1000)
    together = group_gains(x, b, o, n_shifts=12)
    assert together.nulls.shape == (12, 6)
    parts = [group_gains(x[:, own], b, o, n_shifts=12) for own in ([4, 0], [1, 5], [2, 3])]
    joined = Gains.together(parts, np.argsort([4, 0, 1, 5, 2, 3]))
    for field in ("by_stretch", "nulls", "leaked", "left", "total"):
        np.testing.assert_allclose(
            getattr(joined, field), getattr(together, field), rtol=1e-3, atol=1e-3
        )
    # Each null is the gain of the remainder moved: none of them is a gain at its own place.
    assert (together.nulls.std(axis=0) > 0).all()
    assert together.total.sum(axis=0) == pytest.approx(np.full(6, 1000.0))


def test_a_prediction_that_is_worse_than_the_mean_is_not_used():
    """Neurons with a few bursts and slow others: the others overfit, and would leave more than all.

    The error of such a prediction is a function of the others, and the block seemed to explain it.
    """
    rng = np.random.default_rng(5)
    n = 1500
    others = np.cumsum(rng.standard_normal((n, 3)), axis=0)
    bursts = np.zeros((n, 8))
    for neuron in range(8):
        start = rng.integers(n - 20)
        bursts[start : start + 20, neuron] = rng.poisson(2.0, 20)
    angle = np.cumsum(rng.standard_normal(n)) / 3
    block = np.column_stack([np.cos(angle), np.sin(angle)])
    overfitted = SmoothRegression(
        standardised(bursts), standardised(others), folds(n), np.random.default_rng(0)
    ).errors()
    assert (overfitted.sum(axis=0) > n).any()  # otherwise this test would prove nothing
    gains = group_gains(bursts, block, others, "circular", clear=False, n_shifts=20)
    total = gains.total.sum(axis=0)
    assert (gains.left <= total * (1 + 1e-9)).all()
    assert (gains.by_stretch.sum(axis=0) < 0.2 * total).all()


def test_gains_after_shifts_are_those_of_shifted_neurons():
    """The shared products of all shifts, against one regression for each shift."""
    rng = np.random.default_rng(0)
    n = 1237
    block, others = rng.standard_normal((n, 2)), rng.standard_normal((n, 3))
    x = rng.standard_normal((n, 5)).astype(np.float32)
    functions = BlockFunctions.of(block, "continuous", 0).with_products(others)
    ridge = _HeldOutRidge(*functions, stretches(n))
    shifts = np.array([1, 77, 600, n - 1])
    shared = ridge.shifted_gains(x, shifts)
    for shift, gain in zip(shifts, shared, strict=True):
        alone = ridge.gains(np.roll(x, shift, axis=0)).sum(axis=0)
        np.testing.assert_allclose(gain, alone, rtol=1e-4, atol=1e-3)
