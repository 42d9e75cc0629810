"""Tables and figures that leave a run as files, and the commands that write them."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.cli.attribute import _disagreement
from xcebra.report import write_report
from xcebra.report.export import neuron_columns, write_figures
from xcebra.report.run_folder import Run

ROOT = Path(__file__).parents[2]


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")
    assert result.exit_code == code, result.output
    return result


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    made, _ = run
    folder = tmp_path_factory.mktemp("export") / "new" / "folder"
    result = command("export", made.folder, "--out", folder, "--json")
    return folder, json.loads(result.stdout)


def test_everything_is_written_without_flags(exported):
    folder, told = exported
    figures = {
        f"{kind}_{label}{suffix}"
        for kind in ("neurons", "groups", "tuning")
        for label in ("heading", "position")
        for suffix in (".png", ".svg")
        if (kind, label) != ("tuning", "position")  # position was not found
    }
    assert {path.name for path in folder.iterdir()} == {"neurons.csv", "groups.csv", *figures}
    assert sorted(told["files"]) == sorted(str(path) for path in folder.iterdir())
    (note,) = told["notes"]
    assert note.startswith("position was not found in the activity")


def test_the_table_of_neurons_is_the_map(run, exported):
    _, amap = run
    rows = rows_of(exported[0] / "neurons.csv")
    assert [row["neuron"] for row in rows] == [name for name, _ in amap.ranking("heading")]
    tested = amap.connections["heading"]
    for row in rows:
        i = int(row["neuron"])
        assert row["area"] == amap.units["area"][i]
        assert row["cell_type"] == amap.units["cell type"][i]
        assert float(row["depth"]) == pytest.approx(amap.units["depth"][i])
        assert float(row["score_heading"]) == pytest.approx(amap.block("heading")[i], rel=1e-5)
        assert float(row["share_low_heading"]) == pytest.approx(tested.low[i], rel=1e-5)
        assert float(row["p_value_heading"]) == pytest.approx(tested.p_values[i], rel=1e-5)
        assert row["connected_heading"] == str(bool(amap.significant("heading")[i]))
        assert row["connected_position"] == ""  # nobody is called connected to it
    assert all(re.fullmatch(r"\w+", name) for name in rows[0])


def test_the_table_of_groups_is_that_of_the_map(run, exported):
    _, amap = run
    rows = rows_of(exported[0] / "groups.csv")
    assert [row["label"] for row in rows] == ["heading", "heading", "position", "position"]
    for row, score in zip(rows, amap.by("area").scores["heading"], strict=False):
        assert row["area"] == score.group
        assert int(row["neurons"]) == score.n_neurons
        assert int(row["connected"]) == score.n_connected
        assert float(row["share_high"]) == pytest.approx(score.high, rel=1e-5)
        assert float(row["mean_score"]) == pytest.approx(score.mean_score, rel=1e-5)
    assert rows[2]["connected"] == rows[2]["share_connected"] == ""


def described_columns(title):
    """Names of the columns in one table of the page about exports."""
    page = (ROOT / "docs" / "howto" / "export.md").read_text(encoding="utf-8")
    section = page.split(f"## Columns of {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_column_that_is_written_is_described(run, exported):
    _, amap = run
    columns = set(rows_of(exported[0] / "neurons.csv")[0]) - {"area", "cell_type", "depth"}
    patterns = {re.sub(rf"_({'|'.join(amap.blocks)})$", "_LABEL", name) for name in columns}
    described = described_columns("neurons.csv")
    assert patterns <= described
    assert described - patterns == {"location", "rate_per_sample"}
    columns = set(rows_of(exported[0] / "groups.csv")[0]) - {"area"}
    described = described_columns("groups.csv")
    assert columns <= described
    assert described - columns == {"location", "location_layer"}


def test_text_in_an_svg_is_text(exported):
    text = (exported[0] / "neurons_heading.svg").read_text("utf-8")
    assert "score for heading" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text
    grey = (exported[0] / "neurons_position.svg").read_text("utf-8")
    assert "position was not found in the activity" in grey
    assert (exported[0] / "tuning_heading.png").read_bytes().startswith(b"\x89PNG")


def test_a_flag_writes_its_files_alone_and_twice_gives_the_same(run, tmp_path):
    made, _ = run
    told = command("export", made.folder, "--csv", "--group-by", "cell type", "--out", tmp_path)
    assert told.stdout.split() == [str(tmp_path / "neurons.csv"), str(tmp_path / "groups.csv")]
    assert {row["cell_type"] for row in rows_of(tmp_path / "groups.csv")} == {"in", "ex"}
    before = (tmp_path / "neurons.csv").read_bytes()
    again = command("export", made.folder, "--csv", "--out", tmp_path, "--quiet")
    assert again.output == ""
    assert (tmp_path / "neurons.csv").read_bytes() == before
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--group-by", "aera"], "did you mean 'area'? the units have"),
        (["--group-by", "nothing like it"], "the units have ['area', 'cell type', 'depth']"),
    ],
)
def test_a_mistyped_column_is_said_before_anything_is_written(run, tmp_path, options, words):
    made, _ = run
    out = tmp_path / "out"
    result = command("export", made.folder, "--out", out, *options, code=2)
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not out.exists()
    for name in ("attribute", "report"):
        told = command(name, made.folder, *options, "--out", tmp_path / "x.nc", code=2).stderr
        assert words in told
    assert not (tmp_path / "x.nc").exists()


def test_what_is_missing_is_said_with_the_command_that_makes_it(run, tmp_path):
    made, _ = run
    folder = tmp_path / "run"
    shutil.copytree(made.folder, folder, ignore=shutil.ignore_patterns("map.nc"))
    told = command("export", folder, code=2).stderr
    assert f"has no map yet; make it with: xcebra attribute {folder}" in told
    assert "make one with: xcebra fit" in command("export", tmp_path, code=2).stderr
    (tmp_path / "file").write_text("")
    told = command("export", made.folder, "--out", tmp_path / "file", code=2).stderr
    assert "is a file; name a folder (option --out)" in told


def test_names_that_become_the_same_word_stay_apart(run, tmp_path):
    made, amap = run

    def renamed(name):
        return {"heading": "a b", "position": "a/b"}.get(name, name)

    odd = replace(
        amap,
        scores={renamed(name): values for name, values in amap.scores.items()},
        blocks={renamed(name): latents for name, latents in amap.blocks.items()},
        connections={},
        opinions={},
        units={"score_a_b": np.arange(12.0), "neuron": amap.units["depth"]},
    )
    columns = neuron_columns(odd, {}, np.zeros(12))
    names = list(columns)
    assert names[:5] == ["neuron", "score_a_b", "neuron_2", "score_a_b_2", "score_a_b_3"]
    assert columns["score_a_b_2"][0] == f"{amap.block('heading')[0]:.6g}"
    unfitted = Run(made.folder, made.settings, made.model, made.recording)
    paths, notes = write_figures(tmp_path, unfitted, odd, None)
    assert [path.name for path in paths] == [
        *("neurons_a_b.png", "neurons_a_b.svg", "neurons_a_b_2.png", "neurons_a_b_2.svg")
    ]
    assert "label='a b' is no label of the recording" in notes[0]


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_attribute_prints_one_line_for_each_group(run, tmp_path):
    made, _ = run
    out = tmp_path / "map.nc"
    options = ["--no-test", "--group-by", "cell type", "--out", out]
    lines = command("attribute", made.folder, *options).stdout.splitlines()
    assert lines[0].startswith("heading: top neurons: ")
    assert [re.sub(r"[\d.]+$", "", line) for line in lines[1:3]] in (
        ["  cell type ex: mean score ", "  cell type in: mean score "],
        ["  cell type in: mean score ", "  cell type ex: mean score "],
    )
    assert lines[3].startswith("position: not found in the activity")
    assert lines[4].startswith("time")  # no groups for a label that was not found
    assert lines[-2].startswith("speed")
    told = json.loads(command("attribute", made.folder, *options, "--json").stdout)
    groups = told["groups"]["heading"]
    assert {row["cell type"] for row in groups} == {"in", "ex"}
    assert sum(row["neurons"] for row in groups) == 12


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_two_columns_group_neurons_in_every_command(run, tmp_path):
    made, amap = run
    grouped = ["--group-by", "area,cell type"]
    told = command("attribute", made.folder, "--no-test", *grouped, "--out", tmp_path / "map.nc")
    assert len([line for line in told.stdout.splitlines() if "CA1, in: mean score" in line]) > 0
    command("export", made.folder, *grouped, "--out", tmp_path)
    names = {row["area_cell_type"] for row in rows_of(tmp_path / "groups.csv")}
    assert names == {score.group for score in amap.by(["area", "cell type"]).scores["heading"]}
    assert len(names) == 4
    assert "CA1, in" in (tmp_path / "groups_heading.svg").read_text("utf-8")
    assert "neuron 7, CA1, ex" in (tmp_path / "tuning_heading.svg").read_text("utf-8")
    command("report", made.folder, *grouped, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '<option value="area, cell type" selected>' in page
    assert '"group_by":"area, cell type"' in page


def test_attribute_says_in_one_line_where_map_and_encoding_model_disagree(run, tmp_path):
    made, amap = run
    fits = made.model.goodness_of_fit_
    opinion = amap.opinions["heading"]
    scores = amap.block("heading")

    def line(encoding, name="heading"):
        opinions = {**amap.opinions, "heading": replace(opinion, encoding=encoding)}
        return _disagreement(replace(amap, opinions=opinions), name, fits[name])

    alike = np.where(amap.significant("heading"), scores, 0.0)
    assert line(alike) == ""  # they agree about every neuron
    assert line(-scores, "position") == ""  # it was not found
    assert line(-scores, "speed") == ""  # nobody asks about it
    reverse = (scores.max() - scores) / 10
    told = line(reverse)
    words = re.search(r"second opinion: (.*\)): ", told)[1]
    assert re.fullmatch(
        r"the map and an encoding model of heading alone disagree, most of all about \d+ neurons "
        r"\(rank correlation -\d\.\d\d\)",
        words,
    )
    other = replace(amap, opinions={**amap.opinions, "heading": replace(opinion, encoding=reverse)})
    named = [item.neuron for item in other.disagreements("heading")]
    assert f"): {', '.join(named[:5])}" in told
    page = write_report(tmp_path / "page.html", made.model, other).read_text("utf-8")
    assert words in page
