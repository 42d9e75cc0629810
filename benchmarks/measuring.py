"""What the benchmarks share: timing, memory, products, and what a result was made with."""

from __future__ import annotations

import json
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

PACKAGES = ("xcebra", "cebra", "captum", "torch", "numba", "numpy", "scipy")
RESULTS = Path(__file__).parents[1] / "results" / "speed"
# Torch's operations that are matrix products. The last one is oneDNN's (`common/products.py`).
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise")


def provenance() -> dict[str, Any]:
    """Return the versions of packages and a description of the machine."""
    return {
        "made_with": {name: version(name) for name in PACKAGES},
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": {
            "python": platform.python_version(),
            "processor": _processor(),
            "threads": torch.get_num_threads(),
        },
    }


def add_row(name: str, row: dict[str, Any]) -> None:
    """Add one line to a file in ``results/speed``."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"added to results/speed/{name}.jsonl")


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def matrix_product_share(call: Callable[[], Any], times: int = 10) -> float:
    """Share of the time of a call, over ``times`` calls, that torch spends in matrix products.

    See `wall_seconds` for products that several threads compute at the same time.
    """
    with recorded_products() as products:
        wall = sum(seconds(call) for _ in range(times))
    return wall_seconds(products) / wall


@dataclass(frozen=True)
class Product:
    """One matrix product of torch.

    Parameters
    ----------
    start_ns : int
        Start in nanoseconds since 1970.
    seconds : float
    thread : int
        Number of the thread; 1 is the one that started to record.
    """

    start_ns: int
    seconds: float
    thread: int


@contextmanager
def recorded_products() -> Iterator[list[Product]]:
    """Record torch's matrix products in all threads; the list is filled at the end of the block."""
    products: list[Product] = []
    # Without this setting, only the thread that starts the profiler would be recorded.
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(
        activities=[ProfilerActivity.CPU], acc_events=True, experimental_config=every_thread
    ) as profiler:
        yield products
    # The raw events: summaries of millions of them would take minutes.
    assert profiler.profiler is not None
    results: Any = profiler.profiler.kineto_results
    products += [
        Product(event.start_ns(), event.duration_ns() * 1e-9, event.start_thread_id())
        for event in results.events()
        if event.name() in PRODUCTS
    ]


def wall_seconds(products: Iterable[Product]) -> float:
    """Time that products take up, where several threads compute them at the same time.

    The seconds of worker threads are added and divided by the number of them that had products, but
    not by more than the number of threads that torch uses. The seconds of the calling thread
    count in full, because torch divides each of its products between all threads.
    """
    by_thread: dict[int, float] = {}
    for product in products:
        by_thread[product.thread] = by_thread.get(product.thread, 0.0) + product.seconds
    own = by_thread.pop(1, 0.0)
    n_workers = max(1, min(len(by_thread), torch.get_num_threads()))
    return own + sum(by_thread.values()) / n_workers


def _processor() -> str:
    """Name of the processor, with the name of its kind that compilers use."""
    from llvmlite import binding

    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        rows = (row.split(":", 1) for row in info.read_text().splitlines() if ":" in row)
        name = next((value.strip() for key, value in rows if key.strip() == "model name"), name)
    return f"{name} ({binding.get_host_cpu_name()})"


def _commit() -> str | None:
    """Commit of this checkout, or None. A plus sign says that ``src`` has been changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def memory_mb(field: str) -> float:
    """A field of this process's memory status, in MB (Linux only)."""
    rows = Path("/proc/self/status").read_text().splitlines()
    line = next(row for row in rows if row.startswith(f"{field}:"))
    return int(line.split()[1]) / 2**10


class Peak:
    """Peak of anonymous memory (not backed by a file) in a with block, sampled by a thread.

    Parameters
    ----------
    interval : float
        Seconds between two samples.
    """

    def __init__(self, interval: float = 0.001) -> None:
        self._interval = interval

    def __enter__(self) -> Peak:
        self._running = True
        self.before = self.most = memory_mb("RssAnon")
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join()

    def _watch(self) -> None:
        while self._running:
            self.most = max(self.most, memory_mb("RssAnon"))
            time.sleep(self._interval)
