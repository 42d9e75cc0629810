"""Threads that share the work of many small steps.

Torch and BLAS divide every single operation between threads, which wait for each other after each
one. Most operations of a fit are so short that this waiting takes longer than it saves, and while
they wait, the threads keep their cores busy: beside other programs, a fit then becomes many times
slower. Here, work is divided into a few long parts, one for each thread, and torch and BLAS use one
thread inside each part.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
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


@functools.cache
def _blas() -> ThreadpoolController:
    """Libraries of linear algebra that numpy and scipy use."""
    return ThreadpoolController()


# Number of threads that torch had before `one_thread`.
_given: ContextVar[int | None] = ContextVar("_given", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and BLAS use one thread, except for the workers; a context manager."""
    n_threads = torch.get_num_threads()
    if n_threads == 1:
        yield
        return
    token = _given.set(n_threads)
    torch.set_num_threads(1)
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(n_threads)
        _given.reset(token)


def available_threads() -> int:
    """Number of threads that torch uses, or used before `one_thread`."""
    return _given.get() or torch.get_num_threads()


class Workers:
    """A few threads in which torch and BLAS use one thread each; a context manager.

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
        self._limited: AbstractContextManager[Any] = nullcontext()
        self.n = 1

    def __enter__(self) -> Workers:
        with _starting:
            before = torch.get_num_threads()
            n_threads = available_threads()
            if self._device.type != "cpu" or n_threads == 1:
                return self
            self.n = max(1, min(self._most, n_threads))
            # One pool for each worker, so that a part is always computed by the same thread.
            self._pools = [ThreadPoolExecutor(1, "xcebra-worker") for _ in range(self.n)]
            for pool in self._pools:
                pool.submit(_use_one_thread).result()
            torch.set_num_threads(before)
            self._limited = _blas().limit(limits=1, user_api="blas")
            self._limited.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._limited.__exit__(None, None, None)
        self._limited = nullcontext()
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

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call a function for every item, each by the next worker that is free.

        It must not be called inside a function that was given to `lead`.

        Returns
        -------
        list
            The results, in the order of the items.
        """
        waiting = list(enumerate(items))[::-1]
        results: dict[int, Result] = {}

        def part(_: int) -> None:
            while waiting:
                try:
                    position, item = waiting.pop()
                except IndexError:  # another worker has taken the last one
                    return
                results[position] = work(item)

        self.lead(self.divide, part)
        return [results[position] for position in range(len(results))]


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
