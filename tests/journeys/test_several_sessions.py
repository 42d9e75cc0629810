"""From several NWB files to one answer by area, and what a killed command leaves behind."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import xcebra
from tests.report.session_case import session_recording
from xcebra.cli import app

PATIENCE = 300  # seconds; the machine may be busy
QUICK = ("--steps", 12, "--batch-size", 128, "--time-dims", 1, "--window", 1)

pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")
    assert result.exit_code == code, result.output
    return result.stdout


def start(*arguments, folder):
    return subprocess.Popen(
        [sys.executable, "-m", "xcebra.cli", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def kill_when(process, happened, delay=0.0):
    """Kill a command and its workers as soon as something has happened; False if it ended first."""
    end = time.monotonic() + PATIENCE
    while not happened() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    time.sleep(delay)
    ended = process.poll() is not None
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return not ended


def models(folder):
    return {str(p.relative_to(folder)): load_file(p) for p in folder.rglob("model.safetensors")}


def assert_same_models(first, second):
    first, second = models(first), models(second)
    assert first.keys() == second.keys()
    assert first
    for path, tensors in first.items():
        for name, values in tensors.items():
            np.testing.assert_array_equal(values, second[path][name], err_msg=f"{path} {name}")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three NWB files of spike times, and a table that gives them animals and days."""
    folder = tmp_path_factory.mktemp("files")
    lines = ["file,session,animal,day"]
    for i, (animal, day) in enumerate((("ann", 1), ("ann", 2), ("bob", 1))):
        name = f"{animal}{day}.nwb"
        xcebra.write(session_recording(20 + i), folder / name, spikes=True)
        lines.append(f"{name},{animal} day {day},{animal},{day}")
    (folder / "sessions.csv").write_text("\n".join(lines))
    return folder


FIT = ("fit", "--sessions", "sessions.csv", "--label", "heading", "--bin-size", 0.05, *QUICK)


@pytest.fixture(scope="module")
def joint(files):
    here = Path.cwd()
    os.chdir(files)
    try:
        run(*FIT, "--out", "joint", "--quiet")
        run("attribute", "joint", "--quiet")
    finally:
        os.chdir(here)
    return files / "joint"


class TestAnswer:
    def test_groups_come_first_then_one_line_for_each_session(self, joint):
        lines = run("attribute", joint).splitlines()
        assert lines[0] == "heading was found in 3 of 3 sessions."
        assert lines[1].startswith("  area adn: 12 of 12 neurons in 3 sessions of 2 animals are")
        assert any(line.startswith("  adn more than <img") for line in lines)
        sessions = [line for line in lines if line.startswith(("ann day", "bob day"))]
        assert len(sessions) == 3
        assert all("heading yes, " in line for line in sessions)
        assert lines[-1] == str(joint / "maps")

    def test_json_tables_and_page_have_the_same_numbers(self, joint):
        made = json.loads(run("attribute", joint, "--json", "--group-by", "area"))
        adn = next(r for r in made["groups"] if r["block"] == "heading" and r["area"] == "adn")
        assert (adn["tested"], adn["animals"], adn["over"]) == (12, 2, "animals")
        assert set(made["sessions"]) == {"ann day 1", "ann day 2", "bob day 1"}
        run("report", joint, "--quiet")
        assert "adn: 12 of 12 neurons in 3 sessions of 2 animals" in (
            joint / "report.html"
        ).read_text("utf-8")
        files = run("export", joint, "--follow", "cell", "--quiet")
        assert files == ""
        names = {path.name for path in (joint / "export").iterdir()}
        assert names == {
            *("neurons.csv", "groups.csv", "differences.csv"),
            *(f"{kind}_heading.{ending}" for kind in ("groups", "followed")
              for ending in ("png", "svg")),
        }  # fmt: skip
        with (joint / "export" / "groups.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert float(rows[0]["share_connected"]) == pytest.approx(adn["share_connected"], rel=1e-4)
        with (joint / "export" / "neurons.csv").open(encoding="utf-8") as file:
            neurons = list(csv.DictReader(file))
        assert {(row["animal"], row["day"]) for row in neurons} == {
            ("ann", "1"),
            ("ann", "2"),
            ("bob", "1"),
        }

    def test_run_toml_repeats_the_run_to_the_bit(self, joint, tmp_path):
        settings = tomllib.loads((joint / "run.toml").read_text())
        assert [s["animal"] for s in settings["sessions"]] == ["ann", "ann", "bob"]
        assert all(len(s["sha256"]) == 64 for s in settings["sessions"])
        run("fit", "--config", joint / "run.toml", "--out", tmp_path / "again", "--quiet")
        assert_same_models(joint, tmp_path / "again")

    def test_one_file_is_an_ordinary_run(self, files, tmp_path):
        out = tmp_path / "run"
        run("fit", files / "ann1.nwb", "--label", "heading", "--bin-size", 0.05, *QUICK,
            "--out", out, "--quiet")  # fmt: skip
        assert sorted(path.name for path in out.iterdir()) == [
            "log.txt",
            "model.safetensors",
            "recording.npz",
            "run.toml",
        ]
        settings = tomllib.loads((out / "run.toml").read_text())
        assert list(settings) == ["recording", "model", "resolved", "made_with"]
        recording = xcebra.read(out / "recording.npz", neural="neural")
        options = {"steps": 12, "batch_size": 128, "time_dims": 1, "window": 1}
        model = xcebra.XCEBRA(**options, random_state=0).fit(recording, label="heading")
        made = xcebra.XCEBRA.load(out / "model.safetensors")
        np.testing.assert_array_equal(model.transform(recording), made.transform(recording))
        # One recording replaces several sessions, and nothing of them is left.
        other = tmp_path / "several"
        (other / "sessions" / "a").mkdir(parents=True)
        (other / "run.toml").write_text('[[sessions]]\nname = "a"\nfile = "a.npz"\n')
        (other / "sessions" / "a" / "recording.npz").touch()
        run("fit", "--config", out / "run.toml", "--out", other, "--overwrite", "--quiet")
        assert sorted(path.name for path in other.iterdir()) == sorted(
            path.name for path in out.iterdir()
        )


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Three short sessions."""
    folder = tmp_path_factory.mktemp("short")
    for day in (1, 2, 3):
        xcebra.write(session_recording(30 + day, n_times=500), folder / f"day{day}.npz")
    return folder


class TestKilled:
    def test_a_joint_fit_goes_on_where_it_stopped(self, short, full_decoders):
        """One fit, killed at three moments, gives the same bits as one that was not."""
        command = ("fit", "day1.npz", "day2.npz", "--label", "heading", *QUICK)
        out = short / "killed"
        first = out / "checkpoint.safetensors-session0.safetensors"
        delay = random.Random(time.time_ns()).uniform(0, 0.3)
        for happened, wait in (
            ((out / "run.toml").is_file, delay),
            ((out / "checkpoint.safetensors").is_file, 0.0),
            (first.is_file, 0.0),
        ):
            kill_when(start(*command, "--out", out, folder=short), happened, wait)
            assert not (out / "model.safetensors").exists()
        written = first.stat().st_mtime_ns
        process = start(*command, "--out", out, folder=short)
        seen = []
        while process.poll() is None:
            with suppress(FileNotFoundError):
                seen.append(first.stat().st_mtime_ns)
            time.sleep(0.01)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        assert set(seen) == {written}, "the first session was fitted again"
        assert not list(out.glob("checkpoint*"))
        assert "made_with" in tomllib.loads((out / "run.toml").read_text())
        with full_decoders():
            run("fit", "--config", out / "run.toml", "--out", short / "whole", "--quiet")
        assert_same_models(short / "whole", out)

    def test_separate_fits_are_kept_and_not_repeated(self, short, full_decoders):
        names = [f"day{day}" for day in (1, 2, 3)]
        command = ("fit", *(f"{name}.npz" for name in names), "--label", "heading", *QUICK)
        out = short / "separate"
        finished = {name: out / "sessions" / name / "model.safetensors" for name in names}
        # With two processes, each has one thread.
        process = start(*command, "--separate", "--jobs", 2, "--out", out, folder=short)
        assert kill_when(process, lambda: any(path.is_file() for path in finished.values()))
        kept = {name: p.stat().st_mtime_ns for name, p in finished.items() if p.is_file()}
        assert 1 <= len(kept) < 3
        process = start(*command, "--separate", "--jobs", 2, "--out", out, folder=short)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        for name, written in kept.items():
            assert finished[name].stat().st_mtime_ns == written
        assert not (out / "sessions" / "rows.jsonl").exists()
        own = next(finished[name] for name in names if name not in kept).parent
        with full_decoders():  # each session is what a run over its file alone gives
            run("fit", "--config", own / "run.toml", "--out", short / "alone", "--quiet")
        assert_same_models(own, short / "alone")
        lines = run("attribute", out).splitlines()
        assert lines[0] == "heading was found in 3 of 3 sessions."
        assert (own / "map.nc").is_file()
        run("report", out, "--quiet")
        assert "fitted one by one" in (out / "report.html").read_text("utf-8")
