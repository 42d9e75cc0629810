"""Exact batched Jacobians, their penalty, and a pseudo-inverse that handles a lost rank.

A network is linearised once, by a forward pass that stores the input of each layer. Rows of the
Jacobian (all of them, or random combinations) are then pulled back through the layers for all
samples at once. They stay differentiable, which the penalty needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from xcebra.common.products import Dense, product
from xcebra.networks.gelu import DENSITY

# Singular values below this share of the largest one are ignored when a Jacobian is inverted
# (docs/method.md, "The map"). Larger values give more stable inverses of a lower rank; not tuned.
RELATIVE_CUTOFF = 1e-4


@dataclass(frozen=True, eq=False)
class Linearised:
    """A network at fixed inputs: its output, its layers, and the input of each layer."""

    output: Float[Tensor, "sample latent"]
    layers: tuple[nn.Module, ...]
    inputs: tuple[Tensor, ...]

    def pullback(
        self, rows: Float[Tensor, "sample row latent"] | None = None
    ) -> Float[Tensor, "sample row ..."]:
        """Multiply rows by the Jacobian of their sample: ``rows @ J``, or ``J`` without rows.

        Parameters
        ----------
        rows : Tensor of shape (n_samples, n_rows, n_latents), optional
            The identity by default.
        """
        steps = zip(reversed(self.layers), reversed(self.inputs), strict=True)
        return _carry(steps, self.output, rows, back=True)

    def pushforward(
        self, tangents: Float[Tensor, "sample row neuron"] | None = None
    ) -> Float[Tensor, "sample row latent"]:
        """Multiply tangents by the transposed Jacobian: ``tangents @ J^T``, or ``J^T`` without.

        Parameters
        ----------
        tangents : Tensor of shape (n_samples, n_rows, n_neurons), optional
            The identity by default.
        """
        steps = zip(self.layers, self.inputs, strict=True)
        return _carry(steps, self.inputs[0], tangents, back=False)

    def jacobian(self) -> Float[Tensor, "sample latent ..."]:
        """Compute the whole Jacobian, in the direction that needs fewer operations.

        Rows are pulled back, or tangents are pushed forward if there are fewer inputs than outputs.
        """
        few_inputs = self.inputs[0].ndim == 2 and self.inputs[0].shape[1] < self.output.shape[1]
        if few_inputs and all(_is_known(layer) for layer in self.layers):
            return self.pushforward().mT
        return self.pullback()


def flat_layers(network: nn.Module) -> tuple[nn.Module, ...]:
    """List the layers of a network; nested `torch.nn.Sequential` modules are flattened."""
    if type(network) is not nn.Sequential or _is_hooked(network) or not len(network):
        return (network,)
    return tuple(layer for child in network for layer in flat_layers(child))


def linearise(
    network: nn.Module | tuple[nn.Module, ...], x: Float[Tensor, "sample ..."]
) -> Linearised:
    """Run a network, or its layers, forward and store the input of each layer.

    Parameters
    ----------
    network : torch.nn.Module or tuple of torch.nn.Module
    x : Tensor of shape (n_samples, ...)
    """
    layers = flat_layers(network) if isinstance(network, nn.Module) else network
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer(x)
    return Linearised(x, layers, tuple(inputs))


def jacobian(
    network: nn.Module | tuple[nn.Module, ...], x: Float[Tensor, "sample ..."]
) -> Float[Tensor, "sample latent ..."]:
    """Compute the derivative of every output by every input, at every sample.

    Parameters
    ----------
    network : torch.nn.Module or tuple of torch.nn.Module
    x : Tensor of shape (n_samples, ...)

    Returns
    -------
    Tensor of shape (n_samples, n_latents, ...)
    """
    return linearise(network, x).jacobian()


def pull_back(layer: nn.Module, layer_input: Tensor, rows: Tensor) -> Tensor:
    """Multiply rows by the Jacobian of one layer; the result can be differentiated.

    Parameters
    ----------
    layer : torch.nn.Module
    layer_input : Tensor of shape (n_samples, n_inputs)
    rows : Tensor of shape (n_samples, n_rows, n_outputs)
    """
    return _through(layer, layer_input, rows, _slope(layer, layer_input), back=True)


def penalty(
    linearised: Linearised, projections: int | None = None, generator: torch.Generator | None = None
) -> Float[Tensor, ""]:
    """Squared Frobenius norm of the Jacobian, averaged over samples.

    Parameters
    ----------
    linearised : Linearised
        The network at the samples.
    projections : int, optional
        Number of random unit directions per sample, for an unbiased estimate. If None, the norm is
        exact.
    generator : torch.Generator, optional
        Random generator for the directions, on the CPU.
    """
    n, d = linearised.output.shape
    if projections is None:
        return linearised.pullback().square().sum(dim=(1, 2)).mean()
    rows = torch.randn(n, projections, d, generator=generator).to(linearised.output)
    rows = rows / rows.norm(dim=2, keepdim=True)
    return linearised.pullback(rows).square().sum(dim=(1, 2)).mean() * (d / projections)


@dataclass(frozen=True, eq=False)
class Inverse:
    """Pseudo-inverses, with their condition numbers and ranks.

    Parameters
    ----------
    values : Tensor of shape (n_samples, n_neurons, n_latents)
    condition : Tensor of shape (n_samples,)
        Ratio of the largest singular value to the smallest one that is not ignored.
    rank : Tensor of shape (n_samples,)
        Number of singular values that are not ignored.
    """

    values: Float[Tensor, "sample neuron latent"]
    condition: Float[Tensor, " sample"]
    rank: Tensor


def invert(
    jacobians: Float[Tensor, "sample latent neuron"], cutoff: float = RELATIVE_CUTOFF
) -> Inverse:
    """Moore-Penrose inverse of each Jacobian, ignoring singular values below a relative cut-off.

    It is computed from the small Gram matrices ``J J^T``. These are computed in double precision,
    because squaring halves the number of correct digits, and on the CPU, because not every device
    has double precision. Gram matrices of full rank are inverted directly, which takes half as long
    as an eigenvalue decomposition.

    Parameters
    ----------
    jacobians : Tensor of shape (n_samples, n_latents, n_neurons)
    cutoff : float
        Singular values below this share of the largest one are ignored.
    """
    rows = jacobians.detach().cpu().double()
    gram = rows @ rows.mT
    eigenvalues = torch.linalg.eigvalsh(gram)
    largest = eigenvalues[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    is_used = eigenvalues > cutoff**2 * largest
    smallest = torch.where(is_used, eigenvalues, torch.inf).amin(dim=1)
    full = is_used.all(dim=1)
    inverse_gram = torch.linalg.inv_ex(gram).inverse
    if not full.all():
        inverse_gram[~full] = _pseudo_inverse(gram[~full], cutoff**2)
    values = (inverse_gram.to(jacobians) @ jacobians).mT
    condition = (largest[:, 0] / smallest).sqrt()
    return Inverse(values, condition, is_used.sum(dim=1))


def _pseudo_inverse(gram: Tensor, cutoff: float) -> Tensor:
    """Pseudo-inverse of symmetric matrices, ignoring eigenvalues below a relative cut-off."""
    eigenvalues, vectors = torch.linalg.eigh(gram)
    is_used = eigenvalues > cutoff * eigenvalues[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    reciprocal = torch.where(is_used, 1 / eigenvalues.clamp_min(1e-300), 0.0)
    return (vectors * reciprocal[:, None, :]) @ vectors.mT


def _carry(
    steps: Iterable[tuple[nn.Module, Tensor]], start: Tensor, rows: Tensor | None, *, back: bool
) -> Tensor:
    """Multiply rows by the derivatives of the layers, one after the other.

    If ``rows`` is None, they are the identity. The product of the identity with element-wise layers
    is stored as a diagonal for as long as possible.

    Parameters
    ----------
    steps : iterable of (torch.nn.Module, Tensor)
        Layers and their inputs, in the order in which they are passed.
    start : Tensor of shape (n_samples, n_entries)
        The output of the network if ``back`` is True, else its input.
    rows : Tensor of shape (n_samples, n_rows, n_entries) or None
    back : bool
        Whether the rows go from the output to the input.
    """
    # Whether rows were computed here, so that they may be changed in place.
    diagonal, owned = None, False
    for layer, layer_input in steps:
        slope = _slope(layer, layer_input)
        if rows is None and slope is not None:
            diagonal = slope if diagonal is None else diagonal * slope
        elif rows is None and is_linear(layer):
            weight = layer.weight if back else layer.weight.T
            rows = weight.expand(len(start), -1, -1)
            if diagonal is not None:
                rows, owned = diagonal[:, :, None] * rows, True
        elif rows is not None and slope is not None and owned and not torch.is_grad_enabled():
            rows = rows.mul_(slope[:, None])
        else:
            rows = _identity(start, diagonal) if rows is None else rows
            rows, owned = _through(layer, layer_input, rows, slope, back), True
    return _identity(start, diagonal) if rows is None else rows


def _identity(like: Tensor, diagonal: Tensor | None) -> Tensor:
    if diagonal is not None:
        return torch.diag_embed(diagonal)
    n, size = like.shape
    return torch.eye(size, dtype=like.dtype, device=like.device).expand(n, size, size)


def _through(
    layer: nn.Module, layer_input: Tensor, rows: Tensor, slope: Tensor | None, back: bool
) -> Tensor:
    """Multiply rows by the derivative of one layer: its weights, its slope, or else by autograd."""
    if is_linear(layer):
        return product(rows, layer.weight.T if back else layer.weight)
    if slope is not None:
        return rows * slope[:, None]
    if type(layer) in _SYMMETRIC and not _is_hooked(layer):
        return _SYMMETRIC[type(layer)](layer, layer_input, rows)
    if back:
        return _by_autograd(layer, layer_input, rows)
    # Reached only by a direct call of `pushforward`: `jacobian` pulls rows back if a layer has no
    # registered derivative.
    raise NotImplementedError(f"no forward derivative is known for {type(layer).__name__}")


def _slope(layer: nn.Module, layer_input: Tensor) -> Tensor | None:
    """Derivative of an element-wise layer; None for all other layers."""
    slope = _SLOPES.get(type(layer))
    return None if slope is None or _is_hooked(layer) else slope(layer, layer_input)


def is_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is exactly `torch.nn.Linear` or `Dense`, without hooks."""
    return type(layer) in (nn.Linear, Dense) and not _is_hooked(layer)


def _is_known(layer: nn.Module) -> bool:
    known = type(layer) in _SLOPES or type(layer) in _SYMMETRIC
    return is_linear(layer) or (known and not _is_hooked(layer))


def _is_hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks, so that only autograd knows its derivative."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def _by_autograd(layer: nn.Module, layer_input: Tensor, rows: Tensor) -> Tensor:
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = layer_input if layer_input.requires_grad else layer_input.detach().requires_grad_()
        output = layer(leaf)
        pulled = [
            torch.autograd.grad(output, leaf, row, retain_graph=True, create_graph=differentiable)[
                0
            ]
            for row in rows.unbind(dim=1)
        ]
    return torch.stack(pulled, dim=1)


class _GeluSlope(torch.autograd.Function):
    """Derivative of GELU, ``Phi(a) + a phi(a)``, with its own derivative ``(2 - a^2) phi(a)``."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor) -> Tensor:
        density = (a.square() * -0.5).exp_().mul_(DENSITY)
        ctx.save_for_backward(a, density)
        return torch.special.ndtr(a).addcmul_(a, density)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> Tensor:
        a, density = ctx.saved_tensors  # type: ignore[attr-defined]
        return (2 - a.square()).mul_(density).mul_(upstream)


def _gelu_slope(layer: nn.Module, a: Tensor) -> Tensor:
    if getattr(layer, "approximate", "none") == "none":
        return _GeluSlope.apply(a)
    cubic = 0.7978845608028654 * (a + 0.044715 * a**3)
    tanh = torch.tanh(cubic)
    inner = 0.7978845608028654 * (1 + 3 * 0.044715 * a.square())
    return 0.5 * (1 + tanh) + 0.5 * a * (1 - tanh.square()) * inner


# Derivatives of element-wise layers: functions of the layer and its input.
_SLOPES: dict[type[nn.Module], Callable[[nn.Module, Tensor], Tensor]] = {
    nn.GELU: _gelu_slope,
    nn.ReLU: lambda layer, a: (a > 0).to(a.dtype),
    nn.Tanh: lambda layer, a: 1 - torch.tanh(a).square(),
    nn.Identity: lambda layer, a: torch.ones_like(a),
}


# Products of rows with derivatives that are symmetric matrices: functions of the layer, its input
# and the rows.
_SYMMETRIC: dict[type[nn.Module], Callable[[nn.Module, Tensor, Tensor], Tensor]] = {}


def register_symmetric(
    kind: type[nn.Module], carry: Callable[[nn.Module, Tensor, Tensor], Tensor]
) -> None:
    """Register a layer whose derivative is a symmetric matrix, the same in both directions.

    Parameters
    ----------
    kind : type of torch.nn.Module
    carry : callable
        ``carry(layer, layer_input, rows)`` multiplies rows, of shape (n_samples, n_rows,
        n_entries), by the derivative at ``layer_input``, of shape (n_samples, n_entries).
    """
    _SYMMETRIC[kind] = carry


def register_slope(kind: type[nn.Module], slope: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Register the derivative of an element-wise layer.

    Parameters
    ----------
    kind : type of torch.nn.Module
    slope : callable
        ``slope(layer, layer_input)`` returns the derivative of every entry, in the shape of
        ``layer_input``.
    """
    _SLOPES[kind] = slope
