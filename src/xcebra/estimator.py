"""XCEBRA: the scikit-learn face of the method."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from xcebra import settings
from xcebra.attribution import AGGREGATES, BASES, METHODS, UNITS, AttributionMap, attribution_map
from xcebra.batches import Objective
from xcebra.caveats import UnlearnedLabelWarning, warn
from xcebra.diagnostics import (
    GoodnessOfFit,
    autocorrelation_time,
    held_out_fit,
    margin,
    training_fit,
)
from xcebra.encoder import Encoder, embed
from xcebra.labels import LabelSpec, delayed, make_label
from xcebra.metrics import r_squared
from xcebra.model_file import plain, read_model, write_model
from xcebra.planning import Plan, make_plan
from xcebra.readout import fit_readouts, label_axes
from xcebra.recording import Recording, as_labels
from xcebra.sampling import TimeOffset
from xcebra.settings import RECIPES
from xcebra.training import TrainConfig, train


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
    readout_ : dict of str to Readout
        Linear map from each label's block to the label.
    neuron_names_ : tuple of str
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
        if checkpoint is not None:
            if not isinstance(self.random_state, (int, np.integer)):
                raise ValueError(
                    f"checkpoint needs random_state to be a number, got {self.random_state!r}: "
                    "another fit must take the same path to go on from it"
                )
            if not Path(checkpoint).parent.is_dir():
                raise FileNotFoundError(
                    f"checkpoint={str(checkpoint)!r}: there is no folder "
                    f"{str(Path(checkpoint).parent)!r}; make it first"
                )
        recording = self._recording(X, y, label, epochs, reset=True)
        plan = make_plan(recording, params)
        encoder = Encoder(
            plan.inputs,
            plan.n_latents,
            limit=plan.recipe.limit,
            unit_blocks=list(plan.blocks.values()) if self.distance == "cosine" else None,
            generator=torch.Generator().manual_seed(plan.config.seed),
        ).to(device)
        history = train(
            encoder,
            recording,
            plan.training,
            plan.objectives(plan.training),
            plan.config,
            device=device,
            progress=sys.stderr.isatty() if self.progress is None else self.progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            fingerprint="" if checkpoint is None else plan.fingerprint(recording),
        )
        told = {name: plain(value) for name, value in params.items()}
        self.encoder_ = encoder
        self.history_ = history
        self.blocks_ = dict(plan.blocks)
        self.config_ = {**told, **plan.describe(), "device": str(device)}
        self.config_["random_state"] = plan.config.seed
        self.neuron_names_ = recording.neuron_names
        self.readout_ = fit_readouts(encoder, recording, plan)
        self.goodness_of_fit_ = _judge(encoder, recording, plan, history)
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
        return embed(self.encoder_, self._recording(X, epochs=epochs))

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
        if smooth is None:
            # Jacobians of points on a sphere lie in its tangent planes: averaging would tilt them.
            smooth = 1 if self.config_["similarity"] == "cosine" else recipe.smooth
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
        made = attribution_map(
            self.encoder_,
            recording,
            recording.epochs.indices(),
            self.blocks_,
            tuple(self.get_feature_names_out()),
            method=method,
            basis=label_axes(self.readout_, self.blocks_) if basis == "label" else None,
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
        embedding = embed(self.encoder_, recording)
        if not recording.labels:
            return self._time_score(embedding, recording)
        for name in recording.labels:
            if name not in self.readout_:
                raise ValueError(
                    f"y has a label {name!r}, but the model was fitted with {list(self.readout_)}"
                )
        found = []
        for name, values in recording.labels.items():
            spec = self._label_spec(name)
            each = delayed(make_label(name, values, spec), spec.delay, recording.epochs)
            predicted = self.readout_[name].predict(embedding[:, self.blocks_[name]])
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
        write_model(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> XCEBRA:
        """Read a model written by `save`; nothing in the file is executed."""
        return read_model(path, cls, _device(device))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

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
            self,
            X,
            reset=reset,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        names = getattr(self, "feature_names_in_", ()) if reset else self.neuron_names_
        return Recording(checked, as_labels(y), epochs, tuple(names))  # type: ignore[arg-type]

    def _label_spec(self, name: str) -> LabelSpec:
        """How the fit read one of its labels."""
        kinds, delays, classes = (
            self.config_[key][name] for key in ("label_kind", "label_delay", "label_classes")
        )
        # A file knows lists where classes of several columns are tuples.
        known = tuple(tuple(c) if isinstance(c, list) else c for c in classes)
        return LabelSpec(kinds, delays, known)

    def _time_score(self, embedding: NDArray[np.float32], recording: Recording) -> float:
        """How far the time loss lies below chance, on the samples given."""
        block = self.blocks_.get("time")
        if block is None:
            raise ValueError("score needs y: this model was fitted to labels without a time block")
        start = block.start if self.config_["time_on"] == "block" else 0
        pairs = TimeOffset(recording.epochs, self.config_["time_offset"])
        objective = Objective("time", slice(start, block.stop), pairs)
        config = TrainConfig(**{k: self.config_[k] for k in TrainConfig.__dataclass_fields__})
        times = recording.epochs.indices()
        return margin(objective, torch.from_numpy(embedding)[times], times, config)

    def _warn_unlearned(self) -> None:
        for name, fit in self.goodness_of_fit_.items():
            if fit.learned is False:
                warn(
                    f"{name!r} was not learned better than chance on held-out samples "
                    f"(loss {fit.loss:.2f}, chance {fit.chance:.2f}): do not read its map",
                    UnlearnedLabelWarning,
                )


def _judge(
    encoder: Encoder,
    recording: Recording,
    plan: Plan,
    history: Mapping[str, NDArray[np.float64]],
) -> dict[str, GoodnessOfFit]:
    """Goodness of fit of each objective, on held-out samples if there are any."""
    result = {name: training_fit(name, history) for name in plan.blocks}
    if plan.held_out is None:
        return result
    times = plan.held_out.indices()
    embedding = torch.from_numpy(embed(encoder, recording, times))
    series = {each.name: each.points[times][each.valid[times]] for each in plan.labels}
    for objective in plan.objectives(plan.held_out):
        followed = series.get(objective.name, embedding[:, objective.block].numpy())
        slowness = autocorrelation_time(followed)
        result[objective.name] = held_out_fit(objective, embedding, times, plan.config, slowness)
    return result


def _chosen(labels: Mapping[str, Any], names: str | Iterable[str]) -> dict[str, Any]:
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in labels:
            raise ValueError(f"label must name labels of {list(labels)}, got {name!r}")
    return {name: labels[name] for name in wanted}


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device={name!r} cannot be used here: {error}") from None
    return device
