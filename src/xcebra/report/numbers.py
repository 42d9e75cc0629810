"""What a page shows, as plain numbers: the map, its course over time, the embedding, training."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.request import same_block
from xcebra.caveats import XcebraWarning
from xcebra.data.epochs import evenly_spaced
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.networks.encoder import embed
from xcebra.plots import binned

_MOST_MAPS = 3_000  # single time steps that a map over time is made from
_MOST_POINTS = 2_000  # of the embedding
_MOST_STEPS = 400  # of training
_DIGITS = 5


def map_numbers(
    amap: AttributionMap, explained: Mapping[str, NDArray[Any]], truth: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Neurons by blocks and latents, what is explained of each, and the known wiring."""
    owners = {
        latent: name
        for name, block in amap.blocks.items()
        for latent in range(block.start, block.stop)
    }
    return {
        "neurons": list(amap.neuron_names),
        "blocks": [_block_numbers(amap, name) for name in amap.blocks],
        "latents": [
            {"name": name, "block": owners[i], "values": _short(amap.values[:, i])}
            for i, name in enumerate(amap.latent_names)
        ],
        "explained": {what: _short(shares) for what, shares in explained.items()},
        "truth": {name: [int(v) for v in np.asarray(t)] for name, t in (truth or {}).items()},
    }


def _block_numbers(amap: AttributionMap, name: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": name,
        "scores": _short(amap.block(name)),
        "z": _short(amap.z_scores(name)),
    }
    if found := amap.connections.get(name):
        told["tested"] = {
            "share": _short(found.share),
            "share low": _short(found.low),
            "share high": _short(found.high),
            "p": _short(found.p_values),
        }
    if opinion := amap.opinions.get(name):
        told["opinion"] = {
            each: _short(values)
            for each, values in (
                (f"rate {opinion.rate_unit}", opinion.rate),
                ("encoding", opinion.encoding),
                (opinion.usual_name, opinion.usual),
            )
            if values is not None
        }
    return told


def map_over_time(model: XCEBRA, amap: AttributionMap, recording: Recording) -> dict[str, Any]:
    """Scores of each block in bins of time, made as the map was, and its warnings.

    Of a long recording, samples spread evenly over it.
    """
    times = recording.epochs.indices()
    every = -(-len(times) // _MOST_MAPS)
    rows = times[::every]
    blocks, made = list(amap.blocks), amap.made
    block: Any = same_block(made["selected"]) if "selected" in made else None
    if "selected" not in made and len(blocks) == 1:
        block = blocks[0]  # a map of version 0.4.0 or earlier
    with warnings.catch_warnings():
        # The map that is shown has kept its own.
        warnings.simplefilter("ignore", XcebraWarning)
        found = model.attribute(
            recording,
            method=made["method"],
            basis=made["basis"],
            units=made["units"],
            smooth=made.get("smooth"),
            block=block,
            keep_time=True,
            every=every,
        )
    if list(found.blocks) != blocks:  # a block, which is asked for here by its latents
        found = replace(found, blocks=dict(zip(blocks, found.blocks.values(), strict=True)))
    assert found.steps is not None
    scores = {}
    for name in blocks:
        edges, means = binned(rows, found.steps.norms(found.blocks[name]))
        most = float(np.nanmax(means)) or 1.0
        # 255 is a stretch that the map leaves out.
        bytes_ = np.where(np.isnan(means), 255, np.round(254 * means / most)).astype(np.uint8)
        scores[name] = {"most": most, "bytes": _base64(bytes_.T)}
    clock = recording.time
    starts = edges[:-1].astype(np.int64)
    at = starts if clock is None else clock[np.minimum(starts, len(clock) - 1)]
    return {
        "blocks": scores,
        "n_bins": len(starts),
        "at": [round(float(t), 3) for t in at],
        "unit": "sample" if clock is None else "s",
        "warnings": found.warnings,
    }


def embedding_numbers(model: XCEBRA, recording: Recording) -> dict[str, Any]:
    """Points of each block and of all latents in three dimensions, and what can colour them."""
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
        for i in range(values.shape[1]):
            told = name if values.shape[1] == 1 else f"{name}, column {i + 1}"
            colours.insert(i, _colour(told, values[:, i], kind))
    return {
        "n": len(rows),
        "views": {
            name: {"flat": points.shape[1] < 3, "points": _base64(_in_three(points))}
            for name, points in views.items()
        },
        "colours": colours,
    }


def training_numbers(history: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Losses and chance levels at some of the steps."""
    n = len(next(iter(history.values())))
    steps = evenly_spaced(np.arange(n), _MOST_STEPS)
    names = [key.removeprefix("loss/") for key in history if key.startswith("loss/")]
    return {
        "steps": (steps + 1).tolist(),
        "losses": {name: _short(history[f"loss/{name}"][steps]) for name in names},
        "chances": {name: _short(history[f"chance/{name}"][steps]) for name in names},
    }


def _in_three(points: NDArray[Any]) -> NDArray[np.int16]:
    """The first three principal components, scaled to fit 16 bits."""
    centred = points - points.mean(axis=0)
    if centred.shape[1] > 3:
        directions = np.linalg.svd(centred, full_matrices=False)[2]
        centred = centred @ directions[:3].T
    padded = np.zeros((len(centred), 3))
    padded[:, : centred.shape[1]] = centred
    most = np.abs(padded).max() or 1.0
    return np.round(32_000 * padded / most).astype("<i2")


def _colour(name: str, values: NDArray[Any], kind: str) -> dict[str, Any]:
    """A colour's place between 0 and 254 for each sample; 255 where the label is missing."""
    if kind == "discrete" or values.dtype.kind in "USO":
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        classes, codes = np.unique(values[~missing], return_inverse=True)
        bytes_ = np.full(len(values), 255, np.uint8)
        bytes_[~missing] = np.minimum(codes, 254)
        told = [str(each) for each in classes]
        return {"name": name, "kind": "discrete", "classes": told, "bytes": _base64(bytes_)}
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
