"""A table of text, and how it is written as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.reproduce.statistics import Interval

ALSO = ("csv", "tex")
_LATEX = {
    **{letter: f"\\{letter}" for letter in "%&_#${}"},
    **{letter: f"\\{letter}{{}}" for letter in "^~"},
    "\\": r"\textbackslash{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
}


@dataclass(frozen=True)
class Table:
    """A table whose cells are text.

    Parameters
    ----------
    title : str
    columns : tuple of str
        Names of the columns.
    rows : tuple of tuple of str
        Cells of each row, as many as there are columns.
    notes : tuple of str
        Notes to the table, written below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(f"a row has {len(row)} cells for {len(self.columns)} columns")

    def markdown(self) -> str:
        """Return the table as Markdown, with title and notes."""
        lines = [f"## {self.title}", "", _markdown_line(self.columns)]
        lines.append(_markdown_line(["---"] * len(self.columns)))
        lines += [_markdown_line(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Return the column names and cells as comma-separated values."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def latex(self) -> str:
        """Return the table in LaTeX; it needs the package booktabs."""
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_escaped(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [_latex_line(self.columns), r"\midrule"]
        lines += [_latex_line(row) for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {_escaped(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"


def write(tables: Sequence[Table], folder: Path, name: str, also: Sequence[str] = ()) -> list[Path]:
    """Write tables to one Markdown file and, depending on ``also``, to LaTeX and CSV files.

    LaTeX is one file for all tables; CSV is one file per table.
    """
    written = {f"{name}.md": "\n".join(table.markdown() for table in tables)}
    if "tex" in also:
        written[f"{name}.tex"] = "\n".join(table.latex() for table in tables)
    if "csv" in also:
        for number, table in enumerate(tables, start=1):
            tail = "" if len(tables) == 1 else f"-{number}"
            written[f"{name}{tail}.csv"] = table.csv()
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in written.items():
        with atomically(folder / file) as partial:
            partial.write_text(text, encoding="utf-8")
    return [folder / file for file in written]


def per_cent(value: Interval, best: bool = False) -> str:
    """Format a share in per cent, with its interval and number of recordings."""
    mean = f"{100 * value.mean:.1f}"
    mean = f"**{mean}**" if best else mean
    return f"{mean} [{100 * value.low:.1f}, {100 * value.high:.1f}] n={value.n_datasets}"


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(cell) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
    text = "".join(_LATEX.get(letter, letter) for letter in text)
    parts = text.split("**")
    if len(parts) % 2 == 0:  # the last pair of stars has no partner
        parts[-2:] = ["**".join(parts[-2:])]
    return "".join(rf"\textbf{{{p}}}" if i % 2 else p for i, p in enumerate(parts))
