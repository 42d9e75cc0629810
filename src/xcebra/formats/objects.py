"""What is already in memory: arrays, tables of pandas, xarray's arrays, pynapple's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xcebra.formats.contents import Contents, Entry, Floats, Intervals, Series, Spikes

TIME_NAMES = ("time", "times", "timestamp", "timestamps")
_ORIGIN = "the data"


def from_object(source: Any) -> Contents:
    """Contents of anything but a file.

    Raises
    ------
    TypeError, ValueError
        If it is nothing known, or holds something that is wrong, with the name of the entry.
    """
    if isinstance(source, Contents):
        return source
    if isinstance(source, Mapping):
        return Contents(_ORIGIN, {str(n): _named(str(n), value) for n, value in source.items()})
    kind = _kind(source)
    if kind == "pandas.DataFrame":
        return from_frame(source, _ORIGIN)
    if kind == "xarray.Dataset":
        entries = {
            str(name): _named(str(name), array)
            for name, array in source.data_vars.items()
            if array.ndim in (1, 2)
        }
        return Contents(_ORIGIN, entries)
    return Contents(_ORIGIN, {"neural": _named("neural", source)})


def entry_of(value: Any) -> Entry:
    """One entry from one object."""
    if isinstance(value, (Series, Spikes, Intervals)):
        return value
    kind = _kind(value)
    if kind.startswith("pynapple."):
        return from_pynapple(value)
    if kind == "pandas.DataFrame":
        columns = tuple(map(str, value.columns))
        return Series(_plain(value), _times_of_index(value.index), columns)
    if kind == "pandas.Series":
        return Series(_plain(value), _times_of_index(value.index))
    if kind == "xarray.DataArray":
        return _from_data_array(value)
    if isinstance(value, tuple) and len(value) == 2:
        return Series(np.asarray(value[1]), np.asarray(value[0]))
    if isinstance(value, Mapping):
        return Spikes({str(name): np.asarray(train) for name, train in value.items()})
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.ndim == 0:
        raise TypeError(f"is {type(value).__name__}, which is no series, spike times or intervals")
    return Series(array)


def from_pynapple(value: Any) -> Entry:
    """An entry from one of pynapple's objects."""
    kind = type(value).__name__
    if kind == "TsGroup":
        support = value.time_support
        trains = {str(index): value[index].times() for index in value.index}
        return Spikes(trains, float(support.start[0]), float(support.end[-1]))
    if kind == "Ts":
        return Spikes({"0": value.times()})
    if kind == "IntervalSet":
        return Intervals(np.asarray(value.start), np.asarray(value.end))
    if kind in ("Tsd", "TsdFrame"):
        columns = tuple(map(str, value.columns)) if kind == "TsdFrame" else ()
        values = value.d if value.d.ndim == 2 else np.asarray(value.d)
        return Series(values, value.times(), columns)
    raise TypeError(f"is a {kind}, which is no series of columns, spike times or intervals")


def from_frame(frame: Any, origin: str) -> Contents:
    """Columns of a table; those called ``name/column`` are columns of one entry.

    A column called time, or an index of numbers that are not whole, is the clock in seconds.
    """
    times = _times_of_index(frame.index)
    clocks = [name for name in frame.columns if str(name).lower() in TIME_NAMES]
    if clocks:
        times = frame[clocks[0]].to_numpy()
    groups: dict[str, list[Any]] = {}
    for name in frame.columns:
        if name not in clocks[:1]:
            own = name[0] if isinstance(name, tuple) else str(name).split("/")[0]
            groups.setdefault(str(own), []).append(name)
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    try:
        for group, names in groups.items():
            told = [
                str(n[-1] if isinstance(n, tuple) else n).removeprefix(f"{group}/") for n in names
            ]
            part = frame[names]
            reason = _mixed(part)
            if reason:
                unread[group] = reason
                continue
            entries[group] = Series(_plain(part), times, tuple(told) if len(told) > 1 else ())
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from None
    return Contents(origin, entries, unread)


def _from_data_array(array: Any) -> Series:
    if array.ndim not in (1, 2):
        raise ValueError(f"has dimensions {array.dims}; a series has time and, maybe, columns")
    if array.ndim == 2 and "time" in array.dims:
        array = array.transpose("time", ...)
    times = None
    if array.dims[0] in array.coords:
        times = _seconds(array.coords[array.dims[0]].to_numpy())
    columns: tuple[str, ...] = ()
    if array.ndim == 2 and array.dims[1] in array.coords:
        columns = tuple(str(name) for name in array.coords[array.dims[1]].to_numpy())
    return Series(array.to_numpy(), times, columns)


def _named(name: str, value: Any) -> Entry:
    try:
        return entry_of(value)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{_ORIGIN}: {name!r} {error}") from None


def _kind(value: Any) -> str:
    """Package and name of a type, without importing the package."""
    for each in type(value).__mro__:
        package = each.__module__.split(".")[0]
        if package in ("pandas", "xarray", "pynapple"):
            return f"{package}.{each.__name__}"
    return type(value).__name__


def _times_of_index(index: Any) -> Floats | None:
    return _seconds(index.to_numpy())


def _seconds(values: Any) -> Floats | None:
    """Numbers that are not whole as they are, durations in seconds; anything else is no clock."""
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    return values if values.dtype.kind == "f" else None


def _plain(table: Any) -> Any:
    """A table's values; text as text."""
    values = table.to_numpy()
    if values.dtype.kind not in "fiub":
        values = np.asarray(values, dtype=object)
    return values


def _mixed(frame: Any) -> str:
    """Why columns cannot be used: text among numbers; empty if they can."""
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind in "fiubmM":
            continue
        missing = frame[name].isna().to_numpy()
        numbers = np.array([_is_number(value) for value in values], dtype=bool)
        if (numbers & ~missing).any() and (~numbers & ~missing).any():
            at = int(np.flatnonzero(~numbers & ~missing)[0])
            return f"column {str(name)!r} has {values[at]!r} among numbers, first in row {at}"
    return ""


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
