"""Maps of all sessions of a run, and their groups of neurons."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import GroupBy, group_names, usual_column
from xcebra.attribution.pooled import PooledMaps, pool
from xcebra.attribution.pooled_groups import PooledGroups, called_connected, pooled_groups
from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.common.progress import phase
from xcebra.common.provenance import made_with
from xcebra.report.questions import TIME, asked_blocks, doubt
from xcebra.report.run_folder import MAP, MAPS, UNFINISHED_MAPS
from xcebra.report.session_runs import SessionRun, about_session

_REQUEST = "request.json"
# Column and group of all neurons, if no column of the units groups them.
NO_COLUMN, ALL_NEURONS = "group", "all neurons"
# False discovery rate of the neurons that are called connected, in each session.
ALPHA = 0.05


def make_maps(run: SessionRun, *, refits: int = 0, **arguments: Any) -> PooledMaps:
    """Make the maps of all sessions, and write them to the folder of the run.

    The map of each session is kept as soon as it is made, so that the same call goes on after it
    was killed. With refits of a joint fit, all sessions are fitted again together, and nothing is
    kept before the end.

    Parameters
    ----------
    run : SessionRun
    refits : int
        Further fits that must agree with the test.
    **arguments
        Arguments of `XCEBRA.attribute`.

    Returns
    -------
    PooledMaps
    """
    if refits and run.joint is not None:
        maps = dict(run.joint.attribute(dict(run.recordings), refits=refits, **arguments))
    else:
        maps = _maps_one_by_one(run, {**arguments, "refits": refits})
    pooled = with_animals(run, maps)
    pooled.save(run.folder / MAPS)
    if run.joint is None:
        for name, folder in run.folders.items():
            maps[name].save(folder / MAP)
    shutil.rmtree(run.folder / UNFINISHED_MAPS, ignore_errors=True)
    return pooled


def with_animals(run: SessionRun, maps: Mapping[str, AttributionMap]) -> PooledMaps:
    """Pool maps with the animals and days of the sessions of a run."""
    return pool(maps, run.settings.animals, run.settings.days)


def load_maps(run: SessionRun) -> PooledMaps | None:
    """Read the maps of a run; None if there are none yet."""
    if not (run.folder / MAPS).is_dir():
        return None
    return PooledMaps.load(run.folder / MAPS)


def _maps_one_by_one(run: SessionRun, arguments: Mapping[str, Any]) -> dict[str, AttributionMap]:
    """Make the map of each session that has none of the same kind yet."""
    folder = run.folder / UNFINISHED_MAPS
    request = json.dumps({"made_with": made_with(), **arguments}, sort_keys=True)
    if not (folder / _REQUEST).is_file() or (folder / _REQUEST).read_text("utf-8") != request:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with atomically(folder / _REQUEST) as temporary:
            temporary.write_text(request, encoding="utf-8")
    maps = {}
    for name, own in run.settings.folders.items():
        path = folder / f"{own}.nc"
        if path.is_file():
            maps[name] = AttributionMap.load(path)
            continue
        with phase(f"session {name}"), about_session(name):
            maps[name] = run.models[name].attribute(run.recordings[name], **arguments)
        maps[name].save(path)
    return maps


def pooled_column(pooled: PooledMaps, group_by: GroupBy | None) -> GroupBy | None:
    """Return the column that groups neurons: the one that is asked for, or the usual one.

    Parameters
    ----------
    pooled : PooledMaps
    group_by : str, sequence of str or None

    Raises
    ------
    ValueError
        If a session has no such column, or if it makes no groups.
    """
    return checked_column({name: amap.units for name, amap in pooled.items()}, group_by)


def checked_column(
    units: Mapping[str, Mapping[str, Any]], group_by: GroupBy | None
) -> GroupBy | None:
    """Return the column that groups neurons of sessions with these unit tables."""
    if group_by is not None:
        for name, table in units.items():
            try:
                group_names(table, group_by)
            except InputError as error:
                raise error.about(f"session {name!r}:") from None
        return group_by
    first, *others = units.values()
    common = [name for name in first if all(name in table for table in others)]
    # A session may have neurons of one group alone, so that the groups are those of all sessions.
    return usual_column(
        {name: np.concatenate([t[name].astype(str) for t in units.values()]) for name in common}
    )


def groups_of(pooled: PooledMaps, column: GroupBy | None) -> PooledGroups:
    """Summarise all sessions by groups of neurons.

    Its cautions are part of the result, and are not given as warnings.

    Parameters
    ----------
    pooled : PooledMaps
    column : str, sequence of str or None
        None makes one group of all neurons.
    """
    if column is not None:
        return pooled_groups(pooled.maps, pooled.animals, column)
    alike = {
        name: replace(amap, units={NO_COLUMN: np.full(len(amap.neuron_names), ALL_NEURONS)})
        for name, amap in pooled.items()
    }
    return pooled_groups(alike, pooled.animals, NO_COLUMN)


def asked_labels(pooled: PooledMaps) -> list[str]:
    """Return the labels that are asked about in one or more sessions; time if there is none."""
    asked = dict.fromkeys(name for amap in pooled.values() for name in asked_blocks(amap))
    return [name for name in asked if name != TIME] or list(asked)


def doubts(run: SessionRun, label: str) -> dict[str, str]:
    """Return the sessions in which the scores of a label must not be read, with the reason."""
    reasons = {n: doubt(m.goodness_of_fit_, label) for n, m in run.models.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def is_found(run: SessionRun, pooled: PooledMaps, label: str) -> bool:
    """Whether a label was found in one or more sessions, so that its groups may be read."""
    present = {name for name, amap in pooled.items() if label in amap.blocks}
    return bool(present - set(doubts(run, label)))


def verdict_sentences(run: SessionRun, pooled: PooledMaps, label: str) -> list[str]:
    """Say in how many sessions a label was found, and what this means for the groups."""
    present = [name for name, amap in pooled.items() if label in amap.blocks]
    doubtful = [name for name in doubts(run, label) if name in present]
    found = len(present) - len(doubtful)
    sentences = [f"{label} was found in {found} of {_count(len(present), 'session')}."]
    if doubtful and found:
        sentences.append(
            f"Not, or not clearly, in {', '.join(doubtful)}: few neurons can be called connected "
            "there, whatever their groups are. Repeat the answer without them."
        )
    lacking = [name for name in pooled if name not in present]
    if lacking:
        sentences.append(f"Without this label: {', '.join(lacking)}.")
    return sentences


def connected_counts(run: SessionRun, pooled: PooledMaps, label: str) -> dict[str, str]:
    """Say for each session that has a label how many of its neurons are connected to it."""
    counts = {}
    doubtful = doubts(run, label)
    for name, amap in pooled.items():
        if label not in amap.blocks:
            continue
        called = called_connected(amap, label, ALPHA)
        if name in doubtful:
            counts[name] = "no neuron is called connected"
        elif label not in amap.connections:
            counts[name] = "not tested"
        elif called is None:
            counts[name] = "the test does not hold"
        else:
            counts[name] = f"{int(called.sum())} of {len(called)} neurons connected"
    return counts


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
