"""Axes of the embedding in which a map is sparse.

If factors are correlated, the columns of a label's block carry a constant mixture of the other
columns. It is undone by the mixture that leaves the fewest neurons connected. The sum of the
neurons' norms is a convex measure of that, minimised here to a certified optimum; from there, the
sum of their logarithms, which bears fewer unconnected neurons, is followed down to its minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST_ITERATIONS = 2000
_GAP = 1e-6
_MOST_SHARPENING = 500
# Of the median norm: residuals below it count as equally small.
_SHARPEST = 0.05


@dataclass(frozen=True, eq=False)
class Mixture:
    """What to add to a block's columns: ``A[:, block] + A[:, others] @ weights``.

    Parameters
    ----------
    weights : ndarray of shape (n_others, n_block)
    before, after : ndarray of shape (n_neurons,)
        Root mean square over time of the norm of each neuron's row, before and after.
    gap : float
        Relative duality gap of the convex problem: how far from its optimum its solution, from
        which the weights were sharpened, can be at most.
    """

    weights: Array
    before: Array
    after: Array
    gap: float


def sparsest(moments: Array, block: slice, others: NDArray[np.int64]) -> Mixture:
    """Find the mixture that makes a block's columns sparse over neurons.

    Let ``s_i(M)`` be the root mean square over time of ``|A[i, block] + A[i, others] M|``. The
    convex problem is the least sum of ``s_i``; the sharper one, solved from there and from no
    mixture at all, the least sum of ``log(s_i^2 + e^2)`` with ``e`` a twentieth of the median.

    Parameters
    ----------
    moments : ndarray of shape (n_neurons, n_latents, n_latents)
        Mean over time of the outer product of each neuron's row of the map with itself.
    block : slice
    others : ndarray of int
        Columns that may be added.
    """
    mine = np.arange(block.start, block.stop)
    problem = _Problem(
        moments[:, others[:, None], others],
        moments[:, others[:, None], mine],
        np.einsum("nii->n", moments[:, mine[:, None], mine]),
    )
    convex, gap = problem.least_sum()
    floor = _SHARPEST * float(np.median(problem.norms(convex)))
    tried = [problem.least_log_sum(start, floor) for start in (convex, np.zeros_like(convex))]
    weights = min(tried, key=lambda m: problem.log_sum(m, floor))
    return Mixture(weights, problem.norms(np.zeros_like(weights)), problem.norms(weights), gap)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Second moments of each neuron's other columns, of those with the block's, of the block's."""

    aa: Array
    ab: Array
    bb: Array

    def norms(self, m: Array) -> Array:
        """``s_i`` of a mixture."""
        square = self.bb + 2 * np.einsum("nij,ij->n", self.ab, m)
        square += np.einsum("nij,ik,jk->n", self.aa, m, m)
        return np.sqrt(np.maximum(square, 0.0))

    def weighted(self, w: Array) -> Array:
        """The mixture with the least weighted sum of squares; the shortest if there are many."""
        return -np.linalg.pinv(np.tensordot(w, self.aa, 1), rcond=1e-12, hermitian=True) @ (
            np.tensordot(w, self.ab, 1)
        )

    def least_sum(self) -> tuple[Array, float]:
        """Iteratively reweighted least squares, until the duality gap closes.

        The weights of a step give a feasible point of the dual problem, once scaled into the unit
        balls: each step comes with a lower bound of the optimum.
        """
        best = np.zeros(self.ab.shape[1:])
        norms = self.norms(best)
        least, bound = float(norms.sum()), 0.0
        tiny = float(np.finfo(float).tiny)
        soft = float(np.median(norms)) + tiny
        for _ in range(_MOST_ITERATIONS):
            w = 1 / np.sqrt(norms**2 + soft**2)
            m = self.weighted(w)
            norms = self.norms(m)
            along = np.einsum("nij,ij->n", self.ab, m) + self.bb
            bound = max(bound, float((w * along).sum() / max(1.0, float((w * norms).max()))))
            if norms.sum() < least:
                best, least = m, float(norms.sum())
            if least - bound <= _GAP * least:
                break
            soft = max(0.7 * soft, 1e-9 * float(np.median(norms)), tiny)
        return best, (least - bound) / max(least, tiny)

    def log_sum(self, m: Array, floor: float) -> float:
        """The sharper measure of how many neurons are connected."""
        return float(np.log(self.norms(m) ** 2 + floor**2 + np.finfo(float).tiny).sum())

    def least_log_sum(self, m: Array, floor: float) -> Array:
        """Follow the logarithmic measure down from a mixture, sharpening it on the way."""
        soft = max(float(np.median(self.norms(m))), float(np.finfo(float).tiny))
        for _ in range(_MOST_SHARPENING):
            before = m
            m = self.weighted(1 / (self.norms(m) ** 2 + soft**2))
            settled = np.abs(m - before).max() <= 1e-9 * max(1e-300, np.abs(m).max())
            if soft <= floor and settled:
                break
            soft = max(0.95 * soft, floor, float(np.finfo(float).tiny))
        return m
