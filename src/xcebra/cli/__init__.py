"""The command line: one module for each command. Large packages are imported when needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from xcebra import __version__
from xcebra.cli import attribute, export, fetch, fit, inspect, report, reproduce, simulate


class _OneLineGroup(TyperGroup):
    """Commands that also say in one line what is wrong with their options."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; with ``standalone_mode``, end the process with its exit code."""
        try:
            result = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except Exception as error:
            if type(error).__name__ == "Abort":
                # Ctrl-C before a command has begun, or after it has ended.
                typer.echo("stopped", err=True)
                sys.exit(130)
            # What the parser of options raises; the class is not public.
            if not hasattr(error, "format_message"):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(error.format_message())
            else:
                typer.echo(f"xcebra: {_one_line(error.format_message())}", err=True)
            result = 2
        if standalone_mode:
            sys.exit(result if isinstance(result, int) else 0)
        return result


def _one_line(message: str) -> str:
    text = " ".join(message.replace("Value error, ", "").split())
    return f"{text[:1].lower()}{text[1:].rstrip('.')}; xcebra COMMAND --help lists all options"


app = typer.Typer(
    name="xcebra",
    cls=_OneLineGroup,
    help="Which neurons carry this behaviour? Attribution maps for neural time series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    inspect.inspect,
    fetch.fetch,
    simulate.simulate,
    fit.fit,
    attribute.attribute,
    report.report,
    export.export,
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
