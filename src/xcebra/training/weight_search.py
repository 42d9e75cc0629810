"""Search for the weight of the penalty during training, by the paper's rule.

The rule is to use the largest weight at which every objective stays near its minimum. After the
warm-up, a copy of the encoder (the twin) is trained without the penalty on the same batches. The
difference between the loss of an objective and that of the twin is the effect of the penalty; it
depends neither on the batch nor on the progress of training. The weight increases while all
objectives have lost less than they may lose, and decreases if one has lost more. After the search
it is constant. The weight depends only on the history, so that a resumed run uses the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Largest loss that the penalty may cause, as a share of what an objective has learned: the chance
# level minus the loss of the twin. Chosen on dataset seeds 110 to 114.
MAY_LOSE = 0.05
# Begin and end of the search, as shares of the steps (docs/method.md, "Finding lambda"). A longer
# search is more precise and takes more time; not tuned.
_FIRST, _LAST = 1 / 8, 3 / 8
# Largest change of the logarithm of the weight over the whole search. Larger values reach distant
# weights, but the weight fluctuates more; not tuned.
_SPEED = 5.0
# Weight at the beginning of the search, as a share of the usual weight; not tuned.
_START = 1 / 4
# Share of the search over which losses are averaged. Larger values give less noisy, but later
# reactions; not tuned.
_RECENT = 0.1
# An objective counts if it has learned more than this many standard errors. Larger values ignore
# more objectives; not tuned.
_LEAST_LEARNED = 3.0
# Largest ratio of the weight to the usual weight, in either direction; not tuned.
_REACH = 16.0

# The history of training by name; see `xcebra.training.checkpoints.History`.
Rows = Mapping[str, Sequence[float]]


def searches(step: int, steps: int) -> bool:
    """Whether the twin is needed at a step."""
    begin, end = _span(steps)
    return begin <= step < end


def weight_at(step: int, steps: int, usual: float, names: Sequence[str], rows: Rows) -> float:
    """Return the weight of a step, which depends on the steps before it.

    Parameters
    ----------
    step, steps : int
    usual : float
        The weight of the recipe. The search begins at a quarter of it.
    names : sequence of str
        Names of the objectives.
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
        # The loss that the penalty causes is roughly proportional to the weight. The last quarter
        # of the search gives the final correction.
        last = slice(end - max(1, (end - begin) // 4), end)
        pressure = _pressure(names, rows, last)
        held = float(np.exp(np.mean(np.log(rows["weight"][last]))))
        return _within(held / float(np.clip(pressure, 0.5, 2.0)), usual)
    return rows["weight"][end]


def _span(steps: int) -> tuple[int, int]:
    """First step of the search, and the step after its last one."""
    return int(steps * _FIRST), int(steps * _LAST)


def _within(weight: float, usual: float) -> float:
    """Limit the weight to the allowed range around the usual weight."""
    return float(np.clip(weight, usual / _REACH, usual * _REACH))


def _pressure(names: Sequence[str], rows: Rows, when: slice) -> float:
    """Ratio of the loss that the penalty causes to the allowed loss, the largest of all objectives.

    Objectives that have learned nothing are ignored. If all are ignored, the ratio is 1, and the
    weight does not change.
    """
    ratios = []
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
            ratios.append(lost[known].mean() / (MAY_LOSE * learned.mean()))
    return float(max(ratios, default=1.0))
