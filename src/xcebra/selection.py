"""What takes several fits: how well they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.estimator import XCEBRA
from xcebra.metrics import r_squared


def consistency(models: Sequence[XCEBRA], X: Any) -> dict[str, NDArray[np.float64]]:
    """Agreement of the embeddings of several fits: R^2 after an affine fit, pair by pair.

    Identified latents are the same in every fit up to an affine map, so that fits which differ in
    their seed alone agree; it takes no ground truth to see it.

    Parameters
    ----------
    models : sequence of XCEBRA
        Two or more fitted models with the same blocks.
    X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        Activity to embed.

    Returns
    -------
    dict of str to ndarray of shape (n_models, n_models)
        For each block, and for ``"all"`` latents: entry ``[i, j]`` is the variance of model ``j``'s
        latents, mean over latents, that model ``i``'s explain; 1 on the diagonal.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
    >>> fits = [
    ...     xcebra.XCEBRA(2, 2, steps=20, random_state=seed).fit(rec.neural, rec.labels["z2"])
    ...     for seed in range(2)
    ... ]
    >>> {name: table.shape for name, table in consistency(fits, rec.neural).items()}
    {'label': (2, 2), 'time': (2, 2), 'all': (2, 2)}
    """
    if len(models) < 2:
        raise ValueError(f"models must hold 2 or more fitted models to compare, got {len(models)}")
    blocks = dict(models[0].blocks_)
    for number, model in enumerate(models[1:], start=1):
        if model.blocks_ != blocks:
            raise ValueError(
                f"models[{number}] has blocks {model.blocks_}, but models[0] has {blocks}; only "
                "models with the same blocks can be compared"
            )
    embeddings = [model.transform(X) for model in models]
    blocks["all"] = slice(0, max(block.stop for block in blocks.values()))
    return {
        name: np.array(
            [[_explained(z[:, block], other[:, block]) for other in embeddings] for z in embeddings]
        )
        for name, block in blocks.items()
    }


def affine(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """The source after the affine map that brings it nearest to the target.

    Parameters
    ----------
    source : ndarray of shape (n_times, n_source)
    target : ndarray of shape (n_times, n_target)

    Returns
    -------
    ndarray of shape (n_times, n_target)
    """
    design = np.column_stack([np.asarray(source, dtype=np.float64), np.ones(len(source))])
    return design @ np.linalg.lstsq(design, np.asarray(target, dtype=np.float64), rcond=None)[0]


def _explained(source: NDArray[Any], target: NDArray[Any]) -> float:
    return r_squared(target, affine(source, target))
