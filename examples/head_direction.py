"""The second figure of the README: which units of a mouse carry heading?

Writes docs/images/head_direction.png, or the file that is named on the command line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import xcebra

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "head_direction.png"
COLOURS = {"adn": "#c44e52", "ca1": "#4c72b0"}
NAMES = {"adn": "thalamus (adn)", "ca1": "hippocampus (ca1)"}


def main() -> None:
    """Fit, attribute, print the units by area, and draw the figure."""
    rec = xcebra.datasets.head_direction(bin_size=0.05)
    model = xcebra.XCEBRA(random_state=0)
    model.fit(rec, label=["heading", "position"], control="speed")
    amap = model.attribute(rec, test=True)
    print(amap.by("location"))
    figure = draw(rec, amap)
    figure.savefig(Path(sys.argv[1]) if sys.argv[1:] else FIGURE, dpi=110)


def draw(rec: xcebra.Recording, amap: xcebra.AttributionMap) -> plt.Figure:
    """Scores of all units, and their tuning curves in the same order."""
    scores, called = amap.block("heading"), amap.significant("heading")
    order, areas = np.argsort(-scores), rec.units["location"]
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.35))
    ax = left.subplots()
    for k, unit in enumerate(order):
        colour = COLOURS[areas[unit]]
        filled = {"color": colour} if called[unit] else {"facecolor": "white", "edgecolor": colour}
        ax.barh(k, scores[unit], height=0.75, **filled)
    for area, colour in COLOURS.items():
        ax.barh(0, 0, color=colour, label=NAMES[area])
    ax.barh(0, 0, facecolor="white", edgecolor="0.3", label="not significant")
    ax.set_yticks(range(len(order)), [f"unit {amap.neuron_names[unit]}" for unit in order])
    ax.invert_yaxis()
    ax.axvline(0, color="0.3", linewidth=0.8)
    ax.set_xlabel("score for heading")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    axes = right.subplots(3, 5, sharex=True)
    for small, unit in zip(axes.flat, order, strict=True):
        centres, rates = tuning_curve(rec, unit)
        small.plot(centres, rates, color=COLOURS[areas[unit]])
        small.set_title(f"unit {amap.neuron_names[unit]}", fontsize=8)
        small.set_ylim(0, None)
        small.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
        small.tick_params(labelsize=7)
        small.spines[["top", "right"]].set_visible(False)
    right.supxlabel("heading (rad)", fontsize=9)
    right.supylabel("spikes per second", fontsize=9)
    return figure


def tuning_curve(rec: xcebra.Recording, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean rate of a unit in each of 36 directions."""
    assert rec.time is not None
    heading = np.mod(rec.labels["heading"][:, 0], 2 * np.pi)
    edges = np.linspace(0, 2 * np.pi, 37)
    spikes, _ = np.histogram(heading, edges, weights=rec.neural[:, unit])
    visits, _ = np.histogram(heading, edges)
    seconds = visits * float(np.median(np.diff(rec.time)))
    return (edges[1:] + edges[:-1]) / 2, spikes / np.maximum(seconds, 1e-9)


if __name__ == "__main__":
    main()
