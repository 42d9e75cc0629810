"""The encoder: standardised neurons, their principal components, a small bounded network."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from xcebra.data.epochs import Epochs
from xcebra.data.recording import Activity, Recording, chunks
from xcebra.networks.jacobian import register_slope, register_symmetric

# In units of one neuron's variance: components below are directions the data never visits.
_VISITED = 1e-3
_EMBED_ROWS = 16_384
# The paper's: units of the hidden layers per latent.
WIDTHS = (30, 30, 10)


@dataclass(frozen=True, eq=False)
class Inputs:
    """A fixed linear map in front of the network: ``((x - mean) / scale) @ loadings``.

    The loadings' columns are orthonormal, so norms and pseudo-inverses taken in the components are
    those of the standardised neurons. Silent neurons have scale 0 and loadings exactly 0.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_neurons,)
    loadings : ndarray of shape (n_neurons, n_components)
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    loadings: NDArray[np.float64]

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, *, project: bool) -> Inputs:
        """Measure mean, scale and, with ``project``, principal components in one pass over time."""
        n, total, products = 0, 0.0, 0.0
        origin = recording.rows(slice(int(epochs.starts[0]), int(epochs.starts[0]) + 1))[0]
        for chunk in chunks(recording.neural, epochs):
            # Measured from one sample, so that a large offset costs no digits.
            x = np.asarray(chunk, dtype=np.float64) - origin
            n += len(x)
            total = total + x.sum(axis=0)
            products = products + x.T @ x
        shift = total / n
        covariance = products / n - np.outer(shift, shift)
        variance = np.diag(covariance).copy()
        # A constant neuron is exactly zero here; the floor is what cancellation may leave.
        active = variance > 1e-14 * np.square(shift)
        scale = np.where(active, np.sqrt(np.maximum(variance, 0.0)), 0.0)
        eye = np.eye(len(scale))[:, active]
        if project and active.any():
            reciprocal = 1 / scale[active]
            correlation = covariance[np.ix_(active, active)] * np.outer(reciprocal, reciprocal)
            values, vectors = np.linalg.eigh(correlation)
            eye = eye @ vectors[:, values > _VISITED][:, ::-1]
        return cls(origin + shift, scale, eye)

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """One over the scale; zero for silent neurons."""
        silent = self.scale == 0
        return np.where(silent, 0.0, 1 / np.where(silent, 1.0, self.scale))

    def register(self, module: nn.Module) -> None:
        """Give a module these numbers as buffers, in single precision."""
        for name in ("mean", "scale", "reciprocal", "loadings"):
            module.register_buffer(name, torch.tensor(getattr(self, name), dtype=torch.float32))

    @property
    def silent(self) -> NDArray[np.int64]:
        """Neurons that never change."""
        return np.flatnonzero(self.scale == 0)


class Bound(nn.Module):
    """Smooth limit ``limit * tanh(z / limit)``: the identity near zero, never beyond the limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, z: Tensor) -> Tensor:
        """Bound every entry."""
        return self.limit * torch.tanh(z / self.limit)

    def slope(self, z: Tensor) -> Tensor:
        """Derivative at ``z``."""
        return 1 - torch.tanh(z / self.limit).square()


register_slope(Bound, lambda layer, z: layer.slope(z))  # type: ignore[operator]


class UnitBlocks(nn.Module):
    """Scale every block of latents to unit length."""

    def __init__(self, blocks: list[slice]) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, z: Tensor) -> Tensor:
        """Divide each block by its length."""
        return torch.cat([F.normalize(z[:, block], dim=1) for block in self.blocks], dim=1)

    def carry(self, z: Tensor, rows: Tensor) -> Tensor:
        """Rows through the derivative at ``z``: what lies along the sphere, over the length."""
        parts = []
        for block in self.blocks:
            length = z[:, block].norm(dim=1).clamp_min(1e-12)[:, None, None]
            unit = z[:, None, block] / length
            part = rows[:, :, block]
            parts.append((part - (part * unit).sum(dim=2, keepdim=True) * unit) / length)
        return torch.cat(parts, dim=2)


register_symmetric(UnitBlocks, lambda layer, z, rows: layer.carry(z, rows))  # type: ignore[operator]


class Encoder(nn.Module):
    """Raw neural activity in, embedding out.

    Parameters
    ----------
    inputs : Inputs
    n_latents : int
    limit : float
        Bound of the outputs.
    window : int
        Samples that each point of the embedding is read from; with more than one, activity comes as
        (sample, lag, neuron).
    unit_blocks : list of slice, optional
        Blocks of unit length (cosine similarity) in place of the bound.
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
        n_latents: int,
        *,
        limit: float,
        window: int = 1,
        unit_blocks: list[slice] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        inputs.register(self)
        self.window = window
        widths = [window * inputs.loadings.shape[1], *(per * n_latents for per in WIDTHS)]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [linear(before, after, generator), nn.GELU()]
        layers.append(linear(widths[-1], n_latents, generator))
        layers.append(UnitBlocks(unit_blocks) if unit_blocks else Bound(limit))
        self.network = nn.Sequential(*layers)

    def samples(self, recording: Activity, times: NDArray[np.int64]) -> Tensor:
        """Raw activity at some times as the encoder takes it, where the encoder is."""
        one = self.window == 1
        x = recording.rows(times) if one else recording.windows(times, self.window)
        return torch.from_numpy(x).to(self.loadings.device)

    def standardised(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample ..."]:
        """Raw activity in units of each neuron's standard deviation, from its mean."""
        return (x - self.mean) * self.reciprocal

    def components(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample component"]:
        """Standardise and project raw activity: what the network itself sees, lag after lag."""
        return (self.standardised(x) @ self.loadings).flatten(1)

    def first_product(self) -> nn.Linear:
        """The first layer as it acts on standardised neurons: projection and weights in one."""
        first: Any = self.network[0]
        n_inputs = self.window * len(self.mean)
        whole = nn.utils.skip_init(nn.Linear, n_inputs, first.out_features)
        with torch.no_grad():
            by_lag = first.weight.unflatten(1, (self.window, -1)) @ self.loadings.T
            whole.weight.copy_(by_lag.flatten(1))
            whole.bias.copy_(first.bias)
        return whole.to(self.loadings.device)

    def forward(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample latent"]:
        """Embed raw activity."""
        return self.network(self.components(x))


def embed(
    encoder: Encoder, recording: Activity, times: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Embed a recording, or some of its samples, a part at a time.

    Returns
    -------
    ndarray of shape (n_times, n_latents)
    """
    times = np.arange(recording.n_times) if times is None else times
    at_once = max(1, _EMBED_ROWS // encoder.window)
    parts = []
    with torch.no_grad():
        for at in range(0, len(times), at_once):
            x = encoder.samples(recording, times[at : at + at_once])
            parts.append(encoder(x).cpu())
    return torch.cat(parts).numpy()


def linear(before: int, after: int, generator: torch.Generator | None) -> nn.Linear:
    """A linear layer with torch's usual initial weights, drawn from our own generator."""
    layer = nn.utils.skip_init(nn.Linear, before, after)
    reach = max(before, 1) ** -0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-reach, reach, generator=generator)
    return layer
