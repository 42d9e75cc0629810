"""What all studies share: recordings fitted side by side, rows kept, the answer printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from xcebra.sweep import Row, RowFile, Work, sweep

RESULTS = Path(__file__).parents[1] / "results" / "studies"


def run(
    name: str, work: Work, items: Sequence[Any], answer: Callable[[Sequence[Row]], str]
) -> None:
    """Do what is missing, unless asked for the ``table`` alone, and tell the answer."""
    rows = RowFile(RESULTS / f"{name}.jsonl")
    if sys.argv[1:] == ["table"]:
        done = list(rows.finished(items).values())
    else:
        done = sweep(work, items, rows, progress=sys.stderr.isatty())
    tell(name, answer(done), f"{len(done)} of {len(items)} pieces of work")


def tell(name: str, answer: str, extent: str) -> None:
    """Print an answer, and keep it for the documentation."""
    text = f"{answer}\n\nMade with xcebra {version('xcebra')}: {extent}.\n"
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval."""
    half = student_t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.4f} ± {half:.4f}"
