"""The ordinary encoding model: each neuron is regressed on the label alone, without latents."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording
from xcebra.networks.decoder import DecoderConfig, fit_regression
from xcebra.networks.encoder import Inputs
from xcebra.networks.jacobian import jacobian
from xcebra.training.settings import HELD_OUT, RECIPES

# Samples for which the Jacobian is computed together. More samples need more memory.
_ROWS_AT_ONCE = 2048


def encoding_map(
    recording: Recording, label: NDArray[Any], samples: IntArray, seed: int = 0
) -> tuple[AttributionMap, NDArray[np.float64]]:
    """How much each neuron's expected activity changes with the label.

    The network, its training steps and its early stopping are those of our decoder. The two differ
    only in their inputs: the label here, the latents there.

    Parameters
    ----------
    recording : Recording
    label : ndarray of shape (n_times, n_columns)
    samples : ndarray of int of shape (n_samples,)
        Samples over which the map is averaged.
    seed : int
        Seed of the network.

    Returns
    -------
    AttributionMap
        Mean over samples of the absolute derivative with respect to each column of the
        standardised label.
    ndarray of shape (n_neurons,)
        Share of each neuron's variance that the label explains on held-out time.
    """
    recipe = RECIPES["xcebra"]
    training, held_out = recording.epochs.split(HELD_OUT)
    validation, test = held_out.split(0.5)
    inputs = Inputs.measure(recording, training, project=recipe.project)
    training_label = label[training.indices()]
    points = torch.tensor(
        (label - training_label.mean(axis=0)) / training_label.std(axis=0), dtype=torch.float32
    )

    def label_points(times: IntArray, epochs: Epochs) -> Tensor:
        return points[torch.from_numpy(times)]

    config = DecoderConfig(
        recipe.decoder_steps, min(1024, training.size), recipe.decoder_learning_rate, seed
    )
    decoder = fit_regression(label_points, inputs, recording, training, validation, config)
    test_times = test.indices()
    with torch.no_grad():
        x = (torch.from_numpy(recording.rows(test_times)) - decoder.mean) * decoder.reciprocal
        error = (
            (x - decoder.standardised(points[torch.from_numpy(test_times)])).square().mean(dim=0)
        )
        variance = x.var(dim=0, correction=0)
        varies = variance > 0
        share = 1 - error / torch.where(varies, variance, 1.0)
        explained = torch.where(varies, share, 0.0).double().numpy()
        total = torch.zeros(recording.n_neurons, points.shape[1], dtype=torch.float64)
        norms = torch.zeros(recording.n_neurons, dtype=torch.float64)
        for part in points[torch.from_numpy(samples)].split(_ROWS_AT_ONCE):
            derivative = (decoder.loadings @ jacobian(decoder.network, part)).double()
            total += derivative.abs().sum(dim=0)
            norms += derivative.norm(dim=2).sum(dim=0)
    amap = AttributionMap(
        total.numpy() / len(samples),
        {"label": norms.numpy() / len(samples)},
        {"label": slice(0, points.shape[1])},
        recording.neuron_names,
        tuple(f"label{i}" for i in range(points.shape[1])),
    )
    return amap, explained
