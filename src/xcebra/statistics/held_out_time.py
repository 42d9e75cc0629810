"""Held-out time: contiguous stretches of a recording, assigned to a few folds in turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The recording is cut into 20 contiguous stretches of time, assigned to 4 folds in turn. More
# stretches spread each fold more evenly over the recording; longer ones are more independent of
# their neighbours. Not tuned.
N_STRETCHES, N_FOLDS = 20, 4


def stretches(n: int) -> NDArray[np.int64]:
    """Number of the stretch that each of ``n`` consecutive samples belongs to."""
    return np.arange(n) * N_STRETCHES // n


def folds(n: int) -> NDArray[np.int64]:
    """Number of the fold that each of ``n`` consecutive samples belongs to."""
    return stretches(n) % N_FOLDS
