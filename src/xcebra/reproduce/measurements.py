"""Work items on synthetic recordings: a recording, a training, and what is measured."""

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

# Maps use this many evenly spaced samples, or all samples of a shorter recording. More samples take
# longer; not tuned.
SAMPLES = 10_000
# Number of points of an embedding in a figure. It limits the size of a row.
SHOWN = 300

# Arguments of `XCEBRA.attribute` for each map, by name; arguments that are not listed have their
# defaults. By default, the inverted gradient uses the sparse basis and smoothing; "plain" is the
# inverted gradient of the paper. Methods that explain the encoder itself use the label basis.
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
    """How an encoder is trained.

    None leaves a setting to the recipe; for ``label_dims`` and ``time_dims``, None uses the widths
    of the factors in the data.
    """

    kind: str
    penalty: bool = True
    label_dims: int | None = None
    time_dims: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    recipe: str = "xcebra"
    seed: int = 0

    def model(self, data: Source) -> XCEBRA:
        """Return the estimator, not yet fitted."""
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
        """Return the fitted estimator."""
        label = None if self.kind == "time contrastive" else recording.labels[data.observed]
        epochs = recording.epochs.pairs()
        return self.model(data).fit(recording.neural, label, epochs=epochs, **options)


@dataclass(frozen=True)
class Fit:
    """One fit with all its maps."""

    data: Source
    training: Training
    n_samples: int = SAMPLES


@dataclass(frozen=True)
class Encoding:
    """An ordinary encoding model: each neuron is regressed on the label alone."""

    data: Data


@dataclass(frozen=True)
class Consistency:
    """Several fits to one recording, and how well their embeddings agree."""

    data: Data
    training: Training
    n_seeds: int


@dataclass(frozen=True)
class Portrait:
    """One fit, its maps during training (every ``every`` steps), and its embedding."""

    data: Data
    training: Training
    every: int


@singledispatch
def measure(item: Any) -> dict[str, Any]:
    """Run one work item and return its results as plain numbers, lists and dicts."""
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
    neural = recording.neural[samples_of(recording)]
    models, maps = [], []
    for seed in range(item.n_seeds):
        training = replace(item.training, seed=item.training.seed + seed)
        with without_caveats():
            models.append(training.fit(item.data, recording))
            block = _block(item.data, models[-1])
            if block is not None:
                truth = recording.ground_truth[FACTOR]
                map_scores = {
                    name: scores(models[-1].attribute(neural, **MAPS[name]), truth, block)
                    for name in AGGREGATED
                }
                maps.append(map_scores)
    return {
        "consistency": {
            name: [float(v) for v in table[~np.eye(len(table), dtype=bool)]]
            for name, table in consistency(models, neural).items()
        },
        "maps": maps,
    }


@measure.register
def _(item: Portrait) -> dict[str, Any]:
    recording = item.data.make()
    with without_caveats():
        model, weights = watched_fit(item.training, item.data, recording, item.every)
        samples = samples_of(recording)
        neural = recording.neural[samples]
        block = _block(item.data, model)
        assert block is not None
        curves: dict[str, list[float]] = {"steps": [], "auroc": [], "r2": []}
        label = recording.labels[item.data.observed][samples]
        final = copy.deepcopy(model.encoder_.state_dict())
        for step, state in weights.items():
            model.encoder_.load_state_dict(state)
            plain = model.attribute(neural, **MAPS["inverted-gradient, plain"])
            curves["steps"].append(step)
            truth = recording.ground_truth[FACTOR]
            curves["auroc"].append(scores(plain, truth, block)["entries"])
            curves["r2"].append(
                _affine_fit(model.transform(neural)[:, model.blocks_["label"]], label)
            )
        model.encoder_.load_state_dict(final)
    latents = np.concatenate(list(recording.latents.values()), axis=1)[samples]
    embedding = model.transform(neural)
    rows = np.linspace(0, len(samples) - 1, SHOWN).astype(int)
    return {
        "over_training": curves,
        "latents": rounded(latents[rows, :3]),
        "activity": rounded(neural[rows, :3]),
        "embedding": rounded(embedding[rows, :3]),
        "aligned": rounded(affine(embedding, latents)[rows, :3]),
    }


def watched_fit(
    training: Training, data: Source, recording: Recording, every: int
) -> tuple[XCEBRA, dict[int, Any]]:
    """Fit, and keep the encoder's weights at the first step and at every ``every``-th step."""
    weights: dict[int, Any] = {}

    def keep_weights(step: int, encoder: torch.nn.Module) -> None:
        if step == 1 or step % every == 0:
            weights[step] = copy.deepcopy(encoder.state_dict())

    return training.fit(data, recording, callback=keep_weights), weights


def _block(data: Source, model: XCEBRA) -> str | None:
    """Return the block of the factor, or None if the factor has no block of its own."""
    if data.observed == data.factor:
        return "label" if "label" in model.blocks_ else None
    return "time" if "label" in model.blocks_ and "time" in model.blocks_ else None


def samples_of(recording: Recording, max_samples: int = SAMPLES) -> NDArray[np.int64]:
    """Return the indices of at most ``max_samples`` samples, evenly spaced over the epochs."""
    times = recording.epochs.indices()
    n = len(times)
    return evenly_spaced(times, min(n, max_samples))


def _of_model(item: Fit, model: XCEBRA, recording: Recording) -> dict[str, Any]:
    """R^2 of the label and of the latents, goodness of fit, and the settings of the model."""
    embedding = model.transform(recording.neural[samples_of(recording)])
    results: dict[str, Any] = {
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
    results["settings"]["time_offset"] = model.config_["time_offset"]
    if "label" in model.blocks_:
        label = recording.labels[item.data.observed]
        results["r2"]["label"] = model.score(recording.neural, label)
    return results


def _of_maps(model: XCEBRA, recording: Recording, block: str, item: Fit) -> dict[str, Any]:
    """Scores of every map, and of maps that are aggregated over time in other ways."""
    neural = recording.neural[samples_of(recording, item.n_samples)]
    truth = recording.ground_truth[item.data.factor]
    maps, seconds, aggregates = {}, {}, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", XcebraWarning)
        model.attribute(neural, block=block)
    for name, options in MAPS.items():
        started = time.perf_counter()
        keep = name in AGGREGATED
        with without_caveats():
            amap = model.attribute(neural, block=block, **options, keep_time=keep)
        seconds[name] = round(time.perf_counter() - started, 3)
        maps[name] = scores(amap, truth, block)
        if keep:
            aggregates[name] = _aggregates(amap, truth, block)
    return {
        "maps": maps,
        "map_seconds": seconds,
        "aggregates": aggregates,
        "warnings": sorted({warning.category.__name__ for warning in caught}),
    }


def scores(amap: AttributionMap, truth: NDArray[np.bool_], block: str) -> dict[str, float]:
    """How well a map separates connected neurons from others: auROC and accuracy.

    Parameters
    ----------
    amap : AttributionMap
    truth : ndarray of bool of shape (n_neurons,)
        Neurons that are connected to the factor.
    block : str
        The block of the factor.
    """
    return {
        "entries": auroc(amap, truth, block=block),
        "neurons": auroc(amap, truth, block=block, score="block"),
        "accuracy": accuracy(amap, truth, block=block, score="entries"),
        "accuracy_neurons": accuracy(amap, truth, block=block),
    }


def _aggregates(amap: AttributionMap, truth: NDArray[np.bool_], block: str) -> dict[str, Any]:
    """Scores of a map with each aggregate over time, and mean scores of single time steps."""
    results: dict[str, Any] = {
        name: scores(amap.aggregated(name), truth, block) for name in AGGREGATES
    }
    single = auroc(amap, truth, block=block, each_step=True)
    neurons = auroc(amap, truth, block=block, score="block", each_step=True)
    results["single step"] = {"entries": float(single.mean()), "neurons": float(neurons.mean())}
    return results


def _affine_fit(source: NDArray[Any], target: NDArray[Any]) -> float:
    return r_squared(target, affine(source, target))


def rounded(values: NDArray[Any]) -> Any:
    """Round an array to four decimals and convert it to nested lists, for a row."""
    return np.round(values.astype(np.float64), 4).tolist()


def without_caveats() -> warnings.catch_warnings:
    """Return a context that ignores this package's warnings: some items are expected to warn."""
    return warnings.catch_warnings(action="ignore", category=XcebraWarning)
