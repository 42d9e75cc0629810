"""The command that `xcebra inspect` suggests: it suits the file and can be typed as it stands."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

from xcebra.cli import app
from xcebra.data.label_info import LabelInfo
from xcebra.io import Contents, Intervals, Series, Spikes, advise, opened

DATA = Path(__file__).parents[3] / "shared" / "data"
N = 3_000
TIMES = np.arange(N) / 50
RNG = np.random.default_rng(0)
HEADING = np.angle(np.exp(1j * RNG.normal(0, 0.2, N).cumsum()))
UNITS = Spikes({str(i): np.sort(RNG.uniform(0, 60, 50)) for i in range(6)})
COUNTS = Series(RNG.poisson(1, (N, 12)), TIMES)


def options_of(command):
    """The options of `xcebra fit`, as the command line itself understands them."""
    words = shlex.split(command)
    assert words[:2] == ["xcebra", "fit"]
    fit = typer.main.get_command(app).commands["fit"]
    return fit.make_context("fit", words[2:]).params


def advice(file="rec.nwb", **entries):
    return advise(Contents(file, entries), file)


def series(values, container="", unit=""):
    return Series(np.asarray(values), TIMES, info=LabelInfo(unit=unit), container=container)


def test_heading_is_the_compass_that_takes_all_directions():
    """Tilt and roll of the head stay near zero."""
    found = advice(
        units=UNITS,
        rx=series(0.1 * np.sin(TIMES), "CompassDirection"),
        ry=series(HEADING, "CompassDirection"),
        rz=series(2 + 0.2 * np.cos(TIMES), "CompassDirection"),
    )
    options = options_of(found.command)
    assert options["label"] == ["heading=ry"]
    assert options["bin_size"] == 0.05


def test_the_same_in_degrees():
    found = advice(
        units=UNITS,
        rx=series(np.rad2deg(0.1 * np.sin(TIMES)), "CompassDirection", "degrees"),
        ry=series(np.rad2deg(HEADING), "CompassDirection", "degrees"),
    )
    assert options_of(found.command)["label"] == ["heading=ry"]


def test_position_is_the_plane_in_which_the_animal_moves():
    found = advice(
        units=UNITS,
        x=series(30 * np.sin(TIMES), "Position"),
        y=series(0.5 * np.sin(3 * TIMES), "Position"),
        z=series(20 * np.cos(TIMES), "Position"),
    )
    options = options_of(found.command)
    assert options["label"] == ["position=x,z"]
    assert options["bin_size"] == 0.05  # as for heading: results/studies/bins.md
    assert any("--control 'speed=speed(x,z)'" in reason for reason in found.reasons)


def test_labels_that_people_ask_about_come_first():
    found = advice(neural=COUNTS, pupil=series(RNG.random(N)), animal_position=series(TIMES))
    assert options_of(found.command)["label"] == ["animal_position"]
    assert any("--label pupil" in reason for reason in found.reasons)


def test_columns_of_trials():
    trials = Intervals(
        [0.0, 10.0, 20.0],
        [5.0, 15.0, 25.0],
        {"choice": np.array(["a", "b", "a"]), "same": np.array([1, 1, 1])},
    )
    options = options_of(advice(units=UNITS, trials=trials).command)
    assert options["label"] == ["trials/choice"]


def test_what_does_not_vary_is_not_suggested():
    constants = {
        "constant": series(np.ones(N)),
        "missing": series(np.full(N, np.nan)),
        "word": series(np.full(N, "a")),
    }
    found = advice(units=UNITS, **constants)
    assert found.command == ""
    assert found.reasons == ("nothing in it could be a label: add behaviour, or learn from time",)
    assert options_of(advice(units=UNITS, **constants, x=series(TIMES)).command)["label"] == ["x"]


@pytest.mark.parametrize(
    ("interval", "whole", "expected"),
    [
        # A whole number of samples, the nearest to 50 ms.
        (0.02, True, 0.04),
        (0.0256, True, 0.0512),
        (0.01, True, 0.05),
        (0.02, False, None),
        (0.05, True, None),
    ],
)
def test_only_short_counts_are_put_into_wider_bins(interval, whole, expected):
    times = np.arange(N) * interval
    counts = RNG.poisson(1, (N, 12))
    neural = Series(counts if whole else counts + 0.5, times)
    found = advice(neural=neural, x=Series(RNG.random(N), times))
    assert options_of(found.command)["bin_size"] == expected


@pytest.mark.parametrize(
    ("interval", "expected"), [(0.01, 0.05), (0.05, 0.05), (0.1, 0.1), (1.0, 0.2)]
)
def test_bins_are_not_shorter_than_the_samples_of_the_label(interval, expected):
    times = np.arange(0, 60, interval)
    found = advice(units=UNITS, x=Series(RNG.random(len(times)), times))
    assert options_of(found.command)["bin_size"] == pytest.approx(expected)
    measured = [reason for reason in found.reasons if "measured every" in reason]
    assert bool(measured) == (interval == 0.1)


def test_the_width_of_bins_is_the_best_of_the_committed_results():
    """Where 50 ms, or the nearest to it, was compared with other widths on tracks."""
    table = (Path(__file__).parents[2] / "results" / "studies" / "bins.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    scores = {}
    for row in rows[2:]:
        if len(row) == 8:
            scores.setdefault(row[0], {})[float(row[1])] = float(row[4])
    for track in ("linear track", "w-maze", "entorhinal and hippocampal"):
        of_width = scores[f"{track}, position"]
        near = min(of_width, key=lambda width: abs(width - 50))
        assert of_width[near] > of_width[max(of_width)], track


@pytest.mark.parametrize("name", ["speed (cm/s)", "a=b", "it's", "-x", "$HOME", "a b", "x,y"])
def test_any_name_of_an_entry_or_a_file_can_be_typed(name):
    found = advice("my file's.nwb", units=UNITS, **{name: series(RNG.random(N))})
    options = options_of(found.command)
    assert options["label"] == [name]
    assert options["files"] == [Path("my file's.nwb")]


def test_without_activity_it_says_what_to_do():
    found = advice(a=COUNTS, b=COUNTS)
    assert (found.command, found.reasons) == (
        "",
        ("say which entry is the activity with --neural NAME",),
    )


def test_the_minutes_are_those_with_the_label():
    found = advice(units=UNITS, x=Series(RNG.random(600), np.arange(600) / 20))
    assert found.reasons[0] == "6 units, 0.5 minutes with the label"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"there are no recordings in {DATA}")
class TestRealRecordings:
    def test_heading_of_the_head_direction_cells(self):
        path = DATA / "head_direction.nwb"
        with opened(path) as contents:
            found = advise(contents, str(path))
        options = options_of(found.command)
        assert options["label"] == ["heading=ry"]
        assert options["files"] == [path]
        assert options["bin_size"] == 0.05
        assert any("position=x,z" in reason for reason in found.reasons)

    @pytest.mark.parametrize("path", sorted(DATA.glob("*.npz")), ids=lambda path: path.stem)
    def test_something_for_every_npz(self, path):
        with opened(path) as contents:
            found = advise(contents, str(path))
            names = set(contents.entries)
        options = options_of(found.command)
        assert set(options["label"]) <= names
        assert options["label"][0].startswith("position")
