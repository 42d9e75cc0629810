"""The part of a latent that labels predict: closed forms, and everything again in numpy."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from sklearn.linear_model import Ridge

from xcebra.networks import labels_part
from xcebra.networks.crossed_decoder import smooth_functions
from xcebra.networks.labels_part import fit_labels_part

N = 4000


def ar1(width, seed, n=N, memory=0.95):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 300, width))
    return lfilter([np.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[300:]


def functions_of(points, n_waves=100, seed=0):
    rng = np.random.default_rng(seed)
    width = points.shape[1]
    directions = rng.standard_normal((width, n_waves)) / (1.5 * np.sqrt(width))
    phases = rng.uniform(0, 2 * np.pi, size=n_waves)
    scaled = (points - points.mean(axis=0)) / points.std(axis=0)
    return smooth_functions(*(torch.from_numpy(each) for each in (scaled, directions, phases)))


def rest_of(latent, points):
    """What is left of a latent, as a share of its variance, and the weights."""
    functions = functions_of(points)
    told, _ = fit_labels_part(functions, torch.from_numpy(latent)[None], points.shape[1])
    left = torch.from_numpy(latent) - functions @ told[0]
    return (left.var(dim=0, correction=0).numpy() / latent.var(axis=0)), told


@pytest.mark.parametrize("width", [1, 2])
def test_a_latent_that_is_a_function_of_the_label_is_taken_out_wholly(width):
    y = np.tanh(ar1(width, 1))
    bent = np.column_stack([y[:, 0], np.exp(y.sum(axis=1)), np.cos(2 * y[:, 0]), y[:, 0] ** 2])
    left, _ = rest_of(bent + 3, y)
    assert left.max() < 0.01


def test_its_mean_is_no_part_of_the_label():
    y = ar1(1, 1)
    functions = functions_of(y)
    left = []
    for offset in (0.0, 7.0):
        latent = torch.from_numpy(y + offset)[None]
        told, _ = fit_labels_part(functions, latent, 1)
        assert not told[0, 0].any()
        left.append(latent - functions @ told)
    assert (left[1] - left[0] - 7).abs().max() < 1e-6


def test_an_angle_is_taken_out_through_its_cosine_and_sine():
    angle = np.cumsum(0.2 * np.random.default_rng(0).standard_normal(N))
    points = np.column_stack([np.cos(angle), np.sin(angle)])
    bump = np.exp(2 * np.cos(angle - 1))[:, None]
    left, _ = rest_of(bump, points)
    assert left.max() < 0.01


def parts(latent, y):
    """What is taken out of a latent, and what bends in the rest of the label's part."""
    functions = functions_of(y)
    both = fit_labels_part(functions, torch.from_numpy(latent)[None], 1)
    return [(functions @ weights[0])[:, 0].numpy() for weights in both]


@pytest.mark.parametrize("seed", range(4))
def test_a_factor_that_is_merely_correlated_stays_as_it_is(seed):
    y, own = ar1(1, 2 * seed), ar1(1, 2 * seed + 1)
    taken, bent = parts(0.3 * y + np.sqrt(1 - 0.09) * own, y)
    assert not taken.any()
    assert bent.var() < 0.05


def test_what_bends_is_told_apart_from_what_goes_straight():
    """0.25 y + 0.25 (y^2 - 1) / sqrt(2) + own: the label tells 0.125 of it."""
    y, own = ar1(1, 3, 40_000), ar1(1, 4, 40_000)
    curve = (y**2 - 1) / np.sqrt(2)
    latent = 0.25 * y + 0.25 * curve + np.sqrt(1 - 0.125) * own
    taken, bent = parts(latent, y)
    assert not taken.any()
    assert np.polyfit(y[:, 0], bent, 1)[0] == pytest.approx(0, abs=1e-6)
    assert np.cov(bent, curve[:, 0])[0, 1] / curve.var() == pytest.approx(0.25, abs=0.06)


def test_of_copies_nothing_is_left_to_bend():
    y = ar1(1, 3)
    taken, bent = parts(np.exp(y) + 0.3 * ar1(1, 4), y)
    assert taken.var() > 0.5
    assert not bent.any()


def test_more_is_taken_out_the_more_of_a_latent_it_is():
    """None of it up to one limit of the share that the label tells, all of it from another on."""
    y, own = ar1(1, 3, 40_000), ar1(1, 4, 40_000)
    low, high = labels_part._OWN_FACTOR, labels_part._COPY_OF_LABEL
    for r in (0.005, 0.1, 0.2, 0.25, 0.4, 0.8):
        part, _ = parts(np.sqrt(r) * y + np.sqrt(1 - r) * own, y)
        slope = np.polyfit(y[:, 0], part, 1)[0] / np.sqrt(r)
        assert slope == pytest.approx(np.clip((r - low) / (high - low), 0, 1), abs=0.12)


@pytest.mark.parametrize("seed", range(6))
def test_an_unrelated_slow_latent_is_left_as_it_is(seed):
    """Forty memories long: in one recording a function of one of them seems to fit the other."""
    y, latent = ar1(1, 2 * seed, memory=0.99), ar1(1, 2 * seed + 1, memory=0.99)
    _, told = rest_of(latent, y)
    assert not told.any()
    functions = functions_of(y).numpy()[:, 1:]
    seems = Ridge(alpha=1e-3 * N).fit(functions, latent).score(functions, latent)
    assert seems > 0.01  # which would be taken out if it were not held against other stretches


def test_the_labels_part_is_a_ridge_regression_with_what_held_out_stretches_say_of_it():
    """Everything again, in numpy and scikit-learn."""
    n = 1500
    y = ar1(2, 5, n)
    latents = np.stack(
        [
            np.column_stack([np.sin(y.sum(axis=1)), y[:, 0]]) + s * ar1(2, 6 + g, n) + g
            for g, s in enumerate((0.3, 0.75, 1.2))
        ]
    )
    functions = functions_of(y, n_waves=30)
    found, bent = (
        each.numpy() for each in fit_labels_part(functions, torch.from_numpy(latents), 2)
    )
    design = functions.numpy()[:, 1:]
    fold = np.arange(n) * 20 // n % 4
    shares = []
    for latent in latents:
        predicted = np.empty_like(latent)
        for k in range(4):
            train = fold != k
            ridge = _ridge_with_plain_constant(design[train], latent[train])
            predicted[~train] = ridge(design[~train])
        c, m = latent - latent.mean(axis=0), predicted - predicted.mean(axis=0)
        stretch = np.arange(n) * 20 // n
        told = [
            1 - np.square(c - m)[kept].sum(axis=0) / np.square(c)[kept].sum(axis=0)
            for kept in [stretch >= 0, *(stretch != k for k in range(20))]
        ]
        shares.append(told[0] - np.std(told[1:], axis=0) * np.sqrt(19))
    # One decision for each latent, by the median over groups.
    low, high = labels_part._OWN_FACTOR, labels_part._COPY_OF_LABEL
    copied = np.clip((np.median(shares, axis=0) - low) / (high - low), 0, 1)
    assert ((copied > 0) & (copied < 1)).any()  # the case between is among them
    for g, latent in enumerate(latents):
        whole = _ridge_with_plain_constant(design, latent)
        weights = whole(np.eye(design.shape[1])) - whole(np.zeros((1, design.shape[1])))
        np.testing.assert_allclose(found[g, 1:], weights * copied, atol=1e-6)
        straight = np.linalg.lstsq(functions.numpy()[:, :3], design @ weights, rcond=None)[0]
        weights[:2] -= straight[1:]
        np.testing.assert_allclose(bent[g, 1:], weights * (1 - copied), atol=1e-6)
    assert not found[:, 0].any()


def _ridge_with_plain_constant(design, targets):
    """Ridge on columns that are not centred, with a constant that costs next to nothing."""
    ridge = Ridge(alpha=1e-3 * len(design)).fit(design, targets)
    return ridge.predict


def test_without_labels_or_latents_there_is_nothing_to_take_out():
    constant = torch.ones(50, 1, dtype=torch.float64)
    assert not any(each.any() for each in fit_labels_part(constant, torch.randn(2, 50, 3), 0))
    functions = functions_of(ar1(1, 0, 50), 2)
    assert fit_labels_part(functions, torch.randn(2, 50, 0), 1)[0].shape == (2, 4, 0)
