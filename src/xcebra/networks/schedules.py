"""Learning rates over the steps of a training."""

from __future__ import annotations

import math


def one_cycle(step: int, steps: int, peak: float, *, rise: float) -> float:
    """Up to the peak over a share ``rise`` of the steps, then down a half cosine to 0.005 of it."""
    rising = max(1, int(steps * rise))
    if step < rising:
        return peak * (step + 1) / rising
    done = (step - rising) / max(1, steps - rising)
    return peak * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * done)))
