"""Describe the entries of a source in words, for `xcebra inspect`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcebra.io.assemble import could_be_label, could_be_neural, neural_names
from xcebra.io.contents import Contents, Entry, Intervals, Series, Spikes


@dataclass(frozen=True)
class Description:
    """Description of one entry in words.

    Parameters
    ----------
    name : str
    what : str
        Its kind and size.
    when : str
        Its range and rate in time.
    roles : tuple of str
        What it could be: ``"neural"``, ``"label"``, ``"epochs"``.
    """

    name: str
    what: str
    when: str
    roles: tuple[str, ...]


def describe(contents: Contents) -> list[Description]:
    """Describe every entry of a source, and what it could be."""
    try:
        chosen = neural_names(contents, None)
        activity: Entry | None = contents.entries[chosen[0]]
    except ValueError:
        chosen, activity = [], None
    descriptions = []
    for name, entry in contents.entries.items():
        roles = []
        if name in chosen or (not chosen and could_be_neural(entry)):
            roles.append("neural")
        if name not in chosen and could_be_label(entry, activity):
            roles.append("label")
        if isinstance(entry, Intervals):
            roles.append("epochs")
        descriptions.append(Description(name, _what(entry), _when(entry), tuple(roles)))
    descriptions += [
        Description(name, f"cannot be used: {reason}", "", ())
        for name, reason in contents.unread.items()
    ]
    return descriptions


def _what(entry: Entry) -> str:
    if isinstance(entry, Spikes):
        n = sum(len(train) for train in entry.trains.values())
        return f"spike times of {len(entry.trains)} units, {n:,} spikes"
    if isinstance(entry, Intervals):
        noun = "interval" if len(entry) == 1 else "intervals"
        return f"{len(entry)} {noun}, {_seconds(float((entry.stops - entry.starts).sum()))}"
    n, columns = entry.values.shape
    words = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "truth values"}
    kind = words.get(entry.values.dtype.kind, "names")
    return f"{n:,} samples of {columns} {'column' if columns == 1 else 'columns'}, {kind}"


def _when(entry: Entry) -> str:
    if isinstance(entry, Spikes):
        return f"{entry.start:.6g} s to {entry.stop:.6g} s"
    if isinstance(entry, Intervals):
        # Adding zero turns a negative zero, which comes from rounding, into zero.
        return f"{entry.starts[0] + 0.0:.6g} s to {entry.stops[-1]:.6g} s"
    if entry.times is None:
        return "no times"
    rate = 1 / entry.interval
    return f"{entry.times[0]:.6g} s to {entry.times[-1]:.6g} s, {rate:.4g} Hz{_gaps(entry)}"


def _gaps(entry: Series) -> str:
    """Return the number of gaps across which a label is not interpolated (see `io.clock`)."""
    assert entry.times is not None
    n = int((np.diff(entry.times) > 5 * entry.interval).sum())
    return f", {n} gap{'s' * (n > 1)}" if n else ""


def _seconds(value: float) -> str:
    return f"{value:.4g} s in all"
