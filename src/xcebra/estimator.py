"""XCEBRA: the scikit-learn face of the method."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from xcebra import settings
from xcebra.attribution import AGGREGATES, BASES, METHODS, UNITS, AttributionMap, attribution_map
from xcebra.caveats import SilentNeuronWarning, UnlearnedLabelWarning, warn
from xcebra.diagnostics import GoodnessOfFit, autocorrelation_time, goodness_of_fit
from xcebra.encoder import Encoder, Inputs
from xcebra.epochs import Epochs
from xcebra.infonce import chance_level, infonce
from xcebra.labels import Label, delay_label, make_label, warn_missing
from xcebra.metrics import fit_linear, r_squared
from xcebra.recording import Recording, as_labels
from xcebra.sampling import NONE, NearestLabel, Pairs, SameClass, TimeOffset
from xcebra.settings import RECIPES, Recipe
from xcebra.storage import read_tensors, write_tensors
from xcebra.timescale import Series, choose_offset, choose_temperature, component_series
from xcebra.training import Objective, Regression, TrainConfig, train

_MODEL_KIND = "xcebra-model"
_ENCODE_ROWS = 16_384
_AXES_ROWS = 50_000
_FEW_NAMES = 10


class XCEBRA(TransformerMixin, BaseEstimator):
    """Identifiable embeddings of neural activity, and the attribution maps that follow from them.

    Every argument left at None takes the recipe's value or is chosen from the data; `config_` says
    what was used.

    Parameters
    ----------
    label_dims : int, mapping or None
        Latents for the label, or for each label by name; None gives each label its width.
    time_dims : int or None
        Latents for what no label explains; 0 is supervised contrastive learning.
    jacobian_weight : float or None
        Weight of the Jacobian penalty; it is divided by the temperature.
    objective : {"contrastive", "regression"}
        ``"regression"`` is the supervised baseline.
    steps, batch_size : int or None
    learning_rate, temperature : float or None
    distance : {"euclidean", "cosine"}
    time_offset : int or None
        Samples between a reference and its positive in time, and length of a label's steps.
    time_on : {"all", "block"}
        Latents the time objective acts on: all of them, or the time block alone.
    label_kind : str, mapping or None
        ``"continuous"``, ``"discrete"`` or ``"circular"``, for all labels or by name. Floats are
        continuous unless said otherwise.
    label_delay : int or mapping
        Samples by which the label comes after the activity it belongs to.
    recipe : {"xcebra", "paper"}
    device : str or None
        A torch device; the CPU if not given.
    progress : bool or None
        Show a progress bar; None shows it where someone may be watching.
    random_state : int, RandomState or None

    Attributes
    ----------
    blocks_ : dict of str to slice
        Latents of each label and of time.
    history_ : dict of str to ndarray of shape (n_steps,)
    goodness_of_fit_ : dict of str to GoodnessOfFit
        Held-out loss of each objective, beside chance.
    config_ : dict
        Every setting as resolved.
    encoder_ : Encoder
        The trained torch module, from raw activity to embedding.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if the input had names.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
    >>> model = xcebra.XCEBRA(time_dims=2, steps=20, random_state=0)
    >>> model.fit(rec.neural, rec.labels["z2"]).transform(rec.neural).shape
    (2000, 4)
    >>> model.blocks_
    {'label': slice(0, 2, None), 'time': slice(2, 4, None)}
    """

    def __init__(
        self,
        label_dims: int | Mapping[str, int] | None = None,
        time_dims: int | None = None,
        *,
        jacobian_weight: float | None = None,
        objective: str = "contrastive",
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        temperature: float | None = None,
        distance: str = "euclidean",
        time_offset: int | None = None,
        time_on: str = "all",
        label_kind: str | Mapping[str, str] | None = None,
        label_delay: int | Mapping[str, int] = 0,
        recipe: str = "xcebra",
        device: str | None = None,
        progress: bool | None = None,
        random_state: Any = None,
    ) -> None:
        self.label_dims = label_dims
        self.time_dims = time_dims
        self.jacobian_weight = jacobian_weight
        self.objective = objective
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.temperature = temperature
        self.distance = distance
        self.time_offset = time_offset
        self.time_on = time_on
        self.label_kind = label_kind
        self.label_delay = label_delay
        self.recipe = recipe
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        label: str | Iterable[str] | None = None,
        epochs: Iterable[tuple[int, int]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> XCEBRA:
        """Train the encoder.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        y : array-like of shape (n_times,) or (n_times, n_columns), DataFrame, mapping, or None
            One label, several by name, or None to learn from time alone.
        label : str or iterable of str, optional
            Which of a Recording's labels to use.
        epochs : list of (start, stop), optional
            Uninterrupted stretches, in samples.
        checkpoint : path, optional
            Where to keep the state of training. A fit that finds the file goes on from it and ends
            with the same bits as one that was never stopped.
        """
        params = self.get_params(deep=False)
        settings.check_parameters(params)
        device = _device(self.device)
        recipe = RECIPES[self.recipe]
        recording = self._recording(X, y, label, epochs, reset=True)
        whole = recording.epochs
        assert whole is not None
        labels = self._labels(recording, whole)
        blocks = settings.resolve_blocks(params, labels, recording.n_neurons)
        labels = sorted(labels, key=lambda each: list(blocks).index(each.name))
        settings.split_epochs(whole, self.time_offset or 1)  # too short to fit: say so first
        inputs = Inputs.measure(recording, whole.split(settings.HELD_OUT)[0], project=recipe.project)
        _report_silent(inputs, recording.neuron_names)
        offset, training, held_out = 1, whole, None
        n_first = whole.split(settings.HELD_OUT)[0].size
        batch_size = settings.resolve_batch_size(self.batch_size, recipe, n_first)
        series = self._series(recording, inputs, labels, blocks)
        offset = self.time_offset or recipe.time_offset
        if offset is None:
            offset = choose_offset(series, whole, batch_size) if series else 1
        training, held_out = settings.split_epochs(whole, offset)
        temperature = self.temperature or recipe.temperature
        if temperature is None:
            temperature = choose_temperature(series, training, offset) if series else 1.0
        for each in labels:
            warn_missing(each, whole)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = TrainConfig(
            steps=self.steps or recipe.steps,
            batch_size=min(batch_size, training.size),
            learning_rate=self.learning_rate or recipe.learning_rate,
            schedule=recipe.schedule,
            jacobian_weight=float(
                recipe.jacobian_weight if self.jacobian_weight is None else self.jacobian_weight
            ),
            temperature=float(temperature),
            similarity=self.distance,
            include_positive=recipe.include_positive,
            projections=1,
            seed=seed,
        )
        objectives = self._objectives(labels, blocks, training, offset, recipe)
        n_latents = max(block.stop for block in blocks.values())
        encoder = Encoder(
            inputs,
            n_latents,
            limit=recipe.limit,
            unit_blocks=list(blocks.values()) if self.distance == "cosine" else None,
            generator=torch.Generator().manual_seed(seed),
        ).to(device)
        history = train(
            encoder,
            recording,
            training,
            objectives,
            config,
            device=device,
            progress=_show_progress(self.progress),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            fingerprint=_fingerprint(config, params, inputs, labels, whole),
        )
        self.encoder_ = encoder
        self.blocks_ = blocks
        self.history_ = history
        self.config_ = {
            **{name: _plain(value) for name, value in params.items()},
            **asdict(config),
            "time_offset": offset,
            "limit": recipe.limit,
            "n_components": int(inputs.loadings.shape[1]),
            "n_training": training.size,
            "n_held_out": 0 if held_out is None else held_out.size,
            "label_dims": {n: b.stop - b.start for n, b in blocks.items() if n != "time"},
            "time_dims": n_latents - sum(b.stop - b.start for n, b in blocks.items() if n != "time"),
            "label_kind": {each.name: each.kind for each in labels},
            "random_state": seed,
            "device": str(device),
        }
        self.readout_ = self._fit_readout(recording, training, labels)
        self.goodness_of_fit_ = self._goodness(
            recording, objectives, training, held_out, labels, offset, recipe
        )
        return self

    def transform(self, X: Any, *, epochs: Iterable[tuple[int, int]] | None = None) -> Any:
        """Embed activity.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        epochs : list of (start, stop), optional
            Checked; every row is embedded, inside an epoch or not.

        Returns
        -------
        ndarray of shape (n_times, n_latents)
            Label blocks first, then the time block.
        """
        check_is_fitted(self)
        return self._embed(self._recording(X, epochs=epochs))

    def attribute(
        self,
        X: Any,
        *,
        method: str | None = None,
        aggregate: str = "mean",
        basis: str | None = None,
        smooth: int | None = None,
        units: str = "standardised",
        epochs: Iterable[tuple[int, int]] | None = None,
    ) -> AttributionMap:
        """Attribute the latents to the neurons, over the samples given.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        method : {"inverted-gradient", "gradient"} or None
            None is the recipe's best.
        aggregate : {"mean", "max", "sum"}
            Over time, of absolute values.
        basis : {"raw", "label"} or None
            Axes inside a label's block: as learned, or along the label's own columns.
        smooth : int or None
            Neighbours in the embedding over which each Jacobian is averaged; 1 is none.
        units : {"standardised", "raw"}
            Neurons in units of their standard deviation, or as recorded.
        epochs : list of (start, stop), optional
            Samples to aggregate over.
        """
        check_is_fitted(self)
        recipe = RECIPES[self.recipe]
        method = recipe.method if method is None else method
        basis = recipe.basis if basis is None else basis
        smooth = recipe.smooth if smooth is None else smooth
        problems: list[str] = []
        settings.choice(problems, "method", method, METHODS)
        settings.choice(problems, "aggregate", aggregate, AGGREGATES)
        settings.choice(problems, "basis", basis, BASES)
        settings.choice(problems, "units", units, UNITS)
        settings.number(problems, "smooth", smooth, least=1, whole=True)
        if problems:
            raise ValueError("; ".join(problems))
        self._warn_unlearned()
        recording = self._recording(X, epochs=epochs)
        assert recording.epochs is not None
        made = attribution_map(
            self.encoder_,
            recording,
            recording.epochs.indices(),
            self.blocks_,
            tuple(self.get_feature_names_out()),
            method=method,
            basis=self._label_axes() if basis == "label" else None,
            smooth=smooth,
            units=units,
            aggregate=aggregate,
        )
        return replace(made, made={**made.made, "basis": basis})

    def score(self, X: Any, y: Any = None) -> float:
        """Variance of the labels explained linearly by their blocks, by the fit's own readout.

        Without labels, how far the time loss lies below chance, in nats.
        """
        check_is_fitted(self)
        recording = self._recording(X, y)
        embedding = self._embed(recording)
        if not recording.labels:
            return self._time_score(embedding, recording)
        found = []
        for each in self._labels(recording, recording.epochs, fitted=True):
            if each.name not in self.readout_:
                raise ValueError(
                    f"y has a label {each.name!r}, but the model was fitted with "
                    f"{list(self.readout_)}"
                )
            weights, intercept = self.readout_[each.name]
            predicted = embedding[:, self.blocks_[each.name]] @ weights.T + intercept
            found.append(r_squared(each.points[each.valid], predicted[each.valid]))
        return float(np.mean(found))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the latents: block and number."""
        check_is_fitted(self)
        names = [
            f"{name}{i}"
            for name, block in self.blocks_.items()
            for i in range(block.stop - block.start)
        ]
        return np.array(names, dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file, complete or not at all."""
        check_is_fitted(self)
        tensors = {f"encoder/{k}": v for k, v in self.encoder_.state_dict().items()}
        tensors |= {f"history/{k}": torch.from_numpy(v) for k, v in self.history_.items()}
        for name, (weights, intercept) in self.readout_.items():
            tensors[f"readout/{name}/weights"] = torch.from_numpy(weights)
            tensors[f"readout/{name}/intercept"] = torch.from_numpy(intercept)
        names = getattr(self, "feature_names_in_", None)
        header = {
            "params": {k: _plain(v) for k, v in self.get_params(deep=False).items()},
            "config": self.config_,
            "blocks": [[name, b.start, b.stop] for name, b in self.blocks_.items()],
            "goodness_of_fit": {k: asdict(v) for k, v in self.goodness_of_fit_.items()},
            "feature_names_in": None if names is None else list(names),
        }
        write_tensors(path, _MODEL_KIND, tensors, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> XCEBRA:
        """Read a model written by `save`; nothing in the file is executed."""
        tensors, header = read_tensors(path, _MODEL_KIND)
        model = cls(**{**header["params"], "device": device})
        model.config_ = {**header["config"], "device": str(_device(device))}
        model.blocks_ = {name: slice(a, b) for name, a, b in header["blocks"]}
        model.history_ = {
            k.removeprefix("history/"): v.numpy() for k, v in tensors.items() if k[:8] == "history/"
        }
        model.goodness_of_fit_ = {
            k: GoodnessOfFit(**v) for k, v in header["goodness_of_fit"].items()
        }
        model.readout_ = {
            name: (
                tensors[f"readout/{name}/weights"].numpy(),
                tensors[f"readout/{name}/intercept"].numpy(),
            )
            for name in model.config_["label_dims"]
        }
        state = {k.removeprefix("encoder/"): v for k, v in tensors.items() if k[:8] == "encoder/"}
        inputs = Inputs(*(state[k].double().numpy() for k in ("mean", "scale", "loadings")))
        cosine = model.config_["similarity"] == "cosine"
        model.encoder_ = Encoder(
            inputs,
            max(b.stop for b in model.blocks_.values()),
            limit=model.config_["limit"],
            unit_blocks=list(model.blocks_.values()) if cosine else None,
        )
        model.encoder_.load_state_dict(state)
        model.encoder_.to(_device(device))
        model.n_features_in_ = len(state["mean"])
        if header["feature_names_in"] is not None:
            model.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    # --- from arguments to data -----------------------------------------------------------------

    def _recording(
        self,
        X: Any,
        y: Any = None,
        label: str | Iterable[str] | None = None,
        epochs: Iterable[tuple[int, int]] | None = None,
        *,
        reset: bool = False,
    ) -> Recording:
        """Whatever form the data has, as one checked recording."""
        if isinstance(X, Recording):
            named_labels = dict(X.labels) if y is None and reset else as_labels(y)
            if label is not None:
                named_labels = _chosen(named_labels, label)
            elif reset and y is None and X.labels:
                raise ValueError(
                    f"the recording has labels {list(X.labels)}; say which to use with label=..., "
                    "or label=[] to learn from time alone"
                )
            given = X.epochs if epochs is None else epochs
            neural, names = X.neural, X.neuron_names
            validate_data(self, neural[:1], reset=reset, ensure_all_finite=False)
            return Recording(neural, named_labels, given, names)  # type: ignore[arg-type]
        if label is not None:
            raise ValueError(f"label={label!r} chooses from a Recording; pass arrays as y instead")
        checked = validate_data(
            self, X, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=2
        )
        names = tuple(getattr(self, "feature_names_in_", ()))
        return Recording(checked, as_labels(y), epochs, names)  # type: ignore[arg-type]

    def _labels(
        self, recording: Recording, epochs: Epochs | None, *, fitted: bool = False
    ) -> list[Label]:
        names = list(recording.labels)
        kinds, delays = settings.label_settings(self.get_params(deep=False), names)
        if fitted:
            kinds = {name: self.config_["label_kind"].get(name) for name in names}
        assert epochs is not None
        return [
            delay_label(make_label(name, values, kinds[name]), delays[name], epochs)
            for name, values in recording.labels.items()
        ]

    def _series(
        self,
        recording: Recording,
        inputs: Inputs,
        labels: list[Label],
        blocks: Mapping[str, slice],
    ) -> list[tuple[Series, int]]:
        """What each objective follows over time, to choose offset and temperature from."""
        if "time" in blocks:
            size = blocks["time"].stop - (blocks["time"].start if self.time_on == "block" else 0)
            return [(component_series(recording, inputs), size)]
        return [
            (lambda times, points=each.points: np.nan_to_num(points[times]), each.points.shape[1])
            for each in labels
            if each.kind != "discrete"
        ]

    def _objectives(
        self,
        labels: list[Label],
        blocks: Mapping[str, slice],
        epochs: Epochs,
        offset: int,
        recipe: Recipe,
    ) -> list[Objective | Regression]:
        found: list[Objective | Regression] = []
        for each in labels:
            block = blocks[each.name]
            if self.objective == "regression":
                target, valid = _standardised(each, epochs), each.valid
                found.append(Regression(each.name, block, target, valid))
            else:
                pairs = _label_pairs(each, epochs, offset, recipe)
                found.append(Objective(each.name, block, pairs))
        if "time" in blocks:
            on = blocks["time"] if self.time_on == "block" else slice(0, blocks["time"].stop)
            found.append(Objective("time", on, TimeOffset(epochs, offset)))
        return found

    # --- what is measured after training --------------------------------------------------------

    def _embed(self, recording: Recording) -> NDArray[np.float32]:
        device = self.encoder_.loadings.device
        parts = []
        with torch.no_grad():
            for at in range(0, recording.n_times, _ENCODE_ROWS):
                x = torch.from_numpy(recording.rows(slice(at, at + _ENCODE_ROWS))).to(device)
                parts.append(self.encoder_(x).cpu())
        return torch.cat(parts).numpy()

    def _embed_at(self, recording: Recording, times: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._embed(Recording(recording.rows(times)))

    def _fit_readout(
        self, recording: Recording, training: Epochs, labels: list[Label]
    ) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Linear map from each label's block to the label, on training samples."""
        times = training.indices()
        times = times[:: max(1, len(times) // _AXES_ROWS)]
        embedding = self._embed_at(recording, times)
        return {
            each.name: fit_linear(
                embedding[each.valid[times]][:, self.blocks_[each.name]],
                each.points[times][each.valid[times]],
            )
            for each in labels
        }

    def _label_axes(self) -> torch.Tensor:
        """Axes along each label's columns, completed by directions that do not predict it."""
        n = max(block.stop for block in self.blocks_.values())
        axes = np.eye(n)
        for name, (weights, _) in self.readout_.items():
            block = self.blocks_[name]
            size = block.stop - block.start
            columns = weights[: size] if len(weights) <= size else weights[:0]
            rank = np.linalg.matrix_rank(columns) if len(columns) else 0
            if rank == 0 or rank < len(columns):
                continue  # the label has more columns than the block has latents: keep its axes
            rest = np.linalg.svd(columns)[2][len(columns) :]
            axes[block, block] = np.concatenate([columns, rest])
        return torch.tensor(axes, dtype=torch.float32, device=self.encoder_.loadings.device)

    def _goodness(
        self,
        recording: Recording,
        objectives: list[Objective | Regression],
        training: Epochs,
        held_out: Epochs | None,
        labels: list[Label],
        offset: int,
        recipe: Recipe,
    ) -> dict[str, GoodnessOfFit]:
        times = (training if held_out is None else held_out).indices()
        embedding = torch.from_numpy(self._embed_at(recording, times))
        by_name = {each.name: each for each in labels}
        rng = np.random.default_rng(self.config_["seed"])
        result = {}
        for objective in objectives:
            if held_out is None or isinstance(objective, Regression):
                loss = self.history_[f"loss/{objective.name}"][-100:].mean()
                chance = self.history_[f"chance/{objective.name}"][-100:].mean()
                unjudged = GoodnessOfFit(float(loss), float(chance), None)
                result[objective.name] = unjudged
                if held_out is None:
                    continue
            each = by_name.get(objective.name)
            pairs: Pairs
            if each is None:
                pairs = TimeOffset(held_out, offset)
                slowness = autocorrelation_time(embedding[:, objective.block].double().numpy())
            else:
                if not _has_pairs(each, held_out, offset):
                    result[objective.name] = unjudged if objective.name in result else GoodnessOfFit(
                        float("nan"), float("nan"), None
                    )
                    continue
                pairs = _label_pairs(each, held_out, offset, recipe)
                slowness = autocorrelation_time(
                    each.points[times][each.valid[times]]
                )
            found = goodness_of_fit(
                embedding[:, objective.block],
                times,
                pairs,
                rng,
                shift_references=each is not None,
                slowness=slowness,
                similarity=self.config_["similarity"],
                temperature=self.config_["temperature"],
                include_positive=self.config_["include_positive"],
            )
            if found is not None:
                result[objective.name] = found
        return result

    def _time_score(self, embedding: NDArray[np.float32], recording: Recording) -> float:
        """How far the time loss lies below chance, on the samples given."""
        block = self.blocks_.get("time")
        if block is None:
            raise ValueError("score needs y: this model was fitted to labels without a time block")
        on = slice(block.start if self.time_on == "block" else 0, block.stop)
        assert recording.epochs is not None
        rng = np.random.default_rng(self.config_["seed"])
        size = min(self.config_["batch_size"], recording.n_times)
        reference = recording.epochs.draw(size, rng)
        positive = TimeOffset(recording.epochs, self.config_["time_offset"]).positives(reference, rng)
        negative = recording.epochs.draw(size, rng)
        kept = positive != NONE
        if not kept.any():
            raise ValueError(
                f"X has no two samples time_offset={self.config_['time_offset']} apart in one epoch"
            )
        z = torch.from_numpy(embedding[:, on])
        loss = infonce(
            z[reference[kept]],
            z[positive[kept]],
            z[negative],
            similarity=self.config_["similarity"],
            temperature=self.config_["temperature"],
            include_positive=self.config_["include_positive"],
        )
        return chance_level(size, self.config_["include_positive"]) - float(loss)

    def _warn_unlearned(self) -> None:
        for name, fit in self.goodness_of_fit_.items():
            if fit.learned is False:
                warn(
                    f"{name!r} was not learned better than chance on held-out samples "
                    f"(loss {fit.loss:.2f}, chance {fit.chance:.2f}): do not read its map",
                    UnlearnedLabelWarning,
                )


def _chosen(labels: Mapping[str, Any], names: str | Iterable[str]) -> dict[str, Any]:
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in labels:
            raise ValueError(f"label must name labels of {list(labels)}, got {name!r}")
    return {name: labels[name] for name in wanted}


def _label_pairs(label: Label, epochs: Epochs, offset: int, recipe: Recipe) -> Pairs:
    if label.kind == "discrete":
        return SameClass(
            label.codes(), epochs, label.valid, exclude_self=recipe.exclude_self
        )
    pairs = NearestLabel(
        label.points,
        epochs,
        offset,
        label.valid,
        circular=label.kind == "circular",
        exclude_self=recipe.exclude_self,
    )
    if pairs.n_steps == 0:
        raise ValueError(
            f"label {label.name!r} has no two known samples time_offset={offset} apart; "
            "lower time_offset, or fill gaps in the label"
        )
    return pairs


def _has_pairs(label: Label, epochs: Epochs, offset: int) -> bool:
    """Whether a label is known often enough in these epochs to be judged there."""
    times = epochs.indices()
    known = label.valid[times]
    later = times + offset < epochs.stop_of(times)
    later[later] = label.valid[times[later] + offset]
    return bool((known & later).sum() >= 10)


def _standardised(label: Label, epochs: Epochs) -> NDArray[np.float64]:
    known = epochs.indices()
    known = known[label.valid[known]]
    mean, spread = label.points[known].mean(axis=0), label.points[known].std(axis=0)
    return (label.points - mean) / np.where(spread > 0, spread, 1.0)


def _report_silent(inputs: Inputs, names: tuple[str, ...]) -> None:
    silent = inputs.silent
    if len(silent) == len(names):
        raise ValueError(
            f"none of the {len(names)} neurons ever changes in the training samples; "
            "check that X holds activity over time"
        )
    if len(silent):
        shown = ", ".join(names[i] for i in silent[:_FEW_NAMES])
        more = f" and {len(silent) - _FEW_NAMES} more" if len(silent) > _FEW_NAMES else ""
        warn(
            f"{len(silent)} of {len(names)} neurons never change (neurons {shown}{more}); they are "
            "kept and score exactly zero",
            SilentNeuronWarning,
        )


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device={name!r} cannot be used here: {error}") from None
    return device


def _show_progress(wanted: bool | None) -> bool:
    import sys

    return sys.stderr.isatty() if wanted is None else wanted


def _plain(value: Any) -> Any:
    """A parameter as JSON can say it; a random generator is not kept."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, type(None))) else None


def _fingerprint(
    config: TrainConfig,
    params: Mapping[str, Any],
    inputs: Inputs,
    labels: list[Label],
    epochs: Epochs,
) -> str:
    """A digest that two fits share if they would take the same path."""
    told = {k: _plain(v) for k, v in params.items() if k not in ("progress", "device")}
    state = hashlib.sha256(json.dumps([asdict(config), told], sort_keys=True).encode())
    for array in (inputs.mean, inputs.scale, epochs.starts, epochs.stops):
        state.update(np.ascontiguousarray(array).tobytes())
    for label in labels:
        state.update(label.name.encode() + np.ascontiguousarray(label.points).tobytes())
    return state.hexdigest()
