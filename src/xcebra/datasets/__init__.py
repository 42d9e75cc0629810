"""Recordings with known wiring."""

from __future__ import annotations

from xcebra.datasets.synthetic import synthetic

__all__ = ["synthetic"]
