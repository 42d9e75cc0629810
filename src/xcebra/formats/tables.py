"""Tables: CSV and Parquet, one row per moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xcebra.formats.contents import Contents
from xcebra.formats.objects import from_frame


def read_csv(path: Path) -> Contents:
    """Columns of a CSV file with a header.

    Raises
    ------
    ValueError
        If it is empty or not a table.
    """
    return _read(path, "read_csv", "pandas")


def read_parquet(path: Path) -> Contents:
    """Columns of a Parquet file.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    return _read(path, "read_parquet", "parquet")


def _read(path: Path, reader: str, extra: str) -> Contents:
    try:
        import pandas

        frame: Any = getattr(pandas, reader)(path)
    except ImportError as error:
        raise ImportError(
            f"{path}: reading it needs pandas{' and pyarrow' if extra == 'parquet' else ''}; "
            f"install them with: pip install 'xcebra[{extra}]'"
        ) from error
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        told = " ".join(str(error).split())
        raise ValueError(f"{path}: is no table that can be read ({told}); write it again") from None
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise ValueError(f"{path}: is empty: it has {frame.shape[0]} rows")
    return from_frame(frame, str(path))
