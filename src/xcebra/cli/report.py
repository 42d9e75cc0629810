"""``xcebra report``: write the page of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xcebra.cli.console import GroupBy, Json, Quiet, RunFolder, one_line_errors


def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="File for the page; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    group_by: GroupBy = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page: verdicts, neurons by score and group, tuning, map and settings.

    It shows the map that xcebra attribute has written, or else makes the default map. Of several
    sessions, each has a page of its own beside the page of all.
    """
    with one_line_errors(quiet):
        from xcebra.attribution.attribution_map import AttributionMap
        from xcebra.report import report_run
        from xcebra.report.run_folder import MAP, REPORT, Run
        from xcebra.report.session_page import report_sessions
        from xcebra.report.session_runs import SessionRun, is_session_run

        if is_session_run(run):
            paths = report_sessions(out, SessionRun.open(run), title=title, group_by=group_by)
            if as_json:
                pages = [str(path) for path in paths]
                typer.echo(json.dumps({"report": pages[0], "sessions": pages[1:]}))
            elif not quiet:
                typer.echo(paths[0])
            return
        opened_run = Run.open(run)
        saved = run / MAP
        amap = AttributionMap.load(saved) if saved.is_file() else None
        path = report_run(out or run / REPORT, opened_run, amap, title=title, group_by=group_by)
        if as_json:
            typer.echo(json.dumps({"report": str(path)}))
        elif not quiet:
            typer.echo(path)
