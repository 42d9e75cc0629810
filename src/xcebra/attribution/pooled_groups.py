"""Groups of neurons, such as areas, over several sessions and animals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from xcebra.attribution.groups import GroupBy, group_names, group_title
from xcebra.attribution.tables import as_table
from xcebra.common.errors import InputError
from xcebra.statistics.hierarchical import (
    ClusterMeans,
    Difference,
    Estimate,
    cluster_means,
    difference_interval,
    mean_interval,
    share_interval,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from xcebra.attribution.attribution_map import AttributionMap

# What the clusters are that count as independent.
Over = Literal["animals", "sessions", "neurons"]
_MISSING = "missing"


@dataclass(frozen=True)
class PooledEstimate(Estimate):
    """A mean over animals, sessions or neurons, with its interval.

    Parameters
    ----------
    value, low, high : float
    over : {"animals", "sessions", "neurons"}
        What counts as independent. ``"animals"``: the interval holds for other animals like these.
        ``"sessions"``: it holds for other sessions like these. ``"neurons"``: it is as if neurons
        were independent, which neurons of one session are not, and says nothing beyond this
        session.
    """

    over: Over


@dataclass(frozen=True)
class PooledDifference(Difference):
    """A difference between two groups, with its interval, p-value and false discovery rate.

    Parameters
    ----------
    value, low, high, p_value : float
    over : {"animals", "sessions", "neurons"}
        What counts as independent; see `PooledEstimate`.
    q_value : float
        The p-value after the procedure of Benjamini and Hochberg over all pairs of groups of the
        block.
    alpha : float
        False discovery rate of the differences that are called.
    """

    over: Over
    q_value: float
    alpha: float

    @property
    def differs(self) -> bool:
        """Whether the groups are called different."""
        return self.q_value <= self.alpha

    @property
    def rate_in_words(self) -> str:
        """The false discovery rate at the end of a line; empty if there is none."""
        if np.isnan(self.q_value):
            return ""
        return ", q < 0.001" if self.q_value < 0.001 else f", q = {self.q_value:.2g}"


@dataclass(frozen=True)
class SessionMean:
    """Neurons of one group in one session, for one block.

    Parameters
    ----------
    session : str
    animal : str or None
        None if it was not said which animal a session belongs to.
    n_neurons : int
    connected : float
        Share of connected neurons; NaN if this cannot be said.
    score : float
        Mean score.
    variance : float
        Mean share of variance; NaN if the block was not tested.
    """

    session: str
    animal: str | None
    n_neurons: int
    connected: float
    score: float
    variance: float


@dataclass(frozen=True, kw_only=True)
class PooledGroup:
    """One group of neurons over all sessions, for one block.

    Parameters
    ----------
    group : str
        Value of the column that the neurons share; ``"missing"`` if they have none.
    n_neurons, n_sessions : int
        Neurons of the group in sessions that have the block, and these sessions.
    n_animals : int or None
        None if it was not said which animal a session belongs to.
    n_tested, n_connected : int or None
        Neurons of the sessions in which the block was tested and the test holds, and those among
        them that are called connected; None if there is no such session.
    connected : PooledEstimate or None
        Share of connected neurons.
    score : PooledEstimate
        Mean score.
    variance : PooledEstimate or None
        Mean share of the neurons' variance that only this block explains
        (`Connections.share <xcebra.statistics.significance.Connections>`).
    sessions : tuple of SessionMean
        The same of each session.
    """

    group: str
    n_neurons: int
    n_sessions: int
    n_animals: int | None
    n_tested: int | None
    n_connected: int | None
    connected: PooledEstimate | None
    score: PooledEstimate
    variance: PooledEstimate | None
    sessions: tuple[SessionMean, ...]

    @property
    def where(self) -> str:
        """Number of sessions and animals in words."""
        sessions = _count(self.n_sessions, "session")
        if self.n_animals is None:
            return sessions
        return f"{sessions} of {_count(self.n_animals, 'animal')}"

    def in_words(self) -> str:
        """One sentence about the group."""
        if self.connected is None:
            return (
                f"{self.group}: mean score {_number(self.score)} of "
                f"{_count(self.n_neurons, 'neuron')} in {self.where}"
            )
        are = "is" if self.n_tested == 1 else "are"
        mean = {"animals": "mean over animals ", "sessions": "mean over sessions "}
        return (
            f"{self.group}: {self.n_connected} of {_count(self.n_tested or 0, 'neuron')} in "
            f"{self.where} {are} connected, {mean.get(self.connected.over, '')}"
            f"{_percent(self.connected)}"
        )


@dataclass(frozen=True)
class GroupComparison:
    """Two groups of neurons, for one block.

    Parameters
    ----------
    first, second : str
    connected : PooledDifference or None
        Difference between the shares of connected neurons, first minus second.
    score : PooledDifference
        Difference between the mean scores.
    variance : PooledDifference or None
        Difference between the mean shares of variance.
    """

    first: str
    second: str
    connected: PooledDifference | None
    score: PooledDifference
    variance: PooledDifference | None

    def in_words(self) -> str:
        """One line about the difference between the shares of connected neurons, or the scores."""
        difference = self.score if self.connected is None else self.connected
        estimate: Estimate = difference
        names = f"{self.first} and {self.second}, no difference shown"
        if difference.differs:
            names = f"{self.first} more than {self.second}"
            if difference.value < 0:
                names = f"{self.second} more than {self.first}"
                estimate = Estimate(-difference.value, -difference.high, -difference.low)
        if self.connected is None:
            size = f"difference of mean scores {_number(estimate)}"
        else:
            size = (
                f"difference {round(100 * estimate.value)} points "
                f"({round(100 * estimate.low)} to {round(100 * estimate.high)})"
            )
        over = "" if difference.over == "animals" else f", over {difference.over}"
        return f"{names}: {size}{difference.rate_in_words}{over}"


@dataclass(frozen=True, kw_only=True)
class PooledGroups:
    """Groups of neurons over several sessions and animals, and their differences.

    Parameters
    ----------
    column : str
        Column of the unit tables that makes the groups; several are joined, as in
        ``"area, cell_type"``.
    groups : mapping of str to tuple of PooledGroup
        For each block, its groups, those with the largest share of connected neurons first.
    comparisons : mapping of str to tuple of GroupComparison
        For each block, every pair of its groups, without neurons that belong to no group.
    alpha : float
        False discovery rate of connected neurons in each session, and of differences.
    level : float
        Confidence level of all intervals.
    cautions : tuple of str
        What limits the conclusions, in sentences.
    """

    column: str
    groups: Mapping[str, tuple[PooledGroup, ...]]
    comparisons: Mapping[str, tuple[GroupComparison, ...]]
    alpha: float = 0.05
    level: float = 0.95
    cautions: tuple[str, ...] = ()

    def to_pandas(self) -> DataFrame:
        """Convert to a table with one row for each block and group."""
        return as_table(group_rows(self)).set_index(["block", self.column])

    def differences_to_pandas(self) -> DataFrame:
        """Convert to a table with one row for each block, pair of groups and measure.

        Measures are ``"connected"``, the share of connected neurons, ``"score"``, the mean score,
        and ``"variance"``, the mean share of variance.
        """
        return as_table(difference_rows(self))

    def __str__(self) -> str:
        lines = []
        for block, groups in self.groups.items():
            lines.append(f"{block}, by {self.column} (intervals of {100 * self.level:g} %)")
            lines += [f"  {row.in_words()}" for row in groups]
            lines += [f"  {pair.in_words()}" for pair in self.comparisons[block]]
        return "\n".join([*lines, *self.cautions])


def group_rows(groups: PooledGroups) -> list[dict[str, Any]]:
    """Return one row for each block and group."""
    return [
        {
            "block": block,
            groups.column: row.group,
            "neurons": row.n_neurons,
            "sessions": row.n_sessions,
            "animals": row.n_animals,
            "tested": row.n_tested,
            "connected": row.n_connected,
            **_ends("share_connected", "share", row.connected),
            **_ends("mean_score", "score", row.score),
            **_ends("mean_variance", "variance", row.variance),
            "over": (row.connected or row.score).over,
        }
        for block, found in groups.groups.items()
        for row in found
    ]


def difference_rows(groups: PooledGroups) -> list[dict[str, Any]]:
    """Return one row for each block, pair of groups and measure."""
    return [
        {
            "block": block,
            "first": pair.first,
            "second": pair.second,
            "measure": measure,
            "difference": difference.value,
            "low": difference.low,
            "high": difference.high,
            "p_value": difference.p_value,
            "q_value": difference.q_value,
            "differs": difference.differs,
            "over": difference.over,
        }
        for block, pairs in groups.comparisons.items()
        for pair in pairs
        for measure, difference in (
            ("connected", pair.connected),
            ("score", pair.score),
            ("variance", pair.variance),
        )
        if difference is not None
    ]


@dataclass(frozen=True, eq=False)
class _Neurons:
    """Neurons of all sessions that have a block; all fields are arrays of shape (n_neurons,).

    ``called`` and ``variance`` are NaN for neurons that were not tested. ``animals`` is None if the
    animals are not known.
    """

    groups: NDArray[Any]
    sessions: NDArray[Any]
    animals: NDArray[Any] | None
    scores: NDArray[np.float64]
    called: NDArray[np.float64]
    variance: NDArray[np.float64]

    def inside(self, group: str, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray((self.groups == group) & np.isfinite(values))

    def names_over(self, over: Over) -> NDArray[Any]:
        if over == "neurons":
            return np.full(len(self.groups), "")
        if over == "animals" and self.animals is not None:
            return self.animals
        return self.sessions

    def finest(self, chosen: list[NDArray[np.bool_]]) -> Over:
        """The highest level with two or more clusters in each of several sets of neurons."""
        levels: tuple[Over, ...] = ("animals", "sessions")
        for over in levels if self.animals is not None else levels[1:]:
            if all(len(np.unique(self.names_over(over)[rows])) > 1 for rows in chosen):
                return over
        return "neurons"

    def clusters(
        self, values: NDArray[np.float64], rows: NDArray[np.bool_], over: Over
    ) -> ClusterMeans:
        return cluster_means(values[rows], self.names_over(over)[rows])

    def estimate(
        self, group: str, values: NDArray[np.float64], level: float, shares: bool = False
    ) -> PooledEstimate | None:
        rows = self.inside(group, values)
        if not rows.any():
            return None
        over = self.finest([rows])
        interval = share_interval if shares else mean_interval
        result = interval(self.clusters(values, rows, over), level)
        return PooledEstimate(result.value, result.low, result.high, over)

    def difference(
        self, pair: tuple[str, str], values: NDArray[np.float64], level: float, shares: bool = False
    ) -> tuple[Difference, Over] | None:
        chosen = [self.inside(group, values) for group in pair]
        if not all(rows.any() for rows in chosen):
            return None
        over = self.finest(chosen)
        first, second = (self.clusters(values, rows, over) for rows in chosen)
        return difference_interval(first, second, level, shares=shares), over


def called_connected(amap: AttributionMap, block: str, alpha: float) -> NDArray[np.bool_] | None:
    """Return whether each neuron is called connected; None if this cannot be said.

    It cannot if the block was not tested, or if the test does not hold for this session because too
    many controls were called connected.

    Parameters
    ----------
    amap : AttributionMap
    block : str
    alpha : float
        False discovery rate.
    """
    tested = amap.connections.get(block)
    if tested is None or not tested.controls_hold(alpha):
        return None
    return amap.significant(block, alpha)


def pooled_groups(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str] | None,
    column: GroupBy,
    *,
    alpha: float = 0.05,
    level: float = 0.95,
) -> PooledGroups:
    """Summarise the maps of several sessions by the values of a column of their unit tables.

    Parameters
    ----------
    maps : mapping of str to AttributionMap
        The map of each session.
    animals : mapping of str to str, or None
        The animal of each session.
    column : str or sequence of str
        A column, or several, whose combinations of values are the groups.
    alpha : float
        False discovery rate of the neurons that count as connected, and of differences.
    level : float
        Confidence level of intervals.
    """
    for name, value in (("alpha", alpha), ("level", level)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie between 0 and 1, got {value!r}", (name,))
    names = {session: _session_groups(amap, session, column) for session, amap in maps.items()}
    blocks = dict.fromkeys(block for amap in maps.values() for block in amap.blocks)
    groups, comparisons = {}, {}
    for block in blocks:
        neurons = _gather(maps, animals, names, block, alpha)
        groups[block] = tuple(_groups(neurons, level))
        comparisons[block] = tuple(_comparisons(neurons, groups[block], alpha, level))
    return PooledGroups(
        column=group_title(next(iter(maps.values())).units, column),
        groups=groups,
        comparisons=comparisons,
        alpha=alpha,
        level=level,
        cautions=tuple(_cautions(maps, animals, groups, alpha)),
    )


def _session_groups(amap: AttributionMap, session: str, column: GroupBy) -> NDArray[Any]:
    try:
        return group_names(amap.units, column)
    except InputError as error:
        raise error.about(f"session {session!r}:") from None


def _gather(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str] | None,
    names: Mapping[str, NDArray[Any]],
    block: str,
    alpha: float,
) -> _Neurons:
    """Collect the neurons of all sessions that have a block."""
    present = [session for session, amap in maps.items() if block in amap.blocks]
    sizes = [len(names[session]) for session in present]
    called, variance = [], []
    for session, size in zip(present, sizes, strict=True):
        connected = called_connected(maps[session], block, alpha)
        unknown = np.full(size, np.nan)
        called.append(unknown if connected is None else connected.astype(np.float64))
        tested = maps[session].connections.get(block)
        variance.append(unknown if tested is None else tested.share)
    return _Neurons(
        np.concatenate([names[session] for session in present]),
        np.repeat(present, sizes),
        None if animals is None else np.repeat([animals[session] for session in present], sizes),
        np.concatenate([maps[session].scores[block] for session in present]),
        np.concatenate(called),
        np.concatenate(variance),
    )


def _groups(neurons: _Neurons, level: float) -> list[PooledGroup]:
    rows = []
    for group in np.unique(neurons.groups).tolist():
        inside = neurons.groups == group
        score = neurons.estimate(group, neurons.scores, level)
        if score is None:
            continue
        tested = neurons.inside(group, neurons.called)
        n_animals = None
        if neurons.animals is not None:
            n_animals = len(np.unique(neurons.animals[inside]))
        rows.append(
            PooledGroup(
                group=group,
                n_neurons=int(inside.sum()),
                n_sessions=len(np.unique(neurons.sessions[inside])),
                n_animals=n_animals,
                n_tested=int(tested.sum()) if tested.any() else None,
                n_connected=int(neurons.called[tested].sum()) if tested.any() else None,
                connected=neurons.estimate(group, neurons.called, level, shares=True),
                score=score,
                variance=neurons.estimate(group, neurons.variance, level),
                sessions=tuple(_session_means(neurons, group)),
            )
        )
    return sorted(rows, key=_rank)


def _session_means(neurons: _Neurons, group: str) -> Iterator[SessionMean]:
    for session in dict.fromkeys(neurons.sessions[neurons.groups == group].tolist()):
        rows = (neurons.groups == group) & (neurons.sessions == session)
        yield SessionMean(
            session,
            None if neurons.animals is None else str(neurons.animals[rows][0]),
            int(rows.sum()),
            *(float(v[rows].mean()) for v in (neurons.called, neurons.scores, neurons.variance)),
        )


def _rank(row: PooledGroup) -> tuple[bool, bool, float, float]:
    """Groups with the largest share of connected neurons come first, neurons without a group last.

    Groups that were not tested come after those that were, with the highest mean score first.
    """
    share = -1.0 if row.connected is None else row.connected.value
    return _is_missing(row.group), row.connected is None, -share, -row.score.value


def _is_missing(group: str) -> bool:
    """Whether the value of one of the columns that make the groups is missing."""
    return _MISSING in group.split(", ")


def _comparisons(
    neurons: _Neurons, groups: tuple[PooledGroup, ...], alpha: float, level: float
) -> Iterator[GroupComparison]:
    named = [row.group for row in groups if not _is_missing(row.group)]
    pairs = list(combinations(named, 2))
    measures = [
        [neurons.difference(pair, values, level, shares) for pair in pairs]
        for values, shares in (
            (neurons.called, True),
            (neurons.scores, False),
            (neurons.variance, False),
        )
    ]
    connected, score, variance = (_with_rates(results, alpha) for results in measures)
    for i, (first, second) in enumerate(pairs):
        of_scores = score[i]
        if of_scores is not None:
            yield GroupComparison(first, second, connected[i], of_scores, variance[i])


def _with_rates(
    results: list[tuple[Difference, Over] | None], alpha: float
) -> list[PooledDifference | None]:
    """Add false discovery rates over all differences that have a p-value."""
    p_values = np.array([np.nan if r is None else r[0].p_value for r in results])
    q_values = np.full(len(results), np.nan)
    known = np.isfinite(p_values)
    if known.any():
        q_values[known] = false_discovery_control(p_values[known])
    rated: list[PooledDifference | None] = []
    for result, q_value in zip(results, q_values.tolist(), strict=True):
        if result is None:
            rated.append(None)
            continue
        d, over = result
        rated.append(PooledDifference(d.value, d.low, d.high, d.p_value, over, q_value, alpha))
    return rated


def _cautions(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str] | None,
    groups: Mapping[str, tuple[PooledGroup, ...]],
    alpha: float,
) -> Iterator[str]:
    """Sentences about what limits the conclusions."""
    top: Over = "sessions" if animals is None else "animals"
    if len(maps) == 1:
        yield (
            "There is one session: intervals are as if neurons were independent, which neurons of "
            "one session are not, and say nothing about other sessions or animals."
        )
    elif animals is not None and len(set(animals.values())) == 1:
        yield (
            f"All sessions are of one animal, {next(iter(animals.values()))!r}: intervals hold for "
            "other sessions of this animal only, and say nothing about other animals."
        )
    else:
        for block, rows in groups.items():
            few = [row.group for row in rows if (row.connected or row.score).over != top]
            if few:
                yield (
                    f"{block}: there are too few {top} with {', '.join(map(repr, few))} for "
                    f"intervals over {top}; theirs say nothing about other {top}."
                )
    for block in groups:
        failed = [
            session
            for session, amap in maps.items()
            if block in amap.connections and called_connected(amap, block, alpha) is None
        ]
        if failed:
            yield (
                f"{block}: the shares of connected neurons leave out "
                f"{', '.join(map(repr, failed))}, where too many units that cannot be connected "
                "were called connected: the test does not hold there."
            )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.0f} % ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _number(estimate: Estimate) -> str:
    if np.isnan(estimate.low):
        return f"{estimate.value:.3g} (no interval)"
    return f"{estimate.value:.3g} ({estimate.low:.3g} to {estimate.high:.3g})"


def _ends(value: str, ends: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Columns of a table for an estimate."""
    names = value, f"{ends}_low", f"{ends}_high"
    if estimate is None:
        return dict.fromkeys(names)
    return dict(zip(names, (estimate.value, estimate.low, estimate.high), strict=True))
