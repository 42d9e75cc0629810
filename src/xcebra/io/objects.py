"""Contents of objects in memory: arrays, tables of pandas, xarray's and pynapple's objects."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.units import as_cell, as_column
from xcebra.io.contents import (
    MOST_LABEL_COLUMNS,
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
# A name, perhaps a separator, and a number.
_NUMBERED = re.compile(r"(.*[^\d_\-. ])[_\-. ]?\d+")
# Fewer columns than this with a common name and numbers are not joined. Two may be x1 and x2, the
# coordinates of two points.
_FEWEST_NUMBERED = 3
# Names of columns that hold activity.
_ACTIVITY_WORDS = (
    *("unit", "neuron", "cell", "cluster", "roi", "channel", "ch", "electrode", "voxel", "region"),
    *("trace", "spike", "rate", "dff", "u", "n", "c"),
)


def from_object(source: Any) -> Contents:
    """Return the contents of an object in memory.

    Parameters
    ----------
    source : mapping or object
        As in `xcebra.read`.

    Raises
    ------
    TypeError, ValueError
        If the type is not known, or an entry is wrong. The message names the entry.
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
    # Other mappings, such as a Dataset or a file opened by pynapple, may hold entries that the user
    # did not choose. Those that cannot be used are no error.
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
    """Make one entry from one object.

    Parameters
    ----------
    value : object
        An array of shape (n_times,) or (n_times, n_columns), a table, a tuple ``(times, values)``,
        a mapping from units to spike times, or an object of xarray or pynapple.

    Raises
    ------
    TypeError, ValueError
        If the type is not known, or the values are wrong.
    """
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
    """Make an entry from one of pynapple's objects."""
    kind = type(value).__name__
    if kind == "TsGroup":
        trains = {str(index): value[index].times() for index in value.index}
        # Rates are computed from the spikes; pynapple's column holds the same.
        return Spikes(trains, _support(value), _metadata(value, skip=("rate",)))
    if kind == "Ts":
        return Spikes({"0": value.times()}, _support(value))
    if kind == "IntervalSet":
        return _intervals(value)
    if kind in ("Tsd", "TsdFrame"):
        columns = tuple(map(str, value.columns)) if kind == "TsdFrame" else ()
        values = value.d if value.d.ndim == 2 else np.asarray(value.d)
        table = _metadata(value) if kind == "TsdFrame" else {}
        return Series(values, value.times(), columns, units=table)
    raise InputTypeError(f"is a {kind}, which is no series of columns, spike times or intervals")


def from_frame(frame: Any, origin: str) -> Contents:
    """Return the columns of a table as entries.

    Columns called ``name/column``, and columns such as ``unit_0``, ``unit_1``, ``unit_2``, are
    columns of one entry. A column called ``time`` or similar,
    or else an index of type float, holds the times in seconds.

    Parameters
    ----------
    frame : DataFrame
    origin : str
        Name of the table in error messages.

    Raises
    ------
    ValueError
        If the times are wrong, or two columns have the same name.
    """
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    try:
        times, table = _clocked(frame)
        if times is not None:
            times = check_times(times, len(table))
        numbered = _numbered(table)
        groups: dict[str, list[Any]] = {}
        for name in table.columns:
            group = name[0] if isinstance(name, tuple) else str(name).split("/")[0]
            groups.setdefault(numbered.get(str(name), str(group)), []).append(name)
        activity = _activity_group({group: len(groups[group]) for group in numbered.values()})
        for group, names in groups.items():
            columns = [
                str(n[-1] if isinstance(n, tuple) else n).removeprefix(f"{group}/") for n in names
            ]
            part = table[names]
            reason = _unusable(part)
            if reason:
                unread[group] = reason
                continue
            entries[group] = Series(
                _plain(part),
                times,
                tuple(columns) if len(columns) > 1 else (),
                activity=group == activity,
            )
    except ValueError as error:
        raise InputError(f"{origin}: {error}") from None
    return Contents(origin, entries, unread)


def _numbered(table: Any) -> dict[str, str]:
    """Return the group of each column that is one of several with a common name and a number.

    ``unit_0``, ``unit_1`` and ``unit_2`` are the group ``unit``.
    """
    groups: dict[str, list[str]] = {}
    for name in table.columns:
        match = None
        if isinstance(name, str) and "/" not in name:
            match = _NUMBERED.fullmatch(name)
        if match is not None and table[name].to_numpy().dtype.kind in "fiub":
            groups.setdefault(match[1], []).append(name)
    taken = {str(name) for name in table.columns}
    return {
        name: group
        for group, names in groups.items()
        if len(names) >= _FEWEST_NUMBERED and group not in taken
        for name in names
    }


def _activity_group(sizes: dict[str, int]) -> str | None:
    """Return the group of numbered columns that is the activity; None if it is not clear.

    It is the only one called unit, neuron or the like, or else the largest one if it is too large
    for a label.
    """
    called = [group for group in sizes if group.lower().rstrip("s") in _ACTIVITY_WORDS]
    if called:
        return called[0] if len(called) == 1 else None
    largest = sorted(sizes, key=lambda group: -sizes[group])[:1]
    return largest[0] if largest and sizes[largest[0]] > MOST_LABEL_COLUMNS else None


def _clocked(frame: Any) -> tuple[Floats | None, Any]:
    """Return the times of a table, and the table without them."""
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"has two columns called {str(repeated)!r}; rename one of them")
    clocks = [name for name in frame.columns if str(name).lower() in TIME_NAMES]
    if not clocks:
        return _seconds(frame.index.to_numpy()), frame
    times = frame[clocks[0]].to_numpy()
    return times if times.dtype.kind not in "mM" else _seconds(times), frame.drop(columns=clocks[0])


def _support(value: Any) -> Intervals | None:
    return _intervals(value.time_support) if len(value.time_support) else None


def _intervals(value: Any) -> Intervals:
    starts, stops = np.array(value.start), np.array(value.end)
    # Where intervals touch, pynapple ends the first one a microsecond early. The limit is 1.5
    # microseconds to allow for rounding.
    touch = starts[1:] - stops[:-1] < 1.5e-6
    stops[:-1][touch] = starts[1:][touch]
    return Intervals(starts, stops, _metadata(value))


def _metadata(value: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the metadata of one of pynapple's objects, as far as it is numbers and text."""
    columns = {}
    for name in getattr(value, "metadata_columns", ()):
        if name not in skip:
            cells = np.empty(len(value.get_info(name)), dtype=object)
            cells[:] = [as_cell(cell) for cell in value.get_info(name)]
            columns[str(name)] = as_column(cells)
    return {name: column for name, column in columns.items() if column is not None}


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
    units = {
        str(name): column
        for name, coordinate in array.coords.items()
        if array.ndim == 2 and coordinate.dims == array.dims[1:] and name != array.dims[1]
        if (column := as_column(coordinate.to_numpy())) is not None
    }
    return Series(array.to_numpy(), times, columns, units=units)


def _named(name: str, value: Any) -> Entry:
    try:
        return entry_of(value)
    except InputError as error:
        raise error.about(f"{_ORIGIN}: {name!r}") from None


def _kind(value: Any) -> str:
    """Return the package and name of a type, without importing the package."""
    for base in type(value).__mro__:
        package = base.__module__.split(".")[0]
        if package in ("pandas", "xarray", "pynapple", "pynwb"):
            return f"{package}.{base.__name__}"
    return type(value).__name__


def _seconds(values: Any) -> Floats | None:
    """Return floats unchanged, and durations and dates in seconds; None for any other type."""
    if values.dtype.kind == "M":
        values = values - values[0]
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    return values if values.dtype.kind == "f" else None


def _plain(table: Any) -> Any:
    """Return the values of a table: numbers as they are, anything else as objects."""
    values = table.to_numpy()
    return values if values.dtype.kind in "fiub" else np.asarray(values, dtype=object)


def _unusable(frame: Any) -> str:
    """Return why columns cannot be used, such as text among numbers; empty if they can."""
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
                row = int(np.flatnonzero(values == value)[0])
                return f"{where} has {value!r} among numbers, first in row {row}; correct it"
    return ""


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
