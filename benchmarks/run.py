"""Ours beside CEBRA 0.6.1 and Captum 0.9 on the same arrays, in one run: `make bench`.

A speed is a ratio of medians of calls that take turns. The table is printed, and everything
measured is added to the files in ``results/speed``, a line a run, with the versions it was
measured with.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import matrix_product_share, provenance, seconds
from penalty import penalty_choice
from scaling import paper_scale_step

import xcebra
from xcebra.data.epochs import Epochs
from xcebra.training.infonce import infonce
from xcebra.training.kernels import tiled
from xcebra.training.sampling import NearestLabel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # CEBRA's imports warn about their own dependencies
    import cebra_side
    from attribution import bench_attribution, report_attribution

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "speed"
N_TIMES, BATCH, N_LATENTS = 100_000, 5000, 6


def side_by_side(
    ours: Callable[[], Any], theirs: Callable[[], Any], times: int, ours_each: int = 5
) -> dict[str, Any]:
    """Median seconds of both sides, taking turns after a warm-up of each, and their ratio."""
    ours()
    theirs()
    mine, other = [], []
    for _ in range(times):
        other.append(seconds(theirs))
        mine += [seconds(ours) for _ in range(ours_each)]
    found = {"ours_s": statistics.median(mine), "cebra_s": statistics.median(other)}
    ratios = sorted(theirs / found["ours_s"] for theirs in other)
    return {
        **found,
        "ratio": found["cebra_s"] / found["ours_s"],
        "ratio_range": [ratios[0], ratios[-1]],
        "ours_all_s": mine,
        "cebra_all_s": other,
    }


def bench_infonce() -> dict[str, Any]:
    """Forward and backward of one loss at the paper's batch."""
    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(BATCH, N_LATENTS, generator=generator).requires_grad_() for _ in range(3)]

    def ours() -> float:
        for p in points:
            p.grad = None
        loss = infonce(*points)
        loss.backward()
        return float(loss.detach())

    found = side_by_side(ours, lambda: cebra_side.infonce(*points), times=7)
    found["loss_difference"] = abs(ours() - cebra_side.infonce(*points))
    with torch.no_grad():
        x, _, y = points
        matched = torch.zeros(BATCH)
        tiled(x, y, matched, True, False, True)
        found["tiled_s"] = statistics.median(
            seconds(lambda: tiled(x, y, matched, True, False, True)) for _ in range(5)
        )
    return found


def bench_positives(recording: xcebra.Recording) -> dict[str, Any]:
    """Label positives of one batch."""
    labels = np.ascontiguousarray(recording.labels["z2"])
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    pairs = NearestLabel(labels, Epochs.check(None, len(labels)), 1)
    build = time.perf_counter() - started
    reference = rng.integers(len(labels), size=BATCH)
    theirs = cebra_side.LabelPositives(labels.astype(np.float32), seed=0)
    found = side_by_side(
        lambda: pairs.positives(reference, rng), lambda: theirs.sample(reference), times=3
    )
    return {**found, "build_once_s": build}


def bench_step(recording: xcebra.Recording) -> dict[str, Any]:
    """A whole training step at the paper's scale, hybrid, penalty on, by either recipe."""
    theirs = cebra_side.HybridTraining(
        recording.neural,
        recording.labels["z2"].astype(np.float32),
        time_dims=N_LATENTS - 2,
        batch_size=BATCH,
        jacobian_weight=0.1,
        seed=0,
    )
    steps = {recipe: paper_scale_step(recording, recipe, BATCH) for recipe in ("paper", "xcebra")}
    taken: dict[str, list[float]] = {"cebra": [], "paper": [], "xcebra": []}
    theirs.step()
    for _ in range(4):
        taken["cebra"].append(seconds(theirs.step))
        for recipe, step in steps.items():
            step()
            taken[recipe] += [seconds(step) for _ in range(10)]
    middle = {name: statistics.median(values) for name, values in taken.items()}
    return {
        recipe: {
            "ours_s": middle[recipe],
            "cebra_s": middle["cebra"],
            "ratio": middle["cebra"] / middle[recipe],
            "ours_all_s": taken[recipe],
            "cebra_all_s": taken["cebra"],
            "matrix_product_share": matrix_product_share(step),
        }
        for recipe, step in steps.items()
    }


def in_a_process(script: str, *arguments: str) -> dict[str, Any]:
    """Run a measurement of memory where nothing else has used any."""
    output = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return json.loads(output)


def bench_core() -> dict[str, Any]:
    """Everything that training is made of."""
    recording = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=N_TIMES, seed=0)
    return {
        "setting": {"n_times": N_TIMES, "batch": BATCH, "n_latents": N_LATENTS, "n_neurons": 50},
        "infonce": bench_infonce(),
        "label_positives": bench_positives(recording),
        "training_step": bench_step(recording),
        "infonce_memory": in_a_process("scaling.py", "memory", "20000"),
        "scaling": [in_a_process("scaling.py", "steps", str(10**e)) for e in (4, 5, 6)],
        "penalty": penalty_choice(recording),
    }


def bench_map_memory() -> dict[str, Any]:
    """Maps of longer and longer recordings, each in a process of its own."""
    return {"rows": [in_a_process("scaling.py", "maps", str(10**e)) for e in (4, 5, 6)]}


def report_map_memory(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for row in found["rows"]:
        print(
            f"T = {row['n_times']:>9,}: map in {row['map_s']:6.1f} s, {row['extra_mb']:6.1f} MB "
            "at its peak"
        )


def main() -> None:
    """Measure, write and print every part, or those named on the command line."""
    parts: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "core": (bench_core, report_core),
        "attribution": (bench_attribution, report_attribution),
        "map_memory": (bench_map_memory, report_map_memory),
    }
    for name in sys.argv[1:] or parts:
        measure, report = parts[name]
        found = {**provenance(), **measure()}
        with (RESULTS / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(found) + "\n")
        report(found)
        print(f"added to results/speed/{name}.jsonl")


def report_core(found: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"{'part':<34}{'ours':>12}{'CEBRA':>12}{'ratio':>9}")
    for key, name in (
        ("infonce", "InfoNCE, forward + backward"),
        ("label_positives", "label positives"),
        ("step, xcebra", "whole training step"),
        ("step, paper", "the same, the paper's recipe"),
    ):
        row = found[key] if key in found else found["training_step"][key.removeprefix("step, ")]
        print(
            f"{name:<34}{row['ours_s'] * 1e3:>9.1f} ms{row['cebra_s'] * 1e3:>9.0f} ms"
            f"{row['ratio']:>8.0f}x"
        )
    shares = {
        name: f"{r['matrix_product_share']:.0%}" for name, r in found["training_step"].items()
    }
    print(f"matrix products, share of our step: {shares}")
    memory = found["infonce_memory"]
    print(f"InfoNCE at N = {memory['n']:,}: {memory['extra_mb']:.0f} MB extra at the peak")
    for row in found["scaling"]:
        print(
            f"T = {row['n_times']:>9,}: step {row['step_ms']:6.1f} ms, {row['extra_mb']:6.1f} MB "
            f"at its peak; plan {row['plan_s']:.1f} s, file {row['file_mb']:.0f} MB"
        )
    for row in found["penalty"]["estimators"]:
        print(
            f"penalty, {row['name']:<24}: +{row['extra_ms']:5.1f} ms a step, gradient variance "
            f"{row['variance']:.3g}, variance x seconds {row['variance_seconds']:.3g}"
        )


if __name__ == "__main__":
    main()
