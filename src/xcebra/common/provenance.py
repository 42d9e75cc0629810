"""With what, and when, a result was made."""

from __future__ import annotations

import time
from importlib.metadata import version

# Finished rows of sweeps are used again as long as this stays. Raise it, to the version of the
# release, when a change makes fits, maps or tests give other numbers; a new version of the package
# alone leaves it as it is.
RESULTS_VERSION = "0.4.0"
_PACKAGES = ("xcebra", "torch", "numpy", "numba", "scikit-learn", "scipy")


def made_with() -> dict[str, str]:
    """Versions of the packages that decide what a fit finds."""
    return {name: version(name) for name in _PACKAGES}


def now() -> str:
    """The time, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
