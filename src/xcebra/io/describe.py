"""Describe the entries of a source in words, for `xcebra inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xcebra.data.units import column_values
from xcebra.io.assemble import could_be_neural, neural_names
from xcebra.io.contents import (
    MOST_LABEL_COLUMNS,
    Contents,
    Entry,
    Intervals,
    Series,
    Spikes,
)
from xcebra.io.epoch_choice import tags
from xcebra.io.label_choice import could_be_label
from xcebra.io.unit_choice import unit_rates


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
    details : tuple of str
        What else is known of it, one sentence each: columns of the unit table, tags of epochs,
        columns of trials.
    """

    name: str
    what: str
    when: str
    roles: tuple[str, ...]
    details: tuple[str, ...] = ()


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
        details = tuple(_details(name, entry))
        descriptions.append(Description(name, _what(entry), _when(entry), tuple(roles), details))
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
    text = f"{n:,} samples of {columns} {'column' if columns == 1 else 'columns'}, {kind}"
    if entry.info.unit:
        text += f" ({entry.info.unit})"
    if entry.container:
        text += f", in {entry.container}"
    missing = _n_missing(entry)
    return text + (f", {missing:,} missing" if missing else "")


def _n_missing(entry: Series) -> int:
    """Number of samples at which a label is missing; activity is not searched."""
    if entry.activity or entry.values.shape[1] > MOST_LABEL_COLUMNS:
        return 0
    values = np.asarray(entry.values[...])
    if values.dtype.kind == "f":
        return int(np.isnan(values).any(axis=1).sum())
    return int((values == "").any(axis=1).sum()) if values.dtype.kind == "U" else 0


def _details(name: str, entry: Entry) -> Iterator[str]:
    """Yield sentences about what a table in the source says of units, trials or epochs."""
    if isinstance(entry, Intervals):
        for column, values in entry.columns.items():
            texts = [text for text in values.tolist() if text] if column == "tags" else []
            if column == "tags" and len(entry) == 1:
                continue  # there is nothing to choose from
            if texts:
                use = f"choose them with --epochs, as in --epochs {next(iter(tags(entry)))}"
            else:
                use = f"a label: {name}/{column}"
            yield f"{column} ({column_values(values)}); {use}"
        return
    if entry.units:
        known = ", ".join(
            f"{column} ({column_values(values)})" for column, values in entry.units.items()
        )
        yield f"known of each unit: {known}"
    is_counts = isinstance(entry, Series) and entry.values.shape[1] > MOST_LABEL_COLUMNS
    if is_counts or (isinstance(entry, Spikes) and (entry.support or entry.start < entry.stop)):
        rates = unit_rates(entry)
        if rates is None:
            return
        yield f"rates: {rates.min():.2g} to {rates.max():.3g} spikes per second"
    if isinstance(entry, Series) and len(entry.columns) > 1 and not _only_numbers(entry.columns):
        yield f"columns: {_few(entry.columns)}"


def _only_numbers(names: tuple[str, ...]) -> bool:
    """Whether names of columns are only their positions."""
    return names == tuple(map(str, range(len(names))))


def _few(names: tuple[str, ...], most: int = 6) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:2])} ... {names[-1]}"


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
