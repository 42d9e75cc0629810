"""What is already in memory: arrays, tables of pandas, xarray's arrays, pynapple's objects."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from xcebra.common.errors import InputError, InputTypeError
from xcebra.io.contents import (
    Contents,
    Entry,
    Floats,
    Intervals,
    Series,
    Spikes,
    check_times,
)

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
    kind = _kind(source)
    if kind == "pandas.DataFrame":
        return from_frame(source, _ORIGIN)
    if not isinstance(source, Mapping) or kind == "pynapple.TsGroup":
        return Contents(_ORIGIN, {"neural": _named("neural", source)})
    if isinstance(source, dict):
        return Contents(_ORIGIN, {str(n): _named(str(n), value) for n, value in source.items()})
    # Others hold what there is, not what was chosen: a Dataset, a file that pynapple opened.
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    for name in source:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entries[str(name)] = entry_of(source[name])
        except (ValueError, TypeError) as error:
            unread[str(name)] = str(error)
    return Contents(_ORIGIN, entries, unread)


def entry_of(value: Any) -> Entry:
    """One entry from one object."""
    if isinstance(value, (Series, Spikes, Intervals)):
        return value
    kind = _kind(value)
    if kind.startswith("pynwb."):
        raise InputTypeError("is an object of pynwb; give the path of the file")
    if kind.startswith("pynapple."):
        return from_pynapple(value)
    if kind == "pandas.DataFrame":
        times, table = _clocked(value)
        reason = _unusable(table)
        if reason:
            raise InputError(reason)
        return Series(_plain(table), times, tuple(map(str, table.columns)))
    if kind == "pandas.Series":
        return Series(_plain(value), _seconds(value.index.to_numpy()))
    if kind == "xarray.DataArray":
        return _from_data_array(value)
    if isinstance(value, tuple) and len(value) == 2:
        return Series(np.asarray(value[1]), np.asarray(value[0]))
    if isinstance(value, Mapping):
        return Spikes({str(name): np.asarray(train) for name, train in value.items()})
    try:
        array = np.asanyarray(value)
    except ValueError:
        raise InputError(
            "has rows of different lengths; trials are for Recording.from_trials"
        ) from None
    if array.ndim == 0:
        raise InputTypeError(
            f"is {type(value).__name__}, which is no series, spike times or intervals"
        )
    return Series(array)


def from_pynapple(value: Any) -> Entry:
    """An entry from one of pynapple's objects."""
    kind = type(value).__name__
    if kind == "TsGroup":
        trains = {str(index): value[index].times() for index in value.index}
        return Spikes(trains, _support(value))
    if kind == "Ts":
        return Spikes({"0": value.times()}, _support(value))
    if kind == "IntervalSet":
        return _intervals(value)
    if kind in ("Tsd", "TsdFrame"):
        columns = tuple(map(str, value.columns)) if kind == "TsdFrame" else ()
        values = value.d if value.d.ndim == 2 else np.asarray(value.d)
        return Series(values, value.times(), columns)
    raise InputTypeError(f"is a {kind}, which is no series of columns, spike times or intervals")


def from_frame(frame: Any, origin: str) -> Contents:
    """Columns of a table; those called ``name/column`` are columns of one entry.

    A column called time, or an index of numbers that are not whole, is the clock in seconds.
    """
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    try:
        times, table = _clocked(frame)
        if times is not None:
            times = check_times(times, len(table))
        groups: dict[str, list[Any]] = {}
        for name in table.columns:
            own = name[0] if isinstance(name, tuple) else str(name).split("/")[0]
            groups.setdefault(str(own), []).append(name)
        for group, names in groups.items():
            told = [
                str(n[-1] if isinstance(n, tuple) else n).removeprefix(f"{group}/") for n in names
            ]
            part = table[names]
            reason = _unusable(part)
            if reason:
                unread[group] = reason
                continue
            entries[group] = Series(_plain(part), times, tuple(told) if len(told) > 1 else ())
    except ValueError as error:
        raise InputError(f"{origin}: {error}") from None
    return Contents(origin, entries, unread)


def _clocked(frame: Any) -> tuple[Floats | None, Any]:
    """A table's times, and the table without them."""
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"has two columns called {str(twice)!r}; rename one of them")
    clocks = [name for name in frame.columns if str(name).lower() in TIME_NAMES]
    if not clocks:
        return _seconds(frame.index.to_numpy()), frame
    times = frame[clocks[0]].to_numpy()
    return times if times.dtype.kind not in "mM" else _seconds(times), frame.drop(columns=clocks[0])


def _support(value: Any) -> Intervals | None:
    return _intervals(value.time_support) if len(value.time_support) else None


def _intervals(value: Any) -> Intervals:
    starts, stops = np.array(value.start), np.array(value.end)
    # pynapple takes a microsecond off where intervals touch.
    touch = starts[1:] - stops[:-1] < 1.5e-6
    stops[:-1][touch] = starts[1:][touch]
    return Intervals(starts, stops)


def _from_data_array(array: Any) -> Series:
    if array.ndim not in (1, 2):
        raise InputError(f"has dimensions {array.dims}; a series has time and, maybe, columns")
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
        if package in ("pandas", "xarray", "pynapple", "pynwb"):
            return f"{package}.{each.__name__}"
    return type(value).__name__


def _seconds(values: Any) -> Floats | None:
    """Numbers that are not whole as they are, durations and dates in seconds; else no clock."""
    if values.dtype.kind == "M":
        values = values - values[0]
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    return values if values.dtype.kind == "f" else None


def _plain(table: Any) -> Any:
    """A table's values; text as text."""
    values = table.to_numpy()
    return values if values.dtype.kind in "fiub" else np.asarray(values, dtype=object)


def _unusable(frame: Any) -> str:
    """Why columns cannot be used: text among numbers, or neither of them; empty if they can."""
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind in "fiub":
            continue
        where = f"column {str(name)!r}"
        if values.dtype.kind in "mM":
            return f"{where} holds dates or durations; give them in seconds, as numbers"
        known = values[~frame[name].isna().to_numpy()]
        numbers = np.array([_is_number(value) for value in known], dtype=bool)
        for value in known[~numbers]:
            if not isinstance(value, str):
                return f"{where} holds {type(value).__name__}, neither numbers nor names"
            if numbers.any():
                at = int(np.flatnonzero(values == value)[0])
                return f"{where} has {value!r} among numbers, first in row {at}; mend it"
    return ""


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
