"""Time of a fit with its map and test, relative to another version of the package.

``python benchmarks/versions.py FOLDER`` adds a line to ``results/speed/versions.jsonl``. FOLDER is
the folder ``src`` of the other version, for example in a copy of an earlier commit that
``git worktree add`` made. The two versions run alternately.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from measuring import provenance

RESULTS = Path(__file__).parents[1] / "results" / "speed" / "versions.jsonl"
HERE = Path(__file__).parents[1] / "src"
# Repetitions; the median of the ratios is reported.
_TURNS = 3
# Samples and neurons: the size of a small recording, and of the paper's simulations.
_SIZES = {"10,000 x 15": (10_000, 15), "100,000 x 50": (100_000, 50)}
_ONE_RUN = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import xcebra
n_steps, n_neurons = map(int, sys.argv[1:])
rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=n_steps, n_neurons=n_neurons)
label = rec.labels["z2"]
estimator = xcebra.XCEBRA(2, 4, random_state=0, progress=False)  # imported before the clock starts
started = time.perf_counter()
model = estimator.fit(rec.neural, label)
fitted = time.perf_counter()
model.attribute(rec.neural, label, test=True)
print(json.dumps([fitted - started, time.perf_counter() - fitted]))
"""


def main() -> None:
    """Time whole runs, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="folder of the other version's package")
    other = parser.parse_args().other.resolve()
    if not (other / "xcebra" / "__init__.py").is_file():
        parser.error(f"there is no package xcebra in {str(other)!r}")
    row = provenance()
    for name, size in _SIZES.items():
        turns = [(_run(HERE, size), _run(other, size)) for _ in range(_TURNS)]
        ratio = statistics.median(sum(ours) / sum(theirs) for ours, theirs in turns)
        row[name] = {"fit and test, seconds": turns, "ratio": round(ratio, 3)}
        print(f"{name}: {ratio:.2f} times as long ({turns})")
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _run(package: Path, size: tuple[int, int]) -> list[float]:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", _ONE_RUN, *map(str, size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [round(value, 2) for value in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
