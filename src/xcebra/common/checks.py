"""Checks of arguments that collect all problems, so that one error can report them together."""

from __future__ import annotations

from typing import Any

import numpy as np

from xcebra.common.errors import InputError, Problem


def choice(problems: list[str], name: str, value: Any, allowed: Any) -> None:
    """Add a problem to the list if a value is not one of the allowed values."""
    if value not in tuple(allowed):
        problems.append(Problem(f"{name} must be one of {list(allowed)}, got {value!r}", name))


def number(
    problems: list[str],
    name: str,
    value: Any,
    *,
    least: float,
    whole: bool = False,
    above: bool = False,
) -> None:
    """Add a problem to the list if a value is not a finite number in range; None is accepted.

    Parameters
    ----------
    problems : list of str
        Problems so far; a new one is appended.
    name : str
        Name of the argument.
    value : object
    least : float
        Lower limit.
    whole : bool
        Whether the number must be an integer.
    above : bool
        Whether the number must be larger than ``least``; otherwise it may also be equal to it.
    """
    if value is None:
        return
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    description = "a whole number" if whole else "a number"
    limit = f" above {least:g}" if above else f" of {least:g} or more"
    limit = "" if least == -np.inf else limit
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    # Comparisons with NaN are False, so that NaN is reported too.
    if not is_number or not np.isfinite(value) or not (value > least if above else value >= least):
        problems.append(Problem(f"{name} must be {description}{limit}, got {value!r}", name))


def raise_if(problems: list[str]) -> None:
    """Raise one error that lists all problems, if there are any."""
    if problems:
        named = [problem.argument for problem in problems if isinstance(problem, Problem)]
        raise InputError("; ".join(problems), tuple(dict.fromkeys(named)))
