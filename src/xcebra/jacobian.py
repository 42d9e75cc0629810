"""Exact batched Jacobians, their penalty, and an inverse that is safe when rank is lost.

A network is linearised once: one forward pass that remembers each layer's input. Rows of the
Jacobian (all of them, or random combinations) are then pulled back through the layers for every
sample at once, and stay differentiable, which is what the penalty needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

RELATIVE_CUTOFF = 1e-4


@dataclass(frozen=True, eq=False)
class Linearised:
    """A network at given inputs: its output, and the way back through every layer."""

    output: Float[Tensor, "sample latent"]
    layers: tuple[nn.Module, ...]
    inputs: tuple[Tensor, ...]

    def pullback(
        self, rows: Float[Tensor, "sample row latent"]
    ) -> Float[Tensor, "sample row neuron"]:
        """Multiply rows by the Jacobian of their sample: ``rows @ J``."""
        for layer, entered in zip(reversed(self.layers), reversed(self.inputs), strict=True):
            rows = _through(layer, entered, rows)
        return rows


def linearise(network: nn.Module, x: Float[Tensor, "sample neuron"]) -> Linearised:
    """Run a network forward, keeping what `Linearised.pullback` needs."""
    layers = tuple(network) if isinstance(network, nn.Sequential) else (network,)
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer(x)
    return Linearised(x, layers, tuple(inputs))


def jacobian(
    network: nn.Module, x: Float[Tensor, "sample neuron"]
) -> Float[Tensor, "sample latent neuron"]:
    """Jacobian of every output by every input, at every sample, in one pass."""
    at = linearise(network, x)
    d = at.output.shape[1]
    return at.pullback(torch.eye(d, dtype=x.dtype, device=x.device).expand(len(x), d, d))


def penalty(
    at: Linearised, projections: int | None = None, generator: torch.Generator | None = None
) -> Float[Tensor, ""]:
    """Squared Frobenius norm of the Jacobian, mean over samples.

    Parameters
    ----------
    at : Linearised
    projections : int, optional
        Random unit directions per sample (an unbiased estimate); exact if not given.
    generator : torch.Generator, optional
        Source of the directions, on the CPU.
    """
    n, d = at.output.shape
    if projections is None:
        rows = torch.eye(d).to(at.output).expand(n, d, d)
        return at.pullback(rows).square().sum(dim=(1, 2)).mean()
    rows = torch.randn(n, projections, d, generator=generator).to(at.output)
    rows = rows / rows.norm(dim=2, keepdim=True)
    return at.pullback(rows).square().sum(dim=(1, 2)).mean() * (d / projections)


@dataclass(frozen=True, eq=False)
class Inverse:
    """Pseudo-inverses with what is needed to judge them.

    ``values`` is (sample, neuron, latent); ``condition`` the ratio of the largest singular value to
    the smallest one kept; ``rank`` how many were kept.
    """

    values: Float[Tensor, "sample neuron latent"]
    condition: Float[Tensor, " sample"]
    rank: Tensor


def invert(
    jacobians: Float[Tensor, "sample latent neuron"], cutoff: float = RELATIVE_CUTOFF
) -> Inverse:
    """Moore-Penrose inverse of each Jacobian, ignoring singular values below a relative cut-off.

    The small Gram matrices ``J J^T`` are decomposed in float64 on the CPU, so that squaring loses
    nothing and any device will do.
    """
    gram = torch.einsum("sln,smn->slm", *(jacobians.cpu().double(),) * 2)
    eigenvalues, vectors = torch.linalg.eigh(gram)
    largest = eigenvalues[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    kept = eigenvalues > cutoff**2 * largest
    reciprocal = torch.where(kept, 1 / eigenvalues.clamp_min(1e-300), 0.0)
    inverse_gram = (vectors * reciprocal[:, None, :]) @ vectors.mT
    smallest = torch.where(kept, eigenvalues, torch.inf).amin(dim=1)
    values = jacobians.mT @ inverse_gram.to(jacobians)
    condition = (largest[:, 0] / smallest).sqrt()
    return Inverse(values, condition, kept.sum(dim=1))


def _through(layer: nn.Module, entered: Tensor, rows: Tensor) -> Tensor:
    """Pull rows back through one layer: by its weights, its slope, or else by autograd."""
    if isinstance(layer, nn.Linear):
        return rows @ layer.weight
    slope = _SLOPES.get(type(layer))
    if slope is not None:
        return rows * slope(layer, entered)[:, None, :]
    return _by_autograd(layer, entered, rows)


def _by_autograd(layer: nn.Module, entered: Tensor, rows: Tensor) -> Tensor:
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = entered if entered.requires_grad else entered.detach().requires_grad_()
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
        density = (a.square() * -0.5).exp_().mul_(0.3989422804014327)
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
    bend = torch.tanh(cubic)
    inner = 0.7978845608028654 * (1 + 3 * 0.044715 * a.square())
    return 0.5 * (1 + bend) + 0.5 * a * (1 - bend.square()) * inner


_SLOPES: dict[type[nn.Module], Callable[[nn.Module, Tensor], Tensor]] = {
    nn.GELU: _gelu_slope,
    nn.ReLU: lambda layer, a: (a > 0).to(a.dtype),
    nn.Tanh: lambda layer, a: 1 - torch.tanh(a).square(),
    nn.Identity: lambda layer, a: torch.ones_like(a),
}


def register_slope(kind: type[nn.Module], slope: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Teach the chain rule the derivative of an element-wise layer."""
    _SLOPES[kind] = slope
