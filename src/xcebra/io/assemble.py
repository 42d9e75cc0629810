"""Assemble a recording from the contents of a source: find the activity, labels and epochs."""

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
# A series with more columns than this is not taken for a label unless the user names it. Larger
# values take more series for labels that are neural traces or other signals; not tuned.
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
    """Make a recording with all labels on the clock of the activity.

    Parameters
    ----------
    contents : Contents
    neural, labels, epochs, bin_size, smooth, circular
        As in `xcebra.read`, but ``labels`` holds names of entries only.

    Returns
    -------
    Recording

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, or does not fit the contents.
    """
    problems: list[str] = []
    number(problems, "bin_size", bin_size, least=0, above=True)
    number(problems, "smooth", smooth, least=0)
    raise_if(problems)
    activity_names = neural_names(contents, neural)
    activity = _joined(contents, activity_names, "neural")
    label_names = _label_names(contents, labels, activity_names, activity)
    circular = [circular] if isinstance(circular, str) else list(circular)
    for name in circular:
        if name not in label_names:
            raise InputError(
                f"circular names {name!r}, but the labels are {list(label_names)}", ("circular",)
            )
    label_series = {name: _label(contents, parts) for name, parts in label_names.items()}
    within = _intervals(contents, epochs)
    extra = contents.extra if activity_names == [contents.extra.get("of")] else {}
    origin_and_names = f"{contents.origin}: {_spell(activity_names)}"
    overlap = 0
    try:
        series, series_epochs = _activity(
            activity,
            label_series,
            within,
            extra.get("epochs") if epochs is None else epochs,
            bin_size,
        )
        if smooth:
            if series.times is None:
                raise InputError("has no times: smooth is in seconds and needs them", ("smooth",))
            series = clock.smoothed(series, series_epochs, smooth)
            overlap = overlap_of(smooth / series.interval)
    except InputError as error:
        raise error.about(origin_and_names) from None
    label_values = {}
    for name, label in label_series.items():
        if name not in circular and jumps_like_angle(label.values):
            warn(
                f"{contents.origin}: label {name!r} jumps by a whole turn, as an angle in radians "
                f"does, and was interpolated as a number; say circular={name!r} if it is one",
                LabelKindWarning,
                "circular",
            )
        try:
            label_values[name] = _on_clock(label, activity, series, name in circular)
        except InputError as error:
            raise error.about(f"{contents.origin}: label {name!r}") from None
    whole = isinstance(activity, Series) and len(series.values) == len(activity.values)
    try:
        return Recording(
            series.values,
            label_values,
            series_epochs,
            extra.get("neuron_names") or series.columns,
            extra.get("latents", {}) if whole else {},
            extra.get("ground_truth", {}),
            series.times,
            overlap,
        )
    except InputError as error:
        raise error.about(f"{contents.origin}:") from None


def neural_names(contents: Contents, asked: Names | None) -> list[str]:
    """Find the entries that are the activity.

    Parameters
    ----------
    contents : Contents
    asked : str or list of str, optional
        Names that the user gave. By default, the only entry that can be the activity.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If it is not clear which entry it is, with the candidates.
    """
    entries = contents.entries
    if asked is not None:
        return _matching(contents, asked, "neural")
    if NEURAL in entries or NEURAL in contents.unread:
        return _matching(contents, NEURAL, "neural")
    spikes = [name for name, entry in entries.items() if isinstance(entry, Spikes)]
    if len(spikes) == 1:
        return spikes
    marked = [n for n, entry in entries.items() if isinstance(entry, Series) and entry.activity]
    if not spikes and len(marked) == 1:
        return marked
    candidates = [name for name, entry in entries.items() if could_be_neural(entry)]
    if len(entries) == 1 and candidates:
        return candidates
    if candidates:
        details = f"it could be {_spell(candidates)}"
    else:
        details = "nothing in it looks like activity"
    if not candidates and entries:
        details += f", it has {_spell(entries)}"
    for name, reason in list(contents.unread.items())[:3]:
        details += f"; {name!r} cannot be used: {reason}"
    raise InputError(
        f"{contents.origin}: cannot tell which of its entries is the neural activity; say "
        f"neural=NAME; {details}",
        ("neural",),
    )


def could_be_neural(entry: Entry) -> bool:
    """Whether an entry can be the activity: spike times, or numbers in two or more columns."""
    if isinstance(entry, Series):
        return entry.values.dtype.kind in "fiub" and entry.values.shape[1] > 1
    return isinstance(entry, Spikes)


def could_be_label(entry: Entry, activity: Entry | None = None) -> bool:
    """Whether an entry can be a label of the activity: few columns, and on the same clock."""
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
    """Return the names of the labels, each with the names of its entries."""
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
    """Return the names of the entries that match names or patterns such as ``unit_*``."""
    patterns = [asked] if isinstance(asked, str) else list(asked) if np.iterable(asked) else []
    if not patterns or not all(isinstance(p, (str, int)) for p in patterns):
        raise InputTypeError(
            f"{contents.origin}: {argument} must be a name or a list of names, got "
            f"{one_line(asked)}"
        )
    matches: list[str] = []
    for pattern in map(str, patterns):
        known = [*contents.entries, *contents.unread]
        names = [pattern] if pattern in known else [n for n in known if fnmatchcase(n, pattern)]
        for name in names:
            if name in contents.unread:
                raise InputError(
                    f"{contents.origin}: {argument}={pattern!r} cannot be used: "
                    f"{'' if name == pattern else f'{name!r} '}{contents.unread[name]}",
                    (argument,),
                )
        if not names:
            raise InputError(
                f"{contents.origin}: {argument}={pattern!r} is not in it; it has "
                f"{_spell(contents.entries)}",
                (argument,),
            )
        matches += [name for name in names if name not in matches]
    return matches


def _joined(contents: Contents, names: list[str], argument: str) -> Series | Spikes:
    """Return one entry, or a series with the columns of several that share their times."""
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
        for name, part in zip(names, series, strict=True)
        for column in (
            [name]
            if part.values.shape[1] == 1
            else [f"{name}/{c}" for c in part.columns or range(part.values.shape[1])]
        )
    ]
    values = np.concatenate([part.values for part in series], axis=1)
    return Series(values, first.times, tuple(columns), any(part.activity for part in series))


def _label(contents: Contents, names: list[str]) -> Series:
    series = _joined(contents, names, "labels")
    if isinstance(series, Spikes):
        raise InputError(f"{contents.origin}: {_spell(names)} holds spike times, not a label")
    return series


def _intervals(contents: Contents, epochs: Any) -> Intervals | None:
    """Return epochs in seconds, or None if they are not given or are in samples."""
    if epochs is None or isinstance(epochs, (Intervals, Epochs)):
        return epochs if isinstance(epochs, Intervals) else None
    if isinstance(epochs, str):
        entry = contents.entries[_matching(contents, epochs, "epochs")[0]]
        if not isinstance(entry, Intervals):
            names = [n for n, e in contents.entries.items() if isinstance(e, Intervals)]
            candidates = f"it has {_spell(names)}" if names else "it has none"
            raise InputError(
                f"{contents.origin}: epochs={epochs!r} is not a list of intervals; {candidates}",
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
    except InputError as error:
        raise InputError(f"epochs: {error}", ("epochs",)) from None


def _activity(
    activity: Series | Spikes,
    labels: Mapping[str, Series],
    within: Intervals | None,
    epochs: Any,
    bin_size: float | None,
) -> tuple[Series, Epochs]:
    """Return the activity inside its epochs, binned if ``bin_size`` is given, and the epochs.

    Epochs are given in seconds by ``within``, or in samples by ``epochs``.
    """
    if isinstance(activity, Spikes):
        if bin_size is None:
            raise InputError(
                "holds spike times; say bin_size in seconds, for instance 0.05", ("bin_size",)
            )
        if within is None and epochs is not None:
            raise InputError(
                "holds spike times; give epochs in seconds, not in samples", ("epochs",)
            )
        if within is None:
            within = _shared(activity, _support(activity), labels)
        return clock.bin_spikes(activity, within, bin_size)
    if activity.times is None:
        if bin_size is not None:
            raise InputError("has no times: bin_size is in seconds and needs them", ("bin_size",))
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
    """Return the stretches of time in which the activity and all labels are known."""
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
    """Return a value as text of one line and at most ``most`` characters, for an error."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _spell(names: Iterable[str], most: int = 12) -> str:
    """Return a list of names as text, at most ``most`` of them."""
    names = list(names)
    text = ", ".join(repr(name) for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")
