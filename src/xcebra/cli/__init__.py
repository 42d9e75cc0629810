"""The command line: one module for each command; nothing heavy is imported before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from xcebra import __version__
from xcebra.cli import attribute, fit, inspect, report, reproduce, simulate

app = typer.Typer(
    name="xcebra",
    help="Which neurons carry this behaviour? Attribution maps for neural time series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    inspect.inspect,
    simulate.simulate,
    fit.fit,
    attribute.attribute,
    report.report,
    reproduce.reproduce,
):
    app.command()(_command)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Which neurons carry this behaviour?"""


def main() -> None:
    """Run the command line."""
    app(prog_name="xcebra")
