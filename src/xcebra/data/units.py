"""The unit table: what is known of each neuron beside its activity, such as area or cell type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.conditions import Condition, as_text

UnitTable = Mapping[str, NDArray[Any]]


class IndexedUnits(NamedTuple):
    """A unit table from beside a recording.

    Parameters
    ----------
    columns : mapping of str to ndarray of shape (n_rows,)
    row_names : tuple of str or None
        Index of a DataFrame; None if there is none, or if it only numbers the rows.
    """

    columns: UnitTable
    row_names: tuple[str, ...] | None = None


# Columns that name the units, in the order in which they are looked for.
NAME_COLUMNS = ("unit", "unit_name", "neuron", "neuron_name", "cell", "name", "unit_id", "id")

# Stands for a cell that is neither a number nor a text, and makes its column unusable.
_NOT_SIMPLE = object()
_EXAMPLE = "\"area == 'CA1' and rate > 0.5\""


def check_units(units: Any, n_neurons: int | None, problems: list[str]) -> dict[str, NDArray[Any]]:
    """Check a unit table: numbers, truth values or text, one value per neuron in each column.

    Parameters
    ----------
    units : mapping of str to array-like of shape (n_neurons,), or DataFrame
    n_neurons : int or None
        None if it is not known, because the activity is wrong too.
    problems : list of str
        Problems are added to it.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)
        Read-only arrays. Missing numbers are NaN; missing text is empty.
    """
    if not isinstance(units, Mapping) and not hasattr(units, "columns"):
        problems.append(
            "units must be a mapping from names to one value per neuron, or a DataFrame, got "
            f"{type(units).__name__}"
        )
        return {}
    table = {}
    for name in units:
        values = cells(units[name])
        column = as_column(values)
        if column is None or (n_neurons is not None and column.shape != (n_neurons,)):
            neurons = "each neuron" if n_neurons is None else f"each of {n_neurons} neurons"
            problems.append(
                f"units[{str(name)!r}] must hold one number or text for {neurons}, got shape "
                f"{values.shape} of type {values.dtype}"
            )
            continue
        column.flags.writeable = False
        table[str(name)] = column
    return table


def cells(values: Any) -> NDArray[Any]:
    """Return the values of one column as an array.

    A list becomes an array of objects: otherwise numpy would turn a NaN among text into text.
    """
    return np.array(values, dtype=object) if isinstance(values, list) else np.asarray(values)


def plain_units(units: UnitTable) -> dict[str, list[Any]]:
    """Convert a unit table to values that can be written as JSON."""
    return {name: [values.dtype.kind, values.tolist()] for name, values in units.items()}


def units_from_plain(plain: Mapping[str, list[Any]]) -> dict[str, NDArray[Any]]:
    """Convert back from the result of `plain_units`."""
    types: dict[str, Any] = {
        "U": str,
        "b": np.bool_,
        "i": np.int64,
        "u": np.uint64,
        "f": np.float64,
    }
    return {name: np.array(values, dtype=types[kind]) for name, (kind, values) in plain.items()}


def as_column(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return a copy of one column as numbers, truth values or text; None if it is none of these.

    Numbers have 64 bits, so that they are the same after they were written to a file and read.
    """
    if values.ndim != 1:
        return None
    if values.dtype.kind in "fiub":
        wide = {"f": np.float64, "i": np.int64, "u": np.uint64, "b": np.bool_}
        return values.astype(wide[values.dtype.kind])
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "U":
        return values.copy()
    if values.dtype.kind != "O":
        return None
    plain = [
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in values
    ]
    missing = [_is_missing(value) for value in plain]
    known = [value for value, absent in zip(plain, missing, strict=True) if not absent]
    if all(isinstance(value, (bool, np.bool_)) for value in known) and not any(missing):
        return np.array(plain, dtype=bool)
    if all(isinstance(value, (int, np.integer)) for value in known) and known and not any(missing):
        return np.array(plain, dtype=np.int64)
    if all(isinstance(value, (int, float, np.number, bool)) for value in known) and known:
        pairs = zip(plain, missing, strict=True)
        return np.array([np.nan if absent else float(value) for value, absent in pairs])
    if all(isinstance(value, str) for value in known):
        pairs = zip(plain, missing, strict=True)
        return np.array(["" if absent else value for value, absent in pairs], dtype=str)
    return None


def as_cell(value: Any) -> Any:
    """Return the value of one cell as a number or a text.

    Several texts are joined by commas, and electrode groups are given by their names. Anything else
    becomes an object that `as_column` refuses.
    """
    if type(value).__name__ in ("ElectrodeGroup", "ImagingPlane", "Device"):
        return str(value.name)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple, np.ndarray)):
        texts = (
            [
                part.decode(errors="replace") if isinstance(part, bytes) else str(part)
                for part in value
            ]
            if len(value)
            else []
        )
        is_text = all(isinstance(part, (str, bytes)) for part in value)
        return ",".join(texts) if is_text else _NOT_SIMPLE
    return value if isinstance(value, (str, int, float, bool)) else _NOT_SIMPLE


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas.NA, whose comparisons are neither True nor False."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def unit_names(units: UnitTable) -> tuple[str, ...]:
    """Names of the neurons in their unit table: the first column of names without repetitions.

    The result is empty if there is no such column.
    """
    lower = {name.lower(): name for name in units}
    for name in NAME_COLUMNS:
        if name in lower:
            values = [as_text(value) for value in units[lower[name]].tolist()]
            if all(values) and len(set(values)) == len(values):
                return tuple(values)
    return ()


def matched_units(
    table: UnitTable,
    neuron_names: Sequence[str],
    numbered: bool,
    index: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Bring the rows of a unit table into the order of the neurons.

    Parameters
    ----------
    table : mapping of str to ndarray of shape (n_rows,)
        A table from beside the recording. If it has a column with the names of the neurons, its
        rows may be in any order, and there may be more of them.
    neuron_names : sequence of str
    numbered : bool
        Whether the names are only the positions of the neurons, because the recording has none.
        A column of names must then hold exactly these numbers; otherwise the rows are in the order
        of the neurons.
    index : sequence of str of length n_rows, optional
        Names of the rows beside the columns, as a DataFrame has them. They must be names of
        neurons, unless a column has these.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)

    Raises
    ------
    ValueError
        If rows and neurons do not belong together.
    """
    n_rows = len(next(iter(table.values()))) if table else 0
    if not numbered or n_rows == len(neuron_names):
        lower = {name.lower(): name for name in table}
        columns = [table[lower[name]].tolist() for name in NAME_COLUMNS if name in lower]
        for names in columns if index is None else [*columns, index]:
            row_of = {as_text(value): i for i, value in enumerate(names)}
            if len(row_of) == n_rows and all(name in row_of for name in neuron_names):
                rows = [row_of[name] for name in neuron_names]
                return {name: values[rows] for name, values in table.items()}
    if index is not None:
        without = next((name for name in neuron_names if name not in index), neuron_names[0])
        raise InputError(
            f"unit_table has the index {list(index[:3])} and others, which are not the names of "
            f"the {len(neuron_names)} neurons: there is no single row for {without!r}; correct the "
            "index, or drop it with reset_index(drop=True) if the rows are in the order of the "
            "neurons",
            ("unit_table",),
        )
    if n_rows != len(neuron_names):
        raise InputError(
            f"unit_table has {n_rows} rows, but there are {len(neuron_names)} neurons; give one "
            f"row for each, in their order, or a column 'unit' with their names, such as "
            f"{neuron_names[0]!r}",
            ("unit_table",),
        )
    if not numbered and any(name.lower() in NAME_COLUMNS[:-1] for name in table):
        column = next(name for name in table if name.lower() in NAME_COLUMNS[:-1])
        known = [as_text(value) for value in table[column].tolist()]
        missing = next((name for name in neuron_names if name not in known), None)
        if missing is not None:
            raise InputError(
                f"unit_table has no row for neuron {missing!r}: its column {column!r} holds "
                f"{known[:3]} and others; correct the names, or rename the column",
                ("unit_table",),
            )
    return dict(table)


def select_units(condition: str, units: UnitTable) -> NDArray[np.bool_]:
    """Find the units for which a condition holds.

    Parameters
    ----------
    condition : str
        Comparisons of columns with values, joined by ``and``, ``or``, ``not`` and parentheses, as
        in ``"area == 'CA1' and rate > 0.5"`` or ``"shank in [1, 2]"``. A name with other
        characters than letters, digits and underscores stands between backticks.
    units : mapping of str to ndarray of shape (n_neurons,)

    Returns
    -------
    ndarray of bool of shape (n_neurons,)

    Raises
    ------
    ValueError
        If the condition cannot be read, or names a column that does not exist.
    """
    parsed = Condition(condition, "units", _EXAMPLE)

    def column(name: str) -> NDArray[Any]:
        if name not in units:
            near = get_close_matches(name, list(units), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise parsed.error(f"names {name!r}, which no unit has; {hint}{_values(units)}")
        return units[name]

    n_units = len(next(iter(units.values()))) if units else 0
    chosen = parsed.holds(column, n_units)
    if not chosen.any():
        raise parsed.error(f"holds for none of {len(chosen)} units; {_values(units)}")
    return chosen


def _values(units: UnitTable) -> str:
    """Columns of a unit table with some of their values, for a message."""
    if not units:
        return "nothing is known of the units"
    described = [f"{name} ({column_values(column)})" for name, column in units.items()]
    return f"the units have {', '.join(described)}"


def column_values(column: NDArray[Any], most: int = 4) -> str:
    """Values of a column in words: a range of numbers, or the most frequent texts."""
    if column.dtype.kind == "f" and not np.isfinite(column).any():
        return "missing"
    if column.dtype.kind in "fiu" and len(np.unique(column)) > most:
        return f"{np.nanmin(column):.4g} to {np.nanmax(column):.4g}"
    texts = column.astype(str)
    if column.dtype.kind == "f":
        texts = np.array(["" if np.isnan(value) else f"{value:.4g}" for value in column])
    values, counts = np.unique(texts, return_counts=True)
    if len(values) == len(column) > most:
        return f"{values[0]}, {values[1]} ..., all different"
    order = np.argsort(-counts, kind="stable")[:most]
    words = [f"{values[i] or 'missing'}: {counts[i]}" for i in order]
    more = len(values) - len(words)
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
