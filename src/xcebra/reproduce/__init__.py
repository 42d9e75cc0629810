"""The paper's tables and figures, harder tables, and the benchmark on real recordings.

Each table or figure is a list of work items, which `xcebra.sweep.sweep` runs.
"""

from __future__ import annotations

from xcebra.reproduce.catalogue import EXPERIMENTS, Scale
from xcebra.reproduce.real.data import RealFolder
from xcebra.reproduce.run import GRID_CELLS, REAL, reproduce
from xcebra.reproduce.sources import GridCells

__all__ = ["EXPERIMENTS", "GRID_CELLS", "GridCells", "REAL", "RealFolder", "Scale", "reproduce"]
