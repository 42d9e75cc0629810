"""Learning rates as functions of the training step."""

from __future__ import annotations

import math


def one_cycle(step: int, steps: int, peak: float, *, rise: float) -> float:
    """Learning rate of a step in a one-cycle schedule.

    It increases linearly to ``peak`` over a share ``rise`` of the steps, then decreases along a
    half cosine to 0.005 of the peak.
    """
    n_rising = max(1, int(steps * rise))
    if step < n_rising:
        return peak * (step + 1) / n_rising
    done = (step - n_rising) / max(1, steps - n_rising)
    return peak * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * done)))
