"""Progress: a bar for those who watch, a line every half minute for the log, and nothing else."""

import contextlib
import io
import logging
import sys

import pytest

from xcebra.common import progress
from xcebra.common.progress import Steps, phase, watched


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_is_watched(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen(terminal))
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert watched() is terminal


def test_a_program_without_a_screen_is_not_watched(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert watched() is False


def test_a_notebook_is_watched(monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})()
    module = type("IPython", (), {"get_ipython": staticmethod(lambda: shell)})
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(sys, "stderr", Screen(False))
    assert watched() is True


def test_a_line_every_half_minute(clock, caplog, capsys):
    caplog.set_level(logging.INFO, "xcebra")
    with Steps(100, False, desc="fit") as steps:
        steps.describe("loss 3.2")
        for _ in range(100):
            clock.now += 1.0
            steps.update()
    assert caplog.messages == [
        "fit: step 30 of 100, loss 3.2",
        "fit: step 60 of 100, loss 3.2",
        "fit: step 90 of 100, loss 3.2",
    ]
    assert {record.name for record in caplog.records} == {"xcebra.progress"}
    assert capsys.readouterr() == ("", "")


def test_quick_work_says_nothing(clock, caplog):
    caplog.set_level(logging.INFO, "xcebra")
    with Steps(1_000, False) as steps:
        for _ in range(1_000):
            clock.now += 0.029
            steps.update()
    assert caplog.messages == []
    assert steps.n == 1_000


def test_steps_that_are_done_already_count(clock, caplog):
    caplog.set_level(logging.INFO, "xcebra")
    with Steps(10, False, initial=4, unit="fit") as steps:
        clock.now += 31
        steps.update()
    assert caplog.messages == ["fit 5 of 10"]


@pytest.mark.filterwarnings("ignore:IProgress not found")
def test_a_bar_if_it_is_visible_and_no_lines(clock, caplog, capsys):
    caplog.set_level(logging.INFO, "xcebra")
    with Steps(3, True, desc="fit") as steps:
        for _ in range(3):
            clock.now += 40
            steps.update()
    assert "3/3" in capsys.readouterr().err
    assert caplog.messages == []


def test_a_phase_logs_how_long_it_took_even_if_it_fails(clock, caplog):
    caplog.set_level(logging.INFO, "xcebra")
    with phase("plan"):
        clock.now += 2.5
    with contextlib.suppress(KeyError), phase("training"):
        clock.now += 1.0
        raise KeyError
    assert caplog.messages == ["plan: 2.5 s", "training: 1.0 s"]
