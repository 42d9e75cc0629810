"""The tables of the benchmark on real recordings, made from finished rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xcebra.reproduce.real.data import RECORDINGS
from xcebra.reproduce.real.rows import (
    as_recorded,
    aurocs,
    between_halves,
    between_seeds,
    call_cells,
    case_of,
    default_runs,
    false_calls,
    files_of,
    fits_with,
    grouped,
    implanted_power,
    least_and_mean,
    least_and_median,
    mean_cell,
    noise_calls,
    pooled,
    ratio,
    spearmans,
    time_dims_of,
    verdict,
    verdicts,
)
from xcebra.reproduce.real.truth import STRENGTHS, TUNED
from xcebra.reproduce.real.work import CEBRA, DEFAULT, ENCODING, PAPER_METHODS, STRONG
from xcebra.reproduce.row_selection import Row
from xcebra.reproduce.table_text import Table

METHODS = (DEFAULT, *PAPER_METHODS, ENCODING)
# Rows of the foreign-neuron table with fewer tuned neurons are left out of the mean, because their
# auROC is imprecise. Larger values leave out more rows; not tuned.
_LEAST_TUNED = 10
# A ranking counts as right if its auROC is at least this. Larger values are stricter; not tuned.
_RIGHT = 0.95


def real(rows: Sequence[Row]) -> list[Table]:
    """Every table of the benchmark for which there are rows."""
    makers: tuple[Callable[[Sequence[Row]], Table | None], ...] = (
        in_short,
        known_cells,
        noise_units,
        foreign_neurons,
        own_labels,
        other_labels,
        rankings,
        cebra,
        time_latents,
        implanted,
        independent,
        warnings_given,
        seconds,
    )
    tables = [make(rows) for make in makers]
    return [table for table in tables if table is not None]


# How the kinds of truth are called in the short table.
_TRUTHS = {
    "known": "known cells",
    "known-poisson": "known cells beside Poisson units",
    "foreign": "tuned neurons beside other animals' neurons",
    "noise": "beside noise units",
    "implanted": "implanted responses",
}


def in_short(rows: Sequence[Row]) -> Table:
    """The most important numbers, one per line."""
    foreign = default_runs(fits_with(rows, "foreign"))
    judged = [r for r in foreign if r["found"]["n_true"] >= _LEAST_TUNED]
    lines: list[tuple[str, str]] = []
    for truth in ("known", "known-poisson"):
        scores = aurocs(default_runs(fits_with(rows, truth)), DEFAULT)
        lines.append((f"auROC, {_TRUTHS[truth]}: least, mean", least_and_mean(scores)))
    scores = aurocs(judged, DEFAULT)
    name = f"auROC, {_TRUTHS['foreign']}, {_LEAST_TUNED} tuned or more: least, mean"
    lines.append((name, least_and_mean(scores)))
    for truth in ("known", "known-poisson", "foreign", "noise", "implanted"):
        chosen = default_runs(fits_with(rows, truth))
        lines.append((f"false among called, {_TRUTHS[truth]}", false_calls(chosen, DEFAULT)))
    lines.append(
        (
            f"tuned neurons of R^2 above {STRONG:g} that are found, beside other animals' neurons",
            pooled(foreign, DEFAULT, "called_strong", "n_strong"),
        )
    )
    readable = [r for r in as_recorded(rows) if r["found"]["decoding_r2"] > 0.1]
    learned = sum(r["found"]["learned"] is True for r in readable)
    lines.append(
        ("labels that ridge regression reads: verdict yes", f"{learned} of {len(readable)}")
    )
    others = fits_with(rows, "other-label")
    refused = sum(r["found"]["learned"] is not True for r in others)
    lines.append(("labels of other recordings refused", f"{refused} of {len(others)}"))
    with_strength = spearmans(as_recorded(rows), DEFAULT)
    lines.append(
        ("Spearman with encoding strength: least, median", least_and_median(with_strength))
    )
    seeds = [float(np.median(v)) for v in between_seeds(rows, DEFAULT).values()]
    lines.append(("Spearman between seeds: least, median", least_and_median(seeds)))
    missing = [name for name in RECORDINGS if name not in files_of(rows)]
    notes = ["Default number of time latents. A verdict of unclear counts as refused."]
    if missing:
        notes.append(f"No rows of {', '.join(missing)}: not in the folder, or not run.")
    filled = tuple(line for line in lines if line[1] and not line[1].endswith("of 0"))
    return Table("Real recordings in short", ("measure", "default"), filled, tuple(notes))


def known_cells(rows: Sequence[Row]) -> Table | None:
    """Cells known by their area, by bin size and number of time latents."""
    chosen = fits_with(rows, "known")
    lines = []
    for key, group in grouped(chosen, lambda r: (*case_of(r), time_dims_of(r))):
        file, label, bin_ms, time_dims = key
        lines.append(
            (
                RECORDINGS[file].title,
                label,
                f"{bin_ms:g}",
                time_dims,
                *(mean_cell(aurocs(group, method)) for method in METHODS),
                false_calls(group, DEFAULT),
                pooled(group, DEFAULT, "called_true", "n_true"),
                verdicts(group),
            )
        )
    return _table(
        "Known cells: auROC of carriers against units known not to carry the label",
        ("recording", "label", "bin (ms)", "time latents", *METHODS, *_CALLS),
        lines,
        ("Mean over seeds; in brackets the least. " + _CALLS_NOTE,),
    )


def noise_units(rows: Sequence[Row]) -> Table | None:
    """Poisson units and shifted copies."""
    lines = []
    for truth in ("known-poisson", "noise"):
        for (file, label, bin_ms), group in grouped(fits_with(rows, truth), case_of):
            lines.append(
                (
                    RECORDINGS[file].title,
                    label,
                    f"{bin_ms:g}",
                    truth,
                    str(len(group)),
                    mean_cell(aurocs(group, DEFAULT)),
                    false_calls(group, DEFAULT),
                    noise_calls(group, DEFAULT),
                    pooled(group, DEFAULT, "called_true", "n_true"),
                    verdicts(group),
                )
            )
    return _table(
        "Noise units",
        (
            "recording",
            "label",
            "bin (ms)",
            "units",
            "draws",
            "auROC",
            "false among called",
            "noise units called",
            "carriers called",
            "learned",
        ),
        lines,
        (
            "known-poisson: the known carriers alone with eight Poisson units of the rates of the "
            "others. noise: up to 20 Poisson units of the rates of the recording's own, and as "
            "many circularly shifted copies, beside all of its units.",
        ),
    )


def foreign_neurons(rows: Sequence[Row]) -> Table | None:
    """Tuned neurons against neurons of other animals, by recording, label and bin size."""
    lines = []
    order = grouped(default_runs(fits_with(rows, "foreign")), case_of)
    for (file, label, bin_ms), group in order:
        lines.append(
            (
                RECORDINGS[file].title,
                label,
                f"{bin_ms:g}",
                str(group[0]["found"]["n_true"]),
                *(mean_cell(aurocs(group, method)) for method in METHODS),
                *call_cells(group),
                false_calls(group, ENCODING),
            )
        )
    all_rows = [row for _, group in order for row in group]
    judged = [r for r in all_rows if r["found"]["n_true"] >= _LEAST_TUNED]
    if judged:
        lines.append(
            (
                f"all with {_LEAST_TUNED} tuned or more",
                "",
                "",
                "",
                *(mean_cell(aurocs(judged, method)) for method in METHODS),
                *call_cells(judged),
                false_calls(judged, ENCODING),
            )
        )
    return _table(
        "Foreign neurons: auROC of tuned neurons against neurons of other animals",
        (
            "recording",
            "label",
            "bin (ms)",
            "tuned",
            *METHODS,
            "false among called",
            "power",
            f"power, R^2 above {STRONG:g}",
            "learned",
            "false among called, encoding model",
        ),
        lines,
        (
            f"Tuned: the label explains more than {TUNED:g} of the variance, held out, on one half "
            "of the time (alternate stretches). Maps and tests are of the whole recording; the "
            "encoding model is scored and tested on the other half alone. Mean over draws; in "
            "brackets the least. " + _CALLS_NOTE,
        ),
    )


def own_labels(rows: Sequence[Row]) -> Table | None:
    """Verdict on each label of a recording, and correlation of the map with encoding strength."""
    lines = []
    for (file, label, bin_ms), group in grouped(as_recorded(rows), case_of):
        lines.append(
            (
                RECORDINGS[file].title,
                label,
                f"{bin_ms:g}",
                f"{group[0]['found']['decoding_r2']:.2f}",
                verdicts(group),
                f"{group[0]['found']['n_true']} of {group[0]['found']['n_own']}",
                *(mean_cell(spearmans(group, method)) for method in METHODS),
            )
        )
    return _table(
        "Own labels: verdict, and Spearman of each map with held-out encoding strength",
        ("recording", "label", "bin (ms)", "ridge R^2", "learned", "tuned", *METHODS),
        lines,
        (
            "Ridge R^2: held-out R^2 of the label, read from counts smoothed by 250 ms. Mean over "
            "seeds; in brackets the least. The encoding model's own column compares its scores on "
            "one half of the time with those on all of it.",
        ),
    )


def other_labels(rows: Sequence[Row]) -> Table | None:
    """Verdicts on labels of other recordings."""
    lines = []
    for (file, other), group in grouped(
        fits_with(rows, "other-label"),
        lambda r: (r["item"]["case"]["file"], r["item"]["case"]["other"]),
    ):
        verdict_text = "; ".join(f"{r['item']['case']['label']}: {verdict(r)}" for r in group)
        refused = sum(r["found"]["learned"] is not True for r in group)
        names = RECORDINGS[file].title, RECORDINGS[other].title
        lines.append((*names, f"{refused} of {len(group)}", verdict_text))
    return _table(
        "Labels of other recordings", ("recording", "labels of", "refused", "learned"), lines
    )


def rankings(rows: Sequence[Row]) -> Table | None:
    """Agreement of rankings between seeds and between halves of a recording."""
    lines = []
    halves = between_halves(rows)
    for method in (*METHODS[:-1], CEBRA):
        seeds = between_seeds(rows, method)
        for key, values in sorted(seeds.items()):
            file, label, bin_ms = key
            lines.append(
                (
                    RECORDINGS[file].title,
                    label,
                    f"{bin_ms:g}",
                    method,
                    f"{np.median(values):.2f}",
                    f"{min(values):.2f}",
                    f"{halves[key]:.2f}" if method == DEFAULT and key in halves else "",
                )
            )
    columns = ("recording", "label", "bin (ms)", "method", "seeds, median", "least", "halves")
    note = "Spearman of the scores of all units, between pairs of fits."
    return _table("Agreement of rankings", columns, lines, (note,))


def cebra(rows: Sequence[Row]) -> Table | None:
    """CEBRA's own model compared with ours, on the same neurons."""
    theirs = [row for row in rows if row["kind"] == "CebraFit"]
    lines = []
    for (*key, truth), group in grouped(theirs, lambda r: (*case_of(r), _truth(r))):
        file, label, bin_ms = key
        draws = {row["item"]["case"]["draw"] for row in group}
        ours = [
            row
            for row in default_runs(fits_with(rows, truth))
            if case_of(row) == (file, label, bin_ms) and row["item"]["case"]["draw"] in draws
        ]
        measured = spearmans if truth == "own" else aurocs
        lines.append(
            (
                RECORDINGS[file].title,
                label,
                f"{bin_ms:g}",
                "Spearman with encoding strength" if truth == "own" else "auROC, foreign neurons",
                mean_cell(measured(group, CEBRA)),
                mean_cell(measured(ours, DEFAULT)),
                mean_cell(measured(ours, "inverted-gradient")),
                f"{np.median([row['found']['seconds']['fit'] for row in group]):.0f}",
            )
        )
    columns = (
        "recording",
        "label",
        "bin (ms)",
        "measure",
        "CEBRA, inverted gradient",
        "ours, default",
        "ours, inverted gradient",
        "seconds, CEBRA",
    )
    note = "CEBRA's hybrid model with four latents for time; on the first 20,000 samples at most."
    return _table("CEBRA's own model", columns, lines, (note,))


def time_latents(rows: Sequence[Row]) -> Table | None:
    """How the ranking depends on the number of time latents."""
    chosen = [r for truth in ("known", "foreign") for r in fits_with(rows, truth)]
    lines = []
    for key, group in grouped(
        chosen, lambda r: (*case_of(r), _truth(r), r["item"]["case"]["draw"])
    ):
        by_number = dict(grouped(group, time_dims_of))
        if len(by_number) < 2:
            continue
        file, label, bin_ms, truth, _ = key
        scores = {n: aurocs(fits, DEFAULT) for n, fits in by_number.items()}
        means = [float(np.mean(v)) for v in scores.values() if v]
        text = ", ".join(f"{n}: {mean_cell(v)}" for n, v in sorted(scores.items()))
        difference = f"{max(means) - min(means):.3f}" if means else ""
        title = RECORDINGS[file].title
        lines.append((title, label, f"{bin_ms:g}", truth, text, difference))
    columns = ("recording", "label", "bin (ms)", "truth", "auROC by time latents", "range")
    return _table("Number of time latents", columns, lines)


def implanted(rows: Sequence[Row]) -> Table | None:
    """Share of implanted responses that are called significant, by strength."""
    chosen = fits_with(rows, "implanted")
    if not chosen:
        return None
    methods = (DEFAULT, ENCODING)
    lines = []
    for share in (0.0, *STRENGTHS):
        cells = []
        for method in methods:
            called, n = implanted_power(chosen, method, share)
            cells.append(f"{called} of {n} ({called / n:.0%})" if n else "")
        lines.append((f"{share:.1%}", *cells))
    note = "Called significant at 0.05, of all neurons with a response of this share of variance."
    return _table("Implanted responses", ("variance explained", *methods), lines, (note,))


def independent(rows: Sequence[Row]) -> Table | None:
    """The simulated test."""
    chosen = [row for row in rows if row["kind"] == "IndependentTest"]
    lines = []
    for (graph, both_labels), group in grouped(
        chosen, lambda r: (r["item"]["graph"], r["item"]["both"])
    ):
        counts = [row["found"]["calls"] for row in group]
        lines.append(
            (
                graph,
                "both" if both_labels else "the first",
                mean_cell([row["found"]["auroc"] for row in group]),
                ratio(sum(c["called_null"] for c in counts), sum(c["called"] for c in counts)),
                ratio(sum(c["called_true"] for c in counts), sum(c["n_true"] for c in counts)),
                verdicts(group),
            )
        )
    columns = ("graph", "labels", "auROC", "false among called", "power", "learned")
    note = "Twelve neurons, two autoregressive latents, 1,200 samples. Mean over seeds (least)."
    return _table("Independent test", columns, lines, (note,))


def warnings_given(rows: Sequence[Row]) -> Table | None:
    """How often each warning is given, for rankings that are right and for the others."""
    scored = [
        (row["found"]["warned"], row["found"]["methods"][DEFAULT]["auroc"])
        for row in rows
        if row["kind"] == "RealFit" and "methods" in row["found"]
    ]
    scored = [(warned, auroc) for warned, auroc in scored if auroc is not None]
    right = [warned for warned, auroc in scored if auroc >= _RIGHT]
    wrong = [warned for warned, auroc in scored if auroc < _RIGHT]
    lines = [
        (
            name,
            *(
                ratio(sum(name in warned for warned in group), len(group))
                for group in (right, wrong)
            ),
        )
        for name in sorted({name for warned, _ in scored for name in warned})
    ]
    columns = ("warning", f"of fits with auROC {_RIGHT:g} or more", "of other fits")
    return _table("Warnings, where it is known which neurons carry the label", columns, lines)


def seconds(rows: Sequence[Row]) -> Table | None:
    """Seconds of the fit, the map and the test."""
    lines = []
    for (file,), group in grouped(
        [row for row in rows if row["kind"] == "RealFit"], lambda r: (r["item"]["case"]["file"],)
    ):
        cells = []
        for part in ("fit", "map", "test"):
            durations = [
                r["found"]["seconds"][part] for r in group if part in r["found"]["seconds"]
            ]
            cells.append(f"{np.median(durations):.1f}" if durations else "")
        lines.append((RECORDINGS[file].title, *cells, str(len(group))))
    columns = ("recording", "fit", "map", "test", "fits")
    return _table("Seconds, median over fits", columns, lines)


_CALLS = ("false among called", "power", "learned")
_CALLS_NOTE = (
    "Called: significant at 0.05. False among called: neurons that cannot carry the label, among "
    "all neurons called, pooled. Power: of the neurons that carry it, those called."
)


def _truth(row: Row) -> str:
    return str(row["item"]["case"]["truth"])


def _table(
    title: str,
    columns: Sequence[str],
    lines: Sequence[tuple[str, ...]],
    notes: tuple[str, ...] = (),
) -> Table | None:
    return Table(title, tuple(columns), tuple(lines), notes) if lines else None
