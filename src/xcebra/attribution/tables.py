"""Tables of pooled maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xcebra.common.errors import MissingExtraError

if TYPE_CHECKING:
    from pandas import DataFrame


def as_table(rows: Sequence[Mapping[str, Any]], truths: Sequence[str] = ()) -> DataFrame:
    """Convert rows to a table.

    Parameters
    ----------
    rows : sequence of mapping of str to object
    truths : sequence of str
        Columns of truth values, of which some may be None.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas needs pandas; install it with: pip install 'xcebra[pandas]'"
        ) from error
    return pandas.DataFrame(rows).astype(dict.fromkeys(truths, "boolean"))
