"""``xcebra reproduce``: make tables and figures of the paper and of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcebra.cli.console import one_line_errors
from xcebra.common.choices import Experiment
from xcebra.common.errors import InputError

if TYPE_CHECKING:
    from xcebra.reproduce.sources import GridCells


def reproduce(
    name: Annotated[Experiment, typer.Argument(help="Table or figure to make.")],
    path: Annotated[
        Path | None,
        typer.Argument(help="The public recording, for grid-cells; a folder of them, for real."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for finished rows, tables and figures; by default results/paper, "
            "or results/real for real."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and recordings: minutes, not hours.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel processes; by default one per core.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to run on instead.")
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Run missing parts, or only show finished ones.")
    ] = True,
    also: Annotated[
        list[str] | None,
        typer.Option(help="Format beside Markdown and PNG: csv, tex or svg; may be repeated."),
    ] = None,
    rat: Annotated[str | None, typer.Option(help="grid-cells: q, r or s.")] = None,
    day: Annotated[int | None, typer.Option(help="grid-cells: 1 or 2, for rat r.")] = None,
    module: Annotated[
        list[int] | None, typer.Option(help="grid-cells: module; may be repeated.")
    ] = None,
    conjunctive: Annotated[
        list[int] | None,
        typer.Option(help="grid-cells: cell of the module to leave out; may be repeated."),
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="grid-cells: digest of the file.")] = None,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="Print nothing but errors and the files that are written."),
    ] = False,
) -> None:
    """Reproduce a table or figure of the paper, or a harder one, on data with known wiring.

    Finished parts are kept in the folder. After an interruption, the same command continues.
    """
    with one_line_errors(quiet):
        from xcebra.reproduce.real.data import RealFolder
        from xcebra.reproduce.run import REAL, reproduce
        from xcebra.sweep import SweepError

        try:
            written = reproduce(
                name,
                out or Path("results") / (REAL if name == REAL else "paper"),
                quick=quick,
                run=run,
                jobs=jobs,
                dask=dask,
                progress=not quiet,
                also=tuple(also or ()),
                data=(
                    RealFolder(str(path))
                    if name == REAL and path is not None
                    else _grid_cells(path, rat, day, module, conjunctive, sha256)
                ),
            )
        except SweepError as error:
            raise InputError(str(error)) from None
        for file in written:
            typer.echo(file)


def _grid_cells(
    path: Path | None,
    rat: str | None,
    day: int | None,
    module: list[int] | None,
    conjunctive: list[int] | None,
    sha256: str | None,
) -> GridCells | None:
    """Return the public recording that the options name; None if they name none."""
    from xcebra.reproduce.sources import GridCells

    if path is None and not any((rat, day, module, conjunctive, sha256)):
        return None
    if path is None or rat is None or not module:
        raise InputError("grid-cells needs PATH, --rat and --module, and --sha256 of the file")
    left_out = tuple(conjunctive or ())
    return GridCells(str(path.resolve()), sha256, rat, tuple(module), day, left_out)
