"""GELU together with its derivatives, in one pass over memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from xcebra.common.compiled import compiled, exp, f32

# Density of the standard normal distribution at 0.
DENSITY = 0.3989422804014327
_DENSITY, _HALF = f32(DENSITY), f32(0.5)
# The tail of the normal distribution beyond |a| is exp(-a^2 / 2) times a polynomial of
# 1 / (1 + s |a|), with an error of at most 7.5e-8 (Abramowitz and Stegun, 7.1.26).
_S = f32(0.3275911 * 0.7071067811865476)
_T1, _T2, _T3, _T4, _T5 = (
    f32(t / 2) for t in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)


def gelu_and_slope(a: Tensor, n_curved: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """GELU, its derivative, and its second derivative for the first rows.

    They are ``a Phi(a)``, ``Phi(a) + a phi(a)`` and ``(2 - a^2) phi(a)``, where ``Phi`` and ``phi``
    are the distribution and the density of the standard normal distribution.

    Parameters
    ----------
    a : Tensor of shape (n_rows, n_columns)
    n_curved : int
        Number of rows for which the second derivative is computed.

    Returns
    -------
    values, slope : Tensor of shape (n_rows, n_columns)
    curvature : Tensor of shape (n_curved, n_columns)
    """
    if a.device.type == "cpu" and a.dtype == torch.float32 and a.is_contiguous():
        values, slope, curvature = (torch.empty_like(t) for t in (a, a, a[:n_curved]))
        load()(*(t.detach().numpy().reshape(-1) for t in (a, values, slope, curvature)))
        return values, slope, curvature
    squared = a.square()
    density = (squared * -0.5).exp_().mul_(DENSITY)
    slope = torch.special.ndtr(a).addcmul_(a, density)
    return F.gelu(a), slope, (2 - squared[:n_curved]).mul_(density[:n_curved])


@functools.cache
def load() -> Any:
    """Make the compiled function. It is compiled, or read from disk, when it is first called."""
    return compiled(_gelu_and_slope)


def _gelu_and_slope(a, values, slope, curvature):  # type: ignore[no-untyped-def]
    """Compute GELU and its slope for all entries, and its curvature for the first ones."""
    for i in range(len(a)):
        v = a[i]
        e = exp(-_HALF * v * v)
        t = f32(1) / (f32(1) + _S * np.abs(v))
        tail = e * (t * (_T1 + t * (_T2 + t * (_T3 + t * (_T4 + t * _T5)))))
        below = tail if v < f32(0) else f32(1) - tail
        values[i] = v * below
        slope[i] = below + v * _DENSITY * e
    for i in range(len(curvature)):
        v = a[i]
        curvature[i] = (f32(2) - v * v) * _DENSITY * exp(-_HALF * v * v)
