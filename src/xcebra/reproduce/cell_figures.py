"""Figures of simulated cells: noise, and one fit from all sides."""

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

# By hand: drawings in three dimensions confuse the layout that adapts.
_MARGINS = {"left": 0.09, "right": 0.98, "top": 0.92, "bottom": 0.08}
_COLOURS = {"place": "#1f6f8b", "grid": "#2f8f4e", "head-direction": "#c2571a", "speed": "0.5"}


def noise(rows: Sequence[Row]) -> dict[str, Figure]:
    """auROC of position against noise, a panel for each training, a line for each method."""
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
                values = [over_inits(cell_fits(group, noise=at), name, "entries") for at in levels]
                known = [(at, v) for at, v in enumerate(values) if v is not None]
                if not known:
                    continue
                places = [at for at, _ in known]
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
    """The path, the embedding, the map over time, scores by kind of cell, and training."""
    import matplotlib.pyplot as plt

    if not rows:
        return {}
    found = rows[0]["found"]
    figure = plt.figure(figsize=(13, 8))
    grid = figure.add_gridspec(2, 12, hspace=0.35, wspace=1.6, **_MARGINS)
    _places(figure.add_subplot(grid[0, 0:3]), found["behaviour"])
    for at, (name, title) in enumerate((("label", "position's block"), ("time", "time block"))):
        where = grid[0, 3 + 3 * at : 6 + 3 * at]
        _cloud(figure.add_subplot(where, projection="3d"), found, name, title)
    _training(figure.add_subplot(grid[0, 9:12]), found["over_training"])
    _over_time(figure.add_subplot(grid[1, 0:6]), found)
    for at, name in enumerate(found["z_scores"]):
        ax = figure.add_subplot(grid[1, 6 + 3 * at : 9 + 3 * at])
        _by_kind(ax, found["kinds"], found["z_scores"][name], TITLES[name])
    return {"cell-types": figure}


def grid_cells(rows: Sequence[Row]) -> dict[str, Figure]:
    """Rate maps, the path, the embedding, the map over time, and attribution by grid score."""
    import matplotlib.pyplot as plt

    portraits = [row["found"] for row in rows if row["kind"] == "GridPortrait"]
    if not portraits:
        return {}
    found = portraits[0]
    figure = plt.figure(figsize=(14, 11))
    grid = figure.add_gridspec(
        3, 12, height_ratios=(1, 1.5, 1.5), hspace=0.35, wspace=1.4, **_MARGINS
    )
    for at, (name, told) in enumerate(found["rate_maps"].items()):
        ax = figure.add_subplot(grid[0, 2 * at : 2 * at + 2])
        ax.imshow(_image(told), cmap="inferno", origin="lower", interpolation="nearest")
        ax.set_title(f"{name}\ngrid score {told['grid_score']:.2f}", fontsize="small")
        ax.set_axis_off()
    _path(figure.add_subplot(grid[1, 0:3]), found["behaviour"])
    _headings(figure.add_subplot(grid[1, 3:6], projection="polar"), found["behaviour"])
    for at, (name, title) in enumerate((("label", "position's block"), ("time", "time block"))):
        where = grid[1, 6 + 3 * at : 9 + 3 * at]
        _cloud(figure.add_subplot(where, projection="3d"), found, name, title)
    ax = figure.add_subplot(grid[2, 0:5])
    ax.imshow(_image(found["over_time"]), aspect="auto", cmap="magma", interpolation="nearest")
    first = int(np.sum(found["real"]))
    ax.axhline(first - 0.5, color="white", lw=0.8)
    ax.set_yticks([first / 2, 1.5 * first], ["cells", "controls"], rotation=90, va="center")
    ax.set(title="map of position over time (decoder gradient)", xlabel="time", xticks=[])
    for at, name in enumerate(found["z_scores"]):
        _scatter(figure.add_subplot(grid[2, 6 + 3 * at : 9 + 3 * at]), found, name)
    return {"grid-cells": figure}


def _headings(ax: Any, behaviour: Mapping[str, Any]) -> None:
    cosine, sine = np.array(behaviour["heading"]).T
    ax.hist(np.arctan2(sine, cosine), bins=36, color="0.5")
    ax.set(title="heading", xticklabels=[], yticklabels=[])


def _scatter(ax: Axes, found: Mapping[str, Any], name: str) -> None:
    real, grid = np.array(found["real"]), np.array(found["grid_score"])
    score = np.array(found["z_scores"][name])
    known = grid > UNKNOWN
    for chosen, colour, label in ((real, "#2f8f4e", "cells"), (~real, "0.6", "controls")):
        both = chosen & known
        ax.plot(grid[both], score[both], ".", color=colour, label=label)
    ax.set(xlabel="grid score", ylabel="score for position (z)")
    ax.set_title(TITLES[name], fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    plain(ax)


def _image(told: Mapping[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(told["bytes"]), np.uint8).reshape(told["shape"])


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
    """A colour for each place: redder to the right, bluer to the top."""
    x, y = ((each - each.min()) / np.ptp(each) for each in position.T)
    return np.column_stack([x, 0.3 + 0.4 * (1 - x), y])


def _cloud(ax: Any, found: Mapping[str, Any], name: str, title: str) -> None:
    points = np.array(found["embedding"][name])
    colours = _colours(np.array(found["behaviour"]["position"]))
    ax.scatter(*points.T, c=colours, s=4, depthshade=False)
    ax.set_title(f"{title}\ncoloured by place", fontsize="medium", y=1.06)
    ax.set(xticklabels=[], yticklabels=[], zticklabels=[])
    ax.set_box_aspect(None, zoom=1.1)


def _training(ax: Axes, over: Mapping[str, Any]) -> None:
    ax.plot(over["steps"], 100 * np.array(over["auroc"]), color="C3")
    ax.set_title("auROC of position (%)\nover training, inverted gradient", fontsize="medium")
    ax.set_xlabel("step")
    ax.set_ylim(top=100.05)
    plain(ax)


def _over_time(ax: Axes, found: Mapping[str, Any]) -> None:
    ax.imshow(_image(found["over_time"]), aspect="auto", cmap="magma", interpolation="nearest")
    kinds = np.array(found["kinds"])
    names = list(dict.fromkeys(kinds))
    middles = [float(np.flatnonzero(kinds == name).mean()) for name in names]
    ax.set_yticks(middles, [name.replace("-", "\n") for name in names])
    for name in names[1:]:
        ax.axhline(np.flatnonzero(kinds == name)[0] - 0.5, color="white", lw=0.8)
    ax.set(title="map of position over time (decoder gradient)", xlabel="time", xticks=[])


def _by_kind(ax: Axes, kinds: Sequence[str], scores: Sequence[float], title: str) -> None:
    every, values = np.array(kinds), np.array(scores)
    names = list(dict.fromkeys(kinds))
    rng = np.random.default_rng(0)
    for at, name in enumerate(names):
        own = values[every == name]
        aside = at + rng.uniform(-0.25, 0.25, size=len(own))
        ax.plot(aside, own, ".", ms=4, color=_COLOURS.get(name, "0.5"))
    ax.axhline(0, color="0.7", lw=0.8)
    ax.set_xticks(range(len(names)), [name.replace("-", "\n") for name in names])
    ax.set_ylabel("score for position (z)")
    ax.set_title(title, fontsize="medium")
    plain(ax)


def plain(ax: Axes) -> None:
    """Leave out the frame above and to the right."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
