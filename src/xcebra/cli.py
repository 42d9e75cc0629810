"""The command line: parse, call, print."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xcebra import __version__
from xcebra.experiments import EXPERIMENTS
from xcebra.experiments import reproduce as reproduce_experiment
from xcebra.sweep import SweepError

app = typer.Typer(
    name="xcebra",
    help="Which neurons carry this behaviour? Attribution maps for neural time series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Experiment = StrEnum("Experiment", {name: name for name in EXPERIMENTS})  # type: ignore[misc]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    """Which neurons carry this behaviour?"""


@app.command()
def reproduce(
    name: Annotated[Experiment, typer.Argument(help="Table or figure to make.")],
    out: Annotated[Path, typer.Option(help="Folder for finished rows, tables and figures.")] = Path(
        "results"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and recordings: minutes, not hours.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Processes side by side; one per core if not given.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to run on instead.")
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Run what is missing, or only show what is finished.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Re-create a table or figure of the paper, or a harder one, on data with known wiring.

    Finished pieces of work are kept in the folder: the same command goes on after an interruption.
    """
    with _one_line_errors():
        written = reproduce_experiment(
            str(name),
            out,
            quick=quick,
            run=run,
            jobs=jobs,
            dask=dask,
            progress=not quiet,
        )
        for path in written:
            typer.echo(path)


class _one_line_errors:
    """What goes wrong, told in one line, with exit code 2; after Ctrl-C how to go on."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            typer.echo("stopped; what is finished is kept, the same command goes on", err=True)
            raise typer.Exit(130)
        if isinstance(error, (ValueError, TypeError, OSError, ImportError, SweepError)):
            typer.echo(f"xcebra: {error}", err=True)
            raise typer.Exit(2)


def main() -> None:
    """Run the command line."""
    app(prog_name="xcebra")


if __name__ == "__main__":
    main()
