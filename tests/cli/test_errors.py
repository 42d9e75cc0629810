"""A mistake of the user is one line with its option; one of the program comes through as it is."""

import numpy as np
import pytest
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.report import run_folder


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rec.npz"
    np.savez(path, neural=np.random.default_rng(0).random((200, 5)), position=np.arange(200.0))
    return path


@pytest.mark.parametrize(
    ("options", "message", "named"),
    [
        (
            ["--batch-size", "1"],
            "batch_size must be a whole number of 2 or more, got 1",
            "batch-size",
        ),
        (["--steps", "0"], "steps must be a whole number of 1 or more, got 0", "steps"),
        (["--epochs", "position"], "is not a list of intervals", "epochs"),
        (
            ["--neural", "neural", "--batch-size", "250"],
            "batch_size is 250, but there",
            "batch-size",
        ),
    ],
)
def test_an_error_of_an_argument_names_the_option(file, tmp_path, options, message, named):
    result = run("fit", file, "--label", "position", "--out", tmp_path / "run", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("xcebra: ")
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
    assert result.stderr.endswith(f"(option --{named})\n")


@pytest.mark.parametrize("error", [TypeError("a bug"), ValueError("a bug"), KeyError("a bug")])
def test_an_error_of_the_program_comes_through_as_it_is(file, tmp_path, monkeypatch, error):
    def fails(*arguments, **options):
        raise error

    monkeypatch.setattr(run_folder, "make_run", fails)
    result = run("fit", file, "--label", "position", "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert result.exception is error
    assert "xcebra:" not in result.output


def test_all_problems_are_raised_at_once_and_know_their_arguments():
    problems = []
    number(problems, "steps", 0, least=1, whole=True)
    number(problems, "window", 1.5, least=1, whole=True)
    with pytest.raises(InputError, match=r"steps must be .*; window must be") as caught:
        raise_if(problems)
    assert caught.value.arguments == ("steps", "window")
