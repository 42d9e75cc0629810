"""Run many independent pieces of work in parallel, on this machine or on a cluster.

A piece of work is described by an item: a frozen dataclass of plain values, including its seed. The
result of each piece is written to a file as a row as soon as it is finished. An item is identified
by its values, so that a sweep does not repeat an item whose row is in the file. Only the process
that called `sweep` writes to the file, one complete line at a time.
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
from xcebra.common.progress import Steps
from xcebra.common.provenance import RESULTS_VERSION, made_with, now

Row = dict[str, Any]
Work = Callable[[Any], dict[str, Any]]
# An item, its row as a line of JSON or None if it failed, and the error message.
Outcome = tuple[Any, str | None, str]

# Number of processes that may die before the remaining items are run one at a time, and before a
# sweep of single items gives up. Larger values try longer. Not tuned.
_MOST_DEATHS = 3
# Seconds to wait for a Dask scheduler and its workers. Larger values wait longer for slow networks.
# Not tuned.
_CONNECT_SECONDS = 15
# Prefixes of the environment variables that set the number of threads of numerical libraries.
_THREAD_SETTINGS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "BLIS")


class SweepError(RuntimeError):
    """Pieces of a sweep failed; the rows of finished pieces are in the file."""


@dataclass(frozen=True)
class RowFile:
    """A file of finished rows with one JSON object per line; incomplete lines are ignored.

    Parameters
    ----------
    path : Path
    """

    path: Path

    def read(self) -> list[Row]:
        """Every complete row, oldest first."""
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
        """Create the file and its folder; raise an error now if rows cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.open("ab").close()

    def append(self, line: str) -> None:
        """Append a row, as a line of JSON, and wait until it is written to the disk."""
        text = f"\n{line}\n".encode()
        # The buffer holds the whole line, so that it is written in a single operation even if other
        # processes write to the same file.
        with self.path.open("a+b", buffering=len(text) + 1) as file:
            is_complete = True  # the last line that is in the file
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                is_complete = file.read(1) == b"\n"
            file.write(text[1:] if is_complete else text)
            file.flush()
            os.fsync(file.fileno())

    def finished(self, items: Sequence[Any]) -> dict[str, Row]:
        """The last row of each finished item by its key, of the current version of results only."""
        wanted = {key(item) for item in items}
        return {
            row["key"]: row
            for row in self.read()
            if row["key"] in wanted and _results_version(row) == RESULTS_VERSION
        }


def _results_version(row: Row) -> str | None:
    """Version of a row's results. Older rows have none, and the package's version is used."""
    version_of_row: str | None = row.get("results_version") or row.get("made_with", {}).get(
        "xcebra"
    )
    return version_of_row


def key(item: Any) -> str:
    """Identify an item by a digest of its class name and of its fields with ``compare=True``."""
    text = json.dumps([type(item).__name__, _compared(item)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compared(value: Any) -> Any:
    """The fields of a dataclass with ``compare=True`` as a dict; other values unchanged."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    compared = [field.name for field in fields(value) if field.compare]
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
    """Do every piece of work that has no row yet, and return the rows of all items in order.

    Parameters
    ----------
    work : callable
        Function from an item to a dict of plain values. Every worker must be able to import it by
        name.
    items : sequence of frozen dataclass
        The pieces of work, which are started in this order.
    rows : RowFile
        File of finished rows. Rows of other versions of results stay in the file and are not used.
    jobs : int, optional
        Number of parallel processes; by default, the number of cores. The cores are divided among
        the processes.
    dask : str, optional
        Address of a Dask scheduler. Its workers then do the work, with one thread for each piece.
    progress : bool
        Show a progress bar with the remaining time.

    Returns
    -------
    list of dict
        One row per item; the result of ``work`` is its entry ``"found"``.

    Raises
    ------
    SweepError
        If pieces failed. It is raised after all other pieces are finished and gives the number of
        failures and the first error.
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
            progress_bar = Steps(len(items), progress, initial=len(done), unit="fit")
            with progress_bar, closing(run(work, left)) as outcomes:
                for item, line, error in outcomes:
                    if line is None:
                        failures.append((item, error))
                        continue
                    rows.append(line)
                    done[key(item)] = json.loads(line)
                    progress_bar.update()
    if failures:
        item, error = failures[0]
        raise SweepError(
            f"{len(failures)} of {len(items)} pieces failed, the others are kept in {rows.path}; "
            f"the first was {item}:\n{error}"
        )
    return [done[key(item)] for item in items]


def _attempt(work: Work, item: Any, threads: int) -> tuple[str | None, str]:
    """Do a piece of work on a worker; return its row as a line of JSON, or None and the error."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    try:
        result = work(item)
        row = {
            "key": key(item),
            "kind": type(item).__name__,
            "item": _compared(item),
            "found": result,
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
    """Context that gives a function which runs pieces, on this machine or on a cluster."""
    if dask is None:
        with warnings.catch_warnings():
            # Processes whose memory has grown are replaced on purpose; this is no reason to warn.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            yield partial(_here, jobs or joblib.cpu_count())
    else:
        with _dask_client(dask) as client:
            yield partial(_on_dask, client)


def _here(jobs: int, work: Work, items: Sequence[Any]) -> Generator[Outcome, None, None]:
    """Run pieces in processes on this machine.

    If a process dies, the items that were running at that time are set aside. When all others are
    finished, they are run one at a time. This helps if memory was insufficient for several at once,
    and it shows which item makes its process die.
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
    """Run the waiting items until a process dies.

    Returns
    -------
    list
        The items that were running when a process died.
    str
        The error message; empty if no process died.
    """
    threads = max(1, joblib.cpu_count() // jobs)
    # Without these settings, every worker's numerical libraries would use all cores.
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
    """End a worker when the process that reads its results has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Context in which new processes are started so that they ignore Ctrl-C.

    The terminal also sends Ctrl-C to child processes. A fit that receives it ends early and returns
    what it has learned so far, which would then be written as a finished row.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python starts this helper process together with the first process and then unblocks signals.
    # It is therefore started before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_dask(client: Any, work: Work, items: Sequence[Any]) -> Generator[Outcome, None, None]:
    """Run pieces on the workers of a cluster, with one thread for each piece."""
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
    """Context with a client of a scheduler; raises an error if its workers cannot be used."""
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
        versions = set(client.run(_installed_version).values())
        if versions != {version("xcebra")}:
            raise InputError(
                f"dask={address!r}: workers have xcebra {sorted(versions)}, but this is "
                f"{version('xcebra')}; install the same version everywhere"
            )
        yield client


def _installed_version() -> str:
    return version("xcebra")
