"""Axes of the embedding: label axes, and the axes of the sparse basis."""

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

# About the most samples that a readout is fitted to. More samples take longer. Not tuned.
_MOST_ROWS = 50_000
# Most samples over which the moments for a mixture are averaged. More take longer. Not tuned.
_MOST_MAPS = 8192
# If the smallest singular value of a readout is below this share of the largest one, the columns
# of the label count as linearly dependent. Larger values reject more labels. Not tuned.
_LEAST_INDEPENDENT = 1e-4


@dataclass(frozen=True, eq=False)
class Readout:
    """Linear map from a block to its label: ``label = block @ weights.T + intercept``.

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
        """Fit label columns to a block's latents by least squares.

        Parameters
        ----------
        block : ndarray of shape (n_samples, n_latents)
        label : ndarray of shape (n_samples, n_columns)
        """
        design = np.column_stack([block.astype(np.float64), np.ones(len(block))])
        solution = np.linalg.lstsq(design, label, rcond=None)[0]
        return cls(np.ascontiguousarray(solution[:-1].T), solution[-1], label.std(axis=0))

    def predict(self, block: NDArray[np.floating]) -> NDArray[np.float64]:
        """Predict the label from a block.

        Parameters
        ----------
        block : ndarray of shape (n_samples, n_latents)

        Returns
        -------
        ndarray of shape (n_samples, n_columns)
        """
        return block @ self.weights.T + self.intercept


def fit_readouts(encoder: Encoder, recording: Recording, plan: Plan) -> dict[str, Readout]:
    """Fit a readout for each label, on training samples only."""
    times = plan.training.indices()
    times = times[:: max(1, len(times) // _MOST_ROWS)]
    embedding = embed(encoder, recording, times)
    readouts = {}
    for label in plan.labels:
        known = label.valid[times]
        block = embedding[known][:, plan.decisions.blocks[label.name]]
        readouts[label.name] = Readout.fit(block, label.points[times[known]])
    return readouts


def label_axes(readouts: Mapping[str, Readout], blocks: Mapping[str, slice]) -> NDArray[np.float64]:
    """New axes for the embedding: in each label's block, along the label's columns.

    The first axes of a block predict the columns of the label, and the remaining axes are
    orthogonal to them and do not predict the label. A label is scaled by the root mean square of
    the standard deviations of its columns, so that the axes do not depend on its unit and its
    columns keep their proportions. The remaining axes have the mean length of the first ones. A
    block keeps the axes as learned if it has fewer latents than its label has columns, or if the
    columns are linearly dependent, as those of a discrete label are.

    Parameters
    ----------
    readouts : mapping of str to Readout
    blocks : mapping of str to slice

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
    """For each label, the mixture of the time block's columns that makes its own columns sparse.

    A label's block depends on that label alone. The time objective separates the innovations of
    the time block from those of the labels, and the time block therefore contains a part of every
    label that it is correlated with. As a consequence, the columns of labels are mixed with those
    of the time block. Mixtures of correlated labels with each other are not undone.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
    recording : Recording
    blocks : mapping of str to slice
    readouts : mapping of str to Readout

    Returns
    -------
    dict of str to Mixture
        The mixture of each label by its name; empty without a time block.
    """
    if "time" not in blocks:
        return {}
    times = evenly_spaced(recording.epochs.indices(), _MOST_MAPS)
    products = moments(
        view_of_model(encoder, decoder, "decoder-gradient", "standardised"),
        reader(encoder, recording),
        times,
        MapRequest(method="decoder-gradient", axes=label_axes(readouts, blocks)),
    )
    time = blocks["time"]
    others = np.arange(time.start, time.stop)
    return {name: sparsest(products, blocks[name], others) for name in readouts}


def sparse_axes(
    readouts: Mapping[str, Readout],
    mixtures: Mapping[str, Mixture],
    blocks: Mapping[str, slice],
) -> NDArray[np.float64]:
    """Label axes in which the mixture of each label's columns is undone.

    Returns
    -------
    ndarray of shape (n_latents, n_latents)
        Invertible; ``z_new = axes @ z``.
    """
    axes = label_axes(readouts, blocks)
    undo = np.eye(len(axes))
    for name, mixture in mixtures.items():
        # This is the inverse of adding columns of the time block to those of a label.
        undo[blocks["time"], blocks[name]] = -mixture.weights
    return undo @ axes


def reader(encoder: Encoder, recording: Recording) -> Callable[[IntArray], Tensor]:
    """A function from sample indices to raw samples, on the device of the encoder."""
    return partial(encoder.samples, recording)
