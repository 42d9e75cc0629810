"""Is the default map as good on simulations as that of version 0.3?

Compares the crossed gradient, which is the default, with the decoder gradient, which was the
default until 0.3, on the same fits. The recordings are some of the harder table and of the paper's
Tables 1 and 2, dataset seeds 0 to 2. The test calls neurons connected to the attributed factor.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import xcebra
from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.common.choices import Method
from xcebra.metrics import auroc
from xcebra.sweep import Row

MAPS: dict[str, Method] = {"crossed": "crossed-gradient", "decoder": "decoder-gradient"}
FACTOR = "z2"


@dataclass(frozen=True)
class Fit:
    """One recording, with its first or its second factor observed.

    ``too_few`` is how many latents fewer than there are hidden factors the fit has for time; None
    lets the fit choose their number from the data.
    """

    name: str
    seed: int
    n_hidden: int = 4
    n_observed: int = 2
    observed: str = FACTOR
    correlation: float = 0.0
    connected: float = 0.5
    noise: float = 0.0
    counts: bool = False
    n_steps: int = 100_000
    too_few: int | None = 0
    steps: int | None = None


HARDER: dict[str, dict[str, Any]] = {
    "1,000 time steps": {"n_steps": 1000},
    "correlated 0.9": {"correlation": 0.9},
    "Poisson counts": {"counts": True},
    "correlated 0.7, a latent too few": {"correlation": 0.7, "too_few": 1},
    "correlated 0.7, latents from the data": {"correlation": 0.7, "too_few": None},
    "correlated 0.7": {"correlation": 0.7},
    "90% connected": {"connected": 0.9},
    "noise 2 s.d.": {"noise": 2.0},
    "correlated 0.7, 90% connected": {"correlation": 0.7, "connected": 0.9},
    "noise 0.5 s.d.": {"noise": 0.5},
}
OBSERVED = {f"Table 1, d = {d}": {"n_hidden": d - 2} for d in (6, 4, 9, 5, 7, 8)}
LATENT = {
    f"Table 2, d = {d}": {"n_hidden": 2, "n_observed": d - 2, "observed": "z1"}
    for d in (6, 4, 9, 5, 7, 8)
}
LINES = {**HARDER, **OBSERVED, **LATENT}
ITEMS = [
    Fit(name, seed, **lines[name])
    for lines in (HARDER, OBSERVED | LATENT)
    for seed in range(3)
    for name in lines
]


def measure(item: Fit) -> dict[str, Any]:
    """Measure auROC of both maps, by entry and by neuron, and count the neurons that are called."""
    rec = xcebra.datasets.synthetic(
        n_hidden=item.n_hidden,
        n_observed=item.n_observed,
        observed=item.observed,
        correlation=item.correlation,
        connected=item.connected,
        noise=item.noise,
        counts=item.counts,
        n_steps=item.n_steps,
        seed=item.seed,
    )
    label = rec.labels[item.observed]
    model = xcebra.XCEBRA(
        label_dims=item.n_observed,
        time_dims=None if item.too_few is None else item.n_hidden - item.too_few,
        steps=item.steps,
        random_state=item.seed,
        progress=False,
    )
    block = "label" if item.observed == FACTOR else "time"
    truth = rec.ground_truth[FACTOR]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", XcebraWarning)
        started = time.perf_counter()
        model.fit(rec.neural, label)
        seconds = {"fit": time.perf_counter() - started}
        started = time.perf_counter()
        maps = {"crossed": model.attribute(rec.neural, label, test=True)}
        seconds["test"] = time.perf_counter() - started
        warned = sorted({warning.category.__name__ for warning in caught})
        maps["decoder"] = model.attribute(rec.neural, method=MAPS["decoder"])
    called = maps["crossed"].connections[block].significant()
    return {
        name: {
            "entries": float(auroc(amap, rec.ground_truth, block=block, factor=FACTOR)),
            "neurons": float(
                auroc(amap, rec.ground_truth, block=block, factor=FACTOR, score="block")
            ),
        }
        for name, amap in maps.items()
    } | {
        "called": [int(called[truth].sum()), int(truth.sum())],
        "false": [int(called[~truth].sum()), int((~truth).sum())],
        "warned": warned,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }


def answer(rows: Sequence[Row]) -> str:
    """Mean over recordings, one line per kind of recording."""
    lines = [
        "| recording | crossed gradient (default) | decoder gradient | connected, called | "
        "unconnected, called | warned | n |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in LINES:
        group = [row["found"] for row in rows if row["item"]["name"] == name]
        if group:
            cells = [
                f"{_mean(group, kind, 'entries')} / {_mean(group, kind, 'neurons')}"
                for kind in MAPS
            ]
            counts = [
                "{} of {}".format(*np.sum([g[key] for g in group], axis=0))
                for key in ("called", "false")
            ]
            warned = f"{sum(bool(g['warned']) for g in group)} of {len(group)}"
            lines.append(
                f"| {name} | " + " | ".join([*cells, *counts, warned]) + f" | {len(group)} |"
            )
    lines += [
        "",
        "auROC in per cent, entry by entry / one score per neuron, mean over n recordings.",
    ]
    return "\n".join(lines)


def _mean(group: Sequence[Any], kind: str, score: str) -> str:
    return f"{100 * np.mean([g[kind][score] for g in group]):.1f}"


if __name__ == "__main__":
    run("default_map", measure, ITEMS, answer)
