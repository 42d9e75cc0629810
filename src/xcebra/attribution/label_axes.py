"""Axes of the embedding: along the labels, and where the map is sparse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.engine import moments, view_of_model
from xcebra.attribution.request import MapRequest
from xcebra.attribution.sparse_basis import Mixture, sparsest
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.data.recording import Recording
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, embed
from xcebra.training.plan import Plan

_MOST_ROWS = 50_000
_MOST_MAPS = 8192
# Of the largest singular value of a readout: below it, a column follows from the others.
_LEAST_INDEPENDENT = 1e-4


@dataclass(frozen=True, eq=False)
class Readout:
    """``label = block @ weights.T + intercept``.

    Parameters
    ----------
    weights : ndarray of shape (n_columns, n_latents)
    intercept : ndarray of shape (n_columns,)
    spread : ndarray of shape (n_columns,)
        Standard deviation of the label's columns.
    """

    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def fit(cls, block: NDArray[np.floating], label: NDArray[np.floating]) -> Readout:
        """Least squares of label columns on a block's latents."""
        design = np.column_stack([block.astype(np.float64), np.ones(len(block))])
        solution = np.linalg.lstsq(design, label, rcond=None)[0]
        return cls(np.ascontiguousarray(solution[:-1].T), solution[-1], label.std(axis=0))

    def predict(self, block: NDArray[np.floating]) -> NDArray[np.float64]:
        """The label, as far as the block tells it."""
        return block @ self.weights.T + self.intercept


def fit_readouts(encoder: Encoder, recording: Recording, plan: Plan) -> dict[str, Readout]:
    """One readout per label, on training samples only."""
    times = plan.training.indices()
    times = times[:: max(1, len(times) // _MOST_ROWS)]
    embedding = embed(encoder, recording, times)
    found = {}
    for label in plan.labels:
        known = label.valid[times]
        block = embedding[known][:, plan.decisions.blocks[label.name]]
        found[label.name] = Readout.fit(block, label.points[times[known]])
    return found


def label_axes(readouts: Mapping[str, Readout], blocks: Mapping[str, slice]) -> NDArray[np.float64]:
    """New axes for the embedding: each label's columns first, then what does not predict it.

    A label is in units of the standard deviation of its columns, their root mean square: nothing
    depends on its unit, and columns that share a unit, as those of one label do, keep their
    proportions. What does not predict the label is scaled alike. A block with fewer latents than
    its label has columns keeps the axes it learned, and so does one whose columns follow from each
    other, as those of classes do.

    Returns
    -------
    ndarray of shape (n_latents, n_latents)
        Invertible; ``z_new = axes @ z``.
    """
    axes = np.eye(max(block.stop for block in blocks.values()))
    for name, readout in readouts.items():
        n_columns, size = readout.weights.shape
        weights = readout.weights / (np.sqrt(np.mean(readout.spread**2)) or 1.0)
        _, singular, directions = np.linalg.svd(weights)
        if n_columns <= size and singular[-1] > _LEAST_INDEPENDENT * singular[0]:
            rest = directions[n_columns:] * np.linalg.norm(weights, axis=1).mean()
            axes[blocks[name], blocks[name]] = np.concatenate([weights, rest])
    return axes


def fit_mixtures(
    encoder: Encoder,
    decoder: Decoder,
    recording: Recording,
    blocks: Mapping[str, slice],
    readouts: Mapping[str, Readout],
) -> dict[str, Mixture]:
    """For each label, what the time block's columns must add to its own to make them sparse.

    A label's block follows that label alone, while the time block, whose innovations the time
    objective keeps apart from the labels', takes a share of every label it is correlated with. So
    the columns of labels are mixed with those of time. What correlated labels do to each other is
    not undone.
    """
    if "time" not in blocks:
        return {}
    times = evenly_spaced(recording.epochs.indices(), _MOST_MAPS)
    found = moments(
        view_of_model(encoder, decoder, "decoder-gradient", "standardised"),
        reader(encoder, recording),
        times,
        MapRequest(method="decoder-gradient", axes=label_axes(readouts, blocks)),
    )
    time = blocks["time"]
    others = np.arange(time.start, time.stop)
    return {name: sparsest(found, blocks[name], others) for name in readouts}


def sparse_axes(
    readouts: Mapping[str, Readout],
    mixtures: Mapping[str, Mixture],
    blocks: Mapping[str, slice],
) -> NDArray[np.float64]:
    """Label axes with the mixture of each label's columns undone; ``z_new = axes @ z``."""
    axes = label_axes(readouts, blocks)
    undo = np.eye(len(axes))
    for name, mixture in mixtures.items():
        # The inverse of adding columns of time to those of a label.
        undo[blocks["time"], blocks[name]] = -mixture.weights
    return undo @ axes


def reader(encoder: Encoder, recording: Recording) -> Callable[[IntArray], Tensor]:
    """Raw samples of a recording, where the encoder is."""
    return partial(encoder.samples, recording)
