"""How many minutes and how many neurons does a map of a real recording need?

Fits parts of two recordings in which it is known which neurons carry the label: head-direction
cells beside hippocampal cells, and place cells beside neurons of another animal. Parts are shorter
in time, or have fewer of the neurons that carry the label.

The recordings are those of the benchmark on real recordings, in the folder that the environment
variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.truth import Challenge, RealCase, build
from xcebra.sweep import Row

HEADING, PLACES = "head_direction.nwb", "place_cells.npz"
# Bin sizes in milliseconds, and where the truth comes from.
CASES = {
    HEADING: RealCase(HEADING, "heading", 50.0, "known"),
    PLACES: RealCase(PLACES, "position", 100.0, "foreign", "hippocampus_linear-track.npz"),
}


@dataclass(frozen=True)
class Part:
    """A part of a recording.

    Parameters
    ----------
    file : str
    minutes : float or None
        Length of the part; None for the whole recording.
    carriers : int or None
        Number of the neurons that carry the label that are kept; None for all of them. In the
        recording of place cells, other own neurons are left out, so that the neurons of the other
        animal are the rest.
    draw : int
        Seed of the choice of neurons, and number of the part of the time.
    """

    file: str
    minutes: float | None
    carriers: int | None
    draw: int


ITEMS = [
    Part(HEADING, None, None, 0),
    *(Part(HEADING, minutes, None, draw) for minutes in (1.0, 2.0, 4.0) for draw in (0, 1)),
    Part(PLACES, None, None, 0),
    Part(PLACES, 2.0, None, 0),
    *(Part(HEADING, None, n, draw) for n in (2, 4) for draw in (0, 1)),
    Part(PLACES, 4.0, None, 0),
    Part(PLACES, None, 4, 0),
]


def measure(item: Part) -> dict[str, Any]:
    """Verdict, order of the neurons, and neurons called, of one part."""
    case = CASES[item.file]
    challenge = build(os.environ["XCEBRA_REAL_DATA"], case)
    neurons = _chosen_neurons(challenge, item)
    recording = _part(challenge.recording, item, neurons, case.bin_ms)
    truth, null = challenge.truth[neurons], challenge.null[neurons]
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(
            label_kind={case.label: challenge.label.kind}, random_state=0, progress=False
        )
        model.fit(recording, label=case.label)
        amap = model.attribute(recording, test=True)
    judged = np.isfinite(truth)
    called = amap.significant(case.label)
    gate = model.goodness_of_fit_[case.label]
    return {
        "n_times": recording.n_times,
        "n_neurons": recording.n_neurons,
        "verdict": gate.verdict,
        "r2": None if gate.decoding is None else round(float(gate.decoding.r2), 4),
        "auroc": float(roc_auc_score(truth[judged], amap.block(case.label)[judged])),
        "called_true": int(called[truth == 1].sum()),
        "n_true": int((truth == 1).sum()),
        "called_null": int(called[null].sum()),
        "n_null": int(null.sum()),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _chosen_neurons(challenge: Challenge, item: Part) -> NDArray[np.intp]:
    carriers = np.flatnonzero(challenge.truth == 1)
    if item.carriers is not None:
        rng = np.random.default_rng(item.draw)
        carriers = rng.choice(carriers, item.carriers, replace=False)
    others = np.flatnonzero(challenge.truth == 0)
    return np.sort(np.concatenate([carriers, others]))


def _part(recording: Recording, item: Part, neurons: NDArray[np.intp], bin_ms: float) -> Recording:
    start, stop = 0, recording.n_times
    if item.minutes is not None:
        length = round(item.minutes * 60_000 / bin_ms)
        start = (recording.n_times - length) * (1 + item.draw) // 3
        stop = start + length
    epochs = [
        (max(a, start) - start, min(b, stop) - start)
        for a, b in recording.epochs.pairs()
        if a < stop and b > start
    ]
    return Recording(
        np.asarray(recording.neural)[start:stop, neurons],
        {name: values[start:stop] for name, values in recording.labels.items()},
        epochs,  # type: ignore[arg-type]
        tuple(recording.neuron_names[k] for k in neurons),
        time=None if recording.time is None else recording.time[start:stop],
    )


def answer(rows: Sequence[Row]) -> str:
    """One line for each size of a part, pooled over draws."""
    lines = [
        "| recording, label | minutes | neurons that carry it | others | verdict | auROC | "
        "called, of those that carry it | called, of those that do not | parts |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    sizes = dict.fromkeys((item.file, item.minutes, item.carriers) for item in ITEMS)
    for file, minutes, carriers in sorted(sizes, key=_order):
        group = [
            row["found"]
            for row in rows
            if (row["item"]["file"], row["item"]["minutes"], row["item"]["carriers"])
            == (file, minutes, carriers)
        ]
        if not group:
            continue
        first = group[0]
        length = first["n_times"] * CASES[file].bin_ms / 60_000
        verdicts = [found["verdict"] for found in group]
        told = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
        aurocs = ", ".join(f"{found['auroc']:.2f}" for found in group)
        counts = [
            f"{sum(f[f'called_{kind}'] for f in group)} of {sum(f[f'n_{kind}'] for f in group)}"
            for kind in ("true", "null")
        ]
        n_others = first["n_neurons"] - first["n_true"]
        lines.append(
            f"| {RECORDINGS[file].title}, {CASES[file].label} | {length:.1f} | {first['n_true']} | "
            f"{n_others} | {told} | {aurocs} | {counts[0]} | {counts[1]} | {len(group)} |"
        )
    notes = (
        "Bins of 50 ms (head direction) and 100 ms (place cells). Others: hippocampal units, of "
        "which only those with an encoding strength below 0.01 count as false if they are called, "
        "and neurons of another animal. Place cells: those that are tuned, alone with the neurons "
        "of the other animal. Each part is fitted once."
    )
    return "\n".join([*lines, "", notes])


def _order(size: tuple[str, float | None, int | None]) -> tuple[bool, bool, float, float]:
    file, minutes, carriers = size
    return file == PLACES, carriers is not None, minutes or np.inf, carriers or np.inf


if __name__ == "__main__":
    run("amount_of_data", measure, ITEMS, answer)
