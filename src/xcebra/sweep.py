"""Many independent pieces of work: side by side, here or on a cluster, each kept when finished.

A piece is a frozen dataclass of plain values, seed included; it is known by those values, so that a
sweep that finds its row goes on without it. Only this process writes, one whole line at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import joblib
import torch
from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError, MissingExtraError
from xcebra.common.progress import bar
from xcebra.common.provenance import RESULTS_VERSION, made_with, now

Row = dict[str, Any]
Work = Callable[[Any], dict[str, Any]]
# An item, its row as a line of JSON or None, and what went wrong.
Outcome = tuple[Any, str | None, str]

_MOST_DEATHS = 3
_CONNECT_SECONDS = 15
_THREAD_SETTINGS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "BLIS")


class SweepError(RuntimeError):
    """Some pieces of a sweep could not be finished; those that were are kept."""


@dataclass(frozen=True)
class RowFile:
    """Finished rows, one JSON object a line; a line cut short by a crash is as good as none."""

    path: Path

    def read(self) -> list[Row]:
        """Every whole row, oldest first."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_bytes().split(b"\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "key" in row:
                rows.append(row)
        return rows

    def make_room(self) -> None:
        """Find out whether rows can be written, before there is one to lose."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.open("ab").close()

    def append(self, line: str) -> None:
        """Add a row, told in JSON, and see it to the disk."""
        text = f"\n{line}\n".encode()
        # With room for all of it, it is written at once, whoever else writes there.
        with self.path.open("a+b", buffering=len(text) + 1) as file:
            whole = True
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            file.write(text[1:] if whole else text)
            file.flush()
            os.fsync(file.fileno())

    def finished(self, items: Sequence[Any]) -> dict[str, Row]:
        """The last row of each item with the present version of results, by its key."""
        wanted = {key(item) for item in items}
        return {
            row["key"]: row
            for row in self.read()
            if row["key"] in wanted and _results_version(row) == RESULTS_VERSION
        }


def _results_version(row: Row) -> str | None:
    """Rows written before results had a version of their own go by that of the package."""
    version_of_row: str | None = row.get("results_version") or row.get("made_with", {}).get(
        "xcebra"
    )
    return version_of_row


def key(item: Any) -> str:
    """What an item is known by: a digest of its kind and of the values that are compared."""
    told = json.dumps([type(item).__name__, _compared(item)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _compared(value: Any) -> Any:
    if not is_dataclass(value) or isinstance(value, type):
        return value
    compared = [each.name for each in fields(value) if each.compare]
    return {name: _compared(getattr(value, name)) for name in compared}


def sweep(
    work: Work,
    items: Sequence[Any],
    rows: RowFile,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    progress: bool = False,
) -> list[Row]:
    """Do every piece of work that has no row yet, and return the rows of all, in order.

    Parameters
    ----------
    work : callable
        From an item to a dict of plain values; importable by name on every worker.
    items : sequence of frozen dataclass
        In order of importance: they are begun in this order.
    rows : RowFile
        Where finished rows are kept. Rows of other versions of results stay there unused.
    jobs : int, optional
        Processes side by side; one per core if not given. The cores are shared out among them.
    dask : str, optional
        Address of a Dask scheduler: its workers do the work instead, one thread to a piece.
    progress : bool
        Show a bar with the time left.

    Raises
    ------
    SweepError
        If pieces failed, after all others are finished, with the first error and how many.
    """
    problems: list[str] = []
    number(problems, "jobs", jobs, least=1, whole=True)
    if jobs is not None and dask is not None:
        problems.append(f"jobs={jobs} and dask={dask!r} exclude each other: give one of them")
    raise_if(problems)
    if len({key(item) for item in items}) < len(items):
        raise InputError("items must differ from each other: some have the same values")
    done = rows.finished(items)
    left = [item for item in items if key(item) not in done]
    failures: list[tuple[Any, str]] = []
    if left:
        with _workers(jobs, dask) as run:
            rows.make_room()
            shown = bar(len(items), progress, initial=len(done), unit="fit")
            with shown, closing(run(work, left)) as outcomes:
                for item, line, error in outcomes:
                    if line is None:
                        failures.append((item, error))
                        continue
                    rows.append(line)
                    done[key(item)] = json.loads(line)
                    shown.update()
    if failures:
        item, error = failures[0]
        raise SweepError(
            f"{len(failures)} of {len(items)} pieces failed, the others are kept in {rows.path}; "
            f"the first was {item}:\n{error}"
        )
    return [done[key(item)] for item in items]


def _attempt(work: Work, item: Any, threads: int) -> tuple[str | None, str]:
    """One piece, on a worker: its row as a line of JSON, or what went wrong."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    try:
        found = work(item)
        row = {
            "key": key(item),
            "kind": type(item).__name__,
            "item": _compared(item),
            "found": found,
            "seconds": round(time.perf_counter() - started, 2),
            "finished": now(),
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cores": joblib.cpu_count(),
                "threads": threads,
            },
            "results_version": RESULTS_VERSION,
            "made_with": made_with(),
        }
        return json.dumps(row), ""
    except (Exception, SystemExit):
        return None, traceback.format_exc()


@contextmanager
def _workers(
    jobs: int | None, dask: str | None
) -> Iterator[Callable[[Work, Sequence[Any]], Generator[Outcome, None, None]]]:
    """What runs the pieces, here or on a cluster."""
    if dask is None:
        with warnings.catch_warnings():
            # A process that has grown much is replaced, which is as it should be.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            yield partial(_here, jobs or joblib.cpu_count())
    else:
        with _dask_client(dask) as client:
            yield partial(_on_dask, client)


def _here(jobs: int, work: Work, items: Sequence[Any]) -> Generator[Outcome, None, None]:
    """Run pieces in processes of this machine.

    When a process dies, those in flight are set aside until all others are finished; then each has
    the machine to itself. That is the remedy for lack of memory, and tells which one it was.
    """
    waiting, aside = deque(items), deque[Any]()
    deaths = 0
    while waiting and deaths < _MOST_DEATHS:
        in_flight, why = yield from _until_one_dies(work, waiting, jobs)
        aside.extend(in_flight)
        deaths += bool(why)
    alone = waiting + aside
    deaths = 0
    while alone:
        in_flight, why = yield from _until_one_dies(work, alone, 1)
        deaths += bool(why)
        for item in in_flight:
            yield item, None, f"its process died with no other beside it; lack of memory?\n{why}"
        if deaths == _MOST_DEATHS:
            for item in alone:
                yield item, None, f"not tried, after {deaths} others had died\n{why}"
            return


def _until_one_dies(
    work: Work, waiting: deque[Any], jobs: int
) -> Generator[Outcome, None, tuple[list[Any], str]]:
    """Run what is waiting; return what was in flight when a process died, and what is known."""
    threads = max(1, joblib.cpu_count() // jobs)
    # Kernels compiled for another thread pool, or OpenMP in a worker, would each take all cores.
    settings = {f"{name}_NUM_THREADS": str(threads) for name in _THREAD_SETTINGS}
    pool = ProcessPoolExecutor(
        min(jobs, len(waiting)), env=settings, initializer=_end_with, initargs=(os.getpid(),)
    )
    in_flight: dict[Future[Any], Any] = {}
    why = ""
    try:
        while (waiting or in_flight) and not why:
            try:
                while waiting and len(in_flight) < jobs:
                    with _interrupts_held():
                        future = pool.submit(_attempt, work, waiting[0], threads)
                    in_flight[future] = waiting.popleft()
            except BrokenProcessPool as broken:
                why = str(broken)
            for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                try:
                    line, error = future.result()
                except BrokenProcessPool as broken:
                    why = str(broken)
                    continue
                except Exception:
                    line, error = None, traceback.format_exc()
                yield in_flight.pop(future), line, error
    finally:
        pool.shutdown(kill_workers=bool(in_flight))
    return list(in_flight.values()), why


def _end_with(parent: int) -> None:
    """Let a worker not outlive the process that reads its results."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let processes started meanwhile never see Ctrl-C, which would cut a fit short.

    The terminal sends it to them too, and a fit takes it as a wish for what is learned so far.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python starts this helper with the first process, and lets signals through again after it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_dask(client: Any, work: Work, items: Sequence[Any]) -> Generator[Outcome, None, None]:
    """Run pieces on the workers of a cluster, one thread to a piece."""
    from distributed import as_completed

    submitted = {client.submit(_attempt, work, item, 1, pure=False): item for item in items}
    for future in as_completed(submitted, loop=client.loop):
        item = submitted.pop(future)
        try:
            line, error = future.result()
        except Exception:
            line, error = None, traceback.format_exc()
        yield item, line, error


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    """A client of a scheduler whose workers can do this work, or an error that says why not."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError(
            "dask=... needs the package distributed: pip install 'xcebra[dask]'"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"dask={address!r}: no scheduler answers there within {_CONNECT_SECONDS} s; start one "
            f"with 'dask scheduler' and give the address that it prints ({error})"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except TimeoutError:
            raise InputError(
                f"dask={address!r}: the scheduler has no workers; start some with "
                f"'dask worker {address}'"
            ) from None
        theirs = set(client.run(_version_there).values())
        if theirs != {version("xcebra")}:
            raise InputError(
                f"dask={address!r}: workers have xcebra {sorted(theirs)}, but this is "
                f"{version('xcebra')}; install the same version everywhere"
            )
        yield client


def _version_there() -> str:
    return version("xcebra")
