"""The page of a run over several sessions: one answer, then the sessions side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.groups import GroupBy, group_names
from xcebra.attribution.pooled import PooledMaps
from xcebra.attribution.pooled_groups import PooledGroups, called_connected
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with
from xcebra.report import numerals, page, report_run
from xcebra.report.next_step import sample_width
from xcebra.report.page import escaped
from xcebra.report.questions import TIME
from xcebra.report.run_folder import REPORT
from xcebra.report.session_figures import (
    MOST_POINTS,
    GroupPoints,
    Point,
    legend,
    owner_styles,
    score_ends,
    session_points,
    sorted_scores,
    strips,
)
from xcebra.report.session_maps import (
    ALL_NEURONS,
    NO_COLUMN,
    asked_labels,
    connected_counts,
    doubts,
    groups_of,
    load_maps,
    pooled_column,
    verdict_sentences,
    with_animals,
)
from xcebra.report.session_runs import SessionRun

# What groups of the usual columns are called.
_PLURALS = {
    **dict.fromkeys(("area", "location", "brain_area"), "areas"),
    **dict.fromkeys(("region", "brain_region"), "regions"),
    **dict.fromkeys(("cell_type", "celltype", "type"), "cell types"),
    "structure": "structures",
    "layer": "layers",
}
_ALPHA = 0.05
# Names with at most this many characters stay on one line in tables.
_SHORT = 20


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
    sections["sessions"] = ("Sessions", _sessions(run, pooled, labels, links or {}))
    if run.joint is not None and len(run.models) > 1 and _found(run, labels):
        sections["alignment"] = ("Do the sessions agree?", _alignment(run))
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
    present = [name for name, amap in pooled.items() if label in amap.blocks]
    found, *more = verdict_sentences(run, pooled, label)
    text = f"<p><strong>{escaped(found)}</strong> {escaped(' '.join(more))}</p>"
    if set(present) <= set(doubtful):
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
        called = called_connected(amap, label, _ALPHA)
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
        lines.append(f"<tr>{_row_head(row.group)}{numbers}</tr>")
    return _table(heads, lines)


def _sessions(
    run: SessionRun, pooled: PooledMaps, labels: list[str], links: Mapping[str, str]
) -> str:
    """Return a table of the sessions, and the scores of each."""
    heads = ["session"]
    heads += ["animal"] if pooled.animals is not None else []
    heads += ["day"] if pooled.days is not None else []
    heads += ["neurons", "minutes"]
    for label in labels:
        of = f" of {label}" if len(labels) > 1 else ""
        heads += [f"verdict{of}", f"R²{of}", f"connected{of}"]
    lines = []
    for name in pooled:
        cells = [] if pooled.animals is None else [pooled.animals[name]]
        cells += [] if pooled.days is None else [str(pooled.days[name])]
        recording = run.recordings[name]
        width = sample_width(recording)
        minutes = "–" if width is None else f"{recording.epochs.size * width / 60:.1f}"
        cells += [str(recording.n_neurons), minutes]
        for label in labels:
            cells += _label_cells(run, pooled, name, label)
        texts = "".join(f'<td class="number">{escaped(cell)}</td>' for cell in cells)
        lines.append(f"<tr>{_row_head(name, links)}{texts}</tr>")
    text = _table(heads, lines)
    text += (
        '<p class="soft">R² is how well the label is read from the activity on held-out time. Each '
        "session has a page of its own, with the tuning of its neurons.</p>"
    )
    for label in _found(run, labels):
        text += f"<h3>Scores for {escaped(label)}</h3>{_small_figures(run, pooled, label, links)}"
    if run.joint is None:
        text += (
            '<p class="soft">The sessions were fitted one by one. Each has an embedding of its '
            "own, which cannot be compared with the others; scores for labels can.</p>"
        )
    return text


def _label_cells(run: SessionRun, pooled: PooledMaps, name: str, label: str) -> list[str]:
    fit = run.models[name].goodness_of_fit_.get(label)
    if fit is None:
        return ["no such label", "–", "–"]
    r2 = "–" if fit.decoding is None else numerals.r_squared(fit.decoding.r2)
    words = connected_counts(run, pooled, label)[name]
    words = words.removesuffix(" neurons connected")
    return [fit.verdict, r2, "none" if words.startswith("no neuron") else words]


def _found(run: SessionRun, labels: Iterable[str]) -> list[str]:
    """Return the labels that were found in one or more sessions."""
    return [label for label in labels if len(doubts(run, label)) < len(run.models)]


def _small_figures(
    run: SessionRun, pooled: PooledMaps, label: str, links: Mapping[str, str]
) -> str:
    doubtful = doubts(run, label)
    present = {name: amap for name, amap in pooled.items() if label in amap.blocks}
    values = [float(v) for amap in present.values() for v in amap.scores[label]]
    ends = score_ends(values)
    figures = []
    for name, amap in present.items():
        called = called_connected(amap, label, _ALPHA)
        about = f"Scores of {len(amap.neuron_names)} neurons of {name} for {label}"
        drawing = sorted_scores(
            amap.scores[label], called, ends, about, readable=name not in doubtful
        )
        grey = ' <span class="soft">(not found)</span>' if name in doubtful else ""
        caption = f"<figcaption>{_linked(name, links)}{grey}</figcaption>"
        figures.append(f'<figure class="small-figure">{caption}{drawing}</figure>')
    return (
        '<p class="soft">Each marker is a neuron, highest score first; filled ones are called '
        "connected. All sessions have the same scale.</p>"
        f'<div class="small-figures">{"".join(figures)}</div>'
    )


def _alignment(run: SessionRun) -> str:
    """Return a table for each label of how well one session's readout serves another."""
    assert run.joint is not None
    matrices = run.joint.alignment(dict(run.recordings))
    names = list(run.recordings)
    text = (
        '<p class="soft">The sessions were trained together, so that the same label should lie at '
        "the same place in all embeddings. Each number is R² of the label of the session of the "
        "column, predicted from its embedding with the linear map that was fitted to the session "
        "of the row. Numbers beside the diagonal that are about as high as on it mean that the "
        "sessions agree.</p>"
    )
    asked = [label for label in matrices if label not in run.joint.controls_]
    for label in _found(run, asked):
        scores = matrices[label]
        own, others = np.diag(scores), scores[~np.eye(len(names), dtype=bool)]
        text += f"<h3>{escaped(label)}</h3>"
        if np.isfinite(others).any():
            text += (
                f"<p>Median R² with the map of another session "
                f"{numerals.r_squared(float(np.nanmedian(others)))}, with its own "
                f"{numerals.r_squared(float(np.nanmedian(own)))}.</p>"
            )
        text += _matrix(names, scores)
    return text


def _matrix(names: list[str], scores: NDArray[np.float64]) -> str:
    heads = ["map fitted to", *(str(i + 1) for i in range(len(names)))]
    lines = []
    for i, name in enumerate(names):
        cells = []
        for value in scores[i].tolist():
            if not np.isfinite(value):
                cells.append('<td class="number">–</td>')
                continue
            share = 45 * min(max(value, 0.0), 1.0)
            shown = numerals.r_squared(value)
            cells.append(f'<td class="number" style="--share:{share:.0f}%">{shown}</td>')
        lines.append(f"<tr>{_row_head(f'{i + 1} {name}')}{''.join(cells)}</tr>")
    return f'<div class="matrix">{_table(heads, lines)}</div>'


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


def _table(heads: list[str], lines: list[str]) -> str:
    top = "".join(
        f'<th scope="col"{" class=number" if i else ""}>{escaped(head)}</th>'
        for i, head in enumerate(heads)
    )
    return (
        '<div class="wide compact" tabindex="0" role="region" aria-label="Table"><table><thead><tr>'
        f"{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _row_head(name: str, links: Mapping[str, str] | None = None) -> str:
    short = ' class="short"' if len(name) <= _SHORT else ""
    return f'<th scope="row"{short}>{_linked(name, links or {})}</th>'


def _linked(name: str, links: Mapping[str, str]) -> str:
    if name not in links:
        return escaped(name)
    return f'<a href="{escaped(links[name])}">{escaped(name)}</a>'


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
