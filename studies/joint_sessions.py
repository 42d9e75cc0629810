"""What does a joint fit of several sessions buy over separate fits?

Sessions are simulated with different neurons, and different walks, of the same factors. Embeddings
are compared on samples after those of the fit. Maps are compared with the known wiring.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from studies.study import interval, run
from xcebra import metrics
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.datasets import synthetic
from xcebra.estimator import XCEBRA
from xcebra.metrics import r_squared
from xcebra.sweep import Row

Array = NDArray[np.float64]

LABEL, HIDDEN = "z2", "z1"
# Samples after those of the fit, on which embeddings are compared.
N_TEST = 3000
MODES = ("separate", "shared", "own")


@dataclass(frozen=True)
class Sessions:
    """Simulated sessions, and how they are fitted.

    Parameters
    ----------
    n_sessions, n_steps : int
        Number of sessions, and samples in each of them.
    noise : float
        In units of each neuron's standard deviation.
    mode : {"separate", "shared", "own"}
        One fit for each session, or a joint fit with this ``time_block``.
    seed : int
        Seed of the first session; the others have the following ones.
    """

    n_sessions: int
    n_steps: int
    noise: float
    mode: str
    seed: int


ITEMS = [
    *(Sessions(3, 10_000, 0.0, mode, 20) for mode in ("shared", "separate")),
    *(Sessions(10, 1_000, 0.5, mode, 20) for mode in MODES[:2]),
]


def measure(item: Sessions) -> dict[str, Any]:
    """Agreement of the label spaces, quality of embeddings and maps, and seconds."""
    whole = {
        str(i): synthetic(
            n_hidden=4,
            n_observed=2,
            n_steps=item.n_steps + N_TEST,
            noise=item.noise,
            seed=item.seed + i,
        )
        for i in range(item.n_sessions)
    }
    fitted_on = {name: _part(rec, slice(0, item.n_steps)) for name, rec in whole.items()}
    later = {name: _part(rec, slice(item.n_steps, None)) for name, rec in whole.items()}
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        if item.mode == "separate":
            models = {
                name: XCEBRA(time_dims=4, random_state=i).fit(rec, label=LABEL)
                for i, (name, rec) in enumerate(fitted_on.items())
            }
        else:
            joint = XCEBRA(time_dims=4, time_block=item.mode, random_state=0)  # type: ignore[arg-type]
            models = joint.fit(fitted_on, label=LABEL).sessions_
        fit_seconds = time.perf_counter() - started
        maps = {name: models[name].attribute(rec, test=True) for name, rec in fitted_on.items()}
    truth = {name: rec.ground_truth[LABEL] for name, rec in whole.items()}
    called = {name: amap.significant(LABEL) for name, amap in maps.items()}
    hidden = {name: rec.latents[HIDDEN] for name, rec in whole.items()}
    return {
        **_agreement(models, later),
        "hidden_r2": float(
            np.mean([_hidden_r2(models[n], whole[n], item.n_steps, hidden[n]) for n in models])
        ),
        "auroc_entries": [_auroc(maps[n], truth[n], "entries") for n in maps],
        "auroc_neurons": [_auroc(maps[n], truth[n], "block") for n in maps],
        "called_true": int(sum((called[n] & truth[n]).sum() for n in maps)),
        "n_true": int(sum(truth[n].sum() for n in maps)),
        "called_null": int(sum((called[n] & ~truth[n]).sum() for n in maps)),
        "n_null": int(sum((~truth[n]).sum() for n in maps)),
        "verdicts": [models[n].goodness_of_fit_[LABEL].verdict for n in models],
        "fit_seconds": round(fit_seconds, 1),
    }


def _part(recording: Recording, samples: slice) -> Recording:
    return Recording(
        np.asarray(recording.neural)[samples], {LABEL: recording.labels[LABEL][samples]}
    )


def _agreement(
    models: Mapping[str, XCEBRA], recordings: Mapping[str, Recording]
) -> dict[str, float]:
    """Agreement of the label blocks of all pairs of sessions, without any further fit.

    ``between`` compares the points of two sessions at the same label, and ``transfer`` reads the
    label of one session with the linear map of another.
    """
    points = {
        n: models[n].transform(rec)[:, models[n].blocks_[LABEL]] for n, rec in recordings.items()
    }
    labels = {name: rec.labels[LABEL] for name, rec in recordings.items()}
    own = [r_squared(labels[n], models[n].readout_[LABEL].predict(points[n])) for n in models]
    between, transfer = [], []
    for first in models:
        for second in models:
            if first == second:
                continue
            _, nearest = KDTree(labels[second]).query(labels[first])
            between.append(r_squared(points[first], points[second][nearest]))
            read = models[first].readout_[LABEL].predict(points[second])
            transfer.append(r_squared(labels[second], read))
    return {
        "label_r2": float(np.mean(own)),
        "between": float(np.mean(between)),
        "between_least": float(np.min(between)),
        "transfer": float(np.mean(transfer)),
    }


def _hidden_r2(model: XCEBRA, recording: Recording, n: int, hidden: Array) -> float:
    """R^2 of the factor that nobody observed, linear in the embedding, on later samples."""
    z = np.column_stack([model.transform(recording.neural), np.ones(recording.n_times)])
    weights = np.linalg.lstsq(z[:n], hidden[:n], rcond=None)[0]
    return r_squared(hidden[n:], z[n:] @ weights)


def _auroc(amap: Any, truth: NDArray[np.bool_], score: Any) -> float:
    return metrics.auroc(amap, {LABEL: truth}, block=LABEL, factor=LABEL, score=score)


def answer(rows: Sequence[Row]) -> str:
    """One line for each size and mode, over all datasets."""
    lines = [
        "| sessions | noise | fit | label spaces agree: R^2 between sessions (least) | label read "
        "with another session's map | label read with its own | hidden factor | auROC, entries | "
        "auROC, neurons | connected neurons called | others called | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    sizes = dict.fromkeys((item.n_sessions, item.n_steps, item.noise) for item in ITEMS)
    for size in sizes:
        for mode in MODES:
            group = [
                row["found"]
                for row in rows
                if (row["item"]["n_sessions"], row["item"]["n_steps"], row["item"]["noise"]) == size
                and row["item"]["mode"] == mode
            ]
            if group:
                lines.append(_line(size, mode, group))
    notes = (
        "Sessions have 50 neurons each, of which 25 carry the label; four further factors drive "
        "all neurons and are not observed. Embeddings are compared on 3,000 samples after those of "
        "the fit. Separate fits have different seeds, so that their label spaces differ by a "
        "rotation, and need not agree. Intervals of auROC are over sessions of all datasets."
    )
    return "\n".join([*lines, "", notes])


def _line(size: tuple[int, int, float], mode: str, group: Sequence[Mapping[str, Any]]) -> str:
    n_sessions, n_steps, noise = size
    names = {"separate": "separate", "shared": "joint", "own": "joint, own time blocks"}

    def mean(name: str) -> str:
        return f"{np.mean([found[name] for found in group]):.3f}"

    least = min(found["between_least"] for found in group)
    between = f"{mean('between')} ({least:.3f})"
    aurocs = [
        interval([100 * value for found in group for value in found[f"auroc_{kind}"]])
        for kind in ("entries", "neurons")
    ]
    calls = [
        f"{sum(f[f'called_{kind}'] for f in group)} of {sum(f[f'n_{kind}'] for f in group)}"
        for kind in ("true", "null")
    ]
    seconds = f"{np.mean([found['fit_seconds'] for found in group]):.0f}"
    cells = [f"{n_sessions} of {n_steps:,} samples", f"{noise:g}", names[mode], between]
    cells += [mean("transfer"), mean("label_r2"), mean("hidden_r2"), *aurocs, *calls, seconds]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    run("joint_sessions", measure, ITEMS, answer)
