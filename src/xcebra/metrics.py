"""How well a map finds the known wiring, and how well an embedding holds a label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from xcebra.attribution import AttributionMap


def auroc(
    amap: AttributionMap,
    ground_truth: Mapping[str, Any] | NDArray[np.bool_],
    *,
    block: str,
    factor: str | None = None,
    score: str = "entries",
) -> float:
    """Area under the ROC curve of a block's attribution against the known connections.

    Parameters
    ----------
    amap : AttributionMap
    ground_truth : mapping of str to bool array of shape (n_neurons,), or one such array
    block : str
        Block of the map.
    factor : str, optional
        Which factor of the ground truth it stands for; needed if there are several.
    score : {"entries", "block"}
        Every (neuron, latent) entry of the block, as in the paper, or one score per neuron.
    """
    truth = np.asarray(_factor(ground_truth, factor), dtype=bool)
    n_neurons = len(amap.values)
    if truth.shape != (n_neurons,):
        raise ValueError(
            f"ground_truth has shape {truth.shape}, but the map has {n_neurons} neurons"
        )
    if truth.all() or not truth.any():
        raise ValueError(
            f"ground_truth connects {int(truth.sum())} of {n_neurons} neurons; auROC needs both "
            "connected and unconnected ones: choose another factor"
        )
    if score not in ("entries", "block"):
        raise ValueError(f"score must be 'entries' or 'block', got {score!r}")
    per_neuron = amap.block(block)
    if score == "block":
        return float(roc_auc_score(truth, per_neuron))
    entries = amap.values[:, amap.blocks[block]]
    return float(roc_auc_score(np.repeat(truth, entries.shape[1]), entries.ravel()))


def _factor(ground_truth: Any, factor: str | None) -> Any:
    if not isinstance(ground_truth, Mapping):
        return ground_truth
    if factor is None and len(ground_truth) == 1:
        return next(iter(ground_truth.values()))
    if factor not in ground_truth:
        raise ValueError(f"factor must be one of {list(ground_truth)}, got {factor!r}")
    return ground_truth[factor]


def r_squared(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Variance explained, mean over columns; columns that do not vary are left out."""
    y = np.asarray(y, dtype=np.float64)
    total = np.square(y - y.mean(axis=0)).sum(axis=0)
    rest = np.square(y - predicted).sum(axis=0)
    varies = total > 0
    return float(np.mean(1 - rest[varies] / total[varies])) if varies.any() else 0.0
