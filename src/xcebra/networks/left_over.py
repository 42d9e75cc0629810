"""Patterns of activity that is left over: shared by neurons, but not held by the embedding.

A factor that many neurons follow and that has no latent of its own appears in the residuals of the
decoder: they are correlated between neurons and from one sample to the next. If the factor is
correlated with a label, every neuron that follows it would seem to carry the label. Therefore the
activity that is left over is computed from the neurons by linear projections, and the map uses the
projections as further latents, which are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.recording import Recording
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder

# Largest number of samples to use. Larger values give more precise patterns and take longer; not
# tuned.
_MOST_LOOKED_AT = 8192
# Patterns with a smaller share of the neurons' variance are ignored: they come from nonlinear
# functions of factors that have a latent. The largest pattern had a share of 0.02 % or less in
# simulations with all latents, of 3.5 and 3.6 % in simulations with one latent too few (dataset
# seeds 100 and 101), and of 0.03 to 0.13 % in seven real recordings with foreign neurons.
_LEAST_SHARE = 0.01
# Largest number of patterns. More patterns can represent more missing factors; not tuned.
_MOST_PATTERNS = 4
# Number of random shifts that measure the share due to chance. More shifts are more conservative,
# because the largest share counts; not tuned.
_N_SHIFTS = 5


@dataclass(frozen=True, eq=False)
class LeftOver:
    """Activity that several neurons share and that the decoder does not predict.

    Parameters
    ----------
    share : float
        Share of the neurons' variance in the largest pattern, after the share that is due to chance
        is subtracted.
    directions : Tensor of shape (n_neurons, n_patterns)
        Patterns that are large enough to be used in a map, largest first.
    """

    share: float
    directions: Tensor


def find_left_over(
    encoder: Encoder, decoder: Decoder, recording: Recording, epochs: Epochs
) -> LeftOver:
    """Find patterns of activity that the decoder does not predict.

    The residuals at one sample are multiplied with the residuals of the other neurons at the next
    sample. Noise of single neurons or single samples averages out in these products, but a factor
    that has no latent of its own does not. The largest share that results after each neuron is
    shifted in time by a different amount is due to chance and is subtracted, because slow neurons
    seem to share activity even if they are unrelated.
    """
    device = encoder.loadings.device
    times = evenly_spaced(epochs.indices(), _MOST_LOOKED_AT)
    times = times[times + 1 < epochs.stop_of(times)]
    if len(times) < 2:
        return LeftOver(0.0, torch.zeros(recording.n_neurons, 0, device=device))
    residuals = []
    with torch.no_grad():
        for moment in (times, times + 1):
            activity = torch.from_numpy(recording.rows(moment)).to(device)
            neurons = encoder.standardised(activity)
            embedding = encoder(encoder.samples(recording, moment))
            residuals.append(missed_activity(decoder, neurons, embedding).cpu().double())
            variance = float(neurons.cpu().double().var(dim=0, correction=0).sum())
    here, next_ = (residual - residual.mean(dim=0) for residual in residuals)
    sizes, directions = torch.linalg.eigh(_shared(here, next_))
    rng = np.random.default_rng(0)
    by_chance = max(
        float(torch.linalg.eigvalsh(_shared(*_shifted(here, next_, rng)))[-1])
        for _ in range(_N_SHIFTS)
    )
    shares = ((sizes - by_chance) / max(variance, 1e-300)).flip(0)
    is_large = shares[:_MOST_PATTERNS] > _LEAST_SHARE
    patterns = directions.flip(1)[:, : int(is_large.sum())].contiguous().float().to(device)
    return LeftOver(max(0.0, float(shares[0])), patterns)


def missed_activity(
    decoder: Decoder,
    neurons: Float[Tensor, "sample neuron"],
    embedding: Float[Tensor, "sample latent"],
) -> Float[Tensor, "sample neuron"]:
    """Residuals of the decoder: standardised activity minus the activity that is expected.

    Parameters
    ----------
    decoder : Decoder
    neurons : Tensor of shape (n_samples, n_neurons)
        Standardised activity.
    embedding : Tensor of shape (n_samples, n_latents)
    """
    return neurons - decoder.standardised(embedding)


def _shifted(here: Tensor, there: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Shift each neuron circularly in time by a random amount, the same in both arrays."""
    n, n_neurons = here.shape
    starts = torch.from_numpy(rng.integers(n, size=n_neurons))
    rows = (torch.arange(n)[:, None] + starts) % n
    return here.gather(0, rows), there.gather(0, rows)


def _shared(here: Tensor, there: Tensor) -> Tensor:
    """Mean products of each neuron with the others, made symmetric, with a diagonal of zero."""
    shared = here.T @ there / len(here)
    shared = (shared + shared.T) / 2
    return shared.fill_diagonal_(0.0)
