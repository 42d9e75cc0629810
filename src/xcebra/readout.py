"""The linear way from a label's block to the label, and the axes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcebra.encoder import Encoder, embed
from xcebra.planning import Plan
from xcebra.recording import Recording

_MOST_ROWS = 50_000


@dataclass(frozen=True, eq=False)
class Readout:
    """``label = block @ weights.T + intercept``.

    Parameters
    ----------
    weights : ndarray of shape (n_columns, n_latents)
    intercept : ndarray of shape (n_columns,)
    """

    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]

    @classmethod
    def fit(cls, block: NDArray[np.floating], label: NDArray[np.floating]) -> Readout:
        """Least squares of label columns on a block's latents."""
        design = np.column_stack([block.astype(np.float64), np.ones(len(block))])
        solution = np.linalg.lstsq(design, label, rcond=None)[0]
        return cls(np.ascontiguousarray(solution[:-1].T), solution[-1])

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
        block = embedding[known][:, plan.blocks[label.name]]
        found[label.name] = Readout.fit(block, label.points[times[known]])
    return found


def label_axes(readouts: Mapping[str, Readout], blocks: Mapping[str, slice]) -> NDArray[np.float64]:
    """New axes for the embedding: each label's columns first, then what does not predict it.

    A block with fewer latents than its label has columns keeps the axes it learned.

    Returns
    -------
    ndarray of shape (n_latents, n_latents)
        Invertible; ``z_new = axes @ z``.
    """
    axes = np.eye(max(block.stop for block in blocks.values()))
    for name, readout in readouts.items():
        n_columns, size = readout.weights.shape
        if n_columns <= size and np.linalg.matrix_rank(readout.weights) == n_columns:
            rest = np.linalg.svd(readout.weights)[2][n_columns:]
            axes[blocks[name], blocks[name]] = np.concatenate([readout.weights, rest])
    return axes
