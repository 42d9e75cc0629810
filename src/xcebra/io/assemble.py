"""From what a source holds to a recording: who is the activity, who are labels and epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.caveats import LabelKindWarning, warn
from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.epochs import Epochs
from xcebra.data.labels import jumps_like_angle
from xcebra.data.recording import Recording, overlap_of
from xcebra.io import clock
from xcebra.io.contents import Contents, Entry, Floats, Intervals, Series, Spikes

NEURAL = "neural"
# A series with more columns than this is not taken for a label unless it is asked for.
_MOST_COLUMNS = 8

Names = str | Sequence[str]


def assemble(
    contents: Contents,
    *,
    neural: Names | None = None,
    labels: Names | Mapping[str, Names] | None = None,
    epochs: Any = None,
    bin_size: float | None = None,
    smooth: float | None = None,
    circular: Names = (),
) -> Recording:
    """Put everything on the clock of the activity; see `xcebra.read` for the arguments."""
    problems: list[str] = []
    number(problems, "bin_size", bin_size, least=0, above=True)
    number(problems, "smooth", smooth, least=0)
    raise_if(problems)
    activity_names = neural_names(contents, neural)
    activity = _joined(contents, activity_names, "neural")
    wanted = _label_names(contents, labels, activity_names, activity)
    circular = [circular] if isinstance(circular, str) else list(circular)
    for name in circular:
        if name not in wanted:
            raise InputError(f"circular names {name!r}, but the labels are {list(wanted)}")
    given = {name: _label(contents, parts) for name, parts in wanted.items()}
    within = _intervals(contents, epochs)
    extra = contents.extra if activity_names == [contents.extra.get("of")] else {}
    spoken = f"{contents.origin}: {_spell(activity_names)}"
    overlap = 0
    try:
        series, found = _activity(
            activity, given, within, extra.get("epochs") if epochs is None else epochs, bin_size
        )
        if smooth:
            if series.times is None:
                raise InputError("has no times: smooth is in seconds and needs them")
            series = clock.smoothed(series, found, smooth)
            overlap = overlap_of(smooth / series.interval)
    except ValueError as error:
        raise InputError(f"{spoken} {error}") from None
    values = {}
    for name, label in given.items():
        if name not in circular and jumps_like_angle(label.values):
            warn(
                f"{contents.origin}: label {name!r} jumps by a whole turn, as an angle in radians "
                f"does, and was interpolated as a number; say circular={name!r} if it is one",
                LabelKindWarning,
                "circular",
            )
        try:
            values[name] = _on_clock(label, activity, series, name in circular)
        except ValueError as error:
            raise InputError(f"{contents.origin}: label {name!r} {error}") from None
    whole = isinstance(activity, Series) and len(series.values) == len(activity.values)
    try:
        return Recording(
            series.values,
            values,
            found,
            extra.get("neuron_names") or series.columns,
            extra.get("latents", {}) if whole else {},
            extra.get("ground_truth", {}),
            series.times,
            overlap,
        )
    except ValueError as error:
        raise InputError(f"{contents.origin}: {error}") from None


def neural_names(contents: Contents, asked: Names | None) -> list[str]:
    """Which entries are the activity: those asked for, or the one that nothing else can be.

    Raises
    ------
    ValueError
        If it cannot be told, with the candidates.
    """
    entries = contents.entries
    if asked is not None:
        return _matching(contents, asked, "neural")
    if NEURAL in entries or NEURAL in contents.unread:
        return _matching(contents, NEURAL, "neural")
    spikes = [name for name, entry in entries.items() if isinstance(entry, Spikes)]
    if len(spikes) == 1:
        return spikes
    said = [n for n, entry in entries.items() if isinstance(entry, Series) and entry.activity]
    if not spikes and len(said) == 1:
        return said
    could = [name for name, entry in entries.items() if could_be_neural(entry)]
    if len(entries) == 1 and could:
        return could
    among = f"it could be {_spell(could)}" if could else "nothing in it looks like activity"
    if not could and entries:
        among += f", it has {_spell(entries)}"
    for name, why in list(contents.unread.items())[:3]:
        among += f"; {name!r} cannot be used: {why}"
    raise InputError(
        f"{contents.origin}: cannot tell which of its entries is the neural activity; say "
        f"neural=NAME; {among}",
        ("neural",),
    )


def could_be_neural(entry: Entry) -> bool:
    """Whether an entry may be the activity: spikes, or numbers in more than one column."""
    if isinstance(entry, Series):
        return entry.values.dtype.kind in "fiub" and entry.values.shape[1] > 1
    return isinstance(entry, Spikes)


def could_be_label(entry: Entry, activity: Entry | None = None) -> bool:
    """Whether an entry may be a label of the activity: not too wide, and on its clock."""
    if not isinstance(entry, Series):
        return False
    if entry.values.shape[1] > _MOST_COLUMNS and not entry.label:
        return False
    if entry.values.dtype.kind not in "fiubUSO":
        return False
    if isinstance(activity, Series) and (activity.times is None or entry.times is None):
        return len(entry.values) == len(activity.values)
    if entry.times is None:
        return activity is None
    start, stop = _range(activity) if activity is not None else (-np.inf, np.inf)
    return bool(entry.times[0] < stop and entry.times[-1] > start)


def _label_names(
    contents: Contents,
    asked: Names | Mapping[str, Names] | None,
    activity_names: list[str],
    activity: Entry,
) -> dict[str, list[str]]:
    """Labels by name, each with the entries that make it up."""
    if asked is None:
        return {
            name: [name]
            for name, entry in contents.entries.items()
            if name not in activity_names and could_be_label(entry, activity)
        }
    if isinstance(asked, Mapping):
        return {
            str(name): _matching(contents, parts, f"labels[{str(name)!r}]")
            for name, parts in asked.items()
        }
    if isinstance(asked, (list, tuple)) and not asked:
        return {}
    return {name: [name] for name in _matching(contents, asked, "labels")}


def _matching(contents: Contents, asked: Names, argument: str) -> list[str]:
    """Entries with these names; ``*`` stands for anything."""
    patterns = [asked] if isinstance(asked, str) else list(asked) if np.iterable(asked) else []
    if not patterns or not all(isinstance(each, (str, int)) for each in patterns):
        raise InputTypeError(
            f"{contents.origin}: {argument} must be a name or a list of names, got "
            f"{one_line(asked)}"
        )
    found: list[str] = []
    for pattern in map(str, patterns):
        there = [*contents.entries, *contents.unread]
        names = [pattern] if pattern in there else [n for n in there if fnmatchcase(n, pattern)]
        for name in names:
            if name in contents.unread:
                raise InputError(
                    f"{contents.origin}: {argument}={pattern!r} cannot be used: "
                    f"{'' if name == pattern else f'{name!r} '}{contents.unread[name]}"
                )
        if not names:
            raise InputError(
                f"{contents.origin}: {argument}={pattern!r} is not in it; it has "
                f"{_spell(contents.entries)}"
            )
        found += [name for name in names if name not in found]
    return found


def _joined(contents: Contents, names: list[str], argument: str) -> Series | Spikes:
    """One entry, or the columns of several that share their times."""
    entries = [contents.entries[name] for name in names]
    for name, entry in zip(names, entries, strict=True):
        if isinstance(entry, Intervals):
            raise InputError(
                f"{contents.origin}: {argument}={name!r} is a list of intervals; it can be epochs, "
                f"not {argument}"
            )
    series = [entry.read() for entry in entries if isinstance(entry, Series)]
    if len(entries) == 1:
        return series[0] if series else entries[0]  # type: ignore[return-value]
    if len(series) < len(entries):
        raise InputError(
            f"{contents.origin}: {argument} names spike times beside others, {_spell(names)}; "
            "name one entry"
        )
    first = series[0]
    for name, other in zip(names, series, strict=True):
        if not _same_times(first.times, other.times) or not _same_length(first, other):
            raise InputError(
                f"{contents.origin}: {names[0]!r} and {name!r} have different times and cannot be "
                f"columns of one array; name one of them as {argument}"
            )
    columns = [
        column
        for name, each in zip(names, series, strict=True)
        for column in (
            [name]
            if each.values.shape[1] == 1
            else [f"{name}/{c}" for c in each.columns or range(each.values.shape[1])]
        )
    ]
    values = np.concatenate([each.values for each in series], axis=1)
    return Series(values, first.times, tuple(columns), any(each.activity for each in series))


def _label(contents: Contents, names: list[str]) -> Series:
    found = _joined(contents, names, "labels")
    if isinstance(found, Spikes):
        raise InputError(f"{contents.origin}: {_spell(names)} holds spike times, not a label")
    return found


def _intervals(contents: Contents, epochs: Any) -> Intervals | None:
    """Epochs in seconds; None if they are not given or are in samples."""
    if epochs is None or isinstance(epochs, (Intervals, Epochs)):
        return epochs if isinstance(epochs, Intervals) else None
    if isinstance(epochs, str):
        entry = contents.entries[_matching(contents, epochs, "epochs")[0]]
        if not isinstance(entry, Intervals):
            could = [n for n, e in contents.entries.items() if isinstance(e, Intervals)]
            have = f"it has {_spell(could)}" if could else "it has none"
            raise InputError(
                f"{contents.origin}: epochs={epochs!r} is not a list of intervals; {have}",
                ("epochs",),
            )
        return entry
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
    except ValueError as error:
        raise InputError(f"epochs: {error}") from None


def _activity(
    activity: Series | Spikes,
    labels: Mapping[str, Series],
    within: Intervals | None,
    epochs: Any,
    bin_size: float | None,
) -> tuple[Series, Epochs]:
    """The activity in bins or as it is, inside its epochs: in seconds ``within``, or in samples."""
    if isinstance(activity, Spikes):
        if bin_size is None:
            raise InputError("holds spike times; say bin_size in seconds, for instance 0.05")
        if within is None and epochs is not None:
            raise InputError("holds spike times; give epochs in seconds, not in samples")
        if within is None:
            within = _shared(activity, _support(activity), labels)
        return clock.bin_spikes(activity, within, bin_size)
    if activity.times is None:
        if bin_size is not None:
            raise InputError("has no times: bin_size is in seconds and needs them")
        if isinstance(epochs, (str, Intervals)):
            raise InputError("has no times: such epochs are in seconds and need them")
        rows = epochs if within is None else np.stack([within.starts, within.stops], 1).tolist()
        return activity, Epochs.check(rows, len(activity.values))
    rows = None
    if within is None and epochs is not None:
        rows = Epochs.check(epochs, len(activity.values))
    if bin_size is None:
        return clock.cut(activity, within) if rows is None else (activity, rows)
    if within is None:
        rows = rows or clock.stretches(activity, longest=bin_size)
        support = clock.spans(activity.times, rows, activity.interval)
        within = _shared(activity, support, labels)
    return clock.bin_series(activity, within, bin_size)


def _support(spikes: Spikes) -> Intervals:
    if spikes.support is None and spikes.start == spikes.stop:
        raise InputError(f"has spikes at {spikes.start:g} s only; say epochs, in seconds")
    return spikes.support or Intervals(np.array([spikes.start]), np.array([spikes.stop]))


def _shared(
    activity: Series | Spikes, support: Intervals, labels: Mapping[str, Series]
) -> Intervals:
    """The stretches of time in which there are activity and all labels."""
    start, stop = _range(activity)
    for name, label in labels.items():
        if label.times is not None:
            if label.times[0] >= stop or label.times[-1] <= start:
                raise InputError(
                    f"runs from {start:g} s to {stop:g} s, but label {name!r} from "
                    f"{label.times[0]:g} s to {label.times[-1]:g} s: they are not on one clock"
                )
            half = label.interval / 2
            start = max(start, float(label.times[0]) - half)
            stop = min(stop, float(label.times[-1]) + half)
    starts, stops = np.maximum(support.starts, start), np.minimum(support.stops, stop)
    inside = starts < stops
    if not inside.any():
        raise InputError("has no stretch of recording in which all labels are known; name fewer")
    return Intervals(starts[inside], stops[inside])


def _on_clock(
    label: Series, activity: Series | Spikes, series: Series, circular: bool
) -> NDArray[Any]:
    if label.times is None and isinstance(activity, Series) and _same_length(label, activity):
        label = replace(label, times=activity.times)
    if label.times is None or series.times is None:
        n = len(series.values)
        if len(label.values) != n or isinstance(activity, Spikes):
            raise InputError(
                f"has {len(label.values)} samples without times, but the neural activity has {n}; "
                "give both their times, or rows that belong together"
            )
        return label.values
    return clock.sample(label, series.times, circular)


def _range(entry: Entry) -> tuple[float, float]:
    if isinstance(entry, Spikes):
        return entry.start, entry.stop
    if isinstance(entry, Intervals):
        return float(entry.starts[0]), float(entry.stops[-1])
    if entry.times is None:
        return 0.0, float(len(entry.values))
    half = entry.interval / 2
    return float(entry.times[0]) - half, float(entry.times[-1]) + half


def _same_length(first: Series, second: Series) -> bool:
    return len(first.values) == len(second.values)


def _same_times(first: Floats | None, second: Floats | None) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.array_equal(first, second))


def one_line(value: Any, most: int = 80) -> str:
    """What a user gave, short enough for an error."""
    told = " ".join(repr(value).split())
    return told if len(told) <= most else told[: most - 3] + "..."


def _spell(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    told = ", ".join(repr(name) for name in names[:most])
    return told + (f" and {len(names) - most} more" if len(names) > most else "")
