"""Summaries of a map by groups of neurons, such as areas or cell types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError, MissingExtraError
from xcebra.statistics.hierarchical import wilson

if TYPE_CHECKING:
    from pandas import DataFrame

    from xcebra.attribution.attribution_map import AttributionMap

# A column of the unit table, or several.
GroupBy = str | Sequence[str]
# A column of numbers with more different values than this, such as a depth, makes no groups. The
# value only decides between an answer and an error; not tuned.
_MOST_GROUPS = 40
# Most groups that a figure can tell apart by colour and marker.
_MOST_SHOWN = 12
# Columns that usually say where a neuron is or of which type it is, in the order of preference.
_USUAL_COLUMNS = (
    *("location", "area", "brain_area", "region", "brain_region", "structure"),
    *("cell_type", "celltype", "type", "layer"),
)
# Quantile of the normal distribution for intervals of 95 %.
_Z = 1.959964


@dataclass(frozen=True)
class GroupScore:
    """Scores of one group of neurons for one block.

    Parameters
    ----------
    group : str
        Value of the column that the neurons share; ``"missing"`` if they have none. If several
        columns make the groups, their values are joined, as in ``"CA1, pyramidal"``.
    n_neurons : int
    mean_score : float
        Mean of the block's scores over the neurons of the group.
    n_connected : int or None
        Number of neurons that are called connected; None if the block was not tested.
    low, high : float or None
        Interval of 95 % (Wilson's) of the share of connected neurons, as if the neurons of a group
        were independent. Neurons that were recorded together are not: for a comparison of areas,
        several sessions are needed.
    """

    group: str
    n_neurons: int
    mean_score: float
    n_connected: int | None = None
    low: float | None = None
    high: float | None = None

    @property
    def share(self) -> float | None:
        """Share of the group's neurons that are called connected; None if not tested."""
        return None if self.n_connected is None else self.n_connected / self.n_neurons

    def in_words(self) -> str:
        """One line about the group."""
        text = f"mean score {self.mean_score:.3g}"
        if self.n_connected is not None:
            text = f"{self.n_connected} of {self.n_neurons} connected, {text}"
        return f"{self.group}: {text}"


@dataclass(frozen=True)
class Groups:
    """Scores of groups of neurons, for every block.

    Parameters
    ----------
    column : str
        Column of the unit table that makes the groups; several are joined, as in
        ``"area, cell_type"``.
    scores : mapping of str to tuple of GroupScore
        For each block, its groups, with the highest mean score first.
    """

    column: str
    scores: Mapping[str, tuple[GroupScore, ...]]

    def to_pandas(self) -> DataFrame:
        """Convert to a table with one row for each block and group."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError(
                "to_pandas needs pandas; install it with: pip install 'xcebra[pandas]'"
            ) from error
        rows = [
            {
                "block": block,
                self.column: score.group,
                "neurons": score.n_neurons,
                "mean_score": score.mean_score,
                "connected": score.n_connected,
                "share_connected": score.share,
                "share_low": score.low,
                "share_high": score.high,
            }
            for block, scores in self.scores.items()
            for score in scores
        ]
        return pandas.DataFrame(rows).set_index(["block", self.column])

    def __str__(self) -> str:
        return "\n".join(
            f"{block}: {'; '.join(score.in_words() for score in scores)}"
            for block, scores in self.scores.items()
        )


def group_scores(amap: AttributionMap, column: GroupBy, alpha: float = 0.05) -> Groups:
    """Summarise a map by the values of columns of its unit table.

    Parameters
    ----------
    amap : AttributionMap
        A map with a unit table.
    column : str or sequence of str
    alpha : float
        False discovery rate of the neurons that count as connected.
    """
    groups = group_names(amap.units, column)
    scores = {}
    for block in amap.blocks:
        connected = amap.significant(block, alpha) if block in amap.connections else None
        rows = [
            _score(name, amap.block(block)[groups == name], connected, groups == name)
            for name in np.unique(groups).tolist()
        ]
        scores[block] = tuple(sorted(rows, key=lambda row: -row.mean_score))
    return Groups(group_title(amap.units, column), scores)


def grouping_columns(units: Mapping[str, NDArray[Any]], group_by: GroupBy) -> tuple[str, ...]:
    """Return the columns that make groups, without repetitions.

    Parameters
    ----------
    units : mapping of str to ndarray of shape (n_neurons,)
    group_by : str or sequence of str
        A column, or several, separated by commas if they are one text.

    Raises
    ------
    ValueError
        If no column is named.
    """
    if isinstance(group_by, str):
        # A column whose own name has a comma is found first.
        parts = [group_by] if group_by in units else group_by.split(",")
        names = tuple(dict.fromkeys(filter(None, map(str.strip, parts))))
    else:
        names = tuple(dict.fromkeys(group_by)) if np.iterable(group_by) else ()
    if not names or not all(isinstance(name, str) for name in names):
        known = f"the units have {list(units)}" if units else "nothing is known of the units"
        raise InputError(
            f"group_by={group_by!r} must name one or more columns of the units; {known}",
            ("group_by",),
        )
    return names


def group_title(units: Mapping[str, NDArray[Any]], group_by: GroupBy) -> str:
    """Return the columns that make groups as one text, which `group_names` understands too."""
    return ", ".join(grouping_columns(units, group_by))


def group_names(units: Mapping[str, NDArray[Any]], group_by: GroupBy) -> NDArray[Any]:
    """Return the group of each neuron as text, of shape (n_neurons,).

    Parameters
    ----------
    units : mapping of str to ndarray of shape (n_neurons,)
    group_by : str or sequence of str
        A column, or several, whose combinations of values are the groups; see `grouping_columns`.

    Raises
    ------
    ValueError
        If there is no such column, or if it has too many different numbers to make groups.
    """
    columns = [_values_as_text(units, name) for name in grouping_columns(units, group_by)]
    return np.array([", ".join(values) for values in zip(*columns, strict=True)])


def _values_as_text(units: Mapping[str, NDArray[Any]], column: str) -> list[str]:
    """Return the value of each neuron in one column; ``"missing"`` if it has none."""
    if column not in units:
        near = get_close_matches(column, list(units), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = f"the units have {list(units)}" if units else "nothing is known of the units"
        raise InputError(
            f"group_by={column!r} is no column of the units; {hint}{known}", ("group_by",)
        )
    values = units[column]
    n_values = len(np.unique(values))
    if values.dtype.kind in "fiu" and n_values > _MOST_GROUPS:
        raise InputError(
            f"group_by={column!r} has {n_values} different numbers, too many for groups; add a "
            "column that names the groups",
            ("group_by",),
        )
    if values.dtype.kind == "f":
        return ["missing" if np.isnan(v) else str(v).removesuffix(".0") for v in values.tolist()]
    return [text or "missing" for text in values.astype(str).tolist()]


def group_columns(units: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Return the columns of a unit table that make groups which a figure can show.

    These have between 2 and 12 different values, and at least one value is shared by several
    neurons.

    Parameters
    ----------
    units : mapping of str to ndarray of shape (n_neurons,)
    """
    columns = []
    for name, values in units.items():
        n_groups = len(np.unique(values.astype(str)))
        if 2 <= n_groups <= min(_MOST_SHOWN, len(values) - 1):
            columns.append(name)
    return tuple(columns)


def usual_column(units: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the column that most readers would group neurons by, such as the area.

    Parameters
    ----------
    units : mapping of str to ndarray of shape (n_neurons,)

    Returns
    -------
    str or None
        None if no column has one of the usual names and makes groups.
    """
    by_lower_name = {name.lower().replace(" ", "_"): name for name in group_columns(units)}
    return next((by_lower_name[name] for name in _USUAL_COLUMNS if name in by_lower_name), None)


def _score(
    name: str,
    scores: NDArray[np.float64],
    connected: NDArray[np.bool_] | None,
    inside: NDArray[np.bool_],
) -> GroupScore:
    if connected is None:
        return GroupScore(name, len(scores), float(scores.mean()))
    n_connected = int(connected[inside].sum())
    low, high = wilson_interval(n_connected, len(scores))
    return GroupScore(name, len(scores), float(scores.mean()), n_connected, low, high)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Interval of 95 % of a share, by Wilson's formula."""
    return wilson(successes / trials, trials, _Z)
