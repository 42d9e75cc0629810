"""Draw figures from finished rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xcebra.common.files import atomically
from xcebra.reproduce import cell_figures
from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.catalogue import HARD
from xcebra.reproduce.cell_figures import plain
from xcebra.reproduce.measurements import AGGREGATED
from xcebra.reproduce.real import figures as real_figures
from xcebra.reproduce.row_selection import (
    TITLES,
    Row,
    like,
    n_latents,
    of_training,
    single_fits,
    summed,
    with_batch,
)
from xcebra.reproduce.statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALSO = ("svg",)
COLOURS = {
    "decoder-gradient, sparse": "C0",
    "decoder-gradient, label": "C9",
    "inverted-gradient": "C1",
    "inverted-gradient, plain": "C3",
    "gradient": "0.35",
    "encoding model": "C2",
}


def table1(rows: Sequence[Row]) -> dict[str, Figure]:
    """Every cell of Table 1, with our values and the paper's."""
    import matplotlib.pyplot as plt

    single = single_fits(rows)
    figure, all_axes = plt.subplots(
        1, 3, figsize=(11, 4.2), sharex=True, sharey=True, layout="constrained"
    )
    methods = [*paper.METHODS, "decoder-gradient, sparse"]
    for ax, kind in zip(all_axes, paper.TRAININGS, strict=True):
        for y, name in enumerate(methods):
            for penalty, shift in ((False, 0.16), (True, -0.16)):
                colour = "C0" if penalty else "0.6"
                value = summed(of_training(single, kind, penalty), name, "entries")
                theirs = paper.TABLE_1.get((name, kind, penalty))
                if value is not None:
                    ends = [[100 * (value.mean - value.low)], [100 * (value.high - value.mean)]]
                    ax.errorbar(
                        100 * value.mean, y + shift, xerr=ends, fmt="o", color=colour, capsize=2
                    )
                if theirs is not None:
                    ax.plot(theirs.mean, y + shift, "x", color=colour, ms=6)
        ax.set_title(kind)
        ax.set_xlabel("auROC of z2, entries (%)")
        ax.grid(axis="x", color="0.9")
        plain(ax)
    all_axes[0].set_yticks(range(len(methods)), [TITLES[name] for name in methods])
    for label, mark, colour in (
        ("with penalty", "o", "C0"),
        ("without", "o", "0.6"),
        ("the paper's", "x", "0.3"),
    ):
        all_axes[0].plot([], [], mark, color=colour, label=label)
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=3)
    return {"table1": figure}


def latents(rows: Sequence[Row]) -> dict[str, Figure]:
    """auROC by number of latents, time steps, negatives and training steps; the embedding."""
    import matplotlib.pyplot as plt

    single = single_fits(rows)
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharey=True, layout="constrained")
    hybrid = of_training(single, "hybrid contrastive", True)
    usual = [r for r in hybrid if r["item"]["training"]["batch_size"] is None]
    long = [r for r in usual if r["item"]["data"]["n_steps"] == 100_000]
    six = [r for r in hybrid if n_latents(r) == 6]
    names = ("decoder-gradient, sparse", "inverted-gradient", "inverted-gradient, plain")
    for name in names:
        _line(axes[0, 0], long, name, n_latents, COLOURS[name], TITLES[name])
    for penalty, style in ((True, "-"), (False, ":")):
        group = of_training(single, "supervised", penalty)
        label = f"supervised{'' if penalty else ', no penalty'}: gradient"
        _line(axes[0, 0], group, "gradient", n_latents, "0.5", label, style)
    axes[0, 0].set_xlabel("latents")
    for name in names:
        by_length = [r for r in six if r["item"]["training"]["batch_size"] is None]
        _line(axes[0, 1], by_length, name, lambda r: r["item"]["data"]["n_steps"], COLOURS[name])
        batched, colour = with_batch(six), COLOURS[name]
        _line(axes[1, 0], batched, name, lambda r: r["found"]["settings"]["batch_size"], colour)
    axes[0, 1].set(xscale="log", xlabel="time steps (d = 6)")
    axes[1, 0].set(xscale="log", xlabel="negatives N (d = 6)")
    sizes = sorted({r["found"]["settings"]["batch_size"] for r in with_batch(six)})
    axes[1, 0].set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes[1, 0].minorticks_off()
    portraits = [row for row in rows if row["kind"] == "Portrait"]
    for row in portraits:
        curves, penalty = row["found"]["over_training"], row["item"]["training"]["penalty"]
        axes[1, 1].plot(
            curves["steps"],
            100 * np.array(curves["auroc"]),
            color=COLOURS["inverted-gradient, plain"] if penalty else "0.6",
            lw=1,
        )
    axes[1, 1].plot([], [], color=COLOURS["inverted-gradient, plain"], label="with penalty")
    axes[1, 1].plot([], [], color="0.6", label="without")
    axes[1, 1].set_xlabel("steps of training (d = 6; inverted gradient, plain)")
    for ax in axes.flat:
        ax.grid(axis="y", color="0.9")
        plain(ax)
    for ax in axes[:, 0]:
        ax.set_ylabel("auROC of z2, entries (%)")
    if axes[0, 0].get_legend_handles_labels()[0]:
        axes[0, 0].legend(frameon=False, fontsize="x-small")
    axes[1, 1].legend(frameon=False, fontsize="x-small")
    figures = {"latents": figure}
    if portraits:
        figures["embedding"] = _embedding(portraits[0]["found"])
    return figures


def dimensions(rows: Sequence[Row]) -> dict[str, Figure]:
    """Consistency and auROC by number of latents of the model."""
    import matplotlib.pyplot as plt

    chosen = [row for row in rows if row["kind"] == "Consistency"]
    figure, axes = plt.subplots(1, 5, figsize=(15, 3.2), layout="constrained")
    singles = (("time contrastive", "time_dims"), ("supervised contrastive", "label_dims"))
    for ax, (kind, name) in zip(axes, singles, strict=False):
        group = [row for row in chosen if row["item"]["training"]["kind"] == kind]
        group.sort(key=lambda row: row["item"]["training"][name])
        dims = [row["item"]["training"][name] for row in group]
        means = [interval(row["found"]["consistency"]["all"]) for row in group]
        ax.errorbar(
            dims,
            [100 * v.mean for v in means],
            yerr=np.array([[v.mean - v.low, v.high - v.mean] for v in means]).T * 100,
            fmt="o-",
            capsize=2,
        )
        ax.set(title=kind, xlabel="latents", ylabel="consistency, R$^2$ (%)")
        plain(ax)
        if name == "label_dims":
            for method in AGGREGATED:
                scores = [
                    100
                    * np.mean(
                        [map_scores[method]["entries"] for map_scores in row["found"]["maps"]]
                    )
                    for row in group
                ]
                axes[3].plot(dims, scores, "o-", color=COLOURS[method], label=TITLES[method])
    axes[3].set(title="supervised contrastive", xlabel="latents", ylabel="auROC of z2 (%)")
    axes[3].legend(frameon=False, fontsize="x-small")
    plain(axes[3])
    grid = [row for row in chosen if row["item"]["training"]["kind"] == "hybrid contrastive"]
    consistency = {_pair(r): 100 * np.mean(r["found"]["consistency"]["all"]) for r in grid}
    best = AGGREGATED[-1]
    aurocs = {
        _pair(r): 100 * np.mean([map_scores[best]["entries"] for map_scores in r["found"]["maps"]])
        for r in grid
    }
    _grid(axes[2], consistency, "hybrid: consistency (%)")
    _grid(axes[4], aurocs, "hybrid: auROC (%), ours")
    return {"dimensions": figure}


def hard(rows: Sequence[Row]) -> dict[str, Figure]:
    """The harder table as a figure: one line of points per recording."""
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(
        1, 2, figsize=(11, 7), sharey=True, sharex=True, layout="constrained"
    )
    for ax, (observed, title) in zip(
        all_axes, (("z2", "z2 observed"), ("z1", "z2 not observed")), strict=True
    ):
        for y, case in enumerate(HARD):
            group = like(rows, *case.items(observed))
            # The first method is drawn last, on top of methods with the same value.
            for name, colour in reversed(COLOURS.items()):
                value = summed(group, name, "entries")
                if value is None:
                    continue
                ax.plot(100 * value.mean, y, "o", color=colour, alpha=0.85)
                scores = [
                    100 * row["found"]["maps"][name]["entries"]
                    for row in group
                    if name in row["found"].get("maps", {})
                ]
                ax.plot(scores, [y] * len(scores), "|", color=colour, ms=8, alpha=0.6)
        ax.set_title(title)
        ax.set_xlabel("auROC of z2, entries (%)")
        ax.grid(color="0.92")
        plain(ax)
    all_axes[0].set_yticks(range(len(HARD)), [case.name for case in HARD])
    all_axes[0].invert_yaxis()
    for name, colour in COLOURS.items():
        all_axes[0].plot([], [], "o", color=colour, label=TITLES[name])
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=3)
    return {"hard": figure}


FIGURES: dict[str, Callable[[Sequence[Row]], dict[str, Any]]] = {
    "table1": table1,
    "latents": latents,
    "dimensions": dimensions,
    "hard": hard,
    "noise": cell_figures.noise,
    "cell-types": cell_figures.cell_types,
    "grid-cells": cell_figures.grid_cells,
    "real": real_figures.real,
}


def write(figures: Mapping[str, Figure], folder: Path, also: Sequence[str] = ()) -> list[Path]:
    """Write each figure as PNG, and as SVG if ``also`` contains it, and close it."""
    import matplotlib.pyplot as plt

    written = []
    for name, figure in figures.items():
        for kind in ("png", *(kind for kind in ALSO if kind in also)):
            path = folder / f"{name}.{kind}"
            options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {}
            # A fixed salt makes the identifiers in the SVG file the same in every run.
            with atomically(path) as partial, plt.rc_context({"svg.hashsalt": name}):
                figure.savefig(partial, format=kind, dpi=150, **options)
            written.append(path)
        plt.close(figure)
    return written


def _line(
    ax: Axes,
    rows: Sequence[Row],
    name: str,
    level: Callable[[Row], int],
    colour: str,
    label: str | None = None,
    style: str = "-",
) -> None:
    """Plot means and their intervals by level."""
    levels = sorted({level(row) for row in rows})
    values = [
        summed([r for r in rows if level(r) == x_value], name, "entries") for x_value in levels
    ]
    known = [(x_value, v) for x_value, v in zip(levels, values, strict=True) if v is not None]
    if not known:
        return
    x = [x_value for x_value, _ in known]
    ax.plot(x, [100 * v.mean for _, v in known], style, marker="o", ms=4, color=colour, label=label)
    low, high = ([100 * getattr(v, end) for _, v in known] for end in ("low", "high"))
    ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def _embedding(portrait: Mapping[str, Any]) -> Figure:
    """First three latents, neurons, and columns of the embedding, as learned and aligned."""
    import matplotlib.pyplot as plt

    panels = {
        "latents": "latents z1",
        "activity": "three neurons",
        "embedding": "embedding as learned",
        "aligned": "embedding, aligned",
    }
    figure, axes = plt.subplots(
        1, 4, figsize=(12, 3.5), layout="constrained", subplot_kw={"projection": "3d"}
    )
    colours = np.clip((np.array(portrait["latents"]) + 1) / 2, 0, 1)
    for ax, (name, title) in zip(axes, panels.items(), strict=True):
        points = np.array(portrait[name])
        ax.scatter(*points.T, c=colours, s=8, depthshade=False)
        ax.set_title(title, fontsize="medium", pad=0)
        ax.set(xticklabels=[], yticklabels=[], zticklabels=[])
    return figure


def _pair(row: Row) -> tuple[int, int]:
    training = row["item"]["training"]
    return training["label_dims"], training["time_dims"]


def _grid(ax: Axes, values: Mapping[tuple[int, int], float], title: str) -> None:
    """Draw a matrix of values: label latents in the rows, time latents in the columns."""
    ax.set(title=title, xlabel="time latents", ylabel="label latents")
    if not values:
        return
    dims = sorted({n for pair in values for n in pair})
    table = np.array([[values.get((a, b), np.nan) for b in dims] for a in dims])
    ax.imshow(table, cmap="viridis")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            ink = "k" if value > middle else "w"
            ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=ink, fontsize="small")
    ax.set_xticks(range(len(dims)), list(map(str, dims)))
    ax.set_yticks(range(len(dims)), list(map(str, dims)))
