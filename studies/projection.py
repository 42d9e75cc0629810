"""Effect of the projection on principal components, and of the penalty, on the supervised baseline.

Supervised training (d = 6 and 9, dataset seeds 120 and 121, which are not used for any result),
with and without projection, with and without penalty. Measures auROC by entry of the gradient, the
inverted gradient and feature ablation. Rows are written to ``results/studies/projection.jsonl``.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import xcebra
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc
from xcebra.training import plan as planning
from xcebra.training import settings

RESULTS = Path(__file__).parents[1] / "results" / "studies" / "projection.jsonl"


def main() -> None:
    """Run all fits, and overwrite the file of rows."""
    warnings.simplefilter("ignore", XcebraWarning)
    usual = settings.RECIPES["xcebra"]
    rows = []
    for seed, d in ((120, 6), (121, 9)):
        rec = xcebra.datasets.synthetic(n_hidden=d - 2, n_observed=2, seed=seed)
        for project in (True, False):
            planning.RECIPES = {"xcebra": replace(usual, project=project)}
            for weight in (0.0, 0.01, 0.1):
                model = xcebra.XCEBRA(
                    objective="regression", jacobian_weight=weight, random_state=0, progress=False
                ).fit(rec.neural, rec.labels["z2"])
                row = {"seed": seed, "d": d, "project": project, "jacobian_weight": weight}
                row["r2"] = model.score(rec.neural, rec.labels["z2"])
                for method in ("gradient", "inverted-gradient", "feature-ablation"):
                    amap = model.attribute(rec.neural[::10], method=method)
                    row[method] = auroc(amap, rec.ground_truth, block="label", factor="z2")
                rows.append({**row, "xcebra": version("xcebra")})
                print(rows[-1], flush=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
