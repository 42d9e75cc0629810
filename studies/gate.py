"""Is the verdict "learned" given to related labels, and withheld from unrelated ones?

Recordings of 100,000 samples, dataset seeds 20 to 39. Each is fitted with its own label and with
the label of another recording, which has the same statistics but is unrelated to the neurons.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.sweep import Row

# The seed of the other recording is larger by this number.
APART = 1000


@dataclass(frozen=True)
class Fit:
    """One recording, with its own label or the label of another recording."""

    seed: int
    related: bool
    n_steps: int = 100_000
    steps: int | None = None


ITEMS = [Fit(seed, related) for seed in range(20, 40) for related in (False, True)]


def measure(item: Fit) -> dict[str, Any]:
    """Fit the model and return the verdict on the label."""
    simulate = partial(xcebra.datasets.synthetic, n_hidden=4, n_observed=2, n_steps=item.n_steps)
    rec = simulate(seed=item.seed)
    label = (rec if item.related else simulate(seed=item.seed + APART)).labels["z2"]
    model = xcebra.XCEBRA(2, 4, steps=item.steps, random_state=0, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec.neural, label)
    fit = model.goodness_of_fit_["label"]
    return {
        "learned": fit.learned,
        "p_value": fit.p_value,
        "loss": fit.loss,
        "chance": fit.chance,
        "effect": fit.effect,
        "collapsed": fit.collapsed,
    }


def answer(rows: Sequence[Row]) -> str:
    """Number of labels that are learned, and the range of effects and p-values."""
    lines = ["| samples | label | passed | effect | p |", "|---|---|---|---|---|"]
    for n_steps in sorted({row["item"]["n_steps"] for row in rows}, reverse=True):
        for related in (False, True):
            group = [
                row["found"]
                for row in rows
                if (row["item"]["n_steps"], row["item"]["related"]) == (n_steps, related)
            ]
            if not group:
                continue
            effect, p = ([result[key] for result in group] for key in ("effect", "p_value"))
            passed = sum(result["learned"] is True for result in group)
            lines.append(
                f"| {n_steps:,} | {'its own' if related else 'of another'} | {passed} of "
                f"{len(group)} | {np.min(effect):.2f} to {np.max(effect):.2f} | {np.min(p):.3f} to "
                f"{np.max(p):.3f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    run("gate", measure, ITEMS, answer)
