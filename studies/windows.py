"""How much does a window help if single bins contain few spikes?

Simulated cells, 25 of each kind, dataset seeds 0 to 2: spike counts in 50,000 bins of 20 ms. One
model with a block for each label is fitted to the first four fifths of the recording. Each label is
decoded from its block on the last fifth, by 20 nearest neighbours.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc
from xcebra.sweep import Row

WINDOWS = (1, 5, 10)
LABELS = ("position", "heading", "speed")


@dataclass(frozen=True)
class Fit:
    """One recording and one window size."""

    seed: int
    window: int
    n_cells: int = 25
    n_steps: int = 50_000
    steps: int | None = None


ITEMS = [Fit(seed, window) for seed in range(3) for window in WINDOWS]


def measure(item: Fit) -> dict[str, Any]:
    """Decode the labels on later time, and measure auROC of the default map."""
    rec = xcebra.datasets.navigation(
        item.seed, n_cells=item.n_cells, n_steps=item.n_steps, interval=0.02, counts=True
    )
    cut = item.n_steps * 4 // 5
    model = xcebra.XCEBRA(
        time_dims=4, window=item.window, steps=item.steps, random_state=0, progress=False
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec.neural, rec.labels, epochs=[(0, cut)])
        seconds = time.perf_counter() - started
        amap = model.attribute(rec.neural, every=5)
        z = model.transform(rec.neural)
    decoded = {}
    for label in LABELS:
        own, values = z[:, model.blocks_[label]], rec.labels[label]
        nearest = KNeighborsRegressor(20).fit(own[:cut], values[:cut])
        decoded[label] = float(r2_score(values[cut:], nearest.predict(own[cut:])))
    return {
        "r2": decoded,
        "auroc": {
            label: float(auroc(amap, rec.ground_truth[label], block=label, score="block"))
            for label in LABELS
        },
        "spikes": float(rec.neural.sum() / rec.neural.size),
        "fit_s": round(seconds, 1),
    }


def answer(rows: Sequence[Row]) -> str:
    """Mean over recordings for each window."""
    heads = [f"R^2, {label}" for label in LABELS] + [f"auROC, {label}" for label in LABELS]
    lines = ["| bins | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for window in WINDOWS:
        group = [row["found"] for row in rows if row["item"]["window"] == window]
        if group:
            values = [
                [g[kind][label] for g in group] for kind in ("r2", "auroc") for label in LABELS
            ]
            cells = [f"{np.mean(v):.3f} ({min(v):.3f} to {max(v):.3f})" for v in values]
            lines.append(f"| {window} | " + " | ".join(cells) + " |")
    spikes = np.mean([row["found"]["spikes"] for row in rows])
    lines += ["", f"Mean over recordings (range). A bin of a cell holds {spikes:.2f} spikes."]
    return "\n".join(lines)


if __name__ == "__main__":
    run("windows", measure, ITEMS, answer)
