"""Why do neurons recorded together count less or more, depending on who stands beside them?

Fits the place cells together with neurons of two other recordings, and compares for each tuned
neuron what the label adds beyond the time latents, and what the time latents add beyond the label.

The recordings are those of the benchmark on real recordings, in the folder that the environment
variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.estimator import XCEBRA
from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.truth import RealCase, build
from xcebra.reproduce.real.work import STRONG
from xcebra.sweep import Row

HOST = "place_cells.npz"


@dataclass(frozen=True)
class Fit:
    """The place cells, with the neurons of another recording and a seed of the draw."""

    other: str
    draw: int
    seed: int = 0


ITEMS = [Fit("entorhinal_hippocampal.npz", 0), Fit("hippocampus_linear-track.npz", 1)]


def measure(item: Fit) -> dict[str, Any]:
    """For every tuned neuron: encoding strength, both shares, score, and whether it is called."""
    info = RECORDINGS[HOST]
    name = info.main_label
    case = RealCase(HOST, name, info.main_bin_ms, "foreign", item.other, item.draw)
    challenge = build(os.environ["XCEBRA_REAL_DATA"], case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(
            label_kind={name: challenge.label.kind}, random_state=item.seed, progress=False
        ).fit(challenge.recording, label=name)
        amap = model.attribute(challenge.recording, test=True)
    tuned = np.flatnonzero((challenge.truth == 1) & (challenge.strength > STRONG))
    columns = {
        "strength": challenge.strength,
        "label": amap.connections[name].share,
        "time": amap.connections["time"].share,
        "score": amap.block(name),
    }
    return {
        "unit": tuned.tolist(),
        "time_dims": int(model.config_["time_dims"]),
        "called": amap.significant(name)[tuned].tolist(),
    } | {key: np.round(values[tuned], 4).tolist() for key, values in columns.items()}


def answer(rows: Sequence[Row]) -> str:
    """One line per tuned neuron, those that the time latents explain most first."""
    by_other = {row["item"]["other"]: row["found"] for row in rows}
    found = [by_other[item.other] for item in ITEMS if item.other in by_other]
    if len(found) < len(ITEMS):
        return "Not all fits are finished."
    titles = [RECORDINGS[item.other].title for item in ITEMS]
    beside = " | ".join(
        f"beside {title}: time adds | label adds | score | called" for title in titles
    )
    lines = [f"| unit | encoding strength | {beside} |", "|---" * (2 + 4 * len(found)) + "|"]
    for k in np.argsort(found[-1]["time"])[::-1]:
        cells = [
            f"{one['time'][k]:.3f} | {one['label'][k]:.3f} | {one['score'][k]:.2f} | "
            f"{'yes' if one['called'][k] else 'no'}"
            for one in found
        ]
        lines.append(
            f"| {found[0]['unit'][k]} | {found[0]['strength'][k]:.3f} | {' | '.join(cells)} |"
        )
    notes = (
        f"Units of the place-cell recording with an encoding strength above {STRONG}. Shares of "
        "the neuron's variance, held out: what the time latents add beyond the label, and what the "
        "label adds beyond the time latents."
    )
    return "\n".join([*lines, "", notes])


if __name__ == "__main__":
    run("neighbours", measure, ITEMS, answer)
