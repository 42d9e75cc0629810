"""Axes of the embedding in which a map is sparse.

If factors are correlated, the columns of a label's block carry a constant mixture of the other
columns. It is undone by the mixture that leaves the fewest neurons connected. The sum of the
neurons' norms is a convex measure of that, minimised here to a certified optimum; from there, the
sum of their logarithms, which bears fewer unconnected neurons, is followed down to its minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xcebra.statistics.significance import typical

Array = NDArray[np.float64]

_MOST_ITERATIONS = 2000
_GAP = 1e-6
_SOLVED = 1e-3
_MOST_SHARPENING = 500
# Of the median norm: residuals below it count as equally small.
_SHARPEST = 0.02
# Of the typical norm: below the first a neuron counts as unconnected; up to the second it may be,
# which is enough to try a mixture and not to trust it.
_UNCONNECTED, _PERHAPS_UNCONNECTED = 0.4, 0.5
_LEAVE_OUT_TIMES = 10
# Chosen on dataset seeds 100 and above: mixtures that were right lie on one side, wrong ones on the
# other.
MOST_INSTABILITY = 0.08
LEAST_UNCONNECTED = 0.1
# Of the mean norm before: what the median may not fall below where most residuals vanish.
_LEAST_FLOOR = 1e-4
# Of the typical norm before: a mixture that leaves less than this has explained the connected
# neurons away with the others. Right mixtures of correlated factors left 0.77 to 1.02 (dataset
# seed 100, correlations up to 0.9); where latents follow the label too, a wrong one leaves next to
# nothing.
_LEAST_LEFT = 0.1
# Of the neurons that are unconnected without a mixture, how many may not stay so with it: a mixture
# that exchanges them for others has turned the map over, unless the others are clearly unconnected,
# that is, below this share of the typical norm, which few are by chance.
_MOST_LOST, _CLEARLY_UNCONNECTED = 0.25, 0.2
# A mixture that changes by more than this without a fifth of the neurons is made of noise. Right
# ones changed by at most 0.22 (dataset seeds 100 and 101), one that put foreign neurons above place
# cells by 0.5.
_MOST_UNSTABLE = 0.25


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
    n_unconnected : int
        Neurons whose norm after is small beside the typical one: what the mixture is found by.
    n_before : int
        Neurons of which that is true without any mixture. A mixture that leaves fewer than that, or
        others than these, is not taken, nor one whose unconnected neurons take no more directions
        over time than there are other columns, since any mixture meets as many conditions, nor one
        that is unstable or leaves little of the connected neurons: the weights are then zero.
    instability : float
        By how much the block's columns change, over the typical norm, when the mixture is found
        without a fifth of the neurons.
    bends : ndarray of shape (n_others,)
        How much of what bends in the other columns' relation to the block is undone as well; see
        `sparsest`. Without any, it is empty.
    """

    weights: Array
    before: Array
    after: Array
    gap: float
    n_unconnected: int
    instability: float
    n_before: int = 0
    bends: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def found(self) -> bool:
        """Whether a mixture was found that leaves more neurons unconnected than chance would."""
        return bool(self.weights.any())

    @property
    def needed(self) -> bool:
        """Whether there were too few unconnected neurons to do without a mixture."""
        return self.n_before <= _few(len(self.weights), len(self.after))

    @property
    def trusted(self) -> bool:
        """Whether it rests on more than a few neurons, and others would have told the same.

        No mixture is trusted where enough neurons are unconnected without one.
        """
        if not self.found:
            return not self.needed
        enough = self.n_unconnected > LEAST_UNCONNECTED * len(self.after)
        solved = self.gap <= _SOLVED
        return solved and enough and self.instability <= MOST_INSTABILITY


@dataclass(frozen=True, eq=False)
class Bends:
    """Second moments of columns that change over time: ``A[:, j]`` times a known row ``r_j``.

    Parameters
    ----------
    with_others : ndarray of shape (n_neurons, n_others, n_block, n_bends)
        With ``A[:, i]`` in column ``c`` of the block.
    with_block : ndarray of shape (n_neurons, n_bends)
        With the block's columns.
    among : ndarray of shape (n_neurons, n_bends, n_bends)
    """

    with_others: Array
    with_block: Array
    among: Array

    def only(self, kept: NDArray[np.bool_]) -> Bends:
        """The same with zeros for the others."""
        return Bends(
            self.with_others * kept, self.with_block * kept, self.among * np.outer(kept, kept)
        )


def sparsest(
    moments: Array, block: slice, others: NDArray[np.int64], bends: Bends | None = None
) -> Mixture:
    """Find the mixture that makes a block's columns sparse over neurons.

    Let ``s_i(M)`` be the root mean square over time of ``|A[i, block] + A[i, others] M|``. The
    convex problem is the least sum of ``s_i``; the sharper one, solved from there and from no
    mixture at all, the least sum of ``log(s_i^2 + e^2)`` with ``e`` a fiftieth of the median.

    With bends, ``sum_j a_j A[i, j] r_j`` is added inside the norm, and the ``a_j``, between 0 and
    1, are found together with ``M``.

    Parameters
    ----------
    moments : ndarray of shape (n_neurons, n_latents, n_latents)
        Mean over time of the outer product of each neuron's row of the map with itself.
    block : slice
    others : ndarray of int
        Columns that may be added.
    bends : Bends, optional
    """
    mine = np.arange(block.start, block.stop)
    plain = _Problem(
        moments[:, others[:, None], others],
        moments[:, others[:, None], mine],
        np.einsum("nii->n", moments[:, mine[:, None], mine]),
    )
    shape = len(others), len(mine)
    none, straight = np.zeros(shape), np.zeros(len(others))
    before = plain.norms(none)
    if not before.any():
        return Mixture(none, before, before.copy(), 0.0, 0, 0.0, bends=straight)
    problem, n_bent = _allowed(plain, bends)
    weights, gap = _sharpest(problem)
    after = problem.norms(weights)
    # Neurons that never move tell nothing of a mixture.
    silent = np.einsum("nii->n", moments) == 0
    perhaps, perhaps_before = (_below(_PERHAPS_UNCONNECTED, s) & ~silent for s in (after, before))
    free, free_before = (_below(_UNCONNECTED, s) & ~silent for s in (after, before))
    n_after, n_before = int(free.sum()), int(free_before.sum())
    needed = n_before <= _few(len(others), len(before))
    more = n_after > n_before or (needed and perhaps.sum() > perhaps_before.sum())
    clearly, clearly_before = (
        int((_below(_CLEARLY_UNCONNECTED, s)).sum()) for s in (after, before)
    )
    exchanged = int((free_before & ~perhaps).sum()) > max(len(others), _MOST_LOST * n_before)
    instability = _instability(problem, weights)
    # A mixture can make as many neurons vanish as it has columns, whatever they carry.
    clearly_more = more and (needed or n_after - n_before > len(others))
    refused = (
        n_after < n_before
        or (exchanged and clearly <= clearly_before + len(others))
        or _n_directions(plain.aa[perhaps]) <= len(others) + n_bent / len(mine)
        or typical(after) < _LEAST_LEFT * typical(before)
        or instability > (_MOST_UNSTABLE if clearly_more else MOST_INSTABILITY)
    )
    if refused:
        return Mixture(none, before, before.copy(), gap, n_before, instability, n_before, straight)
    if bends is not None:
        weights, straight = weights[: none.size].reshape(shape), weights[none.size :, 0]
    return Mixture(weights, before, after, gap, n_after, instability, n_before, straight)


def _allowed(plain: _Problem, bends: Bends | None) -> tuple[_Problem, int]:
    """The problem with those bends of which a part is undone, and the number of them.

    At most all of a bend can be undone. One that would be undone more than that, or made worse,
    stands for something else and is left out.
    """
    if bends is None:
        return plain, 0
    size = plain.ab[0].size
    kept = np.einsum("nii->i", bends.among) > 0
    while True:
        problem = _bent(plain, bends.only(kept))
        undone = _sharpest(problem)[0][size:, 0]
        outside = kept & ((undone < 0) | (undone > 1))
        if not outside.any():
            return problem, int(kept.sum())
        kept = kept & ~outside


def _bent(plain: _Problem, bends: Bends) -> _Problem:
    """The problem with every entry of the mixture and every bend as one unknown of its own."""
    n, n_others, n_block = plain.ab.shape
    of_mixture = np.einsum("nij,cd->nicjd", plain.aa, np.eye(n_block))
    size = n_others * n_block
    both = bends.with_others.reshape(n, size, -1)
    whole = np.concatenate(
        [
            np.concatenate([of_mixture.reshape(n, size, size), both], axis=2),
            np.concatenate([both.transpose(0, 2, 1), bends.among], axis=2),
        ],
        axis=1,
    )
    with_block = np.concatenate([plain.ab.reshape(n, size), bends.with_block], axis=1)
    return _Problem(whole, with_block[:, :, None], plain.bb)


def _few(n_others: int, n_neurons: int) -> float:
    """Up to how many unconnected neurons a mixture is not to be done without."""
    return max(n_others, LEAST_UNCONNECTED * n_neurons)


def _below(share: float, norms: Array) -> NDArray[np.bool_]:
    return np.asarray(norms < share * typical(norms))


def _n_directions(moments: Array) -> float:
    """Directions that neurons take in the other columns over time, added up over neurons.

    Each gives the mixture a condition to meet. A neuron whose row keeps its direction gives one;
    one whose direction changes over time gives more, by the participation ratio of its moments.
    """
    trace = np.einsum("nii->n", moments)
    squares = np.square(moments).sum(axis=(1, 2))
    known = (trace > 0) & (squares > 0)
    return float((trace[known] ** 2 / squares[known]).sum())


def _sharpest(problem: _Problem) -> tuple[Array, float]:
    """The mixture with the fewest connected neurons, and the gap of the convex problem."""
    convex, gap = problem.least_sum()
    none = np.zeros_like(convex)
    floor = _SHARPEST * float(np.median(problem.norms(convex)))
    floor = max(floor, _LEAST_FLOOR * float(problem.norms(none).mean()))
    tried = [problem.least_log_sum(start, floor) for start in (convex, none)]
    return min(tried, key=lambda m: problem.log_sum(m, floor)), gap


def _instability(problem: _Problem, weights: Array) -> float:
    """By how much a mixture changes without a fifth of the neurons, the median of several."""
    n = len(problem.bb)
    usual = typical(problem.norms(weights))
    rng = np.random.default_rng(0)
    changes = []
    for _ in range(_LEAVE_OUT_TIMES):
        kept = problem.only(np.sort(rng.permutation(n)[: max(1, round(0.8 * n))]))
        change = (_sharpest(kept)[0] if kept.bb.any() else 0.0) - weights
        moved = np.sqrt(np.maximum(np.einsum("nij,ik,jk->n", problem.aa, change, change), 0.0))
        changes.append(float(moved.mean()) / max(usual, float(np.finfo(float).tiny)))
    return float(np.median(changes))


@dataclass(frozen=True, eq=False)
class _Problem:
    """Second moments of each neuron's other columns, of those with the block's, of the block's.

    Shapes are (n_neurons, n_unknowns, n_unknowns), (n_neurons, n_unknowns, n_sets) and
    (n_neurons,): the columns of a mixture are sets of unknowns that share their moments.
    """

    aa: Array
    ab: Array
    bb: Array

    def only(self, neurons: NDArray[np.int64]) -> _Problem:
        """The same problem with some of the neurons."""
        return _Problem(self.aa[neurons], self.ab[neurons], self.bb[neurons])

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
        # The mean, as the median is zero where most neurons are silent or unconnected.
        scale = soft = float(norms.mean())
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
            # Norms are roots of sums that cancel: what is smaller is rounding, and a bound that
            # leans on it would not hold.
            soft = max(0.7 * soft, 1e-7 * scale)
        # Rounding can lift the bound above an optimum of zero.
        return best, max(0.0, least - bound) / max(least, float(np.finfo(float).tiny))

    def log_sum(self, m: Array, floor: float) -> float:
        """The sharper measure of how many neurons are connected."""
        return float(np.log(self.norms(m) ** 2 + floor**2).sum())

    def least_log_sum(self, m: Array, floor: float) -> Array:
        """Follow the logarithmic measure down from a mixture, sharpening it on the way."""
        soft = max(float(np.median(self.norms(m))), floor)
        for _ in range(_MOST_SHARPENING):
            before = m
            m = self.weighted(1 / (self.norms(m) ** 2 + soft**2))
            settled = np.abs(m - before).max() <= 1e-9 * max(1e-300, np.abs(m).max())
            if soft <= floor and settled:
                break
            soft = max(0.95 * soft, floor)
        return m
