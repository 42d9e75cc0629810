"""Simulated recordings with known wiring, and public recordings."""

from __future__ import annotations

from xcebra.datasets.grid_cells import grid_cells
from xcebra.datasets.navigation import navigation
from xcebra.datasets.synthetic import synthetic

__all__ = ["grid_cells", "navigation", "synthetic"]
