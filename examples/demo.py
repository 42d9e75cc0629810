"""Simulate a recording, fit a model, make a map, and write scores, figures and a report."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import xcebra
from xcebra import plots
from xcebra.metrics import auroc
from xcebra.report import write_report

FOLDER = Path(__file__).parent.parent / "demo"


def main() -> None:
    """Run the demonstration from the recording to the report."""
    FOLDER.mkdir(exist_ok=True)
    rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=100_000, seed=0)
    print(f"simulated {rec.n_neurons} neurons over {rec.n_times:,} steps; z2 drives half of them")

    model = xcebra.XCEBRA(label_dims=2, time_dims=4, random_state=0, progress=True)
    started = time.perf_counter()
    model.fit(rec.neural, rec.labels["z2"])
    print(f"fitted in {time.perf_counter() - started:.0f} s")

    amap = model.attribute(rec.neural)
    scores = {
        "R^2 of the label block": model.score(rec.neural, rec.labels["z2"]),
        "auROC, entries": auroc(amap, rec.ground_truth, block="label", factor="z2"),
        "auROC, neurons": auroc(amap, rec.ground_truth, block="label", factor="z2", score="block"),
    }
    for name, value in scores.items():
        print(f"{name}: {value:.4f}")
    explained = model.variance_explained_["all"].mean()
    print(f"variance of held-out activity that the decoder explains: {explained:.3f}")
    for name, fit in model.goodness_of_fit_.items():
        print(
            f"{name}: held-out loss {fit.loss:.2f}, chance {fit.chance:.2f}, learned {fit.learned}"
        )

    pictures = {
        "map.png": amap.plot(truth=rec.ground_truth),
        "scores.png": plots.block_scores(amap, "label", truth=rec.ground_truth["z2"]),
        "training.png": plots.training_curves(model.history_),
    }
    for name, ax in pictures.items():
        figure: Any = ax.figure
        figure.savefig(FOLDER / name, dpi=150)
    model.save(FOLDER / "model.safetensors")
    amap.save(FOLDER / "map.nc")
    page = write_report(
        FOLDER / "report.html",
        model,
        amap,
        recording=rec,
        truth=rec.ground_truth,
        scores=scores,
    )
    print(f"wrote {page.relative_to(FOLDER.parent)} and {', '.join(pictures)} beside it")


if __name__ == "__main__":
    main()
