"""What commands do with a run over several sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xcebra.cli.console import without_none
from xcebra.common.errors import InputError

if TYPE_CHECKING:
    from xcebra.attribution.pooled import PooledMaps
    from xcebra.attribution.pooled_groups import PooledGroups
    from xcebra.report.session_runs import SessionRun


def refuse_for_sessions(run: Path, **options: Any) -> None:
    """Raise an error about options that are for a run over one recording."""
    for name in without_none(**options):
        raise InputError(
            f"--{name.replace('_', '-')} is for one recording, but {str(run)!r} holds a run over "
            "several sessions; leave it out"
        )


def attribute_sessions(
    run: SessionRun,
    arguments: Mapping[str, Any],
    group_by: str | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make the maps of all sessions, and print groups of neurons, then sessions."""
    from xcebra.report.run_folder import MAPS
    from xcebra.report.run_log import logged
    from xcebra.report.session_maps import checked_column, groups_of, make_maps, pooled_column

    # Raises an error before maps are made, which takes longer.
    checked_column(
        {n: run.recordings[n].units or model.units_ for n, model in run.models.items()}, group_by
    )
    with logged(run.folder, "attribute"):
        pooled = make_maps(run, **arguments)
    groups = groups_of(pooled, pooled_column(pooled, group_by))
    folder = run.folder / MAPS
    if as_json:
        typer.echo(json.dumps(_as_plain(run, pooled, groups, folder)))
    elif not quiet:
        for line in _lines(run, pooled, groups):
            typer.echo(line)
        typer.echo(folder)


def export_sessions(
    run: SessionRun,
    folder: Path,
    *,
    tables: bool,
    figures: bool,
    group_by: str | None,
    follow: str | None,
) -> tuple[list[Path], list[str]]:
    """Write tables and figures of all sessions; return their paths, and notes about them."""
    from xcebra.report.session_export import write_session_figures, write_session_tables
    from xcebra.report.session_maps import groups_of, load_maps, pooled_column

    pooled = load_maps(run)
    if pooled is None:
        raise FileNotFoundError(
            f"the run in {str(run.folder)!r} has no maps yet; make them with: xcebra attribute "
            f"{run.folder}"
        )
    groups = groups_of(pooled, pooled_column(pooled, group_by))
    followed = None
    if follow is not None:
        try:
            followed = pooled.followed(follow)
        except InputError as error:
            raise error.about("--follow:") from None
    folder = made_folder(folder)
    paths: list[Path] = []
    notes: list[str] = []
    if tables:
        paths += write_session_tables(folder, run, pooled, groups)
    if figures:
        drawn, notes = write_session_figures(folder, run, pooled, groups, followed)
        paths += drawn
    return paths, [*notes, *groups.cautions]


def made_folder(folder: Path) -> Path:
    """Make a folder for files, or raise an error if there is a file of this name."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out={str(folder)!r} is a file; name a folder", ("out",))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _lines(run: SessionRun, pooled: PooledMaps, groups: PooledGroups) -> list[str]:
    from xcebra.report.session_maps import (
        NO_COLUMN,
        asked_labels,
        connected_counts,
        is_found,
        verdict_sentences,
    )

    lines: list[str] = []
    labels = asked_labels(pooled)
    for label in labels:
        lines += verdict_sentences(run, pooled, label)
        if is_found(run, pooled, label):
            column = "" if groups.column == NO_COLUMN else f"{groups.column} "
            lines += [f"  {column}{row.in_words()}" for row in groups.groups[label]]
            lines += [f"  {pair.in_words()}" for pair in groups.comparisons[label]]
    lines += groups.cautions
    counts = {label: connected_counts(run, pooled, label) for label in labels}
    for name, model in run.models.items():
        parts = [
            f"{label} {model.goodness_of_fit_[label].verdict}, {counts[label][name]}"
            if label in model.goodness_of_fit_
            else f"{label} {counts[label][name]}"
            for label in labels
            if name in counts[label]
        ]
        lines.append(f"{name}: {'; '.join(parts)}")
    return lines


def _as_plain(
    run: SessionRun, pooled: PooledMaps, groups: PooledGroups, folder: Path
) -> dict[str, Any]:
    """Return groups and sessions as plain values."""
    from xcebra.attribution.pooled_groups import called_connected, difference_rows, group_rows
    from xcebra.report.session_maps import ALPHA, asked_labels

    labels = asked_labels(pooled)
    sessions = {}
    for name, model in run.models.items():
        found = {}
        for label in labels:
            amap = pooled[name]
            if label not in amap.blocks:
                continue
            called = called_connected(amap, label, ALPHA)
            fit = model.goodness_of_fit_.get(label)
            found[label] = {
                "neurons": len(amap.neuron_names),
                **without_none(
                    verdict=None if fit is None else fit.verdict,
                    connected=None if called is None else int(called.sum()),
                ),
            }
        sessions[name] = found
    return {
        "maps": str(folder),
        "sessions": sessions,
        "group_by": groups.column,
        "groups": [_known(row) for row in group_rows(groups)],
        "differences": [_known(row) for row in difference_rows(groups)],
        "cautions": list(groups.cautions),
    }


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without values that are missing; JSON has no NaN."""
    return {name: value for name, value in without_none(**row).items() if value == value}
