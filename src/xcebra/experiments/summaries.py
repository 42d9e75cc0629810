"""From finished rows to tables: our numbers with the paper's beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from xcebra.experiments import paper
from xcebra.experiments.catalogue import HARD
from xcebra.experiments.rows import (
    Row,
    is_case,
    n_latents,
    observations,
    of_training,
    single_fits,
    summed,
    with_batch,
)
from xcebra.experiments.statistics import (
    Anova,
    Interval,
    Observation,
    anova,
    balanced,
    f_of_model,
    interval,
    tukey,
)
from xcebra.experiments.tables import Table, per_cent
from xcebra.experiments.work import AGGREGATED, AGGREGATES, MAPS

FACTORS = ("method", "latents", "training", "penalty")
OURS = ("decoder-gradient, label", "decoder-gradient, sparse")
TITLES = {
    "feature-ablation": "Feature ablation",
    "shap-shuffled": "Shapley, shuffled",
    "shap-zeros": "Shapley, zeros",
    "integrated-gradients": "Integrated gradients",
    "gradient": "Neuron gradient",
    "inverted-gradient": "Inverted gradient, our axes",
    "inverted-gradient, plain": "Inverted gradient, as in the paper",
    "decoder-gradient, label": "Decoder gradient, label basis",
    "decoder-gradient, sparse": "Decoder gradient, sparse basis (default)",
    "encoding model": "Encoding model",
}


def table1(rows: Sequence[Row]) -> list[Table]:
    """Table 1 entry by entry and by neuron, then by number of latents, then what the fits took."""
    single = single_fits(rows)
    columns = [(kind, p) for kind in paper.TRAININGS for p in (False, True)]
    found = [
        _compared(
            f"Table 1: auROC of the map of z2, observed, {unit}",
            {f"{k}, {'penalty' if p else 'none'}": of_training(single, k, p) for k, p in columns},
            paper.TABLE_1 if score == "entries" else {},
            {f"{k}, {'penalty' if p else 'none'}": (k, p) for k, p in columns},
            score,
        )
        for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron"))
    ]
    return [*found, _by_latents(single), _cost(single)]


def table2(rows: Sequence[Row]) -> list[Table]:
    """Table 2 entry by entry and by neuron, then by number of latents."""
    single = single_fits(rows)
    groups = {
        "no penalty": of_training(single, "hybrid contrastive", False),
        "penalty": of_training(single, "hybrid contrastive", True),
    }
    found = [
        _compared(
            f"Table 2: auROC of the map of z2, not observed, {unit}",
            groups,
            paper.TABLE_2 if score == "entries" else {},
            {"no penalty": (False,), "penalty": (True,)},
            score,
        )
        for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron"))
    ]
    return [*found, _by_latents(single), _cost(single)]


def statistics(rows: Sequence[Row]) -> list[Table]:
    """Analysis of variance, Tukey's test, ways to sum a map up over time, and the threshold."""
    single = single_fits(rows)
    seen = balanced(observations(single), FACTORS)
    tables = []
    # The paper's comparison is of all trainings, with and without penalty.
    trained = {(o["training"], o["penalty"]) for o in seen}
    if len({o["dataset"] for o in seen}) > 1 and len(trained) == 2 * len(paper.TRAININGS):
        varied = [name for name in FACTORS if len({o[name] for o in seen}) > 1]
        tables = [_anova_table(anova(seen, varied))]
        tables += [_tukey_table(seen, ("method", other)) for other in ("training", "penalty")]
        tables.append(_order_table(seen))
    hybrid = of_training(single, "hybrid contrastive", True)
    return [*tables, _aggregates(hybrid), _threshold(hybrid)]


def latents(rows: Sequence[Row]) -> list[Table]:
    """auROC against latents, time steps and negatives, with the training held fixed."""
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
    """Consistency and auROC against the latents given to the model; the data has 3 + 3."""
    tables = []
    chosen = [row for row in rows if row["kind"] == "Consistency"]
    for kind in ("time contrastive", "supervised contrastive", "hybrid contrastive"):
        lines = []
        for row in chosen:
            training = row["item"]["training"]
            if training["kind"] != kind:
                continue
            dims = [training[name] for name in ("label_dims", "time_dims") if training[name]]
            agree = interval(row["found"]["consistency"]["all"])
            cells = [" + ".join(map(str, dims)), per_cent(agree._replace(n_datasets=1))]
            for name in AGGREGATED:
                scores = [each[name]["entries"] for each in row["found"]["maps"]]
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
    """The harder table, entry by entry and by neuron, for z2 observed and for z2 latent."""
    tables = []
    for score, unit in (("entries", "entry by entry"), ("neurons", "one score per neuron")):
        for observed, title in (("z2", "observed"), ("z1", "not observed")):
            tables.append(_hard_table(rows, observed, title, score, unit))
    return tables


def paper_recipe(rows: Sequence[Row]) -> list[Table]:
    """The paper's own settings, for the record."""
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
}


def _compared(
    title: str,
    groups: Mapping[str, Sequence[Row]],
    published: Mapping[Any, paper.Value],
    keys: Mapping[str, tuple[Any, ...]],
    score: str,
) -> Table:
    """Methods down, groups of fits across; the paper's value in brackets after ours."""
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


def _curve(title: str, of: str, rows: Sequence[Row], level: Callable[[Row], int]) -> Table:
    shown = ("inverted-gradient, plain", "inverted-gradient", *OURS)
    lines = []
    for value in sorted({level(row) for row in rows}):
        group = [row for row in rows if level(row) == value]
        cells = [f"{value:,}"]
        for name in shown:
            entries, neurons = (summed(group, name, score) for score in ("entries", "neurons"))
            assert entries is not None
            assert neurons is not None
            cells.append(f"{per_cent(entries)} / {100 * neurons.mean:.1f}")
        r2 = [row["found"]["r2"]["label"] for row in group]
        cells.append(f"{np.mean(r2):.3f} ({np.min(r2):.3f})")
        lines.append(tuple(cells))
    return Table(
        title,
        (of, *(TITLES[name] for name in shown), "R^2 of label, mean (least)"),
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


def _anova_table(found: Anova) -> Table:
    lines = []
    for effect in found.effects:
        theirs = paper.ANOVA[effect.factors]
        lines.append(
            (
                " x ".join(effect.factors),
                f"{effect.sum_of_squares:.1f}",
                str(effect.degrees),
                f"{effect.f:.2f}",
                f"{effect.p:.2g}",
                f"{theirs[2]:.2f}",
            )
        )
    lines.append(("residual", f"{found.residual[0]:.1f}", str(found.residual[1]), "", "", ""))
    return Table(
        "Analysis of variance of auROC (entries, per cent)",
        ("factors", "sum of squares", "df", "F", "p", "F in the paper"),
        tuple(lines),
        (
            f"The whole model: F = {found.f:.1f}, p = {found.p:.2g}, {found.n_observations} "
            "observations, balanced. The paper's text has F = 17.0; its own table gives "
            f"{f_of_model(paper.ANOVA):.1f}.",
        ),
    )


def _tukey_table(seen: Sequence[Observation], factors: tuple[str, ...]) -> Table:
    best = (
        "inverted-gradient: " + {"training": "hybrid contrastive", "penalty": "penalty"}[factors[1]]
    )
    found = tukey(seen, factors)
    lines = []
    for pair in found:
        if best not in (pair.first, pair.second):
            continue
        turned = pair.second == best
        sign = -1 if turned else 1
        low, high = sorted((sign * pair.low, sign * pair.high))
        lines.append(
            (
                pair.first if turned else pair.second,
                f"{sign * pair.difference:.2f}",
                f"[{low:.2f}, {high:.2f}]",
                f"{pair.p:.2g}",
                "yes" if pair.differs else "no",
            )
        )
    n_differ = sum(pair.differs for pair in found)
    return Table(
        f"Tukey's test, {' and '.join(factors)}: all others against {best}",
        ("group", "difference", "95 % interval", "p", "differs"),
        tuple(sorted(lines, key=lambda line: float(line[1]))),
        (
            "Difference: the group's mean auROC less that of the group in the title, in points. "
            f"Of all {len(found)} pairs of groups, {n_differ} differ.",
        ),
    )


def _order_table(seen: Sequence[Observation]) -> Table:
    """Groups from best to worst, here and in the paper."""

    def mean(method: str, kind: str, penalty: bool) -> float:
        told = "penalty" if penalty else "none"
        scores = [
            o["score"]
            for o in seen
            if (o["method"], o["training"], o["penalty"]) == (method, kind, told)
        ]
        return float(np.mean(scores))

    ours = {key: mean(*key) for key in paper.TABLE_1}
    theirs = {key: value.mean for key, value in paper.TABLE_1.items()}
    place = {key: at for at, key in enumerate(sorted(theirs, key=lambda k: -theirs[k]), start=1)}
    lines = []
    for at, key in enumerate(sorted(ours, key=lambda k: -ours[k]), start=1):
        method, kind, penalty = key
        lines.append(
            (
                str(at),
                f"{TITLES[method]}, {kind}, {'penalty' if penalty else 'none'}",
                f"{ours[key]:.1f}",
                str(place[key]),
                f"{theirs[key]:.1f}",
            )
        )
    ranks = [[keys[key] for key in ours] for keys in (ours, theirs)]
    agreement = np.corrcoef([rankdata(r) for r in ranks])[0, 1]
    return Table(
        "The order of trainings and methods, ours and the paper's",
        ("place", "combination", "auROC", "place in the paper", "auROC in the paper"),
        tuple(lines),
        (
            f"Rank correlation {agreement:.2f}; {len({o['dataset'] for o in seen})} recordings, "
            "those with every combination.",
        ),
    )


def _aggregates(rows: Sequence[Row]) -> Table:
    lines = []
    for name in AGGREGATED if rows else ():
        for aggregate in (*AGGREGATES, "single step"):
            cells = []
            for score in ("entries", "neurons"):
                scores = [row["found"]["aggregates"][name][aggregate][score] for row in rows]
                seeds = [row["item"]["data"]["seed"] for row in rows]
                cells.append(per_cent(interval(scores, seeds)))
            lines.append((TITLES[name], aggregate, *cells))
    return Table(
        "Ways to sum a map up over time (hybrid contrastive with penalty)",
        ("map", "over time", "auROC, entries", "auROC, neurons"),
        tuple(lines),
        ("A single step: the mean over steps of the auROC of each step alone.",),
    )


def _threshold(rows: Sequence[Row]) -> Table:
    lines = []
    for name in MAPS:
        entries, neurons = (summed(rows, name, score) for score in ("accuracy", "accuracy_neurons"))
        if entries is not None and neurons is not None:
            lines.append((TITLES[name], per_cent(entries), per_cent(neurons)))
    return Table(
        "Right decisions at a z-score of 0 (hybrid contrastive with penalty)",
        ("map", "entries", "neurons"),
        tuple(lines),
    )


def _hard_table(rows: Sequence[Row], observed: str, title: str, score: str, unit: str) -> Table:
    names = [*MAPS, "encoding model"] if observed == "z2" else list(MAPS)
    lines = []
    for subject, levels in HARD.items():
        for level, changes in levels.items():
            group = [row for row in rows if is_case(row, observed, changes)]
            values = {name: summed(group, name, score) for name in names}
            means = [v.mean for v in values.values() if v is not None]
            if not means:
                continue
            best = max(means)
            cells = [
                "" if v is None else _short(v, best=v.mean >= best - 5e-4) for v in values.values()
            ]
            n = {v.n_datasets for v in values.values() if v is not None}
            r2 = [r["found"]["r2"]["label"] for r in group if r["kind"] == "Fit"]
            told = [bool(r["found"]["warnings"]) for r in group if r["kind"] == "Fit"]
            lines.append(
                (
                    f"{subject}: {level}" if subject != "base" else level,
                    *cells,
                    f"{np.mean(r2):.2f}" if r2 else "",
                    f"{sum(told)} of {len(told)}" if told else "",
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


def _short(value: Interval, best: bool) -> str:
    mean = f"{100 * value.mean:.1f}"
    return f"**{mean}**" if best else mean
