"""Where every second of a default fit with its map and its test goes, beside CEBRA and Captum.

``python benchmarks/budget.py`` adds a line to ``results/speed/budget.jsonl``; it is a part of
`make bench` too. ``--small`` tries it with small recordings and writes nothing.

Recordings are read or simulated before the clock starts. Every run has a process of its own, after
one that leaves the compiled functions on disk. The seconds of phases are medians of several runs;
matrix products are recorded in a further run, which the recording makes somewhat longer, and their
share is that of the time of this run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blas_clock import make_blas_clock
from budget_run import Stored
from measuring import add_row, provenance, seconds

import xcebra
from xcebra.datasets import head_direction_file

HERE = Path(__file__).parent
HEAD_DIRECTION = Path("shared") / "data" / "head_direction.nwb"
# Runs whose median is reported. The large recording has one.
_TURNS = 3


@dataclass(frozen=True)
class Source:
    """A recording of the budget.

    Parameters
    ----------
    name : str
    make : callable
        Returns the recording. It raises ConnectionError if there is none.
    mapped : bool
        Whether the activity is memory-mapped.
    turns : int
        Number of runs.
    """

    name: str
    make: Callable[[], Stored]
    mapped: bool = False
    turns: int = _TURNS


def sources(small: bool = False) -> list[Source]:
    """Return the recordings; ``small`` ones take seconds."""
    if small:
        return [
            Source("3,000 x 15", lambda: simulated(3000, 15), turns=1),
            Source("4,000 x 20, memory-mapped", lambda: simulated(4000, 20), True, 1),
        ]
    return [
        Source("head-direction file", head_direction),
        Source("100,000 x 50", lambda: simulated(100_000, 50)),
        Source("20,000 x 400", lambda: simulated(20_000, 400)),
        Source("1,000,000 x 100, memory-mapped", lambda: simulated(1_000_000, 100), True, 1),
    ]


def simulated(n_times: int, n_neurons: int) -> Stored:
    """A simulated recording with the paper's numbers of factors."""
    recording = xcebra.datasets.synthetic(
        n_hidden=4, n_observed=2, n_steps=n_times, n_neurons=n_neurons, seed=0
    )
    return Stored(recording.neural, recording.labels["z2"], None)


def head_direction() -> Stored:
    """The public recording of head-direction cells: from ``shared/data``, or else fetched."""
    beside = (folder / HEAD_DIRECTION for folder in HERE.parents)
    path = next((path for path in beside if path.is_file()), None) or head_direction_file()
    recording = xcebra.read(path, labels={"heading": "ry"}, circular="heading", bin_size=0.05)
    return Stored(np.asarray(recording.neural), recording.labels["heading"], "circular")


def bench_budget(
    small: bool = False, only: Iterable[str] = (), peers: bool = True
) -> dict[str, Any]:
    """Measure all recordings, or those whose names contain one of the words in ``only``."""
    words = list(only)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clock = make_blas_clock(folder)
        warm_up = _written(Source("warm-up", lambda: simulated(2000, 15)), folder)
        _run("budget_run.py", str(warm_up))
        for source in sources(small):
            if words and not any(word in source.name for word in words):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read_s = seconds(lambda source=source: _written(source, folder))  # type: ignore[misc]
            except ConnectionError as error:
                rows[source.name] = {"left_out": str(error)}
                continue
            rows[source.name] = _measure(source, folder, clock, peers)
            rows[source.name]["made_or_read_s"] = read_s
            print(f"{source.name}: measured", file=sys.stderr, flush=True)
    return {"numpy_products_counted": bool(clock), "recordings": rows}


def _written(source: Source, folder: Path) -> Path:
    """Write a recording to a folder for the processes that use it, over the one before."""
    own = folder / "recording"
    own.mkdir(exist_ok=True)
    source.make().write(own, source.mapped)
    return own


def _measure(source: Source, folder: Path, clock: dict[str, str], peers: bool) -> dict[str, Any]:
    own = str(folder / "recording")
    runs = [_run("budget_run.py", own)]
    result: dict[str, Any] = {}
    if peers:
        first = runs[0]
        setting = {k: first[k] for k in ("steps", "batch")} | {"time_dims": first["blocks"]["time"]}
        result["peers"] = _run("budget_peers.py", own, json.dumps(setting))
    runs += [_run("budget_run.py", own) for _ in range(source.turns - 1)]
    profiled = _run("budget_run.py", own, "profiled", variables=clock)
    medians = {
        phase: statistics.median(run["seconds"].get(phase, 0.0) for run in runs)
        for phase in runs[0]["seconds"]
    }
    kept = ("n_times", "n_neurons", "steps", "batch", "window", "blocks")
    return {
        **{name: runs[0][name] for name in kept},
        "seconds": medians,
        "total_s": statistics.median(run["total_s"] for run in runs),
        "all_total_s": [run["total_s"] for run in runs],
        "peak_mb": max(run["peak_mb"] for run in runs),
        "extra_mb": max(run["extra_mb"] for run in runs),
        "profiled": {
            name: profiled[name]
            for name in ("seconds", "total_s", "torch_products_s", "numpy_products_s")
        },
        "product_share": _shares(profiled),
        **result,
    }


def _shares(profiled: dict[str, Any]) -> dict[str, float]:
    """Share of matrix products in each phase, and in the whole."""
    torch_s, numpy_s = profiled["torch_products_s"], profiled["numpy_products_s"] or {}
    products = {name: torch_s[name] + numpy_s.get(name, 0.0) for name in torch_s}
    shares = {
        name: products[name] / taken if taken > 0 else 0.0
        for name, taken in profiled["seconds"].items()
    }
    return {**shares, "total": sum(products.values()) / profiled["total_s"]}


def _run(script: str, *arguments: str, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, **(variables or {})},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def report_budget(results: dict[str, Any]) -> None:
    """Print the results of `bench_budget`."""
    if not results["numpy_products_counted"]:
        print("numpy's matrix products could not be counted: shares are of torch's alone")
    for name, row in results["recordings"].items():
        if "left_out" in row:
            print(f"{name}: left out, because {row['left_out']}")
            continue
        print(
            f"\n{name}: {row['total_s']:.1f} s, {row['peak_mb']:.0f} MB at the peak "
            f"({row['extra_mb']:.0f} MB more than before), {row['steps']} steps of {row['batch']}"
        )
        for phase, taken in row["seconds"].items():
            share = row["product_share"].get(phase, 0.0)
            print(f"  {phase:<22}{taken:>8.2f} s{share:>8.0%} in matrix products")
        overhead = row["profiled"]["total_s"] / row["total_s"]
        print(f"  {'all':<22}{row['total_s']:>8.2f} s{row['product_share']['total']:>8.0%}", end="")
        print(f" (recording products made it {overhead:.2f} times as long)")
        _report_peers(row.get("peers"))


def _report_peers(peers: dict[str, Any] | None) -> None:
    if peers is None:
        return
    if "left_out" in peers:
        print(f"  CEBRA is left out, because {peers['left_out']}")
        return
    for key, name in (
        ("training", "CEBRA, training"),
        ("cebra_map", "CEBRA, map"),
        ("captum_gradient", "Captum, gradient"),
    ):
        share = peers[f"{key}_product_share"]
        measured = (
            f"{peers['steps_measured']} steps"
            if key == "training"
            else f"{peers[f'{key}_samples']:,} samples"
        )
        taken = peers[f"{key}_s"]
        print(f"  {name:<22}{taken:>8.1f} s{share:>8.0%}, scaled up from {measured}")
    print(f"  CEBRA's training takes {peers['peak_mb']:,.0f} MB at the peak; it has no test")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small recordings; nothing is written")
    parser.add_argument("--only", nargs="+", default=[], help="words in names of recordings")
    parser.add_argument("--no-peers", action="store_true", help="without CEBRA and Captum")
    arguments = parser.parse_args()
    results = bench_budget(arguments.small, arguments.only, not arguments.no_peers)
    report_budget(results)
    if not (arguments.small or arguments.no_peers):
        add_row("budget", {**provenance(), **results})


if __name__ == "__main__":
    main()
