"""Provenance of results: versions of packages, and the current time."""

from __future__ import annotations

import time
from importlib.metadata import version

# Finished rows of sweeps are reused as long as this value is unchanged. Set it to the version of
# the next release when a change makes fits, maps or tests give other numbers. Do not change it for
# a release that gives the same numbers.
RESULTS_VERSION = "0.5.0"
_PACKAGES = ("xcebra", "torch", "numpy", "numba", "scikit-learn", "scipy")


def made_with() -> dict[str, str]:
    """Versions of the packages that affect the result of a fit."""
    return {name: version(name) for name in _PACKAGES}


def now() -> str:
    """The current time in UTC, in ISO 8601 format."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
