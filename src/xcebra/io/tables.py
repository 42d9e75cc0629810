"""Tables in CSV and Parquet files, one row per sample."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xcebra.common.errors import InputError, MissingExtraError
from xcebra.data.conditions import as_text
from xcebra.data.units import IndexedUnits, as_column, cells
from xcebra.io.contents import Contents
from xcebra.io.objects import from_frame


def read_csv(path: Path) -> Contents:
    """Read the columns of a CSV file with a header.

    A first column without a name is the index.

    Raises
    ------
    ValueError
        If the file is empty, cut short or not a table.
    """
    frame = _read(path, "read_csv", "pandas")
    if _fields_at_the_end(path) < frame.shape[1]:
        raise InputError(
            f"{path}: is cut short: its last row has fewer than {frame.shape[1]} fields; write or "
            "download it again"
        )
    return from_frame(_with_index(frame), str(path))


def read_parquet(path: Path) -> Contents:
    """Read the columns of a Parquet file.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    return from_frame(_read(path, "read_parquet", "parquet"), str(path))


def read_unit_table(source: Any) -> IndexedUnits:
    """Read a table with one row per neuron.

    Parameters
    ----------
    source : path, DataFrame or mapping of str to array-like of shape (n_neurons,)
        A CSV or Parquet file, or the table itself.

    Returns
    -------
    IndexedUnits
        Without an index if this only numbers the rows.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or a column cannot be used.
    """
    where = "unit_table"
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        where = str(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {where!r}; check its name and folder")
        reader = {".csv": "read_csv", ".parquet": "read_parquet"}.get(path.suffix.lower())
        if reader is None:
            raise InputError(f"unit_table={where!r} must end in .csv or .parquet", ("unit_table",))
        source = _with_index(_read(path, reader, "pandas" if reader == "read_csv" else "parquet"))
    columns = getattr(source, "columns", source)
    if not hasattr(source, "columns") and not isinstance(source, Mapping):
        raise InputError(
            f"unit_table must be a file, a DataFrame or a mapping, got {type(source).__name__}",
            ("unit_table",),
        )
    table = {}
    for name in columns:
        column = as_column(cells(source[name]))
        if column is None:
            raise InputError(
                f"{where}: column {str(name)!r} must hold numbers or text, one for each neuron",
                ("unit_table",),
            )
        table[str(name)] = column
    lengths = {len(column) for column in table.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            f"{where}: must have columns of one length, one row for each neuron, got lengths "
            f"{sorted(lengths)}",
            ("unit_table",),
        )
    return IndexedUnits(table, _index(source))


def _index(source: Any) -> tuple[str, ...] | None:
    """Return the names of the rows of a DataFrame; None if it only numbers them."""
    if isinstance(source, Mapping) or not hasattr(source, "index"):
        return None
    values = source.index.tolist()
    return None if values == list(range(len(values))) else tuple(map(as_text, values))


def _with_index(frame: Any) -> Any:
    """Return a table from a file with its index; pandas writes it as a column without a name."""
    return frame.set_index("Unnamed: 0") if frame.columns[0] == "Unnamed: 0" else frame


def _read(path: Path, reader: str, extra: str) -> Any:
    try:
        import pandas

        options: dict[str, Any] = {}
        if reader == "read_csv":
            # Read the file in one piece, so that each column has one type. By default, pandas
            # before 3.1 reads some numbers with an error in the last bit.
            options["low_memory"] = False
            if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):
                options["float_precision"] = "round_trip"
        frame: Any = getattr(pandas, reader)(path, **options)
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: reading it needs pandas{' and pyarrow' if extra == 'parquet' else ''}; "
            f"install them with: pip install 'xcebra[{extra}]'"
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: is no table that can be read ({reason}); write it again"
        ) from None
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise InputError(f"{path}: is empty: it has {frame.shape[0]} rows; write it again")
    return frame


def _fields_at_the_end(path: Path) -> int:
    """Return the number of fields in the last row; pandas fills up a row that is too short."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**24))
        tail = file.read().decode(errors="replace").rstrip()
    return len(next(csv.reader([tail.rsplit("\n", 1)[-1]])))
