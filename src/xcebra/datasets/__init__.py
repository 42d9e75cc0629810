"""Recordings with known wiring."""

from __future__ import annotations

from xcebra.datasets.navigation import navigation
from xcebra.datasets.synthetic import synthetic

__all__ = ["navigation", "synthetic"]
