"""Bootstrap intervals, analysis of variance and Tukey's test.

The input is a long table: one dict per observation, with its factors, its ``dataset`` and its
``score``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xcebra.common.errors import InputError, MissingExtraError

Observation = Mapping[str, Any]


class Interval(NamedTuple):
    """A mean, the ends of its interval, and the number of recordings it is computed from."""

    mean: float
    low: float
    high: float
    n_datasets: int


class Effect(NamedTuple):
    """One line of an analysis of variance."""

    factors: tuple[str, ...]
    sum_of_squares: float
    degrees: int
    f: float
    p: float


class Pair(NamedTuple):
    """One comparison of Tukey's test; the difference is the second mean minus the first."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    differs: bool


@dataclass(frozen=True)
class Anova:
    """Effects of all factors and their interactions, and the test of the whole model."""

    effects: tuple[Effect, ...]
    residual: tuple[float, int]
    f: float
    p: float
    n_observations: int


def interval(
    scores: Sequence[float],
    datasets: Sequence[int] = (),
    *,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Mean with its bootstrap interval (percentiles of ``n`` means of resampled scores).

    Parameters
    ----------
    scores : sequence of float
    datasets : sequence of int
        The recording of each score, used only to count the recordings. Scores are resampled
        independently of it, as in the paper. By default, each score counts as one recording.
    n : int
        Number of bootstrap resamples.
    level : float
        Coverage of the interval.
    seed : int
        Seed of the resampling.

    Examples
    --------
    >>> interval([1.0, 1.0, 1.0])
    Interval(mean=1.0, low=1.0, high=1.0, n_datasets=3)
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(values) == 0:
        raise InputError("scores must hold 1 number or more to take a mean of, got none")
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(n, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    n_datasets = len(set(datasets)) if len(datasets) else len(values)
    return Interval(float(values.mean()), float(low), float(high), n_datasets)


def balanced(observations: Sequence[Observation], factors: Sequence[str]) -> list[Observation]:
    """Return the observations of the datasets that are present in every cell.

    A cell is a combination of levels of the factors. Datasets that are missing in any cell are left
    out.
    """
    levels = [sorted({o[name] for o in observations}, key=str) for name in factors]
    cells: dict[tuple[Any, ...], set[Any]] = {cell: set() for cell in itertools.product(*levels)}
    for o in observations:
        cells[tuple(o[name] for name in factors)].add(o["dataset"])
    everywhere = set.intersection(*cells.values()) if cells else set()
    return [o for o in observations if o["dataset"] in everywhere]


def anova(observations: Sequence[Observation], factors: Sequence[str]) -> Anova:
    """Analysis of variance with all interactions of categorical factors, by least squares.

    Sums of squares are of type II. For balanced data, as `balanced` returns them, all types agree.
    """
    pandas, _, stats = _statsmodels()
    for name in factors:
        if len({o[name] for o in observations}) < 2:
            raise InputError(
                f"an analysis of variance needs 2 or more levels of each factor; {name!r} has "
                f"{len({o[name] for o in observations})} in {len(observations)} observations"
            )
    frame = pandas.DataFrame([dict(o) for o in observations])
    cells = frame.groupby(list(factors)).size()
    n_cells = int(np.prod([frame[name].nunique() for name in factors]))
    if len(cells) < n_cells or cells.nunique() > 1 or len(frame) <= n_cells:
        raise InputError(
            f"an analysis of variance needs as many observations, and more than one, in each of "
            f"{n_cells} cells; {len(cells)} cells have between {cells.min()} and {cells.max()}"
        )
    formula = "score ~ " + " * ".join(f"C({name})" for name in factors)
    import statsmodels.formula.api as smf

    fitted = smf.ols(formula, data=frame).fit()
    table = stats.anova_lm(fitted, typ=2)
    effects = []
    for name, line in table.iterrows():
        if name == "Residual":
            continue
        parts = tuple(part[2:-1] for part in str(name).split(":"))
        effects.append(
            Effect(
                parts,
                float(line["sum_sq"]),
                int(line["df"]),
                float(line["F"]),
                float(line["PR(>F)"]),
            )
        )
    rest = table.loc["Residual"]
    return Anova(
        tuple(effects),
        (float(rest["sum_sq"]), int(rest["df"])),
        float(fitted.fvalue),
        float(fitted.f_pvalue),
        len(frame),
    )


def tukey(
    observations: Sequence[Observation], factors: Sequence[str], level: float = 0.05
) -> list[Pair]:
    """Tukey's honest significant differences between all combinations of the factors' levels."""
    _, multicomp, _ = _statsmodels()
    groups = np.array([": ".join(str(o[name]) for name in factors) for o in observations])
    scores = np.array([o["score"] for o in observations], dtype=np.float64)
    result = multicomp.pairwise_tukeyhsd(scores, groups, alpha=level)
    names = list(result.groupsunique)
    pairs = itertools.combinations(range(len(names)), 2)
    return [
        Pair(
            str(names[i]),
            str(names[j]),
            float(result.meandiffs[k]),
            float(result.confint[k, 0]),
            float(result.confint[k, 1]),
            float(result.pvalues[k]),
            bool(result.reject[k]),
        )
        for k, (i, j) in enumerate(pairs)
    ]


def f_of_model(effects: Mapping[tuple[str, ...], tuple[float, int, float]]) -> float:
    """F statistic of a whole balanced model, from the sums of squares of its effects."""
    squares, degrees = np.sum([v[:2] for k, v in effects.items() if k != ("residual",)], axis=0)
    rest, rest_degrees, _ = effects["residual",]
    return float((squares / degrees) / (rest / rest_degrees))


def _statsmodels() -> tuple[Any, Any, Any]:
    try:
        import pandas
        import statsmodels.stats.anova as anova_module
        import statsmodels.stats.multicomp as multicomp
    except ImportError:
        raise MissingExtraError(
            "the analysis of variance needs statsmodels: pip install 'xcebra[reproduce]'"
        ) from None
    return pandas, multicomp, anova_module
