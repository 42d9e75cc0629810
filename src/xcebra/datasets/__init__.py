"""Simulated recordings with known wiring, and public recordings."""

from __future__ import annotations

from xcebra.datasets.grid_cells import grid_cells
from xcebra.datasets.head_direction import head_direction, head_direction_file
from xcebra.datasets.mouse_grid_cells import mouse_grid_cells
from xcebra.datasets.navigation import navigation
from xcebra.datasets.synthetic import synthetic

__all__ = [
    "grid_cells",
    "head_direction",
    "head_direction_file",
    "mouse_grid_cells",
    "navigation",
    "synthetic",
]
