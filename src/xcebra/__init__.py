"""Which neurons carry this behaviour? Identifiable attribution maps for neural time series."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from xcebra import caveats, datasets, metrics, selection
from xcebra.estimator import XCEBRA
from xcebra.formats import read, write
from xcebra.maps import AttributionMap
from xcebra.module_maps import attribute
from xcebra.recording import Recording

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
