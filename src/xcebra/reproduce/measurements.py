"""Pieces of work: a recording, a training, and what is measured of it."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.caveats import XcebraWarning
from xcebra.common.errors import InputTypeError
from xcebra.data.epochs import evenly_spaced
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.metrics import accuracy, auroc, r_squared
from xcebra.reproduce.encoding_model import encoding_map
from xcebra.reproduce.sources import FACTOR, Data, Source
from xcebra.selection import affine, consistency

# Maps are made on this many samples, spread evenly, or on all of a shorter recording.
SAMPLES = 10_000
SHOWN = 300

# By name, how each map is made; what is not said is the estimator's default. The inverted gradient
# has the sparse basis and is smoothed by default; plain, it is the paper's. What tells how the
# encoder reads is in the label basis.
MAPS: dict[str, dict[str, Any]] = {
    "feature-ablation": {"method": "feature-ablation"},
    "shap-shuffled": {"method": "shap-shuffled"},
    "shap-zeros": {"method": "shap-zeros"},
    "integrated-gradients": {"method": "integrated-gradients"},
    "gradient": {"method": "gradient"},
    "inverted-gradient": {"method": "inverted-gradient"},
    "inverted-gradient, plain": {"method": "inverted-gradient", "basis": "raw", "smooth": 1},
    "decoder-gradient, label": {"method": "decoder-gradient", "basis": "label"},
    "decoder-gradient, sparse": {"method": "decoder-gradient", "basis": "sparse"},
}
AGGREGATED = ("inverted-gradient", "decoder-gradient, sparse")
AGGREGATES = ("mean", "median", "max")


@dataclass(frozen=True)
class Training:
    """How an encoder is trained; None leaves a setting to the recipe, or to the data's widths."""

    kind: str
    penalty: bool = True
    label_dims: int | None = None
    time_dims: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    recipe: str = "xcebra"
    seed: int = 0

    def model(self, data: Source) -> XCEBRA:
        """The estimator, not yet fitted."""
        settings: dict[str, Any] = {
            "batch_size": self.batch_size,
            "steps": self.steps,
            "recipe": self.recipe,
            "random_state": self.seed,
            "progress": False,
        }
        if not self.penalty:
            settings["jacobian_weight"] = 0.0
        label_dims = self.label_dims or data.n_observed
        if self.kind == "supervised":
            return XCEBRA(objective="regression", **settings)
        if self.kind == "supervised contrastive":
            return XCEBRA(label_dims, 0, **settings)
        if self.kind == "time contrastive":
            return XCEBRA(None, self.time_dims or data.n_latents, **settings)
        return XCEBRA(label_dims, self.time_dims or data.n_hidden, **settings)

    def fit(self, data: Source, recording: Recording, **options: Any) -> XCEBRA:
        """The estimator, fitted."""
        label = None if self.kind == "time contrastive" else recording.labels[data.observed]
        epochs = recording.epochs.pairs()
        return self.model(data).fit(recording.neural, label, epochs=epochs, **options)


@dataclass(frozen=True)
class Fit:
    """One fit, and all maps of it."""

    data: Source
    training: Training
    n_samples: int = SAMPLES


@dataclass(frozen=True)
class Encoding:
    """An ordinary encoding model: each neuron regressed on the label alone."""

    data: Data


@dataclass(frozen=True)
class Consistency:
    """Several fits to one recording, and how well their embeddings agree."""

    data: Data
    training: Training
    n_seeds: int


@dataclass(frozen=True)
class Portrait:
    """One fit, looked at while it trains, and its embedding."""

    data: Data
    training: Training
    every: int


@singledispatch
def measure(item: Any) -> dict[str, Any]:
    """Do one piece of work: from its specification to plain numbers."""
    raise InputTypeError(f"there is no such work as {item!r}")


@measure.register
def _(item: Fit) -> dict[str, Any]:
    recording = item.data.make()
    started = time.perf_counter()
    with without_caveats():
        model = item.training.fit(item.data, recording)
    seconds = time.perf_counter() - started
    block = _block(item.data, model)
    return {
        "fit_seconds": round(seconds, 2),
        **_of_model(item, model, recording),
        **({} if block is None else _of_maps(model, recording, block, item)),
    }


@measure.register
def _(item: Encoding) -> dict[str, Any]:
    recording = item.data.make()
    amap, explained = encoding_map(recording, recording.labels[FACTOR], samples_of(recording))
    truth = recording.ground_truth[FACTOR]
    by_variance = replace(amap, scores={"label": explained})
    return {
        "maps": {
            "encoding model": {
                **scores(amap, truth, "label"),
                "variance": auroc(by_variance, truth, block="label", score="block"),
            }
        }
    }


@measure.register
def _(item: Consistency) -> dict[str, Any]:
    recording = item.data.make()
    shown = recording.neural[samples_of(recording)]
    models, maps = [], []
    for seed in range(item.n_seeds):
        training = replace(item.training, seed=item.training.seed + seed)
        with without_caveats():
            models.append(training.fit(item.data, recording))
            block = _block(item.data, models[-1])
            if block is not None:
                truth = recording.ground_truth[FACTOR]
                found = {
                    name: scores(models[-1].attribute(shown, **MAPS[name]), truth, block)
                    for name in AGGREGATED
                }
                maps.append(found)
    return {
        "consistency": {
            name: [float(v) for v in table[~np.eye(len(table), dtype=bool)]]
            for name, table in consistency(models, shown).items()
        },
        "maps": maps,
    }


@measure.register
def _(item: Portrait) -> dict[str, Any]:
    recording = item.data.make()
    with without_caveats():
        model, weights = watched_fit(item.training, item.data, recording, item.every)
        samples = samples_of(recording)
        shown = recording.neural[samples]
        block = _block(item.data, model)
        assert block is not None
        over: dict[str, list[float]] = {"steps": [], "auroc": [], "r2": []}
        label = recording.labels[item.data.observed][samples]
        final = copy.deepcopy(model.encoder_.state_dict())
        for step, state in weights.items():
            model.encoder_.load_state_dict(state)
            plain = model.attribute(shown, **MAPS["inverted-gradient, plain"])
            over["steps"].append(step)
            truth = recording.ground_truth[FACTOR]
            over["auroc"].append(scores(plain, truth, block)["entries"])
            over["r2"].append(_affine_fit(model.transform(shown)[:, model.blocks_["label"]], label))
        model.encoder_.load_state_dict(final)
    latents = np.concatenate(list(recording.latents.values()), axis=1)[samples]
    embedding = model.transform(shown)
    rows = np.linspace(0, len(samples) - 1, SHOWN).astype(int)
    return {
        "over_training": over,
        "latents": rounded(latents[rows, :3]),
        "activity": rounded(shown[rows, :3]),
        "embedding": rounded(embedding[rows, :3]),
        "aligned": rounded(affine(embedding, latents)[rows, :3]),
    }


def watched_fit(
    training: Training, data: Source, recording: Recording, every: int
) -> tuple[XCEBRA, dict[int, Any]]:
    """A fit, and the encoder's weights at the first step and every so many."""
    weights: dict[int, Any] = {}

    def look(step: int, encoder: torch.nn.Module) -> None:
        if step == 1 or step % every == 0:
            weights[step] = copy.deepcopy(encoder.state_dict())

    return training.fit(data, recording, callback=look), weights


def _block(data: Source, model: XCEBRA) -> str | None:
    """The block that stands for the factor; None if it has no block of its own."""
    if data.observed == data.factor:
        return "label" if "label" in model.blocks_ else None
    return "time" if "label" in model.blocks_ and "time" in model.blocks_ else None


def samples_of(recording: Recording, most: int = SAMPLES) -> NDArray[np.int64]:
    """So many samples spread evenly over a recording's epochs."""
    times = recording.epochs.indices()
    n = len(times)
    return evenly_spaced(times, min(n, most))


def _of_model(item: Fit, model: XCEBRA, recording: Recording) -> dict[str, Any]:
    """How well the embedding holds label and latents, and what the model says of itself."""
    embedding = model.transform(recording.neural[samples_of(recording)])
    found: dict[str, Any] = {
        "r2": {
            name: _affine_fit(embedding, values[samples_of(recording)])
            for name, values in recording.latents.items()
        },
        "variance_explained": float(model.variance_explained_["all"].mean()),
        "left_over": model.left_over_,
        "learned": {name: fit.learned for name, fit in model.goodness_of_fit_.items()},
        "settings": {
            name: model.config_[name]
            for name in ("steps", "batch_size", "learning_rate", "jacobian_weight", "temperature")
        },
    }
    found["settings"]["time_offset"] = model.config_["time_offset"]
    if "label" in model.blocks_:
        label = recording.labels[item.data.observed]
        found["r2"]["label"] = model.score(recording.neural, label)
    return found


def _of_maps(model: XCEBRA, recording: Recording, block: str, item: Fit) -> dict[str, Any]:
    """Scores of every map, and of other ways to sum one up over time."""
    shown = recording.neural[samples_of(recording, item.n_samples)]
    truth = recording.ground_truth[item.data.factor]
    maps, seconds, aggregates = {}, {}, {}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", XcebraWarning)
        model.attribute(shown, block=block)
    for name, options in MAPS.items():
        started = time.perf_counter()
        keep = name in AGGREGATED
        with without_caveats():
            amap = model.attribute(shown, block=block, **options, keep_time=keep)
        seconds[name] = round(time.perf_counter() - started, 3)
        maps[name] = scores(amap, truth, block)
        if keep:
            aggregates[name] = _aggregates(amap, truth, block)
    return {
        "maps": maps,
        "map_seconds": seconds,
        "aggregates": aggregates,
        "warnings": sorted({each.category.__name__ for each in told}),
    }


def scores(amap: AttributionMap, truth: NDArray[np.bool_], block: str) -> dict[str, float]:
    """How well a map tells connected neurons from others, in the ways that tables show."""
    return {
        "entries": auroc(amap, truth, block=block),
        "neurons": auroc(amap, truth, block=block, score="block"),
        "accuracy": accuracy(amap, truth, block=block, score="entries"),
        "accuracy_neurons": accuracy(amap, truth, block=block),
    }


def _aggregates(amap: AttributionMap, truth: NDArray[np.bool_], block: str) -> dict[str, Any]:
    """Scores of a map summed up in other ways, and of single steps on their own."""
    found: dict[str, Any] = {
        name: scores(amap.aggregated(name), truth, block) for name in AGGREGATES
    }
    single = auroc(amap, truth, block=block, each_step=True)
    neurons = auroc(amap, truth, block=block, score="block", each_step=True)
    found["single step"] = {"entries": float(single.mean()), "neurons": float(neurons.mean())}
    return found


def _affine_fit(source: NDArray[Any], target: NDArray[Any]) -> float:
    return r_squared(target, affine(source, target))


def rounded(values: NDArray[Any]) -> Any:
    """Numbers as a row keeps them, in lists."""
    return np.round(values.astype(np.float64), 4).tolist()


def without_caveats() -> warnings.catch_warnings:
    """No warning of this package for a while: some work is meant to go wrong."""
    return warnings.catch_warnings(action="ignore", category=XcebraWarning)
