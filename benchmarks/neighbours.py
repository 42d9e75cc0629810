"""Fits beside other work: how much slower they are with a busy core, and two fits side by side.

``python benchmarks/neighbours.py`` adds a line to ``results/speed/neighbours.jsonl``.
``--other FOLDER`` measures another version in the same run, alternately: FOLDER is the folder
``src`` of a copy of it, as in ``benchmarks/versions.py``.

A neighbour is a process that keeps one core busy: a loop of Python, or matrix products of numpy
with one thread. The fits have all threads of the machine. Two fits side by side have one thread
each (``OMP_NUM_THREADS=1``), and so do the same two fits one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from measuring import add_row, provenance

HERE = Path(__file__).parents[1] / "src"
# Repetitions; medians are reported.
_TURNS = 3
# Samples, neurons and training steps; 0 steps are the default.
_SIZES = {"10,000 x 15": (10_000, 15, 0), "50,000 x 50": (50_000, 50, 0)}
_SMALL = {"2,000 x 15": (2000, 15, 20)}
# They end with the process that started them, also when it is stopped from outside.
_NEIGHBOURS = {
    "Python": """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(10**6): pass
""",
    "products": """
import os
import numpy as np
parent, x = os.getppid(), np.ones((500, 500), np.float32)
while os.getppid() == parent: x @ x
""",
}
_ONE_FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import xcebra
n_steps, n_neurons, steps = map(int, sys.argv[1:])
rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=n_steps, n_neurons=n_neurons)
estimator = xcebra.XCEBRA(steps=steps or None, random_state=0, progress=False)
print("ready", flush=True)
sys.stdin.readline()
started = time.perf_counter()
estimator.fit(rec.neural, rec.labels["z2"])
print(json.dumps(time.perf_counter() - started))
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


Size = tuple[int, int, int]


class Fit:
    """A process that has everything it needs for a fit and waits for the start.

    Parameters
    ----------
    package : Path
        Folder of the package.
    size : tuple of int
        Samples, neurons, and training steps; 0 steps are the default.
    one_thread : bool
        Whether the fit has one thread instead of all.
    """

    def __init__(self, package: Path, size: Size, one_thread: bool = False) -> None:
        threads = ONE_THREAD if one_thread else {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ONE_FIT, *map(str, size)],
            env={**os.environ, "PYTHONPATH": str(package), **threads},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def start(self) -> Fit:
        """Let the fit begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self

    def seconds(self) -> float:
        """Wait for the end and return the seconds of the fit."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"a fit ended with the exit code {self._process.returncode}")
        return float(json.loads(output))


@contextmanager
def neighbour(kind: str) -> Iterator[None]:
    """A process beside the work of a with block that keeps one core busy."""
    command = [sys.executable, "-c", _NEIGHBOURS[kind]]
    process = subprocess.Popen(command, env={**os.environ, **ONE_THREAD})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def fit_beside(package: Path, size: Size, kind: str | None) -> float:
    """Seconds of one fit, alone or beside a neighbour."""
    fit = Fit(package, size)
    with nullcontext() if kind is None else neighbour(kind):
        return fit.start().seconds()


def two_fits(package: Path, size: Size) -> tuple[float, float]:
    """Seconds of two fits with one thread each: side by side, and one after the other."""
    pair = [Fit(package, size, one_thread=True) for _ in range(2)]
    for fit in pair:
        fit.start()
    both = max(fit.seconds() for fit in pair)
    in_turn = [Fit(package, size, one_thread=True).start().seconds() for _ in range(2)]
    return both, sum(in_turn)


def bench_neighbours(
    other: Path | None = None,
    small: bool = False,
    turns: int = _TURNS,
    only: str | None = None,
) -> dict[str, Any]:
    """Measure both parts for all sizes, or ``only`` one, and all versions."""
    packages = {"this version": HERE} | ({"other version": other} if other else {})
    sizes = _SMALL if small else _SIZES
    sizes = sizes if only is None else {only: sizes[only]}
    for package in packages.values():
        fit_beside(package, (2000, 15, 20), None)  # compiles what is not on disk yet
    results: dict[str, Any] = {}
    for name, size in sizes.items():
        own: dict[str, Any] = {
            version: {key: [] for key in ("alone", *_NEIGHBOURS, "side by side", "in turn")}
            for version in packages
        }
        for _ in range(turns):
            for version, package in packages.items():
                for kind in (None, *_NEIGHBOURS):
                    own[version][kind or "alone"].append(fit_beside(package, size, kind))
                both, in_turn = two_fits(package, size)
                own[version]["side by side"].append(both)
                own[version]["in turn"].append(in_turn)
        results[name] = {version: _summary(taken) for version, taken in own.items()}
    return {"turns": turns, "sizes": results}


def _summary(taken: dict[str, list[float]]) -> dict[str, Any]:
    medians = {key: statistics.median(values) for key, values in taken.items()}
    return {
        "all_s": taken,
        "median_s": medians,
        "slower": {kind: medians[kind] / medians["alone"] for kind in _NEIGHBOURS},
        "side_by_side_ratio": medians["side by side"] / medians["in turn"],
    }


def report_neighbours(results: dict[str, Any]) -> None:
    """Print the results of `bench_neighbours`."""
    names = "".join(f"{f'beside {kind}':>18}" for kind in _NEIGHBOURS)
    print(f"{'':<28}{'alone':>9}{names}{'side by side / in turn':>26}")
    for size, versions in results["sizes"].items():
        for version, row in versions.items():
            beside = "".join(f"{row['slower'][kind]:>17.2f}x" for kind in _NEIGHBOURS)
            alone, ratio = row["median_s"]["alone"], row["side_by_side_ratio"]
            print(f"{f'{size}, {version}':<28}{alone:>7.1f} s{beside}{ratio:>26.2f}")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", type=Path, help="folder of another version's package")
    parser.add_argument("--turns", type=int, default=_TURNS, help="repetitions")
    parser.add_argument("--small", action="store_true", help="a small fit; nothing is written")
    parser.add_argument("--size", choices=_SIZES, help="one size only")
    arguments = parser.parse_args()
    other = arguments.other.resolve() if arguments.other else None
    if other is not None and not (other / "xcebra" / "__init__.py").is_file():
        parser.error(f"there is no package xcebra in {str(other)!r}")
    results = bench_neighbours(other, arguments.small, arguments.turns, arguments.size)
    report_neighbours(results)
    if not arguments.small:
        add_row("neighbours", {**provenance(), **results})


if __name__ == "__main__":
    main()
