"""Boxes that are visited everywhere alike, one metre along x, and their rate maps."""

import numpy as np

from xcebra.statistics.rate_maps import RateMaps

UNIT = ((0, 1), (0, 1))


def centres(n_x=40, n_y=None):
    """Positions of bin centres in bins of 1 / n_x, shape (n_x, n_y, 2)."""
    axes = [(np.arange(n) + 0.5) / n_x for n in (n_x, n_y or n_x)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def visits(n_x=40, times=1):
    """Positions that visit every bin equally often."""
    return np.repeat(centres(n_x).reshape(-1, 2), times, axis=0)


def as_maps(rates):
    """Rate maps of such a box."""
    rates = np.asarray(rates, dtype=float)
    n_x, n_y = rates.shape[1:]
    return RateMaps(
        rates, np.ones((n_x, n_y)), (np.arange(n_x + 1) / n_x, np.arange(n_y + 1) / n_x)
    )
