"""Colours, markers, fonts and files of figures that are made for talks and papers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xcebra.common.errors import InputError, MissingExtraError
from xcebra.common.files import atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito (2008), which people with any colour vision can tell apart, without
# yellow and black. More groups than colours are told apart by their markers.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#8a8f94"
FORMATS = (".png", ".svg", ".pdf")
# Fonts of 9 to 12 points stay legible in the size in which figures are shown on slides.
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.9,
    "legend.frameon": False,
    # Text in an SVG file stays text, which can be searched and edited.
    "svg.fonttype": "none",
    # Without it, the names of elements in an SVG file would differ from run to run.
    "svg.hashsalt": "xcebra",
}


@contextmanager
def talk_style() -> Iterator[Any]:
    """Apply the style inside a ``with`` statement and provide `matplotlib.pyplot`.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError(
            "plots need matplotlib; install it with: pip install 'xcebra[plot]'"
        ) from error
    with plt.rc_context(_STYLE):
        yield plt


def save(figure: Figure | Axes | Any, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write a figure to a file; text in SVG files stays text.

    Parameters
    ----------
    figure : Figure, Axes or array of Axes
        What one of the functions of this module has returned, or its figure.
    path : path
        It ends in .png, .svg or .pdf.
    dpi : int
        Dots per inch of a PNG file.

    Returns
    -------
    Path
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"path={str(path)!r} must end in {', '.join(FORMATS)}", ("path",))
    if isinstance(figure, np.ndarray):
        figure = figure.flat[0]
    drawn: Any = getattr(figure, "figure", figure)
    # Without a date, the same figure is the same file.
    metadata = {} if path.suffix.lower() == ".png" else {"Date": None}
    if path.suffix.lower() == ".pdf":
        metadata = {"CreationDate": None}
    with talk_style(), atomically(path) as temporary:
        drawn.savefig(
            temporary,
            format=path.suffix.lower()[1:],
            dpi=dpi,
            bbox_inches="tight",
            metadata=metadata,
        )
    return path


def plain_text(text: Any) -> str:
    """Return a text that matplotlib shows as it is, and does not read as mathematics."""
    return str(text).replace("$", r"\$")


def group_styles(groups: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each group; neurons without a group are grey.

    Parameters
    ----------
    groups : sequence of str
        Different names, in the order in which they get their colours.
    """
    named = [group for group in groups if group != "missing"]
    styles = {
        group: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, group in enumerate(named)
    }
    return {group: styles.get(group, (GREY, "o")) for group in groups}
