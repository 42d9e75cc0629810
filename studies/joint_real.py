"""Joint fits of parts of real recordings, as if they were sessions, of which the answer is known.

A recording is divided into halves of time, into halves of its neurons, or into brain regions. The
parts are fitted together, and one by one.

The recordings are those of the benchmark on real recordings, in the folder that the environment
variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.metrics import r_squared
from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.truth import Challenge, RealCase, build
from xcebra.sweep import Row

HEADING, ENTORHINAL = "head_direction.nwb", "entorhinal_hippocampal.npz"
CASES = {
    "heading": RealCase(HEADING, "heading", 50.0, "known"),
    "position": RealCase(ENTORHINAL, "position", 51.2, "foreign", "hippocampus_w-maze.npz"),
}
SPLITS = ("time", "neurons", "region")


@dataclass(frozen=True)
class Parts:
    """A recording that is divided into pseudo-sessions.

    Parameters
    ----------
    case : str
        One of `CASES`.
    split : {"time", "neurons", "region"}
    joint : bool
        Whether the parts are fitted together.
    seed : int
    """

    case: str
    split: str
    joint: bool
    seed: int = 0


ITEMS = [
    Parts(case, split, joint)
    for case, split in (("heading", "time"), ("position", "region"), ("heading", "neurons"))
    for joint in (True, False)
]


def measure(item: Parts) -> dict[str, Any]:
    """Order of the neurons, calls, and agreement between the parts."""
    case = CASES[item.case]
    challenge = build(os.environ["XCEBRA_REAL_DATA"], case)
    parts = _parts(challenge, item.split)
    recordings = {name: part[0] for name, part in parts.items()}
    neurons = {name: part[1] for name, part in parts.items()}
    started = time.perf_counter()
    kinds = {case.label: challenge.label.kind}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        if item.joint:
            model = XCEBRA(label_kind=kinds, random_state=item.seed, progress=False)
            models = model.fit(recordings, label=case.label).sessions_
        else:
            models = {
                name: XCEBRA(label_kind=kinds, random_state=item.seed + i, progress=False).fit(
                    recording, label=case.label
                )
                for i, (name, recording) in enumerate(recordings.items())
            }
        seconds = time.perf_counter() - started
        maps = {name: models[name].attribute(rec, test=True) for name, rec in recordings.items()}
    result: dict[str, Any] = {"transfer": _transfer(models, recordings, case.label, challenge)}
    for name, amap in maps.items():
        truth, null = challenge.truth[neurons[name]], challenge.null[neurons[name]]
        judged = np.isfinite(truth)
        called = amap.significant(case.label)
        gate = models[name].goodness_of_fit_[case.label]
        both = len(np.unique(truth[judged])) == 2
        scores = amap.block(case.label)
        result[name] = {
            "n_times": recordings[name].n_times,
            "n_neurons": len(truth),
            "verdict": gate.verdict,
            "r2": None if gate.decoding is None else round(float(gate.decoding.r2), 4),
            "auroc": float(roc_auc_score(truth[judged], scores[judged])) if both else None,
            "called_true": int(called[truth == 1].sum()),
            "n_true": int((truth == 1).sum()),
            "called_null": int(called[null].sum()),
            "n_null": int(null.sum()),
        }
    return {"parts": list(parts), "seconds": round(seconds, 1), **result}


def _parts(challenge: Challenge, split: str) -> dict[str, tuple[Recording, NDArray[np.intp]]]:
    """Divide a recording; return the parts and the indices of their neurons."""
    recording = challenge.recording
    everyone, whole = np.arange(recording.n_neurons), slice(0, recording.n_times)
    if split == "time":
        middle = recording.n_times // 2
        times = {"first half": slice(0, middle), "second half": slice(middle, recording.n_times)}
        return {name: (_part(recording, part, everyone), everyone) for name, part in times.items()}
    if split == "neurons":
        groups = {"even neurons": everyone[::2], "odd neurons": everyone[1::2]}
    else:
        # Foreign neurons are divided between the regions.
        region = _regions(recording.n_neurons)
        foreign = everyone[~challenge.own]
        groups = {
            name: np.concatenate([np.flatnonzero(region == name), foreign[i::2]])
            for i, name in enumerate(("CA1", "EC"))
        }
    return {name: (_part(recording, whole, own), own) for name, own in groups.items()}


def _regions(n_neurons: int) -> NDArray[Any]:
    """Return CA1 or EC (entorhinal) of the recording's own neurons; empty for foreign ones."""
    path = os.path.join(os.environ["XCEBRA_REAL_DATA"], ENTORHINAL)
    with np.load(path, allow_pickle=False) as file:
        region = file["region"].astype(str)
    named = np.where(np.char.startswith(region, "EC"), "EC", region)
    return np.concatenate([named, np.full(n_neurons - len(named), "")])


def _part(recording: Recording, times: slice, neurons: NDArray[np.intp]) -> Recording:
    epochs = [
        (max(a, times.start) - times.start, min(b, times.stop) - times.start)
        for a, b in recording.epochs.pairs()
        if a < times.stop and b > times.start
    ]
    return Recording(
        np.asarray(recording.neural)[times][:, neurons],
        {name: values[times] for name, values in recording.labels.items()},
        epochs,  # type: ignore[arg-type]
        tuple(recording.neuron_names[k] for k in neurons),
        time=None if recording.time is None else recording.time[times],
    )


def _transfer(
    models: Mapping[str, XCEBRA],
    recordings: Mapping[str, Recording],
    label: str,
    challenge: Challenge,
) -> dict[str, float]:
    """R^2 of the label, read with the part's own linear map and with that of the other part."""
    own: list[float] = []
    other: list[float] = []
    for name, recording in recordings.items():
        z = models[name].transform(recording)[:, models[name].blocks_[label]]
        target = recording.labels[label].astype(np.float64)
        if challenge.label.kind == "circular":
            target = np.column_stack([np.cos(target), np.sin(target)])[:, -2:]
            if recording.labels[label].shape[1] == 2:
                target = recording.labels[label].astype(np.float64)
        for reader in models:
            predicted = models[reader].readout_[label].predict(z)
            known = np.isfinite(target).all(axis=1)
            value = r_squared(target[known], predicted[known])
            (own if reader == name else other).append(value)
    return {"own": float(np.mean(own)), "other": float(np.mean(other))}


def answer(rows: Sequence[Row]) -> str:
    """One line for each recording, division and kind of fit."""
    lines = [
        "| recording, label | divided by | fit | parts: verdict, auROC | connected neurons called "
        "| others called | label read with own map | with the other part's map | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        item, found = row["item"], row["found"]
        case = CASES[item["case"]]
        parts = [found[name] for name in found["parts"]]
        words = "; ".join(
            f"{name}: {part['verdict']}, {_number(part['auroc'])}"
            for name, part in zip(found["parts"], parts, strict=True)
        )
        calls = [
            f"{sum(p[f'called_{kind}'] for p in parts)} of {sum(p[f'n_{kind}'] for p in parts)}"
            for kind in ("true", "null")
        ]
        transfer = found["transfer"]
        fit = "joint" if item["joint"] else "separate"
        lines.append(
            f"| {RECORDINGS[case.file].title}, {case.label} | {item['split']} | {fit} | {words} | "
            f"{calls[0]} | {calls[1]} | {transfer['own']:.2f} | {transfer['other']:.2f} | "
            f"{found['seconds']:.0f} |"
        )
    notes = (
        "Heading: thalamic units carry it, hippocampal units of an encoding strength below 0.01 "
        "count as false. Position: tuned units carry it, neurons of another animal cannot. Labels "
        "are read from the embedding by a linear map, on the samples of the fit."
    )
    return "\n".join([*lines, "", notes])


def _number(value: float | None) -> str:
    return "one kind only" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    run("joint_real", measure, ITEMS, answer)
