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
from numpy.typing import NDArray
from torch import Tensor

from xcebra.common.eigenvalues import largest_eigenvalues
from xcebra.data.epochs import Epochs, IntArray, evenly_spaced
from xcebra.data.recording import Recording, rows_at_once
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
    here, _ = _residuals(encoder, decoder, recording, times)
    next_, variance = _residuals(encoder, decoder, recording, times + 1)
    sizes, directions = largest_eigenvalues(_shared(here, next_), _MOST_PATTERNS)
    rng = np.random.default_rng(0)
    by_chance = max(
        float(largest_eigenvalues(_shared(*_shifted(here, next_, rng)), 1)[0][0])
        for _ in range(_N_SHIFTS)
    )
    shares = (sizes[::-1] - by_chance) / max(variance, 1e-300)
    n_large = int((shares > _LEAST_SHARE).sum())
    largest_first = np.ascontiguousarray(directions[:, ::-1][:, :n_large], dtype=np.float32)
    patterns = torch.from_numpy(largest_first).to(device)
    return LeftOver(max(0.0, float(shares[0])), patterns)


def _residuals(
    encoder: Encoder, decoder: Decoder, recording: Recording, times: IntArray
) -> tuple[Tensor, float]:
    """Residuals of the decoder, and the sum of the neurons' variances at these samples."""
    residuals, sums, squares = [], 0.0, 0.0
    step = rows_at_once(encoder.window * recording.n_neurons, len(times))
    with torch.no_grad():
        for start in range(0, len(times), step):
            part = times[start : start + step]
            activity = torch.from_numpy(recording.rows(part)).to(encoder.loadings.device)
            neurons = encoder.standardised(activity)
            embedding = encoder(encoder.samples(recording, part))
            residuals.append(missed_activity(decoder, neurons, embedding).cpu())
            values = neurons.cpu().double().numpy()
            sums, squares = sums + values.sum(axis=0), squares + np.square(values).sum(axis=0)
    means = np.asarray(sums) / len(times)
    return torch.cat(residuals), float((squares / len(times) - np.square(means)).sum())


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
    shifted = torch.empty_like(here), torch.empty_like(there)
    for neuron, start in enumerate(rng.integers(n, size=n_neurons).tolist()):
        for values, moved in zip((here, there), shifted, strict=True):
            moved[: n - start, neuron] = values[start:, neuron]
            moved[n - start :, neuron] = values[:start, neuron]
    return shifted


def _shared(here: Tensor, there: Tensor) -> NDArray[np.float64]:
    """Mean products of each neuron with the others, made symmetric, with a diagonal of zero.

    Means over time are subtracted before. The products are in double precision, of some samples
    after the other.
    """
    n, n_neurons = here.shape
    means = [values.mean(dim=0, dtype=torch.float64) for values in (here, there)]
    products = np.zeros((n_neurons, n_neurons))
    step = rows_at_once(n_neurons, n)
    for start in range(0, n, step):
        a, b = (
            (values[start : start + step].double() - mean).numpy()
            for values, mean in zip((here, there), means, strict=True)
        )
        products += a.T @ b
    shared = products + products.T
    shared /= 2 * n
    np.fill_diagonal(shared, 0.0)
    return shared
