"""Which neurons carry this behaviour? Identifiable attribution maps for neural time series."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from xcebra import caveats, datasets, metrics, selection
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.module import attribute
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import read, write

try:
    __version__ = version("xcebra")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "XCEBRA",
    "AttributionMap",
    "Recording",
    "attribute",
    "caveats",
    "datasets",
    "metrics",
    "read",
    "selection",
    "write",
]
