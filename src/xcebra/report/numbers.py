"""Numbers that the page shows: the map, the map over time, the embedding and the training."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import group_names
from xcebra.attribution.request import same_block
from xcebra.caveats import XcebraWarning
from xcebra.data.epochs import evenly_spaced
from xcebra.data.label_info import column_titles
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.networks.encoder import embed
from xcebra.plots import binned
from xcebra.report.questions import TIME, doubt, is_yes, ordered_blocks
from xcebra.report.tables import first_neurons, unit_texts
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Limits on the size of the page and the time to make it. Larger values show more detail; not tuned.
_MOST_MAPS = 3_000  # samples that the map over time is made from
_MOST_POINTS = 2_000  # points of the embedding
_MOST_STEPS = 400  # training steps in the curves of the loss
_DIGITS = 5  # significant digits of the numbers in the page


def map_numbers(
    amap: AttributionMap,
    explained: Mapping[str, NDArray[Any]],
    truth: Mapping[str, Any] | None,
    fits: Mapping[str, GoodnessOfFit] | None = None,
    columns: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the scores and values of the map, the units, what is explained, and known wiring.

    Parameters
    ----------
    amap : AttributionMap
    explained : mapping of str to ndarray of shape (n_neurons,)
        Share of each neuron that is explained, by measure.
    truth : mapping of str to bool array of shape (n_neurons,), optional
        Known wiring, by factor.
    fits : mapping of str to GoodnessOfFit, optional
        ``model.goodness_of_fit_``.
    columns : sequence of str
        Columns of the unit table that the reader can group neurons by.

    Returns
    -------
    dict
        Plain values that JSON can hold.
    """
    owners = {
        latent: name
        for name, block in amap.blocks.items()
        for latent in range(block.start, block.stop)
    }
    blocks = ordered_blocks(amap)
    return {
        "neurons": list(amap.neuron_names),
        "blocks": [_block_numbers(amap, fits or {}, name) for name in blocks],
        "latents": [
            {"name": amap.latent_names[i], "block": owners[i], "values": _short(amap.values[:, i])}
            for i in sorted(owners, key=lambda latent: blocks.index(owners[latent]))
        ],
        "units": {name: unit_texts(values) for name, values in amap.units.items()},
        "groups": {column: _group_numbers(amap, column) for column in columns},
        "explained": {measure: _short(shares) for measure, shares in explained.items()},
        "truth": {name: [int(v) for v in np.asarray(t)] for name, t in (truth or {}).items()},
    }


def _group_numbers(amap: AttributionMap, column: str) -> dict[str, Any]:
    """Return the names of the groups of a column and the group of each neuron."""
    names, index = np.unique(group_names(amap.units, column), return_inverse=True)
    return {"names": names.tolist(), "index": index.tolist()}


def _block_numbers(
    amap: AttributionMap, fits: Mapping[str, GoodnessOfFit], name: str
) -> dict[str, Any]:
    role = "control" if name in amap.controls else "time" if name == TIME else "label"
    numbers: dict[str, Any] = {
        "name": name,
        "role": role,
        "scores": _short(amap.block(name)),
        # The page does not sort by the rounded scores, in which there may be ties.
        "order": first_neurons(amap, name),
        "doubt": doubt(fits, name),
    }
    if is_yes(fits, name):
        numbers["z"] = _short(amap.z_scores(name))
    if name in amap.connections and numbers["doubt"] is None:
        numbers["called"] = amap.significant(name).astype(int).tolist()
    if tested := amap.connections.get(name):
        numbers["tested"] = {
            "share": _short(tested.share),
            "share low": _short(tested.low),
            "share high": _short(tested.high),
            "p": _short(tested.p_values),
        }
    if opinion := amap.opinions.get(name):
        numbers["opinion"] = {
            measure: _short(values)
            for measure, values in (
                (f"rate {opinion.rate_unit}", opinion.rate),
                ("encoding", opinion.encoding),
                (opinion.usual_name, opinion.usual),
            )
            if values is not None
        }
    return numbers


def map_over_time(model: XCEBRA, amap: AttributionMap, recording: Recording) -> dict[str, Any]:
    """Return the scores of each block in bins of time, and the warnings of the map.

    The scores are computed with the same settings as the map. For a long recording, only every
    n-th sample is used.

    Parameters
    ----------
    model : XCEBRA
        A fitted model.
    amap : AttributionMap
    recording : Recording
        The recording that the map was made from.

    Returns
    -------
    dict
        Plain values that JSON can hold, except for ``"warnings"``, a tuple of warnings.
    """
    times = recording.epochs.indices()
    every = -(-len(times) // _MOST_MAPS)
    rows = times[::every]
    blocks, settings = list(amap.blocks), amap.made
    block: Any = same_block(settings["selected"]) if "selected" in settings else None
    if "selected" not in settings and len(blocks) == 1:
        block = blocks[0]  # a map of version 0.4.0 or earlier
    with warnings.catch_warnings():
        # The warnings of the map that is shown are stored in it.
        warnings.simplefilter("ignore", XcebraWarning)
        over_time = model.attribute(
            recording,
            method=settings["method"],
            basis=settings["basis"],
            units=settings["units"],
            smooth=settings.get("smooth"),
            block=block,
            keep_time=True,
            every=every,
        )
    if list(over_time.blocks) != blocks:  # a block that was selected here by its latents
        renamed = dict(zip(blocks, over_time.blocks.values(), strict=True))
        over_time = replace(over_time, blocks=renamed)
    assert over_time.steps is not None
    scores = {}
    for name in ordered_blocks(amap):
        edges, means = binned(rows, over_time.steps.norms(over_time.blocks[name]))
        most = float(np.nanmax(means)) or 1.0
        # 255 marks bins without a sample of the map.
        bytes_ = np.where(np.isnan(means), 255, np.round(254 * means / most)).astype(np.uint8)
        scores[name] = {"most": most, "bytes": _base64(bytes_.T)}
    clock = recording.time
    starts = edges[:-1].astype(np.int64)
    bin_times = starts if clock is None else clock[np.minimum(starts, len(clock) - 1)]
    return {
        "blocks": scores,
        "n_bins": len(starts),
        "at": [round(float(t), 3) for t in bin_times],
        "unit": "sample" if clock is None else "s",
        "warnings": over_time.warnings,
    }


def embedding_numbers(model: XCEBRA, recording: Recording) -> dict[str, Any]:
    """Return points of the embedding in three dimensions, and values to colour them by.

    Parameters
    ----------
    model : XCEBRA
        A fitted model.
    recording : Recording

    Returns
    -------
    dict
        Plain values that JSON can hold: the points for each block and for all latents, and the
        colours for time and each label.
    """
    times = recording.epochs.indices()
    rows = evenly_spaced(times, _MOST_POINTS)
    z = embed(model.encoder_, recording, rows)
    views = {name: z[:, block] for name, block in model.blocks_.items()}
    if len(views) > 1:
        views["all latents"] = z
    clock = rows.astype(float) if recording.time is None else recording.time[rows]
    colours = [_colour("time", clock, "continuous")]
    kinds = model.config_.get("label_kind") or {}
    for name in reversed(list(recording.labels)):
        values = recording.labels[name][rows]
        kind = kinds.get(name, "continuous")
        if kind == "circular" and values.shape[1] == 2:
            values = np.arctan2(values[:, 1], values[:, 0])[:, None]
        titles = column_titles(name, recording.label_info[name], values.shape[1])
        for i in range(values.shape[1]):
            title = name if values.shape[1] == 1 else f"{name}: {titles[i]}"
            colours.insert(i, _colour(title, values[:, i], kind))
    return {
        "n": len(rows),
        "views": {
            name: {"flat": points.shape[1] < 3, "points": _base64(_in_three(points))}
            for name, points in views.items()
        },
        "colours": colours,
    }


def training_numbers(history: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return losses and chance levels at evenly spaced training steps.

    Parameters
    ----------
    history : mapping of str to ndarray of shape (n_steps,)
        ``model.history_``.
    """
    n = len(next(iter(history.values())))
    steps = evenly_spaced(np.arange(n), _MOST_STEPS)
    names = [key.removeprefix("loss/") for key in history if key.startswith("loss/")]
    return {
        "steps": (steps + 1).tolist(),
        "losses": {name: _short(history[f"loss/{name}"][steps]) for name in names},
        "chances": {name: _short(history[f"chance/{name}"][steps]) for name in names},
    }


def _in_three(points: NDArray[Any]) -> NDArray[np.int16]:
    """Return the first three principal components, scaled to fit 16 bits; shape (point, 3)."""
    centred = points - points.mean(axis=0)
    if centred.shape[1] > 3:
        directions = np.linalg.svd(centred, full_matrices=False)[2]
        centred = centred @ directions[:3].T
    padded = np.zeros((len(centred), 3))
    padded[:, : centred.shape[1]] = centred
    most = np.abs(padded).max() or 1.0
    return np.round(32_000 * padded / most).astype("<i2")


def _colour(name: str, values: NDArray[Any], kind: str) -> dict[str, Any]:
    """Return a number between 0 and 254 for each sample; 255 where the label is missing."""
    if kind == "discrete" or values.dtype.kind in "USO":
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        classes, codes = np.unique(values[~missing], return_inverse=True)
        bytes_ = np.full(len(values), 255, np.uint8)
        bytes_[~missing] = np.minimum(codes, 254)
        names = [str(value) for value in classes]
        return {"name": name, "kind": "discrete", "classes": names, "bytes": _base64(bytes_)}
    numbers = values.astype(float)
    known = np.isfinite(numbers)
    low, high = (float(f(numbers[known])) if known.any() else 0.0 for f in (np.min, np.max))
    if kind == "circular":
        low, high = -np.pi, np.pi
        numbers = (numbers + np.pi) % (2 * np.pi) - np.pi
    share = (numbers - low) / ((high - low) or 1.0)
    bytes_ = np.where(known, np.round(254 * np.nan_to_num(share)), 255).astype(np.uint8)
    ends = [round(low, _DIGITS), round(high, _DIGITS)]
    return {"name": name, "kind": kind, "ends": ends, "bytes": _base64(bytes_)}


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _short(values: NDArray[Any]) -> list[float | None]:
    return [float(f"{v:.{_DIGITS}g}") if np.isfinite(v) else None for v in values.tolist()]
