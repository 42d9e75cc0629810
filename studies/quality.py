"""Quality of the default maps on simulated data, and verdicts on unrelated labels.

Related labels use dataset seeds 0 to 2, unrelated ones 0 to 4; none of them was used to choose a
default. Finished rows are kept in ``results/studies/quality.jsonl``; a run that was interrupted
continues with the missing rows.
"""

from __future__ import annotations

import json
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xcebra
from xcebra.caveats import UnlearnedLabelWarning
from xcebra.metrics import auroc

RESULTS = Path(__file__).parents[1] / "results" / "studies" / "quality.jsonl"
SETTING: dict[str, Any] = {"n_hidden": 4, "n_observed": 2, "n_steps": 100_000}


def related(seed: int) -> dict[str, Any]:
    """Fit with the recording's own label and default settings; score the embedding and the maps."""
    rec = xcebra.datasets.synthetic(**SETTING, seed=seed)
    model = xcebra.XCEBRA(label_dims=2, time_dims=4, random_state=seed, progress=False)
    started = time.perf_counter()
    model.fit(rec.neural, rec.labels["z2"])
    taken = time.perf_counter() - started
    row: dict[str, Any] = {
        "fit_s": taken,
        "r2": model.score(rec.neural, rec.labels["z2"]),
        "learned": {name: fit.learned for name, fit in model.goodness_of_fit_.items()},
        "time_offset": model.config_["time_offset"],
    }
    for method in ("inverted-gradient", "gradient"):
        started = time.perf_counter()
        amap = model.attribute(rec.neural, method=method)
        row[method] = {
            "attribute_s": time.perf_counter() - started,
            "auroc_entries": auroc(amap, rec.ground_truth, block="label", factor="z2"),
            "auroc_neurons": auroc(
                amap, rec.ground_truth, block="label", factor="z2", score="block"
            ),
        }
    plain = model.attribute(rec.neural, basis="raw", smooth=1)
    row["inverted-gradient, raw basis, no smoothing"] = {
        "auroc_entries": auroc(plain, rec.ground_truth, block="label", factor="z2")
    }
    return row


def unrelated(seed: int) -> dict[str, Any]:
    """Fit with the label of another recording, a random path unrelated to the neurons."""
    rec = xcebra.datasets.synthetic(**SETTING, seed=seed)
    other = xcebra.datasets.synthetic(**SETTING, seed=seed + 50)
    model = xcebra.XCEBRA(label_dims=2, time_dims=4, random_state=seed, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnedLabelWarning)
        model.fit(rec.neural, other.labels["z2"])
    fit = model.goodness_of_fit_["label"]
    return {
        "learned": fit.learned,
        "p_value": fit.p_value,
        "loss": fit.loss,
        "chance": fit.chance,
    }


def main() -> None:
    """Run the missing fits and print their rows."""
    work = [("related", seed) for seed in range(3)] + [("unrelated", seed) for seed in range(5)]
    made_with = {name: version(name) for name in ("xcebra", "torch", "numpy", "numba")}
    rows = []
    if RESULTS.exists():
        rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    done = {(row["case"], row["seed"]) for row in rows if row["made_with"] == made_with}
    for case, seed in work:
        if (case, seed) not in done:
            measured = related(seed) if case == "related" else unrelated(seed)
            row = {"case": case, "seed": seed, "made_with": made_with, **measured}
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps({k: v for k, v in row.items() if k != "made_with"}))


if __name__ == "__main__":
    main()
