"""Compiled loops for float32 on the CPU, and an exponential that can be used inside them.

Numba compiles a loop on first use and stores it on disk. All inner functions are inlined into the
function that is stored. Otherwise, the process that compiles them would use another compiled form
than later processes, whose last bits differ, and a resumed fit must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

f32 = np.float32
# The compiler may reorder sums, so that it can use vector registers. NaN and inf are handled.
MATHS = {"contract", "reassoc", "nsz", "arcp"}

_LOG2_E = f32(1.4426950408889634)
_LEAST_POWER = f32(-100)  # powers of 2 below 2**-100 are set to zero; see `exp`
_ROUND = f32(1.5 * 2**23)  # adding and subtracting it rounds to a whole number
# Coefficients of the polynomial for 2**f on [-1/2, 1/2] with the smallest maximum of the relative
# error, 9.1e-8. It is exact at 0.
_C1, _C2, _C3, _C4, _C5 = (
    f32(c)
    for c in (0.693146977599, 0.240222420854, 0.0555073374347, 0.00967151263995, 0.00132647271394)
)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, or load it from disk; store it if possible.

    While it runs, other Python threads can run too.
    """
    options = {"nogil": True, "fastmath": MATHS, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # there is no folder that can be written to
        return njit(**options)(function)


@intrinsic
def _bits(typing_context, number):  # type: ignore[no-untyped-def]
    """Read the bits of a float32 as an int32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _from_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """Read the bits of an int32 as a float32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(fastmath={"contract"}, forceinline=True)
def exp(v):  # type: ignore[no-untyped-def]
    """exp(v) for v <= 0, without a function call, so that loops with it can be vectorised.

    The order of its operations is fixed. Results below 2**-100 are zero: products of smaller
    numbers would be denormal, and arithmetic with denormal numbers is ten times slower.

    The relative error is at most ``2.5e-7 + 7.5e-8 * abs(v)``. The second part comes from the
    rounding of ``v * log2(e)``.
    """
    t = v * _LOG2_E
    vanishes = t <= _LEAST_POWER
    t = max(t, _LEAST_POWER)
    whole = t + _ROUND
    f = t - (whole - _ROUND)
    p = f32(1) + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * _C5))))
    e = _from_bits(_bits(p) + (_bits(whole) << np.int32(23)))
    e = f32(0) if vanishes else e
    return v if np.isnan(v) else e
