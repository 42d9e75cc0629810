"""Number of latents that the neurons share beyond the labels.

First, the prediction of each neuron from the labels is subtracted. Then one half of the neurons
predicts the other half through a few components. These are fitted on some stretches of time and
evaluated on the rest. A further component counts as a latent if it improves the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from xcebra.common.eigenvalues import largest_eigenvalues
from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording, rows_at_once
from xcebra.statistics.encoding_strength import smooth_functions
from xcebra.statistics.held_out_time import N_FOLDS, N_STRETCHES, folds
from xcebra.statistics.smooth_regression import standardised

Array = NDArray[np.float64]

# Largest number of latents that is considered: larger values take longer. Not tuned.
MOST_LATENTS = 8
# More samples make the estimate more precise and take longer; not tuned.
_MOST_SAMPLES = 20_000
# Of more neurons, this many are drawn at random: time and memory grow with their square, and what
# all of them share is in any thousand of them. Not tuned.
_MOST_NEURONS = 1_000
# Activity is averaged over 5 consecutive samples if that leaves at least 1,000 averages. Latents
# change more slowly than from sample to sample, so they remain, while the noise of single samples,
# which dominates spike counts, averages out. Not tuned.
_AVERAGED, _LEAST_AVERAGES = 5, 1_000
# Random divisions of the neurons into halves. More of them make the estimate more precise and take
# longer; not tuned.
_SPLITS = 4
# Ridge penalty for predictors of variance about 1: larger values overfit less and follow less. Not
# tuned.
_RIDGE = 1e-2
# What a latent must add, as a share of the variance of the neurons and as a share of what the
# latents before it explain. In simulations with 4 hidden factors and nonlinear mixing, the fifth
# component adds 2 to 4 % of what the first four explain (dataset seeds 100 and 101).
_LEAST_GAIN, _LEAST_RELATIVE_GAIN = 0.003, 0.05


def shared_dimensions(recording: Recording, labels: Sequence[Label], epochs: Epochs) -> int:
    """Number of latents that the neurons share beyond the labels, from 0 to `MOST_LATENTS`.

    Parameters
    ----------
    recording : Recording
    labels : sequence of Label
        Samples at which any label is missing are left out.
    epochs : Epochs
        Samples to use.
    """
    x, design = _averages(recording, labels, epochs)
    n, n_neurons = x.shape
    if n < 2 * N_STRETCHES or n_neurons < 4:
        return 0
    x = standardised(x)
    fold = folds(n)
    if design.shape[1]:
        x = standardised(x - held_out_prediction(standardised(design), x, fold))
    most = min(MOST_LATENTS, n_neurons // 2)
    explained = np.zeros(most + 1)
    rng = np.random.default_rng(0)
    for _ in range(_SPLITS):
        order = rng.permutation(n_neurons)
        for seen, left_out in (
            (order[: n_neurons // 2], order[n_neurons // 2 :]),
            (order[n_neurons // 2 :], order[: n_neurons // 2]),
        ):
            explained += _explained(x[:, seen], x[:, left_out], fold, most) / (2 * _SPLITS)
    n_latents = 0
    for k in range(1, most + 1):
        gain = explained[k] - explained[n_latents]
        if gain < max(_LEAST_GAIN, _LEAST_RELATIVE_GAIN * explained[n_latents]):
            break
        n_latents = k
    return n_latents


def _averages(recording: Recording, labels: Sequence[Label], epochs: Epochs) -> tuple[Array, Array]:
    """Activity and smooth functions of the labels, averaged over a few samples.

    Returns arrays of shape (n_averages, n_neurons) and (n_averages, n_functions).
    """
    times = samples_with_labels(labels, epochs)
    # Only groups of consecutive samples of the same epoch are averaged.
    starts = times[: len(times) // _AVERAGED * _AVERAGED : _AVERAGED]
    last = times[_AVERAGED - 1 : len(times) // _AVERAGED * _AVERAGED : _AVERAGED]
    consecutive = (last - starts == _AVERAGED - 1) & (last < epochs.stop_of(starts))
    size, starts = _AVERAGED, starts[consecutive]
    if len(starts) < _LEAST_AVERAGES:
        size, starts = 1, times
    if len(starts) == 0:
        return np.empty((0, recording.n_neurons)), np.empty((0, 0))
    starts = evenly_spaced(starts, _MOST_SAMPLES)
    neurons = chosen_neurons(recording.n_neurons)
    # The samples of an average are added one after the other, as a mean over them would do.
    x = np.zeros((len(starts), len(neurons)))
    for k in range(size):
        x += columns_of(recording, starts + k, neurons)
    x /= size
    rows = (starts[:, None] + np.arange(size)).ravel()
    design = labels_design(labels, rows)
    return x, design.reshape(len(x), size, design.shape[1]).mean(axis=1)


def chosen_neurons(n_neurons: int) -> NDArray[np.int64]:
    """Indices of all neurons, or of some drawn at random if there are very many, in order."""
    if n_neurons <= _MOST_NEURONS:
        return np.arange(n_neurons)
    return np.sort(np.random.default_rng(0).permutation(n_neurons)[:_MOST_NEURONS])


def columns_of(
    recording: Recording, times: NDArray[np.int64], neurons: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Activity of some neurons at ``times``, of shape (len(times), len(neurons))."""
    if len(neurons) == recording.n_neurons:
        return recording.rows(times)
    result = np.empty((len(times), len(neurons)), np.float32)
    step = rows_at_once(recording.n_neurons, len(times))
    for start in range(0, len(times), step):
        result[start : start + step] = recording.rows(times[start : start + step])[:, neurons]
    return result


def samples_with_labels(labels: Sequence[Label], epochs: Epochs) -> NDArray[np.int64]:
    """Indices of the samples of the epochs at which all labels are known."""
    times = epochs.indices()
    for label in labels:
        times = times[label.valid[times]]
    return times


def labels_design(labels: Sequence[Label], times: NDArray[np.int64]) -> Array:
    """Smooth functions of all labels at ``times``, of shape (len(times), n_functions)."""
    functions = [smooth_functions(label.kind, label.points[times]) for label in labels]
    return np.concatenate([np.empty((len(times), 0)), *functions], axis=1)


def _explained(seen: Array, left_out: Array, fold: NDArray[np.int64], most: int) -> Array:
    """Share of the variance of neurons left out that 0, 1, ... components of the others explain.

    Parameters
    ----------
    seen : ndarray of shape (n_samples, n_seen)
        Neurons that predict.
    left_out : ndarray of shape (n_samples, n_left_out)
        Neurons that are predicted.
    fold : ndarray of int of shape (n_samples,)
    most : int
        Largest number of components.

    Returns
    -------
    ndarray of shape (most + 1,)
    """
    explained = np.zeros(most + 1)
    products = [seen[fold == k].T @ left_out[fold == k] for k in range(N_FOLDS)]
    total_products = np.sum(products, axis=0)
    # The sum is 0 if all neurons are constant.
    total = max(float(np.square(left_out).sum()), 1e-300)
    for k in range(N_FOLDS):
        out = fold == k
        a, b = seen[~out], left_out[~out]
        covariance = total_products - products[k]
        # The right singular vectors, those with the largest singular values first.
        axes = largest_eigenvalues(covariance.T @ covariance, most)[1][:, ::-1]
        # Orthonormal directions of the seen neurons, in the order of their covariance with the
        # others.
        directions = np.linalg.qr(covariance @ axes)[0]
        z, z_out = a @ directions, seen[out] @ directions
        for m in range(1, most + 1):
            inner = z[:, :m].T @ z[:, :m] + _RIDGE * len(z) * np.eye(m)
            weights = np.linalg.solve(inner, z[:, :m].T @ b)
            error = np.square(left_out[out] - z_out[:, :m] @ weights).sum()
            explained[m] += (np.square(left_out[out]).sum() - error) / total
    return explained


def held_out_prediction(design: Array, x: Array, fold: NDArray[np.int64]) -> Array:
    """Prediction of ``x`` by a ridge regression on the design, each fold predicted by the others.

    Parameters
    ----------
    design : ndarray of shape (n_samples, n_regressors)
        Standardised regressors.
    x : ndarray of shape (n_samples, n_columns)
        Targets. The regression has no intercept, so their mean should be about 0.
    fold : ndarray of int of shape (n_samples,)
        Fold of each sample, from 0 to ``N_FOLDS - 1``.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
    """
    grams, crosses = [], []
    for k in range(N_FOLDS):
        rows = design[fold == k]
        grams.append(rows.T @ rows)
        crosses.append(rows.T @ x[fold == k])
    gram, cross = np.sum(grams, axis=0), np.sum(crosses, axis=0)
    predicted = np.empty_like(x)
    for k in range(N_FOLDS):
        out = fold == k
        inner = gram - grams[k]
        inner[np.diag_indices(len(inner))] += _RIDGE * (~out).sum()
        weights = solve(inner, cross - crosses[k], assume_a="pos", check_finite=False)
        predicted[out] = design[out] @ weights
    return predicted
