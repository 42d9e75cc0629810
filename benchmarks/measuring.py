"""What the benchmarks share: timing, and the versions that a result was made with."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
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
