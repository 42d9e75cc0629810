"""Time and memory of joint fits to 2, 4, 8 and 16 memory-mapped sessions.

``python benchmarks/sessions.py`` adds a line to ``results/speed/sessions.jsonl``.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Peak, provenance

import xcebra
from xcebra.caveats import XcebraWarning

RESULTS = Path(__file__).parents[1] / "results" / "speed" / "sessions.jsonl"
N_SESSIONS = (2, 4, 8, 16)
# Samples and neurons of each session, 16 MB as floats. Few steps are enough to see what grows.
N_TIMES, N_NEURONS, STEPS = 40_000, 100, 40


def measure(n_sessions: int, folder: Path) -> dict[str, Any]:
    """Seconds and peak of additional memory of one joint fit."""
    sessions = {}
    for i in range(n_sessions):
        path = folder / f"neural{i}.npy"
        rec = xcebra.datasets.synthetic(
            n_hidden=4, n_observed=2, n_steps=N_TIMES, n_neurons=N_NEURONS, seed=i
        )
        np.save(path, rec.neural)
        label = rec.labels["z2"].copy()
        del rec
        sessions[str(i)] = xcebra.Recording(np.load(path, mmap_mode="r"), {"z2": label})
    model = xcebra.XCEBRA(time_dims=4, steps=STEPS, random_state=0, progress=False)
    started = time.perf_counter()
    with Peak() as peak, warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(sessions, label="z2")
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "extra_mb": round(peak.most - peak.before),
        "files_mb": round(n_sessions * N_TIMES * N_NEURONS * 4 / 2**20),
    }


def main() -> None:
    """Measure joint fits of growing size."""
    row = provenance()
    with tempfile.TemporaryDirectory() as folder:
        measure(2, Path(folder))  # The first fit compiles its kernel.
        for n_sessions in N_SESSIONS:
            row[f"{n_sessions} sessions"] = measure(n_sessions, Path(folder))
            print(n_sessions, row[f"{n_sessions} sessions"])
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
