"""Fit the two crossed decoders: select samples, measure the fixed values, train both networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.common.errors import InputError
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.progress import Steps
from xcebra.common.workers import Workers
from xcebra.data.epochs import Epochs, IntArray, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks.crossed_decoder import (
    CrossedDecoder,
    halves,
    label_columns,
    smooth_functions,
)
from xcebra.networks.decoder import Decoder, DecoderConfig, outlasts_samples
from xcebra.networks.encoder import Encoder, Inputs, embed
from xcebra.networks.labels_part import fit_labels_part
from xcebra.networks.leave_out import LeaveOut, Reader
from xcebra.networks.perceptron import Gradients
from xcebra.networks.regressor import Regressor, take_steps
from xcebra.networks.schedules import one_cycle

# Largest number of samples to train on. Larger values need more memory; not tuned.
_MOST_SAMPLES = 200_000
# Largest number of values of the activity that are kept in memory, 256 MB. Of larger recordings,
# they are read anew in every step.
_MOST_KEPT = 1 << 26
# Number of samples that are used to decide when to stop, over all groups. Larger values give less
# noisy errors and take longer; not tuned.
_MOST_JUDGED = 8192
# Training stops after _PATIENCE evaluations, one every _BETWEEN_LOOKS steps, without a lower error
# of either decoder. Larger values train longer; twice as much training was no better
# (docs/real_recordings.md, "What was tried").
_BETWEEN_LOOKS = 100
_PATIENCE = 5
# Number of samples of the fit whose embedding and labels are stored. They are used to look up
# labels that are not given. Larger values find closer labels and make the model file larger; not
# tuned.
_MOST_REFERENCES = 4096
# The smooth functions of the labels are cosines along random directions: the largest number of
# cosines, the number of samples needed for each, and their scale in standard deviations of the
# labels. More cosines follow finer functions, but also more noise; not tuned.
_WAVES, _ROWS_A_WAVE, _WAVELENGTH = 100, 20, 1.5
# A latent whose standard deviation, relative to its size, is smaller than this does not vary: the
# rest is rounding of single precision.
_LEAST_SPREAD = 1e-6


def fit_crossed_decoder(
    encoder: Encoder,
    decoder: Decoder,
    inputs: Inputs,
    recording: Recording,
    labels: Sequence[Label],
    time_block: slice | None,
    patterns: Tensor,
    config: DecoderConfig,
    *,
    progress: bool = False,
) -> CrossedDecoder:
    """Fit the two decoders, each to every other stretch of time.

    Each decoder is evaluated on the stretches of the other one, and the weights with the smallest
    error there are used. Training stops early if neither error has decreased for a while, or after
    Ctrl-C.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
        The decoder of the embedding, to compute the activity that is left over.
    inputs : Inputs
        Those of the encoder.
    recording : Recording
    labels : sequence of Label
    time_block : slice or None
        Time latents of the embedding.
    patterns : Tensor of shape (n_neurons, n_patterns)
        Patterns of the activity that is left over; see `xcebra.networks.left_over`.
    config : DecoderConfig
    progress : bool
        Whether to show a progress bar.
    """
    device = encoder.loadings.device
    times = known_times(recording.epochs, labels, _MOST_SAMPLES)
    leave_out = LeaveOut.measure(recording, recording.epochs, inputs)
    any_latents = time_block is not None or patterns.shape[1] > 0
    around = any_latents and outlasts_samples(encoder, recording, recording.epochs)
    # Rounded to single precision, as in the buffer and the model file.
    rounded = leave_out.correlations.astype(np.float32)
    leave_out = replace(leave_out, correlations=rounded)
    reader = Reader(encoder, decoder, leave_out, time_block, patterns, around)
    latents = reader.latents(recording, times)
    points = label_points(labels, times).to(device)
    fixed = _measure(encoder, recording, times, points, latents, leave_out, labels, config.seed)
    fixed |= {"around": torch.tensor(around), "patterns": patterns}
    generator = torch.Generator().manual_seed(config.seed)
    crossed = CrossedDecoder(fixed, label_columns(labels), generator).to(device)
    with torch.no_grad():
        rows = crossed.inputs(points, latents)
    targets = _Targets(encoder, recording, times)
    kept = len(times) * recording.n_neurons <= _MOST_KEPT
    _train(crossed, rows, targets[torch.arange(len(times))] if kept else targets, config, progress)
    return crossed


@dataclass(frozen=True, eq=False)
class _Targets:
    """Standardised activity of the training samples, read from the recording when it is asked for.

    It is indexed like a tensor of shape (n_samples, n_neurons).
    """

    encoder: Encoder
    recording: Recording
    times: IntArray

    def __getitem__(self, samples: Tensor) -> Tensor:
        rows = self.recording.rows(self.times[samples.cpu().numpy()])
        return self.encoder.standardised(torch.from_numpy(rows).to(self.device))

    @property
    def device(self) -> torch.device:
        return self.encoder.loadings.device


def known_times(epochs: Epochs, labels: Sequence[Label], most: int) -> IntArray:
    """Select evenly spaced samples, at most ``most``, at which every label is known."""
    times = epochs.indices()
    for label in labels:
        times = times[label.valid[times]]
    if len(times) == 0:
        raise InputError(
            f"no sample has all of the labels {[label.name for label in labels]}; fit them one at "
            "a time, or fill their gaps"
        )
    return evenly_spaced(times, most)


def label_points(labels: Sequence[Label], times: IntArray) -> Tensor:
    """Concatenate the columns of all labels at some times, of shape (n_times, n_columns)."""
    if not labels:
        return torch.zeros(len(times), 0)
    points = np.concatenate([label.points[times] for label in labels], axis=1)
    return torch.from_numpy(points.astype(np.float32))


def _measure(
    encoder: Encoder,
    recording: Recording,
    times: IntArray,
    points: Tensor,
    latents: Tensor,
    leave_out: LeaveOut,
    labels: Sequence[Label],
    seed: int,
) -> dict[str, Tensor]:
    """Compute the buffers of the decoder, except ``around`` and ``patterns``."""
    rng = np.random.default_rng(seed)
    n_columns = points.shape[1]
    mean, scale = points.mean(dim=0), _standard_deviation(points)
    scale = torch.where(scale > 0, scale, 1.0)
    n_waves = min(_WAVES, len(times) // _ROWS_A_WAVE) if n_columns else 0
    wavelength = _WAVELENGTH * math.sqrt(max(1, n_columns))
    directions = torch.from_numpy(rng.standard_normal((n_columns, n_waves)) / wavelength).to(points)
    phases = torch.from_numpy(rng.uniform(0, 2 * np.pi, size=n_waves)).to(points)
    functions = smooth_functions((points - mean) / scale, directions, phases)
    removed, bend = fit_labels_part(functions, latents, n_columns)
    rest = latents - torch.einsum("sf,gfl->gsl", functions, removed)
    latent_scale = _standard_deviation(rest.flatten(0, 1))
    embedding_scale = _standard_deviation(latents.flatten(0, 1))
    # Smaller standard deviations are rounding errors of single precision.
    varies = latent_scale > _LEAST_SPREAD * (1 + latents.flatten(0, 1).abs().mean(dim=0))
    references = evenly_spaced(np.arange(len(times)), _MOST_REFERENCES)
    discrete = np.zeros(n_columns, dtype=bool)
    for label in label_columns(labels):
        discrete[label.columns] = label.kind == "discrete"
    shares = torch.where(torch.from_numpy(discrete).to(mean.device), mean, torch.ones_like(mean))
    return {
        "group": torch.from_numpy(leave_out.group),
        "correlations": torch.from_numpy(leave_out.correlations),
        "borders": torch.from_numpy(leave_out.borders),
        "label_mean": mean,
        "label_scale": scale,
        "directions": directions,
        "phases": phases,
        "told": removed,
        "bend": bend,
        "latent_mean": rest.flatten(0, 1).mean(dim=0),
        "latent_scale": torch.where(varies, latent_scale, 1.0),
        "embedding_scale": torch.where(varies, embedding_scale, 1.0),
        "reference_embedding": torch.from_numpy(embed(encoder, recording, times[references])),
        "reference_labels": points[torch.from_numpy(references).to(points.device)].cpu(),
        "class_shares": shares,
    }


def _standard_deviation(values: Tensor) -> Tensor:
    """Standard deviation of every column. `torch.std` would warn if there are no columns."""
    return (values - values.mean(dim=0)).square().mean(dim=0).sqrt()


def _train(
    decoder: CrossedDecoder,
    rows: Float[Tensor, "group sample input"],
    targets: Float[Tensor, "sample neuron"] | _Targets,
    config: DecoderConfig,
    progress: bool,
) -> None:
    """Train both networks. A row of a group is used for the neurons of that group only."""
    rng = np.random.default_rng(config.seed)
    device = targets.device
    n_groups, n = rows.shape[:2]
    half = halves(n)
    samples = [np.flatnonzero(half == k) for k in range(2)]
    if min(map(len, samples)) == 0:
        samples = [np.arange(n)] * 2
    # A group has about one in n_groups of the neurons. The weight compensates for this.
    weights = torch.stack([decoder.group == g for g in range(n_groups)]).to(rows) * n_groups
    judged = [
        torch.from_numpy(evenly_spaced(other, _MOST_JUDGED // n_groups)).to(device)
        for other in samples[::-1]
    ]
    regressors = [Regressor(member) for member in decoder.networks]
    best = [copy.deepcopy(member.state_dict()) for member in decoder.members]
    least, since = [math.inf, math.inf], 0

    def gradients(k: int, drawn: IntArray, group: IntArray) -> Gradients:
        sample, of_group = (torch.from_numpy(index).to(device) for index in (drawn, group))
        x, y = rows[of_group, sample], targets[sample]
        return regressors[k].gradients(x, y, config.batch_size, weights[of_group])

    def take_step(step: int) -> None:
        rate = one_cycle(step, config.steps, config.learning_rate, rise=0.05)
        drawn = [
            (
                own[rng.integers(len(own), size=config.batch_size)],
                rng.integers(n_groups, size=config.batch_size),
            )
            for own in samples
        ]

        def step_of_members(worker: int) -> None:
            for k in range(worker, len(regressors), workers.n):
                regressors[k].step([gradients(k, *drawn[k])], rate)

        workers.divide(step_of_members)

    def errors() -> list[float]:
        return [
            _error(member, rows[:, judged[k]], targets[judged[k]], weights)
            for k, member in enumerate(decoder.members)
        ]

    progress_bar = Steps(config.steps, progress, desc="crossed decoders")
    workers = Workers(len(regressors), device)
    with workers, deferred_interrupt() as interrupted, progress_bar:
        step = 0
        while True:
            step = workers.lead(
                take_steps, take_step, step, _BETWEEN_LOOKS, config.steps, interrupted, progress_bar
            )
            since += 1
            for k, error in enumerate(workers.lead(errors)):
                if error < least[k]:
                    state = decoder.members[k].state_dict()
                    best[k], least[k], since = copy.deepcopy(state), error, 0
            if interrupted():
                warn(
                    f"the decoders were stopped at step {step} of {config.steps}; maps are "
                    "those of networks that are not trained to the end",
                    InterruptedFitWarning,
                )
            if step == config.steps or interrupted() or since == _PATIENCE:
                break
    for member, state in zip(decoder.members, best, strict=True):
        member.load_state_dict(state)


def _error(member: nn.Module, rows: Tensor, targets: Tensor, weights: Tensor) -> float:
    with torch.no_grad():
        errors = [
            ((member(rows[g]) - targets).square() * weights[g]).mean() for g in range(len(rows))
        ]
    return float(torch.stack(errors).mean())
