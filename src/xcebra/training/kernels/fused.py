"""The kernel for float32 on the CPU: one exponential per pair, in blocks that stay in the cache.

The loops are compiled on first use (`xcebra.common.compiled`). The work is divided between as many
threads as torch uses (``torch.set_num_threads`` sets both). Each thread has its own sums, which are
added in a fixed order. Therefore the same number of threads gives the same bits.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from xcebra.common.compiled import MATHS, compiled, exp, f32
from xcebra.common.workers import Workers
from xcebra.training.kernels.contract import Contrast

_ROWS = 8  # references whose contributions to the negatives' gradients are added together
_DIMS = 4  # latents in one pass of a loop; points are padded with zeros to a multiple of it
_COLUMNS = 1024  # negatives in one block: four latents of them fit into the first-level cache
_FLUSH = 32 * _ROWS  # references after which partial sums are added, for a smaller rounding error
_LINE = 16  # numbers in a cache line
_SMALL = 1 << 18  # number of pairs up to which a second thread takes more time than it saves

_VANISHING = f32(1e-20)  # much larger than any sum of exponentials that are set to zero


def fused(
    reference: Tensor,
    negative: Tensor,
    matched: Tensor,
    euclidean: bool,
    include_positive: bool,
    gradient: bool,
    workers: Workers | None = None,
) -> Contrast:
    """Compute value and gradient in one pass; see `contrast` for the parameters."""
    n, d = reference.shape
    m = len(negative)
    centre = negative.mean(dim=0) if euclidean else torch.zeros(d)
    x = _padded((reference - centre).numpy())
    y = _aligned(x.shape[1], m)
    y[:, :m] = _padded((negative - centre).numpy()).T
    # No similarity is larger than its bound, so that no exponential overflows.
    longest = np.sqrt(np.square(y).sum(axis=0).max())
    bound = np.zeros(n, f32) if euclidean else np.linalg.norm(x, axis=1) * longest
    partition = np.empty(n, f32)
    weight = np.ones(n, f32)
    threads = torch.get_num_threads() if workers is None else workers.n
    threads = threads if n * m > _SMALL else 1
    to_x = np.zeros_like(x)
    # The last row is used for the euclidean similarity: the total share of each negative.
    to_y = [_aligned(d + 1, m if gradient else 0) for _ in range(threads)]
    borders = np.linspace(0, n, threads + 1).astype(np.int64)

    sweep = load()

    def work(thread: int) -> None:
        sweep(
            x, y, matched.numpy(), bound, euclidean, include_positive, gradient,
            borders[thread], borders[thread + 1], partition, weight, to_x, to_y[thread],
            _aligned(_ROWS, m), _aligned(*to_y[thread].shape), m,
        )  # fmt: skip

    if threads == 1:
        work(0)
    elif workers is not None:
        workers.divide(work)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    if not gradient:
        empty = torch.empty(0, 0)
        return Contrast(torch.from_numpy(partition), torch.from_numpy(weight), empty, empty)
    y, total = y[:, :m], np.sum(to_y, axis=0)[:, :m]
    if euclidean:
        to_x = 2 * (to_x - x * weight[:, None])
        total = 2 * (total[:-1] - y[:d] * total[-1])
    return Contrast(
        torch.from_numpy(partition),
        torch.from_numpy(weight),
        torch.from_numpy(np.ascontiguousarray(to_x[:, :d])),
        torch.from_numpy(np.ascontiguousarray(total[:d].T)),
    )


@functools.cache
def load() -> Any:
    """Make the compiled function. It is compiled, or read from disk, when it is first called."""
    return compiled(_sweep)


def _aligned(rows: int, columns: int) -> np.ndarray:
    """Make an array of zeros whose rows start at a cache line; it may have more columns."""
    columns = -(-columns // _LINE) * _LINE
    raw = np.zeros(rows * columns + _LINE, f32)
    first = (-raw.ctypes.data // raw.itemsize) % _LINE
    return raw[first : first + rows * columns].reshape(rows, columns)


def _padded(points: np.ndarray) -> np.ndarray:
    """Add columns of zeros up to a multiple of ``_DIMS``; they do not change similarities."""
    n, d = points.shape
    padded = np.zeros((n, -(-d // _DIMS) * _DIMS), f32)
    padded[:, :d] = points
    return padded


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _similarities(x, y, lo, euclidean, out):  # type: ignore[no-untyped-def]
    """Similarities of one reference with the negatives from ``lo`` on, four latents at a time."""
    hi = lo + len(out)
    for k in range(0, len(x), _DIMS):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        # Rows are selected before columns, so that the compiler knows that these are contiguous.
        y0, y1, y2, y3 = y[k][lo:hi], y[k + 1][lo:hi], y[k + 2][lo:hi], y[k + 3][lo:hi]
        if k == 0:
            if euclidean:
                for j in range(len(out)):
                    d0, d1, d2, d3 = x0 - y0[j], x1 - y1[j], x2 - y2[j], x3 - y3[j]
                    out[j] = -((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3))
            else:
                for j in range(len(out)):
                    out[j] = (x0 * y0[j] + x1 * y1[j]) + (x2 * y2[j] + x3 * y3[j])
        elif euclidean:
            for j in range(len(out)):
                d0, d1, d2, d3 = x0 - y0[j], x1 - y1[j], x2 - y2[j], x3 - y3[j]
                out[j] -= (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        else:
            for j in range(len(out)):
                out[j] += (x0 * y0[j] + x1 * y1[j]) + (x2 * y2[j] + x3 * y3[j])


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _exponentiate(values, shift):  # type: ignore[no-untyped-def]
    """Replace values by exp(values - shift) and return their sum."""
    total = f32(0)
    for j in range(len(values)):
        e = exp(values[j] - shift)
        values[j] = e
        total += e
    return total


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _add_weighted(values, y, lo, out):  # type: ignore[no-untyped-def]
    """Add the sum of the negatives from ``lo`` on, weighted by values, to ``out``."""
    hi = lo + len(values)
    for k in range(0, len(out), _DIMS):
        y0, y1, y2, y3 = y[k][lo:hi], y[k + 1][lo:hi], y[k + 2][lo:hi], y[k + 3][lo:hi]
        s0, s1, s2, s3 = f32(0), f32(0), f32(0), f32(0)
        for j in range(len(values)):
            v = values[j]
            s0 += v * y0[j]
            s1 += v * y1[j]
            s2 += v * y2[j]
            s3 += v * y3[j]
        out[k] += s0
        out[k + 1] += s1
        out[k + 2] += s2
        out[k + 3] += s3


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _add_shares(shares, lo, a, out):  # type: ignore[no-untyped-def]
    """Add eight rows of shares, each times its factor, to one row of the negatives' gradient."""
    a0, a1, a2, a3, a4, a5, a6, a7 = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    hi = lo + len(out)
    r0, r1, r2, r3 = shares[0][lo:hi], shares[1][lo:hi], shares[2][lo:hi], shares[3][lo:hi]
    r4, r5, r6, r7 = shares[4][lo:hi], shares[5][lo:hi], shares[6][lo:hi], shares[7][lo:hi]
    for j in range(len(out)):
        low = (a0 * r0[j] + a1 * r1[j]) + (a2 * r2[j] + a3 * r3[j])
        high = (a4 * r4[j] + a5 * r5[j]) + (a6 * r6[j] + a7 * r7[j])
        out[j] += low + high


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _row(x, y, euclidean, shift, gradient, shares, to_x):  # type: ignore[no-untyped-def]
    """Shares of all negatives for one reference, before normalisation; returns their sum."""
    total = f32(0)
    to_x[:] = f32(0)
    for lo in range(0, len(shares), _COLUMNS):
        block = shares[lo : lo + _COLUMNS]
        _similarities(x, y, lo, euclidean, block)
        total += _exponentiate(block, shift)
        if gradient:
            _add_weighted(block, y, lo, to_x)
    return total


@njit(nogil=True, fastmath=MATHS, forceinline=True)
def _largest(x, y, euclidean, m):  # type: ignore[no-untyped-def]
    """Largest similarity of one reference with all negatives. It is rarely needed."""
    largest = f32(-np.inf)
    for j in range(m):
        similarity = f32(0)
        for k in range(len(x)):
            difference = x[k] - y[k, j]
            similarity += -difference * difference if euclidean else x[k] * y[k, j]
        largest = max(largest, similarity)
    return largest


def _sweep(  # type: ignore[no-untyped-def]
    x, y, matched, bound, euclidean, include_positive, gradient,
    start, stop, partition, weight, to_x, to_y, shares, partial, m,
):  # fmt: skip
    """Compute values and gradients for the references from ``start`` to ``stop``."""
    d = len(to_y) - 1
    scale = np.zeros(_ROWS, f32)
    factors = np.zeros((d + 1, _ROWS), f32)
    for first in range(start, stop, _ROWS):
        scale[:] = f32(0)
        for r in range(min(_ROWS, stop - first)):
            i = first + r
            shift = bound[i]
            total = f32(0)
            # The loop, in place of a second call, halves the time that compiling takes.
            for attempt in range(2):
                total = _row(x[i], y, euclidean, shift, gradient, shares[r][:m], to_x[i])
                if total >= _VANISHING or np.isnan(total) or attempt == 1:
                    break
                # All are far below the bound: use the largest instead.
                shift = _largest(x[i], y, euclidean, m)
            partition[i] = shift + np.log(total)
            if include_positive:
                weight[i] = f32(1) / (f32(1) + np.exp(matched[i] - partition[i]))
            scale[r] = weight[i] / total
            to_x[i] *= scale[r]
            factors[:d, r] = x[i, :d] * scale[r]
        if gradient:
            factors[d] = scale
            for r in range(_ROWS):
                if scale[r] == f32(0):  # rows that still have values of the previous block
                    factors[:d, r] = f32(0)
            for lo in range(0, m, _COLUMNS):
                for k in range(d + euclidean):
                    _add_shares(shares, lo, factors[k], partial[k][:m][lo : lo + _COLUMNS])
            if (first - start) % _FLUSH == _FLUSH - _ROWS or first + _ROWS >= stop:
                to_y += partial
                partial[:] = f32(0)
