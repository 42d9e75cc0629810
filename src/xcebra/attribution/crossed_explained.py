"""How much of each neuron's variance and deviance the crossed decoders explain on held-out time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.crossed_source import MOST_SAMPLES, Source
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.data.recording import rows_at_once
from xcebra.networks.crossed_decoder import expected, halves
from xcebra.statistics.deviance import poisson_deviance_explained

Array = NDArray[np.float64]

# Neurons whose standardised activity has a smaller variance in the samples do not vary.
_LEAST_VARIANCE = 1e-12


def variance_explained(
    source: Source, times: IntArray, blocks: Mapping[str, slice], seed: int
) -> dict[str, Array]:
    """Share of each neuron's variance explained on held-out time, by all blocks and by each.

    Each decoder predicts the stretches of time that the other one was fitted to. The share of a
    block is half the mean product of the changes that the two decoders predict when the values of
    this block alone are exchanged with those of other samples (Sobol's total effect, with one
    factor of the product from each decoder). For a neuron without signal it is zero on average,
    and it can be negative.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)
    blocks : mapping of str to slice
    seed : int
        For the exchange of samples.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)
        The share of all blocks together as ``"all"``, and that of each block by its name.
    """
    decoder = source.decoder
    times, half = _judged(times)
    other = torch.from_numpy(np.random.default_rng(seed).permutation(len(times)))
    _, rows = source.inputs(times)
    n_labels = len(decoder.label_mean)
    columns = {label.name: label.columns for label in decoder.labels}
    if "time" in blocks:
        columns["time"] = slice(n_labels, n_labels + decoder.n_time_latents)
    exchanged = {}
    for name in blocks:
        exchanged[name] = rows.clone()
        exchanged[name][:, :, columns[name]] = rows[:, other.to(rows.device)][:, :, columns[name]]
    # Means over samples, some samples after the other. The activity is standardised, so that its
    # mean is small and costs no precision.
    n, n_neurons = len(times), len(decoder.group)
    mean, mean_square = np.zeros(n_neurons), np.zeros(n_neurons)
    shares = {name: np.zeros(n_neurons) for name in ("all", *blocks)}
    step = rows_at_once(n_neurons, n)
    for start in range(0, n, step):
        part = slice(start, start + step)
        neurons = source.neurons(times[part])
        predictions = expected(decoder, rows[:, part])
        mean += _sums(neurons) / n
        mean_square += _sums(neurons.square()) / n
        held_out = _of_the_other(predictions, half[part])
        shares["all"] += _sums((neurons - held_out).square()) / n
        for name in blocks:
            changes = expected(decoder, exchanged[name][:, part]) - predictions
            shares[name] += _sums(changes[0] * changes[1]) / (2 * n)
    variance = mean_square - np.square(mean)
    # In units of the whole recording, a smaller variance is a rounding error.
    varies = variance > _LEAST_VARIANCE
    shares = {name: share / np.where(varies, variance, 1.0) for name, share in shares.items()}
    shares["all"] = 1 - shares["all"]
    return {name: np.where(varies, share, 0.0) for name, share in shares.items()}


def _sums(values: Tensor) -> Array:
    """Sums over samples in double precision, of shape (n_neurons,)."""
    return np.asarray(values.cpu().double().sum(dim=0).numpy())


def deviance_explained(source: Source, times: IntArray) -> Array | None:
    """Share of each neuron's Poisson deviance that is explained on held-out time.

    Each decoder predicts the stretches of time that the other one was fitted to.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    ndarray of shape (n_neurons,) or None
        1 for a perfect prediction, 0 for a prediction by the mean, and 0 for a silent neuron. None
        if the activity is not counts.
    """
    times, half = _judged(times)
    counts = source.recording.rows(times).astype(np.float64)
    if (counts < 0).any() or (counts != np.round(counts)).any():
        return None
    _, rows = source.inputs(times)
    encoder = source.encoder
    predicted = _of_the_other(expected(source.decoder, rows), half) * encoder.scale + encoder.mean
    return poisson_deviance_explained(counts, predicted.cpu().double().numpy())


def _judged(times: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """Samples to evaluate the decoders on, and for each the decoder that was fitted to it."""
    half = halves(len(times))
    positions = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    return times[positions], half[positions]


def _of_the_other(predictions: Tensor, half: NDArray[np.int64]) -> Tensor:
    """At each sample, the prediction of the decoder that was not fitted to it."""
    fitted_by_first = torch.from_numpy(half == 0).to(predictions.device)[:, None]
    return torch.where(fitted_by_first, predictions[1], predictions[0])
