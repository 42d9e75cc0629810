"""Tables of the page: all neurons, and groups of neurons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import Groups
from xcebra.report import numerals
from xcebra.report.page import escaped
from xcebra.report.questions import asked_blocks, doubt, is_yes, ordered_blocks
from xcebra.training.goodness_of_fit import GoodnessOfFit

_NOT_INDEPENDENT = (
    "Neurons of one session are not independent of each other, so the intervals are too narrow for "
    "a comparison of groups; that needs several sessions or animals."
)


class _Column(NamedTuple):
    """A column of numbers: its values, how they are written, and whether they may be read.

    ``extra`` columns belong to blocks that are not asked about.
    """

    title: str
    values: Any
    text: Callable[[float], str]
    block: str = ""
    doubt: str | None = None
    extra: bool = False


def neuron_table(
    amap: AttributionMap,
    fits: Mapping[str, GoodnessOfFit],
    explained: Mapping[str, Any],
    truth: Mapping[str, Any] | None,
) -> str:
    """Return a table with the scores and test results of every neuron, which can be sorted.

    Parameters
    ----------
    amap : AttributionMap
    fits : mapping of str to GoodnessOfFit
        ``model.goodness_of_fit_``.
    explained : mapping of str to ndarray of shape (n_neurons,)
        Share of each neuron that is explained, by measure.
    truth : mapping of str to bool array of shape (n_neurons,), optional
        Known wiring, by factor.
    """
    columns: list[_Column] = []
    asked = asked_blocks(amap)
    for name in ordered_blocks(amap):
        extra = name not in asked
        columns += [c._replace(extra=extra) for c in _block_columns(amap, fits, name)]
    columns += [
        _Column(f"{measure} explained", shares, numerals.percent)
        for measure, shares in explained.items()
    ]
    heads = [_head("neuron", ' data-first="ascending"')]
    heads += [_head(name, ' data-first="ascending"') for name in amap.units]
    for column in columns:
        sorts = f' data-block="{escaped(column.block)}"' if column.block else ""
        heads.append(_head(column.title, f"{_class(column)}{sorts}"))
    heads += [_head(f"{name} (truth)", "") for name in truth or {}]
    units = {name: unit_texts(values) for name, values in amap.units.items()}
    lines = []
    for i in first_neurons(amap, ordered_blocks(amap)[0]):
        name = escaped(amap.neuron_names[i])
        cells = [f'<th scope="row"><button data-neuron="{i}">{name}</button></th>']
        cells += [f"<td>{escaped(texts[i])}</td>" for texts in units.values()]
        for column in columns:
            value = float(column.values[i])
            shown = "–" if np.isnan(value) else column.text(value)
            cells.append(f'<td{_class(column)} data-value="{value:.6g}">{shown}</td>')
        cells += [f"<td>{'yes' if known[i] else 'no'}</td>" for known in (truth or {}).values()]
        lines.append(f'<tr data-neuron="{i}">{"".join(cells)}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Neurons and their scores">'
        f'<table id="neurons-table"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def first_neurons(amap: AttributionMap, block: str) -> list[int]:
    """Return the positions of all neurons, highest score first; ties in the order recorded."""
    order: list[int] = np.argsort(-amap.block(block), kind="stable").tolist()
    return order


def unit_texts(values: Any) -> list[str]:
    """Return the values of a column of the unit table as text; missing ones are empty."""
    texts = []
    for value in values.tolist():
        if isinstance(value, bool):
            texts.append("yes" if value else "no")
        elif isinstance(value, float):
            texts.append("" if np.isnan(value) else f"{value:.6g}")
        else:
            texts.append(str(value))
    return texts


def group_table(groups: Groups, block: str) -> str:
    """Return a table of the groups of neurons for one block, and what it does not show.

    Parameters
    ----------
    groups : Groups
        ``amap.by(column)``.
    block : str
    """
    rows = groups.scores[block]
    tested = rows[0].n_connected is not None
    heads = [groups.column, "neurons"]
    heads += ["connected", "share (95 % interval)"] if tested else []
    heads.append("mean score")
    lines = []
    for row in rows:
        cells = [str(row.n_neurons)]
        if row.share is not None and row.low is not None and row.high is not None:
            interval = f"{100 * row.low:.0f} to {100 * row.high:.0f} %"
            cells += [str(row.n_connected), f"{100 * row.share:.0f} % ({interval})"]
        cells.append(numerals.score(row.mean_score))
        numbers = "".join(f'<td class="number">{escaped(cell)}</td>' for cell in cells)
        lines.append(f'<tr><th scope="row">{escaped(row.group)}</th>{numbers}</tr>')
    top = "".join(
        f'<th scope="col"{" class=number" if i else ""}>{escaped(head)}</th>'
        for i, head in enumerate(heads)
    )
    note = f'<p class="soft">{_NOT_INDEPENDENT}</p>' if tested else ""
    return (
        f'<div class="by-group" data-column="{escaped(groups.column)}"><div class="wide">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"{note}</div>"
    )


def _block_columns(
    amap: AttributionMap, fits: Mapping[str, GoodnessOfFit], name: str
) -> list[_Column]:
    reason = doubt(fits, name)
    control = " (controlled for)" if name in amap.controls else ""
    columns = [
        _Column(f"score for {name}{control}", amap.block(name), numerals.score, name, reason)
    ]
    tested = amap.connections.get(name)
    if tested is None:
        if is_yes(fits, name):
            columns.append(
                _Column(f"z for {name}", amap.z_scores(name), lambda value: f"{value:+z.2f}")
            )
        return columns
    if reason is None:
        columns.append(_Column(f"variance that only {name} explains", tested.share, numerals.share))
        columns.append(_Column(f"p for {name}", tested.p_values, numerals.p_value))
    return columns


def _head(title: str, attributes: str) -> str:
    return f'<th scope="col"{attributes}><button>{escaped(title)}</button></th>'


def _class(column: _Column) -> str:
    names = ["number", *["extra"] * column.extra, *["doubtful"] * (column.doubt is not None)]
    reason = "" if column.doubt is None else f' title="{escaped(column.doubt)}"'
    return f' class="{" ".join(names)}"{reason}'
