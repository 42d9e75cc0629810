"""The plan of a fit: everything that is decided before training.

`make_plan` makes a `Plan` from a checked recording and the user's parameters. All errors about the
input are raised here, before training starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from xcebra.caveats import SilentNeuronWarning, warn
from xcebra.common.errors import InputError
from xcebra.common.workers import available_threads
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label, LabelSpec, check_varies, delayed, make_label, warn_missing
from xcebra.data.recording import Recording, chunks
from xcebra.networks.decoder import DecoderConfig
from xcebra.networks.encoder import Inputs
from xcebra.statistics.shared_dimensions import shared_dimensions
from xcebra.statistics.window_choice import choose_window
from xcebra.training import settings
from xcebra.training.batches import Objective, Regression
from xcebra.training.data_warnings import warn_of_data
from xcebra.training.decisions import Decisions
from xcebra.training.loop import TrainConfig
from xcebra.training.sampling import NearestLabel, Pairs, SameClass, TimeOffset
from xcebra.training.settings import AUTO, RECIPES
from xcebra.training.timescale import Series, choose_offset, choose_temperature, component_series

# Largest number of neurons that a warning lists by name.
_FEW_NAMES = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """The settings, labels, inputs and samples of a fit.

    Parameters
    ----------
    decisions : Decisions
        The value of every setting.
    labels : tuple of Label
        In the order of their blocks, shifted by their delays.
    inputs : Inputs
        Mean, scale and components of the activity.
    training : Epochs
    held_out : Epochs or None
        None if the recording is too short to hold out samples.
    """

    decisions: Decisions
    labels: tuple[Label, ...]
    inputs: Inputs
    training: Epochs
    held_out: Epochs | None

    def objectives(self, epochs: Epochs) -> list[Objective | Regression]:
        """List the terms of the loss on some of the samples; see `make_objectives`."""
        return make_objectives(self.decisions, self.labels, self.training, epochs)

    def decoder_epochs(self) -> tuple[Epochs, Epochs, Epochs]:
        """Samples to train the decoder on, to stop its training early, and to test it on."""
        learn, rest = self.training, self.held_out
        if rest is None:
            learn, rest = self.training.split(settings.HELD_OUT)
        # Alternate stretches, so that both parts cover the whole recording.
        if len(rest) > 1:
            stop_by, judge = rest.every(slice(0, None, 2)), rest.every(slice(1, None, 2))
        else:
            stop_by, judge = rest.split(0.5)
        if min(stop_by.size, judge.size) < 2:
            return self.training, self.training, self.training
        return learn, stop_by.longer_than(0), judge

    def fingerprint(self, recording: Recording) -> str:
        """Return a digest that is the same for two fits with the same data and settings."""
        decided = self.decisions
        values: list[Any] = [asdict(decided.train), decided.time_offset, decided.time_on]
        values += [decided.regression, decided.window, [label.kind for label in self.labels]]
        values += [asdict(decided.recipe)]
        values += [[[name, b.start, b.stop] for name, b in decided.blocks.items()]]
        state = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
        arrays: list[NDArray[Any]] = [self.inputs.mean, self.inputs.scale]
        arrays += [self.training.starts, self.training.stops]
        for label in self.labels:
            arrays += [label.points, label.valid]
        for array in arrays:
            state.update(np.ascontiguousarray(array).tobytes())
        for chunk in chunks(recording.neural, self.training):
            state.update(np.ascontiguousarray(chunk).tobytes())
        return state.hexdigest()


def make_objectives(
    decided: Decisions, labels: Sequence[Label], training: Epochs, epochs: Epochs
) -> list[Objective | Regression]:
    """List the terms of the loss on some of the samples.

    Labels that have no pairs in these samples are left out.

    Parameters
    ----------
    decided : Decisions
    labels : sequence of Label
    training : Epochs
        Samples on which the targets of a regression are standardised.
    epochs : Epochs
        Samples to make pairs of.
    """
    objectives: list[Objective | Regression] = []
    offset = decided.time_offset
    for label in labels:
        block = decided.blocks[label.name]
        if decided.regression:
            target = _standardised(label, training)
            objectives.append(Regression(label.name, block, target, label.valid))
        elif _n_pairs(label, epochs, offset) > 0:
            pairs = _label_pairs(label, epochs, offset, decided.recipe.exclude_self)
            objectives.append(Objective(label.name, block, pairs))
    if decided.time_latents is not None:
        pairs = TimeOffset(epochs, offset)
        objectives.append(Objective("time", decided.time_latents, pairs, within_sessions=True))
    return objectives


def make_plan(
    recording: Recording,
    params: Mapping[str, Any],
    controls: tuple[str, ...] = (),
    specs: Mapping[str, LabelSpec] | None = None,
) -> Plan:
    """Make the plan of a fit, or raise an error about the input.

    Parameters
    ----------
    recording : Recording
    params : mapping
        The estimator's parameters, already checked by `settings.check_parameters`.
    controls : tuple of str
        Labels that are controlled for.
    specs : mapping of str to LabelSpec, optional
        Kind, delay and classes of the labels, if they have been decided for several sessions.
    """
    recipe = RECIPES[params["recipe"]]
    whole = recording.epochs
    if specs is None:
        known = {name: info.kind for name, info in recording.label_info.items() if info.kind}
        specs = settings.label_specs(params, list(recording.labels), known)
    undelayed = [make_label(name, v, specs[name]) for name, v in recording.labels.items()]
    for label in undelayed:
        check_varies(label)
    labels = [delayed(label, specs[label.name].delay, whole) for label in undelayed]
    shared = None
    if params["recipe"] != "paper":
        shared = partial(shared_dimensions, recording, labels, whole)
    blocks = settings.resolve_blocks(params, labels, recording.n_neurons, shared, controls)
    labels.sort(key=lambda label: list(blocks).index(label.name))
    window = _window(recording, labels, params)
    sampling = _sampling(recording, labels, blocks, window, params)
    warn_of_data(recording, sampling.training, labels)
    for label in undelayed:
        warn_missing(label, whole)
    train, decoder = _configs(sampling, params)
    decisions = Decisions(
        recipe=recipe,
        train=train,
        decoder=decoder,
        blocks=blocks,
        labels={
            label.name: LabelSpec(label.kind, specs[label.name].delay, tuple(label.classes))
            for label in labels
        },
        time_offset=sampling.offset,
        window=window,
        time_on=params["time_on"],
        regression=params["objective"] == "regression",
        n_components=int(sampling.inputs.loadings.shape[1]),
        n_training=sampling.training.size,
        n_held_out=0 if sampling.held_out is None else sampling.held_out.size,
        controls=controls,
    )
    return Plan(
        decisions=decisions,
        labels=tuple(labels),
        inputs=sampling.inputs,
        training=sampling.training,
        held_out=sampling.held_out,
    )


def _window(recording: Recording, labels: list[Label], params: Mapping[str, Any]) -> int:
    """Return the window in samples: the user's value, or one that is chosen from the data."""
    if params["window"] is not None:
        return int(params["window"])
    if params["recipe"] == "paper":
        return 1
    offset = params["time_offset"]
    longest = None if offset is None else max(1, offset - recording.overlap)
    return int(choose_window(recording, labels, recording.epochs, longest))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sampling:
    """Samples of the fit, scale of the activity, time offset and batch size."""

    training: Epochs
    held_out: Epochs | None
    inputs: Inputs
    offset: int
    batch_size: int
    series: list[tuple[Series, int]]


def _sampling(
    recording: Recording,
    labels: list[Label],
    blocks: Mapping[str, slice],
    window: int,
    params: Mapping[str, Any],
) -> _Sampling:
    recipe, whole = RECIPES[params["recipe"]], recording.epochs
    # Samples that are closer than this share their noise, which the time objective would learn.
    least = window + recording.overlap
    offset = params["time_offset"] or (recipe.time_offset and max(least, recipe.time_offset))
    if offset is not None and offset < least and "time" in blocks:
        settings.refuse_offset(offset, window, recording.overlap)
    # If the offset is still to be chosen from the data, the smallest possible value is used here.
    training, _ = settings.split_epochs(whole, offset or least, window)
    batch_size = settings.resolve_batch_size(params["batch_size"], recipe, training.size)
    inputs = Inputs.measure(recording, training, project=recipe.project)
    _report_silent(inputs, recording.neuron_names)
    series = _series(recording, inputs, labels, blocks, params["time_on"])
    if offset is None:
        signals = [_label_series(label) for label in labels if label.kind != "discrete"]
        if "time" in blocks:
            signals.append(recording.rows)
        offset = max(least, choose_offset(series, training, batch_size, signals))
    measured_on = training
    training, held_out = settings.split_epochs(whole, offset, window)
    if held_out is not None and np.isin(held_out.indices(), measured_on.indices()).any():
        # A longer offset can change which epochs are held out. Nothing may be measured on these.
        inputs = Inputs.measure(recording, training, project=recipe.project)
        series = _series(recording, inputs, labels, blocks, params["time_on"])
    for label in labels:
        if _n_pairs(label, training, offset) == 0:
            raise InputError(
                f"label {label.name!r} has no two known samples time_offset={offset} apart to "
                "train on; lower time_offset, or fill gaps in the label",
                ("time_offset",),
            )
    settings.warn_split(whole, offset, held_out, window)
    return _Sampling(
        training=training,
        held_out=held_out,
        inputs=inputs,
        offset=offset,
        batch_size=batch_size,
        series=series,
    )


def _configs(sampling: _Sampling, params: Mapping[str, Any]) -> tuple[TrainConfig, DecoderConfig]:
    """Settings for training the encoder and the decoder."""
    recipe, training = RECIPES[params["recipe"]], sampling.training
    regression = params["objective"] == "regression"
    temperature = params["temperature"] or recipe.temperature
    if temperature is None:
        # Regression has no temperature. A value of 1 does not change the weight of the penalty.
        chosen = partial(choose_temperature, sampling.series, training, sampling.offset)
        temperature = 1.0 if regression else chosen()
    weight = params["jacobian_weight"]
    usual_weight = recipe.regression_weight if regression else recipe.jacobian_weight
    usual_steps = recipe.regression_steps if regression else recipe.steps
    train = TrainConfig(
        steps=int(params["steps"] or usual_steps),
        batch_size=min(sampling.batch_size, training.size),
        learning_rate=float(params["learning_rate"] or recipe.learning_rate),
        weight_decay=recipe.weight_decay * float(np.sqrt(1000 / training.size)),
        schedule=recipe.schedule,
        jacobian_weight=float(usual_weight if weight in (None, AUTO) else weight),
        temperature=float(temperature),
        similarity=params["distance"],
        include_positive=recipe.include_positive,
        penalty_samples=recipe.penalty_samples,
        seed=int(check_random_state(params["random_state"]).randint(2**31 - 1)),
        find_weight=weight == AUTO,
        # A number of steps that is asked for is taken. The search for a weight has its own places
        # in the schedule.
        until_settled=params["steps"] is None and recipe.schedule == "one-cycle" and weight != AUTO,
    )
    # The number of steps of the decoder is scaled by the same factor as that of the encoder.
    share = train.steps / usual_steps
    decoder = DecoderConfig(
        steps=max(1, round(recipe.decoder_steps * share)),
        batch_size=min(1024, training.size),
        learning_rate=recipe.decoder_learning_rate,
        seed=train.seed,
    )
    return train, decoder


def _series(
    recording: Recording,
    inputs: Inputs,
    labels: list[Label],
    blocks: Mapping[str, slice],
    time_on: str,
) -> list[tuple[Series, int]]:
    """Time series that offset and temperature are chosen from, with their numbers of latents."""
    if "time" in blocks:
        size = blocks["time"].stop - (blocks["time"].start if time_on == "block" else 0)
        return [(component_series(recording, inputs), size)]
    return [(_label_series(label), label.width) for label in labels if label.kind != "discrete"]


def _label_series(label: Label) -> Series:
    return lambda times: np.nan_to_num(label.points[times])


def _label_pairs(label: Label, epochs: Epochs, offset: int, exclude_self: bool) -> Pairs:
    if label.kind == "discrete":
        return SameClass(label.codes(), epochs, label.valid, exclude_self=exclude_self)
    return NearestLabel(
        label.points,
        epochs,
        offset,
        label.valid,
        circular=label.kind == "circular",
        exclude_self=exclude_self,
        threads=available_threads(),
    )


def _n_pairs(label: Label, epochs: Epochs, offset: int) -> int:
    """Number of pairs for which a label is known; for classes, the number of samples."""
    times = epochs.indices()
    times = times[label.valid[times]]
    if label.kind == "discrete":
        return len(times)
    times = times[times + offset < epochs.stop_of(times)]
    return int(label.valid[times + offset].sum())


def _standardised(label: Label, epochs: Epochs) -> NDArray[np.float64]:
    """Label columns, standardised by their mean and standard deviation in the epochs."""
    known = epochs.indices()
    known = known[label.valid[known]]
    mean, scale = label.points[known].mean(axis=0), label.points[known].std(axis=0)
    return (label.points - mean) / np.where(scale > 0, scale, 1.0)


def _report_silent(inputs: Inputs, names: tuple[str, ...]) -> None:
    """Warn about neurons that never change, and raise an error if no neuron ever changes."""
    silent = inputs.silent
    if len(silent) == len(names):
        raise InputError(
            f"none of the {len(names)} neurons ever changes in the training samples; "
            "check that X holds activity over time"
        )
    if len(silent):
        listed = ", ".join(names[i] for i in silent[:_FEW_NAMES])
        more = f" and {len(silent) - _FEW_NAMES} more" if len(silent) > _FEW_NAMES else ""
        warn(
            f"{len(silent)} of {len(names)} neurons never change (neurons {listed}{more}); they "
            "are kept and score exactly zero",
            SilentNeuronWarning,
        )
