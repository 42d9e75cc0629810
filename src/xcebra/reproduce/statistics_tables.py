"""Tables of the paper's appendix on statistics: tests, order of methods, aggregates, threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.measurements import AGGREGATED, AGGREGATES, MAPS
from xcebra.reproduce.row_selection import (
    TITLES,
    Row,
    observations,
    of_training,
    single_fits,
    summed,
)
from xcebra.reproduce.statistics import (
    Anova,
    Observation,
    anova,
    balanced,
    f_of_model,
    interval,
    tukey,
)
from xcebra.reproduce.table_text import Table, per_cent

FACTORS = ("method", "latents", "training", "penalty")


def statistics(rows: Sequence[Row]) -> list[Table]:
    """Analysis of variance, Tukey's test, aggregates over time, and accuracy at a threshold."""
    single = single_fits(rows)
    observed = balanced(observations(single), FACTORS)
    tables = []
    # The paper compares all trainings, with and without penalty.
    trained = {(o["training"], o["penalty"]) for o in observed}
    if len({o["dataset"] for o in observed}) > 1 and len(trained) == 2 * len(paper.TRAININGS):
        varied = [name for name in FACTORS if len({o[name] for o in observed}) > 1]
        tables = [_anova_table(anova(observed, varied))]
        tables += [_tukey_table(observed, ("method", other)) for other in ("training", "penalty")]
        tables.append(_order_table(observed))
    hybrid = of_training(single, "hybrid contrastive", True)
    return [*tables, _aggregates(hybrid), _threshold(hybrid)]


def _anova_table(result: Anova) -> Table:
    lines = []
    for effect in result.effects:
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
    lines.append(("residual", f"{result.residual[0]:.1f}", str(result.residual[1]), "", "", ""))
    return Table(
        "Analysis of variance of auROC (entries, per cent)",
        ("factors", "sum of squares", "df", "F", "p", "F in the paper"),
        tuple(lines),
        (
            f"The whole model: F = {result.f:.1f}, p = {result.p:.2g}, {result.n_observations} "
            "observations, balanced. The paper's text has F = 17.0; its own table gives "
            f"{f_of_model(paper.ANOVA):.1f}.",
        ),
    )


def _tukey_table(observed: Sequence[Observation], factors: tuple[str, ...]) -> Table:
    best = (
        "inverted-gradient: " + {"training": "hybrid contrastive", "penalty": "penalty"}[factors[1]]
    )
    pairs = tukey(observed, factors)
    lines = []
    for pair in pairs:
        if best not in (pair.first, pair.second):
            continue
        best_is_second = pair.second == best
        sign = -1 if best_is_second else 1
        low, high = sorted((sign * pair.low, sign * pair.high))
        lines.append(
            (
                pair.first if best_is_second else pair.second,
                f"{sign * pair.difference:.2f}",
                f"[{low:.2f}, {high:.2f}]",
                f"{pair.p:.2g}",
                "yes" if pair.differs else "no",
            )
        )
    n_differ = sum(pair.differs for pair in pairs)
    return Table(
        f"Tukey's test, {' and '.join(factors)}: all others against {best}",
        ("group", "difference", "95 % interval", "p", "differs"),
        tuple(sorted(lines, key=lambda line: float(line[1]))),
        (
            "Difference: the group's mean auROC less that of the group in the title, in points. "
            f"Of all {len(pairs)} pairs of groups, {n_differ} differ.",
        ),
    )


def _order_table(observed: Sequence[Observation]) -> Table:
    """Combinations of training and method from best to worst, ours and the paper's."""

    def mean(method: str, kind: str, penalty: bool) -> float:
        penalty_text = "penalty" if penalty else "none"
        scores = [
            o["score"]
            for o in observed
            if (o["method"], o["training"], o["penalty"]) == (method, kind, penalty_text)
        ]
        return float(np.mean(scores))

    ours = {key: mean(*key) for key in paper.TABLE_1}
    theirs = {key: value.mean for key, value in paper.TABLE_1.items()}
    place = {
        key: rank for rank, key in enumerate(sorted(theirs, key=lambda k: -theirs[k]), start=1)
    }
    lines = []
    for rank, key in enumerate(sorted(ours, key=lambda k: -ours[k]), start=1):
        method, kind, penalty = key
        lines.append(
            (
                str(rank),
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
            f"Rank correlation {agreement:.2f}; "
            f"{len({o['dataset'] for o in observed})} recordings, "
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
