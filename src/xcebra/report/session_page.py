"""The page of a run over several sessions: one answer, then the sessions side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from xcebra.attribution.groups import GroupBy, group_names
from xcebra.attribution.pooled import PooledMaps
from xcebra.attribution.pooled_groups import PooledGroups, called_connected
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with
from xcebra.report import numerals, page, report_run
from xcebra.report.page import escaped
from xcebra.report.questions import TIME
from xcebra.report.run_folder import REPORT
from xcebra.report.session_figures import (
    MOST_POINTS,
    GroupPoints,
    Point,
    legend,
    owner_styles,
    session_points,
    strips,
)
from xcebra.report.session_maps import (
    ALL_NEURONS,
    ALPHA,
    NO_COLUMN,
    asked_labels,
    doubts,
    groups_of,
    is_found,
    load_maps,
    pooled_column,
    verdict_sentences,
    with_animals,
)
from xcebra.report.session_runs import SessionRun
from xcebra.report.session_tables import (
    alignment_section,
    compact_table,
    found_labels,
    row_head,
    sessions_section,
)

# What groups of the usual columns are called.
_PLURALS = {
    **dict.fromkeys(("area", "location", "brain_area"), "areas"),
    **dict.fromkeys(("region", "brain_region"), "regions"),
    **dict.fromkeys(("cell_type", "celltype", "type"), "cell types"),
    "structure": "structures",
    "layer": "layers",
}


def report_sessions(
    path: str | os.PathLike[str] | None,
    run: SessionRun,
    *,
    title: str | None = None,
    group_by: GroupBy | None = None,
) -> list[Path]:
    """Write the page of a run over several sessions, and the page of each session.

    Parameters
    ----------
    path : path or None
        By default, ``report.html`` in the folder of the run. The pages of sessions are always in
        their folders.
    run : SessionRun
    title : str, optional
        By default, a question with the names of the labels.
    group_by : str or sequence of str, optional
        Columns of the units that group neurons; by default the area or cell type.

    Returns
    -------
    list of Path
        The page of the run first.
    """
    pooled = load_maps(run)
    if pooled is None:
        # As for one recording, maps that were not asked for are made without the test.
        pooled = with_animals(
            run, {n: m.attribute(run.recordings[n]) for n, m in run.models.items()}
        )
    column = pooled_column(pooled, group_by)
    pages = {name: folder / REPORT for name, folder in run.folders.items()}
    path = run.folder / REPORT if path is None else Path(path)
    text = session_page(run, pooled, column, title=title, links=_links(path, pages))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for name, own in pages.items():
        report_run(
            own,
            run.single(name),
            pooled[name],
            title=_session_title(pooled, name),
            group_by=group_by,
        )
    return [path, *pages.values()]


def session_page(
    run: SessionRun,
    pooled: PooledMaps,
    column: GroupBy | None,
    *,
    title: str | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """Return the page of a run over several sessions.

    Parameters
    ----------
    run : SessionRun
    pooled : PooledMaps
    column : str, sequence of str or None
        What groups neurons.
    title : str, optional
    links : mapping of str to str, optional
        Address of the page of each session.
    """
    groups = groups_of(pooled, column)
    labels = [label for label in asked_labels(pooled) if label != TIME]
    many = _plural(groups.column)
    sections = {
        f"answer-{i}": (
            f"Which {escaped(many)} carry {escaped(label)}?",
            _answer(run, pooled, groups, column, label),
        )
        for i, label in enumerate(labels)
    }
    sections["sessions"] = ("Sessions", sessions_section(run, pooled, labels, links or {}))
    if run.joint is not None and len(run.models) > 1 and found_labels(run, labels):
        sections["alignment"] = ("Do the sessions agree?", alignment_section(run))
    sections["settings"] = ("Settings", _settings(run, pooled))
    sections["cite"] = ("How to cite", page.citation())
    about = " and ".join(labels) or "this behaviour"
    return page.document(
        title or f"Which {many} carry {about}?",
        sections,
        ("sessions",),
        below=f"{_extent(pooled)}, {_how(run)}",
    )


def _plural(column: str) -> str:
    if column == NO_COLUMN:
        return "neurons"
    return _PLURALS.get(column.lower().replace(" ", "_"), f"groups by {column}")


def _extent(pooled: PooledMaps) -> str:
    sessions = f"{len(pooled)} session{'s' * (len(pooled) != 1)}"
    if pooled.animals is None:
        return sessions
    n_animals = len(set(pooled.animals.values()))
    return f"{sessions} of {n_animals} animal{'s' * (n_animals != 1)}"


def _how(run: SessionRun) -> str:
    return "fitted one by one" if run.joint is None else "fitted together"


def _session_title(pooled: PooledMaps, name: str) -> str:
    labels = [label for label in asked_labels(pooled) if label in pooled[name].blocks]
    return f"{name}: which neurons carry {' and '.join(labels)}?"


def _links(path: Path, pages: Mapping[str, Path]) -> dict[str, str]:
    """Return the address of each page, relative to the page of the run."""
    here = path.resolve().parent
    return {
        name: quote(os.path.relpath(own.resolve(), here).replace(os.sep, "/"))
        for name, own in pages.items()
    }


def _counted(name: str, n_neurons: int) -> str:
    return f"{name}, {n_neurons} neuron{'s' * (n_neurons != 1)}"


def _owner(pooled: PooledMaps, session: str) -> str:
    return session if pooled.animals is None else pooled.animals[session]


def _answer(
    run: SessionRun,
    pooled: PooledMaps,
    groups: PooledGroups,
    column: GroupBy | None,
    label: str,
) -> str:
    """Return figure, sentences and table about the groups of neurons for one label."""
    doubtful = doubts(run, label)
    found, *more = verdict_sentences(run, pooled, label)
    text = f"<p><strong>{escaped(found)}</strong> {escaped(' '.join(more))}</p>"
    if not is_found(run, pooled, label):
        return text + (
            f'<p class="doubt">The scores for {escaped(label)} must not be read, so that no groups '
            "are compared.</p>"
        )
    tested = any(row.connected is not None for row in groups.groups[label])
    lines = [row.in_words() for row in groups.groups[label]]
    lines += [pair.in_words() for pair in groups.comparisons[label]]
    items = "".join(f"<li>{escaped(_sentence(line))}</li>" for line in lines)
    text += f'<ul class="checks">{items}</ul>'
    text += page.notes(_cautions(groups, label))
    text += _figures(pooled, groups, column, label, set(doubtful), tested)
    return text + _group_table(groups, label)


def _figures(
    pooled: PooledMaps,
    groups: PooledGroups,
    column: GroupBy | None,
    label: str,
    doubtful: set[str],
    tested: bool,
) -> str:
    rows = groups.groups[label]
    owners = [_owner(pooled, name) for name, amap in pooled.items() if label in amap.blocks]
    styles = owner_styles(owners)
    points = _neuron_points(pooled, column, label, doubtful)
    n_points = sum(map(len, points.values()))
    every = -(-n_points // MOST_POINTS)
    over = (rows[0].connected or rows[0].score).over
    mean = f"mean over {over}, interval of {100 * groups.level:g} %"
    by_score = [
        GroupPoints(_counted(row.group, row.n_neurons), points[row.group][::every], row.score)
        for row in rows
    ]
    text = legend(styles, mean, tested=tested)
    text += '<div class="side-by-side">'
    if tested:
        shares = [
            GroupPoints(_counted(row.group, row.n_tested or 0), session_points(row), row.connected)
            for row in rows
            if row.connected is not None
        ]
        title = f"neurons connected to {label}; markers are sessions"
        text += strips(shares, styles, title, ends=(-0.02, 1.02), percent=True)
    text += strips(by_score, styles, f"score for {label}; markers are neurons") + "</div>"
    if every > 1:
        text += f'<p class="soft">Of {n_points:,} neurons, every {every}th is drawn.</p>'
    if doubtful:
        text += (
            '<p class="soft">Grey markers are neurons of sessions in which the label was not, or '
            "not clearly, found.</p>"
        )
    return text


def _neuron_points(
    pooled: PooledMaps, column: GroupBy | None, label: str, doubtful: set[str]
) -> dict[str, list[Point]]:
    """Return the neurons of each group, with their scores."""
    points: dict[str, list[Point]] = {}
    for session, amap in pooled.items():
        if label not in amap.blocks:
            continue
        names = (
            np.full(len(amap.neuron_names), ALL_NEURONS)
            if column is None
            else group_names(amap.units, column)
        )
        called = called_connected(amap, label, ALPHA)
        for i, group in enumerate(names.tolist()):
            points.setdefault(group, []).append(
                Point(
                    float(amap.scores[label][i]),
                    _owner(pooled, session),
                    f"{session}, {amap.neuron_names[i]}: {numerals.score(amap.scores[label][i])}",
                    called is not None and bool(called[i]),
                    session not in doubtful,
                )
            )
    return points


def _group_table(groups: PooledGroups, label: str) -> str:
    """Return a table of the groups, with all three measures."""
    rows = groups.groups[label]
    interval = f"({100 * groups.level:g} % interval)"
    heads = ["" if groups.column == NO_COLUMN else groups.column]
    heads += ["connected", f"share {interval}", f"mean score {interval}", "neurons", "sessions"]
    heads += ["animals"] if rows[0].n_animals is not None else []
    lines = []
    for row in rows:
        share = "–"
        if row.connected is not None:
            ends = f"{100 * row.connected.low:.0f} to {100 * row.connected.high:.0f}"
            share = f"{100 * row.connected.value:.0f} % ({ends} %)"
        score = numerals.score(row.score.value, 2)
        if np.isfinite(row.score.low):
            ends = f"{numerals.score(row.score.low, 2)} to {numerals.score(row.score.high, 2)}"
            score += f" ({ends})"
        called = "–" if row.n_connected is None else f"{row.n_connected} of {row.n_tested}"
        cells = [called, share, score, str(row.n_neurons), str(row.n_sessions)]
        cells += [] if row.n_animals is None else [str(row.n_animals)]
        numbers = "".join(f'<td class="number">{escaped(cell)}</td>' for cell in cells)
        lines.append(f"<tr>{row_head(row.group)}{numbers}</tr>")
    return compact_table(heads, lines)


def _settings(run: SessionRun, pooled: PooledMaps) -> str:
    table = run.settings.as_table()
    files = {s.name: s.file for s in run.settings.sessions}
    first = next(iter(pooled.values()))
    model: Any = run.joint if run.joint is not None else next(iter(run.models.values()))
    title = "Model, as resolved" if run.joint is not None else "Model of the first session"
    made = {k: first.made.get(k) for k in ("method", "basis", "units", "aggregate")}
    return page.settings_tables(
        {
            "Sessions and their files": files,
            "All recordings": {**table["recording"], "mode": table["mode"]},
            title: model.config_,
            "Maps": made,
            "Made with": made_with(),
        }
    )


def _cautions(groups: PooledGroups, label: str) -> list[str]:
    """Return the cautions about all labels or this one."""
    others = tuple(f"{block}: " for block in groups.groups if block != label)
    return (
        [text for text in groups.cautions if not text.startswith(others)]
        if others
        else list(groups.cautions)
    )


def _sentence(words: str) -> str:
    return f"{words}."
