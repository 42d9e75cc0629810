"""Many independent pieces of work: side by side, here or on a cluster, each kept when finished.

A piece is a frozen dataclass of plain values, seed included; it is known by those values, so that a
sweep that finds its row goes on without it. Only this process writes, one whole line at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from xcebra.checks import number, raise_if

Row = dict[str, Any]
Work = Callable[[Any], dict[str, Any]]

_MOST_RESTARTS = 3
_CONNECT_SECONDS = 15
_PACKAGES = ("xcebra", "torch", "numpy", "numba", "scikit-learn")


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
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(row, dict) and "key" in row:
                rows.append(row)
        return rows

    def append(self, row: Row) -> None:
        """Add a row and see it to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            whole = True
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            line = json.dumps(row, allow_nan=True) + "\n"
            file.write((line if whole else "\n" + line).encode())
            file.flush()
            os.fsync(file.fileno())

    def finished(self, items: Sequence[Any]) -> dict[str, Row]:
        """The last row of each item that this version has finished, by its key."""
        wanted = {key(item) for item in items}
        mine = version("xcebra")
        return {
            row["key"]: row
            for row in self.read()
            if row["key"] in wanted and row["made_with"]["xcebra"] == mine
        }


def key(item: Any) -> str:
    """What an item is known by: a digest of its kind and its values."""
    told = json.dumps([type(item).__name__, asdict(item)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


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
        Where finished rows are kept. Rows of other versions of this package stay there unused.
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
        raise ValueError("items must differ from each other: some have the same values")
    done = rows.finished(items)
    failures: list[tuple[Any, str]] = []
    bar = tqdm(total=len(items), initial=len(done), disable=not progress, unit="fit")
    with bar, _workers(jobs, dask) as (parallel, threads):
        for restarts in range(_MOST_RESTARTS + 1):
            failed = {key(item) for item, _ in failures}
            left = [each for each in items if key(each) not in done.keys() | failed]
            try:
                calls = (joblib.delayed(_attempt)(work, item, threads) for item in left)
                for item, row, error in parallel(calls) if left else ():
                    if row is None:
                        failures.append((item, error))
                        continue
                    rows.append(row)
                    done[row["key"]] = row
                    bar.update()
                break
            except TerminatedWorkerError as killed:
                if restarts == _MOST_RESTARTS:
                    raise SweepError(
                        f"worker processes were killed {restarts + 1} times, perhaps for lack of "
                        f"memory; {len(done)} of {len(items)} pieces are kept in {rows.path}: run "
                        "again with fewer jobs to go on"
                    ) from killed
    if failures:
        item, error = failures[0]
        raise SweepError(
            f"{len(failures)} of {len(items)} pieces failed, the others are kept in {rows.path}; "
            f"the first was {item}:\n{error}"
        )
    return [done[key(item)] for item in items]


def _attempt(work: Work, item: Any, threads: int) -> tuple[Any, Row | None, str]:
    """One piece, on a worker: its row, or what went wrong."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    try:
        found = work(item)
    except Exception:
        return item, None, traceback.format_exc()
    row = {
        "key": key(item),
        "kind": type(item).__name__,
        "item": asdict(item),
        "found": found,
        "seconds": round(time.perf_counter() - started, 2),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": joblib.cpu_count(),
            "threads": threads,
        },
        "made_with": {name: version(name) for name in _PACKAGES},
    }
    return item, row, ""


@contextmanager
def _workers(jobs: int | None, dask: str | None) -> Iterator[tuple[joblib.Parallel, int]]:
    """What runs the pieces, and the threads each may use."""
    if dask is not None:
        with _dask_client(dask) as client:
            n_workers = sum(client.nthreads().values())
            with joblib.parallel_config(backend="dask", wait_for_workers_timeout=_CONNECT_SECONDS):
                yield _parallel(n_workers, pre_dispatch="all"), 1
        return
    cores = joblib.cpu_count()
    jobs = jobs or cores
    threads = max(1, cores // jobs)
    # Kernels compiled for another thread pool, or OpenMP in a worker, would each take all cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=threads):
        yield _parallel(jobs, pre_dispatch=jobs), threads


def _parallel(n_jobs: int, pre_dispatch: Any) -> joblib.Parallel:
    return joblib.Parallel(
        n_jobs=n_jobs,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=pre_dispatch,
    )


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    """A client of a scheduler whose workers can do this work, or an error that says why not."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            "dask=... needs the package distributed: pip install 'xcebra[dask]'"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"dask={address!r}: no scheduler answers there within {_CONNECT_SECONDS} s; start one "
            f"with 'dask scheduler' and give the address that it prints ({error})"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        except TimeoutError:
            raise ValueError(
                f"dask={address!r}: the scheduler has no workers; start some with "
                f"'dask worker {address}'"
            ) from None
        theirs = set(client.run(_version_there).values())
        if theirs != {version("xcebra")}:
            raise ValueError(
                f"dask={address!r}: workers have xcebra {sorted(theirs)}, but this is "
                f"{version('xcebra')}; install the same version everywhere"
            )
        yield client


def _version_there() -> str:
    return version("xcebra")
