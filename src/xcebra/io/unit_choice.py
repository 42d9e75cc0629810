"""Choose units by what is known of them, and give them their table and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.common.progress import choices
from xcebra.data.units import IndexedUnits, UnitTable, matched_units, select_units, unit_names
from xcebra.io.contents import Series, Spikes
from xcebra.io.lookup import one_line, spell


def chosen_units(
    activity: Series | Spikes,
    extra: Mapping[str, Any],
    asked: Any,
    unit_table: IndexedUnits | None,
    origin: str,
) -> tuple[Series | Spikes, NDArray[np.intp]]:
    """Return the activity of the units that the user asks for, with their table and names.

    The second value holds the indices of these units among all units.
    """
    n = len(activity.trains) if isinstance(activity, Spikes) else activity.values.shape[1]
    names = tuple(activity.trains) if isinstance(activity, Spikes) else activity.columns
    names = tuple(extra.get("neuron_names") or names)
    table = {**activity.units, **extra.get("units", {})}
    numbers = tuple(map(str, range(n)))
    if isinstance(activity, Spikes) and len(set(names)) < n:
        names = tuple(activity.trains)  # spikes are kept by name, and two units must stay two
    if not names or names == numbers:
        names = unit_names(table) or numbers
    if unit_table is not None:
        try:
            columns, index = unit_table
            table.update(matched_units(columns, names, names == numbers, index))
        except InputError as error:
            raise error.about(f"{origin}:") from None
    if names == numbers:
        names = unit_names(table) or numbers
    indices = np.arange(n)
    if asked is not None:
        try:
            indices = _asked_units(asked, names, {**_known_of(activity, names), **table})
        except InputError as error:
            raise error.about(f"{origin}:") from None
        chosen_by = asked if isinstance(asked, str) else spell(map(str, asked))
        choices.info("kept %d of %d units: %s", len(indices), n, chosen_by)
    table = {name: values[indices] for name, values in table.items()}
    kept = tuple(names[i] for i in indices)
    if isinstance(activity, Spikes):
        trains = list(activity.trains.values())
        chosen = {name: trains[i] for name, i in zip(kept, indices, strict=True)}
        return replace(activity, trains=chosen, units=table), indices
    values = activity.values if len(indices) == n else activity.values[:, indices]
    return replace(activity, values=values, columns=kept, units=table), indices


def _asked_units(asked: Any, names: tuple[str, ...], table: UnitTable) -> NDArray[np.intp]:
    """Return the indices of the units that a condition or a list of names chooses."""
    if isinstance(asked, str):
        return np.flatnonzero(select_units(asked, table))
    wanted = [str(name) for name in asked] if np.iterable(asked) else []
    if not wanted:
        raise InputError(
            f"units must be a condition, such as \"area == 'CA1'\", or a list of names, got "
            f"{one_line(asked)}",
            ("units",),
        )
    for name in wanted:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(
                f"units has {name!r}, which is no unit; {hint}the units are {spell(names)}",
                ("units",),
            )
    return np.array([names.index(name) for name in dict.fromkeys(wanted)])


def _known_of(activity: Series | Spikes, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return columns that every unit table has: names and, for spikes and counts, rates."""
    columns: dict[str, NDArray[Any]] = {"name": np.array(names)}
    rates = unit_rates(activity)
    return columns if rates is None else {**columns, "rate": rates}


def unit_rates(activity: Series | Spikes) -> NDArray[np.float64] | None:
    """Return the rate of each unit per second over the whole source.

    The result is None if the activity has no times, or is no counts.
    """
    if isinstance(activity, Spikes):
        support = activity.recorded
        seconds = float((support.stops - support.starts).sum())
        return np.array([len(train) / seconds for train in activity.trains.values()])
    if activity.times is None or activity.values.dtype.kind not in "iu":
        return None
    return np.asarray(activity.values).mean(axis=0, dtype=np.float64) / activity.interval
