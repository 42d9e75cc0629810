"""Tables of simulated cells and of real grid cells: Table 3, noise, timing, cell types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.cells import COMPARED_MAPS, LABELS, SIMPLER, UNKNOWN
from xcebra.reproduce.measurements import MAPS
from xcebra.reproduce.row_selection import TITLES, Row, of_training
from xcebra.reproduce.statistics import Interval, interval
from xcebra.reproduce.table_text import Table, per_cent
from xcebra.reproduce.timing import COMPARED, TIMED_MAPS

_COLUMNS = [(kind, penalty) for kind in paper.TRAININGS for penalty in (False, True)]


def table3(rows: Sequence[Row]) -> list[Table]:
    """Position by training and method, then several labels in one model, then decoding."""
    fits = cell_fits(rows, noise=0.0)
    tables = [
        _by_training(fits, score, unit)
        for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron"))
    ]
    return [*tables, _several_labels(rows), _decoding(rows)]


def noise(rows: Sequence[Row]) -> list[Table]:
    """auROC of position by noise level, one table for each training, with and without penalty."""
    levels = sorted({row["item"]["data"]["noise"] for row in cell_fits(rows)})
    tables = []
    for kind, penalty in _COLUMNS:
        group = of_training(cell_fits(rows), kind, penalty)
        lines = []
        for name in MAPS:
            cells = []
            for level in levels:
                value = over_inits(cell_fits(group, noise=level), name, "entries")
                cells.append("" if value is None else _mean_and_interval(value))
            lines.append((TITLES[name], *cells))
        if group:
            title = f"auROC of position against noise, {kind}, {_penalty_text(penalty)}"
            columns = ("attribution", *(f"{level:g} s.d." for level in levels))
            note = "Per cent, entry by entry, with the 95 % interval over re-initialisations."
            tables.append(Table(title, columns, tuple(lines), (note,)))
    return tables


def timing(rows: Sequence[Row]) -> list[Table]:
    """Seconds of fits and maps, compared with the paper and with other packages."""
    timed = [row for row in rows if row["kind"] == "FitTiming"]
    lines = []
    for kind, penalty in _COLUMNS:
        group = of_training(timed, kind, penalty)
        if group:
            threads = sorted({row["machine"]["threads"] for row in group})
            fits = [row["found"]["fit_s"] for row in group]
            maps = {name: [row["found"]["map_s"][name] for row in group] for name in TIMED_MAPS}
            lines.append(
                (
                    f"{kind}, {_penalty_text(penalty)}",
                    str(paper.WIDTHS[kind]),
                    _median_and_range(fits, 0),
                    str(paper.FIT_SECONDS[kind, penalty]),
                    *(_median_and_range(seconds, 1) for seconds in maps.values()),
                    str(paper.MAP_SECONDS["inverted-gradient", kind, penalty]),
                    ", ".join(map(str, threads)),
                    str(len(group)),
                )
            )
    columns = (
        "training",
        "outputs",
        "fit",
        "fit, paper",
        *(f"map, {TITLES[name]}" for name in TIMED_MAPS),
        "map, inverted gradient, paper",
        "threads",
        "fits",
    )
    note = (
        "Median seconds (range): ours on a processor, encoder and decoder, one fit at a time and a "
        "map of all 20,000 samples; the paper's on an A5000."
    )
    title = "Time of training, and of maps"
    return [Table(title, columns, tuple(lines), (note,)), _map_times(rows)]


def cell_types(rows: Sequence[Row]) -> list[Table]:
    """Scores for position and classical tuning scores, by kind of cell."""
    tables = []
    for row in rows:
        results = row["found"]
        kinds = np.array(results["kinds"])
        columns = {**{f"z, {TITLES[k]}": v for k, v in results["z_scores"].items()}}
        columns |= results["classical"]
        lines = []
        for kind in dict.fromkeys(kinds):
            cells = []
            for values in columns.values():
                low, middle, high = np.nanquantile(
                    np.array(values, dtype=float)[kinds == kind], (0.05, 0.5, 0.95)
                )
                cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            lines.append((kind, *cells, str(int((kinds == kind).sum()))))
        tables.append(
            Table(
                "Scores for position by kind of cell",
                ("kind", *columns, "cells"),
                tuple(lines),
                ("Median, and from the 5th to the 95th percentile, over cells.",),
            )
        )
    return tables


def grid_cells(rows: Sequence[Row]) -> list[Table]:
    """auROC of real cells against their surrogates, by training and method, and decoding."""
    fits = [row for row in rows if row["kind"] == "Fit"]
    lines = []
    for name in MAPS:
        cells = [TITLES[name]]
        for kind in paper.TRAININGS:
            map_scores = [r["found"]["maps"][name] for r in of_training(fits, kind, True)]
            cells.append(
                f"{100 * map_scores[0]['entries']:.1f} / {100 * map_scores[0]['neurons']:.1f}"
                if map_scores
                else ""
            )
        lines.append(tuple(cells))
    notes = ["Per cent, entry by entry / one score per neuron; one fit each, with penalty."]
    for row in rows:
        if row["kind"] == "GridPortrait":
            real, grid = np.array(row["found"]["real"]), np.array(row["found"]["grid_score"])
            known = grid > UNKNOWN
            notes.append(
                f"{int(real.sum())} cells, each with a surrogate: itself, moved in time. Grid "
                f"score, median: {np.median(grid[real & known]):.2f}, of surrogates "
                f"{np.median(grid[~real & known]):.2f}."
            )
    title = "Real grid cells against their surrogates: auROC of position"
    return [
        Table(title, ("attribution", *paper.TRAININGS), tuple(lines), tuple(notes)),
        _decoding(rows),
    ]


def cell_fits(rows: Sequence[Row], noise: float | None = None) -> list[Row]:
    """Fits to simulated cells; all noise levels if ``noise`` is None."""
    fits = [row for row in rows if row["kind"] == "Fit" and "n_cells" in row["item"]["data"]]
    return [row for row in fits if noise is None or row["item"]["data"]["noise"] == noise]


def over_inits(rows: Sequence[Row], name: str, score: str) -> Interval | None:
    """Mean of a map's score and its interval over re-initialisations; None without rows."""
    scores = [row["found"]["maps"][name][score] for row in rows]
    seeds = [row["item"]["training"]["seed"] for row in rows]
    return interval(scores, seeds) if scores else None


def _by_training(fits: Sequence[Row], score: str, unit: str) -> Table:
    lines = []
    for name in MAPS:
        cells = [TITLES[name]]
        for kind, penalty in _COLUMNS:
            value = over_inits(of_training(fits, kind, penalty), name, score)
            text = "" if value is None else per_cent(value)
            published = "inverted-gradient" if name == "inverted-gradient, plain" else name
            theirs = paper.TABLE_3.get((published, kind, penalty))
            if theirs is not None and name != "inverted-gradient" and score == "entries":
                text += f" (paper {theirs.mean} [{theirs.low}, {theirs.high}])"
            cells.append(text.strip())
        lines.append(tuple(cells))
    return Table(
        f"Table 3: auROC of position in simulated cells, {unit}",
        ("attribution", *(f"{kind}, {_penalty_text(p)}" for kind, p in _COLUMNS)),
        tuple(lines),
        ("Per cent, mean over n re-initialisations with the 95 % bootstrap interval.",),
    )


def _several_labels(rows: Sequence[Row]) -> Table:
    lines = []
    for kind, names in (("SeveralLabels", COMPARED_MAPS), ("Simpler", SIMPLER)):
        chosen = [row for row in rows if row["kind"] == kind]
        seeds = [row["item"]["data"]["seed"] for row in chosen]
        for name in names:
            cells = []
            for label in LABELS:
                scores = [row["found"]["maps"][name][label]["neurons"] for row in chosen]
                cells.append(per_cent(interval(scores, seeds)) if scores else "")
            lines.append((TITLES.get(name, f"{name[0].upper()}{name[1:]}"), *cells))
    return Table(
        "One model with a block for each label, and simpler ways: auROC, one score per neuron",
        ("attribution", *LABELS),
        tuple(lines),
        (
            "Per cent, mean over n recordings with the 95 % bootstrap interval. The encoding model "
            "regresses each neuron on one label. The last line knows no label and trains nothing: "
            "it is how much of each neuron lies in the principal components that encoders read.",
        ),
    )


def _decoding(rows: Sequence[Row]) -> Table:
    chosen = [row["found"] for row in rows if row["kind"] == "Decoding"]
    lines = [
        (title, f"{np.mean(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})", str(len(scores)))
        for title, key in (("20 nearest neighbours", "nearest"), ("linear", "linear"))
        if (scores := [result[key] for result in chosen])
    ]
    return Table(
        "Position decoded from its block on a fifth of the time, after fitting to all before it",
        ("decoder", "R^2, mean (range)", "fits"),
        tuple(lines),
    )


def _map_times(rows: Sequence[Row]) -> Table:
    timed = {(r["item"]["method"], r["item"]["width"]): r for r in rows if r["kind"] == "Timing"}
    widths = sorted({width for _, width in timed})
    lines = []
    for method in COMPARED:
        # For a bare network, the inverted gradient is the paper's.
        title = TITLES.get(f"{method}, plain", TITLES[method])
        cells = [_timed(timed.get((method, width))) for width in widths]
        theirs = ", ".join(f"{paper.MAP_SECONDS[method, kind, True]:g}" for kind in paper.WIDTHS)
        lines.append((title, *cells, theirs))
    return Table(
        "Seconds of a map of 20,000 samples and 400 neurons",
        (
            "attribution",
            *(f"{width} outputs" for width in widths),
            f"paper, {', '.join(map(str, paper.WIDTHS.values()))} outputs",
        ),
        tuple(lines),
        (
            "Ours, the peer's and how many times longer that is, on the same network, taking turns "
            "(medians of three). The peer is CEBRA for the inverted gradient, Captum for the rest; "
            "it had fewer samples where it takes long, and its time was scaled up. The paper's are "
            "with penalty, on an A5000.",
        ),
    )


def _timed(row: Any) -> str:
    if row is None:
        return ""
    result = row["found"]
    if "peer_s" not in result:
        return f"{result['ours_s']:.2f}"
    return f"{result['ours_s']:.2f} / {result['peer_s']:.1f} ({result['ratio']:.0f}x)"


def _median_and_range(seconds: Sequence[float], digits: int) -> str:
    return (
        f"{np.median(seconds):.{digits}f} ({min(seconds):.{digits}f} to {max(seconds):.{digits}f})"
    )


def _penalty_text(penalty: bool) -> str:
    return "penalty" if penalty else "none"


def _mean_and_interval(value: Interval) -> str:
    return f"{100 * value.mean:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"
