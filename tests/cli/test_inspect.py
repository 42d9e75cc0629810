"""From what a file holds to a run of a part of it: inspect, fit, and their silence."""

import hashlib
import json
import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import xcebra
from xcebra import plots
from xcebra.cli import app
from xcebra.common.progress import lines, logger
from xcebra.report.run_folder import Run, Settings

DATA = Path(__file__).parents[3] / "shared" / "data"
N = 500
TIMES = np.arange(N) / 10


def run(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments], prog_name="xcebra")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    position = rng.normal(size=(N, 2)).cumsum(axis=0)
    heading = np.angle(np.exp(1j * 4 * np.sin(TIMES)))
    gains = rng.normal(size=(2, 8))
    frame = pd.DataFrame(rng.poisson(np.exp(np.tanh(position @ gains))))
    frame.columns = [f"unit_{i}" for i in range(8)]
    frame = frame.assign(x=position[:, 0], z=position[:, 1], heading=heading, time=TIMES)
    frame.to_csv(folder / "rec.csv", index=False)
    table = pd.DataFrame({"unit": [f"unit_{i}" for i in range(7, -1, -1)], "area": ["a", "b"] * 4})
    table.loc[:4, "area"] = "a"
    table.to_csv(folder / "units.csv", index=False)
    return folder


class TestInspect:
    def test_a_file_is_listed_with_a_command_that_can_be_typed(self, folder):
        result = run("inspect", folder / "rec.csv")
        assert result.exit_code == 0
        assert "columns: unit_0, unit_1 ... unit_7" in result.stdout
        words = shlex.split(result.stdout.split("To begin with:\n")[1].splitlines()[0])
        assert words[:3] == ["xcebra", "fit", str(folder / "rec.csv")]
        fit = typer.main.get_command(app).commands["fit"]
        assert fit.make_context("fit", words[2:]).params["label"] == ["position=x,z"]

    def test_json_is_for_scripts(self, folder):
        entries = json.loads(run("inspect", folder / "rec.csv", "--json").stdout)
        roles = {entry["name"]: entry["roles"] for entry in entries}
        assert roles["unit"] == ["neural"]
        assert roles["x"] == ["label"]

    @pytest.mark.skipif(not DATA.is_dir(), reason=f"there are no recordings in {DATA}")
    def test_the_head_direction_recording(self):
        result = run("inspect", DATA / "head_direction.nwb")
        assert "--label heading=ry" in result.stdout
        assert "location (" in result.stdout


OPTIONS = (
    *("--label", "position=x,z", "--label", "heading", "--control", "speed=speed(x, z)"),
    *("--label-unit", "position=cm", "--label-unit", "speed=cm/s"),
    *("--continuous", "speed", "--units", "area == 'a' and rate > 1"),
    *("--time-dims", "1", "--window", "1", "--steps", "5", "--bin-size", "0.1"),
)


@pytest.fixture(scope="module")
def fitted(folder):
    """A fit that gives notes: the heading is taken as an angle, and five steps teach nothing."""
    result = run(
        *("fit", folder / "rec.csv", *OPTIONS, "--unit-table", folder / "units.csv"),
        *("--out", folder / "run", "--quiet"),
    )
    assert result.exit_code == 0, result.output
    return folder / "run", result


def test_quiet_is_quiet_although_there_are_notes(fitted):
    path, result = fitted
    assert result.output == ""
    assert "note: " in (path / "log.txt").read_text()


def test_it_says_how_many_units_a_condition_keeps(folder, tmp_path):
    options = ["--unit-table", folder / "units.csv", "--out", tmp_path / "run", "--bin-size", 5]
    result = run("fit", folder / "rec.csv", "--label", "x", "--units", "area == 'a'", *options)
    first, second = result.stderr.splitlines()  # it stops there, because there are few bins
    assert first == "xcebra: kept 6 of 8 units: area == 'a'"
    assert "too few to learn from" in second


def test_the_log_holds_phases_and_notes_of_reading(fitted):
    text = (fitted[0] / "log.txt").read_text()
    assert "kept 6 of 8 units: area == 'a' and rate > 1" in text
    for name in ("plan", "training", "decoder", "crossed decoders", "verdict"):
        assert re.search(rf" {name}: \d+\.\d s\n", text), name
    assert "used 6 neurons, 500 samples" in text
    assert re.search(r"note: .*label 'heading' was taken as an angle", text)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.LabelKindWarning")
def test_the_settings_say_which_part_was_used_and_give_it_again(fitted):
    path, _ = fitted
    text = (path / "run.toml").read_text()
    assert "area == 'a' and rate > 1" in text
    settings = Settings.load(path)
    assert settings.recording.controls == ("speed=speed(x, z)",)
    assert Path(settings.recording.unit_table).name == "units.csv"
    recording, labels, controls = settings.read()
    assert (labels, controls) == (["position", "heading"], ["speed"])
    done = Run.open(path)
    np.testing.assert_array_equal(done.recording.neural, recording.neural)
    assert done.recording.label_info == recording.label_info
    assert done.recording.units["area"].tolist() == recording.units["area"].tolist() == ["a"] * 6
    assert list(done.model.blocks_) == ["position", "heading", "speed", "time"]
    assert done.model.controls_ == ("speed",)
    assert done.model.label_info_ == recording.label_info


def test_the_same_command_finds_it_finished_and_other_units_are_other_settings(fitted, folder):
    path, _ = fitted
    again = run("fit", "--config", path / "run.toml", "--out", path, "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    other = run("fit", "--config", path / "run.toml", "--out", path, "--units", "rate > 2")
    assert other.exit_code == 2
    assert "holds a run with other settings (units)" in other.stderr


def test_the_unit_of_a_label_reaches_figures_and_the_page(fitted, tmp_path):
    path, _ = fitted
    done = Run.open(path)
    assert done.settings.recording.label_unit == {"position": "cm", "speed": "cm/s"}
    assert done.recording.label_info["position"].unit == "cm"
    axes = plots.tuning(done.recording, "position", [0])
    assert axes[0].get_xlabel() == "x (cm)"
    plt.close("all")
    assert run("report", path, "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"titles":["x (cm)","z (cm)"]' in page


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("position", "--label-unit 'position' must be NAME=UNIT, as in position=cm"),
        ("=cm", "must be NAME=UNIT"),
        ("place=cm", "label_unit names 'place', but the labels are ['x'] (option --label-unit)"),
    ],
)
def test_a_unit_that_cannot_be_read(folder, tmp_path, unit, words):
    options = ["--label", "x", "--label-unit", unit, "--out", tmp_path / "run"]
    result = run("fit", folder / "rec.csv", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_unit_table_that_has_changed_is_noticed(fitted, folder):
    path, _ = fitted
    table = folder / "units.csv"
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert Settings.load(path).recording.unit_table_sha256 == digest
    before = table.read_text()
    try:
        table.write_text(before.replace("a", "b", 1) + "\n")
        again = run("fit", "--config", path / "run.toml", "--out", path)
        assert again.exit_code == 2
        assert f"{table}: has changed since these settings were written" in again.stderr
        assert "(option --unit-table)" in again.stderr
        other = run("fit", "--config", path / "run.toml", "--unit-table", table, "--out", path)
        assert "other settings (unit_table_sha256)" in other.stderr
    finally:
        table.write_text(before)


def test_advice_is_printed_if_it_is_not_quiet(fitted):
    path, _ = fitted
    result = run("fit", "--config", path / "run.toml", "--out", path)
    assert result.exit_code == 0
    assert result.stdout.startswith("used 6 neurons, 500 samples from 0 s to 49.9 s")
    assert "next, try" in result.stdout
    assert "%|" not in result.output  # nobody watches, so there is no bar


def test_a_command_leaves_the_log_of_the_program_as_it_was(folder):
    before = (logger.level, list(logger.handlers), list(lines.handlers))
    run("inspect", folder / "rec.csv")
    run("inspect", folder / "no.csv")
    assert (logger.level, list(logger.handlers), list(lines.handlers)) == before


@pytest.mark.parametrize(
    ("options", "message", "option"),
    [
        (["--units", "rat > 1"], "names 'rat', which no unit has; did you mean 'rate'", "--units"),
        (["--units", "import os"], "cannot be read; write a condition such as", "--units"),
        (["--unit-table", "units.xls"], "there is no file", ""),
        (["--control", "sped"], "labels='sped' is not in it", "--label"),
        (["--control", "x"], "leaves no label to ask about", "--control"),
        (["--continuous", "sped"], "label_kind names 'sped', but the labels are", "--continuous"),
        (["--epochs", "wake"], "epochs='wake' is not in it", "--epochs"),
    ],
)
def test_a_mistake_is_one_line_with_its_option(folder, tmp_path, options, message, option):
    label = ["--label", "x", "--continuous", "x"]
    result = run("fit", folder / "rec.csv", *label, *options, "--out", tmp_path / "run", "--quiet")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
    assert option in result.stderr
    assert not (tmp_path / "run").exists()


def test_an_npz_written_by_a_run_can_be_inspected(fitted):
    result = run("inspect", fitted[0] / "recording.npz")
    assert "area (a: 6)" in result.stdout
    assert xcebra.read(fitted[0] / "recording.npz").units["area"].tolist() == ["a"] * 6
