"""Joint fits of several sessions beside the multi-session training of CEBRA 0.6.1.

Both see the same simulated sessions, with different neurons of the same factors. CEBRA is used as
its documentation shows: a cosine distance, ``conditional="time_delta"``, and one encoder for each
session. It needs the extra ``bench``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.datasets import synthetic
from xcebra.estimator import XCEBRA
from xcebra.metrics import r_squared
from xcebra.sweep import Row

Array = NDArray[np.float64]

LABEL = "z2"
N_TEST = 3000


@dataclass(frozen=True)
class Case:
    """Simulated sessions and the package that fits them.

    Parameters
    ----------
    package : {"xcebra", "cebra"}
    n_sessions, n_steps : int
    noise : float
    iterations : int
        Training steps of CEBRA; 0 for ours, which has its own number.
    seed : int
        Seed of the first session; the others have the following ones.
    """

    package: str
    n_sessions: int
    n_steps: int
    noise: float
    iterations: int
    seed: int


ITEMS = [
    Case("xcebra", 3, 10_000, 0.0, 0, 20),
    Case("cebra", 3, 10_000, 0.0, 2_000, 20),
]


def measure(item: Case) -> dict[str, Any]:
    """Agreement between sessions on later samples, and seconds of training."""
    whole = [
        synthetic(
            n_hidden=4,
            n_observed=2,
            n_steps=item.n_steps + N_TEST,
            noise=item.noise,
            seed=item.seed + i,
        )
        for i in range(item.n_sessions)
    ]
    fit = _xcebra if item.package == "xcebra" else _cebra
    with warnings.catch_warnings():
        # CEBRA calls deprecated functions of its dependencies, which users cannot change.
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        before, after = fit(whole, item)
        seconds = time.perf_counter() - started
    labels = [rec.labels[LABEL].astype(np.float64) for rec in whole]
    n = item.n_steps
    as_is, aligned, read = [], [], []
    for a in range(item.n_sessions):
        read.append(r_squared(labels[a][n:], _linear(before[a], labels[a][:n], after[a])))
        for b in range(item.n_sessions):
            if a != b:
                _, nearest = KDTree(labels[b][n:]).query(labels[a][n:])
                matched = after[b][nearest]
                as_is.append(r_squared(after[a], matched))
                aligned.append(r_squared(after[a], _linear(matched, after[a], matched)))
    return {
        "as_is": float(np.mean(as_is)),
        "as_is_least": float(np.min(as_is)),
        "aligned": float(np.mean(aligned)),
        "label_r2": float(np.mean(read)),
        "train_seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
    }


def _xcebra(whole: Sequence[Recording], item: Case) -> tuple[list[Array], list[Array]]:
    """Embed the label in a joint fit; training, decoders, test of labels and all."""
    parts = {
        str(i): Recording(
            np.asarray(rec.neural)[: item.n_steps], {LABEL: rec.labels[LABEL][: item.n_steps]}
        )
        for i, rec in enumerate(whole)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(random_state=0, progress=False).fit(parts, label=LABEL)
    block = model.blocks_[LABEL]
    points = [
        model.sessions_[str(i)].transform(rec.neural)[:, block] for i, rec in enumerate(whole)
    ]
    return [z[: item.n_steps] for z in points], [z[item.n_steps :] for z in points]


def _cebra(whole: Sequence[Recording], item: Case) -> tuple[list[Array], list[Array]]:
    import cebra

    torch.manual_seed(0)
    model = cebra.CEBRA(
        model_architecture="offset1-model",
        conditional="time_delta",
        distance="cosine",
        temperature=1.0,
        batch_size=512,
        learning_rate=3e-4,
        # A sphere of three dimensions holds a label of two columns.
        output_dimension=3,
        max_iterations=item.iterations,
        device="cpu",
        verbose=False,
    )
    neural = [np.asarray(rec.neural, dtype=np.float32) for rec in whole]
    labels = [rec.labels[LABEL].astype(np.float32) for rec in whole]
    n = item.n_steps
    model.fit([x[:n] for x in neural], [y[:n] for y in labels])
    points = [np.asarray(model.transform(x, session_id=i)) for i, x in enumerate(neural)]
    return [z[:n] for z in points], [z[n:] for z in points]


def _linear(x: Array, y: Array, new: Array) -> Array:
    """Predict ``y`` linearly from ``x``, at ``new``."""
    weights = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    return np.asarray(np.column_stack([new, np.ones(len(new))]) @ weights)


def answer(rows: Sequence[Row]) -> str:
    """One line for each package and noise, over all datasets."""
    lines = [
        "| noise | package | R^2 between sessions, no further fit (least) | after a linear fit | "
        "label read on later samples, R^2 | seconds |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[float, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        item = row["item"]
        key = (item["noise"], item["package"], item["iterations"])
        groups.setdefault(key, []).append(row["found"])
    for (noise, package, iterations), group in groups.items():
        name = "xcebra" if package == "xcebra" else f"CEBRA 0.6.1, {iterations:,} steps"
        mean = {key: np.mean([found[key] for found in group]) for key in group[0]}
        least = min(found["as_is_least"] for found in group)
        lines.append(
            f"| {noise:g} | {name} | {mean['as_is']:.3f} ({least:.3f}) | {mean['aligned']:.3f} | "
            f"{mean['label_r2']:.3f} | {mean['train_seconds']:.0f} |"
        )
    notes = (
        "Three sessions of 10,000 samples and 50 neurons, one dataset, one thread, beside other "
        "work. Points of two sessions are compared at the same label, on 3,000 samples after those "
        "of the fit. CEBRA may gain from more steps, which were not run. Our seconds include the "
        "decoders, the verdicts and the axes of maps of all sessions, which CEBRA does not have."
    )
    return "\n".join([*lines, "", notes])


if __name__ == "__main__":
    run("joint_beside_cebra", measure, ITEMS, answer)
