"""Is the automatic weight of the penalty as good as the best weight of a grid?

Recordings of 100,000 samples with 2 observed and 2, 4 or 7 hidden factors, dataset seeds 0 to 2.
Each is fitted with every weight of the grid and with ``"auto"``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import xcebra
from studies.study import interval, run
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc
from xcebra.sweep import Row

GRID = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
WEIGHTS = ("auto", *map(str, GRID))
MAPS: dict[str, dict[str, Any]] = {
    "decoder gradient, sparse basis": {"method": "decoder-gradient", "basis": "sparse"},
    "inverted gradient, label basis": {"method": "inverted-gradient", "basis": "label"},
    "inverted gradient as in the paper": {
        "method": "inverted-gradient",
        "basis": "raw",
        "smooth": 1,
    },
}


@dataclass(frozen=True)
class Fit:
    """One recording with one weight."""

    d: int
    seed: int
    weight: str
    n_steps: int = 100_000
    steps: int | None = None


ITEMS = [Fit(d, seed, weight) for seed in range(3) for d in (4, 6, 9) for weight in WEIGHTS]


def measure(item: Fit) -> dict[str, Any]:
    """Fit, and measure auROC of the maps for the label's block."""
    rec = xcebra.datasets.synthetic(
        n_hidden=item.d - 2, n_observed=2, n_steps=item.n_steps, seed=item.seed
    )
    weight = item.weight if item.weight == "auto" else float(item.weight)
    model = xcebra.XCEBRA(
        2, item.d - 2, jacobian_weight=weight, steps=item.steps, random_state=0, progress=False
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec.neural, rec.labels["z2"])
        seconds = time.perf_counter() - started
        neural = rec.neural[:: max(1, item.n_steps // 10_000)]
        maps = {
            name: [
                auroc(
                    model.attribute(neural, **options),
                    rec.ground_truth,
                    block="label",
                    factor="z2",
                    score=score,
                )
                for score in ("entries", "block")
            ]
            for name, options in MAPS.items()
        }
    return {
        "auroc": maps,
        "weight": model.config_["jacobian_weight"],
        "path": [round(w, 5) for w in model.history_["weight"][::10].tolist()],
        "r2": model.score(rec.neural, rec.labels["z2"]),
        "fit_s": round(seconds, 1),
    }


def answer(rows: Sequence[Row]) -> str:
    """Mean auROC for each weight and each kind of map."""
    lines = ["| map | " + " | ".join(WEIGHTS) + " |", "|---|" + "---|" * len(WEIGHTS)]
    for name in MAPS:
        cells = []
        for weight in WEIGHTS:
            group = [r["found"]["auroc"][name][0] for r in rows if r["item"]["weight"] == weight]
            cells.append(interval(group) if len(group) > 1 else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    weights = [r["found"]["weight"] for r in rows if r["item"]["weight"] == "auto"]
    if weights:
        lines += ["", f"Weights found: {min(weights):.3f} to {max(weights):.3f}."]
    return "\n".join(lines)


if __name__ == "__main__":
    run("penalty", measure, ITEMS, answer)
