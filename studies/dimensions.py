"""Does the search for dimensions choose as many latents as there are factors?

The recording has 100,000 samples, 3 observed and 3 hidden factors (dataset seed 20). The search
tries 2 to 5 latents for each, with three fits per pair of numbers. Finished pairs are kept in
``results/studies/dimensions``, one folder per recording.
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
    """Search on one recording, or continue a search that was interrupted."""
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
    """The choice on each recording, and the agreement of fits there and with the true numbers."""
    lines = ["| dataset seed | label (3) | time (3) | agreement there | with 3 + 3 |"]
    lines.append("|---|---|---|---|---|")
    for seed, choice in choices.items():
        chosen = choice.candidates.index((choice.label_dims, choice.time_dims))
        true = choice.candidates.index((3, 3))
        chosen_text, true_text = (
            f"{choice.mean[i]:.3f} ± {choice.error[i]:.3f}" for i in (chosen, true)
        )
        lines.append(
            f"| {seed} | {choice.label_dims} | {choice.time_dims} | {chosen_text} | {true_text} |"
        )
    return "\n".join(lines)


def table(choice: DimensionChoice) -> str:
    """Agreement of fits by number of label latents (rows) and time latents (columns)."""
    time_dims = sorted({time for _, time in choice.candidates})
    lines = [
        "| label \\ time | " + " | ".join(map(str, time_dims)) + " |",
        "|---|" + "---|" * len(time_dims),
    ]
    means = dict(zip(choice.candidates, np.round(choice.mean, 3), strict=True))
    for label_dims in dict.fromkeys(label for label, _ in choice.candidates):
        lines.append(
            f"| {label_dims} | "
            + " | ".join(f"{means[label_dims, time]:.3f}" for time in time_dims)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    choices = {seed: search(seed, RESULTS / "dimensions" / str(seed)) for seed in SEEDS}
    tables = [f"Dataset seed {seed}:\n\n{table(choice)}" for seed, choice in choices.items()]
    tell("dimensions", "\n\n".join([answer(choices), *tables]), f"{len(choices)} recordings")
