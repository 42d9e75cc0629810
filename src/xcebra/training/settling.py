"""When training is done: the losses and the derivatives of the encoder have settled.

The learning rate follows a schedule that is long enough for difficult recordings. Easy ones have
learned what they can learn before its end. The rest of the schedule, in which the learning rate
decreases, is then passed through several times as fast. The cost in quality was measured
(docs/recipe.md, "When training stops").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

# Number of steps between two looks at the history, and the number of steps of each of the two
# periods that are compared. Longer periods give more certain comparisons and later decisions; not
# tuned.
BETWEEN_LOOKS = 20
_PERIOD = 50
# Share of the steps before which nothing is decided: the penalty increases until a quarter of the
# steps, and both periods come after that.
_EARLIEST = 0.5
# Losses have settled if every objective gained less than this share of what it has learned (its
# chance level minus its loss) between the two periods, and the squared norm of the Jacobian changed
# by less than the second share, both with a probability of 97.5 % (two standard errors). Weak
# signals, whose losses are mostly noise, are therefore never called settled.
_LEAST_GAIN, _LEAST_CHANGE = 0.02, 0.05
# How many times as fast the rest of the schedule is passed through.
_FASTER = 4


def settled_at(history: Mapping[str, Sequence[float]], n_steps: int) -> int | None:
    """Find the first look at which training had settled.

    The result depends on the history alone, so that a resumed fit takes the same decision.

    Parameters
    ----------
    history : mapping of str to sequence of float
        Values of each step: ``loss/NAME`` and ``chance/NAME`` of every objective, and ``penalty``.
    n_steps : int
        Number of steps of the whole schedule.

    Returns
    -------
    int or None
        Number of steps that were taken before this look. None if training has not settled.
    """
    names = [name.removeprefix("loss/") for name in history if name.startswith("loss/")]
    n_taken = len(history[f"loss/{names[0]}"]) if names else 0
    first = max(math.ceil(_EARLIEST * n_steps), n_steps // 4 + 2 * _PERIOD)
    first = math.ceil(first / BETWEEN_LOOKS) * BETWEEN_LOOKS
    for look in range(first, n_taken + 1, BETWEEN_LOOKS):
        if _has_settled(history, names, look):
            return look
    return None


def _has_settled(history: Mapping[str, Sequence[float]], names: Sequence[str], look: int) -> bool:
    """Whether the last period before a look differs little from the one before it."""
    earlier, later = slice(look - 2 * _PERIOD, look - _PERIOD), slice(look - _PERIOD, look)
    for name in names:
        loss, chance = (np.asarray(history[f"{kind}/{name}"]) for kind in ("loss", "chance"))
        learned = chance - loss
        # A loss is unknown if a batch had no sample with this label.
        before, now = (part[np.isfinite(part)] for part in (learned[earlier], learned[later]))
        if not _changes_less(before, now, _LEAST_GAIN, upwards=True):
            return False
    penalty = np.asarray(history["penalty"])
    if not np.isfinite(penalty[later]).any():  # training without a penalty
        return True
    return _changes_less(penalty[earlier], penalty[later], _LEAST_CHANGE, upwards=False)


def _changes_less(before: np.ndarray, now: np.ndarray, share: float, *, upwards: bool) -> bool:
    """Whether a mean has certainly changed by less than a share of itself."""
    if min(len(before), len(now)) < 2:
        return False
    change = now.mean() - before.mean()
    change = max(change, 0.0) if upwards else abs(change)
    error = math.sqrt(before.var(ddof=1) / len(before) + now.var(ddof=1) / len(now))
    return bool(change + 2 * error < share * now.mean())


def place_in_schedule(step: int, settled: int | None) -> int:
    """Place of a step in the schedule, which is passed through faster after training settled."""
    return step if settled is None or step < settled else settled + _FASTER * (step - settled)


def steps_to_take(n_steps: int, settled: int | None) -> int:
    """Number of steps until the end of the schedule."""
    return n_steps if settled is None else settled + math.ceil((n_steps - settled) / _FASTER)
