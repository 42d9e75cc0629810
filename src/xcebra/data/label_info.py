"""What a file or a user says about a label, beside its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError

KINDS = ("continuous", "discrete", "circular")


@dataclass(frozen=True)
class LabelInfo:
    """Description of a label, which stays with it from the file to the page.

    Parameters
    ----------
    kind : {"continuous", "discrete", "circular"} or None
        None if nobody has said it; it is then found from the values.
    columns : tuple of str
        Names of its columns; empty if they have none.
    unit : str
        Unit of its values, such as ``"cm"``; empty if it is not known.
    source : str
        What it was made from, such as ``"speed(x, z), smoothed by 0.1 s"``; empty if it is an
        entry of the file as it stands.
    """

    kind: str | None = None
    columns: tuple[str, ...] = ()
    unit: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in (None, *KINDS):
            raise InputError(f"kind of a label must be one of {list(KINDS)}, got {self.kind!r}")
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))

    def as_plain(self) -> dict[str, Any]:
        """Convert to values that can be written as JSON, without those that say nothing."""
        values = {**asdict(self), "columns": list(self.columns)}
        return {name: value for name, value in values.items() if value}


NOTHING_KNOWN = LabelInfo()


def plain_infos(infos: Mapping[str, LabelInfo]) -> dict[str, dict[str, Any]]:
    """Convert what is known of several labels to values that can be written as JSON."""
    return {name: info.as_plain() for name, info in infos.items() if info != NOTHING_KNOWN}


def infos_from_plain(plain: Any) -> dict[str, LabelInfo]:
    """Convert back from the result of `plain_infos`; anything else gives no information."""
    if not isinstance(plain, Mapping):
        return {}
    names = LabelInfo.__dataclass_fields__
    return {
        str(name): LabelInfo(**{key: value for key, value in values.items() if key in names})
        for name, values in plain.items()
        if isinstance(values, Mapping)
    }


def column_titles(name: str, info: LabelInfo, n_columns: int) -> tuple[str, ...]:
    """Titles for the axes of a figure, one for each column of a label.

    Parameters
    ----------
    name : str
        Name of the label.
    info : LabelInfo
    n_columns : int
    """
    unit = f" ({info.unit})" if info.unit else ""
    if n_columns == 1:
        return (f"{name}{unit}",)
    names = info.columns or tuple(f"{name} {i + 1}" for i in range(n_columns))
    return tuple(f"{column}{unit}" for column in names)


def scales_differ(values: NDArray[Any], ratio: float = 10.0) -> tuple[int, int] | None:
    """Columns of one label whose spreads differ so much that one of them hardly counts.

    Distances between samples of a label are taken over all its columns together. With a ratio of
    10, the narrow column contributes about 1 % of the squared distance.

    Parameters
    ----------
    values : ndarray of shape (n_times, n_columns)
    ratio : float
        Ratio of the standard deviations.

    Returns
    -------
    tuple of int or None
        Indices of the widest and of the narrowest column that varies; None if the ratio is
        smaller.
    """
    if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind not in "fiu":
        return None
    spread = np.nanstd(values.astype(np.float64), axis=0)
    if not (spread > 0).all():
        return None
    widest, narrowest = int(np.argmax(spread)), int(np.argmin(spread))
    return (widest, narrowest) if spread[widest] > ratio * spread[narrowest] else None
