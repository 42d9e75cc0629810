"""Why do fits with different seeds rank neurons differently, and what would averaging cost?

Fits each recording with several seeds. After each fit, the crossed decoders are fitted several
times more with other seeds, from the same encoder. Compares rankings of the same encoder with those
of different encoders, and rankings of averages over several pairs of decoders.

The recordings are those of the benchmark on real recordings, in the folder that the environment
variable XCEBRA_REAL_DATA names.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from studies.study import run
from xcebra.attribution.crossed_map import signed_root
from xcebra.attribution.crossed_mixtures import fit_crossed_mixtures
from xcebra.caveats import XcebraWarning
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.networks.crossed_fit import fit_crossed_decoder, known_times
from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.truth import RealCase, build
from xcebra.sweep import Row
from xcebra.training.plan import make_plan

N_PAIRS = 4


@dataclass(frozen=True)
class Fit:
    """One encoder, and several pairs of crossed decoders that are fitted to it."""

    file: str
    seed: int


FILES = (
    "hippocampus_linear-track.npz",
    "entorhinal_hippocampal.npz",
    "head_direction.nwb",
    "grid_cells.npz",
)
ITEMS = [Fit(file, seed) for seed in range(3) for file in FILES]


def measure(item: Fit) -> dict[str, Any]:
    """Scores of every neuron for the main label, by each pair of decoders."""
    info = RECORDINGS[item.file]
    folder = os.environ["XCEBRA_REAL_DATA"]
    case = RealCase(item.file, info.main_label, info.main_bin_ms, "own")
    challenge = build(folder, case)
    recording, name = challenge.recording, info.main_label
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(
            label_kind={name: challenge.label.kind}, random_state=item.seed, progress=False
        )
        started = time.perf_counter()
        model.fit(recording, label=name)
        seconds = {"fit": time.perf_counter() - started}
        scores = [model.attribute(recording).block(name)]
        started = time.perf_counter()
        for k in range(1, N_PAIRS):
            _fit_decoders_again(model, recording, name, 1000 * (item.seed + 1) + k)
            scores.append(model.attribute(recording).block(name))
        seconds["decoders"] = (time.perf_counter() - started) / (N_PAIRS - 1)
    return {
        "scores": [np.round(score, 5).tolist() for score in scores],
        "seconds": {part: round(value, 1) for part, value in seconds.items()},
    }


def _fit_decoders_again(model: XCEBRA, recording: Recording, name: str, seed: int) -> None:
    """Replace the crossed decoders, and the mixtures that follow from them, by those of a seed."""
    decided, old = model.decisions_, model.crossed_decoder_
    params = model.get_params(deep=False) | {
        key: model.config_[key] for key in ("time_dims", "window")
    }
    labelled = Recording(recording.neural, {name: recording.labels[name]}, recording.epochs)
    plan = make_plan(labelled, params)
    model.crossed_decoder_ = fit_crossed_decoder(
        model.encoder_,
        model.decoder_,
        plan.inputs,
        labelled,
        plan.labels,
        decided.blocks.get("time"),
        old.patterns,
        replace(decided.decoder, batch_size=min(512, decided.decoder.batch_size), seed=seed),
    )
    source = model._source(labelled, {label.name: label for label in plan.labels})
    assert source is not None
    times = known_times(labelled.epochs, plan.labels, labelled.n_times)
    model.mixture_ = fit_crossed_mixtures(source, times)


def answer(rows: Sequence[Row]) -> str:
    """Mean Spearman correlations, one line per recording."""
    lines = [
        "| recording | same encoder, other decoders | other encoder | two pairs averaged | "
        "four pairs averaged | seconds of a fit | of a pair of decoders more | n |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for file in FILES:
        group = [row["found"] for row in rows if row["item"]["file"] == file]
        if len(group) < 2:
            continue
        scores = np.array([found["scores"] for found in group])
        same = [_rank(a, b) for fit in scores for a, b in combinations(fit, 2)]
        averaged = [
            np.mean(
                [
                    _rank(a, b)
                    for one, other in combinations(_averages(scores, n_pairs), 2)
                    for a in one
                    for b in other
                ]
            )
            for n_pairs in (1, 2, 4)
        ]
        cells = [np.mean(same), *averaged]
        seconds = [np.median([f["seconds"][part] for f in group]) for part in ("fit", "decoders")]
        lines.append(
            f"| {RECORDINGS[file].title} | "
            + " | ".join(f"{cell:.2f}" for cell in cells)
            + f" | {seconds[0]:.0f} | {seconds[1]:.0f} | {len(group)} |"
        )
    notes = (
        "Spearman correlation of the scores of all neurons, mean over pairs of fits. Averages are "
        "over the squared scores, with their signs. n: encoders."
    )
    return "\n".join([*lines, "", notes])


def _averages(scores: NDArray[np.float64], n_pairs: int) -> NDArray[np.float64]:
    """Average groups of ``n_pairs`` rankings of each fit, by their squares with their signs."""
    n_fits, _, n_neurons = scores.shape
    squares = np.sign(scores) * np.square(scores)
    return signed_root(squares.reshape(n_fits, -1, n_pairs, n_neurons).mean(axis=2))


def _rank(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(spearmanr(a, b).statistic)


if __name__ == "__main__":
    run("seeds", measure, ITEMS, answer)
