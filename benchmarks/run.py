"""Compare our speed with CEBRA 0.6.1 and Captum 0.9 on the same arrays, in one run: `make bench`.

A speed is the ratio of the median times of calls that alternate. The table is printed. All
measurements are added to the files in ``results/speed``, one line per run, with the versions of the
packages. ``python benchmarks/run.py budget`` runs one part alone; the parts are core, attribution,
map_memory, budget, neighbours and products. Tables of the documentation are made from the last
lines by ``python benchmarks/tables.py``.
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
from budget import bench_budget, report_budget
from measuring import add_row, matrix_product_share, provenance, seconds
from neighbours import bench_neighbours, report_neighbours
from penalty import penalty_choice
from products import bench_products, report_products
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
N_TIMES, BATCH, N_LATENTS = 100_000, 5000, 6


def side_by_side(
    ours: Callable[[], Any], theirs: Callable[[], Any], times: int, ours_each: int = 5
) -> dict[str, Any]:
    """Median seconds of two functions that alternate after a warm-up, and their ratio.

    In each of ``times`` rounds, ``theirs`` is called once and ``ours`` ``ours_each`` times.
    """
    ours()
    theirs()
    our_seconds, their_seconds = [], []
    for _ in range(times):
        their_seconds.append(seconds(theirs))
        our_seconds += [seconds(ours) for _ in range(ours_each)]
    medians = {
        "ours_s": statistics.median(our_seconds),
        "cebra_s": statistics.median(their_seconds),
    }
    ratios = sorted(theirs / medians["ours_s"] for theirs in their_seconds)
    return {
        **medians,
        "ratio": medians["cebra_s"] / medians["ours_s"],
        "ratio_range": [ratios[0], ratios[-1]],
        "ours_all_s": our_seconds,
        "cebra_all_s": their_seconds,
    }


def bench_infonce() -> dict[str, Any]:
    """Forward and backward pass of one loss at the paper's batch size."""
    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(BATCH, N_LATENTS, generator=generator).requires_grad_() for _ in range(3)]

    def ours() -> float:
        for p in points:
            p.grad = None
        loss = infonce(*points)
        loss.backward()
        return float(loss.detach())

    result = side_by_side(ours, lambda: cebra_side.infonce(*points), times=7)
    result["loss_difference"] = abs(ours() - cebra_side.infonce(*points))
    with torch.no_grad():
        x, _, y = points
        matched = torch.zeros(BATCH)
        tiled(x, y, matched, True, False, True)
        result["tiled_s"] = statistics.median(
            seconds(lambda: tiled(x, y, matched, True, False, True)) for _ in range(5)
        )
    return result


def bench_positives(recording: xcebra.Recording) -> dict[str, Any]:
    """Sampling of the label positives of one batch."""
    labels = np.ascontiguousarray(recording.labels["z2"])
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    threads = torch.get_num_threads()  # as in training
    pairs = NearestLabel(labels, Epochs.check(None, len(labels)), 1, threads=threads)
    build = time.perf_counter() - started
    reference = rng.integers(len(labels), size=BATCH)
    theirs = cebra_side.LabelPositives(labels.astype(np.float32), seed=0)
    result = side_by_side(
        lambda: pairs.positives(reference, rng), lambda: theirs.sample(reference), times=3
    )
    return {**result, "build_once_s": build}


def bench_step(recording: xcebra.Recording) -> dict[str, Any]:
    """A whole hybrid training step with penalty at the paper's scale, for both recipes."""
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
    """Run a script in a new process, so that earlier work does not affect its use of memory."""
    output = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return json.loads(output)


def bench_core() -> dict[str, Any]:
    """Measure all parts of training."""
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
    """Maps of recordings of increasing length, each in its own process."""
    return {"rows": [in_a_process("scaling.py", "maps", str(10**e)) for e in (4, 5, 6)]}


def report_map_memory(results: dict[str, Any]) -> None:
    """Print the results of `bench_map_memory`."""
    for row in results["rows"]:
        print(
            f"T = {row['n_times']:>9,}: map in {row['map_s']:6.1f} s, {row['extra_mb']:6.1f} MB "
            "at its peak"
        )


def main() -> None:
    """Measure, write and print all parts, or those named on the command line."""
    parts: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "core": (bench_core, report_core),
        "attribution": (bench_attribution, report_attribution),
        "map_memory": (bench_map_memory, report_map_memory),
        "budget": (bench_budget, report_budget),
        "neighbours": (bench_neighbours, report_neighbours),
        "products": (bench_products, report_products),
    }
    for name in sys.argv[1:] or parts:
        measure, report = parts[name]
        results = {**provenance(), **measure()}
        report(results)
        add_row(name, results)


def report_core(results: dict[str, Any]) -> None:
    """Print the results of `bench_core`."""
    print(f"{'part':<34}{'ours':>12}{'CEBRA':>12}{'ratio':>9}")
    for key, name in (
        ("infonce", "InfoNCE, forward + backward"),
        ("label_positives", "label positives"),
        ("step, xcebra", "whole training step"),
        ("step, paper", "the same, the paper's recipe"),
    ):
        row = (
            results[key] if key in results else results["training_step"][key.removeprefix("step, ")]
        )
        print(
            f"{name:<34}{row['ours_s'] * 1e3:>9.1f} ms{row['cebra_s'] * 1e3:>9.0f} ms"
            f"{row['ratio']:>8.0f}x"
        )
    shares = {
        name: f"{r['matrix_product_share']:.0%}" for name, r in results["training_step"].items()
    }
    print(f"matrix products, share of our step: {shares}")
    memory = results["infonce_memory"]
    print(f"InfoNCE at N = {memory['n']:,}: {memory['extra_mb']:.0f} MB extra at the peak")
    for row in results["scaling"]:
        print(
            f"T = {row['n_times']:>9,}: step {row['step_ms']:6.1f} ms, {row['extra_mb']:6.1f} MB "
            f"at its peak; plan {row['plan_s']:.1f} s, file {row['file_mb']:.0f} MB"
        )
    for row in results["penalty"]["estimators"]:
        print(
            f"penalty, {row['name']:<24}: +{row['extra_ms']:5.1f} ms a step, gradient variance "
            f"{row['variance']:.3g}, variance x seconds {row['variance_seconds']:.3g}"
        )


if __name__ == "__main__":
    main()
