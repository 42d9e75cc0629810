"""With what, and when, a result was made."""

from __future__ import annotations

import time
from importlib.metadata import version

_PACKAGES = ("xcebra", "torch", "numpy", "numba", "scikit-learn", "scipy")


def made_with() -> dict[str, str]:
    """Versions of the packages that decide what a fit finds."""
    return {name: version(name) for name in _PACKAGES}


def now() -> str:
    """The time, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
