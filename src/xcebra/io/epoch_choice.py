"""Choose epochs: by the name of intervals in the source, by a tag of them, or in seconds."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs
from xcebra.io.contents import Contents, Intervals, Series
from xcebra.io.lookup import one_line, spell


def choose_epochs(contents: Contents, epochs: Any) -> Intervals | None:
    """Return epochs in seconds, or None if they are not given or are in samples.

    Parameters
    ----------
    contents : Contents
    epochs : str, list of (start, stop), Intervals, Epochs or None
        A name is that of intervals in the source, or a text in one of their columns, such as a tag
        or the outcome of trials. Conditions are evaluated by `io.epoch_condition`.
    """
    if epochs is None or isinstance(epochs, (Intervals, Epochs)):
        return epochs if isinstance(epochs, Intervals) else None
    if isinstance(epochs, str):
        return _named(contents, epochs)
    try:
        table = np.array([tuple(pair) for pair in epochs], dtype=float)
        if table.ndim != 2 or table.shape[1:] != (2,):
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(
            f"epochs must be a name, or a list of (start, stop) in seconds; got {one_line(epochs)}"
        ) from None
    try:
        return Intervals(table[:, 0], table[:, 1])
    except InputError as error:
        raise InputError(f"epochs: {error}", ("epochs",)) from None


def tags(intervals: Intervals) -> dict[str, NDArray[np.bool_]]:
    """Return the texts in the columns of intervals, and which intervals have each of them.

    Several texts of one interval are separated by commas.
    """
    found: dict[str, NDArray[np.bool_]] = {}
    for column in intervals.columns.values():
        if column.dtype.kind != "U":
            continue
        for i, text in enumerate(column.tolist()):
            for tag in filter(None, map(str.strip, text.split(","))):
                found.setdefault(tag, np.zeros(len(intervals), dtype=bool))[i] = True
    return found


def find_intervals(contents: Contents, name: str) -> dict[str, Intervals]:
    """Return the intervals that a name stands for, by the name of the list that they are in.

    These are the intervals of this name, or those that have it as a tag. The result has several
    elements if several lists have such a tag, and is empty if nothing has this name.
    """
    lists = _lists(contents)
    if name in lists:
        return {name: lists[name]}
    chosen = {}
    for list_name, entry in lists.items():
        inside = tags(entry).get(name)
        if inside is not None:
            columns = {key: values[inside] for key, values in entry.columns.items()}
            chosen[list_name] = Intervals(entry.starts[inside], entry.stops[inside], columns)
    return chosen


def _lists(contents: Contents) -> dict[str, Intervals]:
    return {name: entry for name, entry in contents.entries.items() if isinstance(entry, Intervals)}


def _named(contents: Contents, name: str) -> Intervals:
    """Return the intervals of this name, or those that have it as a tag."""
    if name in contents.unread:
        raise InputError(
            f"{contents.origin}: epochs={name!r} cannot be used: {contents.unread[name]}",
            ("epochs",),
        )
    chosen = find_intervals(contents, name)
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    if chosen:
        raise InputError(
            f"{contents.origin}: epochs={name!r} is a tag in {spell(chosen)}; name the intervals, "
            "or give them in seconds",
            ("epochs",),
        )
    lists = _lists(contents)
    all_tags = sorted({tag for entry in lists.values() for tag in tags(entry)})
    near = get_close_matches(name, [*lists, *all_tags], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    has = f"it has {spell(lists)}" if lists else f"it has {spell(contents.entries)}, no intervals"
    has += f" with the tags {spell(all_tags)}" if all_tags else ""
    problem = "is not in it"
    if name in contents.entries:
        problem = "is not a list of intervals"
        has = has if lists else "it has none"
        if isinstance(contents.entries[name], Series):
            has += f"; a series stands in a condition, such as '{name} > 0'"
    raise InputError(
        f"{contents.origin}: epochs={name!r} {problem}; {hint}{has}",
        ("epochs",),
    )
