"""The paper's rule for the penalty, found while training: as high as every objective bears.

From the end of the warm-up a twin of the encoder goes on without the penalty, on the same batches.
It is the floor: by how much an objective's loss lies above its twin's is the penalty's doing, and
neither the luck of a batch nor the progress of training. The weight rises while all objectives stay
within what they may lose, falls back when one does not, and is then held. The path depends on the
history alone, so that a resumed run takes the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# What an objective may lose, as a share of what it learned: of chance less the twin's loss.
# Chosen on dataset seeds 110 to 114.
MAY_LOSE = 0.05
_FIRST, _LAST = 1 / 8, 3 / 8
_SPEED = 5.0
_START = 1 / 4
_RECENT = 0.1
_LEAST_LEARNED = 3.0
# Beyond this many times the usual weight, or below as much of it, it is not looked for.
_REACH = 16.0

Rows = Mapping[str, Sequence[float]]


def searches(step: int, steps: int) -> bool:
    """Whether the twin is needed at a step."""
    begin, end = _span(steps)
    return begin <= step < end


def weight_at(step: int, steps: int, usual: float, names: Sequence[str], rows: Rows) -> float:
    """The weight of a step, from the steps before it.

    Parameters
    ----------
    step, steps : int
    usual : float
        The recipe's weight; the search begins at a quarter of it.
    names : sequence of str
        Of the objectives.
    rows : mapping of str to sequence of float
        The history so far.
    """
    begin, end = _span(steps)
    if step < begin:
        return 0.0
    if step == begin or begin >= end:
        return usual * _START
    recent = max(1, round((end - begin) * _RECENT))
    if step < end:
        pressure = _pressure(names, rows, slice(max(begin, step - recent), step))
        change = _SPEED / (end - begin) * float(np.clip(1 - pressure, -1, 1))
        return _within(rows["weight"][step - 1] * float(np.exp(change)), usual)
    if step == end:
        # What is lost grows about as the weight: the last quarter says what is still amiss.
        last = slice(end - max(1, (end - begin) // 4), end)
        pressure = _pressure(names, rows, last)
        held = float(np.exp(np.mean(np.log(rows["weight"][last]))))
        return _within(held / float(np.clip(pressure, 0.5, 2.0)), usual)
    return rows["weight"][step - 1]


def _span(steps: int) -> tuple[int, int]:
    """First step of the search, and the one after its last."""
    return int(steps * _FIRST), int(steps * _LAST)


def _within(weight: float, usual: float) -> float:
    return float(np.clip(weight, usual / _REACH, usual * _REACH))


def _pressure(names: Sequence[str], rows: Rows, when: slice) -> float:
    """What the objectives lose over what they may: that of the one which suffers most.

    An objective that has learned nothing has nothing to lose. If none has, the weight stays.
    """
    found = []
    for name in names:
        loss, chance, lost = (
            np.array(rows[f"{k}/{name}"][when]) for k in ("loss", "chance", "lost")
        )
        known = ~np.isnan(chance)
        if not known.any():
            continue
        learned = (chance - loss + lost)[known]
        error = learned.std() / np.sqrt(len(learned))
        if learned.mean() > _LEAST_LEARNED * error:
            found.append(lost[known].mean() / (MAY_LOSE * learned.mean()))
    return float(max(found, default=1.0))
