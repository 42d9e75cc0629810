"""Select and summarise the finished rows of the benchmark on real recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from xcebra.reproduce.real.truth import NOISE
from xcebra.reproduce.real.work import CEBRA, DEFAULT
from xcebra.reproduce.row_selection import Row


def fits_with(rows: Iterable[Row], truth: str) -> list[Row]:
    """Fits to real recordings with the given kind of truth."""
    return [r for r in rows if r["kind"] == "RealFit" and r["item"]["case"]["truth"] == truth]


def default_runs(rows: Iterable[Row]) -> list[Row]:
    """Fits with the default number of time latents to the whole recording."""
    return [r for r in rows if r["item"]["time_dims"] is None and r["item"]["part"] == "whole"]


def as_recorded(rows: Sequence[Row]) -> list[Row]:
    """Default fits to recordings as they are."""
    return default_runs(fits_with(rows, "own"))


def files_of(rows: Iterable[Row]) -> set[str]:
    """File names of the recordings of the rows."""
    return {row["item"]["case"]["file"] for row in rows if "case" in row["item"]}


def case_of(row: Row) -> tuple[str, str, float]:
    """Recording, label and bin size of a row."""
    case = row["item"]["case"]
    return case["file"], case["label"], case["bin_ms"]


def time_dims_of(row: Row) -> str:
    """Number of time latents of a row, as text."""
    n = row["item"]["time_dims"]
    return "default" if n is None else str(n)


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[tuple[Any, list[Row]]]:
    """Group rows by key; keys are in order of first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.items())


def method_values(rows: Iterable[Row], method: str, measure: str) -> list[float]:
    """Values of one measure of one method, from the rows that have it."""
    values = (row["found"].get("methods", {}).get(method, {}).get(measure) for row in rows)
    return [value for value in values if value is not None]


def aurocs(rows: Iterable[Row], method: str) -> list[float]:
    """Values of auROC of one method."""
    return method_values(rows, method, "auroc")


def spearmans(rows: Iterable[Row], method: str) -> list[float]:
    """Rank correlations of one method's scores with encoding strength."""
    return method_values(rows, method, "spearman")


def _counts(rows: Iterable[Row], method: str, name: str) -> int:
    return sum(
        row["found"]["methods"][method]["calls"][name]
        for row in rows
        if "calls" in row["found"].get("methods", {}).get(method, {})
    )


def pooled(rows: Sequence[Row], method: str, part: str, whole: str) -> str:
    """Ratio of two counts of calls, pooled over rows, as text."""
    return ratio(_counts(rows, method, part), _counts(rows, method, whole))


def false_calls(rows: Sequence[Row], method: str) -> str:
    """False calls among all calls, pooled over rows, as text."""
    return pooled(rows, method, "called_null", "called")


def noise_calls(rows: Sequence[Row], method: str) -> str:
    """Number of noise units of each sort that are called, as text."""
    calls = [row["found"].get("methods", {}).get(method, {}).get("calls", {}) for row in rows]
    texts = []
    for sort in NOISE:
        counts = [counts_of_calls[sort] for counts_of_calls in calls if sort in counts_of_calls]
        if counts:
            called, n = np.sum(counts, axis=0).tolist()
            texts.append(f"{sort}s {ratio(called, n)}")
    return ", ".join(texts)


def call_cells(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    """False calls, power, power of strongly tuned neurons, and verdicts."""
    return (
        false_calls(rows, DEFAULT),
        pooled(rows, DEFAULT, "called_true", "n_true"),
        pooled(rows, DEFAULT, "called_strong", "n_strong"),
        verdicts(rows),
    )


def ratio(part: int, whole: int) -> str:
    """Format two counts and their ratio as text."""
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")


def mean_cell(values: Sequence[float]) -> str:
    """The mean as text, with the smallest of several values in brackets."""
    if not values:
        return ""
    least = f" ({min(values):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{least}"


def least_and_mean(values: Sequence[float]) -> str:
    """The smallest value and the mean, as text."""
    return f"{min(values):.3f}, {np.mean(values):.3f}" if values else ""


def least_and_median(values: Sequence[float]) -> str:
    """The smallest value and the median, as text."""
    return f"{min(values):.2f}, {np.median(values):.2f}" if values else ""


def verdict(row: Row) -> str:
    """The verdict on the label, in one word."""
    return {True: "yes", None: "unclear", False: "no"}[row["found"]["learned"]]


def verdicts(rows: Sequence[Row]) -> str:
    """Number of verdicts of each kind, as text; the verdict itself if there is only one."""
    words = [verdict(row) for row in rows]
    counts = {word: words.count(word) for word in ("yes", "unclear", "no") if word in words}
    return words[0] if len(words) == 1 else ", ".join(f"{n} {word}" for word, n in counts.items())


def between_seeds(rows: Sequence[Row], method: str) -> dict[Any, list[float]]:
    """Rank correlations of the scores between all pairs of fits that differ only in their seed."""
    chosen = as_recorded(rows)
    if method == CEBRA:
        cebra = (row for row in rows if row["kind"] == "CebraFit")
        chosen = [row for row in cebra if row["item"]["case"]["truth"] == "own"]
    correlations: dict[Any, list[float]] = {}
    for key, group in grouped(chosen, case_of):
        scores = method_values(group, method, "scores")
        pairs = [_agreement(a, b) for a, b in combinations(scores, 2)]
        if pairs:
            correlations[key] = pairs
    return correlations


def between_halves(rows: Sequence[Row]) -> dict[Any, float]:
    """Rank correlation of the scores between the fits to the two halves of each recording."""
    halves = [row for row in fits_with(rows, "own") if row["item"]["part"] != "whole"]
    scores = {
        key: method_values(group, DEFAULT, "scores") for key, group in grouped(halves, case_of)
    }
    return {key: _agreement(*pair) for key, pair in scores.items() if len(pair) == 2}


def _agreement(a: Any, b: Any) -> float:
    return float(np.nan_to_num(spearmanr(a, b).statistic))


def implanted_power(rows: Iterable[Row], method: str, share: float) -> tuple[int, int]:
    """Return how many responses of a strength were called, and how many there are in total."""
    counts = [
        row["found"]["methods"][method]["calls"]["by_strength"][f"{share:g}"]
        for row in rows
        if "calls" in row["found"].get("methods", {}).get(method, {})
    ]
    return sum(c for c, _ in counts), sum(n for _, n in counts)
