"""What commands print where nobody watches: notes and lines about long work, or nothing at all."""

import logging

import pytest

from xcebra.caveats import LabelKindWarning, warn
from xcebra.cli import console
from xcebra.cli.console import one_line_errors
from xcebra.common import progress
from xcebra.common.progress import Steps, logger


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(clock):
    with Steps(100, False, desc="fit") as steps:
        for _ in range(40):
            clock.now += 1.0
            steps.update()
    logger.info("plan: 0.1 s")
    warn("label 'a' was taken as an angle", LabelKindWarning, "label_kind")


def test_a_line_and_a_note_where_nobody_watches(clock, capsys, monkeypatch):
    monkeypatch.setattr(console, "watched", lambda: False)
    with one_line_errors():
        work(clock)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "xcebra: fit: step 30 of 100",
        "xcebra: note: label 'a' was taken as an angle (option --circular or --discrete or "
        "--continuous)",
    ]


def test_no_line_beside_a_bar(clock, capsys, monkeypatch):
    monkeypatch.setattr(console, "watched", lambda: True)
    with one_line_errors():
        work(clock)
    assert "step 30" not in capsys.readouterr().err


@pytest.mark.parametrize("seen", [True, False])
def test_quiet_prints_nothing_and_the_log_has_it_all(clock, capsys, monkeypatch, caplog, seen):
    monkeypatch.setattr(console, "watched", lambda: seen)
    with one_line_errors(quiet=True), caplog.at_level(logging.INFO, "xcebra"):
        work(clock)
    assert capsys.readouterr() == ("", "")
    assert caplog.messages == [
        "fit: step 30 of 100",
        "plan: 0.1 s",
        "note: label 'a' was taken as an angle",
    ]
