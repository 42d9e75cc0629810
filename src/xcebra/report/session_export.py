"""Tables and figures of a run over several sessions, as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xcebra.attribution.followed import FollowedNeurons
from xcebra.attribution.pooled import PooledMaps
from xcebra.attribution.pooled_groups import PooledGroups, difference_rows, group_rows
from xcebra.report.export import FORMATS, different_words, neuron_columns, word_of, write_csv
from xcebra.report.questions import ordered_blocks
from xcebra.report.session_maps import asked_labels, is_found
from xcebra.report.session_runs import SessionRun
from xcebra.report.tables import first_neurons

# Columns of groups that stay empty for a label that was not found in any session.
_TESTED = (
    *("tested", "connected", "share_connected", "share_low", "share_high"),
    *("mean_variance", "variance_low", "variance_high"),
)


def write_session_tables(
    folder: Path, run: SessionRun, pooled: PooledMaps, groups: PooledGroups
) -> list[Path]:
    """Write ``neurons.csv``, ``groups.csv`` and ``differences.csv``, and return their paths.

    Parameters
    ----------
    folder : Path
    run : SessionRun
    pooled : PooledMaps
    groups : PooledGroups
    """
    asked = asked_labels(pooled)
    found = [label for label in asked if is_found(run, pooled, label)]
    kept = [row for row in group_rows(groups) if row["block"] in asked]
    for row in kept:
        if row["block"] not in found:
            row |= dict.fromkeys(_TESTED)
    renamed = [_with_group(row, groups.column) for row in kept]
    differences = [row for row in difference_rows(groups) if row["block"] in found]
    paths = [_write_neurons(folder / "neurons.csv", run, pooled)]
    paths.append(_write_rows(folder / "groups.csv", renamed))
    if differences:
        paths.append(_write_rows(folder / "differences.csv", differences))
    return paths


def write_session_figures(
    folder: Path,
    run: SessionRun,
    pooled: PooledMaps,
    groups: PooledGroups,
    followed: FollowedNeurons | None = None,
) -> tuple[list[Path], list[str]]:
    """Draw the figures of every label that is asked about, as PNG and SVG.

    Parameters
    ----------
    folder : Path
    run : SessionRun
    pooled : PooledMaps
    groups : PooledGroups
    followed : FollowedNeurons, optional
        Neurons that are drawn over days.

    Returns
    -------
    paths : list of Path
    notes : list of str
        Why a figure was not drawn.
    """
    import matplotlib.pyplot as plt

    from xcebra import plots

    paths: list[Path] = []
    notes: list[str] = []
    for label, word in different_words(asked_labels(pooled)).items():
        if not is_found(run, pooled, label):
            notes.append(f"{label} was not found in any session; its figures are not drawn")
            continue
        figures: dict[str, Any] = {"groups": plots.pooled_groups(groups, label)}
        if followed is not None and label in followed.neurons:
            figures["followed"] = plots.followed(followed, label)
        for kind, figure in figures.items():
            paths += [plots.save(figure, folder / f"{kind}_{word}{suffix}") for suffix in FORMATS]
            plt.close(np.ravel(figure)[0].figure)
    return paths, notes


def _write_neurons(path: Path, run: SessionRun, pooled: PooledMaps) -> Path:
    """Write one row for each session and neuron, sorted by score inside a session."""
    tables: dict[str, dict[str, list[str]]] = {}
    for name, amap in pooled.items():
        model = run.models[name]
        explained = model.variance_explained_["all"]
        tables[name] = neuron_columns(amap, model.goodness_of_fit_, explained)
    given: dict[str, Mapping[str, Any] | None] = {"animal": pooled.animals, "day": pooled.days}
    known = {what: values for what, values in given.items() if values is not None}
    own = ["session", *known]
    columns = list(dict.fromkeys(column for table in tables.values() for column in table))
    # A column of the units may be called as one of the first columns.
    head = [*own, *(f"unit_{column}" if column in own else column for column in columns)]
    rows = []
    for name, table in tables.items():
        start = [name, *(str(values[name]) for values in known.values())]
        for i in first_neurons(pooled[name], ordered_blocks(pooled[name])[0]):
            rows.append([*start, *(table[c][i] if c in table else "" for c in columns)])
    return write_csv(path, head, rows)


def _with_group(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """Return the row of a group with plain names of columns, the label first."""
    name = word_of(column.replace(", ", "_"))
    if name in {"label", *row} - {column}:
        name = "group"
    return {
        "label" if key == "block" else name if key == column else key: value
        for key, value in row.items()
    }


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    head = ["label" if name == "block" else name for name in rows[0]]
    return write_csv(path, head, ([_text(value) for value in row.values()] for row in rows))


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
