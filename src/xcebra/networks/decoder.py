"""The decoder: the network that predicts the activity of the neurons from the embedding.

Its Jacobian says how the activity of each neuron changes with each latent. No matrix has to be
inverted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.products import product
from xcebra.common.progress import Steps
from xcebra.common.workers import Workers, shares
from xcebra.data.epochs import Epochs, IntArray, evenly_spaced, samples_before
from xcebra.data.recording import Activity, Recording, rows_at_once
from xcebra.networks.encoder import Encoder, Inputs, UnitBlocks, embed, linear
from xcebra.networks.jacobian import register_slope
from xcebra.networks.perceptron import Gradients
from xcebra.networks.regressor import Regressor, take_steps
from xcebra.networks.schedules import one_cycle

# Number of units in each hidden layer. Half and twice as many give about the same maps
# (docs/recipe.md).
WIDTH = 192
# Number of samples that are used to decide when to stop, to test whether the embedding outlasts a
# sample, and to measure the variance explained. Larger values give less noisy estimates and take
# longer; not tuned.
_JUDGED = 8192
# Training stops after _PATIENCE evaluations, one every _BETWEEN_LOOKS steps, without a lower
# held-out error. Larger values train longer; not tuned.
_BETWEEN_LOOKS = 100
_PATIENCE = 5
# Fewest rows of a batch for each worker. With fewer, starting and joining the parts of a step takes
# more time than it saves; not tuned.
_ROWS_A_WORKER = 256
# Largest number of samples whose embedding is held in memory while the decoder is trained. Larger
# values need more memory; not tuned.
_MOST_EMBEDDED = 200_000
# Largest number of components of these samples that are held in memory too, 256 MB. If there are
# more, they are computed anew in every step.
_MOST_KEPT = 1 << 26
# The embedding outlasts a sample if its correlation from one sample to the next, corrected for
# noise, is at least this (docs/method.md, "The decoder"). Smaller values use neighbouring samples
# for faster embeddings, which these predict less well.
_LASTING = 0.9
# Directions with a smaller correlation from one sample to the next are ignored, because their ratio
# of correlations is mostly noise. Smaller values use more directions; not tuned.
_LEAST_CORRELATED = 0.1
# With fewer samples than this, correlations are too noisy to be used: the embedding is then taken
# not to outlast a sample; not tuned.
_FEW = 50

# A function of sample indices, and of the epochs that contain them, that returns the inputs of the
# decoder, of shape (n_times, n_latents).
Points = Callable[[IntArray, Epochs], Tensor]


@dataclass(frozen=True)
class DecoderConfig:
    """Settings for training a decoder with Adam, a one-cycle learning rate and early stopping."""

    steps: int
    batch_size: int
    learning_rate: float
    seed: int


class Rescale(nn.Module):
    """Subtract a fixed centre and divide by a fixed scale, entry by entry."""

    centre: Tensor
    reciprocal: Tensor

    def __init__(self, centre: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("reciprocal", 1 / torch.where(scale > 0, scale, 1.0))

    def forward(self, z: Tensor) -> Tensor:
        """Apply the change of origin and scale."""
        return (z - self.centre) * self.reciprocal


register_slope(Rescale, lambda layer, z: layer.reciprocal.expand_as(z))  # type: ignore[operator]


class Decoder(nn.Module):
    """The network that maps the embedding to the activity that is expected.

    Parameters
    ----------
    inputs : Inputs
        Those of the encoder: the decoder predicts the same components of the same neurons.
    centre, embedding_scale : Tensor of shape (n_latents,)
        Mean and standard deviation of the embedding.
    unit_blocks : list of slice, optional
        Blocks of unit length. Only changes along the sphere then have an effect.
    generator : torch.Generator, optional
        Random generator for the initial weights.
    """

    mean: Tensor
    scale: Tensor
    reciprocal: Tensor
    loadings: Tensor

    def __init__(
        self,
        inputs: Inputs,
        centre: Tensor,
        embedding_scale: Tensor,
        *,
        unit_blocks: list[slice] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        inputs.register(self)
        sphere: list[nn.Module] = [UnitBlocks(unit_blocks)] if unit_blocks else []
        self.network = nn.Sequential(
            *sphere,
            Rescale(centre, embedding_scale),
            linear(len(centre), WIDTH, generator),
            nn.GELU(),
            linear(WIDTH, WIDTH, generator),
            nn.GELU(),
            linear(WIDTH, self.loadings.shape[1], generator),
        )

    def standardised(self, z: Float[Tensor, "sample latent"]) -> Float[Tensor, "sample neuron"]:
        """Predict the standardised activity."""
        return product(self.network(z), self.loadings)

    def forward(self, z: Float[Tensor, "sample latent"]) -> Float[Tensor, "sample neuron"]:
        """Predict the activity in the units of the recording."""
        return self.standardised(z) * self.scale + self.mean


def fit_decoder(
    encoder: Encoder,
    inputs: Inputs,
    recording: Recording,
    training: Epochs,
    held_out: Epochs,
    config: DecoderConfig,
    *,
    progress: bool = False,
) -> Decoder:
    """Regress the activity on the embedding: ``min E |u - h(z)|^2`` over components ``u``.

    If the embedding outlasts a sample (see `outlasts_samples`), ``z`` is the mean of the embedding
    one sample before and one sample after. With a window, it is the mean of the nearest two
    embeddings whose windows do not contain the sample. The noise of a neuron at this sample then
    has no influence on its own prediction. The embedding of the same sample is computed from all
    neurons, so that a neuron would predict itself and would seem connected to every latent that it
    contributes to. If the embedding does not outlast a sample, ``z`` is the embedding of the same
    sample.

    The weights with the smallest error on the held-out samples are used. Training stops early if
    this error has not decreased for a while, or after Ctrl-C.

    Parameters
    ----------
    encoder : Encoder
    inputs : Inputs
        Those of the encoder.
    recording : Recording
    training : Epochs
        Samples to train on.
    held_out : Epochs
        Samples that decide which weights are used.
    config : DecoderConfig
    progress : bool
        Whether to show a progress bar.
    """
    last = encoder.network[-1]
    outlasts = outlasts_samples(encoder, recording, training)
    points = around_samples if outlasts else at_samples
    return fit_regression(
        points(encoder, recording),
        inputs,
        recording,
        training,
        held_out,
        config,
        unit_blocks=last.blocks if isinstance(last, UnitBlocks) else None,
        device=encoder.loadings.device,
        progress=progress,
    )


def fit_regression(
    points: Points,
    inputs: Inputs,
    recording: Recording,
    training: Epochs,
    held_out: Epochs,
    config: DecoderConfig,
    *,
    unit_blocks: list[slice] | None = None,
    device: torch.device | None = None,
    progress: bool = False,
) -> Decoder:
    """Regress the activity on any regressors.

    Parameters
    ----------
    points : callable
        ``points(times, epochs)`` returns the regressors, a Tensor of shape (n_times, n_latents).
    inputs : Inputs
        Mean, scale and components of the activity.
    recording : Recording
    training, held_out : Epochs
        Samples to train on, and samples that decide which weights are used.
    config : DecoderConfig
    unit_blocks : list of slice, optional
        See `Decoder`.
    device : torch.device, optional
        The CPU by default.
    progress : bool
        Whether to show a progress bar.
    """
    rng = np.random.default_rng(config.seed)
    device = device or torch.device("cpu")

    def components(times: IntArray) -> Tensor:
        with torch.no_grad():
            x = torch.from_numpy(recording.rows(times)).to(device)
            return product((x - decoder.mean) * decoder.reciprocal, decoder.loadings.T)

    pool = evenly_spaced(training.indices(), _MOST_EMBEDDED)
    z = points(pool, training)
    decoder = Decoder(
        inputs,
        z.mean(dim=0),
        z.std(dim=0),
        unit_blocks=unit_blocks,
        generator=torch.Generator().manual_seed(config.seed),
    ).to(device)
    judged = evenly_spaced(held_out.indices(), _JUDGED)
    regressor = Regressor(decoder.network)
    z, judged_z = regressor.inputs(z), regressor.inputs(points(judged, held_out))
    judged_u = components(judged)
    targets: Tensor | None = None
    if len(pool) * decoder.loadings.shape[1] <= _MOST_KEPT:
        n_parts = 1 + len(pool) // rows_at_once(recording.n_neurons, len(pool))
        targets = torch.cat([components(times) for times in np.array_split(pool, n_parts)])

    def part_of_step(rows: IntArray) -> Gradients:
        index = torch.from_numpy(rows).to(device)
        y = components(pool[rows]) if targets is None else targets[index]
        return regressor.gradients(z[index], y, config.batch_size)

    def take_step(step: int) -> None:
        rows = rng.integers(len(pool), size=config.batch_size)
        parts = shares(len(rows), workers.n)
        gradients = workers.divide(lambda k: part_of_step(rows[parts[k]]))
        rate = one_cycle(step, config.steps, config.learning_rate, rise=0.05)
        regressor.step(gradients, rate)

    best, best_error, since = copy.deepcopy(decoder.network.state_dict()), math.inf, 0
    progress_bar = Steps(config.steps, progress, desc="decoder")
    workers = Workers(max(1, config.batch_size // _ROWS_A_WORKER), device)
    with workers, deferred_interrupt() as interrupted, progress_bar:
        step = 0
        while True:
            step = workers.lead(
                take_steps, take_step, step, _BETWEEN_LOOKS, config.steps, interrupted, progress_bar
            )
            error = workers.lead(lambda: float(F.mse_loss(regressor.predict(judged_z), judged_u)))
            since = 0 if error < best_error else since + 1
            if since == 0:
                best, best_error = copy.deepcopy(decoder.network.state_dict()), error
            if interrupted():
                warn(
                    f"the decoder was stopped at step {step} of {config.steps}; its maps and "
                    "inverse_transform are those of a network that is not trained to the end",
                    InterruptedFitWarning,
                )
            if step == config.steps or interrupted() or since == _PATIENCE:
                break
    decoder.network.load_state_dict(best)
    return decoder


def outlasts_samples(encoder: Encoder, recording: Activity, epochs: Epochs) -> bool:
    """Whether every latent, corrected for noise, still correlates with itself one sample later.

    With a window or with smoothed activity, the step is as long as two windows need to have no
    sample in common. This step is longer than the distances that `around_samples` uses, and the
    threshold is adapted to it.

    Noise that is independent from sample to sample lowers all correlations over time by the same
    factor. The ratio of the correlation over two steps to the correlation over one step does not
    depend on this factor.
    """
    apart = encoder.window + recording.overlap
    times = epochs.indices()
    times = times[times + 2 * apart < epochs.stop_of(times)]
    times = times[:: max(1, len(times) // _JUDGED)]
    if len(times) < _FEW:
        return False
    now, next_, later = (
        _embedded(encoder, recording, times + lag * apart).cpu().double() for lag in range(3)
    )
    now, next_, later = (z - z.mean(dim=0) for z in (now, next_, later))
    variances, axes = torch.linalg.eigh(now.T @ now / len(times))
    moves = variances > 1e-8 * variances[-1]
    axes = axes[:, moves] / variances[moves].sqrt()
    one_step = axes.T @ (now.T @ next_ + next_.T @ later) @ axes / (2 * len(times))
    two_steps = axes.T @ (now.T @ later) @ axes / len(times)
    over_one, directions = torch.linalg.eigh((one_step + one_step.T) / 2)
    over_two = (directions * (two_steps @ directions)).sum(dim=0)
    known = over_one > _LEAST_CORRELATED
    least = _LASTING ** (2 * apart / sum(reach(encoder, recording)))
    return bool(known.any() and (over_two[known] > least * over_one[known]).all())


def at_samples(encoder: Encoder, recording: Activity) -> Points:
    """Return a function that gives the embedding of each sample itself."""
    return lambda times, epochs: _embedded(encoder, recording, times)


def around_samples(encoder: Encoder, recording: Activity) -> Points:
    """Return a function that gives the mean of the embedding just before and just after a sample.

    Neither of the two is computed from the sample itself.
    """

    def points(times: IntArray, epochs: Epochs) -> Tensor:
        before, after = epochs.neighbours(times, *reach(encoder, recording))
        return (_embedded(encoder, recording, before) + _embedded(encoder, recording, after)) / 2

    return points


def reach(encoder: Encoder, recording: Activity) -> tuple[int, int]:
    """Distance to the nearest windows before and after a sample that do not depend on it.

    Returns
    -------
    before, after : int
        In samples.
    """
    half, overlap = samples_before(encoder.window), recording.overlap
    return encoder.window - half + overlap, half + 1 + overlap


def _activity(encoder: Encoder, recording: Activity, times: IntArray) -> Tensor:
    """Standardised activity of the neurons, of shape (n_times, n_neurons)."""
    x = torch.from_numpy(recording.rows(times)).to(encoder.loadings.device)
    return encoder.standardised(x)


def _embedded(encoder: Encoder, recording: Activity, times: IntArray) -> Tensor:
    return torch.from_numpy(embed(encoder, recording, times)).to(encoder.loadings.device)


def variance_explained(
    encoder: Encoder,
    decoder: Decoder,
    recording: Recording,
    epochs: Epochs,
    blocks: Mapping[str, slice],
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    """Share of each neuron's variance that the decoder explains, by all latents and by block.

    The share of a block is its total-effect Sobol index (Jansen's estimator): half the mean squared
    change of the expected activity if the values of this block alone are exchanged between samples.
    If blocks interact, their shares add up to more than the total. If blocks are correlated,
    exchanging one alone leads to points that do not occur in the data, and a share can exceed 1.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
    recording : Recording
    epochs : Epochs
        Samples to use.
    blocks : mapping of str to slice
        Latents of each block.
    seed : int
        Seed of the exchange between samples.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)
        ``"all"``, and each block by its name.
    """
    device = encoder.loadings.device
    times = evenly_spaced(epochs.indices(), _JUDGED)
    other = torch.from_numpy(np.random.default_rng(seed).permutation(len(times)))
    with torch.no_grad():
        z = encoder(encoder.samples(recording, times))
        neurons = _activity(encoder, recording, times)
        expected = decoder.standardised(z)
        variance = neurons.var(dim=0, correction=0)
        changes = {"all": (neurons - expected).square().mean(dim=0)}
        for name, block in blocks.items():
            exchanged = z.clone()
            exchanged[:, block] = z[other.to(device)][:, block]
            change = (decoder.standardised(exchanged) - expected).square().mean(dim=0) / 2
            changes[name] = change
    varies = variance > 0
    shares = {
        name: torch.where(varies, change / torch.where(varies, variance, 1.0), 0.0)
        for name, change in changes.items()
    }
    shares["all"] = torch.where(varies, 1 - shares["all"], 0.0)
    return {name: share.cpu().double().numpy() for name, share in shares.items()}
