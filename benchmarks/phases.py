"""Where the seconds of a fit go: its phases, as the package logs them, and their products."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from blas_clock import numpy_seconds
from measuring import Product, wall_seconds

# What `xcebra.common.progress.phase` logs; its arguments are the name and the exact seconds.
_MESSAGE = "%s: %.1f s"
# Name for the time between the phases.
REST = "between phases"


@dataclass
class Phase:
    """One phase that has ended.

    Parameters
    ----------
    name : str
    end_ns : int
        In nanoseconds since 1970.
    seconds : float
    numpy_at_end : tuple of float or None
        What `numpy_seconds` returned at the end.
    """

    name: str
    end_ns: int
    seconds: float
    numpy_at_end: tuple[float, float] | None

    @property
    def start_ns(self) -> int:
        """Start in nanoseconds since 1970."""
        return self.end_ns - round(self.seconds * 1e9)


@dataclass
class PhaseLog(logging.Handler):
    """Collects the phases of the work in a with block."""

    phases: list[Phase] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.INFO)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record if it is the end of a phase."""
        if record.msg == _MESSAGE and isinstance(record.args, tuple):
            name, seconds = record.args
            phase = Phase(str(name), time.time_ns(), float(str(seconds)), numpy_seconds())
            self.phases.append(phase)

    def __enter__(self) -> PhaseLog:
        logger = logging.getLogger("xcebra")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        self.numpy_before = numpy_seconds()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.total = time.perf_counter() - self._started
        self.numpy_after = numpy_seconds()
        logging.getLogger("xcebra").removeHandler(self)

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase, and of the time between them."""
        taken: dict[str, float] = {}
        for phase in self.phases:
            taken[phase.name] = taken.get(phase.name, 0.0) + phase.seconds
        return {**taken, REST: self.total - sum(taken.values())}

    def torch_products(self, products: Sequence[Product]) -> dict[str, float]:
        """Seconds of torch's matrix products in each phase; see `wall_seconds`."""
        shares: dict[str, list[Product]] = {name: [] for name in self.seconds()}
        for product in products:
            inside = (p.name for p in self.phases if p.start_ns <= product.start_ns < p.end_ns)
            shares[next(inside, REST)].append(product)
        return {name: wall_seconds(own) for name, own in shares.items()}

    def numpy_products(self) -> dict[str, float] | None:
        """Seconds of numpy's matrix products in each phase. None if they are not counted.

        Those between two phases are counted with the later one.
        """
        taken = dict.fromkeys(self.seconds(), 0.0)
        ends: list[tuple[str, Any]] = [(p.name, p.numpy_at_end) for p in self.phases]
        before: Any = self.numpy_before
        if before is None:
            return None
        for name, after in [*ends, (REST, self.numpy_after)]:
            others = (after[1] - before[1]) / torch.get_num_threads()
            taken[name] += after[0] - before[0] + others
            before = after
        return taken
