"""The paper's tables and figures, and harder ones, as specifications run by one sweep."""

from __future__ import annotations

from xcebra.experiments.catalogue import EXPERIMENTS, Scale
from xcebra.experiments.reproduce import reproduce

__all__ = ["EXPERIMENTS", "Scale", "reproduce"]
