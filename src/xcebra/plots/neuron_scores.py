"""Figures of single neurons for one block: sorted by their score, or by groups such as areas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.groups import GroupBy, group_names, group_title
from xcebra.common.checks import number, raise_if
from xcebra.plots.style import COLOURS, GREY, group_styles, plain_text, talk_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xcebra.attribution.attribution_map import AttributionMap

# Neurons are named on the axis up to this number; more names would overlap.
_MOST_NAMES = 40
# Size of a marker in points for few neurons, and for hundreds.
_LARGE, _SMALL = 7.0, 3.5
_WIDTH, _HEIGHT = 7.0, 3.2
# Characters in a row of the legend, with four for each marker: about the width of a figure. A wider
# legend would leave no place for the axes.
_LEGEND_LETTERS = 110
# Up to this number of groups, there is room for whole words below them.
_MOST_WORDY = 5


def neurons(
    amap: AttributionMap,
    block: str,
    *,
    group_by: GroupBy | None = None,
    ax: Axes | None = None,
    most: int | None = None,
    alpha: float = 0.05,
    doubt: str | None = None,
) -> Axes:
    """Scores of all neurons for a block, highest first, with the result of the test below.

    Markers are filled for neurons that are called connected. If the block was tested, a second
    panel shows the share of each neuron's variance that only this block explains, with its
    interval of 95 %.

    Parameters
    ----------
    amap : AttributionMap
    block : str
    group_by : str or sequence of str, optional
        Column of ``amap.units`` that gives the colours, such as the area, or several columns.
    ax : Axes, optional
        Axes for the scores. If the block was tested, the panel of the test takes the lower half of
        their place.
    most : int, optional
        Show only this many neurons, those with the highest scores.
    alpha : float
        False discovery rate of the neurons that are called connected.
    doubt : str, optional
        Reason why the scores must not be read, for instance that the label was not found. It
        becomes the title; all neurons are drawn in grey, and none as connected.

    Returns
    -------
    Axes
        The axes of the scores.

    Examples
    --------
    >>> ax = plots.neurons(amap, "heading", group_by="location")      # doctest: +SKIP
    >>> plots.save(ax, "heading.svg")                                 # doctest: +SKIP
    """
    problems: list[str] = []
    number(problems, "most", most, least=1, whole=True)
    raise_if(problems)
    scores = amap.block(block)
    groups = None if group_by is None else group_names(amap.units, group_by)
    called = _called(amap, block, alpha, doubt)
    order = np.argsort(-scores, kind="stable")[:most]
    size = float(np.clip(_LARGE * np.sqrt(30 / len(order)), _SMALL, _LARGE))
    tested = amap.connections.get(block) if doubt is None else None
    with talk_style() as plt:
        if ax is None:
            height = _HEIGHT * (1.6 if tested is not None else 1.0)
            ax = plt.subplots(figsize=(_WIDTH, height), layout="constrained")[1]
        below = _lower_panel(ax) if tested is not None else None
        styles = _styles(groups, doubt)
        places = np.arange(len(order))
        for group, (colour, marker) in styles.items():
            inside = np.ones(len(order), bool) if groups is None else groups[order] == group
            if below is not None and tested is not None:
                low, share, high = (
                    100 * part[order] for part in (tested.low, tested.share, tested.high)
                )
                below.vlines(
                    places[inside],
                    low[inside],
                    high[inside],
                    color=colour,
                    lw=np.clip(size / 4, 0.6, 1.6),
                )
                _markers(below, places, share, inside, called[order], colour, marker, size)
            _markers(ax, places, scores[order], inside, called[order], colour, marker, size)
        _finish_scores(ax, block, doubt)
        last = ax
        if below is not None:
            below.axhline(0, color="0.6", lw=0.8, zorder=0)
            below.set_ylabel(f"variance that only\n{plain_text(block)} explains (%)")
            ax.tick_params(labelbottom=False)
            last = below
        _name_places(last, [amap.neuron_names[i] for i in order])
        last.set_xlabel("neuron, highest score first")
        ax.set_xlim(-0.6, len(order) - 0.4)
        _legend(ax, styles if groups is not None else {}, tested is not None, alpha)
    return ax


def groups(
    amap: AttributionMap,
    column: GroupBy,
    block: str,
    *,
    ax: Axes | None = None,
    alpha: float = 0.05,
    doubt: str | None = None,
) -> Axes:
    """Scores of the neurons of each group, with the number of connected neurons.

    The line is the mean score of a group. The interval of the share of connected neurons is written
    below each group; it treats the neurons as independent, which neurons of one session are not.

    Parameters
    ----------
    amap : AttributionMap
    column : str or sequence of str
        Column of ``amap.units`` that makes the groups, such as the area, or several columns.
    block : str
    ax : Axes, optional
    alpha : float
        False discovery rate of the neurons that are called connected.
    doubt : str, optional
        Reason why the scores must not be read; see `neurons`.
    """
    names = group_names(amap.units, column)
    scores = amap.block(block)
    rows = amap.by(column, alpha=alpha).scores[block]
    called = _called(amap, block, alpha, doubt)
    tested = doubt is None and block in amap.connections
    with talk_style() as plt:
        if ax is None:
            width = float(np.clip(0.9 + 1.6 * len(rows), 3.4, 12.0))
            ax = plt.subplots(figsize=(width, 3.8), layout="constrained")[1]
        styles = _styles(names, doubt)
        texts = []
        for place, row in enumerate(rows):
            inside = names == row.group
            colour, marker = styles[row.group]
            at_x = place + _side_by_side(scores[inside])
            _markers(
                ax, at_x, scores[inside], np.ones(len(at_x), bool), called[inside], colour, marker,
                6.0,
            )  # fmt: skip
            ax.hlines(row.mean_score, place - 0.3, place + 0.3, color="0.15", lw=1.8, zorder=4)
            text = plain_text(row.group)
            if tested and row.low is not None and row.high is not None:
                connected = " connected" if len(rows) <= _MOST_WORDY else ""
                text += (
                    f"\n{row.n_connected} of {row.n_neurons}{connected}"
                    f"\n({100 * row.low:.0f} to {100 * row.high:.0f} %)"
                )
            else:
                text += f"\n{row.n_neurons} neurons"
            texts.append(text)
        ax.set_xticks(range(len(rows)), texts)
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, len(rows) - 0.4)
        _finish_scores(ax, block, doubt)
        short = tested and len(rows) > _MOST_WORDY
        title = group_title(amap.units, column)
        ax.set_xlabel(plain_text(title) + (", connected neurons and interval" if short else ""))
        _legend(ax, {}, tested, alpha, columns=1)
    return ax


def _called(amap: AttributionMap, block: str, alpha: float, doubt: str | None) -> NDArray[np.bool_]:
    """Return whether each neuron is called connected; none is if there is a doubt or no test."""
    if doubt is not None or block not in amap.connections:
        return np.zeros(len(amap.neuron_names), dtype=bool)
    return amap.significant(block, alpha)


def _styles(groups: NDArray[Any] | None, doubt: str | None) -> Mapping[str, tuple[str, str]]:
    if groups is None:
        return {"": (GREY if doubt is not None else COLOURS[0], "o")}
    styles = group_styles(np.unique(groups).tolist())
    if doubt is not None:
        return {group: (GREY, marker) for group, (_, marker) in styles.items()}
    return styles


def _markers(
    ax: Any,
    x: NDArray[Any],
    y: NDArray[Any],
    inside: NDArray[np.bool_],
    called: NDArray[np.bool_],
    colour: str,
    marker: str,
    size: float,
) -> None:
    """Draw the neurons of one group: filled where they are called connected, otherwise open."""
    for chosen, face in ((inside & ~called, "white"), (inside & called, colour)):
        if chosen.any():
            ax.plot(
                x[chosen],
                y[chosen],
                linestyle="none",
                marker=marker,
                ms=size,
                mfc=face,
                mec=colour,
                mew=max(0.7, size / 6),
                zorder=3,
            )


def _lower_panel(ax: Any) -> Any | None:
    """Divide the place of the axes in two and return new axes below; None if it has no place."""
    place = ax.get_subplotspec()
    if place is None:
        return None
    parts = place.subgridspec(2, 1)
    ax.set_subplotspec(parts[0])
    return ax.figure.add_subplot(parts[1], sharex=ax)


def _finish_scores(ax: Any, block: str, doubt: str | None) -> None:
    ax.axhline(0, color="0.6", lw=0.8, zorder=0)
    ax.set_ylabel(f"score for {plain_text(block)}")
    if doubt is not None:
        ax.set_title(plain_text(doubt), color="0.35", loc="left", fontsize=10, wrap=True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _name_places(ax: Any, names: list[str]) -> None:
    if len(names) > _MOST_NAMES:
        return
    turned = max(map(len, names)) * len(names) > 60
    ax.set_xticks(range(len(names)), map(plain_text, names), rotation=90 if turned else 0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _legend(
    ax: Any,
    styles: Mapping[str, tuple[str, str]],
    tested: bool,
    alpha: float,
    columns: int = 4,
) -> None:
    """Explain colours, and filled and open markers; nothing if there is nothing to explain."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], ls="none", marker=marker, color=colour, label=plain_text(group))
        for group, (colour, marker) in styles.items()
    ]
    if tested:
        called = f"connected (at most {alpha:.0%} false)"
        for face, text in (("0.25", called), ("white", "not called connected")):
            handles.append(Line2D([], [], ls="none", marker="o", mfc=face, mec="0.25", label=text))
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, min(columns, _LEGEND_LETTERS // (longest + 4)))
        # Above the axes, so that they keep their width.
        ax.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.2,
            ncols=columns,
            handletextpad=0.2,
            columnspacing=1.2,
        )


def _side_by_side(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return small shifts to the sides, so that neurons with similar scores do not hide others."""
    n = len(scores)
    if n == 1:
        return np.zeros(1)
    shifts = np.empty(n)
    # Neighbours in rank alternate between the sides and the middle.
    pattern = np.array([0.0, 0.12, -0.12, 0.22, -0.22])
    shifts[np.argsort(scores, kind="stable")] = pattern[np.arange(n) % len(pattern)]
    return shifts
