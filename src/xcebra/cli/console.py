"""Options that several commands share, and errors and warnings in one line each."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from xcebra.caveats import XcebraWarning
from xcebra.common.errors import InputError, MissingExtraError
from xcebra.common.progress import choices, lines, logger, watched

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder that xcebra fit has made.")]
GroupBy = Annotated[
    str | None,
    typer.Option(help="Columns of the units that group neurons: location, or location,layer."),
]

# Arguments of the library whose options have other names.
_OPTIONS = {
    "labels": ("--label",),
    "label_kind": ("--circular", "--discrete", "--continuous"),
}
# Arguments that can be given as options; a message about any other is printed as it is.
_ARGUMENTS = (
    *(
        "labels",
        "label_dims",
        "label_kind",
        "label_unit",
        "time_dims",
        "neural",
        "epochs",
        "circular",
    ),
    *("control", "units", "unit_table", "group_by", "sessions", "time_block", "session_weight"),
    *("bin_size", "smooth", "window", "time_offset", "steps", "batch_size", "learning_rate"),
    *("jacobian_weight", "temperature", "objective", "recipe", "device", "out"),
    *("method", "basis", "aggregate", "block", "keep_time", "refits", "jobs", "dask", "also"),
)


def without_none(**options: Any) -> dict[str, Any]:
    """Return the options that are not None; all others keep the library's defaults."""
    return {name: value for name, value in options.items() if value is not None}


class one_line_errors:
    """Context manager that prints errors of the user in one line and exits with code 2.

    Errors of the program are raised as they are. Warnings and what was chosen are printed in one
    line too, and where nobody watches, a line about long work every half minute. After Ctrl-C, a
    message says how to continue.

    Parameters
    ----------
    quiet : bool
        Print nothing but errors.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet

    def __enter__(self) -> None:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("always", XcebraWarning)
        warnings.showwarning = self._show  # type: ignore[assignment]
        self._handler: logging.Handler = logging.NullHandler()
        if not self._quiet:
            self._handler = logging.StreamHandler()
            self._handler.setFormatter(logging.Formatter("xcebra: %(message)s"))
        # A progress bar shows long work to those who watch.
        self._heard = [choices] if watched() else [choices, lines]
        self._level = logger.level
        logger.setLevel(logging.INFO)
        for heard in self._heard:
            heard.addHandler(self._handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._caught.__exit__(None, None, None)
        for heard in self._heard:
            heard.removeHandler(self._handler)
        logger.setLevel(self._level)
        if isinstance(error, KeyboardInterrupt):
            typer.echo("stopped; what is finished is kept, the same command goes on", err=True)
            raise typer.Exit(130)
        if isinstance(error, OSError) and error.strerror and error.filename:
            error = OSError(f"{error.filename}: {error.strerror.lower()}")
        if isinstance(error, (InputError, OSError, MissingExtraError, FloatingPointError)):
            typer.echo(f"xcebra: {_with_options(error)}", err=True)
            raise typer.Exit(2)

    def _show(self, message: Any, category: type[Warning], *where: Any) -> None:
        if issubclass(category, XcebraWarning):
            logger.info("note: %s", message)
            if not self._quiet:
                typer.echo(f"xcebra: note: {_with_options(message)}", err=True)


def _with_options(message: Any) -> str:
    """Return a message about arguments, followed by the options that set them."""
    arguments = [name for name in getattr(message, "arguments", ()) if name in _ARGUMENTS]
    options = [
        option
        for name in arguments
        for option in _OPTIONS.get(name, (f"--{name.replace('_', '-')}",))
    ]
    return f"{message} (option {' or '.join(options)})" if options else str(message)
