"""The command that compares a device with the CPU, run as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(*arguments):
    command = [sys.executable, str(FOLDER / "device.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=600)


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import device

    return device


def test_the_cpu_agrees_with_itself_and_every_phase_has_its_seconds():
    done = run("--device", "cpu", "--samples", "1500", "--neurons", "8", "--steps", "20")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    # One device and one number of threads give the same bits.
    assert (row["first_losses_differ_by"], row["last_losses_differ_by"]) == (0, 0)
    assert (row["maps_correlate"], row["agrees"], row["steps"]) == (1, True, 20)
    for role in ("cpu_seconds", "device_seconds"):
        assert {"plan", "training", "decoder", "crossed decoders", "map", "all"} <= set(row[role])
        parts = sum(seconds for name, seconds in row[role].items() if name != "all")
        assert 0 < parts <= row[role]["all"] + 0.5


@pytest.mark.parametrize("device", ["cuda:99", "meta", "nothing"])
def test_a_missing_device_is_one_clear_line(device):
    done = run("--device", device)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"device.py: device {device!r} cannot be used here: ")


def fit(seed=0, loss=0.0, amap=0.0):
    """A fit of 100 steps with losses and a map that are wrong by as much."""
    rng = np.random.default_rng(seed)
    history = {"loss/label": np.full(100, 4.0) + loss, "chance/label": np.full(100, 5.0)}
    return {"history": history, "map": np.arange(20.0) + amap * rng.standard_normal(20)}


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        (fit(), True),
        (fit(loss=2e-4), True),
        (fit(loss=0.004), False),
        (fit(loss=np.concatenate([np.zeros(90), np.full(10, 0.004)])), True),
        (fit(loss=np.concatenate([np.zeros(90), np.full(10, 0.006)])), False),
        (fit(amap=0.1), True),
        (fit(amap=10.0), False),
        (fit(loss=np.nan), False),
    ],
)
def test_differences_beyond_the_tolerance_do_not_agree(benchmark, other, agrees):
    assert benchmark.compare(fit(), other)["agrees"] is agrees


def test_differences_in_closed_form(benchmark):
    """A tenth of a per cent of a loss of 4 is 0.08 per cent of the chance level of 5."""
    result = benchmark.compare(fit(), fit(loss=0.004))
    assert result["first_losses_differ_by"] == pytest.approx(1e-3, rel=0.01)
    assert result["last_losses_differ_by"] == pytest.approx(8e-4, rel=0.01)
