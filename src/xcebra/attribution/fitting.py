"""Fit everything that maps are computed from: encoder, decoders, axes, mixtures and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.attribution.crossed_explained import deviance_explained, variance_explained
from xcebra.attribution.crossed_mixtures import fit_crossed_mixtures
from xcebra.attribution.crossed_source import Source
from xcebra.attribution.label_axes import Readout, fit_readouts
from xcebra.attribution.sparse_basis import Mixture
from xcebra.common.progress import phase
from xcebra.data.recording import Recording
from xcebra.networks.crossed_decoder import CrossedDecoder
from xcebra.networks.crossed_fit import fit_crossed_decoder, known_times
from xcebra.networks.decoder import Decoder, fit_decoder
from xcebra.networks.encoder import Encoder, embed
from xcebra.networks.left_over import find_left_over
from xcebra.statistics.label_decoding import decode
from xcebra.training.decisions import Decisions
from xcebra.training.goodness_of_fit import (
    GoodnessOfFit,
    autocorrelation_time,
    held_out_fit,
    training_fit,
    with_decoding,
)
from xcebra.training.joint_plan import JointPlan
from xcebra.training.loop import train
from xcebra.training.plan import Plan

# Batch size of each crossed decoder. The two together see as many samples per step as the decoder
# of the embedding does.
_CROSSED_BATCH = 512
# Fields of `Fitted` that are attributes of the estimator, with an underscore at the end.
FITTED = (
    *("encoder", "history", "decoder", "left_over", "crossed_decoder", "variance_explained"),
    *("deviance_explained", "readout", "mixture", "goodness_of_fit"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """Everything that a fit has learned; see the attributes of `xcebra.XCEBRA`."""

    decisions: Decisions
    encoder: Encoder
    history: dict[str, NDArray[np.float64]]
    decoder: Decoder
    left_over: float
    crossed_decoder: CrossedDecoder
    variance_explained: dict[str, NDArray[np.float64]]
    deviance_explained: NDArray[np.float64] | None
    readout: dict[str, Readout]
    mixture: dict[str, Mixture]
    goodness_of_fit: dict[str, GoodnessOfFit]


def train_encoders(
    recordings: Mapping[str, Recording],
    joint: JointPlan,
    *,
    device: torch.device,
    progress: bool,
    checkpoint: Path | None = None,
    callback: Callable[[int, Mapping[str, Encoder]], None] | None = None,
) -> tuple[JointPlan, dict[str, Encoder], dict[str, NDArray[np.float64]]]:
    """Train the encoders of all sessions together.

    Parameters
    ----------
    recordings : mapping of str to Recording
        The sessions by name.
    joint : JointPlan
        Everything that was decided before training.
    device : torch.device
    progress : bool
        Whether to display a progress bar.
    checkpoint : Path, optional
        File for the state of training.
    callback : callable, optional
        Called after every training step with the number of steps taken and the encoders.

    Returns
    -------
    joint : JointPlan
        With the weight of the penalty that was used, if it was searched for.
    encoders : dict of str to Encoder
        With the latents of all labels, also in sessions that lack some of them.
    history : dict of str to ndarray of shape (n_steps,)
    """
    encoders = joint.make_encoders(device)
    by_name = dict(zip(recordings, encoders, strict=True))
    config = joint.decisions.train
    with phase("training"):
        history = train(
            encoders,
            joint.samples(encoders, recordings),
            joint.objectives(),
            config,
            device=device,
            progress=progress,
            checkpoint=checkpoint,
            fingerprint="" if checkpoint is None else joint.fingerprint(recordings),
            callback=None if callback is None else lambda step: callback(step, by_name),
        )
    if config.find_weight:
        # The weight at the end of the search is the weight of this fit.
        joint = joint.with_penalty_weight(float(history["weight"][-1]))
    return joint, by_name, history


def fit_networks(
    recording: Recording,
    plan: Plan,
    encoder: Encoder,
    history: dict[str, NDArray[np.float64]],
    *,
    progress: bool,
) -> Fitted:
    """Fit the decoders of a trained encoder, and judge the fit.

    Parameters
    ----------
    recording : Recording
    plan : Plan
        Everything that was decided before training.
    encoder : Encoder
        The trained encoder of this recording.
    history : dict of str to ndarray of shape (n_steps,)
        Losses and penalty at every training step.
    progress : bool
        Whether to display progress bars.
    """
    decided = plan.decisions
    learn, stop_by, _ = plan.decoder_epochs()
    with phase("decoder"):
        decoder = fit_decoder(
            encoder, plan.inputs, recording, learn, stop_by, decided.decoder, progress=progress
        )
    time = decided.blocks.get("time")
    with phase("crossed decoders"):
        left_over = find_left_over(encoder, decoder, recording, recording.epochs)
        config = decided.decoder
        crossed = fit_crossed_decoder(
            encoder,
            decoder,
            plan.inputs,
            recording,
            plan.labels,
            time,
            left_over.directions,
            replace(config, batch_size=min(_CROSSED_BATCH, config.batch_size)),
            progress=progress,
        )
    labels = {label.name: label for label in plan.labels}
    source = Source(encoder, decoder, crossed, recording, labels, time)
    times = known_times(recording.epochs, plan.labels, recording.n_times)
    with phase("variance explained"):
        seed = decided.train.seed
        explained = variance_explained(source, times, decided.blocks, seed)
        deviance = deviance_explained(source, times)
    with phase("axes and mixtures"):
        readout = fit_readouts(encoder, recording, plan)
        # On a sphere, the mixture of correlated factors is not constant and cannot be undone.
        mixture = {} if decided.on_spheres else fit_crossed_mixtures(source, times)
    with phase("verdict"):
        goodness_of_fit = _judge(encoder, recording, plan, history)
    return Fitted(
        decisions=decided,
        encoder=encoder,
        history=history,
        decoder=decoder,
        left_over=left_over.share,
        crossed_decoder=crossed,
        variance_explained=explained,
        deviance_explained=deviance,
        readout=readout,
        mixture=mixture,
        goodness_of_fit=goodness_of_fit,
    )


def _judge(
    encoder: Encoder,
    recording: Recording,
    plan: Plan,
    history: Mapping[str, NDArray[np.float64]],
) -> dict[str, GoodnessOfFit]:
    """Goodness of fit of each objective, on held-out samples if there are any.

    Labels are decoded from the whole recording; each part of it is held out in turn.
    """
    result = {name: training_fit(name, history) for name in plan.decisions.blocks}
    if plan.held_out is not None:
        times = plan.held_out.indices()
        embedding = torch.from_numpy(embed(encoder, recording, times))
        series = {label.name: label.points[times][label.valid[times]] for label in plan.labels}
        for objective in plan.objectives(plan.held_out):
            followed = series.get(objective.name, embedding[:, objective.block].numpy())
            slowness = autocorrelation_time(followed)
            result[objective.name] = held_out_fit(
                objective, embedding, times, plan.decisions.train, slowness
            )
    decided = plan.decisions
    for label in plan.labels:
        decoding = decode(recording, label, window=decided.window, seed=decided.train.seed)
        result[label.name] = with_decoding(result[label.name], decoding)
    return result
