"""A grid of tuning curves or rate maps, one panel for each neuron."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.groups import GroupBy, group_names
from xcebra.common.checks import number, raise_if
from xcebra.data.recording import Recording
from xcebra.plots.curves import Tuning, label_tuning
from xcebra.plots.style import COLOURS, group_styles, plain_text, talk_style

# Width and height of a panel in inches.
_PANEL = {"circle": (2.1, 2.3), "line": (2.5, 2.0), "plane": (2.3, 2.4), "classes": (2.5, 2.2)}
# Characters in a line of a panel's title: about the width of the narrowest panel.
_TITLE_LETTERS = 28
# Classes are named on the axis up to this number of characters in sum; longer names are turned.
_MOST_LETTERS = 16


def tuning(
    recording: Recording,
    label: str,
    neurons: Sequence[int | str] | NDArray[np.int64],
    *,
    kind: str | None = None,
    delay: int = 0,
    group_by: GroupBy | None = None,
    n_columns: int = 3,
) -> NDArray[Any]:
    """Tuning curves or rate maps of some neurons for one label.

    A circular label is drawn as a polar curve, a continuous label of one column as a curve, of two
    columns as a map, and classes as bars. Bands and bars are standard errors from leaving out
    stretches of time. Bins that were hardly visited are blank.

    Parameters
    ----------
    recording : Recording
    label : str
        Name of a label of the recording.
    neurons : sequence of int or str
        Positions or names of the neurons.
    kind : {"continuous", "discrete", "circular"}, optional
        If not given, what the recording says of the label, or a guess from its values.
    delay : int
        Number of samples by which the label comes after the activity, as ``label_delay``.
    group_by : str or sequence of str, optional
        Column of ``recording.units``, such as the area, that gives colours and is named in titles;
        or several columns.
    n_columns : int
        Number of panels in a row.

    Returns
    -------
    ndarray of Axes of shape (n_neurons,)

    Examples
    --------
    >>> axes = plots.tuning(recording, "heading", [0, 1, 2])          # doctest: +SKIP
    >>> plots.save(axes, "tuning.png")                                # doctest: +SKIP
    """
    problems: list[str] = []
    number(problems, "n_columns", n_columns, least=1, whole=True)
    raise_if(problems)
    groups = None if group_by is None else group_names(recording.units, group_by)
    curves = label_tuning(recording, label, neurons, kind=kind, delay=delay)
    n = len(curves.neurons)
    n_columns = min(n_columns, n)
    n_rows = -(-n // n_columns)
    width, height = _PANEL[curves.shape]
    styles = {} if groups is None else group_styles(np.unique(groups).tolist())
    with talk_style() as plt:
        figure = plt.figure(
            figsize=(width * n_columns + 0.3, height * n_rows + 0.2), layout="constrained"
        )
        projection = "polar" if curves.shape == "circle" else None
        axes = np.empty(n, dtype=object)
        for i, neuron in enumerate(curves.neurons):
            ax = figure.add_subplot(n_rows, n_columns, i + 1, projection=projection)
            name = f"neuron {recording.neuron_names[neuron]}"
            colour = COLOURS[0]
            if groups is not None:
                colour = styles[groups[neuron]][0]
                name += f", {groups[neuron]}"
            name = plain_text(fill(name, _TITLE_LETTERS))
            _DRAW[curves.shape](ax, curves, i, colour)
            peak = np.nanmax(curves.means[i])
            rounded = f"{peak:.0f}" if peak >= 10 else f"{peak:.2g}"
            ax.set_title(f"{name}\npeak {rounded}" if curves.shape == "circle" else name)
            axes[i] = ax
        _name_axes(figure, axes, curves, n_columns)
    return axes


def _circle(ax: Any, curves: Tuning, i: int, colour: str) -> None:
    angle = np.deg2rad(curves.centres)
    mean, error = _with_error(curves, i)
    around = np.append(np.arange(len(angle)), 0)
    ax.plot(angle[around], mean[around], color=colour, lw=1.8)
    low, high = np.maximum(mean - error, 0.0), mean + error
    ax.fill_between(angle[around], low[around], high[around], color=colour, alpha=0.25, lw=0)
    ax.set_ylim(min(0.0, float(np.nanmin(mean))), float(np.nanmax(high)) * 1.02 or 1.0)
    ax.set_xticks(np.deg2rad([0, 90, 180, 270]), ["0°", "90°", "180°", "270°"])
    ax.tick_params(axis="x", pad=-2)
    ax.set_yticks([])
    ax.spines["polar"].set_color("0.75")
    ax.grid(color="0.88")


def _line(ax: Any, curves: Tuning, i: int, colour: str) -> None:
    mean, error = _with_error(curves, i)
    ax.plot(curves.centres, mean, color=colour, lw=1.8)
    ax.fill_between(curves.centres, mean - error, mean + error, color=colour, alpha=0.25, lw=0)
    if np.nanmin(mean) >= 0:
        ax.set_ylim(bottom=0)


def _plane(ax: Any, curves: Tuning, i: int, colour: str) -> None:
    x, y = curves.edges
    rates = curves.means[i]
    image = ax.imshow(
        rates.T,
        origin="lower",
        extent=(x[0], x[-1], y[0], y[-1]),
        cmap="viridis",
        vmin=min(0.0, float(np.nanmin(rates))),
        interpolation="nearest",
    )
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.75, pad=0.03)
    bar.outline.set_visible(False)
    bar.locator = _few_ticks()
    bar.update_ticks()
    ax.locator_params(nbins=3)


def _classes(ax: Any, curves: Tuning, i: int, colour: str) -> None:
    mean, error = _with_error(curves, i)
    places = np.arange(len(mean))
    ax.bar(places, mean, width=0.7, color=colour, yerr=error, ecolor="0.25", capsize=2.5)
    turned = sum(map(len, curves.classes)) > _MOST_LETTERS
    ax.set_xticks(places, map(plain_text, curves.classes), rotation=90 if turned else 0)


_DRAW = {"circle": _circle, "line": _line, "plane": _plane, "classes": _classes}


def _with_error(curves: Tuning, i: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of a neuron in each bin and its standard error, 0 where it is not known."""
    error = np.zeros_like(curves.means[i]) if curves.errors is None else curves.errors[i]
    return curves.means[i], np.nan_to_num(error)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(3)


def _name_axes(figure: Any, axes: NDArray[Any], curves: Tuning, n_columns: int) -> None:
    """Name the axes once for each row and column of the grid."""
    titles = [plain_text(title) for title in curves.titles]
    if curves.shape == "circle":
        figure.supxlabel(
            f"{titles[0]}; distance from the centre: {curves.rate_title}", fontsize=10.5
        )
        return
    for i, ax in enumerate(axes):
        if i + n_columns >= len(axes):
            ax.set_xlabel(titles[0])
        if i % n_columns == 0:
            ax.set_ylabel(titles[1] if curves.shape == "plane" else curves.rate_title)
    if curves.shape == "plane":
        figure.suptitle(f"colour: {curves.rate_title}", fontsize=10.5)
