"""Advice after a fit: each step once, cheap ones first, and an end."""

import re

import numpy as np
import pytest

from xcebra import Recording
from xcebra.report.next_step import next_step
from xcebra.report.run_folder import Source
from xcebra.training.goodness_of_fit import GoodnessOfFit

NO, UNCLEAR, YES = (GoodnessOfFit(6.0, 6.0, learned) for learned in (False, None, True))


def recording(width, n=6_000, n_neurons=20):
    times = None if width is None else np.arange(n) * width
    return Recording(np.zeros((n, n_neurons)), {"x": np.arange(float(n))}, time=times)


def advice_in_turn(width, fit=NO, **source):
    """Ask, do what is said, and ask again, until there is nothing left to do."""
    given = []
    for _ in range(20):
        now = Source("rec.nwb", labels=("x",), **source)
        advice = next_step("x", fit, now, recording(width))
        given.append(advice)
        if match := re.search(r"--bin-size (\S+)", advice):
            assert float(match[1]) > width
            width = source["bin_size"] = float(match[1])
        elif match := re.search(r"--smooth (\S+)", advice):
            source["smooth"] = float(match[1])
        elif "--epochs" in advice:
            source["epochs"] = "wake"
        else:
            return given
    raise AssertionError(f"it never ends: {given}")


@pytest.mark.parametrize("width", [None, 0.001, 0.01, 0.02, 0.0256, 0.05, 0.1, 0.15, 0.2, 0.5])
@pytest.mark.parametrize("fit", [NO, UNCLEAR], ids=["no", "unclear"])
def test_it_ends_after_at_most_four_steps_and_repeats_none(width, fit):
    given = advice_in_turn(width, fit)
    assert len(set(given)) == len(given)
    assert len(given) - 1 <= 4
    assert given[-1].endswith("a map of x would not be right, whatever the settings")


def test_the_order_is_bins_smoothing_epochs():
    words = [re.search(r"--\S+( \d\S*)?", text)[0] for text in advice_in_turn(0.05)[:-1]]
    assert words == ["--bin-size 0.1", "--bin-size 0.2", "--smooth 0.2", "--epochs"]


def test_what_was_done_already_is_not_advised():
    given = advice_in_turn(0.2, smooth=0.1, epochs="wake")
    assert len(given) == 1
    assert not any("--smooth" in text for text in advice_in_turn(0.05, smooth=0.3))


def test_without_times_nothing_in_seconds_is_advised():
    assert len(advice_in_turn(None)) == 1


def test_a_label_that_was_found_needs_no_advice():
    assert next_step("x", YES, Source("a"), recording(0.05)) == ""


def test_time_can_be_left_out():
    assert "--time-dims 0" in next_step("time", NO, Source("a"), recording(0.05))


def test_the_last_word_names_what_there_is_too_little_of():
    source = Source("a", smooth=0.2, epochs="wake")
    little = next_step("x", NO, source, recording(0.2, n=300, n_neurons=5))
    assert "there are only 5 units and only 1.0 minutes: record more, or pool sessions" in little
    enough = next_step("x", NO, source, recording(0.2))
    assert "these neurons do not seem to carry it" in enough
