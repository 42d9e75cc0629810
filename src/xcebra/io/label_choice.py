"""Find the labels that are asked for, and what is said about their kinds and scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.caveats import LabelKindWarning, LabelScaleWarning, warn
from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.label_info import KINDS, scales_differ
from xcebra.data.labels import MOST_CLASSES
from xcebra.io.contents import (
    MOST_LABEL_COLUMNS,
    Contents,
    Entry,
    IntervalValues,
    Series,
    Spikes,
    time_range,
)
from xcebra.io.derived import derive, split_name
from xcebra.io.lookup import Names, has, matching, one_line

LabelSeries = Series | IntervalValues


def choose_labels(
    contents: Contents,
    asked: Names | Mapping[str, Names] | None,
    activity_names: list[str],
    activity: Series | Spikes,
) -> dict[str, LabelSeries]:
    """Return the labels by name: those that are asked for, or all entries that can be labels."""
    if asked is None:
        # Columns of an entry have names such as "entry/column".
        own = {*activity_names, *(name.rpartition("/")[0] for name in activity_names)}
        names = [
            name
            for name, entry in contents.entries.items()
            if name not in own and could_be_label(entry, activity)
        ]
        return {name: derive(contents, name) for name in names}
    if isinstance(asked, Mapping):
        return {
            str(name): derive(
                contents,
                ", ".join(_texts(contents, what, f"labels[{str(name)!r}]")),
                f"labels[{str(name)!r}]",
            )
            for name, what in asked.items()
        }
    return {name: derive(contents, what) for name, what in named_labels(contents, asked).items()}


def named_labels(contents: Contents, asked: Names) -> dict[str, str]:
    """Return the names of labels that are asked for, and what each of them is made from.

    Parameters
    ----------
    contents : Contents
    asked : str or list of str
        ``NAME``, ``NAME=WHAT`` or patterns, as in `xcebra.read`.
    """
    labels: dict[str, str] = {}
    if isinstance(asked, (list, tuple)) and not asked:
        return labels
    for label in _texts(contents, asked, "labels"):
        name, what = split_name(label, contents)
        if name == what and not has(contents, what) and not set(what) & set("(,"):
            matching(contents, what, "labels")  # raises an error that names what is there
        if name == what and has(contents, what):
            new = {entry_name: entry_name for entry_name in matching(contents, what, "labels")}
        else:
            new = {name: what}
        for known in new.keys() & labels.keys():
            if new[known] != labels[known]:
                raise InputError(
                    f"{contents.origin}: two labels are called {known!r}, {one_line(labels[known])}"
                    f" and {one_line(new[known])}; name one of them differently",
                    ("labels",),
                )
        labels |= new
    return labels


def _texts(contents: Contents, asked: Any, argument: str) -> list[str]:
    """Return what is asked for as a list of texts, or an error if it is something else."""
    texts = [asked] if isinstance(asked, str) else asked
    if not isinstance(texts, (list, tuple)) or not texts:
        texts = [None]
    if not all(isinstance(text, (str, int)) for text in texts):
        raise InputTypeError(
            f"{contents.origin}: {argument} must be a name or a list of names, got "
            f"{one_line(asked)}",
            (argument.split("[")[0],),
        )
    return [str(text) for text in texts]


def check_kinds(
    circular: Sequence[str], label_kind: Mapping[str, str], labels: list[str]
) -> dict[str, str]:
    """Return the kinds of labels that the user says, after a check.

    Parameters
    ----------
    circular : sequence of str
        Labels that are angles.
    label_kind : mapping of str to str
    labels : list of str
        Names of all labels.
    """
    if not isinstance(label_kind, Mapping):
        raise InputTypeError(
            f"label_kind must be a mapping from labels to kinds, got {one_line(label_kind)}; as in "
            "{'heading': 'circular'}",
            ("label_kind",),
        )
    for argument, names in (("circular", circular), ("label_kind", label_kind)):
        for name in names:
            if name not in labels:
                raise InputError(
                    f"{argument} names {name!r}, but the labels are {labels}", (argument,)
                )
    for name, kind in label_kind.items():
        if kind not in KINDS:
            raise InputError(
                f"label_kind of {name!r} must be one of {list(KINDS)}, got {kind!r}",
                ("label_kind",),
            )
    return {**dict.fromkeys(circular, "circular"), **label_kind}


def with_units(
    labels: Mapping[str, LabelSeries], label_unit: Mapping[str, str]
) -> dict[str, LabelSeries]:
    """Return labels with the units that the user says, which win over those of the source.

    Parameters
    ----------
    labels : mapping of str to Series or IntervalValues
    label_unit : mapping of str to str
    """
    if not isinstance(label_unit, Mapping):
        raise InputTypeError(
            f"label_unit must be a mapping from labels to units, got {one_line(label_unit)}; as in "
            "{'position': 'cm'}",
            ("label_unit",),
        )
    changed = dict(labels)
    for name, unit in label_unit.items():
        if name not in labels:
            raise InputError(
                f"label_unit names {name!r}, but the labels are {list(labels)}", ("label_unit",)
            )
        if not isinstance(unit, str) or not unit.strip():
            raise InputError(
                f"label_unit of {name!r} must be a text such as 'cm', got {unit!r}", ("label_unit",)
            )
        info = replace(labels[name].info, unit=unit.strip())
        changed[name] = replace(labels[name], info=info)
    return changed


def with_interval_kind(name: str, label: IntervalValues, said: str | None) -> IntervalValues:
    """Return a column of intervals with its kind.

    Truth values and few different whole numbers are classes. The values over time do not show it,
    because they have NaN between the intervals.

    Parameters
    ----------
    name : str
        Name of the label.
    label : IntervalValues
    said : {"continuous", "discrete", "circular"} or None
        What the user says about it.
    """
    kind, type_ = said or label.info.kind, label.values.dtype.kind
    if kind is None and type_ == "b":
        kind = "discrete"
    elif kind is None and type_ in "iu":
        n_classes = len(np.unique(label.values))
        kind = "discrete" if n_classes <= MOST_CLASSES else "continuous"
        warn(
            f"label {name!r} holds whole numbers, {n_classes} different ones, and was taken as "
            f"{kind}; say label_kind={{{name!r}: 'continuous'}} or 'discrete' to be sure",
            LabelKindWarning,
            "label_kind",
        )
    return replace(label, info=replace(label.info, kind=kind))


def warn_of_scales(name: str, label: LabelSeries, values: NDArray[Any]) -> None:
    """Say if one column of a label hardly counts, because another one is much wider."""
    if label.info.kind in ("circular", "discrete"):
        return
    columns = scales_differ(values)
    if columns is not None:
        titles = label.info.columns or tuple(f"column {i + 1}" for i in range(values.shape[1]))
        wide, narrow = (titles[i] for i in columns)
        warn(
            f"label {name!r} has columns of very different scales: {wide!r} varies more than ten "
            f"times as much as {narrow!r}, which hardly counts; give them as two labels, or in one "
            "unit",
            LabelScaleWarning,
            "labels",
        )


def could_be_label(entry: Entry, activity: Entry | None = None) -> bool:
    """Whether an entry can be a label of the activity: few columns, and on the same clock."""
    if not isinstance(entry, Series):
        return False
    if entry.values.shape[1] > MOST_LABEL_COLUMNS and not entry.label:
        return False
    if entry.values.dtype.kind not in "fiubUSO":
        return False
    if isinstance(activity, Series) and (activity.times is None or entry.times is None):
        return len(entry.values) == len(activity.values)
    if entry.times is None:
        return activity is None
    start, stop = time_range(activity) if activity is not None else (-np.inf, np.inf)
    return bool(entry.times[0] < stop and entry.times[-1] > start)
