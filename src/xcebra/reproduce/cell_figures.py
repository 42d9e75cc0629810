"""Figures of simulated cells and of real grid cells."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.cell_tables import cell_fits, over_inits
from xcebra.reproduce.cells import UNKNOWN
from xcebra.reproduce.measurements import MAPS
from xcebra.reproduce.row_selection import TITLES, Row, of_training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Fixed margins, because constrained layout does not work well with 3D axes.
_MARGINS = {"left": 0.09, "right": 0.98, "top": 0.92, "bottom": 0.08}
_COLOURS = {"place": "#1f6f8b", "grid": "#2f8f4e", "head-direction": "#c2571a", "speed": "0.5"}


def noise(rows: Sequence[Row]) -> dict[str, Figure]:
    """auROC of position by noise level; one panel per training and one line per method."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, 3, figsize=(11, 6), sharex=True, sharey=True, layout="constrained"
    )
    levels = sorted({row["item"]["data"]["noise"] for row in cell_fits(rows)})
    for column, kind in enumerate(paper.TRAININGS):
        for row, penalty in enumerate((True, False)):
            ax = axes[row, column]
            group = of_training(cell_fits(rows), kind, penalty)
            for i, name in enumerate(MAPS):
                values = [
                    over_inits(cell_fits(group, noise=level), name, "entries") for level in levels
                ]
                known = [(place, v) for place, v in enumerate(values) if v is not None]
                if not known:
                    continue
                places = [place for place, _ in known]
                ours = name.startswith("decoder")
                ax.plot(
                    places,
                    [100 * v.mean for _, v in known],
                    marker="o",
                    ms=3,
                    lw=2 if ours else 1,
                    color=f"C{i}",
                    label=TITLES[name],
                )
                low, high = ([100 * getattr(v, end) for _, v in known] for end in ("low", "high"))
                ax.fill_between(places, low, high, color=f"C{i}", alpha=0.12, lw=0)
            ax.set_title(f"{kind}, {'penalty' if penalty else 'no penalty'}", fontsize="medium")
            plain(ax)
    for ax in axes[-1]:
        ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        ax.set_xlabel("noise (s.d. of each cell)")
    for ax in axes[:, 0]:
        ax.set_ylabel("auROC of position (%)")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, fontsize="small", loc="outside lower center", ncols=3
    )
    return {"noise": figure}


def cell_types(rows: Sequence[Row]) -> dict[str, Figure]:
    """The positions, the embedding, the training curve, the map over time and the scores."""
    import matplotlib.pyplot as plt

    if not rows:
        return {}
    results = rows[0]["found"]
    figure = plt.figure(figsize=(13, 8))
    grid = figure.add_gridspec(2, 12, hspace=0.35, wspace=1.6, **_MARGINS)
    _places(figure.add_subplot(grid[0, 0:3]), results["behaviour"])
    for panel, (name, title) in enumerate((("label", "position's block"), ("time", "time block"))):
        location = grid[0, 3 + 3 * panel : 6 + 3 * panel]
        _cloud(figure.add_subplot(location, projection="3d"), results, name, title)
    _training(figure.add_subplot(grid[0, 9:12]), results["over_training"])
    _over_time(figure.add_subplot(grid[1, 0:6]), results)
    for panel, name in enumerate(results["z_scores"]):
        ax = figure.add_subplot(grid[1, 6 + 3 * panel : 9 + 3 * panel])
        _by_kind(ax, results["kinds"], results["z_scores"][name], TITLES[name])
    return {"cell-types": figure}


def grid_cells(rows: Sequence[Row]) -> dict[str, Figure]:
    """Rate maps, the path, the embedding, the map over time, and scores by grid score."""
    import matplotlib.pyplot as plt

    portraits = [row["found"] for row in rows if row["kind"] == "GridPortrait"]
    if not portraits:
        return {}
    portrait = portraits[0]
    figure = plt.figure(figsize=(14, 11))
    grid = figure.add_gridspec(
        3, 12, height_ratios=(1, 1.5, 1.5), hspace=0.35, wspace=1.4, **_MARGINS
    )
    for panel, (name, rate_map) in enumerate(portrait["rate_maps"].items()):
        ax = figure.add_subplot(grid[0, 2 * panel : 2 * panel + 2])
        ax.imshow(_image(rate_map), cmap="inferno", origin="lower", interpolation="nearest")
        ax.set_title(f"{name}\ngrid score {rate_map['grid_score']:.2f}", fontsize="small")
        ax.set_axis_off()
    _path(figure.add_subplot(grid[1, 0:3]), portrait["behaviour"])
    _headings(figure.add_subplot(grid[1, 3:6], projection="polar"), portrait["behaviour"])
    for panel, (name, title) in enumerate((("label", "position's block"), ("time", "time block"))):
        location = grid[1, 6 + 3 * panel : 9 + 3 * panel]
        _cloud(figure.add_subplot(location, projection="3d"), portrait, name, title)
    ax = figure.add_subplot(grid[2, 0:5])
    ax.imshow(_image(portrait["over_time"]), aspect="auto", cmap="magma", interpolation="nearest")
    first = int(np.sum(portrait["real"]))
    ax.axhline(first - 0.5, color="white", lw=0.8)
    ax.set_yticks([first / 2, 1.5 * first], ["cells", "surrogates"], rotation=90, va="center")
    ax.set(title="map of position over time (decoder gradient)", xlabel="time", xticks=[])
    for panel, name in enumerate(portrait["z_scores"]):
        _scatter(figure.add_subplot(grid[2, 6 + 3 * panel : 9 + 3 * panel]), portrait, name)
    return {"grid-cells": figure}


def _headings(ax: Any, behaviour: Mapping[str, Any]) -> None:
    cosine, sine = np.array(behaviour["heading"]).T
    ax.hist(np.arctan2(sine, cosine), bins=36, color="0.5")
    ax.set(title="heading", xticklabels=[], yticklabels=[])


def _scatter(ax: Axes, portrait: Mapping[str, Any], name: str) -> None:
    real, grid = np.array(portrait["real"]), np.array(portrait["grid_score"])
    score = np.array(portrait["z_scores"][name])
    known = grid > UNKNOWN
    for chosen, colour, label in ((real, "#2f8f4e", "cells"), (~real, "0.6", "surrogates")):
        selected = chosen & known
        ax.plot(grid[selected], score[selected], ".", color=colour, label=label)
    ax.set(xlabel="grid score", ylabel="score for position (z)")
    ax.set_title(TITLES[name], fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    plain(ax)


def _image(image: Mapping[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).reshape(image["shape"])


def _path(ax: Axes, behaviour: Mapping[str, Any]) -> None:
    position, speed = np.array(behaviour["position"]), np.array(behaviour["speed"])[:, 0]
    points = ax.scatter(position[:, 0], position[:, 1], c=speed, s=4, cmap="viridis")
    ax.set(title="path", xlabel="x (m)", ylabel="y (m)", aspect="equal")
    figure: Any = ax.figure
    figure.colorbar(
        points, ax=ax, label="speed (m/s)", orientation="horizontal", shrink=0.7, pad=0.2
    )


def _places(ax: Axes, behaviour: Mapping[str, Any]) -> None:
    position = np.array(behaviour["position"])
    ax.scatter(position[:, 0], position[:, 1], c=_colours(position), s=4)
    ax.set(title="where the rat was", xlabel="x (m)", ylabel="y (m)", aspect="equal")
    plain(ax)


def _colours(position: Any) -> Any:
    """Return an RGB colour for each position: more red to the right, more blue to the top."""
    x, y = ((column - column.min()) / np.ptp(column) for column in position.T)
    return np.column_stack([x, 0.3 + 0.4 * (1 - x), y])


def _cloud(ax: Any, results: Mapping[str, Any], name: str, title: str) -> None:
    points = np.array(results["embedding"][name])
    colours = _colours(np.array(results["behaviour"]["position"]))
    ax.scatter(*points.T, c=colours, s=4, depthshade=False)
    ax.set_title(f"{title}\ncoloured by place", fontsize="medium", y=1.06)
    ax.set(xticklabels=[], yticklabels=[], zticklabels=[])
    ax.set_box_aspect(None, zoom=1.1)


def _training(ax: Axes, curves: Mapping[str, Any]) -> None:
    ax.plot(curves["steps"], 100 * np.array(curves["auroc"]), color="C3")
    ax.set_title("auROC of position (%)\nover training, inverted gradient", fontsize="medium")
    ax.set_xlabel("step")
    ax.set_ylim(top=100.05)
    plain(ax)


def _over_time(ax: Axes, results: Mapping[str, Any]) -> None:
    ax.imshow(_image(results["over_time"]), aspect="auto", cmap="magma", interpolation="nearest")
    kinds = np.array(results["kinds"])
    names = list(dict.fromkeys(kinds))
    middles = [float(np.flatnonzero(kinds == name).mean()) for name in names]
    ax.set_yticks(middles, [name.replace("-", "\n") for name in names])
    for name in names[1:]:
        ax.axhline(np.flatnonzero(kinds == name)[0] - 0.5, color="white", lw=0.8)
    ax.set(title="map of position over time (decoder gradient)", xlabel="time", xticks=[])


def _by_kind(ax: Axes, kinds: Sequence[str], scores: Sequence[float], title: str) -> None:
    all_kinds, values = np.array(kinds), np.array(scores)
    names = list(dict.fromkeys(kinds))
    rng = np.random.default_rng(0)
    for i, name in enumerate(names):
        group = values[all_kinds == name]
        x = i + rng.uniform(-0.25, 0.25, size=len(group))
        ax.plot(x, group, ".", ms=4, color=_COLOURS.get(name, "0.5"))
    ax.axhline(0, color="0.7", lw=0.8)
    ax.set_xticks(range(len(names)), [name.replace("-", "\n") for name in names])
    ax.set_ylabel("score for position (z)")
    ax.set_title(title, fontsize="medium")
    plain(ax)


def plain(ax: Axes) -> None:
    """Hide the top and the right spine."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
