"""How many latents the neurons share beyond the labels, judged on neurons and times left out.

What the labels tell of each neuron is taken out. One half of the neurons then predicts the other
half through its leading principal components, fitted on some stretches of time and judged on the
rest. A further latent counts if it adds to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.encoding_strength import smooth_functions

Array = NDArray[np.float64]

MOST_LATENTS = 8
_MOST_SAMPLES = 20_000
# Samples are averaged over so many, where there are enough of them: latents last longer than a
# sample, and noise of single samples, which is most of what spikes have, averages out.
_AVERAGED, _LEAST_AVERAGES = 5, 1_000
STRETCHES, FOLDS, _SPLITS = 20, 4, 4
_RIDGE = 1e-2
# What a latent must add: of the variance of the neurons, and of what the latents before it explain.
# In simulations with 4 hidden factors bent by the mixing, the fifth component adds 2 to 4 % of what
# the first four explain (dataset seeds 100 and 101).
_LEAST_GAIN, _LEAST_RELATIVE_GAIN = 0.003, 0.05


def shared_dimensions(recording: Recording, labels: Sequence[Label], epochs: Epochs) -> int:
    """Number of latents that the neurons share beyond the labels, from 0 to `MOST_LATENTS`.

    Parameters
    ----------
    recording : Recording
    labels : sequence of Label
        Samples at which one is missing are left out.
    epochs : Epochs
        Samples to judge by.
    """
    x, design = _averages(recording, labels, epochs)
    n, n_neurons = x.shape
    if n < 2 * STRETCHES or n_neurons < 4:
        return 0
    x = standardised(x)
    fold = np.arange(n) * STRETCHES // n % FOLDS
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
    """Activity and smooth functions of the labels, averaged over a few samples."""
    times = samples_with_labels(labels, epochs)
    # Only runs of samples that follow each other in one epoch.
    starts = times[: len(times) // _AVERAGED * _AVERAGED : _AVERAGED]
    last = times[_AVERAGED - 1 : len(times) // _AVERAGED * _AVERAGED : _AVERAGED]
    together = (last - starts == _AVERAGED - 1) & (last < epochs.stop_of(starts))
    size, starts = _AVERAGED, starts[together]
    if len(starts) < _LEAST_AVERAGES:
        size, starts = 1, times
    if len(starts) == 0:
        return np.empty((0, recording.n_neurons)), np.empty((0, 0))
    starts = evenly_spaced(starts, _MOST_SAMPLES)
    rows = (starts[:, None] + np.arange(size)).ravel()
    x = recording.rows(rows).astype(np.float64).reshape(-1, size, recording.n_neurons).mean(axis=1)
    design = labels_design(labels, rows)
    return x, design.reshape(len(x), size, design.shape[1]).mean(axis=1)


def samples_with_labels(labels: Sequence[Label], epochs: Epochs) -> NDArray[np.int64]:
    """Samples of the epochs at which every label is known."""
    times = epochs.indices()
    for label in labels:
        times = times[label.valid[times]]
    return times


def labels_design(labels: Sequence[Label], times: NDArray[np.int64]) -> Array:
    """Smooth functions of all labels at some times, of shape (n_times, n_functions)."""
    functions = [smooth_functions(label.kind, label.points[times]) for label in labels]
    return np.concatenate([np.empty((len(times), 0)), *functions], axis=1)


def _explained(seen: Array, left_out: Array, fold: NDArray[np.int64], most: int) -> Array:
    """Share of variance of neurons left out that 0, 1, ... components of the others explain."""
    found = np.zeros(most + 1)
    for k in range(FOLDS):
        out = fold == k
        a, b = seen[~out], left_out[~out]
        _, _, axes = np.linalg.svd(a.T @ b, full_matrices=False)
        # Directions of the seen neurons that covary most with the others, orthonormal in order.
        directions = np.linalg.qr(a.T @ (b @ axes[:most].T))[0]
        z, z_out = a @ directions, seen[out] @ directions
        for m in range(1, most + 1):
            inner = z[:, :m].T @ z[:, :m] + _RIDGE * len(z) * np.eye(m)
            weights = np.linalg.solve(inner, z[:, :m].T @ b)
            missed = np.square(left_out[out] - z_out[:, :m] @ weights).sum()
            total = max(float(np.square(left_out).sum()), 1e-300)  # all of them may be silent
            found[m] += (np.square(left_out[out]).sum() - missed) / total
    return found


def held_out_prediction(design: Array, x: Array, fold: NDArray[np.int64]) -> Array:
    """What a ridge regression on the design predicts on held-out stretches of time."""
    gram, cross = design.T @ design, design.T @ x
    found = np.empty_like(x)
    for k in range(FOLDS):
        out = fold == k
        rows = design[out]
        inner = gram - rows.T @ rows + _RIDGE * (~out).sum() * np.eye(design.shape[1])
        found[out] = rows @ np.linalg.solve(inner, cross - rows.T @ x[out])
    return found


def standardised(values: Array) -> Array:
    """Columns with mean 0 and standard deviation 1; those that do not vary are 0."""
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
