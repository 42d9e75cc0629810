"""Does the search for dimensions find as many latents as there are factors?

A recording of 100,000 samples with 3 observed and 3 hidden factors, dataset seed 20; from 2
to 5 latents for each, three fits to a pair of numbers. Finished pairs are kept in
``results/studies/dimensions``, a folder to a recording.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import xcebra
from studies.study import RESULTS, tell
from xcebra.selection import DimensionChoice, select_dimensions

SEEDS = (20,)
CANDIDATES = (2, 3, 4, 5)


def search(
    seed: int,
    folder: Path,
    *,
    n_steps: int = 100_000,
    candidates: tuple[int, ...] = CANDIDATES,
    seeds: int = 3,
    **settings: Any,
) -> DimensionChoice:
    """Search on one recording, or go on with a search."""
    rec = xcebra.datasets.synthetic(n_hidden=3, n_observed=3, n_steps=n_steps, seed=seed)
    return select_dimensions(
        rec,
        label="z2",
        label_dims=candidates,
        time_dims=candidates,
        seeds=seeds,
        folder=folder,
        progress=sys.stderr.isatty(),
        **settings,
    )


def answer(choices: dict[int, DimensionChoice]) -> str:
    """What was chosen on each recording, beside how well fits agree with as many as there are."""
    lines = ["| dataset seed | label (3) | time (3) | agreement there | with 3 + 3 |"]
    lines.append("|---|---|---|---|---|")
    for seed, choice in choices.items():
        chosen = choice.candidates.index((choice.label_dims, choice.time_dims))
        true = choice.candidates.index((3, 3))
        there, truly = (f"{choice.mean[at]:.3f} ± {choice.error[at]:.3f}" for at in (chosen, true))
        lines.append(f"| {seed} | {choice.label_dims} | {choice.time_dims} | {there} | {truly} |")
    return "\n".join(lines)


def table(choice: DimensionChoice) -> str:
    """Agreement by latents of the label (down) and of time (across)."""
    deep = sorted({time for _, time in choice.candidates})
    lines = ["| label \\ time | " + " | ".join(map(str, deep)) + " |", "|---|" + "---|" * len(deep)]
    means = dict(zip(choice.candidates, np.round(choice.mean, 3), strict=True))
    for wide in dict.fromkeys(label for label, _ in choice.candidates):
        lines.append(
            f"| {wide} | " + " | ".join(f"{means[wide, time]:.3f}" for time in deep) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    found = {seed: search(seed, RESULTS / "dimensions" / str(seed)) for seed in SEEDS}
    tables = [f"Dataset seed {seed}:\n\n{table(choice)}" for seed, choice in found.items()]
    tell("dimensions", "\n\n".join([answer(found), *tables]), f"{len(found)} recordings")
