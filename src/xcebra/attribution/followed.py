"""The same neurons over several sessions of an animal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.pooled_groups import Over, PooledEstimate, called_connected
from xcebra.attribution.tables import as_table
from xcebra.common.errors import InputError
from xcebra.statistics.hierarchical import Estimate, cluster_means, mean_interval

if TYPE_CHECKING:
    from pandas import DataFrame

    from xcebra.attribution.attribution_map import AttributionMap

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class FollowedNeuron:
    """One neuron in several sessions, for one block.

    Parameters
    ----------
    name : str
        Value of the column that identifies the neuron.
    animal : str
    sessions : tuple of str
        Two or more sessions, in the order of days.
    days : tuple of float or str
    neuron_names : tuple of str
        The neuron's name in each session.
    scores : ndarray of shape (n_sessions,)
    shares, low, high : ndarray of shape (n_sessions,)
        Share of the neuron's variance that only this block explains, and its interval of 95 %; NaN
        for sessions in which the block was not tested.
    connected : tuple of bool or None
        Whether the neuron is called connected in each session; None where this cannot be said.
    """

    name: str
    animal: str
    sessions: tuple[str, ...]
    days: tuple[float | str, ...]
    neuron_names: tuple[str, ...]
    scores: Array
    shares: Array
    low: Array
    high: Array
    connected: tuple[bool | None, ...]

    @property
    def score_change(self) -> float:
        """Score in the last session minus score in the first."""
        return float(self.scores[-1] - self.scores[0])

    @property
    def share_change(self) -> Estimate:
        """Share of variance in the last session minus the first, with an interval of 95 %.

        The noise of two sessions is independent, so that the half-widths of their intervals are
        combined in quadrature. It is NaN if one of the two sessions was not tested.
        """
        change = float(self.shares[-1] - self.shares[0])
        below, above = self.shares - self.low, self.high - self.shares
        low = change - float(np.hypot(below[-1], above[0]))
        high = change + float(np.hypot(above[-1], below[0]))
        return Estimate(change, low, high)


@dataclass(frozen=True)
class MeanChange:
    """Mean change of all followed neurons for one block, from first to last session.

    Parameters
    ----------
    n_neurons, n_animals : int
    score : PooledEstimate
        Mean change of the score.
    share : PooledEstimate or None
        Mean change of the share of variance over the neurons that were tested in both sessions.
    """

    n_neurons: int
    n_animals: int
    score: PooledEstimate
    share: PooledEstimate | None

    def in_words(self) -> str:
        """One sentence about the change."""
        neurons = "1 neuron" if self.n_neurons == 1 else f"{self.n_neurons} neurons"
        animals = "1 animal" if self.n_animals == 1 else f"{self.n_animals} animals"
        text = f"{neurons} of {animals} followed, mean change of the score"
        text += f" {self.score.value:+.3g}{_ends(self.score, 1)}"
        if self.share is not None:
            text += f", of the share of variance {100 * self.share.value:+.2g} points"
            text += _ends(self.share, 100)
        return text


@dataclass(frozen=True, kw_only=True)
class FollowedNeurons:
    """Neurons that were recorded in several sessions, for every block.

    Parameters
    ----------
    column : str
        Column of the unit tables that identifies neurons.
    neurons : mapping of str to tuple of FollowedNeuron
        For each block, its neurons, by animal and name.
    changes : mapping of str to MeanChange
        For each block, the mean change over all neurons.
    level : float
        Confidence level of the intervals of mean changes.
    cautions : tuple of str
        What limits the conclusions, in sentences.
    """

    column: str
    neurons: Mapping[str, tuple[FollowedNeuron, ...]]
    changes: Mapping[str, MeanChange]
    level: float = 0.95
    cautions: tuple[str, ...] = ()

    def to_pandas(self) -> DataFrame:
        """Convert to a table with one row for each block, neuron and session."""
        rows = [
            {
                "block": block,
                "animal": followed.animal,
                self.column: followed.name,
                "session": followed.sessions[i],
                "day": followed.days[i],
                "neuron": followed.neuron_names[i],
                "score": followed.scores[i],
                "connected": followed.connected[i],
                "share": followed.shares[i],
                "share_low": followed.low[i],
                "share_high": followed.high[i],
            }
            for block, neurons in self.neurons.items()
            for followed in neurons
            for i in range(len(followed.sessions))
        ]
        return as_table(rows, truths=["connected"])

    def changes_to_pandas(self) -> DataFrame:
        """Convert to a table with one row for each block and neuron: the last minus the first."""
        rows = []
        for block, neurons in self.neurons.items():
            for followed in neurons:
                share = followed.share_change
                rows.append(
                    {
                        "block": block,
                        "animal": followed.animal,
                        self.column: followed.name,
                        "first_session": followed.sessions[0],
                        "last_session": followed.sessions[-1],
                        "score_change": followed.score_change,
                        "share_change": share.value,
                        "share_change_low": share.low,
                        "share_change_high": share.high,
                    }
                )
        return as_table(rows)

    def __str__(self) -> str:
        lines = [f"{block}: {change.in_words()}" for block, change in self.changes.items()]
        return "\n".join([*lines, *self.cautions])


def followed_neurons(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str] | None,
    days: Mapping[str, float | str] | None,
    column: str,
    *,
    alpha: float = 0.05,
    level: float = 0.95,
) -> FollowedNeurons:
    """Follow neurons that a column of the unit tables identifies in several sessions of an animal.

    Parameters
    ----------
    maps : mapping of str to AttributionMap
        The map of each session.
    animals : mapping of str to str
        The animal of each session.
    days : mapping of str to float or str
        The day of each session.
    column : str
    alpha : float
        False discovery rate of the neurons that count as connected, in each session.
    level : float
        Confidence level of the intervals of mean changes.
    """
    for name, value in (("alpha", alpha), ("level", level)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie between 0 and 1, got {value!r}", (name,))
    if animals is None:
        raise InputError(
            "followed needs the animal of each session, because names of neurons are those of one "
            "animal; give xcebra.pool(maps, animals={'day1': 'mouse1', ...})",
            ("animals",),
        )
    if days is None:
        raise InputError(
            "followed needs the day of each session, which orders sessions; give "
            "xcebra.pool(maps, animals, days={'day1': 1, ...})",
            ("days",),
        )
    ordered = _in_order(list(maps), animals, days)
    places = _places(maps, animals, ordered, column)
    blocks = dict.fromkeys(block for amap in maps.values() for block in amap.blocks)
    neurons, changes = {}, {}
    for block in blocks:
        called = {
            session: called_connected(amap, block, alpha)
            for session, amap in maps.items()
            if block in amap.blocks
        }
        followed = [
            _follow(maps, days, called, block, key, in_sessions)
            for key, in_sessions in places.items()
            if sum(session in called for session, _ in in_sessions) > 1
        ]
        if followed:
            neurons[block] = tuple(followed)
            changes[block] = _mean_change(followed, level)
    if not neurons:
        raise InputError(
            f"column={column!r} registers no neuron in two or more sessions of one animal; give a "
            "column with the same value for the same neuron in each session",
            ("column",),
        )
    n_animals = len({followed.animal for rows in neurons.values() for followed in rows})
    cautions = () if n_animals > 1 else (
        "Neurons of one animal were followed: the interval of the mean change is as if they were "
        "independent, and says nothing about other animals.",
    )  # fmt: skip
    return FollowedNeurons(
        column=column, neurons=neurons, changes=changes, level=level, cautions=cautions
    )


def day_key(day: float | str) -> list[Any]:
    """Return a key that sorts days. Numbers inside text are compared as numbers."""
    if not isinstance(day, str):
        return [day]
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", day)
        if part
    ]


def _in_order(
    sessions: list[str], animals: Mapping[str, str], days: Mapping[str, float | str]
) -> list[str]:
    """Sessions in the order of their days."""
    texts = [session for session in sessions if isinstance(days[session], str)]
    if texts and len(texts) < len(sessions):
        other = next(session for session in sessions if session not in texts)
        raise InputError(
            f"days cannot be sorted: {days[texts[0]]!r} is text and {days[other]!r} is a number; "
            "give either numbers or text",
            ("days",),
        )

    ordered = sorted(sessions, key=lambda session: day_key(days[session]))
    seen: dict[tuple[str, Any], str] = {}
    for session in ordered:
        key = animals[session], days[session]
        if key in seen:
            raise InputError(
                f"days has {days[session]!r} for sessions {seen[key]!r} and {session!r} of animal "
                f"{animals[session]!r}, so that they have no order; give them different days, such "
                "as 1 and 1.5",
                ("days",),
            )
        seen[key] = session
    return ordered


def _places(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str],
    ordered: list[str],
    column: str,
) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Sessions and positions of each neuron, by animal and value of the column."""
    if not any(column in amap.units for amap in maps.values()):
        known = list(dict.fromkeys(name for amap in maps.values() for name in amap.units))
        raise InputError(
            f"column={column!r} is no column of the units of any session; the units have {known}",
            ("column",),
        )
    places: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for session in ordered:
        amap = maps[session]
        seen: dict[str, int] = {}
        for i, name in enumerate(_registered(amap.units.get(column))):
            if name is None:
                continue
            if name in seen:
                twice = amap.neuron_names[seen[name]], amap.neuron_names[i]
                raise InputError(
                    f"column={column!r} has {name!r} for neurons {twice[0]!r} and {twice[1]!r} of "
                    f"session {session!r}; it must identify one neuron in each session",
                    ("column",),
                )
            seen[name] = i
            places.setdefault((animals[session], name), []).append((session, i))
    return dict(sorted(places.items()))


def _registered(values: NDArray[Any] | None) -> list[str | None]:
    """Values of a column as text; None where they are missing."""
    if values is None:
        return []
    if values.dtype.kind == "f":
        return [None if np.isnan(v) else str(v).removesuffix(".0") for v in values.tolist()]
    return [text or None for text in values.astype(str).tolist()]


def _follow(
    maps: Mapping[str, AttributionMap],
    days: Mapping[str, float | str],
    called: Mapping[str, NDArray[np.bool_] | None],
    block: str,
    key: tuple[str, str],
    in_sessions: list[tuple[str, int]],
) -> FollowedNeuron:
    """Collect what is known of one neuron in the sessions that have the block."""
    present = [(session, i) for session, i in in_sessions if session in called]
    tests = []
    connected: list[bool | None] = []
    for session, i in present:
        tested, calls = maps[session].connections.get(block), called[session]
        tests.append(
            (np.nan,) * 3 if tested is None else (tested.share[i], tested.low[i], tested.high[i])
        )
        connected.append(None if calls is None else bool(calls[i]))
    shares, low, high = np.array(tests, dtype=np.float64).T
    animal, name = key
    return FollowedNeuron(
        name=name,
        animal=animal,
        sessions=tuple(session for session, _ in present),
        days=tuple(days[session] for session, _ in present),
        neuron_names=tuple(maps[session].neuron_names[i] for session, i in present),
        scores=np.array([maps[session].scores[block][i] for session, i in present]),
        shares=shares,
        low=low,
        high=high,
        connected=tuple(connected),
    )


def _mean_change(followed: list[FollowedNeuron], level: float) -> MeanChange:
    animals = np.array([neuron.animal for neuron in followed])
    scores = np.array([neuron.score_change for neuron in followed])
    shares = np.array([neuron.share_change.value for neuron in followed])
    tested = np.isfinite(shares)
    return MeanChange(
        len(followed),
        len(np.unique(animals)),
        _pooled_mean(scores, animals, level),
        _pooled_mean(shares[tested], animals[tested], level) if tested.any() else None,
    )


def _pooled_mean(values: Array, animals: NDArray[Any], level: float) -> PooledEstimate:
    # A single animal is one cluster, whose neurons count as independent.
    over: Over = "animals" if len(np.unique(animals)) > 1 else "neurons"
    result = mean_interval(cluster_means(values, animals), level)
    return PooledEstimate(result.value, result.low, result.high, over)


def _ends(estimate: Estimate, factor: float) -> str:
    if np.isnan(estimate.low):
        return " (no interval)"
    return f" ({factor * estimate.low:.2g} to {factor * estimate.high:.2g})"
