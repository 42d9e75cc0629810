"""Classical scores of navigation cells: rate maps, grid score, mean vector length, speed score.

Each score relates one neuron to one behaviour. ``activity`` always has shape (n_times, n_neurons)
and holds firing rates, or spike counts in time steps of equal length. Samples whose behaviour is
NaN are left out.
"""

from xcebra.statistics.binned_means import means_by_bin
from xcebra.statistics.grid_score import autocorrelogram, grid_score
from xcebra.statistics.heading_and_speed import (
    head_direction_curves,
    mean_vector_length,
    speed_score,
)
from xcebra.statistics.rate_maps import RateMaps, rate_maps, spatial_information

# This module is the public name of these scores (docs/api.md). Within the package, they are
# imported from the modules that define them.
__all__ = [
    "RateMaps",
    "rate_maps",
    "spatial_information",
    "autocorrelogram",
    "grid_score",
    "head_direction_curves",
    "mean_vector_length",
    "means_by_bin",
    "speed_score",
]
