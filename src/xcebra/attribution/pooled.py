"""PooledMaps: the maps of several sessions and animals, and what can be said of all together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.followed import FollowedNeurons, followed_neurons
from xcebra.attribution.groups import GroupBy
from xcebra.attribution.pooled_groups import PooledGroups, called_connected, pooled_groups
from xcebra.attribution.tables import as_table
from xcebra.caveats import PoolingWarning, warn
from xcebra.common.checks import raise_if
from xcebra.common.errors import InputError, Problem
from xcebra.common.files import atomically, safe_name

if TYPE_CHECKING:
    from pandas import DataFrame

# The file of a folder that names the sessions and their files. Map files count only if they are
# named in it, so that a folder is either complete or not there.
_INDEX = "pooled.json"
_KIND = "xcebra-pooled-maps"
_FORMAT_VERSION = 1
# What must be the same for scores of different maps to have the same unit.
_ALIKE = ("method", "units", "aggregate")


@dataclass(frozen=True, eq=False)
class PooledMaps(Mapping[str, AttributionMap]):
    """The maps of several sessions. It is immutable, and a mapping from sessions to maps.

    Parameters
    ----------
    maps : mapping of str to AttributionMap
        The map of each session. Sessions may have different neurons and different blocks.
    animals : mapping of str to str, or None
        The animal of each session. None if each session counts as independent of all others.
    days : mapping of str to float or str, or None
        The day of each session, as numbers or as text that can be sorted, such as ``"2024-05-01"``.

    Examples
    --------
    >>> import numpy as np, xcebra
    >>> block = {"heading": slice(0, 1)}
    >>> maps = {
    ...     day: xcebra.AttributionMap(
    ...         np.ones((2, 1)), {"heading": np.array([score, 0.0])}, block, ("a", "b"), ("z",),
    ...         units={"area": ["adn", "ca1"]},
    ...     )
    ...     for day, score in (("monday", 1.0), ("friday", 1.5))
    ... }
    >>> pooled = xcebra.pool(maps)
    >>> pooled
    PooledMaps(2 sessions, 4 neurons, blocks ['heading'])
    >>> pooled.by("area").groups["heading"][0].score.value
    1.25
    """

    maps: Mapping[str, AttributionMap]
    animals: Mapping[str, str] | None = None
    days: Mapping[str, float | str] | None = None

    def __post_init__(self) -> None:
        _check_maps(self.maps)
        sessions = list(self.maps)
        set_ = object.__setattr__
        set_(self, "maps", MappingProxyType(dict(self.maps)))
        problems: list[str] = []
        for name, kind in (("animals", "the name of an animal"), ("days", "a number or text")):
            values = getattr(self, name)
            if values is None:
                continue
            _check_sessions(name, values, sessions, kind, problems)
            if not problems:
                plain = {session: _plain(values[session]) for session in sessions}
                if name == "animals":
                    plain = {session: str(animal) for session, animal in plain.items()}
                set_(self, name, MappingProxyType(plain))
        raise_if(problems)

    def __getitem__(self, session: str) -> AttributionMap:
        if session not in self.maps:
            raise KeyError(f"there is no session {session!r}; there are {list(self.maps)}")
        return self.maps[session]

    def __iter__(self) -> Iterator[str]:
        return iter(self.maps)

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks that one or more sessions have."""
        return tuple(dict.fromkeys(block for amap in self.maps.values() for block in amap.blocks))

    def by(self, column: GroupBy, *, alpha: float = 0.05, level: float = 0.95) -> PooledGroups:
        """Summarise all sessions by groups of neurons, and compare the groups.

        Every animal counts the same, and within an animal every neuron counts the same. Intervals
        and differences are about other animals like these: the animals are the independent
        observations, and neurons of one animal or session are not. A group that was recorded in
        one animal only has an interval over sessions, and one of a single session has the interval
        of independent neurons; the result says so.

        Parameters
        ----------
        column : str or sequence of str
            Column of the unit tables of all sessions, such as the area; or several, whose
            combinations of values are the groups.
        alpha : float
            False discovery rate of the neurons that count as connected, in each session, and of
            the differences that are called, over all pairs of groups of a block.
        level : float
            Confidence level of intervals.

        Returns
        -------
        PooledGroups
            For every block and group, the share of connected neurons, the mean score and the mean
            share of variance, each with its interval; and for every pair of groups their
            differences.

        Warns
        -----
        PoolingWarning
            If intervals do not hold for other animals or sessions, or if sessions are left out.
        """
        result = pooled_groups(self.maps, self.animals, column, alpha=alpha, level=level)
        for caution in result.cautions:
            warn(caution, PoolingWarning, "animals")
        return result

    def followed(self, column: str, *, alpha: float = 0.05, level: float = 0.95) -> FollowedNeurons:
        """Follow the same neurons over several sessions of an animal.

        Parameters
        ----------
        column : str
            Column of the unit tables that identifies a neuron in all sessions of one animal.
            Neurons without a value are not followed, nor are those of a single session.
        alpha : float
            False discovery rate of the neurons that count as connected, in each session.
        level : float
            Confidence level of the interval of the mean change. Intervals of single neurons are
            those of the test, of 95 %.

        Returns
        -------
        FollowedNeurons
            For every block and neuron, its scores and shares of variance in the order of days, and
            the change from the first to the last of its sessions; and the mean change.

        Warns
        -----
        PoolingWarning
            If the interval of the mean change does not hold for other animals.
        """
        result = followed_neurons(
            self.maps, self.animals, self.days, column, alpha=alpha, level=level
        )
        for caution in result.cautions:
            warn(caution, PoolingWarning, "animals")
        return result

    def to_pandas(self, *, alpha: float = 0.05) -> DataFrame:
        """Convert to a table with one row for each session, neuron and block.

        The columns are ``session``, ``animal`` and ``day`` if they are known, ``neuron``,
        ``block``, ``score``, the results of the test (``connected``, ``share``, ``share_low``,
        ``share_high``, ``p_value``), which are missing where there was no test, and what is known
        of the neurons. ``connected`` is also missing where the test does not hold.

        Parameters
        ----------
        alpha : float
            False discovery rate of the neurons that count as connected, in each session.
        """
        rows: list[dict[str, Any]] = []
        for session, amap in self.maps.items():
            start: dict[str, Any] = {"session": session}
            if self.animals is not None:
                start["animal"] = self.animals[session]
            if self.days is not None:
                start["day"] = self.days[session]
            for block in amap.blocks:
                rows += _table_rows(start, amap, block, alpha)
        return as_table(rows, truths=["connected"])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write one map file for each session, and an index, to a folder.

        A folder that holds pooled maps already is replaced by the new ones. If writing fails, it
        still holds the old ones.

        Parameters
        ----------
        folder : path
            It is created if it does not exist; the folder that it is in must exist.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"folder={str(folder)!r} is a file; give a folder", ("folder",))
        folder.mkdir(exist_ok=True)
        index = folder / _INDEX
        before = _file_names(_read_index(index)) if index.is_file() else ()
        taken = [path.name for path in folder.iterdir()]
        names: dict[str, str] = {}
        for session in self.maps:
            names[session] = safe_name(session, (*taken, *names.values()), ".nc")
        try:
            for session, name in names.items():
                self.maps[session].save(folder / name)
            with atomically(index) as temporary:
                temporary.write_text(self._index(names), encoding="utf-8")
        except BaseException:
            _remove(folder, names.values())
            raise
        _remove(folder, before)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> PooledMaps:
        """Read pooled maps written by `save`.

        Parameters
        ----------
        folder : path
        """
        index = Path(folder) / _INDEX
        if not index.is_file():
            raise FileNotFoundError(
                f"there is no file {str(index)!r}: {str(folder)!r} holds no pooled maps"
            )
        sessions = _read_index(index)
        names = _file_names(sessions)
        maps = {
            entry["name"]: AttributionMap.load(Path(folder) / name)
            for entry, name in zip(sessions, names, strict=True)
        }
        others = {
            field: {entry["name"]: entry[key] for entry in sessions if key in entry}
            for field, key in (("animals", "animal"), ("days", "day"))
        }
        return cls(maps, others["animals"] or None, others["days"] or None)

    def _index(self, names: Mapping[str, str]) -> str:
        """Content of the index of a folder, for the name of each session's map file."""
        sessions = []
        for session, name in names.items():
            entry: dict[str, Any] = {"name": session, "file": name}
            if self.animals is not None:
                entry["animal"] = self.animals[session]
            if self.days is not None:
                entry["day"] = self.days[session]
            sessions.append(entry)
        described = {"kind": _KIND, "format_version": _FORMAT_VERSION, "sessions": sessions}
        return json.dumps(described, indent=2, ensure_ascii=False) + "\n"

    def __repr__(self) -> str:
        n_neurons = sum(len(amap.neuron_names) for amap in self.maps.values())
        n_animals = "" if self.animals is None else f" of {len(set(self.animals.values()))} animals"
        return (
            f"PooledMaps({len(self)} sessions{n_animals}, {n_neurons} neurons, "
            f"blocks {list(self.blocks)})"
        )

    def __str__(self) -> str:
        lines = [repr(self)]
        for session, amap in self.maps.items():
            known = [] if self.animals is None else [f"animal {self.animals[session]}"]
            known += [] if self.days is None else [f"day {self.days[session]}"]
            known.append(f"{len(amap.neuron_names)} neurons")
            known.append(f"blocks {', '.join(amap.blocks)}")
            lines.append(f"  {session}: {'; '.join(known)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings cannot be pickled. `__post_init__` makes the plain ones read-only.
        known = (values and dict(values) for values in (self.animals, self.days))
        return type(self), (dict(self.maps), *known)


def pool(
    maps: Mapping[str, AttributionMap],
    animals: Mapping[str, str] | None = None,
    days: Mapping[str, float | str] | None = None,
) -> PooledMaps:
    """Pool the maps of several sessions and animals.

    Parameters
    ----------
    maps : mapping of str to AttributionMap
        The map of each session, by the name of the session. The maps may come from models that
        were fitted separately or together. Sessions may have different neurons and blocks, but all
        maps must be made by the same method.
    animals : mapping of str to str, optional
        The animal of each session. Without it, each session counts as independent of all others,
        which sessions of one animal are not.
    days : mapping of str to float or str, optional
        The day of each session, which orders sessions in `PooledMaps.followed`.

    Returns
    -------
    PooledMaps

    Examples
    --------
    >>> maps = {"a1": first_map, "a2": second_map, "b1": third_map}      # doctest: +SKIP
    >>> pooled = xcebra.pool(maps, {"a1": "ann", "a2": "ann", "b1": "bob"})  # doctest: +SKIP
    >>> print(pooled.by("area"))                                         # doctest: +SKIP
    """
    return PooledMaps(maps, animals, days)


def _check_maps(maps: Any) -> None:
    if not isinstance(maps, Mapping):
        raise InputError(
            f"maps must be a mapping from the names of sessions to attribution maps, got "
            f"{type(maps).__name__}; write {{'day1': first_map, 'day2': second_map}}",
            ("maps",),
        )
    if not maps:
        raise InputError("maps is empty; give the map of one or more sessions", ("maps",))
    problems: list[str] = []
    for session, amap in maps.items():
        if not isinstance(session, str) or not session.strip():
            problems.append(Problem(f"maps has the key {session!r}; name sessions by text", "maps"))
        if not isinstance(amap, AttributionMap):
            problems.append(
                Problem(
                    f"maps[{session!r}] must be an AttributionMap, got {type(amap).__name__}; make "
                    "it with model.attribute(..., test=True)",
                    "maps",
                )
            )
    raise_if(problems)
    for name in _ALIKE:
        made = {session: amap.made.get(name) for session, amap in maps.items()}
        first = next(iter(made))
        other = next((session for session in made if made[session] != made[first]), None)
        if other is not None:
            raise InputError(
                f"maps must be made alike, so that their scores have the same unit, but {name} is "
                f"{made[first]!r} for session {first!r} and {made[other]!r} for {other!r}; make "
                f"all with the same {name}",
                ("maps",),
            )


def _check_sessions(
    name: str, values: Any, sessions: list[str], kind: str, problems: list[str]
) -> None:
    """Check that a mapping has one value for each session, and for no other."""
    if not isinstance(values, Mapping):
        text = f"{name} must be a mapping from each session to {kind}, got {type(values).__name__}"
        problems.append(Problem(text, name))
        return
    unknown = [session for session in values if session not in sessions]
    missing = [session for session in sessions if session not in values]
    if unknown:
        text = f"{name} names {unknown}, which maps does not have; its sessions are {sessions}"
        problems.append(Problem(text, name))
    if missing:
        text = f"{name} has no entry for {missing}; give all sessions, or leave {name} out"
        problems.append(Problem(text, name))
    for session in sessions:
        value = values.get(session, "known")
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and np.isfinite(value)
        if isinstance(value, bool) or not (is_number or (isinstance(value, str) and value.strip())):
            text = f"{name}[{session!r}] must be {kind}, got {value!r}"
            if hasattr(value, "isoformat"):
                text += f"; write it as text, {value.isoformat()!r}"
            problems.append(Problem(text, name))


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python, which can be written as JSON."""
    return value.item() if isinstance(value, np.generic) else value


def _table_rows(
    start: Mapping[str, Any], amap: AttributionMap, block: str, alpha: float
) -> Iterator[dict[str, Any]]:
    """Rows of the neurons of one session and block."""
    tested = amap.connections.get(block)
    connected = called_connected(amap, block, alpha)
    for i, neuron in enumerate(amap.neuron_names):
        row = {
            **start,
            "neuron": neuron,
            "block": block,
            "score": amap.scores[block][i],
            "connected": None if connected is None else bool(connected[i]),
            "share": np.nan if tested is None else tested.share[i],
            "share_low": np.nan if tested is None else tested.low[i],
            "share_high": np.nan if tested is None else tested.high[i],
            "p_value": np.nan if tested is None else tested.p_values[i],
        }
        for name, values in amap.units.items():
            row[f"unit_{name}" if name in row else name] = values[i]
        yield row


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _read_index(path: Path) -> list[dict[str, Any]]:
    """Entries of the sessions in the index of a folder."""
    problem = "is damaged or not an index of pooled maps; write the folder again"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        if described["kind"] == _KIND:
            number = int(described["format_version"])
            if number <= _FORMAT_VERSION:
                return [
                    {**entry, "name": str(entry["name"]), "file": str(entry["file"])}
                    for entry in described["sessions"]
                ]
            problem = (
                f"has format version {number}, but this version of xcebra knows "
                f"{_FORMAT_VERSION} at most; upgrade xcebra"
            )
    except (KeyError, TypeError, ValueError):
        pass
    raise InputError(f"{str(path)!r} {problem}")


def _file_names(sessions: list[dict[str, Any]]) -> tuple[str, ...]:
    """Names of the map files, without folders, so that no file outside is read or removed."""
    return tuple(Path(entry["file"]).name for entry in sessions)
