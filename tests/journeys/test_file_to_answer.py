"""From a real file to an answer that can be shown, as a new user would go."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import xcebra
from xcebra.cli import app

DATA = Path(__file__).parents[3] / "shared" / "data"
FILE = DATA / "head_direction.nwb"
# Units 0 to 6 of the recording lie in the anterodorsal thalamus and are head-direction cells.
THALAMUS = {str(i) for i in range(7)}

pytestmark = [
    pytest.mark.skipif(not FILE.is_file(), reason=f"there is no recording {FILE}"),
    # A short fit may leave a pattern out, and bins of 200 ms leave few spikes to decide by.
    pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning"),
]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def answered(tmp_path_factory, full_decoders):
    """A run of the file itself: heading and position, with speed controlled for."""
    folder = tmp_path_factory.mktemp("answer") / "run"
    with full_decoders():
        run("fit", FILE, "--label", "heading=ry", "--label", "position=x,z", "--control",
            "speed=speed(x,z)", "--epochs", "wake", "--bin-size", 0.2, "--steps", 60,
            "--out", folder, "--quiet")  # fmt: skip
    printed = run("attribute", folder, "--group-by", "location", "--json")
    return folder, json.loads(printed)


def test_thalamic_cells_come_first_for_heading_and_none_of_them_for_position(answered):
    _, made = answered
    heading, position = made["neurons"]["heading"], made["neurons"]["position"]
    assert {row["neuron"] for row in heading[:7]} == THALAMUS
    connected = {row["location"]: row["connected"] for row in made["groups"]["heading"]}
    assert connected["adn"] >= 6
    assert connected["ca1"] == 0
    assert position[0]["neuron"] not in THALAMUS


def test_the_labels_are_those_that_were_asked_for(answered):
    folder, _ = answered
    rec = xcebra.read(folder / "recording.npz", neural="neural")
    assert list(rec.labels) == ["heading", "position", "speed"]
    assert rec.label_info["heading"].kind == "circular"
    assert rec.label_info["position"].columns == ("x", "z")
    assert rec.label_info["speed"].source == "speed(x, z), smoothed by 0.1 s"
    model = xcebra.XCEBRA.load(folder / "model.safetensors")
    assert model.controls_ == ("speed",)
    assert set(model.units_) >= {"location"}


def test_page_table_and_figures_have_the_areas_and_one_order(answered):
    folder, made = answered
    run("report", folder, "--group-by", "location", "--quiet")
    page = (folder / "report.html").read_text("utf-8")
    assert "adn" in page
    assert "ca1" in page
    assert "Which neurons carry heading and position?" in page
    assert "controlled for" in page.lower()
    files = run("export", folder, "--csv", "--figures", "--group-by", "location").split()
    names = {Path(file).name for file in files}
    assert {"neurons.csv", "groups.csv", "neurons_heading.png", "tuning_position.svg"} <= names
    with (folder / "export" / "neurons.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["neuron"] for row in rows] == [row["neuron"] for row in made["neurons"]["heading"]]
    assert [row["location"] for row in rows[:7]] == ["adn"] * 7


@pytest.fixture(scope="module")
def other_files(tmp_path_factory):
    """The same recording as an npz with a CSV of units, and as one wide CSV."""
    folder = tmp_path_factory.mktemp("other")
    rec = xcebra.read(FILE, labels=["heading=ry", "x", "z"], bin_size=0.2)
    counts, columns = rec.neural.astype(int), {n: v[:, 0] for n, v in rec.labels.items()}
    np.savez(folder / "day1.npz", neural=counts, time=rec.time, **columns)
    with (folder / "units.csv").open("w", encoding="utf-8") as file:
        file.write("unit,area\n")
        # In another order than in the recording, so that the names must be used.
        for i in reversed(range(15)):
            file.write(f"{i},{rec.units['location'][i]}\n")
    head = ["time", *(f"unit_{i}" for i in range(15)), "heading_deg", "x", "z"]
    degrees = np.rad2deg(columns["heading"])
    table = np.column_stack([rec.time, counts, degrees, columns["x"], columns["z"]])
    np.savetxt(folder / "day1.csv", table, delimiter=",", header=",".join(head), comments="")
    return folder


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (("day1.npz", "--label", "heading", "--unit-table", "units.csv"), ""),
        (("day1.csv", "--label", "heading=heading_deg"), "unit_"),
    ],
    ids=["npz and table of units", "wide CSV"],
)
def test_other_files_give_the_same_answer(other_files, tmp_path, monkeypatch, options, prefix):
    monkeypatch.chdir(other_files)
    run("fit", *options, "--control", "speed=speed(x,z)", "--steps", 30, "--out", tmp_path / "run",
        "--quiet")  # fmt: skip
    made = json.loads(run("attribute", tmp_path / "run", "--json"))
    first = {row["neuron"] for row in made["neurons"]["heading"][:7]}
    assert first == {f"{prefix}{i}" for i in range(7)}
    amap = xcebra.AttributionMap.load(tmp_path / "run" / "map.nc")
    assert amap.made["label_kinds"]["heading"] == "circular"
    if "--unit-table" in options:
        assert amap.units["area"].tolist() == ["adn"] * 7 + ["ca1"] * 8
