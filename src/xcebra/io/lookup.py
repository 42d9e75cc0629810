"""Find entries of a source by name: whole entries, single columns of them, or patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from xcebra.common.errors import InputError, InputTypeError
from xcebra.io.contents import Contents, Entry, Intervals, IntervalValues, Series

Names = str | Sequence[str]
Part = Entry | IntervalValues


def matching(contents: Contents, asked: Names, argument: str) -> list[str]:
    """Return the names of the entries, or of columns of entries, that match.

    Parameters
    ----------
    contents : Contents
    asked : str or list of str
        Names of entries; names of columns, alone if no other entry has such a column, or as
        ``"entry/column"``; or patterns such as ``"unit_*"``.
    argument : str
        Name of the argument, for errors.

    Returns
    -------
    list of str
        Names that `part` understands, without repetitions.

    Raises
    ------
    ValueError
        If a name is not in the source, with the nearest one that is.
    """
    patterns = [asked] if isinstance(asked, str) else list(asked) if np.iterable(asked) else []
    if not patterns or not all(isinstance(p, (str, int)) for p in patterns):
        raise InputTypeError(
            f"{contents.origin}: {argument} must be a name or a list of names, got "
            f"{one_line(asked)}"
        )
    matches: list[str] = []
    for pattern in map(str, patterns):
        names = _matches(contents, pattern)
        for name in names:
            if name in contents.unread:
                raise InputError(
                    f"{contents.origin}: {argument}={pattern!r} cannot be used: "
                    f"{'' if name == pattern else f'{name!r} '}{contents.unread[name]}",
                    (argument,),
                )
        if not names:
            raise InputError(
                f"{contents.origin}: {argument}={pattern!r} is not in it; "
                f"{_nearest(contents, pattern)}it has {spell(contents.entries)}",
                (argument,),
            )
        matches += [name for name in names if name not in matches]
    return matches


def has(contents: Contents, name: str) -> bool:
    """Whether a source has an entry or a column of this name."""
    return bool(_matches(contents, name))


def part(contents: Contents, name: str) -> Part:
    """Return an entry, or one column of an entry.

    Parameters
    ----------
    contents : Contents
    name : str
        A name from `matching`.
    """
    if name in contents.entries:
        return contents.entries[name]
    for full, entry_name, column in _columns(contents):
        if full == name:
            entry = contents.entries[entry_name]
            if isinstance(entry, Intervals):
                return IntervalValues(entry, entry.columns[column])
            assert isinstance(entry, Series)
            i = entry.columns.index(column)
            single = entry.values[:, i : i + 1]
            units = {key: values[i : i + 1] for key, values in entry.units.items()}
            return replace(entry, values=single, columns=(column,), units=units)
    raise InputError(f"{contents.origin}: {name!r} is not in it")


def _columns(contents: Contents) -> Iterator[tuple[str, str, str]]:
    """Yield the full name, the entry and the name of every column that has a name."""
    for name, entry in contents.entries.items():
        if isinstance(entry, (Series, Intervals)):
            for column in entry.columns:
                yield f"{name}/{column}", name, column


def _matches(contents: Contents, pattern: str) -> list[str]:
    known = [*contents.entries, *contents.unread]
    if pattern in known:
        return [pattern]
    columns = list(_columns(contents))
    exact = [full for full, _, column in columns if pattern in (full, column)]
    if exact:
        return exact if len(exact) == 1 else []  # several entries have such a column
    return [name for name in known if fnmatchcase(name, pattern)] or [
        full
        for full, _, column in columns
        if fnmatchcase(full, pattern) or fnmatchcase(column, pattern)
    ]


def _nearest(contents: Contents, name: str) -> str:
    columns = list(_columns(contents))
    same = [full for full, _, column in columns if column == name]
    if len(same) > 1:
        return f"several entries have such a column, {spell(same)}; "
    known = [*contents.entries, *(full for full, *_ in columns), *(c for *_, c in columns)]
    lower = {candidate.lower(): candidate for candidate in reversed(known)}
    near = get_close_matches(name.lower(), lower, n=1)
    return f"did you mean {lower[near[0]]!r}? " if near else ""


def one_line(value: Any, most: int = 80) -> str:
    """Return a value as text of one line and at most ``most`` characters, for an error."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def spell(names: Iterable[str], most: int = 12) -> str:
    """Return a list of names as text, at most ``most`` of them."""
    names = list(names)
    text = ", ".join(repr(name) for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")
