"""How much do the calls of the quickstart change from seed to seed?

Fits the recording of the quickstart with its labels, and with other seeds. The file lies in the
folder that the environment variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.sweep import Row

LABELS = {"heading": "ry", "position": "x,z"}


@dataclass(frozen=True)
class Seed:
    """One fit, and how many further fits its test uses.

    Parameters
    ----------
    seed : int
    refits : int
    """

    seed: int
    refits: int = 0


ITEMS = [Seed(seed) for seed in range(8)]


def measure(item: Seed) -> dict[str, Any]:
    """Scores and calls of all units, for every label."""
    path = Path(os.environ["XCEBRA_REAL_DATA"]) / "head_direction.nwb"
    labels = {**LABELS, "speed": "speed(x,z)"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        rec = xcebra.read(path, labels=labels, bin_size=0.05)
        model = xcebra.XCEBRA(random_state=item.seed, progress=False)
        model.fit(rec, label=list(LABELS), control="speed")
        amap = model.attribute(rec, test=True, refits=item.refits)
    area = np.asarray(rec.units["location"]).astype(str)
    return {
        "area": area.tolist(),
        "time_dims": model.config_["time_dims"],
        **{
            name: {
                "scores": [round(float(score), 4) for score in amap.block(name)],
                "called": amap.significant(name).tolist(),
            }
            for name in LABELS
        },
    }


def answer(rows: Sequence[Row]) -> str:
    """Range of the calls in each area, and how well the orders of units agree."""
    found = [row["found"] for row in rows]
    area = np.array(found[0]["area"])
    lines = [
        "| label | called in the thalamus, of 7 | called in the hippocampus, of 8 | fits in which "
        "all of the thalamus stands first | rank correlation between seeds, median (least) |",
        "|---|---|---|---|---|",
    ]
    for name in LABELS:
        called = np.array([fit[name]["called"] for fit in found])
        scores = np.array([fit[name]["scores"] for fit in found])
        counts = [called[:, area == place].sum(axis=1) for place in ("adn", "ca1")]
        ranges = [f"{count.min()} to {count.max()} (mean {count.mean():.1f})" for count in counts]
        first = scores[:, area == "adn"].min(axis=1) > scores[:, area == "ca1"].max(axis=1)
        pairs = [spearmanr(a, b).statistic for a, b in combinations(scores, 2)]
        lines.append(
            f"| {name} | {ranges[0]} | {ranges[1]} | {first.sum()} of {len(found)} | "
            f"{np.median(pairs):.2f} ({min(pairs):.2f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run("quickstart_seeds", measure, ITEMS, answer)
