"""The encoder: neurons are standardised, projected on components and embedded by a network."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from xcebra.common.eigenvalues import largest_eigenvalues
from xcebra.common.products import Dense, product
from xcebra.data.epochs import Epochs
from xcebra.data.recording import Activity, Recording, chunks, rows_at_once
from xcebra.networks.jacobian import register_slope, register_symmetric

# Principal components with a smaller variance, in units of one neuron's variance, are removed: the
# data hardly varies along them, so the loss does not constrain the encoder there (docs/method.md,
# "Why a projection"). Larger values remove more noise, but also more weak signals.
_VISITED = 1e-3
# Largest number of principal components, those with the largest variance. In wider recordings, time
# and memory would otherwise grow with the square of the number of neurons in every step, although
# the factors that many neurons share are in the first components. Not tuned.
_MOST_COMPONENTS = 1000
# Largest number of samples that are embedded at once. It limits the memory and does not change the
# result.
_EMBED_ROWS = 16_384
# Largest number of components of all samples that are kept in memory during training, 256 MB. Of
# longer recordings, they are computed anew in every step.
_MOST_KEPT = 1 << 26
# Number of units in each hidden layer, per latent, as in the paper.
WIDTHS = (30, 30, 10)


@dataclass(frozen=True, eq=False)
class Inputs:
    """A fixed linear map in front of the network: ``((x - mean) / scale) @ loadings``.

    The columns of the loadings are orthonormal. Norms and pseudo-inverses computed in the space of
    the components are therefore equal to those of the standardised neurons. Silent neurons have a
    scale of 0, and their loadings are exactly 0.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_neurons,)
        Mean and standard deviation of each neuron.
    loadings : ndarray of shape (n_neurons, n_components)
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    loadings: NDArray[np.float64]

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, *, project: bool) -> Inputs:
        """Compute mean, scale and loadings in one pass over time.

        Parameters
        ----------
        recording : Recording
        epochs : Epochs
            Samples to use.
        project : bool
            Whether the loadings are principal components. If False, they select the neurons that
            are not silent.
        """
        n, total = 0, 0.0
        products = np.zeros((recording.n_neurons, recording.n_neurons))
        origin = recording.rows(slice(int(epochs.starts[0]), int(epochs.starts[0]) + 1))[0]
        for chunk in chunks(recording.neural, epochs):
            # The first sample is subtracted, so that a large mean does not cost precision.
            x = np.asarray(chunk, dtype=np.float64) - origin
            n += len(x)
            total = total + x.sum(axis=0)
            products += x.T @ x
        shift = total / n
        products /= n
        products -= np.outer(shift, shift)
        covariance = products
        variance = np.diag(covariance).copy()
        # A constant neuron has a variance of exactly zero. Variances below the threshold are
        # rounding errors of the subtraction above.
        active = variance > 1e-14 * np.square(shift)
        scale = np.where(active, np.sqrt(np.maximum(variance, 0.0)), 0.0)
        if not (project and active.any()):
            return cls(origin + shift, scale, np.eye(len(scale))[:, active])
        reciprocal = 1 / scale[active]
        correlation = covariance[np.ix_(active, active)]
        del products, covariance
        correlation *= reciprocal
        correlation *= reciprocal[:, None]
        values, vectors = largest_eigenvalues(correlation, _MOST_COMPONENTS)
        vectors = vectors[:, values > _VISITED][:, ::-1]
        loadings = np.zeros((len(scale), vectors.shape[1]))
        loadings[active] = vectors
        return cls(origin + shift, scale, loadings)

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """One over the scale; zero for silent neurons."""
        silent = self.scale == 0
        return np.where(silent, 0.0, 1 / np.where(silent, 1.0, self.scale))

    def register(self, module: nn.Module) -> None:
        """Register these arrays as buffers of a module, in single precision."""
        for name in ("mean", "scale", "reciprocal", "loadings"):
            module.register_buffer(name, torch.tensor(getattr(self, name), dtype=torch.float32))

    @property
    def silent(self) -> NDArray[np.int64]:
        """Indices of the neurons that never change."""
        return np.flatnonzero(self.scale == 0)


class Bound(nn.Module):
    """Bound the outputs smoothly: ``limit * tanh(z / limit)``, close to the identity near zero."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, z: Tensor) -> Tensor:
        """Apply the bound to every entry."""
        return self.limit * torch.tanh(z / self.limit)

    def slope(self, z: Tensor) -> Tensor:
        """Return the derivative at ``z``, entry by entry."""
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
        """Multiply rows by the derivative at ``z``.

        The derivative removes the component along the radius and divides by the length of the
        block.

        Parameters
        ----------
        z : Tensor of shape (n_samples, n_latents)
        rows : Tensor of shape (n_samples, n_rows, n_latents)
        """
        parts = []
        for block in self.blocks:
            length = z[:, block].norm(dim=1).clamp_min(1e-12)[:, None, None]
            unit = z[:, None, block] / length
            part = rows[:, :, block]
            parts.append((part - (part * unit).sum(dim=2, keepdim=True) * unit) / length)
        return torch.cat(parts, dim=2)


register_symmetric(UnitBlocks, lambda layer, z, rows: layer.carry(z, rows))  # type: ignore[operator]


class Encoder(nn.Module):
    """The network that maps raw neural activity to the embedding.

    Parameters
    ----------
    inputs : Inputs
    n_latents : int
    limit : float
        Bound of the outputs.
    window : int
        Number of samples that each point of the embedding is computed from. If it is larger than
        1, the input has the shape (sample, lag, neuron).
    unit_blocks : list of slice, optional
        Blocks that are scaled to unit length (cosine similarity). They replace the bound.
    generator : torch.Generator, optional
        Random generator for the initial weights.
    trained_latents : int, optional
        Number of latents during training, if some were removed afterwards. The widths of the hidden
        layers depend on it.
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
        trained_latents: int | None = None,
    ) -> None:
        super().__init__()
        inputs.register(self)
        self.window = window
        n_trained = trained_latents or n_latents
        widths = [window * inputs.loadings.shape[1], *(per * n_trained for per in WIDTHS)]
        first = [linear(widths[0], widths[1], generator), nn.GELU()]
        later = _later_layers(widths[1:], n_latents, limit, unit_blocks, generator)
        self.network = nn.Sequential(*first, *later)

    @staticmethod
    def later_layers(
        n_latents: int, *, limit: float, unit_blocks: list[slice] | None = None
    ) -> nn.Sequential:
        """Make all layers but the first linear layer and its activation function."""
        widths = [per * n_latents for per in WIDTHS]
        return nn.Sequential(*_later_layers(widths, n_latents, limit, unit_blocks, None))

    def share_layers(self, other: Encoder, n_own: int) -> None:
        """Use the layers of another encoder, except for the first ``n_own``."""
        own, others = list(self.network)[:n_own], list(other.network)[n_own:]
        self.network = nn.Sequential(*own, *others)

    def with_latents(self, latents: list[int], unit_blocks: list[slice] | None) -> Encoder:
        """Return a copy that has only some of the latents, and that shares no layer.

        Parameters
        ----------
        latents : list of int
            Latents of this encoder, in their new order.
        unit_blocks : list of slice, optional
            Blocks of the copy that are scaled to unit length.
        """
        copied = copy.deepcopy(self)
        layers: list[Any] = list(copied.network)
        *earlier, last, bound = layers
        chosen = nn.utils.skip_init(Dense, last.in_features, len(latents))
        with torch.no_grad():
            chosen.weight.copy_(last.weight[latents])
            chosen.bias.copy_(last.bias[latents])
        end = UnitBlocks(unit_blocks) if unit_blocks else bound
        copied.network = nn.Sequential(*earlier, chosen.to(self.loadings.device), end)
        return copied

    def samples(self, recording: Activity, times: NDArray[np.int64]) -> Tensor:
        """Read raw activity in the shape that `forward` takes, on the encoder's device.

        Parameters
        ----------
        recording : Activity
        times : ndarray of shape (n_samples,)
            Indices of the samples.

        Returns
        -------
        Tensor of shape (n_samples, n_neurons) or (n_samples, window, n_neurons)
        """
        single_samples = self.window == 1
        x = recording.rows(times) if single_samples else recording.windows(times, self.window)
        return torch.from_numpy(x).to(self.loadings.device)

    def standardised(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample ..."]:
        """Subtract each neuron's mean and divide by its standard deviation."""
        return (x - self.mean) * self.reciprocal

    def components(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample component"]:
        """Standardise and project raw activity; the components of all lags are concatenated."""
        return product(self.standardised(x), self.loadings.T).flatten(1)

    def first_product(self) -> nn.Linear:
        """Return the first layer combined with the projection, as a map of standardised neurons."""
        first: Any = self.network[0]
        n_inputs = self.window * len(self.mean)
        combined = nn.utils.skip_init(Dense, n_inputs, first.out_features)
        with torch.no_grad():
            by_lag = first.weight.unflatten(1, (self.window, -1)) @ self.loadings.T
            combined.weight.copy_(by_lag.flatten(1))
            combined.bias.copy_(first.bias)
        return combined.to(self.loadings.device)

    def forward(self, x: Float[Tensor, "sample ..."]) -> Float[Tensor, "sample latent"]:
        """Embed raw activity."""
        return self.network(self.components(x))


def _later_layers(
    widths: list[int],
    n_latents: int,
    limit: float,
    unit_blocks: list[slice] | None,
    generator: torch.Generator | None,
) -> list[nn.Module]:
    """Make the layers after the first one, whose output has the first of the widths."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [linear(before, after, generator), nn.GELU()]
    layers.append(linear(widths[-1], n_latents, generator))
    layers.append(UnitBlocks(unit_blocks) if unit_blocks else Bound(limit))
    return layers


class NetworkInputs:
    """Reads the inputs of an encoder's network, the components of the activity, at any samples.

    If they fit into memory, the components of all samples are computed once.

    Parameters
    ----------
    encoder : Encoder
    recording : Activity
    """

    def __init__(self, encoder: Encoder, recording: Activity) -> None:
        self._encoder, self._recording = encoder, recording
        n_components = encoder.loadings.shape[1]
        self._kept: Tensor | None = None
        if recording.n_times * n_components <= _MOST_KEPT:
            self._kept = encoder.loadings.new_empty(recording.n_times, n_components)
            step = rows_at_once(len(encoder.mean), _EMBED_ROWS)
            for start in range(0, recording.n_times, step):
                times = np.arange(start, min(start + step, recording.n_times))
                self._kept[start : start + len(times)] = self._components(times)

    def __call__(self, times: NDArray[np.int64]) -> Float[Tensor, "sample component"]:
        """Return the inputs of the network, of shape (n_times, window * n_components)."""
        window = self._encoder.window
        rows = times
        if window > 1:
            rows = self._recording.epochs.windows(times, window, self._recording.n_times).ravel()
        if self._kept is None:
            components = self._components(rows)
        else:
            components = self._kept[torch.from_numpy(rows).to(self._kept.device)]
        return components.reshape(len(times), window * components.shape[1])

    def _components(self, times: NDArray[np.int64]) -> Tensor:
        x = torch.from_numpy(self._recording.rows(times)).to(self._encoder.loadings.device)
        with torch.no_grad():
            return product(self._encoder.standardised(x), self._encoder.loadings.T)


class FixedPoints(nn.Module):
    """Points of an embedding that take part in training and do not change.

    It has the interface of an `Encoder` as far as training uses it. Its inputs are points of the
    embedding already.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        """Return the points themselves."""
        return x


def embed(
    encoder: Encoder, recording: Activity, times: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Embed a recording, or some of its samples, in batches.

    Parameters
    ----------
    encoder : Encoder
    recording : Activity
    times : ndarray of shape (n_times,), optional
        Indices of the samples; all samples by default.

    Returns
    -------
    ndarray of shape (n_times, n_latents)
    """
    times = np.arange(recording.n_times) if times is None else times
    batch_size = rows_at_once(encoder.window * len(encoder.mean), _EMBED_ROWS, encoder.window)
    parts = []
    with torch.no_grad():
        for start in range(0, len(times), batch_size):
            x = encoder.samples(recording, times[start : start + batch_size])
            parts.append(encoder(x).cpu())
    return torch.cat(parts).numpy()


def linear(before: int, after: int, generator: torch.Generator | None) -> nn.Linear:
    """Make a linear layer with torch's default initial weights, drawn from ``generator``."""
    layer = nn.utils.skip_init(Dense, before, after)
    bound = max(before, 1) ** -0.5
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-bound, bound, generator=generator)
    return layer
