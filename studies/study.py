"""What all studies share: run the items, keep the rows, and print the answer."""

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
    """Run the missing items of a study, then print and write its answer.

    With the command-line argument ``table``, nothing is run.

    Parameters
    ----------
    name : str
        Name of the files in ``results/studies``.
    work : callable
        Measures one item.
    items : sequence
    answer : callable
        Makes the answer from the finished rows, in Markdown.
    """
    rows = RowFile(RESULTS / f"{name}.jsonl")
    if sys.argv[1:] == ["table"]:
        done = list(rows.finished(items).values())
    else:
        done = sweep(work, items, rows, progress=sys.stderr.isatty())
    tell(name, answer(done), f"{len(done)} of {len(items)} pieces of work")


def tell(name: str, answer: str, extent: str) -> None:
    """Print an answer, and write it to the file that the documentation includes."""
    text = f"{answer}\n\nMade with xcebra {version('xcebra')}: {extent}.\n"
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def interval(values: Sequence[float]) -> str:
    """Format the mean and half the width of its 95 % interval (Student's t)."""
    half = student_t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.4f} ± {half:.4f}"
