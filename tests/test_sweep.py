"""Sweeps: nothing finished is lost or done twice, whoever fails, dies, is killed or goes away."""

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import joblib
import psutil
import pytest
import torch

import xcebra.sweep
from xcebra import __version__
from xcebra.sweep import RowFile, SweepError, key, sweep

PATIENCE = 300  # seconds; the machine may be busy
CORES = joblib.cpu_count()

# Work must be importable by processes that know nothing of this file.
PIECES = '''
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Piece:
    n: int
    folder: str
    seconds: float = 0.0
    names: tuple = ("a", "b")


@dataclass(frozen=True)
class Other(Piece):
    pass


def square(piece):
    """Leaves a line in the log each time it is begun."""
    with open(Path(piece.folder) / "log", "a") as log:
        log.write(f"{piece.n} {os.getpid()}\\n")
    time.sleep(piece.seconds)
    return {"square": piece.n**2, "names": piece.names}


def look_around(piece):
    import torch
    from threadpoolctl import threadpool_info

    from xcebra.common.interrupts import deferred_interrupt

    rows = Path(piece.folder) / "rows.jsonl"
    end = time.monotonic() + piece.seconds
    with deferred_interrupt() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)  # what a terminal sends to every process at Ctrl-C
        while time.monotonic() < end and rows.read_bytes().count(b"\\n") < 4:
            time.sleep(0.05)
        return {
            "lines": rows.read_bytes().count(b"\\n"),
            "torch": torch.get_num_threads(),
            "most": max(pool["num_threads"] for pool in threadpool_info()),
            "pid": os.getpid(),
            "cut_short": interrupted(),
        }


def fail(piece):
    mended = (Path(piece.folder) / "mended").exists()
    if piece.n == 1 and not mended:
        raise ZeroDivisionError("no such luck")
    found = square(piece)
    if piece.n == 2 and not mended:
        return {"a set": {1, 2}}
    if piece.n == 3 and not mended:
        sys.exit("enough")
    return found


def die_once(piece):
    marker = Path(piece.folder) / "died"
    if piece.n == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(piece)


def die_always(piece):
    found = square(piece)
    if piece.n % 2:
        os._exit(3)
    return found


def items(folder):
    return [Piece(n, str(folder), seconds=0.4) for n in range(40)]
'''

RUN = """
import sys
from pathlib import Path

import pieces

from xcebra.sweep import RowFile, sweep

folder = Path(sys.argv[1])
sweep(pieces.square, pieces.items(folder), RowFile(folder / "rows.jsonl"), jobs=2)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "pieces.py").write_text(PIECES)
    (folder / "run.py").write_text(RUN)
    return folder


@pytest.fixture(scope="module")
def pieces(library):
    sys.path.insert(0, str(library))
    yield importlib.import_module("pieces")
    sys.path.remove(str(library))
    del sys.modules["pieces"]


@pytest.fixture
def rows(tmp_path):
    return RowFile(tmp_path / "rows.jsonl")


@pytest.fixture
def make(pieces, tmp_path):
    """Items 0, 1, ...; the seconds of some may be named."""
    return lambda n, kind="Piece", **slow: [
        getattr(pieces, kind)(i, str(tmp_path), seconds=slow.get(f"s{i}", 0.0)) for i in range(n)
    ]


def begun(folder):
    """How often each item was begun."""
    log = Path(folder) / "log"
    return Counter(int(line.split()[0]) for line in log.read_text().splitlines())


def worker_ids(folder):
    return {int(line.split()[1]) for line in (Path(folder) / "log").read_text().splitlines()}


def squares(rows):
    return [row["found"]["square"] for row in rows]


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def start(*arguments, library, **options):
    """A Python process that finds the work, in a session of its own."""
    environment = os.environ | {"PYTHONPATH": str(library), "PYTHONWARNINGS": "default"}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment,
        start_new_session=True,
        text=True,
        **options,
    )


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


# Rows in a file


def row(item, version=__version__, **found):
    return {"key": key(item), "made_with": {"xcebra": version}, "found": found}


def test_a_line_cut_short_is_as_good_as_none_and_the_next_row_starts_on_a_line_of_its_own(
    rows, make
):
    first, second, third = make(3)
    whole = json.dumps(row(first))
    rows.path.write_text(f"{whole}\n{json.dumps(row(second))[:-9]}")
    assert rows.read() == [row(first)]
    rows.append(json.dumps(row(third)))
    assert rows.read() == [row(first), row(third)]
    rows.append(json.dumps(row(second)))
    assert rows.read() == [row(first), row(third), row(second)]
    assert rows.path.read_bytes().count(b"\n") == 4


def test_what_is_no_row_is_passed_over(rows, make):
    (item,) = make(1)
    bare = json.dumps({"key": key(item)})
    text = f'\n[1]\n7\n{{"a": 1}}\nnull\n{bare}\n'.encode() + b"\x00\x00\xff\xfe\n"
    rows.path.write_bytes(text)
    assert rows.finished([item]) == {}
    rows.append(json.dumps(row(item, a=1)))
    rows.append(json.dumps(row(item, a=2)))
    assert rows.finished([item]) == {key(item): row(item, a=2)}


def test_items_are_known_by_their_kind_and_every_value(make):
    (item,) = make(1)
    assert key(item) == key(replace(item))
    different = [*make(2), *make(1, "Other"), replace(item, names=("a",)), replace(item, folder="")]
    assert len({key(each) for each in different}) == len(different)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, r"jobs must be a whole number of 1 or more, got 0"),
        ({"jobs": 1.5}, r"jobs must be a whole number"),
        ({"jobs": 2, "dask": "tcp://a:1"}, r"jobs=2 and dask='tcp://a:1' exclude each other"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_begun(
    pieces, make, rows, options, message, tmp_path
):
    with pytest.raises(ValueError, match=message):
        sweep(pieces.square, make(2), rows, **options)
    assert list(tmp_path.iterdir()) == []


def test_equal_items_are_refused(pieces, make, rows, tmp_path):
    with pytest.raises(ValueError, match=r"items must differ"):
        sweep(pieces.square, [*make(2), *make(1)], rows)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_cannot_be_written_are_refused_before_any_work(pieces, make, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file"):
        sweep(pieces.square, make(2), RowFile(tmp_path / "file" / "rows.jsonl"))
    assert not (tmp_path / "log").exists()


def test_rows_stay_valid_until_the_version_of_results_changes(make, rows, monkeypatch):
    (item,) = make(1)
    monkeypatch.setattr("xcebra.sweep.RESULTS_VERSION", "7")
    for results_version, package, valid in (
        ("7", "9.9.9", True),  # a later release that changed no number
        ("6", "7", False),
        (None, "7", True),  # written before results had a version of their own
        (None, "6", False),
    ):
        line = {"key": key(item), "made_with": {"xcebra": package}}
        line |= {"results_version": results_version} if results_version else {}
        rows.path.write_text(json.dumps(line) + "\n")
        assert (key(item) in rows.finished([item])) is valid


# Processes of this machine


def test_one_job_has_all_cores_and_each_row_is_written_before_the_next_piece(pieces, make, rows):
    mine = torch.get_num_threads()
    found = sweep(pieces.look_around, make(3), rows, jobs=1)
    assert [each["found"]["lines"] for each in found] == [0, 1, 2]
    for each in found:
        assert each["found"]["torch"] == each["found"]["most"] == CORES
        assert each["machine"]["threads"] == CORES
        assert each["found"]["pid"] != os.getpid()
        assert not each["found"]["cut_short"]
    assert torch.get_num_threads() == mine


def test_jobs_share_the_cores_and_rows_come_back_in_the_order_of_the_items(pieces, make, rows):
    items = make(5, s0=PATIENCE)  # the first waits for the others
    found = sweep(pieces.look_around, items, rows, jobs=2)
    assert [each["item"]["n"] for each in found] == [0, 1, 2, 3, 4]
    assert [each["item"]["n"] for each in rows.read()] == [1, 2, 3, 4, 0]  # as they were finished
    assert len({each["found"]["pid"] for each in found}) == 2
    for each, item in zip(found, items, strict=True):
        assert each["found"]["torch"] == each["found"]["most"] == max(1, CORES // 2)
        assert each["machine"]["threads"] == max(1, CORES // 2)
        assert each["machine"]["cores"] == CORES
        assert each["made_with"]["xcebra"] == __version__
        assert each["made_with"]["torch"] == torch.__version__
        assert 0 <= each["seconds"] <= found[0]["seconds"] < PATIENCE
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each["finished"])
        assert each["kind"] == "Piece"
        assert each["item"] == {
            "n": item.n,
            "folder": item.folder,
            "seconds": item.seconds,
            "names": ["a", "b"],
        }


def test_a_second_run_does_only_what_is_missing_of_this_version(pieces, make, rows, tmp_path):
    items = make(4)
    kept = [row(items[0], square=0), row(items[1], "0.0.1", square=-1), row(items[2], square=4)]
    text = "".join(json.dumps(each) + "\n" for each in kept)
    rows.path.write_text(text)
    found = sweep(pieces.square, items, rows, jobs=1)
    assert squares(found) == [0, 1, 4, 9]
    assert [found[0], found[2]] == [kept[0], kept[2]]
    assert begun(tmp_path) == {1: 1, 3: 1}
    assert rows.path.read_text().startswith(text)
    assert rows.path.read_text().count("\n") == 5
    # A third has nothing left to do, needs nobody to do it, and finds the same.
    assert sweep(pieces.square, items, rows, dask="tcp://127.0.0.1:1") == found
    assert rows.path.read_text().count("\n") == 5


def test_pieces_that_fail_cost_no_others_and_only_they_are_tried_again(
    pieces, make, rows, tmp_path
):
    with pytest.raises(SweepError) as caught:
        sweep(pieces.fail, make(6), rows, jobs=1)
    told = str(caught.value)
    assert told.startswith(f"3 of 6 pieces failed, the others are kept in {rows.path}")
    assert "Piece(n=1," in told
    assert re.search(r'pieces.py", line \d+, in fail\n(.*\n)*ZeroDivisionError: no such luck', told)
    assert [each["item"]["n"] for each in rows.read()] == [0, 4, 5]
    (tmp_path / "mended").touch()
    assert squares(sweep(pieces.fail, make(6), rows, jobs=1)) == [0, 1, 4, 9, 16, 25]
    assert begun(tmp_path) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 1}


def test_a_worker_that_dies_is_replaced(pieces, make, rows, tmp_path):
    assert squares(sweep(pieces.die_once, make(3), rows, jobs=2)) == [0, 1, 4]
    assert (tmp_path / "died").exists()
    assert len(rows.read()) == 3


def test_pieces_that_kill_their_worker_cost_no_others_and_there_is_an_end_to_it(
    pieces, make, rows, monkeypatch, tmp_path
):
    monkeypatch.setattr(xcebra.sweep, "_MOST_DEATHS", 1)
    with pytest.raises(SweepError) as caught:
        sweep(pieces.die_always, make(4), rows, jobs=1)
    told = str(caught.value)
    assert told.startswith(f"2 of 4 pieces failed, the others are kept in {rows.path}")
    assert "Piece(n=3," in told
    assert "died with no other beside it; lack of memory?" in told
    assert "EXIT(3)" in told
    assert sorted(each["item"]["n"] for each in rows.read()) == [0, 2]
    # The first to die was set aside, and not tried again after as many had died as may.
    assert begun(tmp_path) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_sweep_that_is_ended_loses_only_what_was_in_flight(library, pieces, rows, tmp_path):
    def run_until(enough, send):
        process = start(library / "run.py", tmp_path, library=library, stderr=subprocess.PIPE)
        try:
            wait_for(lambda: len(rows.read()) >= enough or process.poll() is not None, "rows")
            assert process.poll() is None
            send(process)
            _, told = process.communicate(timeout=PATIENCE)
            workers = worker_ids(tmp_path)
            wait_for(lambda: not any(map(psutil.pid_exists, workers)), "the workers to end")
        finally:
            end(process)
        kept = [each["item"]["n"] for each in rows.read()]
        assert enough <= len(kept) < 40
        return process.returncode, told, {n: begun(tmp_path)[n] for n in kept}

    code, _, first = run_until(3, lambda process: process.kill())
    assert code == -signal.SIGKILL
    assert set(first.values()) == {1}
    assert sum(begun(tmp_path).values()) <= len(first) + 2  # at most two were in flight
    # To the whole group, workers too, as a terminal does.
    code, told, second = run_until(
        len(first) + 3, lambda process: os.killpg(process.pid, signal.SIGINT)
    )
    assert code == -signal.SIGINT
    assert told.count("Traceback") == told.count("KeyboardInterrupt") == 1  # no worker's
    assert sum(begun(tmp_path).values()) <= len(second) + 4
    items = pieces.items(tmp_path)[: len(second) + 2]
    assert squares(sweep(pieces.square, items, rows, jobs=1)) == [item.n**2 for item in items]
    assert sorted(each["item"]["n"] for each in rows.read()) == [item.n for item in items]
    # What was finished was never begun again.
    assert first.items() <= second.items() <= begun(tmp_path).items()


# A cluster


@pytest.fixture(scope="module")
def scheduler(library):
    """A scheduler without workers, by its address."""
    pytest.importorskip("distributed")
    told = library / "scheduler.json"
    process = start(
        *("-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"),
        *("--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", told),
        library=library,
        cwd=library,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: told.exists() and told.read_text().endswith("}"), "the scheduler")
        yield json.loads(told.read_text())["address"]
    finally:
        end(process)


@pytest.fixture
def workers(scheduler, library, tmp_path):
    """Two workers of the scheduler."""
    running = []
    try:
        for name in ("left", "right"):
            process = start(
                *("-m", "distributed.cli.dask_worker", scheduler, "--host", "127.0.0.1"),
                *("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name),
                *("--dashboard-address", "127.0.0.1:0", "--local-directory", tmp_path / "scratch"),
                library=library,
                cwd=library,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.append(process)
        yield running
    finally:
        for process in running:
            end(process)


def test_a_cluster_that_loses_a_worker_finishes_all(
    scheduler, workers, pieces, make, rows, tmp_path, library
):
    items = [replace(item, seconds=0.25) for item in make(24)]
    # One of the workers dies by another's hand, while it is at work.
    killer = start(
        "-c",
        "import os, sys, time\n"
        "rows, log, victim = sys.argv[1:]\n"
        "def lines(path): return open(path).read().splitlines() if os.path.exists(path) else []\n"
        "def working(): return any(line.endswith(f' {victim}') for line in lines(log))\n"
        "while not (len(lines(rows)) >= 3 and working()): time.sleep(0.02)\n"
        "os.kill(int(victim), 9)\n",
        *(rows.path, tmp_path / "log", workers[0].pid),
        library=library,
    )
    try:
        found = sweep(pieces.square, items, rows, dask=scheduler)
        assert killer.wait(PATIENCE) == 0
    finally:
        end(killer)
    assert workers[0].wait(PATIENCE) == -signal.SIGKILL
    assert workers[1].poll() is None
    assert squares(found) == [n**2 for n in range(24)]
    assert sorted(each["item"]["n"] for each in rows.read()) == list(range(24))
    assert {each["machine"]["threads"] for each in found} == {1}
    assert worker_ids(tmp_path) == {process.pid for process in workers}
    # Work that fails there, or cannot even be read there, is told as here.
    with pytest.raises(SweepError, match=r"^3 of 6 pieces failed(.*\n)*.*no such luck"):
        sweep(pieces.fail, make(6, "Other"), rows, dask=scheduler)
    assert len(rows.read()) == 27
    (tmp_path / "nowhere_else.py").write_text("def work(piece):\n    return {}\n")
    sys.path.insert(0, str(tmp_path))
    try:
        work = importlib.import_module("nowhere_else").work
        with pytest.raises(SweepError, match=r"No module named 'nowhere_else'"):
            sweep(work, make(2), RowFile(tmp_path / "others.jsonl"), dask=scheduler)
    finally:
        sys.path.remove(str(tmp_path))


def test_a_scheduler_without_workers_is_told(scheduler, pieces, make, rows, monkeypatch, tmp_path):
    monkeypatch.setattr(xcebra.sweep, "_CONNECT_SECONDS", 3)
    with pytest.raises(
        ValueError, match=rf"dask='{scheduler}'.*no workers.*dask worker {scheduler}"
    ):
        sweep(pieces.square, make(2), rows, dask=scheduler)
    assert list(tmp_path.iterdir()) == []


def test_an_address_where_nobody_answers_is_told(pieces, make, rows, monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setattr(xcebra.sweep, "_CONNECT_SECONDS", 1)
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ValueError, match=rf"dask='{address}'.*start one with 'dask scheduler'"):
            sweep(pieces.square, make(2), rows, dask=address)
    assert time.monotonic() - began < 30
    assert list(tmp_path.iterdir()) == []
