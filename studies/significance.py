"""How many of the connections that are called significant are false, and how many are missed?

Recordings of 100,000 samples with 2 observed and 4 hidden factors, dataset seeds 20 to 39. From
seed 30 on, the factors have a correlation of 0.5. Every neuron is tested for both blocks. The route
"cheap" uses one fit; the route "thorough" uses two more fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.sweep import Row

FACTORS = {"label": "z2", "time": "z1"}
ROUTES = ("cheap", "thorough")
# False discovery rate of the test, the default of `significant`.
ALPHA = 0.05


@dataclass(frozen=True)
class Fit:
    """One recording."""

    seed: int
    correlation: float
    refits: int = 2
    n_steps: int = 100_000
    steps: int | None = None


ITEMS = [
    Fit(seed, 0.0 if seed < 30 else 0.5) for pair in range(10) for seed in (20 + pair, 30 + pair)
]


def measure(item: Fit) -> dict[str, Any]:
    """Fit, and test every neuron by both routes."""
    rec = xcebra.datasets.synthetic(
        n_hidden=4,
        n_observed=2,
        n_steps=item.n_steps,
        correlation=item.correlation,
        seed=item.seed,
    )
    label = rec.labels["z2"]
    results: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = xcebra.XCEBRA(2, 4, steps=item.steps, random_state=0, progress=False)
        model.fit(rec.neural, label)
        for route, refits in zip(ROUTES, (0, item.refits), strict=True):
            amap = model.attribute(rec.neural, label, test=True, refits=refits)
            results[route] = {
                block: {
                    "p_values": connection.p_values.round(6).tolist(),
                    "share": connection.share.round(4).tolist(),
                    "low": connection.low.round(4).tolist(),
                    "high": connection.high.round(4).tolist(),
                    "true": rec.ground_truth[FACTORS[block]].tolist(),
                    "significant": connection.significant(ALPHA).tolist(),
                }
                for block, connection in amap.connections.items()
            }
    return results


def answer(rows: Sequence[Row]) -> str:
    """False discoveries and power, by route, block and correlation."""
    lines = [
        "| route | block | factors | false discoveries | rate over recordings | power |",
        "|---|---|---|---|---|---|",
    ]
    for route in ROUTES:
        for block in FACTORS:
            for name, chosen in (("all", (0.0, 0.5)), ("free", (0.0,)), ("correlated 0.5", (0.5,))):
                group = [
                    row["found"][route][block]
                    for row in rows
                    if row["item"]["correlation"] in chosen
                ]
                if group:
                    lines.append(f"| {route} | {block} | {name} | {_rates(group)} |")
    return "\n".join(lines)


def _rates(group: Sequence[dict[str, Any]]) -> str:
    false, called, hit, true = np.array([_counts(result) for result in group]).T
    rate = (false / np.maximum(called, 1)).mean()
    return (
        f"{false.sum()} of {called.sum()} | {100 * rate:.1f} % | {hit.sum()} of {true.sum()} "
        f"({100 * hit.sum() / true.sum():.1f} %)"
    )


def _counts(result: dict[str, Any]) -> tuple[int, int, int, int]:
    called, true = np.array(result["significant"]), np.array(result["true"])
    return (called & ~true).sum(), called.sum(), (called & true).sum(), true.sum()


if __name__ == "__main__":
    run("significance", measure, ITEMS, answer)
