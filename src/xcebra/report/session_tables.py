"""Parts of the page of several sessions: the sessions side by side, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.pooled import PooledMaps
from xcebra.attribution.pooled_groups import called_connected
from xcebra.report import numerals
from xcebra.report.next_step import sample_width
from xcebra.report.page import escaped
from xcebra.report.session_figures import score_ends, sorted_scores
from xcebra.report.session_maps import ALPHA, connected_counts, doubts
from xcebra.report.session_runs import SessionRun

# Names with at most this many characters stay on one line in tables.
_SHORT = 20


def sessions_section(
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
        lines.append(f"<tr>{row_head(name, links)}{texts}</tr>")
    text = compact_table(heads, lines)
    text += (
        '<p class="soft">R² is how well the label is read from the activity on held-out time. Each '
        "session has a page of its own, with the tuning of its neurons.</p>"
    )
    for label in found_labels(run, labels):
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


def found_labels(run: SessionRun, labels: Iterable[str]) -> list[str]:
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
        called = called_connected(amap, label, ALPHA)
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


def alignment_section(run: SessionRun) -> str:
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
    for label in found_labels(run, asked):
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
        lines.append(f"<tr>{row_head(f'{i + 1} {name}')}{''.join(cells)}</tr>")
    return f'<div class="matrix">{compact_table(heads, lines)}</div>'


def compact_table(heads: list[str], lines: list[str]) -> str:
    """Return a table that scrolls to the side if it is too wide.

    Parameters
    ----------
    heads : list of str
        Titles of the columns.
    lines : list of str
        Rows, as HTML.
    """
    top = "".join(
        f'<th scope="col"{" class=number" if i else ""}>{escaped(head)}</th>'
        for i, head in enumerate(heads)
    )
    return (
        '<div class="wide compact" tabindex="0" role="region" aria-label="Table"><table><thead><tr>'
        f"{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def row_head(name: str, links: Mapping[str, str] | None = None) -> str:
    """Return the first cell of a row: a name, with a link if there is one."""
    short = ' class="short"' if len(name) <= _SHORT else ""
    return f'<th scope="row"{short}>{_linked(name, links or {})}</th>'


def _linked(name: str, links: Mapping[str, str]) -> str:
    if name not in links:
        return escaped(name)
    return f'<a href="{escaped(links[name])}">{escaped(name)}</a>'
