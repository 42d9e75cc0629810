"""The paper's tables and figures, and harder ones, as specifications run by one sweep."""

from __future__ import annotations

from xcebra.experiments.catalogue import EXPERIMENTS, Scale
from xcebra.experiments.real_data import RealFolder
from xcebra.experiments.reproduce import GRID_CELLS, REAL, reproduce
from xcebra.experiments.sources import GridCells

__all__ = ["EXPERIMENTS", "GRID_CELLS", "GridCells", "REAL", "RealFolder", "Scale", "reproduce"]
