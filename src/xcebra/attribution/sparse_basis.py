"""The sparse basis: axes of the embedding in which most neurons are unconnected.

If factors are correlated, the columns of a label's block contain a constant mixture of the other
columns. It is undone by adding the mixture of the other columns that leaves the fewest neurons
connected. The first measure of this is the sum of the neurons' norms. It is convex, and its minimum
is certified by a duality gap. From there, the sum of the logarithms of the norms is minimised,
which also works with fewer unconnected neurons.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xcebra.statistics.significance import typical

Array = NDArray[np.float64]

# Most iterations for the convex problem, and the relative duality gap at which it ends early. A
# smaller gap takes longer. Not tuned.
_MOST_ITERATIONS = 2000
_GAP = 1e-6
# Iterations also end if neither the best sum nor the best bound has changed by more than the gap
# above since as many iterations. Moments of two decoders can be negative where there is little
# signal; the problem is then not convex, and its gap does not close. Not tuned.
_BETWEEN_LOOKS = 100
# Largest relative duality gap of a mixture that is trusted. Not tuned: it is far above `_GAP`, so
# that it only excludes problems that were not solved.
_SOLVED = 1e-3
# Most iterations for the logarithmic problem. Not tuned.
_MOST_SHARPENING = 500
# Share of the median norm below which norms count as equally small in the logarithmic problem.
# Smaller values make the measure sharper and its minimisation harder. Not tuned.
_SHARPEST = 0.02
# Shares of the typical norm. Below the first, a neuron counts as unconnected. Below the second, it
# is perhaps unconnected, which is enough to try a mixture but not to trust it. Larger values count
# more neurons as unconnected. Not tuned.
_UNCONNECTED, _PERHAPS_UNCONNECTED = 0.4, 0.5
# Number of times that a fifth of the neurons is left out to compute the instability. More give a
# more exact median and take longer. Not tuned.
_LEAVE_OUT_TIMES = 10
# Largest instability and smallest share of unconnected neurons of a mixture that is trusted. They
# were chosen on dataset seeds 100 and above: they separate correct mixtures from wrong ones.
MOST_INSTABILITY = 0.08
LEAST_UNCONNECTED = 0.1
# Smallest floor of the logarithmic problem, as a share of the mean norm before. It is needed where
# most norms vanish and the median is near zero. Not tuned.
_LEAST_FLOOR = 1e-4
# Share of the typical norm before. A mixture that leaves less than this has removed the activity of
# the connected neurons. Correct mixtures of correlated factors left 0.77 to 1.02 (dataset seed 100,
# correlations up to 0.9). If latents also follow the label, a wrong mixture leaves almost nothing.
_LEAST_LEFT = 0.1
# The first is the largest share of the neurons that are unconnected without a mixture and that may
# become connected with it. A mixture above this has exchanged them for other neurons, and is only
# accepted if the others are clearly unconnected: below the second value, which is a share of the
# typical norm and which few neurons reach by chance.
_MOST_LOST, _CLEARLY_UNCONNECTED = 0.25, 0.2
# A mixture with a larger instability than this is noise. Correct mixtures had at most 0.22 (dataset
# seeds 100 and 101); one that gave foreign neurons higher scores than place cells had 0.5.
_MOST_UNSTABLE = 0.25


@dataclass(frozen=True, eq=False)
class Mixture:
    """The mixture that is added to a block's columns: ``A[:, block] + A[:, others] @ weights``.

    Parameters
    ----------
    weights : ndarray of shape (n_others, n_block)
        Weights of the other columns; zero if no mixture was accepted.
    before, after : ndarray of shape (n_neurons,)
        Root mean square over time of the norm of each neuron's row in the block, before and after
        the mixture is added.
    gap : float
        Relative duality gap of the convex problem, whose solution is the start of the logarithmic
        problem: an upper bound of the distance to the optimum.
    n_unconnected : int
        Number of neurons whose norm after is small compared with the typical one. They determine
        the mixture.
    n_before : int
        Number of such neurons without a mixture.
    instability : float
        Change of the block's columns, relative to the typical norm, when the mixture is computed
        without a fifth of the neurons.
    bends : ndarray of shape (n_others,)
        Share of each bent part that is removed as well; see `sparsest`. Without bent parts, it is
        empty or zero.

    Notes
    -----
    A mixture is refused, and the weights are zero, if it leaves fewer neurons unconnected than
    there are without it, if it exchanges the unconnected neurons for others, if it is unstable, or
    if it leaves little of the connected neurons. It is also refused if the unconnected neurons
    take no more directions over time than there are other columns, because any mixture can meet
    that many conditions.
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
        """Whether a mixture was accepted."""
        return bool(self.weights.any())

    @property
    def needed(self) -> bool:
        """Whether there are too few unconnected neurons without a mixture."""
        return self.n_before <= _few(len(self.weights), len(self.after))

    @property
    def trusted(self) -> bool:
        """Whether the mixture is based on enough neurons and is stable.

        If no mixture was accepted, this is True if enough neurons are unconnected without one.
        """
        if not self.found:
            return not self.needed
        enough = self.n_unconnected > LEAST_UNCONNECTED * len(self.after)
        solved = self.gap <= _SOLVED
        return solved and enough and self.instability <= MOST_INSTABILITY


@dataclass(frozen=True, eq=False)
class Bends:
    """Second moments of bent columns: ``A[:, j]`` times a known row ``r_j`` that changes over time.

    Parameters
    ----------
    with_others : ndarray of shape (n_neurons, n_others, n_block, n_bends)
        Moments with ``A[:, i]`` in column ``c`` of the block.
    with_block : ndarray of shape (n_neurons, n_bends)
        Moments with the block's columns.
    among : ndarray of shape (n_neurons, n_bends, n_bends)
        Moments among the bent columns.
    """

    with_others: Array
    with_block: Array
    among: Array

    def only(self, mask: NDArray[np.bool_]) -> Bends:
        """The same moments with zeros where the mask, of shape (n_bends,), is False."""
        return Bends(
            self.with_others * mask, self.with_block * mask, self.among * np.outer(mask, mask)
        )


def sparsest(
    moments: Array, block: slice, others: NDArray[np.int64], bends: Bends | None = None
) -> Mixture:
    """Find the mixture that makes a block's columns sparse over neurons.

    Let ``s_i(M)`` be the root mean square over time of ``|A[i, block] + A[i, others] M|``. The
    convex problem minimises the sum of ``s_i``. The logarithmic problem minimises the sum of
    ``log(s_i^2 + e^2)``, where ``e`` is a fiftieth of the median of ``s_i``. It is solved from two
    starts, the solution of the convex problem and zero, and the better result is used.

    With bends, ``sum_j a_j A[i, j] r_j`` is added inside the norm, and the ``a_j``, between 0 and
    1, are found together with ``M``.

    Parameters
    ----------
    moments : ndarray of shape (n_neurons, n_latents, n_latents)
        Mean over time of the outer product of each neuron's row of the map with itself.
    block : slice
        Columns of the block.
    others : ndarray of int of shape (n_others,)
        Columns that may be added.
    bends : Bends, optional

    Returns
    -------
    Mixture
    """
    own = np.arange(block.start, block.stop)
    plain = _Problem(
        moments[None, :, others[:, None], others],
        moments[None, :, others[:, None], own],
        np.einsum("nii->n", moments[:, own[:, None], own])[None],
    )
    shape = len(others), len(own)
    none, straight = np.zeros(shape), np.zeros(len(others))
    before = plain.norms(none[None])[0]
    if not before.any():
        return Mixture(none, before, before.copy(), 0.0, 0, 0.0, bends=straight)
    problem, n_bent = _allowed(plain, bends)
    mixtures, gaps = _sharpest(problem)
    weights, gap = mixtures[0], float(gaps[0])
    after = problem.norms(mixtures)[0]
    # Neurons whose map is zero contain no information about a mixture.
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
    instability = _instability(problem, mixtures)
    # Any mixture can set as many neurons to zero as it has columns, whether connected or not.
    clearly_more = more and (needed or n_after - n_before > len(others))
    refused = (
        n_after < n_before
        or (exchanged and clearly <= clearly_before + len(others))
        or _n_directions(plain.aa[0, perhaps]) <= len(others) + n_bent / len(own)
        or typical(after) < _LEAST_LEFT * typical(before)
        or instability > (_MOST_UNSTABLE if clearly_more else MOST_INSTABILITY)
    )
    if refused:
        return Mixture(none, before, before.copy(), gap, n_before, instability, n_before, straight)
    if bends is not None:
        weights, straight = weights[: none.size].reshape(shape), weights[none.size :, 0]
    return Mixture(weights, before, after, gap, n_after, instability, n_before, straight)


def _allowed(plain: _Problem, bends: Bends | None) -> tuple[_Problem, int]:
    """The problem with those bends whose share is between 0 and 1, and the number of them.

    A bend whose best share is outside of these limits does not describe a bent part of a latent
    and is left out.
    """
    if bends is None:
        return plain, 0
    size = plain.ab[0, 0].size
    allowed = np.einsum("nii->i", bends.among) > 0
    while True:
        problem = _bent(plain, bends.only(allowed))
        undone = _sharpest(problem)[0][0, size:, 0]
        outside = allowed & ((undone < 0) | (undone > 1))
        if not outside.any():
            return problem, int(allowed.sum())
        allowed = allowed & ~outside


def _bent(plain: _Problem, bends: Bends) -> _Problem:
    """The problem in which every entry of the mixture and every bend is a separate unknown."""
    _, n, n_others, n_block = plain.ab.shape
    of_mixture = np.einsum("nij,cd->nicjd", plain.aa[0], np.eye(n_block))
    size = n_others * n_block
    crossed = bends.with_others.reshape(n, size, -1)
    whole = np.concatenate(
        [
            np.concatenate([of_mixture.reshape(n, size, size), crossed], axis=2),
            np.concatenate([crossed.transpose(0, 2, 1), bends.among], axis=2),
        ],
        axis=1,
    )
    with_block = np.concatenate([plain.ab[0].reshape(n, size), bends.with_block], axis=1)
    return _Problem(whole[None], with_block[None, :, :, None], plain.bb)


def _few(n_others: int, n_neurons: int) -> float:
    """Number of unconnected neurons up to which a mixture is needed."""
    return max(n_others, LEAST_UNCONNECTED * n_neurons)


def _below(share: float, norms: Array) -> NDArray[np.bool_]:
    """Whether each norm is below a share of the typical norm."""
    return np.asarray(norms < share * typical(norms))


def _n_directions(moments: Array) -> float:
    """Number of directions that neurons take in the other columns over time, summed over neurons.

    Each direction is a condition that the mixture has to meet. A neuron whose row has a constant
    direction counts as one; a neuron whose direction changes over time counts more, by the
    participation ratio of its moments.
    """
    trace = np.einsum("nii->n", moments)
    squares = np.square(moments).sum(axis=(1, 2))
    known = (trace > 0) & (squares > 0)
    return float((trace[known] ** 2 / squares[known]).sum())


def _sharpest(problem: _Problem) -> tuple[Array, Array]:
    """The mixtures with the fewest connected neurons, and the gaps of the convex problems."""
    convex, gap = problem.least_sum()
    none = np.zeros_like(convex)
    floor = _SHARPEST * np.median(problem.norms(convex), axis=1)
    floor = np.maximum(floor, _LEAST_FLOOR * problem.norms(none).mean(axis=1))
    starts, floors = np.concatenate([convex, none]), np.tile(floor, 2)
    candidates = problem.repeated(2).least_log_sum(starts, floors)
    log_sums = problem.repeated(2).log_sum(candidates, floors).reshape(2, -1)
    n_problems = len(convex)
    better = np.arange(n_problems) + n_problems * np.argmin(log_sums, axis=0)
    return candidates[better], gap


def _instability(problem: _Problem, weights: Array) -> float:
    """Change of a mixture without a fifth of the neurons: the median of several random draws."""
    n = problem.bb.shape[1]
    usual = typical(problem.norms(weights)[0])
    rng = np.random.default_rng(0)
    n_kept = max(1, round(0.8 * n))
    draws = [np.sort(rng.permutation(n)[:n_kept]) for _ in range(_LEAVE_OUT_TIMES)]
    changes = _sharpest(problem.only(np.array(draws)))[0] - weights
    squares = np.einsum("nij,dik,djk->dn", problem.aa[0], changes, changes, optimize=True)
    moved = np.sqrt(np.maximum(squares, 0.0)).mean(axis=1)
    return float(np.median(moved)) / max(usual, float(np.finfo(float).tiny))


@dataclass(frozen=True, eq=False)
class _Problem:
    """Second moments of each neuron's columns, for one or several sets of neurons.

    Several problems of the same size are solved together, because single iterations are so small
    that most of their time is spent outside of the arithmetic.

    Parameters
    ----------
    aa : ndarray of shape (n_problems, n_neurons, n_unknowns, n_unknowns)
        Moments among the other columns.
    ab : ndarray of shape (n_problems, n_neurons, n_unknowns, n_sets)
        Moments of the other columns with those of the block. Each column of a mixture is a set of
        unknowns, and all sets have the same moments ``aa``.
    bb : ndarray of shape (n_problems, n_neurons)
        Sum of the squares of the block's columns.
    """

    aa: Array
    ab: Array
    bb: Array

    def only(self, neurons: NDArray[np.int64]) -> _Problem:
        """The first problem with some of the neurons.

        ``neurons`` are indices of shape (n_problems, n_kept), one row for each new problem.
        """
        return _Problem(self.aa[0, neurons], self.ab[0, neurons], self.bb[0, neurons])

    def repeated(self, n: int) -> _Problem:
        """All problems, ``n`` times one after the other."""
        return _Problem(*(np.concatenate([values] * n) for values in (self.aa, self.ab, self.bb)))

    def norms(self, m: Array) -> Array:
        """Norms ``s_i`` of the neurons with mixtures ``m``.

        ``m`` has shape (n_problems, n_unknowns, n_sets), the result (n_problems, n_neurons).
        """
        square = self.bb + 2 * self._with_block(m)
        products = m @ m.transpose(0, 2, 1)
        n_problems, n = self.bb.shape
        square += (self.aa.reshape(n_problems, n, -1) @ products.reshape(n_problems, -1, 1))[..., 0]
        return np.sqrt(np.maximum(square, 0.0))

    def _with_block(self, m: Array) -> Array:
        """Moments of the mixtures with the block's columns, of shape (n_problems, n_neurons)."""
        n_problems, n = self.bb.shape
        return np.asarray(
            (self.ab.reshape(n_problems, n, -1) @ m.reshape(n_problems, -1, 1))[..., 0]
        )

    def weighted(self, w: Array) -> Array:
        """The mixtures with the smallest weighted sum of squares.

        ``w`` are weights of shape (n_problems, n_neurons). If there are many such mixtures, it is
        the one with the smallest norm.
        """
        n_problems, n, n_unknowns, n_sets = self.ab.shape
        rows = w[:, None]
        inner = (rows @ self.aa.reshape(n_problems, n, -1)).reshape(-1, n_unknowns, n_unknowns)
        cross = (rows @ self.ab.reshape(n_problems, n, -1)).reshape(-1, n_unknowns, n_sets)
        # The pseudo-inverse of symmetric matrices. Numpy's own also sorts the singular values, and
        # takes most of the time of an iteration.
        values, vectors = np.linalg.eigh(inner)
        sizes = np.abs(values)
        kept = sizes > 1e-12 * sizes.max(axis=1, keepdims=True)
        inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
        along = vectors.transpose(0, 2, 1) @ cross
        return -vectors @ (inverse[:, :, None] * along)

    def least_sum(self) -> tuple[Array, Array]:
        """Minimise the sum of norms by iteratively reweighted least squares.

        The weights of each iteration, scaled into the unit balls, are a feasible point of the dual
        problem and give a lower bound of the optimum. Iterations end when the gap between the best
        sum and the best bound is small.

        Returns
        -------
        ndarray of shape (n_problems, n_unknowns, n_sets)
            The mixtures.
        ndarray of shape (n_problems,)
            The relative duality gaps.
        """
        n_problems, _, n_unknowns, n_sets = self.ab.shape
        best = np.zeros((n_problems, n_unknowns, n_sets))
        norms = self.norms(best)
        least, bound = norms.sum(axis=1), np.zeros(n_problems)
        # The mean is used because the median is zero if most neurons are silent or unconnected.
        scale = np.where(least > 0, norms.mean(axis=1), 1.0)
        soft = scale
        active = np.ones(n_problems, dtype=bool)
        last_least, last_bound = least, bound
        for step in range(_MOST_ITERATIONS):
            w = 1 / np.sqrt(norms**2 + soft[:, None] ** 2)
            m = self.weighted(w)
            norms = self.norms(m)
            along = self._with_block(m) + self.bb
            feasible = np.maximum(1.0, (w * norms).max(axis=1))
            lower = (w * along).sum(axis=1) / feasible
            bound = np.where(active, np.maximum(bound, lower), bound)
            better = active & (norms.sum(axis=1) < least)
            best = np.where(better[:, None, None], m, best)
            least = np.where(better, norms.sum(axis=1), least)
            active &= least - bound > _GAP * least
            if step % _BETWEEN_LOOKS == _BETWEEN_LOOKS - 1:
                gained = np.maximum(last_least - least, bound - last_bound)
                active &= gained > _GAP * least
                last_least, last_bound = least, bound
            if not active.any():
                break
            # Norms are roots of sums in which terms cancel. Smaller norms are rounding errors, and
            # a bound computed from them would not be valid.
            soft = np.maximum(0.7 * soft, 1e-7 * scale)
        # Because of rounding, the bound can be above an optimum of zero.
        return best, np.maximum(0.0, least - bound) / np.maximum(least, np.finfo(float).tiny)

    def log_sum(self, m: Array, floor: Array) -> Array:
        """The sums of logarithms, a sharper measure of how many neurons are connected.

        ``floor`` and the result have shape (n_problems,).
        """
        return np.log(self.norms(m) ** 2 + _positive(floor)[:, None] ** 2).sum(axis=1)

    def least_log_sum(self, m: Array, floor: Array) -> Array:
        """Minimise the sums of logarithms, from mixtures ``m``, with a falling softening."""
        floor = _positive(floor)
        soft = np.maximum(np.median(self.norms(m), axis=1), floor)
        active = np.ones(len(m), dtype=bool)
        for _ in range(_MOST_SHARPENING):
            moved = self.weighted(1 / (self.norms(m) ** 2 + soft[:, None] ** 2))
            change, size = np.abs(moved - m).max(axis=(1, 2)), np.abs(moved).max(axis=(1, 2))
            m = np.where(active[:, None, None], moved, m)
            active &= (soft > floor) | (change > 1e-9 * np.maximum(1e-300, size))
            if not active.any():
                break
            soft = np.maximum(0.95 * soft, floor)
        return m


def _positive(floor: Array) -> Array:
    """Replace zeros, which only problems without any activity have, by ones."""
    return np.where(floor > 0, floor, 1.0)
