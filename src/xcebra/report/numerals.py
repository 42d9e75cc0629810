"""Numbers as text, without those that cannot be or that say nothing."""

from __future__ import annotations

from xcebra.statistics.block_gains import N_SHIFTS

# The smallest p-value that the rank among the shifts can have.
LEAST_P = 1 / (N_SHIFTS + 1)
NONE_OR_LESS = "0 or less"


def score(value: float, digits: int = 3) -> str:
    """Return a score with some significant digits, and no minus sign in front of a zero."""
    return f"{value:z.{digits}g}"


def share(value: float) -> str:
    """Return a share of the variance in percent; values below zero are noise of its estimate."""
    if value < 0.0005:
        return NONE_OR_LESS
    return f"{100 * value:.1f} %"


def percent(value: float) -> str:
    """Return a mean share in whole percent."""
    return NONE_OR_LESS if value < 0.005 else f"{100 * value:.0f} %"


def r_squared(value: float, digits: int = 2) -> str:
    """Return a held-out R², which has no meaning below zero."""
    return NONE_OR_LESS if value < 0.5 * 10**-digits else f"{value:.{digits}f}"


def p_value(value: float) -> str:
    """Return a p-value; smaller ones than the number of shifts can show are not written out."""
    # Half of the least distinguishes it from values that are equal apart from rounding.
    if value < LEAST_P * (1 - 1e-9):
        return f"< {LEAST_P:g}"
    return f"{value:.2g}"
