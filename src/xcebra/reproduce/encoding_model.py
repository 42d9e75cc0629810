"""The ordinary encoding model: each neuron regressed on the label alone, without latents."""

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

_ROWS_AT_ONCE = 2048


def encoding_map(
    recording: Recording, label: NDArray[Any], samples: IntArray, seed: int = 0
) -> tuple[AttributionMap, NDArray[np.float64]]:
    """How each neuron's expected activity moves with the label.

    The network is that of our decoder, with the same steps and early stopping, so that nothing but
    what it is regressed on sets the two apart.

    Returns
    -------
    AttributionMap
        Time mean of the absolute derivative by each column of the standardised label.
    ndarray of shape (n_neurons,)
        Share of each neuron's held-out variance that the label explains.
    """
    recipe = RECIPES["xcebra"]
    training, held_out = recording.epochs.split(HELD_OUT)
    stop_by, judge = held_out.split(0.5)
    inputs = Inputs.measure(recording, training, project=recipe.project)
    known = label[training.indices()]
    points = torch.tensor((label - known.mean(axis=0)) / known.std(axis=0), dtype=torch.float32)

    def at(times: IntArray, epochs: Epochs) -> Tensor:
        return points[torch.from_numpy(times)]

    config = DecoderConfig(
        recipe.decoder_steps, min(1024, training.size), recipe.decoder_learning_rate, seed
    )
    decoder = fit_regression(at, inputs, recording, training, stop_by, config)
    judged = judge.indices()
    with torch.no_grad():
        x = (torch.from_numpy(recording.rows(judged)) - decoder.mean) * decoder.reciprocal
        missed = (x - decoder.standardised(points[torch.from_numpy(judged)])).square().mean(dim=0)
        variance = x.var(dim=0, correction=0)
        varies = variance > 0
        share = 1 - missed / torch.where(varies, variance, 1.0)
        explained = torch.where(varies, share, 0.0).double().numpy()
        total = torch.zeros(recording.n_neurons, points.shape[1], dtype=torch.float64)
        norms = torch.zeros(recording.n_neurons, dtype=torch.float64)
        for part in points[torch.from_numpy(samples)].split(_ROWS_AT_ONCE):
            moved = (decoder.loadings @ jacobian(decoder.network, part)).double()
            total += moved.abs().sum(dim=0)
            norms += moved.norm(dim=2).sum(dim=0)
    amap = AttributionMap(
        total.numpy() / len(samples),
        {"label": norms.numpy() / len(samples)},
        {"label": slice(0, points.shape[1])},
        recording.neuron_names,
        tuple(f"label{i}" for i in range(points.shape[1])),
    )
    return amap, explained
