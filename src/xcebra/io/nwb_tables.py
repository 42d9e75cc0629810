"""Tables of NWB files: what they say of units, regions of interest, trials and epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.data.units import as_cell, as_column

# Columns of the unit table that hold the spikes themselves.
_SPIKE_COLUMNS = ("spike_times", "obs_intervals", "electrodes", "waveforms")


def simple_columns(table: Any, skip: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Return the columns of a table of NWB that have one number or text in each row.

    Several texts in a row, such as tags, are joined by commas. Electrode groups are given by their
    names. All other columns, such as waveforms and rows of other tables, are left out, and large
    ones are not read.

    Parameters
    ----------
    table : DynamicTable
    skip : tuple of str
        Columns to leave out.
    """
    columns = {}
    for name in table.colnames:
        if name in skip:
            continue
        try:
            if not _may_be_simple(table[name]):
                continue
            rows = list(table[name][:])
        except Exception:  # a column that this version of pynwb cannot read
            continue
        values = np.empty(len(rows), dtype=object)
        values[:] = [as_cell(row) for row in rows]
        column = as_column(values)
        if column is not None and not (column.dtype.kind == "U" and not column.astype(bool).any()):
            columns[str(name)] = column
    return columns


def _may_be_simple(column: Any) -> bool:
    """Whether a column may have one number or text, or several texts, in each row."""
    data = column
    while hasattr(data, "target"):  # an index of rows of different lengths
        data = data.target
    if hasattr(data, "table"):  # rows of another table
        return False
    values = data.data
    if data is not column and getattr(values, "dtype", np.dtype(object)).kind not in "OSU":
        return False
    return getattr(values, "ndim", 1) == 1


def unit_table(units: Any, nwb: Any) -> dict[str, NDArray[Any]]:
    """Return what the file says of each unit, with the area of its electrodes if it has none."""
    table = simple_columns(units, skip=_SPIKE_COLUMNS)
    if "location" not in table:
        try:
            location = _electrode_locations(units, nwb)
        except Exception:  # electrodes that are not as the format describes them
            location = None
        if location is not None and location.astype(bool).any():
            table["location"] = location
    return table


def _electrode_locations(units: Any, nwb: Any) -> NDArray[Any] | None:
    """Return the area of each unit: that of its electrodes, its peak channel or its group."""
    electrodes = nwb.electrodes
    if electrodes is not None and "location" in electrodes.colnames:
        areas = [as_text(area) for area in electrodes["location"][:]]
        if "electrodes" in units.colnames:
            column = units["electrodes"]
            rows = [np.atleast_1d(column.target.data[a:b]) for a, b in _bounds(column.data[:])]
            names = [",".join(dict.fromkeys(areas[int(i)] for i in own)) for own in rows]
            return np.array(names)
        if "peak_channel_id" in units.colnames:
            area_of = dict(zip(map(int, electrodes.id[:]), areas, strict=True))
            peaks = units["peak_channel_id"][:]
            return np.array([area_of.get(int(peak), "") for peak in peaks])
    if "electrode_group" in units.colnames:
        groups = units["electrode_group"][:]
        return np.array([str(getattr(group, "location", "") or "") for group in groups])
    return None


def _bounds(ends: Any) -> list[tuple[int, int]]:
    """Return the start and stop of each row of a ragged column, from the ends of its rows."""
    stops = [int(end) for end in ends]
    return list(zip([0, *stops[:-1]], stops, strict=True))


def roi_table(series: Any) -> dict[str, NDArray[Any]]:
    """Return what the file says of each region of interest of a calcium recording."""
    try:
        rows = [int(i) for i in series.rois.data[:]]
        table = simple_columns(series.rois.table)
    except Exception:  # a series without its table, or with one that cannot be read
        return {}
    return {name: values[rows] for name, values in table.items()}


def as_text(value: Any) -> str:
    """Return text that some libraries write as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
