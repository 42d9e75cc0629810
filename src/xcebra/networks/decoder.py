"""The decoder: from the embedding back to the activity the neurons are expected to show.

Its Jacobian says how each neuron moves with each latent, without an inverse.
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
from xcebra.common.progress import bar
from xcebra.data.epochs import Epochs, IntArray, evenly_spaced, samples_before
from xcebra.data.recording import Activity, Recording
from xcebra.networks.encoder import Encoder, Inputs, UnitBlocks, embed, linear
from xcebra.networks.jacobian import register_slope
from xcebra.networks.schedules import one_cycle

WIDTH = 192
_JUDGED = 8192
_BETWEEN_LOOKS = 100
_PATIENCE = 5
# Samples whose embedding is kept while the decoder learns: more would tell it nothing new.
_MOST_EMBEDDED = 200_000
# Correlation from one sample to the next, without noise: below it, neighbours tell too little.
_LASTING = 0.9
_LEAST_CORRELATED = 0.1
_FEW = 50

# From samples, and the epochs they lie in, to what the activity is regressed on.
Points = Callable[[IntArray, Epochs], Tensor]


@dataclass(frozen=True)
class DecoderConfig:
    """How a decoder is trained: Adam, a short rise and a half cosine, with early stopping."""

    steps: int
    batch_size: int
    learning_rate: float
    seed: int


class Rescale(nn.Module):
    """A fixed change of origin and scale, entry by entry."""

    centre: Tensor
    reciprocal: Tensor

    def __init__(self, centre: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("reciprocal", 1 / torch.where(spread > 0, spread, 1.0))

    def forward(self, z: Tensor) -> Tensor:
        """Centre and scale."""
        return (z - self.centre) * self.reciprocal


register_slope(Rescale, lambda layer, z: layer.reciprocal.expand_as(z))  # type: ignore[operator]


class Decoder(nn.Module):
    """Embedding in, expected activity out.

    Parameters
    ----------
    inputs : Inputs
        The encoder's own: the decoder predicts the same components of the same neurons.
    centre, spread : Tensor of shape (n_latents,)
        Mean and standard deviation of the embedding.
    unit_blocks : list of slice, optional
        Blocks of unit length: only directions along the sphere then count.
    generator : torch.Generator
        Source of the initial weights.
    """

    mean: Tensor
    scale: Tensor
    reciprocal: Tensor
    loadings: Tensor

    def __init__(
        self,
        inputs: Inputs,
        centre: Tensor,
        spread: Tensor,
        *,
        unit_blocks: list[slice] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        inputs.register(self)
        sphere: list[nn.Module] = [UnitBlocks(unit_blocks)] if unit_blocks else []
        self.network = nn.Sequential(
            *sphere,
            Rescale(centre, spread),
            linear(len(centre), WIDTH, generator),
            nn.GELU(),
            linear(WIDTH, WIDTH, generator),
            nn.GELU(),
            linear(WIDTH, self.loadings.shape[1], generator),
        )

    def standardised(self, z: Float[Tensor, "sample latent"]) -> Float[Tensor, "sample neuron"]:
        """Expected activity in units of each neuron's standard deviation, from its mean."""
        return self.network(z) @ self.loadings.T

    def forward(self, z: Float[Tensor, "sample latent"]) -> Float[Tensor, "sample neuron"]:
        """Expected activity as recorded."""
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

    Where the embedding outlasts a sample, ``z`` is the mean of the embedding one sample before and
    one after; with a window, of the nearest two that are read from other samples. A neuron's own
    noise at this moment has then no part in what it is predicted from; with the embedding of the
    same sample, in which every neuron takes part, it would, and a neuron would seem connected to
    whatever it helps to read. Where the embedding does not last, ``z`` is that of the same sample.

    The weights kept are those with the least error on the held-out samples; training ends early
    when that error has not fallen for a while, or after Ctrl-C.
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
    """Regress the activity on anything: ``points(times, epochs)``, of shape (time, latent)."""
    rng = np.random.default_rng(config.seed)
    device = device or torch.device("cpu")

    def components(times: IntArray) -> Tensor:
        with torch.no_grad():
            x = torch.from_numpy(recording.rows(times)).to(device)
            return (x - decoder.mean) * decoder.reciprocal @ decoder.loadings

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
    judged_z, judged_u = points(judged, held_out), components(judged)
    optimizer = torch.optim.Adam(decoder.network.parameters(), fused=device.type in ("cpu", "cuda"))
    best, best_error, since = copy.deepcopy(decoder.network.state_dict()), math.inf, 0
    steps = bar(config.steps, progress, desc="decoder", unit="step")
    with deferred_interrupt() as interrupted, steps:
        for step in range(config.steps):
            optimizer.param_groups[0]["lr"] = one_cycle(
                step, config.steps, config.learning_rate, rise=0.05
            )
            rows = rng.integers(len(pool), size=config.batch_size)
            optimizer.zero_grad()
            found = decoder.network(z[torch.from_numpy(rows).to(device)])
            F.mse_loss(found, components(pool[rows])).backward()
            optimizer.step()
            steps.update()
            last_one = step + 1 == config.steps or interrupted()
            if (step + 1) % _BETWEEN_LOOKS and not last_one:
                continue
            with torch.no_grad():
                error = float(F.mse_loss(decoder.network(judged_z), judged_u))
            since = 0 if error < best_error else since + 1
            if since == 0:
                best, best_error = copy.deepcopy(decoder.network.state_dict()), error
            if interrupted():
                warn(
                    f"the decoder was stopped at step {step + 1} of {config.steps}; its maps and "
                    "inverse_transform are those of a network that is not trained to the end",
                    InterruptedFitWarning,
                )
            if last_one or since == _PATIENCE:
                break
    decoder.network.load_state_dict(best)
    return decoder


def outlasts_samples(encoder: Encoder, recording: Activity, epochs: Epochs) -> bool:
    """Whether every latent outlasts a sample, or what its window spans, noise apart.

    Noise that is new at every sample lowers all correlations over time by the same factor; the
    ratio of that over two samples to that over one is free of it. Windows that have nothing in
    common are their length and the recording's overlap apart, further than `around_samples` looks.
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
    one = axes.T @ (now.T @ next_ + next_.T @ later) @ axes / (2 * len(times))
    two = axes.T @ (now.T @ later) @ axes / len(times)
    over_one, directions = torch.linalg.eigh((one + one.T) / 2)
    over_two = (directions * (two @ directions)).sum(dim=0)
    known = over_one > _LEAST_CORRELATED
    least = _LASTING ** (2 * apart / sum(reach(encoder, recording)))
    return bool(known.any() and (over_two[known] > least * over_one[known]).all())


def at_samples(encoder: Encoder, recording: Activity) -> Points:
    """The embedding of each sample itself."""
    return lambda times, epochs: _embedded(encoder, recording, times)


def around_samples(encoder: Encoder, recording: Activity) -> Points:
    """Mean of the embedding just before and just after, read from other samples than this one."""

    def points(times: IntArray, epochs: Epochs) -> Tensor:
        before, after = epochs.neighbours(times, *reach(encoder, recording))
        return (_embedded(encoder, recording, before) + _embedded(encoder, recording, after)) / 2

    return points


def reach(encoder: Encoder, recording: Activity) -> tuple[int, int]:
    """How far back and ahead the nearest window lies that shares nothing with a sample."""
    half, more = samples_before(encoder.window), recording.overlap
    return encoder.window - half + more, half + 1 + more


def _activity(encoder: Encoder, recording: Activity, times: IntArray) -> Tensor:
    """What the neurons did, standardised."""
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
    """Share of each neuron's variance that the decoder explains, in all and by block.

    A block's share is the total effect of Sobol (Jansen's estimator): half the mean square by which
    the expected activity changes when that block alone is exchanged with other samples. Shares of
    blocks that work together add up to more than the whole. Where blocks are correlated, exchanging
    one alone leads to points that the data never visits: shares can then exceed 1.

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
            moved = (decoder.standardised(exchanged) - expected).square().mean(dim=0) / 2
            changes[name] = moved
    varies = variance > 0
    shares = {
        name: torch.where(varies, change / torch.where(varies, variance, 1.0), 0.0)
        for name, change in changes.items()
    }
    shares["all"] = torch.where(varies, 1 - shares["all"], 0.0)
    return {name: share.cpu().double().numpy() for name, share in shares.items()}
