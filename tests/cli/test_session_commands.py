"""Commands on several sessions: one clear line about wrong input, and nothing left behind."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import xcebra
from xcebra.cli import app
from xcebra.data.label_info import LabelInfo


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")


def recording(seed, unit="cm", labels=("position", "speed")):
    rng = np.random.default_rng(seed)
    values = {name: np.cumsum(rng.normal(size=300)) for name in labels}
    return xcebra.Recording(
        rng.poisson(1.0, (300, 5)).astype(np.float32),
        values,
        label_info={name: LabelInfo(unit=unit) for name in labels},
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xcebra.write(recording(0), "a.npz")
    xcebra.write(recording(1), "b.npz")
    xcebra.write(recording(2, unit="m"), "metres.npz")
    xcebra.write(recording(3, labels=("speed",)), "speed.npz")
    return tmp_path


TWO = ("a.npz", "b.npz", "--label", "position")


@pytest.mark.parametrize("mode", [(), ("--separate",)])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.npz", "none.npz", "--label", "position"), "there is no file 'none.npz'"),
        (("a.npz", "b.npz", "--label", "positon"), "'positon' is not in it; did you mean"),
        (("a.npz", "b.npz"), r"no label is asked about.*\(option --label\)"),
        (("a.npz", "a.npz", "--label", "position"), "is named twice"),
        (("a.npz", "metres.npz", "--label", "position"), "in cm in session 'a' and in m in"),
        (("a.npz", "speed.npz", "--label", "position"), "session 'speed': .*'position' is not"),
        ((*TWO, "--batch-size", "1000"), r"session 'a': batch_size is 1000.*\(option --batch-size"),
        ((*TWO, "--steps", "0"), r"steps must be a whole number.*\(option --steps\)"),
        ((*TWO, "--units", "layer == 1"), "session 'a': .*layer"),
        ((*TWO, "--label-dims", "speed=2"), "label_dims"),
        ((*TWO, "--out", "a.npz"), "out='a.npz' is a file"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(folder, arguments, message, mode):
    before = sorted(path.name for path in folder.iterdir())
    result = run("fit", *arguments, *mode)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert re.fullmatch(rf"xcebra: .*{message}.*\n", result.stderr)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,animal\na.npz,x\nb.npz,\n", "the animal of session 'b' is missing"),
        ("file,session\na.npz,x\nb.npz,x\n", "2 sessions are called 'x'"),
        ("file,mouse\na.npz,x\n", "has a column 'mouse', which has no meaning"),
        ("file\n", r"lists no session.*\(option --sessions\)"),
        ("file\nnone.npz\n", "there is no file '.*none.npz'"),
    ],
)
def test_a_wrong_table_is_one_line(folder, table, message):
    (folder / "sessions.csv").write_text(table)
    result = run("fit", "--sessions", "sessions.csv", "--label", "position")
    assert result.exit_code == 2, result.output
    assert re.fullmatch(rf"xcebra: .*{message}.*\n", result.stderr)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.npz", "--separate"), "--separate is for several sessions"),
        (("a.npz", "--time-block", "own"), "--time-block is for several sessions"),
        ((*TWO, "--jobs", "2"), "--jobs is for sessions that are fitted one by one"),
        ((*TWO, "--dask", "tcp://a"), "--dask is for sessions that are fitted one by one"),
        ((*TWO, "--separate", "--session-weight", "equal"), "--session-weight is for sessions"),
        (("a.npz", "--sessions", "a.csv"), "exclude each other"),
        ((*TWO, "--separate", "--jobs", "0"), r"jobs must be a whole number.*\(option --jobs\)"),
    ],
)
def test_options_that_have_no_effect_are_refused(folder, arguments, message):
    result = run("fit", *arguments)
    assert result.exit_code == 2, result.output
    assert re.fullmatch(rf"xcebra: .*{message}.*\n", result.stderr)
    assert not (folder / "run").exists()


def test_the_options_reach_the_estimator(folder, monkeypatch):
    from xcebra.report import session_runs

    asked = []

    def taken(settings, out, **how):
        asked.append((settings, out, how))
        raise xcebra.common.errors.InputError("enough")

    monkeypatch.setattr(session_runs, "make_session_run", taken)
    (folder / "sessions.csv").write_text("file,animal,day\na.npz,x,1\nb.npz,y,2\n")
    run("fit", "--sessions", "sessions.csv", "--label", "position", "--time-block", "own",
        "--session-weight", "samples", "--seed", 3, "--bin-size", 0.1, "--out", "here")  # fmt: skip
    ((settings, out, how),) = asked
    assert settings.mode == "joint"
    assert settings.model == {"random_state": 3, "time_block": "own", "session_weight": "samples"}
    assert settings.recording.labels == ("position",)
    assert settings.recording.bin_size == 0.1
    assert settings.animals == {"a": "x", "b": "y"}
    assert settings.days == {"a": 1, "b": 2}
    assert (str(out), how["jobs"], how["overwrite"]) == ("here", None, False)


def test_options_of_one_recording_are_refused_for_several(folder):
    (folder / "run").mkdir()
    (folder / "run" / "run.toml").write_text('[[sessions]]\nname = "a"\nfile = "a.npz"\n')
    for command in (
        ("attribute", "run", "--keep-time"),
        ("attribute", "run", "--out", "map.nc"),
        ("attribute", "run", "--figure", "a.png"),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "is for one recording, but 'run' holds a run over several" in result.stderr
    for command in ("attribute", "report", "export"):
        result = run(command, "run")
        assert result.exit_code == 2
        assert "is not finished; go on with: xcebra fit --config run/run.toml" in result.stderr
