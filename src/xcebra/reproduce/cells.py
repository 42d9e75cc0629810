"""Work items on simulated cells and on real grid cells, and how they are measured."""

from __future__ import annotations

import base64
import copy
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.neighbors import KNeighborsRegressor

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.metrics import auroc
from xcebra.networks.encoder import Inputs, embed
from xcebra.plots import binned
from xcebra.reproduce.encoding_model import encoding_map
from xcebra.reproduce.measurements import (
    MAPS,
    Training,
    measure,
    rounded,
    samples_of,
    scores,
    watched_fit,
    without_caveats,
)
from xcebra.reproduce.sources import Cells, GridCells
from xcebra.statistics.grid_score import grid_score
from xcebra.statistics.heading_and_speed import mean_vector_length, speed_score
from xcebra.statistics.rate_maps import rate_maps, spatial_information

LABELS = ("position", "heading", "speed")
# Maps of the model with several labels: ours, and the paper's.
COMPARED_MAPS = ("decoder-gradient, sparse", "inverted-gradient", "inverted-gradient, plain")
# Names of the simpler methods.
SIMPLER = (
    "encoding model, gradient",
    "encoding model, variance explained",
    "principal components, no label",
)
# Share of the recording that is decoded: the fifth that follows the samples used for the fit.
_DECODED_SHARE = 0.2
# Neighbours of the decoder. More neighbours give smoother predictions; not tuned.
_NEIGHBOURS = 20
# Time latents of the model with several labels; not tuned.
_TIME_DIMS = 4
# Points of the embedding, bins of time and rate maps in a figure. They limit the size of a row.
_N_POINTS = 800
_N_BINS = 150
_SHOWN_MAPS = 6
# Stands for a grid score that cannot be computed. Real scores lie between -2 and 2.
UNKNOWN = -9.0


@dataclass(frozen=True)
class Decoding:
    """Position decoded from the embedding, on samples after those that the model is fitted to.

    The model is fitted to the first ``share`` of the recording. Position is decoded on the fifth of
    the recording that follows.
    """

    data: Cells | GridCells
    training: Training
    share: float = 0.8


@dataclass(frozen=True)
class SeveralLabels:
    """One model with a block for each of position, heading and speed."""

    data: Cells
    training: Training


@dataclass(frozen=True)
class Simpler:
    """Simpler methods without a trained encoder: encoding models and principal components."""

    data: Cells


@dataclass(frozen=True)
class CellTypes:
    """One fit: its map over time, scores by kind of cell, embedding and training curve."""

    data: Cells
    training: Training
    every: int


@dataclass(frozen=True)
class GridPortrait:
    """One fit to real grid cells and their surrogates, with the data of its figure."""

    data: GridCells
    training: Training


@measure.register
def _(item: Decoding) -> dict[str, Any]:
    recording = item.data.make()
    times = recording.epochs.indices()
    first, last = (round(share * len(times)) for share in (item.share, item.share + _DECODED_SHARE))
    early, late = times[:first], times[first:last]
    cut = int(late[0])
    epochs = [(a, min(b, cut)) for a, b in recording.epochs.pairs() if a < cut]
    position = recording.labels["position"]
    with without_caveats():
        model = item.training.model(item.data).fit(recording.neural, position, epochs=epochs)
    z = embed(model.encoder_, recording)[:, model.blocks_["label"]]
    nearest = KNeighborsRegressor(_NEIGHBOURS).fit(z[early], position[early])
    linear = model.readout_["label"].predict(z[late])
    return {
        "nearest": float(r2_score(position[late], nearest.predict(z[late]))),
        "linear": float(r2_score(position[late], linear)),
    }


@measure.register
def _(item: SeveralLabels) -> dict[str, Any]:
    recording = item.data.make()
    model = XCEBRA(
        time_dims=_TIME_DIMS,
        steps=item.training.steps,
        random_state=item.training.seed,
        progress=False,
    )
    started = time.perf_counter()
    with without_caveats():
        model.fit(recording, label=list(LABELS))
        seconds = time.perf_counter() - started
        neural = recording.neural[samples_of(recording)]
        maps = {name: model.attribute(neural, **MAPS[name]) for name in COMPARED_MAPS}
    return {
        "fit_seconds": round(seconds, 2),
        "learned": {name: fit.learned for name, fit in model.goodness_of_fit_.items()},
        "maps": {
            name: {label: scores(amap, recording.ground_truth[label], label) for label in LABELS}
            for name, amap in maps.items()
        },
    }


@measure.register
def _(item: Simpler) -> dict[str, Any]:
    recording = item.data.make()
    # Share of each neuron's variance in the principal components that encoders receive. It does not
    # depend on any label.
    inputs = Inputs.measure(recording, recording.epochs, project=True)
    explained_by_components = np.square(inputs.loadings).sum(axis=1)
    map_scores: dict[str, Any] = {name: {} for name in SIMPLER}
    for label in LABELS:
        truth = recording.ground_truth[label]
        amap, explained = encoding_map(recording, recording.labels[label], samples_of(recording))
        ways = zip(SIMPLER, (amap.block("label"), explained, explained_by_components), strict=True)
        for name, score in ways:
            map_scores[name][label] = {"neurons": float(roc_auc_score(truth, score))}
    return {"maps": map_scores}


@measure.register
def _(item: CellTypes) -> dict[str, Any]:
    recording = item.data.make()
    truth = recording.ground_truth["position"]
    samples = samples_of(recording)
    with without_caveats():
        model, weights = watched_fit(item.training, item.data, recording, item.every)
        default = model.attribute(
            recording, block="label", keep_time=True, **MAPS["decoder-gradient, sparse"]
        )
        inverted = model.attribute(recording, block="label", **MAPS["inverted-gradient"])
        final = copy.deepcopy(model.encoder_.state_dict())
        curves: dict[str, list[float]] = {"steps": [], "auroc": []}
        for step, state in weights.items():
            model.encoder_.load_state_dict(state)
            early = model.attribute(
                recording.neural[samples], block="label", **MAPS["inverted-gradient, plain"]
            )
            curves["steps"].append(step)
            curves["auroc"].append(auroc(early, truth, block="label", score="block"))
        model.encoder_.load_state_dict(final)
    return {
        "kinds": [name.rsplit(" ", 1)[0] for name in recording.neuron_names],
        **_figure_data(model, recording, default, inverted),
        "over_training": curves,
        "classical": _classical(recording),
    }


@measure.register
def _(item: GridPortrait) -> dict[str, Any]:
    recording = item.data.make()
    with without_caveats():
        model = item.training.fit(item.data, recording)
        default = model.attribute(
            recording, block="label", keep_time=True, **MAPS["decoder-gradient, sparse"]
        )
        inverted = model.attribute(recording, block="label", **MAPS["inverted-gradient"])
    times = recording.epochs.indices()
    x, position = recording.neural[times].astype(np.float64), recording.labels["position"][times]
    maps = rate_maps(x, position)
    gridness = grid_score(maps)
    real = recording.ground_truth["position"]
    best = np.argsort(-np.where(real, np.nan_to_num(gridness, nan=UNKNOWN), UNKNOWN))[:_SHOWN_MAPS]
    return {
        "real": real.tolist(),
        "grid_score": rounded(np.nan_to_num(gridness, nan=UNKNOWN)),
        **_figure_data(model, recording, default, inverted),
        "rate_maps": {
            recording.neuron_names[i]: {
                **_pixels(np.nan_to_num(maps.rates[i])),
                "grid_score": round(float(gridness[i]), 3),
            }
            for i in best
        },
    }


def _figure_data(
    model: XCEBRA, recording: Recording, default: AttributionMap, inverted: AttributionMap
) -> dict[str, Any]:
    """Scores, the map over time, the embedding and the behaviour, in the size of a figure."""
    assert default.steps is not None
    _, means = binned(default.steps.times, default.steps.norms(default.blocks["label"]))
    samples = samples_of(recording, _N_POINTS)
    z = embed(model.encoder_, recording, samples)
    return {
        "z_scores": {
            "decoder-gradient, sparse": rounded(default.z_scores("label")),
            "inverted-gradient": rounded(inverted.z_scores("label")),
        },
        "over_time": _pixels(_coarser_bins(np.nan_to_num(means))),
        "embedding": {
            name: rounded(PCA(min(3, block.stop - block.start)).fit_transform(z[:, block]))
            for name, block in model.blocks_.items()
        },
        "behaviour": {name: rounded(recording.labels[name][samples]) for name in LABELS},
    }


def _classical(recording: Any) -> dict[str, list[float]]:
    """Classical tuning scores of each cell."""
    # The simulated activity can be negative (differences of Gaussians), but rates cannot.
    x = np.maximum(recording.neural.astype(np.float64), 0.0)
    maps = rate_maps(x, recording.labels["position"])
    return {
        "spatial information": rounded(spatial_information(maps)),
        "grid score": rounded(grid_score(maps)),
        "mean vector length": rounded(mean_vector_length(x, recording.labels["heading"])),
        "speed score": rounded(speed_score(x, recording.labels["speed"][:, 0])),
    }


def _coarser_bins(means: NDArray[Any]) -> NDArray[Any]:
    """Average over time bins, to at most `_N_BINS` of them; the result is (bin, neuron)."""
    n = min(_N_BINS, len(means))
    return np.array([part.mean(axis=0) for part in np.array_split(means, n)])


def _pixels(values: NDArray[Any]) -> dict[str, Any]:
    """Transpose an array and scale it to bytes between 0 (for 0) and 255 (for the maximum)."""
    largest = float(values.max())
    pixels = np.round(255 * values.T / (largest or 1.0)).astype(np.uint8)
    return {"shape": list(pixels.shape), "bytes": base64.b64encode(pixels.tobytes()).decode()}
