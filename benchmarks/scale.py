"""Time and memory of a fit, its map and its test, by samples and by neurons of the recording.

``python benchmarks/scale.py`` measures every cell that is not yet in ``results/speed/scale.jsonl``,
each in its own process, and prints a table of all cells. ``--quick`` takes small cells only.
``--package FOLDER`` measures another version: FOLDER is its folder ``src``. Recordings are
memory-mapped files in a temporary folder, of up to 4 GB.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Peak, provenance
from numpy.typing import NDArray
from scipy.signal import lfilter

RESULTS = Path(__file__).parents[1] / "results" / "speed" / "scale.jsonl"
HERE = Path(__file__).parents[1] / "src"
# Samples and neurons. Small cells come first, so that a first table is there soon.
QUICK = ((10_000, 15), (10_000, 50), (20_000, 100))
CELLS = (
    *QUICK,
    *((20_000, 15), (20_000, 1_000), (100_000, 50), (100_000, 1_000), (1_000_000, 50)),
    *((20_000, 5_000), (10_000_000, 50), (1_000_000, 1_000)),
)
# Number of factors, the first of which are the columns of the label; correlation of a factor from
# one sample to the next; standard deviation of the noise of a neuron.
_N_FACTORS, _N_LABEL_COLUMNS, _LASTING, _NOISE = 6, 2, 0.99, 0.5
# Largest number of values that are simulated at once, 64 MB.
_VALUES_AT_ONCE = 1 << 23


def simulate(path: Path, n_times: int, n_neurons: int) -> NDArray[np.float32]:
    """Write the activity of neurons that follow slow factors to a file, in chunks.

    Returns the label, of shape (n_times, 2).
    """
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((_N_FACTORS, n_neurons)) * rng.integers(
        2, size=(_N_FACTORS, n_neurons)
    )
    activity = np.lib.format.open_memmap(path, "w+", np.float32, (n_times, n_neurons))
    label = np.empty((n_times, _N_LABEL_COLUMNS), np.float32)
    state = _LASTING * rng.standard_normal((1, _N_FACTORS))
    step = max(1, _VALUES_AT_ONCE // n_neurons)
    for start in range(0, n_times, step):
        n = min(step, n_times - start)
        innovations = rng.standard_normal((n, _N_FACTORS)) * np.sqrt(1 - _LASTING**2)
        factors, state = lfilter([1.0], [1.0, -_LASTING], innovations, axis=0, zi=state)
        noise = rng.standard_normal((n, n_neurons), np.float32)
        activity[start : start + n] = np.tanh(factors @ mixing) + _NOISE * noise
        label[start : start + n] = factors[:, :_N_LABEL_COLUMNS]
    activity.flush()
    return label


class Phases(logging.Handler):
    """Seconds and peak of memory of every phase, from the lines that the package logs."""

    def __init__(self, peak: Peak) -> None:
        super().__init__(logging.INFO)
        self._peak, self._processor_s = peak, time.process_time()
        self.rows: dict[str, dict[str, float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Add a row for the phase that has just ended."""
        if isinstance(record.args, tuple) and record.msg == "%s: %.1f s":
            name, seconds = record.args
            before, self._processor_s = self._processor_s, time.process_time()
            self.rows[str(name)] = {
                "seconds": round(float(str(seconds)), 2),
                "processor_s": round(self._processor_s - before, 2),
                "peak_mb": round(self._peak.most - self._peak.before),
            }
            self._peak.most = self._peak.before


def measure(n_times: int, n_neurons: int) -> dict[str, Any]:
    """Seconds and peak of anonymous memory of one cell, in all and by phase."""
    import xcebra

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "neural.npy"
        label = simulate(path, n_times, n_neurons)
        neural = np.load(path, mmap_mode="r")
        small = neural[:1000, :20].copy()
        # The first fit compiles its kernel.
        xcebra.XCEBRA(2, 4, steps=2, progress=False).fit(small, label[:1000])
        model = xcebra.XCEBRA(random_state=0, progress=False)
        logger = logging.getLogger("xcebra")
        logger.setLevel(logging.INFO)
        with Peak() as peak:
            phases = Phases(peak)
            logger.addHandler(phases)
            started = time.perf_counter()
            model.fit(neural, label)
            fitted = time.perf_counter()
            amap = model.attribute(neural, label, test=True)
            ended = time.perf_counter()
        rest = peak.most - peak.before
    return {
        "fit_s": round(fitted - started, 1),
        "map_and_test_s": round(ended - fitted, 1),
        "processor_s": round(sum(row["processor_s"] for row in phases.rows.values()), 1),
        "peak_mb": max(round(rest), *(round(row["peak_mb"]) for row in phases.rows.values())),
        "n_latents": int(amap.values.shape[1]),
        "connected": int(amap.significant("label").sum()),
        "phases": phases.rows,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown table of all cells."""
    names = list(dict.fromkeys(name for row in rows for name in row["phases"]))
    lines = [
        "| samples x neurons | version | fit, s | map and test, s | peak, MB | "
        + " | ".join(f"{name}, s (MB)" for name in names)
        + " |",
        "|---" * (5 + len(names)) + "|",
    ]
    for row in sorted(rows, key=lambda row: (row["n_neurons"], row["n_times"], row["package"])):
        cells = [
            f"{part['seconds']:.1f} ({part['peak_mb']:.0f})" if part else ""
            for part in (row["phases"].get(name) for name in names)
        ]
        lines.append(
            f"| {row['n_times']:,} x {row['n_neurons']:,} | {row['package']} | {row['fit_s']} | "
            f"{row['map_and_test_s']} | {row['peak_mb']} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure the cells that are missing, and print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cells only")
    parser.add_argument("--package", type=Path, help="folder of another version's package")
    parser.add_argument("--name", default="this", help="name of the version in the table")
    parser.add_argument("--cell", type=int, nargs=2, metavar=("SAMPLES", "NEURONS"))
    parser.add_argument("--print-cell", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.print_cell:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(*args.cell)))
        return
    package = (args.package or HERE).resolve()
    if not (package / "xcebra" / "__init__.py").is_file():
        parser.error(f"there is no package xcebra in {str(package)!r}")
    cells = [tuple(args.cell)] if args.cell else QUICK if args.quick else CELLS
    for cell in cells:
        done = {(row["n_times"], row["n_neurons"], row["package"]) for row in _rows()}
        if (*cell, args.name) in done:
            continue
        row = {**provenance(), "package": args.name, "n_times": cell[0], "n_neurons": cell[1]}
        row |= _run(package, cell)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{cell}: {row['fit_s']} s, {row['map_and_test_s']} s, {row['peak_mb']} MB")
    print(table(_rows()))


def _rows() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def _run(package: Path, cell: tuple[int, ...]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, __file__, "--print-cell", "--cell", *map(str, cell)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
