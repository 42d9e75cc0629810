"""Checks that collect every problem with what a user gave, to raise once."""

from __future__ import annotations

from typing import Any

import numpy as np

from xcebra.common.errors import InputError, Problem


def choice(problems: list[str], name: str, value: Any, allowed: Any) -> None:
    """Note a problem if a value is not among those allowed."""
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
    """Note a problem if a value is not a number in range; None passes."""
    if value is None:
        return
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    sort = "a whole number" if whole else "a number"
    limit = f" above {least:g}" if above else f" of {least:g} or more"
    limit = "" if least == -np.inf else limit
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    # Written so that NaN fails too.
    if not is_number or not np.isfinite(value) or not (value > least if above else value >= least):
        problems.append(Problem(f"{name} must be {sort}{limit}, got {value!r}", name))


def raise_if(problems: list[str]) -> None:
    """Raise one error that tells every problem found, if there are any."""
    if problems:
        named = [problem.argument for problem in problems if isinstance(problem, Problem)]
        raise InputError("; ".join(problems), tuple(dict.fromkeys(named)))
