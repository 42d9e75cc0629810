"""Which neurons carry this behaviour? Identifiable attribution maps for neural time series."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcebra import caveats, datasets, metrics, plots, report, selection, sweep
    from xcebra.attribution.attribution_map import AttributionMap
    from xcebra.attribution.module import attribute
    from xcebra.attribution.pooled import PooledMaps, pool
    from xcebra.data.recording import Recording
    from xcebra.estimator import XCEBRA
    from xcebra.io import read, write

__all__ = [
    "XCEBRA",
    "AttributionMap",
    "PooledMaps",
    "Recording",
    "attribute",
    "caveats",
    "datasets",
    "metrics",
    "plots",
    "pool",
    "read",
    "report",
    "selection",
    "sweep",
    "write",
]

# Where each name is defined. It is imported when it is first used, so that starting is quick.
_HOMES = {
    "XCEBRA": "xcebra.estimator",
    "AttributionMap": "xcebra.attribution.attribution_map",
    "PooledMaps": "xcebra.attribution.pooled",
    "Recording": "xcebra.data.recording",
    "attribute": "xcebra.attribution.module",
    "pool": "xcebra.attribution.pooled",
    "read": "xcebra.io",
    "write": "xcebra.io",
}

try:
    __version__ = version("xcebra")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'xcebra' has no attribute {name!r}")
    home = _HOMES.get(name)
    value = import_module(f"xcebra.{name}") if home is None else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
