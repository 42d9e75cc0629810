"""``xcebra export``: write the tables and figures of a run as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xcebra.cli.console import GroupBy, Json, Quiet, RunFolder, one_line_errors
from xcebra.cli.sessions import export_sessions, made_folder
from xcebra.common.errors import InputError

_FOLDER = "export"


def export(
    run: RunFolder,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Write neurons.csv and, with groups, groups.csv.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw the figures of every label, as PNG and SVG.")
    ] = False,
    group_by: GroupBy = None,
    follow: Annotated[
        str | None,
        typer.Option(
            help="Column of the units that says which neuron is which in several sessions of an "
            "animal; draws them over days."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files; by default export in the run.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write tables and figures for papers and talks.

    Without --csv and --figures, both are written. Neurons are sorted by their score. Without
    --group-by, they are grouped by area or cell type, if the recording says so. Of several
    sessions, differences.csv compares the groups.
    """
    with one_line_errors(quiet):
        from xcebra.attribution.attribution_map import AttributionMap
        from xcebra.attribution.groups import group_names, usual_column
        from xcebra.report.export import write_figures, write_groups, write_neurons
        from xcebra.report.run_folder import MAP, Run
        from xcebra.report.session_runs import SessionRun, is_session_run

        if is_session_run(run):
            made, remarks = export_sessions(
                SessionRun.open(run),
                out or run / _FOLDER,
                tables=as_csv or not figures,
                figures=figures or not as_csv,
                group_by=group_by,
                follow=follow,
            )
            _print(made, remarks, quiet=quiet, as_json=as_json)
            return
        if follow is not None:
            raise InputError("--follow is for a run over several sessions; leave it out")
        opened_run = Run.open(run)
        if not (run / MAP).is_file():
            raise FileNotFoundError(
                f"the run in {str(run)!r} has no map yet; make it with: xcebra attribute {run}"
            )
        amap = AttributionMap.load(run / MAP)
        column = usual_column(amap.units) if group_by is None else group_by
        if column is not None:
            group_names(amap.units, column)  # raises an error before anything is written
        folder = made_folder(out or run / _FOLDER)
        paths: list[Path] = []
        notes: list[str] = []
        both = as_csv == figures
        if as_csv or both:
            paths.append(write_neurons(folder / "neurons.csv", opened_run, amap))
            if column is not None:
                groups = amap.by(column)
                paths.append(write_groups(folder / "groups.csv", opened_run, amap, groups))
        if figures or both:
            drawn, notes = write_figures(folder, opened_run, amap, column)
            paths += drawn
        _print(paths, notes, quiet=quiet, as_json=as_json)


def _print(paths: list[Path], notes: list[str], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in paths], "notes": notes}))
    elif not quiet:
        for note in notes:
            typer.echo(f"xcebra: note: {note}", err=True)
        for path in paths:
            typer.echo(path)
