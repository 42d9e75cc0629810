"""Attribution methods for networks, computed for all outputs at once.

Every function takes a network or its layers, and samples ``x``, and returns the attribution of each
output to each input entry at each sample, (sample, latent, ...). What does not depend on the output
is computed once for all outputs. Products with the weights of the first layer are computed outside
of the loops where this gives the same result.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from xcebra.networks.jacobian import flat_layers, is_linear, linearise

Layers = tuple[nn.Module, ...]
# Points on the path of integrated gradients, as is the default in Captum. More points are more
# accurate and take longer.
PATH_POINTS = 50
# Random draws per sample for the two SHAP methods, as is the default in Captum. More draws give
# less noise and take longer.
SHAP_DRAWS = 5
# Floats of hidden activity that are computed at once. It changes speed and memory, not the result.
_PAIRS_AT_ONCE = 2**20


def integrated_gradients(
    network: nn.Module | Layers,
    x: Float[Tensor, "sample ..."],
    baseline: Tensor,
    n_points: int = PATH_POINTS,
) -> Float[Tensor, "sample latent ..."]:
    """Mean gradient on the straight path from a baseline to each sample, times their difference.

    The mean is computed by Gauss-Legendre quadrature. If the first layer is linear, its outputs
    are linear along the path: its forward product is computed at both ends only, and its backward
    product once, for the mean.

    Parameters
    ----------
    network : Module or tuple of Module
    x : Tensor of shape (n_samples, ...)
    baseline : Tensor of shape (...)
    n_points : int
        Number of points on the path.

    Returns
    -------
    Tensor of shape (n_samples, n_latents, ...)
    """
    first, rest = _parted(network)
    start, end = first.forward(baseline[None]), first.forward(x)
    nodes, weights = np.polynomial.legendre.leggauss(n_points)
    path = end - start
    total: Tensor | None = None
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        rows = linearise(rest, torch.add(start, path, alpha=(1 + node) / 2)).pullback()
        total = rows * (weight / 2) if total is None else total.add_(rows, alpha=weight / 2)
    assert total is not None  # there is at least one point
    return first.back(total) * (x - baseline)[:, None]


def gradient_shap(
    network: nn.Module | Layers,
    x: Float[Tensor, "sample ..."],
    baselines: Float[Tensor, "baseline ..."],
    chosen: Tensor,
    coefficients: Float[Tensor, "draw sample"],
) -> Float[Tensor, "sample latent ..."]:
    """Mean over draws of the gradient between sample and baseline, times their difference.

    Parameters
    ----------
    network : Module or tuple of Module
    x : Tensor of shape (n_samples, ...)
    baselines : Tensor of shape (n_baselines, ...)
    chosen : Tensor of int of shape (n_draws, n_samples)
        Index of the baseline of each draw.
    coefficients : Tensor of shape (n_draws, n_samples)
        Position of each draw between the baseline (0) and the sample (1).

    Returns
    -------
    Tensor of shape (n_samples, n_latents, ...)
    """
    first, rest = _parted(network)
    starts, end = first.forward(baselines), first.forward(x)
    shared = len(baselines) == 1
    total = x.new_zeros(())
    for indices, shares in zip(chosen, coefficients, strict=True):
        start = starts[indices]
        point = start + shares.reshape(-1, *(1,) * (end.ndim - 1)) * (end - start)
        linearised = linearise(rest, point)
        if shared:
            total = total + linearised.pullback()
        else:
            total = total + first.back(linearised.pullback()) * (x - baselines[indices])[:, None]
    if shared:
        total = first.back(total) * (x - baselines)[:, None]
    return total / len(chosen)


def feature_ablation(
    network: nn.Module | Layers,
    x: Float[Tensor, "sample ..."],
    baseline: Tensor,
) -> Float[Tensor, "sample latent ..."]:
    """Decrease of each output when a single input entry is replaced by its baseline.

    Only entries that differ from the baseline are replaced. If the first layer is linear, a
    changed entry moves the output of this layer along a column of the weights, and the product
    with the weights is not computed again.

    Parameters
    ----------
    network : Module or tuple of Module
    x : Tensor of shape (n_samples, ...)
    baseline : Tensor of shape (...)

    Returns
    -------
    Tensor of shape (n_samples, n_latents, ...)
    """
    first, rest = _parted(network)
    hidden = first.forward(x)
    output = _forward(rest, hidden)
    difference = (x - baseline).flatten(1)
    result = output.new_zeros(len(x), difference.shape[1], output.shape[1])
    samples, entries = difference.nonzero(as_tuple=True)
    at_once = max(1, _PAIRS_AT_ONCE // hidden[0].numel())
    for s, e in zip(samples.split(at_once), entries.split(at_once), strict=True):
        moved = _forward(rest, first.without(hidden[s], e, difference[s, e]))
        result[s, e] = output[s] - moved
    return result.mT.reshape(len(x), output.shape[1], *x.shape[1:])


class _Product:
    """The products with the weights of a linear first layer."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._columns = layer.weight.T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return self._layer(x)

    def back(self, rows: Tensor) -> Tensor:
        return rows @ self._layer.weight

    def without(self, hidden: Tensor, entries: Tensor, amounts: Tensor) -> Tensor:
        """Outputs of the layer when an amount is subtracted from one entry of each input."""
        return torch.addcmul(hidden, self._columns[entries], amounts[:, None], value=-1)


class _Nothing:
    """Used in place of `_Product` for a network whose first layer is not linear."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def back(self, rows: Tensor) -> Tensor:
        return rows

    def without(self, hidden: Tensor, entries: Tensor, amounts: Tensor) -> Tensor:
        # The copy is contiguous, so that the change below is made in the array that is returned.
        changed = hidden.flatten(1).clone(memory_format=torch.contiguous_format)
        changed[torch.arange(len(entries), device=entries.device), entries] -= amounts
        return changed.reshape(hidden.shape)


def _parted(network: nn.Module | Layers) -> tuple[_Product | _Nothing, Layers]:
    """The first layer if it is linear, and the other layers."""
    layers = flat_layers(network) if isinstance(network, nn.Module) else network
    if is_linear(layers[0]):
        return _Product(layers[0]), layers[1:]
    return _Nothing(), layers


def _forward(layers: Layers, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x
