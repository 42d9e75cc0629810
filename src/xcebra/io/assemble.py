"""Assemble a recording from the contents of a source: find the activity, labels and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs
from xcebra.data.recording import Recording, overlap_of
from xcebra.data.units import IndexedUnits
from xcebra.io import clock
from xcebra.io.angles import with_kind
from xcebra.io.contents import (
    Contents,
    Entry,
    Intervals,
    IntervalValues,
    Series,
    Spikes,
    joined_series,
    time_range,
)
from xcebra.io.epoch_choice import choose_epochs
from xcebra.io.epoch_condition import epochs_where, is_condition
from xcebra.io.label_choice import (
    LabelSeries,
    check_kinds,
    choose_labels,
    warn_of_scales,
    with_interval_kind,
    with_units,
)
from xcebra.io.lookup import Names, matching, part, spell
from xcebra.io.unit_choice import chosen_units

NEURAL = "neural"


def assemble(
    contents: Contents,
    *,
    neural: Names | None = None,
    labels: Names | Mapping[str, Names] | None = None,
    epochs: Any = None,
    bin_size: float | None = None,
    smooth: float | None = None,
    circular: Sequence[str] = (),
    label_kind: Mapping[str, str] | None = None,
    label_unit: Mapping[str, str] | None = None,
    units: Any = None,
    unit_table: IndexedUnits | None = None,
) -> Recording:
    """Make a recording with all labels on the clock of the activity.

    Parameters
    ----------
    contents : Contents
    neural, labels, epochs, bin_size, smooth, circular, label_kind, label_unit, units, unit_table
        As in `xcebra.read`, but ``labels`` holds names of entries and functions of them only, and
        ``unit_table`` was read.

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
    activity = _joined(contents, activity_names)
    extra = contents.extra if activity_names == [contents.extra.get("of")] else {}
    activity, chosen = chosen_units(activity, extra, units, unit_table, contents.origin)
    label_series = choose_labels(contents, labels, activity_names, activity)
    label_series = with_units(label_series, label_unit or {})
    kinds = check_kinds(circular, label_kind or {}, list(label_series))
    label_series = {
        name: with_kind(name, label, kinds.get(name), contents.origin)
        if isinstance(label, Series)
        else with_interval_kind(name, label, kinds.get(name))
        for name, label in label_series.items()
    }
    within: Intervals | None
    if is_condition(contents, epochs, label_series):
        recorded = _recorded(activity, extra.get("epochs"), bin_size)
        within = epochs_where(epochs, contents, label_series, activity, recorded)
        epochs = None  # they are in ``within``, in the unit of the activity's own times
    else:
        within = choose_epochs(contents, epochs)
    origin_and_names = f"{contents.origin}: {spell(activity_names)}"
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
        try:
            label_values[name] = _on_clock(label, activity, series)
        except InputError as error:
            raise error.about(f"{contents.origin}: label {name!r}") from None
        warn_of_scales(name, label, label_values[name])
    whole = isinstance(activity, Series) and len(series.values) == len(activity.values)
    truth = extra.get("ground_truth", {})
    try:
        return Recording(
            series.values,
            label_values,
            series_epochs,
            series.columns,
            latents=extra.get("latents", {}) if whole else {},
            ground_truth={name: np.asarray(known)[chosen] for name, known in truth.items()},
            time=series.times,
            overlap=overlap,
            units=series.units,
            label_info={name: label.info for name, label in label_series.items()},
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
        return matching(contents, asked, "neural")
    if NEURAL in entries or NEURAL in contents.unread:
        return matching(contents, NEURAL, "neural")
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
        details = f"it could be {spell(candidates)}"
    else:
        details = "nothing in it looks like activity"
    if not candidates and entries:
        details += f", it has {spell(entries)}"
    for name, reason in list(contents.unread.items())[:3]:
        details += f"; {name!r} cannot be used: {reason}"
    raise InputError(
        f"{contents.origin}: cannot tell which of its entries is the neural activity; say "
        f"neural=NAME; {details}",
        ("neural",),
    )


def _joined(contents: Contents, names: list[str]) -> Series | Spikes:
    """Return the activity: one entry, or a series with the columns of several entries."""
    entries = [part(contents, name) for name in names]
    for name, entry in zip(names, entries, strict=True):
        if isinstance(entry, (Intervals, IntervalValues)):
            raise InputError(
                f"{contents.origin}: neural={name!r} is a list of intervals; it can be epochs, not "
                "neural"
            )
    series = [entry.read() for entry in entries if isinstance(entry, Series)]
    if len(entries) == 1:
        return series[0] if series else entries[0]  # type: ignore[return-value]
    if len(series) < len(entries):
        raise InputError(
            f"{contents.origin}: neural names spike times beside others, {spell(names)}; name one "
            "entry"
        )
    # A column that was named alone keeps its own name.
    titles = [
        other.columns[0] if other.columns and other.values.shape[1] == 1 else name
        for name, other in zip(names, series, strict=True)
    ]
    joined = joined_series(series, titles, f"{contents.origin}:", "neural")
    return replace(joined, activity=any(other.activity for other in series))


def could_be_neural(entry: Entry) -> bool:
    """Whether an entry can be the activity: spike times, or numbers in two or more columns."""
    if isinstance(entry, Series):
        return entry.values.dtype.kind in "fiub" and entry.values.shape[1] > 1
    return isinstance(entry, Spikes)


def _activity(
    activity: Series | Spikes,
    labels: Mapping[str, LabelSeries],
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
            within = _shared(activity, activity.recorded, labels)
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
        within = _shared(activity, _recorded(activity, rows, bin_size), labels)
    return clock.bin_series(activity, within, bin_size)


def _recorded(activity: Series | Spikes, epochs: Any, bin_size: float | None) -> Intervals:
    """Return when the activity was recorded: in seconds, or in samples if it has no times."""
    if isinstance(activity, Spikes):
        return activity.recorded
    n = len(activity.values)
    if activity.times is None:
        rows = Epochs.check(epochs, n)
        return Intervals(rows.starts.astype(float), rows.stops.astype(float))
    rows = clock.stretches(activity, bin_size or 0.0) if epochs is None else Epochs.check(epochs, n)
    return clock.spans(activity.times, rows, activity.interval)


def _shared(
    activity: Series | Spikes, support: Intervals, labels: Mapping[str, LabelSeries]
) -> Intervals:
    """Return the stretches of time in which the activity and all labels are known."""
    start, stop = time_range(activity)
    for name, label in labels.items():
        if isinstance(label, Series) and label.times is None:
            continue
        first, last = time_range(label)
        if first >= stop or last <= start:
            times = None if isinstance(label, IntervalValues) else label.times
            known = (first, last) if times is None else (times[0], times[-1])
            raise InputError(
                f"runs from {start:g} s to {stop:g} s, but label {name!r} from {known[0]:g} s to "
                f"{known[1]:g} s: they are not on one clock"
            )
        start, stop = max(start, first), min(stop, last)
    starts, stops = np.maximum(support.starts, start), np.minimum(support.stops, stop)
    inside = starts < stops
    if not inside.any():
        raise InputError("has no stretch of recording in which all labels are known; name fewer")
    return Intervals(starts[inside], stops[inside])


def _on_clock(label: LabelSeries, activity: Series | Spikes, series: Series) -> NDArray[Any]:
    if isinstance(label, IntervalValues):
        if series.times is None:
            raise InputError(
                "has one value per interval, and the neural activity has no times to find them by"
            )
        return clock.sample_intervals(label, series.times)
    if (
        label.times is None
        and isinstance(activity, Series)
        and len(label.values) == len(activity.values)
    ):
        label = replace(label, times=activity.times)
    if label.times is None or series.times is None:
        n = len(series.values)
        if len(label.values) != n or isinstance(activity, Spikes):
            raise InputError(
                f"has {len(label.values)} samples without times, but the neural activity has {n}; "
                "give both their times, or rows that belong together"
            )
        return label.values
    return clock.sample(label, series.times, label.info.kind == "circular")
