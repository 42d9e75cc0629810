"""Training steps at the paper's scale, and how time and memory grow with the recording."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Peak

import xcebra
from xcebra.common.choices import RecipeName
from xcebra.networks.encoder import Encoder, Inputs, NetworkInputs
from xcebra.training.batches import Batches, SessionSamples
from xcebra.training.checkpoints import Record
from xcebra.training.kernels import fused
from xcebra.training.loop import new_state, step_workers, take_step
from xcebra.training.plan import make_plan


def paper_scale_step(
    recording: xcebra.Recording, recipe: RecipeName, batch_size: int
) -> Callable[[], Record]:
    """Return a function that makes one hybrid training step with the penalty at full weight."""
    model = xcebra.XCEBRA(
        label_dims={"z2": 2}, time_dims=4, recipe=recipe, batch_size=batch_size, random_state=0
    )
    plan = make_plan(recording, model.get_params())
    encoder = Encoder(
        plan.inputs,
        plan.decisions.n_latents,
        limit=plan.decisions.recipe.limit,
        generator=torch.Generator().manual_seed(0),
    )
    state = new_state([encoder], plan.decisions.train)
    objectives = plan.objectives(plan.training)
    samples = SessionSamples(
        read=NetworkInputs(encoder, recording),
        epochs=plan.training,
        start=0,
        stop=recording.n_times,
        n_references=batch_size,
        n_negatives=batch_size,
    )
    batches = Batches([samples], objectives, torch.device("cpu"))
    train = plan.decisions.train
    # They stay at work until the process ends, as they do during a fit.
    workers = step_workers([samples], objectives, torch.device("cpu")).__enter__()
    return lambda: workers.lead(
        take_step, state, batches, objectives, train, train.steps - 1, workers
    )


def measure_steps(n_times: int) -> dict[str, Any]:
    """Time and memory of training steps on a memory-mapped recording of ``n_times`` samples."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "neural.npy"
        whole = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=n_times, seed=0)
        label = whole.labels["z2"].copy()
        np.save(path, whole.neural)
        size = path.stat().st_size / 2**20
        del whole
        mapped = xcebra.Recording(np.load(path, mmap_mode="r"), {"z2": label})
        started = time.perf_counter()
        step = paper_scale_step(mapped, "paper", 5000)
        plan_s = time.perf_counter() - started
        taken = []
        with Peak() as peak:
            for _ in range(20):
                started = time.perf_counter()
                step()
                taken.append(time.perf_counter() - started)
    return {
        "n_times": n_times,
        "step_ms": statistics.median(taken) * 1e3,
        "extra_mb": peak.most - peak.before,
        "plan_s": plan_s,
        "file_mb": size,
    }


def measure_memory(n: int) -> dict[str, Any]:
    """Peak extra memory of one loss, forward and backward, with ``n`` references and negatives."""
    small = torch.randn(64, 6)
    fused(small, small, torch.zeros(64), True, True, True)
    x, y, matched = torch.randn(n, 6), torch.randn(n, 6), torch.zeros(n)
    with Peak() as peak:
        fused(x, y, matched, True, True, True)
    return {"n": n, "extra_mb": peak.most - peak.before}


def measure_maps(n_times: int) -> dict[str, Any]:
    """Time and memory of a map of a memory-mapped recording, without keeping single steps."""
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "neural.npy"
        whole = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=n_times, seed=0)
        np.save(path, whole.neural)
        inputs = Inputs.measure(whole, whole.epochs, project=True)
        del whole
        encoder = Encoder(inputs, 6, limit=5.0, generator=generator)
        mapped = np.load(path, mmap_mode="r")
        xcebra.attribute(encoder, mapped[:5000])
        started = time.perf_counter()
        with Peak() as peak:
            xcebra.attribute(encoder, mapped)
        taken = time.perf_counter() - started
    return {"n_times": n_times, "map_s": taken, "extra_mb": peak.most - peak.before}


if __name__ == "__main__":
    measures = {"steps": measure_steps, "memory": measure_memory, "maps": measure_maps}
    measure = measures[sys.argv[1]]
    print(json.dumps(measure(int(sys.argv[2]))))
