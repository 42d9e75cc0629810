"""Does it cost quality that training stops when it has settled?

Fits every recording twice with each seed: with all steps of the schedule, and until training has
settled. Compares the maps and the calls with what is known: the wiring of simulations, areas of
neurons, and neurons of other animals that were added to real recordings.

The real recordings are in the folder that the environment variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from studies.study import interval, run
from xcebra import datasets
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.truth import RealCase, build
from xcebra.sweep import Row
from xcebra.training.settings import RECIPES

# Arguments of `datasets.synthetic` beside the seed.
SIMULATIONS: dict[str, dict[str, Any]] = {
    "simulated, independent": {},
    "simulated, correlated 0.7": {"correlation": 0.7},
    "simulated, noise 1 s.d.": {"noise": 1.0},
    "simulated, 2,000 samples": {"n_steps": 2_000},
}
# A recording, and the one whose neurons are added to it.
REAL: dict[str, tuple[str, str | None]] = {
    "head direction, known areas": ("head_direction.nwb", None),
    "linear track + foreign": ("hippocampus_linear-track.npz", "entorhinal_hippocampal.npz"),
    "entorhinal + foreign": ("entorhinal_hippocampal.npz", "place_cells.npz"),
    "place cells + foreign": ("place_cells.npz", "entorhinal_hippocampal.npz"),
}


@dataclass(frozen=True)
class Fit:
    """One fit: the recording by its name, the seed, and whether all steps are taken."""

    recording: str
    seed: int
    all_steps: bool


ITEMS = [
    Fit(name, seed, all_steps)
    for seed in range(2)
    for name in (*SIMULATIONS, *REAL)
    for all_steps in (True, False)
]


def measure(item: Fit) -> dict[str, Any]:
    """Steps taken, auROC of the map by neurons, and the neurons that are called."""
    recording, label, kind, truth = _recording(item)
    known = np.isfinite(truth)
    model = XCEBRA(
        steps=RECIPES["xcebra"].steps if item.all_steps else None,
        label_kind=None if kind is None else {label: kind},
        random_state=item.seed,
        progress=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        started = time.perf_counter()
        model.fit(recording, label=label)
        seconds = time.perf_counter() - started
        amap = model.attribute(recording, test=True)
    called = amap.significant(label)
    return {
        "steps": len(model.history_["weight"]),
        "fit_s": round(seconds, 2),
        "auroc": round(float(roc_auc_score(truth[known], amap.block(label)[known])), 5),
        "loss": round(float(model.goodness_of_fit_[label].loss), 4),
        "called": [int(called[truth == 1].sum()), int((truth == 1).sum())],
        "false": [int(called[truth == 0].sum()), int((truth == 0).sum())],
    }


def _recording(item: Fit) -> tuple[Recording, str, str | None, np.ndarray]:
    """Recording, label, its kind, and the truth: 1 connected, 0 not connected, NaN unknown."""
    if item.recording in SIMULATIONS:
        settings = {"n_steps": 30_000, **SIMULATIONS[item.recording]}
        made = datasets.synthetic(n_hidden=4, n_observed=2, seed=200 + item.seed, **settings)
        return made, "z2", None, made.ground_truth["z2"].astype(float)
    file, other = REAL[item.recording]
    info = RECORDINGS[file]
    truth = "known" if other is None else "foreign"
    case = RealCase(file, info.main_label, info.main_bin_ms, truth, other, draw=10 + item.seed)
    challenge = build(os.environ["XCEBRA_REAL_DATA"], case)
    return challenge.recording, info.main_label, challenge.label.kind, challenge.truth


def answer(rows: Sequence[Row]) -> str:
    """Table of steps, auROC and calls, with all steps and until training has settled."""
    lines = [
        "| recording | fits | steps until settled | auROC, all steps | auROC, settled | "
        "difference | called: all steps, settled | false: all steps, settled |",
        "|---|---|---|---|---|---|---|---|",
    ]
    differences: list[float] = []
    for name in (*SIMULATIONS, *REAL):
        by_kind = {
            kind: {
                row["item"]["seed"]: row["found"]
                for row in rows
                if row["item"]["recording"] == name and row["item"]["all_steps"] is kind
            }
            for kind in (True, False)
        }
        seeds = sorted(set(by_kind[True]) & set(by_kind[False]))
        if not seeds:
            continue
        pairs = [(by_kind[True][seed], by_kind[False][seed]) for seed in seeds]
        change = [settled["auroc"] - whole["auroc"] for whole, settled in pairs]
        differences += change
        whole, settled = zip(*pairs, strict=True)
        lines.append(
            f"| {name} | {len(seeds)} | {', '.join(str(r['steps']) for r in settled)} | "
            f"{_mean(whole)} | {_mean(settled)} | {np.mean(change):+.4f} | "
            f"{_calls(whole, 'called')}, {_calls(settled, 'called')} | "
            f"{_calls(whole, 'false')}, {_calls(settled, 'false')} |"
        )
    if len(differences) > 1:
        lines.append(f"\nMean difference of auROC with its 95 % interval: {interval(differences)}.")
    return "\n".join(lines)


def _mean(results: Sequence[dict[str, Any]]) -> str:
    return f"{np.mean([r['auroc'] for r in results]):.4f}"


def _calls(results: Sequence[dict[str, Any]], name: str) -> str:
    counts = np.sum([r[name] for r in results], axis=0)
    return f"{counts[0]} of {counts[1]}"


if __name__ == "__main__":
    run("stopping", measure, ITEMS, answer)
