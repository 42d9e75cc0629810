"""The command line: results in a folder, and one clear line when there can be none."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import joblib
import matplotlib.image
import psutil
import pytest
from typer.testing import CliRunner

import xcebra
from xcebra import __version__
from xcebra.cli import app
from xcebra.reproduce import EXPERIMENTS, Scale, reproduce

PATIENCE = 300  # seconds; the machine may be busy
TINY = Scale(dims=(4,), datasets=(0, 1), few=(0,), n_steps=800, training_steps=3)
VALUE = re.compile(r"(\*\*)?\d+\.\d(\*\*)? \[\d+\.\d, \d+\.\d\] n=(\d)( \(paper .*\))?")


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")


def start(*arguments, folder):
    """The command as a user starts it, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "xcebra.cli", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def test_a_user_can_find_out_what_it_is_and_what_it_does(tmp_path):
    process = start("--version", folder=tmp_path)
    told, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, told, errors) == (0, f"{__version__}\n", "")
    for arguments in (("--help",), ()):
        assert "reproduce" in run(*arguments).output
    told = run("reproduce", "--help").output
    assert all(option in told for option in ("--out", "--quick", "--jobs", "--dask", "--no-run"))
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_does_not_exist_is_told_with_those_that_do(tmp_path):
    result = run("reproduce", "table9", "--out", tmp_path / "results")
    assert result.exit_code == 2
    assert "table9" in result.stderr
    told = re.sub(r"[^\w-]", " ", result.stderr).split()
    assert set(EXPERIMENTS) <= set(told)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"name must be one of \['table1', .*got 'table9'"):
        reproduce("table9", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--no-run", "--out", "new"), r"has no finished rows of 'table1' .* run .* first"),
        (("--no-run", "--quick"), r"'results/paper/rows.jsonl' has no finished rows"),
        (("--jobs", "0", "--out", "new"), r"jobs must be a whole number of 1 or more, got 0"),
        (("--jobs", "2", "--dask", "tcp://a:1"), r"jobs=2 and dask='tcp://a:1' exclude"),
        (("--out", "file"), r"folder='file' is a file; name a folder"),
        (("--out", "file/below"), r"file/below: not a directory"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_and_leaves_nothing_behind(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = run("reproduce", "table1", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(rf"xcebra: .*{message}.*\n", result.stderr)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_ctrl_c_ends_the_command_and_its_workers_without_a_stack_trace(tmp_path):
    process = start("reproduce", "table1", "--quick", "--jobs", "2", folder=tmp_path)
    try:
        # Its workers are being started: the worst moment.
        rows = tmp_path / "results" / "paper" / "rows.jsonl"
        end = time.monotonic() + PATIENCE
        workers = []
        while len(workers) < 2:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
            running = psutil.Process(process.pid).children(recursive=True)
            workers = [each for each in running if "LokyProcess" in " ".join(each.cmdline())]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        told, errors = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 130, errors
    assert told == ""
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == (
        "stopped; what is finished is kept, the same command goes on"
    )
    assert rows.read_text() == ""
    gone, alive = psutil.wait_procs(workers, PATIENCE)
    assert len(gone) == 2
    assert not alive


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    # With one thread each: two that wait for each other on a busy machine take minutes.
    return folder, reproduce(
        "table1", folder, jobs=joblib.cpu_count(), scale=TINY, also=("csv", "tex", "svg")
    )


def test_a_table_is_written_in_every_format(made):
    folder, written = made
    assert all(path.parent == folder for path in written)
    kinds = [path.suffix for path in written]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        ".md": 1,
        ".tex": 1,
        ".csv": 4,
        ".png": 1,
        ".svg": 1,
    }
    assert {path.name for path in folder.iterdir()} == {
        "rows.jsonl",
        *(path.name for path in written),
    }
    by_kind = {path.suffix: path for path in written}
    picture = matplotlib.image.imread(by_kind[".png"])
    assert picture.shape[0] > 300
    assert picture.std() > 0
    assert ElementTree.parse(by_kind[".svg"]).getroot().tag.endswith("svg")
    markdown = by_kind[".md"].read_text()
    assert markdown.count("## Table 1: auROC of the map of z2") == 2
    assert f"Made with xcebra {__version__}.\n" in markdown
    latex = by_kind[".tex"].read_text()
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 4
    assert not re.search(r"(?<!\\)[%_#^]", latex)


def test_every_value_of_a_table_names_its_number_of_recordings(made):
    folder, written = made
    entries, neurons = (folder / f"table1-{n}.csv" for n in (1, 2))
    main = {"hybrid contrastive, penalty", "supervised, penalty", "supervised, none"}
    for path in (entries, neurons):
        assert path in written
        lines = list(csv.DictReader(path.read_text().splitlines()))
        assert len(lines) == 9
        for line in lines:
            del line["attribution"]
            assert len(line) == 6
            for training, cell in line.items():
                matched = VALUE.fullmatch(cell)
                assert matched, cell
                assert matched[3] == ("2" if training in main else "1")


def test_the_same_again_does_no_fits_and_writes_the_same(made):
    folder, written = made
    rows = folder / "rows.jsonl"
    before = rows.read_bytes()
    tables = {path: path.read_bytes() for path in written if path.suffix in (".md", ".csv")}
    assert before.count(b"\n") == 9
    began = time.monotonic()
    again = reproduce("table1", folder, jobs=2, scale=TINY, also=("csv", "tex", "svg"))
    assert again == written
    assert rows.read_bytes() == before
    assert {path: path.read_bytes() for path in tables} == tables
    assert time.monotonic() - began < PATIENCE


def test_an_unfinished_experiment_can_be_shown_and_says_so(made, tmp_path):
    folder, _ = made
    (tmp_path / "rows.jsonl").write_bytes((folder / "rows.jsonl").read_bytes())
    larger = Scale(dims=(4,), datasets=(0, 1, 2), few=(0,), n_steps=800, training_steps=3)
    written = reproduce("table1", tmp_path, run=False, scale=larger)
    told = next(path for path in written if path.suffix == ".md").read_text()
    assert f"Made with xcebra {__version__}, from 9 of 12 pieces of work." in told
    # Other experiments share the rows.
    written = reproduce("statistics", tmp_path, run=False, scale=TINY)
    assert "Right decisions at a z-score of 0" in written[0].read_text()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash, whose completion it tests")
def test_the_shell_completes_commands_and_options():
    """As bash does it: with what `--show-completion` prints, and the words before the cursor."""
    asked = {
        "xcebra re": {"report", "reproduce"},
        "xcebra simulate na": {"navigation"},
        "xcebra fit --label": {"--label", "--label-dims", "--label-unit"},
    }
    each = "\n".join(
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        'COMPREPLY=(); _xcebra_completion xcebra; echo "${COMPREPLY[@]}"'
        for words in asked
    )
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", f'eval "$(xcebra --show-completion)"\n{each}'],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert [set(line.split()) for line in done.stdout.splitlines()] == list(asked.values())


def test_a_simulation_tells_scripts_what_it_made(tmp_path):
    out = tmp_path / "rat.npz"
    given = ("navigation", "--steps", 60, "--cells", 3, "--seed", 1, "--out", out, "--json")
    told = json.loads(run("simulate", *given).stdout)
    driven = {"position": 6, "heading": 3, "speed": 3}
    assert told == {"file": str(out), "neurons": 12, "steps": 60, "driven": driven}
    rec = xcebra.read(out)
    assert {name: int(truth.sum()) for name, truth in rec.ground_truth.items()} == driven
    assert rec.neuron_names[3] == "grid 0"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("navigation --hidden 3", "--hidden is for synthetic"),
        ("navigation --correlation 0.5", "--correlation is for synthetic"),
        ("synthetic --cells 3", "--cells is for navigation"),
        ("synthetic --interval 0", "--interval must be above 0 seconds, got 0"),
        ("navigation --counts --noise 1", "either counts=True or noise"),
    ],
)
def test_an_option_of_the_other_simulation_is_refused(given, words, tmp_path):
    result = run("simulate", *given.split(), "--out", tmp_path / "out.npz")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
