"""Axes of the embedding in which a map is sparse.

If factors are correlated, the columns of a label's block carry a constant mixture of the other
columns. It is undone by the mixture that leaves the fewest neurons connected: a convex problem in
the second moments of the map, solved here to a certified optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST_ITERATIONS = 2000
_GAP = 1e-6


@dataclass(frozen=True, eq=False)
class Mixture:
    """What to add to a block's columns: ``A[:, block] + A[:, others] @ weights``.

    Parameters
    ----------
    weights : ndarray of shape (n_others, n_block)
    before, after : ndarray of shape (n_neurons,)
        Root mean square over time of the norm of each neuron's row, before and after.
    gap : float
        Duality gap over the optimum: how far from it the solution can be at most.
    """

    weights: Array
    before: Array
    after: Array
    gap: float


def sparsest(moments: Array, block: slice, others: NDArray[np.int64]) -> Mixture:
    """Minimise over ``M`` the sum over neurons of the r.m.s. of ``A[i, block] + A[i, others] M``.

    Parameters
    ----------
    moments : ndarray of shape (n_neurons, n_latents, n_latents)
        Mean over time of the outer product of each neuron's row of the map with itself.
    block : slice
    others : ndarray of int
        Columns that may be added.
    """
    mine = np.arange(block.start, block.stop)
    # In units of the block's and the others' typical size, so that tolerances mean the same.
    size = np.sqrt(np.einsum("nii->i", moments))
    size = np.where(size > 0, size, 1.0)
    scaled = moments / np.outer(size, size)
    aa = scaled[:, others[:, None], others]
    ab = scaled[:, others[:, None], mine]
    bb = np.einsum("nii->n", scaled[:, mine[:, None], mine])
    m, gap = _solve(aa, ab, bb)
    weights = m * size[mine] / size[others][:, None]
    return Mixture(
        weights,
        _norms(moments, mine, others, np.zeros_like(weights)),
        _norms(moments, mine, others, weights),
        gap,
    )


def _solve(aa: Array, ab: Array, bb: Array) -> tuple[Array, float]:
    """Iteratively reweighted least squares, until the duality gap closes.

    The weights of a step give a feasible point of the dual problem, once scaled into the unit
    balls: each step comes with a lower bound of the optimum.
    """
    m = np.zeros(ab.shape[1:])
    norms = _residuals(aa, ab, bb, m)
    soft = np.median(norms) + 1e-300
    best, least, bound = m, norms.sum(), 0.0
    ridge = 1e-12 * np.trace(aa.sum(axis=0)) * np.eye(len(m))
    for _ in range(_MOST_ITERATIONS):
        w = 1 / np.sqrt(norms**2 + soft**2)
        m = -np.linalg.solve(
            np.einsum("n,nij->ij", w, aa) + ridge * w.mean(), np.einsum("n,nij->ij", w, ab)
        )
        norms = _residuals(aa, ab, bb, m)
        along = np.einsum("nij,ij->n", ab, m) + bb
        bound = max(bound, float((w * along).sum() / max(1.0, float((w * norms).max()))))
        if norms.sum() < least:
            best, least = m, norms.sum()
        if least - bound <= _GAP * least:
            break
        soft = max(0.7 * soft, 1e-9 * (np.median(norms) + 1e-300))
    return best, float((least - bound) / max(least, 1e-300))


def _residuals(aa: Array, ab: Array, bb: Array, m: Array) -> Array:
    square = bb + 2 * np.einsum("nij,ij->n", ab, m) + np.einsum("nij,ik,jk->n", aa, m, m)
    return np.sqrt(np.maximum(square, 0.0))


def _norms(moments: Array, mine: NDArray[np.int64], others: NDArray[np.int64], m: Array) -> Array:
    return _residuals(
        moments[:, others[:, None], others],
        moments[:, others[:, None], mine],
        np.einsum("nii->n", moments[:, mine[:, None], mine]),
        m,
    )
