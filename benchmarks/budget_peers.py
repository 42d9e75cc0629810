"""The same work by CEBRA and Captum, in a process of its own, for `benchmarks/budget.py`.

``python benchmarks/budget_peers.py FOLDER SETTING`` reads the recording in FOLDER and prints the
results as JSON. SETTING is JSON with the numbers of steps, of samples in a batch and of latents.
A few steps and a few samples are measured, and their time is scaled up to all of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from budget_run import Stored
from measuring import Peak, matrix_product_share, seconds
from numpy.typing import NDArray

from xcebra.reproduce import timing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # CEBRA's imports warn about their own dependencies
    import cebra_side

# Steps that are measured after one to warm up; the median is scaled up.
_STEPS = 3
# Samples whose map is measured.
_MAP_SAMPLES = {"inverted-gradient": 2000, "gradient": 20_000}
# CEBRA's search for label positives holds about this many arrays of (samples, batch) single floats.
_LARGE_ARRAYS = 4


def columns(stored: Stored) -> NDArray[np.float32]:
    """The label as CEBRA takes it: cosine and sine of an angle."""
    label = stored.label.astype(np.float32)
    if stored.kind == "circular":
        label = np.concatenate([np.cos(label), np.sin(label)], axis=1)
    return np.ascontiguousarray(label)


def too_large(n_times: int, batch: int) -> str | None:
    """The reason why CEBRA cannot be run on this machine, or None."""
    needed = _LARGE_ARRAYS * 4 * n_times * batch / 2**30
    rows = Path("/proc/meminfo").read_text().splitlines()
    row = next(row for row in rows if row.startswith("MemAvailable:"))
    available = int(row.split()[1]) / 2**20
    if needed < 0.8 * available:
        return None
    return (
        f"CEBRA's label positives need about {needed:.0f} GB of memory, and the machine has "
        f"{available:.0f} GB left"
    )


def run(stored: Stored, setting: dict[str, Any]) -> dict[str, Any]:
    """Seconds of training and of two maps, scaled up, with shares of products and memory."""
    n_times = len(stored.neural)
    with Peak() as peak:
        training = cebra_side.HybridTraining(
            stored.neural,
            columns(stored),
            time_dims=setting["time_dims"],
            batch_size=setting["batch"],
            jacobian_weight=0.1,
            seed=0,
        )
        training.step()
        step = statistics.median(seconds(training.step) for _ in range(_STEPS))
    result: dict[str, Any] = {
        "step_s": step,
        "steps_measured": _STEPS,
        "training_s": step * setting["steps"],
        "training_product_share": matrix_product_share(training.step, 1),
        "peak_mb": peak.most,
    }
    network = training.solver.model.module.eval()
    width = columns(stored).shape[1] + setting["time_dims"]
    for name, method in (("cebra_map", "inverted-gradient"), ("captum_gradient", "gradient")):
        n = min(n_times, _MAP_SAMPLES[method])
        x = torch.tensor(stored.neural[:n])
        call: Callable[[], Any] | None = timing.peer(method, network, x, width)
        warm_up = timing.peer(method, network, x[:100], width)
        assert call is not None
        assert warm_up is not None
        warm_up()
        result[f"{name}_s"] = seconds(call) * n_times / n
        result[f"{name}_samples"] = n
        result[f"{name}_product_share"] = matrix_product_share(call, 1)
    return result


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[2])
    recording = Stored.read(Path(sys.argv[1]))
    reason = too_large(len(recording.neural), options["batch"])
    print(json.dumps({"left_out": reason} if reason else run(recording, options)))
