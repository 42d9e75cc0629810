"""Why does the inverted gradient miss cells that the decoder gradient finds?

Simulated cells, dataset seeds 0 to 2. Speed cells differ in the speed above which they fire. Cells
with a high threshold add no information to that of other speed cells. The models have a block for
speed only, for every label, or for every label and time. They are fitted to rates, and to spike
counts, where every cell is useful to the encoder because of the noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc
from xcebra.sweep import Row

MAPS: dict[str, dict[str, Any]] = {
    "inverse": {"method": "inverted-gradient", "basis": "raw", "smooth": 1},
    "decoder": {"method": "decoder-gradient", "basis": "sparse"},
}
# Groups of cells, by the share of time in which they fire.
SHARES = ((0.0, 0.5), (0.5, 0.8), (0.8, 1.01))


@dataclass(frozen=True)
class Fit:
    """One recording and the blocks of one model."""

    seed: int
    labels: tuple[str, ...]
    time_dims: int
    counts: bool = False
    n_cells: int = 100
    n_steps: int = 20_000
    steps: int | None = None


EVERY = ("position", "heading", "speed")
MODELS = (
    (("speed",), 0, False),
    (EVERY, 0, False),
    (EVERY, 4, False),
    (("speed",), 0, True),
    (EVERY, 4, True),
)
ITEMS = [Fit(seed, *model) for seed in range(3) for model in MODELS]


def measure(item: Fit) -> dict[str, Any]:
    """Fit, and measure auROC and the size of the scores for speed."""
    size: dict[str, Any] = {"n_cells": item.n_cells, "n_steps": item.n_steps}
    rec = xcebra.datasets.navigation(item.seed, counts=item.counts, **size)
    truth = rec.ground_truth["speed"]
    fires = (xcebra.datasets.navigation(item.seed, **size).neural > 0).mean(axis=0)
    model = xcebra.XCEBRA(
        time_dims=item.time_dims, steps=item.steps, random_state=0, progress=False
    )
    results: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec, label=list(item.labels))
        block = "speed" if "speed" in model.blocks_ else "label"
        for name, options in MAPS.items():
            amap = model.attribute(rec, every=10, **options)
            score = amap.block(block)
            groups = [truth & (fires >= low) & (fires < high) for low, high in SHARES]
            results[name] = {
                "auroc": float(auroc(amap, truth, block=block, score="block")),
                "cells": [
                    float(np.median(score[group])) if group.any() else None for group in groups
                ],
                "others": [float(q) for q in np.quantile(score[~truth], (0.5, 0.95))],
            }
    return results


def answer(rows: Sequence[Row]) -> str:
    """auROC of speed for each model, and median scores relative to those of other cells."""
    heads = [f"fire {low:.0%} to {min(high, 1):.0%} of the time" for low, high in SHARES]
    lines = [
        "| activity | blocks | map | auROC (range) | " + " | ".join(heads) + " |",
        "|---|---|---|---|" + "---|" * len(heads),
    ]
    for labels, time_dims, counts in MODELS:
        group = [r["found"] for r in rows if _model(r["item"]) == (labels, time_dims, counts)]
        if not group:
            continue
        blocks = ", ".join([*labels, *(["time"] if time_dims else [])])
        for name in MAPS:
            scores = [result[name]["auroc"] for result in group]
            ratios = [
                _median([g[name]["cells"][i] for g in group], [g[name]["others"][0] for g in group])
                for i in range(len(SHARES))
            ]
            auroc_text = f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"
            kind = "counts" if counts else "rates"
            lines.append(
                f"| {kind} | {blocks} | {name} | {auroc_text} | " + " | ".join(ratios) + " |"
            )
    lines += [
        "",
        "auROC of speed, one score per neuron, mean over recordings. To the right, the median "
        "score of speed cells as a multiple of that of all other cells.",
    ]
    return "\n".join(lines)


def _model(item: dict[str, Any]) -> tuple[tuple[str, ...], int, bool]:
    return tuple(item["labels"]), item["time_dims"], item["counts"]


def _median(scores: Sequence[float | None], others: Sequence[float]) -> str:
    known = [s / o for s, o in zip(scores, others, strict=True) if s is not None]
    return f"{np.median(known):.1f}" if known else ""


if __name__ == "__main__":
    run("inverse", measure, ITEMS, answer)
