"""The paper's tables and figures, and harder ones, as specifications run by one sweep."""

from __future__ import annotations

from xcebra.reproduce.catalogue import EXPERIMENTS, Scale
from xcebra.reproduce.real.data import RealFolder
from xcebra.reproduce.run import GRID_CELLS, REAL, reproduce
from xcebra.reproduce.sources import GridCells

__all__ = ["EXPERIMENTS", "GRID_CELLS", "GridCells", "REAL", "RealFolder", "Scale", "reproduce"]
