"""Attribution methods on a network: one implementation each, for all outputs at once.

Every function takes a network or its layers, and samples ``x``, and answers with the attribution of
each output to each input entry at each sample, (sample, latent, ...). Whatever does not depend on
the output is shared by all outputs, and products with the first layer's weights are taken out of
the loops wherever mathematics allows.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from xcebra.networks.jacobian import flat_layers, is_linear, linearise

Layers = tuple[nn.Module, ...]
PATH_POINTS = 50
SHAP_DRAWS = 5
_PAIRS_AT_ONCE = 2**20


def integrated_gradients(
    network: nn.Module | Layers,
    x: Float[Tensor, "sample ..."],
    baseline: Tensor,
    n_points: int = PATH_POINTS,
) -> Float[Tensor, "sample latent ..."]:
    """Mean gradient on the way from a baseline to each sample, times their difference.

    The mean is Gauss-Legendre quadrature. The first layer is linear on the way, so its forward
    product is taken at both ends only, and its backward product once, of the mean.
    """
    first, rest = _parted(network)
    start, end = first.forward(baseline[None]), first.forward(x)
    nodes, weights = np.polynomial.legendre.leggauss(n_points)
    way = end - start
    total: Tensor | None = None
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        rows = linearise(rest, torch.add(start, way, alpha=(1 + node) / 2)).pullback()
        total = rows * (weight / 2) if total is None else total.add_(rows, alpha=weight / 2)
    assert total is not None  # there is a point at least
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
    network : Module
    x : Tensor of shape (n_samples, ...)
    baselines : Tensor of shape (n_baselines, ...)
    chosen : Tensor of int of shape (n_draws, n_samples)
        Which baseline each draw takes.
    coefficients : Tensor of shape (n_draws, n_samples)
        How far from the baseline to the sample each draw lies, from 0 to 1.
    """
    first, rest = _parted(network)
    starts, end = first.forward(baselines), first.forward(x)
    shared = len(baselines) == 1
    total = x.new_zeros(())
    for which, far in zip(chosen, coefficients, strict=True):
        start = starts[which]
        at = linearise(rest, start + far.reshape(-1, *(1,) * (end.ndim - 1)) * (end - start))
        if shared:
            total = total + at.pullback()
        else:
            total = total + first.back(at.pullback()) * (x - baselines[which])[:, None]
    if shared:
        total = first.back(total) * (x - baselines)[:, None]
    return total / len(chosen)


def feature_ablation(
    network: nn.Module | Layers,
    x: Float[Tensor, "sample ..."],
    baseline: Tensor,
) -> Float[Tensor, "sample latent ..."]:
    """By how much each output falls when one input entry is put at its baseline.

    Only entries that differ from the baseline are tried. Where the first layer is linear, a changed
    entry moves its output along one column of the weights, so its product is not taken again.
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
    """A network's first layer, if it is linear: its products, apart from the rest."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._columns = layer.weight.T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return self._layer(x)

    def back(self, rows: Tensor) -> Tensor:
        return rows @ self._layer.weight

    def without(self, hidden: Tensor, entries: Tensor, amounts: Tensor) -> Tensor:
        """Outputs with an amount taken from one entry of each input."""
        return torch.addcmul(hidden, self._columns[entries], amounts[:, None], value=-1)


class _Nothing:
    """Stands for the first product of a network that does not begin with one."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def back(self, rows: Tensor) -> Tensor:
        return rows

    def without(self, hidden: Tensor, entries: Tensor, amounts: Tensor) -> Tensor:
        # In one piece: flattening any other layout would change a copy.
        changed = hidden.flatten(1).clone(memory_format=torch.contiguous_format)
        changed[torch.arange(len(entries), device=entries.device), entries] -= amounts
        return changed.reshape(hidden.shape)


def _parted(network: nn.Module | Layers) -> tuple[_Product | _Nothing, Layers]:
    layers = flat_layers(network) if isinstance(network, nn.Module) else network
    if is_linear(layers[0]):
        return _Product(layers[0]), layers[1:]
    return _Nothing(), layers


def _forward(layers: Layers, x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x
