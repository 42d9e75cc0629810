"""Run an experiment by name, and write its tables and figures to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xcebra.common.checks import choice, raise_if
from xcebra.common.errors import InputError
from xcebra.common.provenance import RESULTS_VERSION
from xcebra.reproduce import synthetic_figures as figures
from xcebra.reproduce import table_text as tables
from xcebra.reproduce.catalogue import ALONE, EXPERIMENTS, FULL, QUICK, Scale, grid_cells
from xcebra.reproduce.measurements import measure
from xcebra.reproduce.real.catalogue import real
from xcebra.reproduce.real.data import RealFolder
from xcebra.reproduce.real.work import can_run
from xcebra.reproduce.row_selection import Row
from xcebra.reproduce.sources import GridCells
from xcebra.reproduce.synthetic_tables import SUMMARIES
from xcebra.sweep import RowFile, key, sweep

ROWS = "rows.jsonl"
GRID_CELLS = "grid-cells"
REAL = "real"


def reproduce(
    name: str,
    folder: Path,
    *,
    quick: bool = False,
    run: bool = True,
    jobs: int | None = None,
    dask: str | None = None,
    progress: bool = False,
    scale: Scale | None = None,
    data: GridCells | RealFolder | None = None,
    also: Sequence[str] = (),
) -> list[Path]:
    """Run the missing work items of an experiment, then write its tables and figures.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`, or ``"grid-cells"`` or ``"real"``.
    folder : path
        Folder of the finished rows (``rows.jsonl``, shared by all experiments), and of the tables
        and figures.
    quick : bool
        Use fewer sizes and recordings.
    run : bool
        If False, nothing is run, and the tables are made from the rows that are finished.
    jobs, dask, progress
        As in `xcebra.sweep.sweep`. The experiment "timing" runs one item at a time by default.
    scale : Scale, optional
        The scale of the experiment, instead of the full or the quick one.
    data : GridCells or RealFolder, optional
        The public recording that ``"grid-cells"`` is about, or the folder with the recordings of
        ``"real"``.
    also : sequence of {"csv", "tex", "svg"}
        Formats to write beside Markdown and PNG.

    Returns
    -------
    list of Path
        Files written.
    """
    problems: list[str] = []
    choice(problems, "name", name, (*EXPERIMENTS, GRID_CELLS, REAL))
    for kind in also:
        choice(problems, "also", kind, (*tables.ALSO, *figures.ALSO))
    if name == GRID_CELLS and not isinstance(data, GridCells):
        problems.append(f"{GRID_CELLS!r} needs a public recording: give its path, rat and module")
    elif name == REAL and not isinstance(data, RealFolder):
        problems.append(f"{REAL!r} needs the folder of the recordings: give its path")
    elif name not in (GRID_CELLS, REAL) and data is not None:
        problems.append(
            f"{name!r} is of simulated data; a recording is for {GRID_CELLS!r} or {REAL!r}"
        )
    elif name == GRID_CELLS and quick:
        problems.append(f"{GRID_CELLS!r} has five fits and nothing quicker; leave quick out")
    raise_if(problems)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder={str(folder)!r} is a file; name a folder for the results")
    chosen_scale = scale or (QUICK if quick else FULL)
    items: Sequence[Any]
    if isinstance(data, RealFolder):
        items = real(chosen_scale.real, data)
    else:
        items = EXPERIMENTS[name](chosen_scale) if data is None else grid_cells(chosen_scale, data)
    rows = RowFile(folder / ROWS)
    if run:
        if isinstance(data, GridCells):
            data.make()  # errors in the recording are raised before any fit
        if name in ALONE and dask is None:
            jobs = jobs or 1
        possible = [item for item in items if can_run(item)]
        sweep(measure, possible, rows, jobs=jobs, dask=dask, progress=progress)
    done = rows.finished(items)
    finished: Sequence[Row] = [done[key(item)] for item in items if key(item) in done]
    if not finished:
        raise InputError(
            f"{str(rows.path)!r} has no finished rows of {name!r} with results version "
            f"{RESULTS_VERSION}; run the experiment first"
        )
    prefix = f"{name}-quick" if quick else name
    summaries = SUMMARIES[name](finished)
    note = _provenance(finished, len(items))
    annotated = [replace(table, notes=(*table.notes, note)) for table in summaries]
    written = tables.write(annotated, folder, prefix, also)
    if name in figures.FIGURES:
        drawn = figures.FIGURES[name](finished)
        tail = "-quick" if quick else ""
        written += figures.write(
            {f"{figure_name}{tail}": drawn[figure_name] for figure_name in drawn}, folder, also
        )
    return written


def _provenance(rows: Sequence[Row], n_items: int) -> str:
    """State the versions that the rows were made with, and how many items are finished."""
    versions = sorted({row["made_with"]["xcebra"] for row in rows})
    text = f"Made with xcebra {' and '.join(versions)}"
    if len(rows) < n_items:
        text += f", from {len(rows)} of {n_items} pieces of work"
    return f"{text}."
