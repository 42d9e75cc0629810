"""What the benchmarks share: timing, memory, and the versions that a result was made with."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("xcebra", "cebra", "captum", "torch", "numba", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Return the versions of packages and a description of the machine."""
    return {
        "made_with": {name: version(name) for name in PACKAGES},
        "machine": {
            "python": platform.python_version(),
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def matrix_product_share(call: Callable[[], Any], times: int = 10) -> float:
    """Share of the time of a call, over ``times`` calls, that torch spends in matrix products."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        wall = sum(seconds(call) for _ in range(times))
    names = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}
    products = sum(e.self_cpu_time_total for e in profiler.key_averages() if e.key in names)
    return products * 1e-6 / wall


def memory_mb(field: str) -> float:
    """A field of this process's memory status, in MB (Linux only)."""
    rows = Path("/proc/self/status").read_text().splitlines()
    line = next(row for row in rows if row.startswith(f"{field}:"))
    return int(line.split()[1]) / 2**10


class Peak:
    """Peak of anonymous memory (not backed by a file) in a with block, sampled by a thread."""

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
            time.sleep(0.001)
