"""Do intervals over animals hold the truth, and how many differences between areas are false?

Simulates which neurons of two areas are called connected, in several sessions of several animals,
and their scores. The share of connected neurons of an animal has a beta distribution whose mean is
the truth; both areas of an animal have a part of the animal's effect in common. Sessions vary
around their animal, again with a beta distribution. Beside the intervals of the package stands a
percentile interval of the usual hierarchical bootstrap of animals, sessions and neurons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from studies.study import run
from xcebra.statistics.hierarchical import (
    Estimate,
    cluster_means,
    difference_interval,
    mean_interval,
    share_interval,
    wilson,
)
from xcebra.sweep import Row

Array = NDArray[np.float64]

# Shares of connected neurons in the two areas: without a difference, and with one.
EQUAL = ((0.05, 0.05), (0.5, 0.5), (0.95, 0.95))
DIFFERENT = ((0.05, 0.3), (0.5, 0.75), (0.95, 0.65))
# Correlation of an animal's effects on its two areas, on the scale of a normal distribution.
CORRELATION = 0.7
# Number of resamples of the bootstrap that stands beside.
RESAMPLES = 300


@dataclass(frozen=True)
class Design:
    """Sessions per animal, and neurons per area and session; both vary between the limits."""

    sessions: tuple[int, int]
    neurons: tuple[int, int]
    missing: float = 0.0


DESIGNS = {
    "unbalanced": Design((1, 4), (5, 60)),
    "areas missing": Design((1, 4), (5, 60), 0.35),
    "few neurons": Design((1, 1), (5, 10)),
    "many neurons": Design((2, 4), (40, 60)),
}
# Intraclass correlation of animals and of sessions at a share of one half. The standard deviation
# is proportional to p * (1 - p), an effect of the same size on the logit scale. With "few animals
# carry it", the correlation is the same at all shares: at 5 %, most animals have none.
EFFECTS = {
    "none": (0.0, 0.0),
    "small": (0.02, 0.02),
    "large": (0.2, 0.1),
    "few animals carry it": (0.2, 0.1),
}


@dataclass(frozen=True)
class Simulations:
    """Simulations of one kind of experiment, for all pairs of shares.

    Parameters
    ----------
    n_animals : int
    design : str
        One of `DESIGNS`.
    effect : str
        How much animals and sessions differ; one of `EFFECTS`.
    seed : int
    number : int
        Number of simulations for each pair of shares.
    """

    n_animals: int
    design: str
    effect: str
    seed: int
    number: int = 200


ITEMS = [
    Simulations(n_animals, design, effect, seed)
    for seed in (0, 1)
    for design in DESIGNS
    for effect in EFFECTS
    for n_animals in (3, 4, 6, 10)
]


@dataclass(frozen=True, eq=False)
class Area:
    """Simulated neurons of an area: animal and session, whether called, and score."""

    animals: NDArray[np.int64]
    sessions: NDArray[np.int64]
    called: Array
    scores: Array


def measure(item: Simulations) -> dict[str, Any]:
    """How often intervals hold the truth, and how often a difference is called."""
    counts = {}
    for k, pair in enumerate((*EQUAL, *DIFFERENT)):
        rng = np.random.default_rng([item.seed, k, item.n_animals, *map(ord, item.design)])
        held = [_held(_simulated(rng, item, pair), pair, rng) for _ in range(item.number)]
        counts[f"{pair[0]} {pair[1]}"] = {
            name: int(sum(result[name] for result in held)) for name in held[0]
        }
    return {"counts": counts}


def _held(
    areas: tuple[Area, Area], pair: tuple[float, float], rng: np.random.Generator
) -> dict[str, bool]:
    first, second = (cluster_means(area.called, area.animals) for area in areas)
    scores, other_scores = (cluster_means(area.scores, area.animals) for area in areas)
    difference = difference_interval(first, second, shares=True)
    of_scores = difference_interval(scores, other_scores)
    resampled = _resampled_shares(areas, rng)
    by_bootstrap = _percentiles(resampled[0]), _percentiles(resampled[0] - resampled[1])
    truth = pair[0] - pair[1]
    return {
        "share": _holds(share_interval(first), pair[0]),
        "difference": _holds(difference, truth),
        "called": difference.p_value <= 0.05,
        # A score is 1 on average for a neuron that is connected, and 0 for another.
        "score": _holds(mean_interval(scores), pair[0]),
        "score difference": _holds(of_scores, truth),
        "score called": of_scores.p_value <= 0.05,
        "bootstrap share": _holds(by_bootstrap[0], pair[0]),
        "bootstrap difference": _holds(by_bootstrap[1], truth),
        "bootstrap called": not _holds(by_bootstrap[1], 0.0),
    }


def _holds(interval: Estimate, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def _simulated(
    rng: np.random.Generator, item: Simulations, pair: tuple[float, float]
) -> tuple[Area, Area]:
    """Both areas of one experiment, each in two animals or more."""
    design, (of_animals, of_sessions) = DESIGNS[item.design], EFFECTS[item.effect]
    common = rng.normal(size=item.n_animals)
    while True:
        n_sessions = rng.integers(design.sessions[0], design.sessions[1] + 1, item.n_animals)
        animals = np.repeat(np.arange(item.n_animals), n_sessions)
        present = rng.random((2, len(animals))) >= design.missing
        if min(len(np.unique(animals[rows])) for rows in present) > 1:
            break
    areas = []
    for share, rows in zip(pair, present, strict=True):
        own = rng.normal(size=item.n_animals)
        effect = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
        same = item.effect == "few animals carry it"
        shares = _beta(share, of_animals, norm.cdf(effect), same)[animals[rows]]
        shares = _beta(shares, of_sessions, rng.random(len(shares)), same)
        low, high = np.log(design.neurons[0]), np.log(design.neurons[1] + 1)
        sizes = np.exp(rng.uniform(low, high, len(shares))).astype(int)
        called = (rng.random(sizes.sum()) < np.repeat(shares, sizes)).astype(float)
        scores = called * rng.gamma(2.0, 0.5, len(called)) + rng.normal(0, 0.1, len(called))
        sessions = np.flatnonzero(rows)
        areas.append(
            Area(np.repeat(animals[rows], sizes), np.repeat(sessions, sizes), called, scores)
        )
    return areas[0], areas[1]


def _beta(mean: Any, correlation: float, uniform: Array, same: bool) -> Array:
    """Values of a beta distribution with given mean and intraclass correlation."""
    mean = np.clip(np.broadcast_to(mean, uniform.shape), 1e-6, 1 - 1e-6)
    if correlation == 0:
        return np.array(mean)
    scaled = correlation if same else correlation * 4 * mean * (1 - mean)
    concentration = 1 / scaled - 1
    return np.asarray(beta.ppf(uniform, mean * concentration, (1 - mean) * concentration))


def _resampled_shares(areas: tuple[Area, Area], rng: np.random.Generator) -> Array:
    """Mean shares of both areas over resampled animals, sessions of them, and neurons of these.

    The same animals are drawn for both areas. The result has shape (n_areas, n_resamples); it is
    NaN for resamples without an animal that has the area.
    """
    everyone = np.unique(np.concatenate([area.animals for area in areas]))
    picks = rng.choice(everyone, (RESAMPLES, len(everyone)))
    means = []
    for area in areas:
        sessions = cluster_means(area.called, area.sessions)
        owners = cluster_means(area.animals.astype(float), area.sessions).means.astype(int)
        sums, numbers = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
        for animal in np.unique(owners):
            rows = np.flatnonzero(owners == animal)
            draws = np.nonzero(picks == animal)[0]
            chosen = rows[rng.integers(0, len(rows), (len(draws), len(rows)))]
            sizes = sessions.sizes[chosen]
            called = rng.binomial(sizes, np.clip(sessions.means[chosen], 0.0, 1.0))
            np.add.at(sums, draws, called.sum(axis=1) / sizes.sum(axis=1))
            np.add.at(numbers, draws, 1)
        means.append(np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan))
    return np.array(means)


def _percentiles(values: Array) -> Estimate:
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return Estimate(float(np.nanmean(values)), float(low), float(high))


def _total(rows: Sequence[Row], name: str, pairs: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Number of simulations in which something held, and number of simulations."""
    counts = [row["found"]["counts"][f"{a} {b}"][name] for row in rows for a, b in pairs]
    return sum(counts), sum(row["item"]["number"] for row in rows) * len(pairs)


def _rate(rows: Sequence[Row], name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """A rate in percent with its binomial interval."""
    held, number = _total(rows, name, pairs)
    low, high = wilson(held / number, number, float(norm.ppf(0.975)))
    return f"{100 * held / number:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _cells(rows: Sequence[Row], name: str, pairs: Sequence[tuple[float, float]]) -> list[float]:
    """The rate of every design, number of animals, effect and pair of shares, over seeds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        item = row["item"]
        groups.setdefault((item["n_animals"], item["design"], item["effect"]), []).append(row)
    rates = []
    for group in groups.values():
        for pair in pairs:
            held, number = _total(group, name, [pair])
            rates.append(held / number)
    return rates


def _range(rates: Sequence[float]) -> str:
    return f"{100 * min(rates):.0f} to {100 * max(rates):.0f}"


def _table(
    title: str, groups: Mapping[str, Sequence[Row]], pairs: Sequence[tuple[float, float]]
) -> list[str]:
    """One line for each group of rows."""
    equal = [pair for pair in pairs if pair in EQUAL]
    different = [pair for pair in pairs if pair in DIFFERENT]
    lines = [
        f"| {title} | share held | difference held | false differences | true differences called | "
        "mean score held | false differences of scores | bootstrap: share held | "
        "bootstrap: false differences |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in groups.items():
        lines.append(
            f"| {name} | {_rate(rows, 'share', pairs)} | {_rate(rows, 'difference', different)} | "
            f"{_rate(rows, 'called', equal)} | {_rate(rows, 'called', different)} | "
            f"{_rate(rows, 'score', pairs)} | "
            f"{_rate(rows, 'score called', equal)} | {_rate(rows, 'bootstrap share', pairs)} | "
            f"{_rate(rows, 'bootstrap called', equal)} |"
        )
    return lines


def answer(rows: Sequence[Row]) -> str:
    """Rates by number of animals, by effect, by design and by shares, and the extreme cells."""

    def where(name: str, value: Any, among: Sequence[Row]) -> list[Row]:
        return [row for row in among if row["item"][name] == value]

    def grouped(name: str, values: Any, word: str, among: Sequence[Row]) -> dict[str, list[Row]]:
        groups = {f"{value}{word}": where(name, value, among) for value in values}
        return {title: group for title, group in groups.items() if group}

    usual = [row for row in rows if row["item"]["effect"] != "few animals carry it"]
    pairs = [*EQUAL, *DIFFERENT]
    lines = _table("animals", grouped("n_animals", (3, 4, 6, 10), "", usual), pairs)
    effects = grouped("effect", EFFECTS, "", rows)
    lines += ["", *_table("how much animals differ", effects, pairs)]
    lines += ["", *_table("design", grouped("design", DESIGNS, "", usual), pairs)]
    lines += ["", *_pairs_table(usual)]
    numbers = {row["item"]["number"] for row in rows}
    seeds = len({row["item"]["seed"] for row in rows})
    extremes = (
        f"Single cells have {' or '.join(str(n * seeds) for n in sorted(numbers))} simulations. "
        "Over all cells but those where few animals carry it, the interval of the share held "
        f"the truth in {_range(_cells(usual, 'share', pairs))} %, that of the difference in "
        f"{_range(_cells(usual, 'difference', DIFFERENT))} %, and "
        f"{_range(_cells(usual, 'called', EQUAL))} % of differences were false. "
        f"{_capital(_within(usual, 'share', pairs, 'the share'))} "
        f"{_capital(_within(usual, 'difference', DIFFERENT, 'the difference'))} "
        "Where animals differ much, "
        f"{_within(where('effect', 'large', usual), 'share', pairs, 'the share')} "
        "Intervals are wider than needed where animals hardly differ, because they are never "
        "narrower than those of independent neurons, and because shares of few neurons take few "
        "values. The interval of the mean score held the truth in "
        f"{_range(_cells(usual, 'score', [(0.05, 0.05), (0.05, 0.3)]))} % where 5 % of neurons are "
        f"connected, and in {_range(_cells(usual, 'score', [(0.5, 0.5), (0.95, 0.95)]))} % where "
        "half of them or more are: few neurons decide the mean of an area where few are connected."
    )
    notes = (
        "Percent of simulated experiments, with binomial intervals of 95 %; intervals of 95 %, "
        "differences called at p <= 0.05, one pair of areas. Shares of connected neurons in the "
        "two areas: equal (0.05, 0.5, 0.95) and different (0.05 and 0.3, 0.5 and 0.75, 0.95 and "
        "0.65). Designs: 1 to 4 sessions per animal with 5 to 60 neurons per area and session "
        "(unbalanced), the same with each area missing in 35 % of sessions, 1 session with 5 to "
        "10 neurons, 2 to 4 sessions with 40 to 60. Animals differ with an intraclass correlation "
        "of 0, 0.02 or 0.2 at a share of one half, sessions of 0, 0.02 or 0.1. Bootstrap: "
        "percentiles of resampled animals, sessions and neurons, every animal counting the same. "
        "The first, third and fourth table leave out the case in which few animals carry it."
    )
    return "\n".join([*lines, "", extremes, "", notes])


def _pairs_table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| shares | share held | difference held | called different | bootstrap: share held | "
        "bootstrap: difference held |",
        "|---|---|---|---|---|---|",
    ]
    for pair in (*EQUAL, *DIFFERENT):
        names = "share", "difference", "called", "bootstrap share", "bootstrap difference"
        rates = " | ".join(_rate(rows, name, [pair]) for name in names)
        lines.append(f"| {pair[0]}, {pair[1]} | {rates} |")
    return lines


def _within(
    rows: Sequence[Row], name: str, pairs: Sequence[tuple[float, float]], words: str
) -> str:
    """How many cells lie below and above the range that chance allows 200 simulations of 95 %."""
    rates = _cells(rows, name, pairs)
    below, above = sum(rate < 0.92 for rate in rates), sum(rate > 0.98 for rate in rates)
    return f"for {words}, {below} of {len(rates)} cells lie below 92 % and {above} above 98 %."


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


if __name__ == "__main__":
    run("pooled_groups", measure, ITEMS, answer)
