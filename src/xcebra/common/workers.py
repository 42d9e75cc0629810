"""Threads that share the work of many small steps.

Torch divides every single operation between threads, which wait for each other after each one. Most
operations of a training step are so short that this waiting takes longer than it saves, and while
they wait, the threads keep their cores busy: beside other programs, a fit then becomes many times
slower. Here, a step is divided into a few long parts, one for each thread, and torch uses one
thread inside each part.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

# Torch's number of threads is a property of each thread, but a new thread takes over the value that
# was set last, in whatever thread. Only one set of workers is started at a time.
_starting = threading.Lock()


def _renew_lock() -> None:
    """Replace the lock in a forked process, where the thread that holds it does not exist."""
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_renew_lock)


class Workers:
    """A few threads in which torch uses one thread each; a context manager.

    The first of them leads: it runs what is given to `lead`, and inside it `divide` gives every
    worker a part, the first one included. The number of workers never depends on the load of the
    machine, so that the same number of threads gives the same bits.

    Parameters
    ----------
    most : int
        Largest number of workers. There are no more of them than torch has threads.
    device : torch.device
        On other devices than the CPU there is one worker, the calling thread itself, as there is
        if torch has one thread only.
    """

    def __init__(self, most: int, device: torch.device) -> None:
        self._most, self._device = most, device
        self._pools: list[ThreadPoolExecutor] = []
        self.n = 1

    def __enter__(self) -> Workers:
        with _starting:
            n_threads = torch.get_num_threads()
            if self._device.type != "cpu" or n_threads == 1:
                return self
            self.n = max(1, min(self._most, n_threads))
            # One pool for each worker, so that a part is always computed by the same thread.
            self._pools = [ThreadPoolExecutor(1, "xcebra-worker") for _ in range(self.n)]
            for pool in self._pools:
                pool.submit(_use_one_thread).result()
            torch.set_num_threads(n_threads)
        return self

    def __exit__(self, *error: object) -> None:
        for pool in self._pools:
            pool.shutdown()
        self._pools, self.n = [], 1

    def lead(
        self,
        work: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Call a function in the first worker and return its result."""
        if not self._pools:
            return work(*args, **kwargs)
        return self._pools[0].submit(work, *args, **kwargs).result()

    def divide(self, part: Callable[[int], Result]) -> list[Result]:
        """Call ``part(k)`` for every worker ``k`` at the same time and return all results.

        It must be called inside a function that was given to `lead`.
        """
        others: list[Future[Result]] = [
            pool.submit(part, k) for k, pool in enumerate(self._pools[1:], start=1)
        ]
        try:
            first = part(0)
        finally:
            # No part may still be at work when the caller goes on, also not after an error.
            errors = [other.exception() for other in others]
        for error in errors:
            if error is not None:
                raise error
        return [first, *(other.result() for other in others)]


def _use_one_thread() -> None:
    """Let torch use one thread in the calling thread."""
    # Torch takes over the number of the process when a thread first needs one, which is here.
    # Otherwise it would do so later, and forget what was set for the thread.
    torch.get_num_threads()
    torch.set_num_threads(1)


def shares(n: int, n_parts: int) -> list[slice]:
    """Divide ``n`` consecutive rows into parts of about the same size."""
    borders = [n * k // n_parts for k in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(borders)]
