"""Make tables from finished rows, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xcebra.reproduce import cell_tables
from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.catalogue import HARD
from xcebra.reproduce.measurements import AGGREGATED, MAPS
from xcebra.reproduce.real import tables as real_tables
from xcebra.reproduce.row_selection import (
    TITLES,
    Row,
    like,
    n_latents,
    of_training,
    single_fits,
    summed,
    with_batch,
)
from xcebra.reproduce.statistics import Interval, interval
from xcebra.reproduce.statistics_tables import statistics
from xcebra.reproduce.table_text import Table, per_cent

OURS = ("decoder-gradient, label", "decoder-gradient, sparse")


def table1(rows: Sequence[Row]) -> list[Table]:
    """Table 1 by entry and by neuron, then by number of latents, then the time of the fits."""
    single = single_fits(rows)
    columns = [(kind, p) for kind in paper.TRAININGS for p in (False, True)]
    tables = [
        _compared(
            f"Table 1: auROC of the map of z2, observed, {unit}",
            {f"{k}, {'penalty' if p else 'none'}": of_training(single, k, p) for k, p in columns},
            paper.TABLE_1 if score == "entries" else {},
            {f"{k}, {'penalty' if p else 'none'}": (k, p) for k, p in columns},
            score,
        )
        for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron"))
    ]
    return [*tables, _by_latents(single), _cost(single)]


def table2(rows: Sequence[Row]) -> list[Table]:
    """Table 2 by entry and by neuron, then by number of latents, then the time of the fits."""
    single = single_fits(rows)
    groups = {
        "no penalty": of_training(single, "hybrid contrastive", False),
        "penalty": of_training(single, "hybrid contrastive", True),
    }
    tables = [
        _compared(
            f"Table 2: auROC of the map of z2, not observed, {unit}",
            groups,
            paper.TABLE_2 if score == "entries" else {},
            {"no penalty": (False,), "penalty": (True,)},
            score,
        )
        for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron"))
    ]
    return [*tables, _by_latents(single), _cost(single)]


def latents(rows: Sequence[Row]) -> list[Table]:
    """auROC by number of latents, time steps and negatives, for one training."""
    hybrid = of_training(single_fits(rows), "hybrid contrastive", True)
    usual = [row for row in hybrid if row["item"]["training"]["batch_size"] is None]
    long = [row for row in usual if row["item"]["data"]["n_steps"] == 100_000]
    six = [row for row in hybrid if n_latents(row) == 6]
    return [
        _curve("auROC against latents", "latents", long, n_latents),
        _curve(
            "auROC against time steps (d = 6)",
            "time steps",
            [row for row in six if row["item"]["training"]["batch_size"] is None],
            lambda row: row["item"]["data"]["n_steps"],
        ),
        _curve(
            "auROC against negatives (d = 6)",
            "negatives",
            with_batch(six),
            lambda row: row["found"]["settings"]["batch_size"],
        ),
    ]


def dimensions(rows: Sequence[Row]) -> list[Table]:
    """Consistency and auROC by number of latents of the model; the data has 3 + 3 factors."""
    tables = []
    chosen = [row for row in rows if row["kind"] == "Consistency"]
    for kind in ("time contrastive", "supervised contrastive", "hybrid contrastive"):
        lines = []
        for row in chosen:
            training = row["item"]["training"]
            if training["kind"] != kind:
                continue
            dims = [training[name] for name in ("label_dims", "time_dims") if training[name]]
            consistency = interval(row["found"]["consistency"]["all"])
            cells = [" + ".join(map(str, dims)), per_cent(consistency._replace(n_datasets=1))]
            for name in AGGREGATED:
                scores = [map_scores[name]["entries"] for map_scores in row["found"]["maps"]]
                cells.append(f"{100 * np.mean(scores):.1f}" if scores else "")
            lines.append((*cells, str(row["item"]["n_seeds"])))
        if lines:
            tables.append(
                Table(
                    f"Dimensionality, {kind} (3 + 3 in the data)",
                    (
                        "latents",
                        "consistency",
                        *(f"auROC, {TITLES[n]}" for n in AGGREGATED),
                        "fits",
                    ),
                    tuple(sorted(lines, key=lambda line: [int(n) for n in line[0].split(" + ")])),
                    (
                        "Consistency: R^2 in per cent between the embeddings of two fits after an "
                        f"affine map, all pairs of fits. The paper's peak: {paper.PEAKS[kind]}.",
                    ),
                )
            )
    return tables


def hard(rows: Sequence[Row]) -> list[Table]:
    """A summary of the harder table, then all methods, for z2 observed and for z2 latent."""
    tables = [_hard_in_short(rows)]
    for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron")):
        for observed, title in (("z2", "observed"), ("z1", "not observed")):
            tables.append(_hard_table(rows, observed, title, score, unit))
    return tables


def paper_recipe(rows: Sequence[Row]) -> list[Table]:
    """The fit with the paper's own settings."""
    lines, notes = [], []
    for row in single_fits(rows):
        maps, data = row["found"]["maps"], row["item"]["data"]
        lines += [
            (
                TITLES[name],
                f"{100 * maps[name]['entries']:.1f}",
                f"{100 * maps[name]['neurons']:.1f}",
            )
            for name in maps
        ]
        settings = row["found"]["settings"]
        notes.append(
            f"Dataset {data['seed']}, d = {n_latents(row)}: {settings['steps']} steps, batch "
            f"{settings['batch_size']}, {row['found']['fit_seconds']:.0f} s with "
            f"{row['machine']['threads']} threads; R^2 of the label "
            f"{row['found']['r2']['label']:.3f}."
        )
    columns = ("map", "entries", "neurons")
    return [Table("The paper's recipe at full size", columns, tuple(lines), tuple(notes))]


SUMMARIES: dict[str, Callable[[Sequence[Row]], list[Table]]] = {
    "table1": table1,
    "table2": table2,
    "statistics": statistics,
    "latents": latents,
    "dimensions": dimensions,
    "hard": hard,
    "paper-recipe": paper_recipe,
    "table3": cell_tables.table3,
    "noise": cell_tables.noise,
    "timing": cell_tables.timing,
    "cell-types": cell_tables.cell_types,
    "grid-cells": cell_tables.grid_cells,
    "real": real_tables.real,
}


def _compared(
    title: str,
    groups: Mapping[str, Sequence[Row]],
    published: Mapping[Any, paper.Value],
    keys: Mapping[str, tuple[Any, ...]],
    score: str,
) -> Table:
    """One row per method and one column per group of fits; the paper's value in brackets."""
    lines = []
    means = [
        value.mean for group in groups.values() for n in MAPS if (value := summed(group, n, score))
    ]
    for name in MAPS:
        cells = [TITLES[name]]
        for label, group in groups.items():
            value = summed(group, name, score)
            text = "" if value is None else per_cent(value, best=value.mean == max(means))
            theirs = published.get((name, *keys[label]))
            if theirs is not None:
                text += f" (paper {theirs.mean} [{theirs.low}, {theirs.high}])"
            cells.append(text.strip())
        lines.append(tuple(cells))
    dims = sorted({n_latents(row) for group in groups.values() for row in group})
    note = (
        f"Per cent, mean over d = {', '.join(map(str, dims))} and n recordings, with the 95 % "
        "bootstrap interval (1,000 resamples)."
    )
    return Table(title, ("attribution", *groups), tuple(lines), (note,) if dims else ())


def _by_latents(rows: Sequence[Row]) -> Table:
    """Hybrid contrastive with penalty, one line per number of latents."""
    hybrid = of_training(rows, "hybrid contrastive", True)
    return _curve("Hybrid contrastive with penalty, by number of latents", "d", hybrid, n_latents)


def _curve(title: str, quantity: str, rows: Sequence[Row], level: Callable[[Row], int]) -> Table:
    names = ("inverted-gradient, plain", "inverted-gradient", *OURS)
    lines = []
    for value in sorted({level(row) for row in rows}):
        group = [row for row in rows if level(row) == value]
        cells = [f"{value:,}"]
        for name in names:
            entries, neurons = (summed(group, name, score) for score in ("entries", "neurons"))
            assert entries is not None
            assert neurons is not None
            cells.append(f"{per_cent(entries)} / {100 * neurons.mean:.1f}")
        r2 = [row["found"]["r2"]["label"] for row in group]
        cells.append(f"{np.mean(r2):.3f} ({np.min(r2):.3f})")
        lines.append(tuple(cells))
    return Table(
        title,
        (quantity, *(TITLES[name] for name in names), "R^2 of label, mean (least)"),
        tuple(lines),
        ("Entries with interval / neurons, per cent; n recordings.",),
    )


def _cost(rows: Sequence[Row]) -> Table:
    """Seconds of fits and maps."""
    lines = []
    for kind in paper.TRAININGS:
        for penalty in (False, True):
            group = of_training(rows, kind, penalty)
            if group:
                fits = [row["found"]["fit_seconds"] for row in group]
                maps = [sum(row["found"]["map_seconds"].values()) for row in group]
                threads = sorted({row["machine"]["threads"] for row in group})
                lines.append(
                    (
                        f"{kind}, {'penalty' if penalty else 'none'}",
                        f"{np.mean(fits):.0f} ({np.min(fits):.0f} to {np.max(fits):.0f})",
                        f"{np.mean(maps):.0f}",
                        ", ".join(map(str, threads)),
                        str(len(group)),
                    )
                )
    columns = ("training", "seconds a fit", "seconds, all maps", "threads", "fits")
    return Table("What it took", columns, tuple(lines), ("Other fits ran beside them.",))


def _hard_table(rows: Sequence[Row], observed: str, title: str, score: str, unit: str) -> Table:
    names = [*MAPS, "encoding model"] if observed == "z2" else list(MAPS)
    lines = []
    for case in HARD:
        group = like(rows, *case.items(observed))
        values = {name: summed(group, name, score) for name in names}
        means = [v.mean for v in values.values() if v is not None]
        if not means:
            continue
        best = max(means)
        cells = [
            "" if v is None else _mean_text(v, best=v.mean >= best - 5e-4) for v in values.values()
        ]
        n = {v.n_datasets for v in values.values() if v is not None}
        r2 = [r["found"]["r2"]["label"] for r in group if r["kind"] == "Fit"]
        has_warned = [bool(r["found"]["warnings"]) for r in group if r["kind"] == "Fit"]
        lines.append(
            (
                case.name,
                *cells,
                f"{np.mean(r2):.2f}" if r2 else "",
                f"{sum(has_warned)} of {len(has_warned)}" if has_warned else "",
                ", ".join(map(str, sorted(n))),
            )
        )
    return Table(
        f"Harder recordings: auROC of the map of z2, {title}, {unit}",
        ("recording", *(TITLES[name] for name in names), "R^2 of label", "warned", "n"),
        tuple(lines),
        (
            "Per cent, mean over n recordings; bold within 0.05 of the best. Warned: the "
            "default map came with a warning. Everything not said is as in the first line.",
        ),
    )


def _hard_in_short(rows: Sequence[Row]) -> Table:
    """Our default, the paper's method and the encoding model, and where the last one is better."""
    ours, theirs, plain = "decoder-gradient, sparse", "inverted-gradient, plain", "encoding model"
    lines, behind = [], []
    for case in HARD:
        cells = []
        has_warned: list[bool] = []
        n: set[int] = set()
        for observed, names in (("z2", (ours, theirs, plain)), ("z1", (ours, theirs))):
            group = like(rows, *case.items(observed))
            has_warned += [bool(r["found"]["warnings"]) for r in group if r["kind"] == "Fit"]
            scores = {n: [summed(group, n, way) for way in ("entries", "neurons")] for n in names}
            for values in scores.values():
                n |= {v.n_datasets for v in values if v is not None}
                cells.append(" / ".join(f"{100 * v.mean:.1f}" for v in values if v is not None))
            if plain in names:
                for way, a, b in zip(
                    ("entries", "neurons"), scores[plain], scores[ours], strict=True
                ):
                    if a is not None and b is not None and a.mean > b.mean + 5e-4:
                        behind.append(
                            f"{case.name}, {way} ({100 * a.mean:.1f} against {100 * b.mean:.1f})"
                        )
        if any(cells):
            warned = f"{sum(has_warned)} of {len(has_warned)}"
            lines.append((case.name, *cells, warned, ", ".join(map(str, sorted(n)))))
    listed = "; ".join(behind) if behind else "nowhere"
    return Table(
        "Harder recordings in short: auROC of the map of z2",
        (
            "recording",
            *(f"z2 observed: {name}" for name in ("ours", "the paper's", "encoding model")),
            *(f"z2 latent: {name}" for name in ("ours", "the paper's")),
            "warned",
            "n",
        ),
        tuple(lines),
        (
            "Per cent, entry by entry / one score per neuron, mean over n recordings. Ours: the "
            "decoder gradient in the sparse basis, our default. The paper's: the inverted gradient "
            "in the axes as learned, at single samples; both of the same fit. Warned: of the fits "
            "of a line, how many default maps came with a warning.",
            f"The encoding model is ahead of ours by 0.05 or more: {listed}.",
        ),
    )


def _mean_text(value: Interval, best: bool) -> str:
    mean = f"{100 * value.mean:.1f}"
    return f"**{mean}**" if best else mean
