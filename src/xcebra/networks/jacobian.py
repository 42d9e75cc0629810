"""Exact batched Jacobians, their penalty, and an inverse that is safe when rank is lost.

A network is linearised once: one forward pass that remembers each layer's input. Rows of the
Jacobian (all of them, or random combinations) are then pulled back through the layers for every
sample at once, and stay differentiable, which is what the penalty needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

RELATIVE_CUTOFF = 1e-4


@dataclass(frozen=True, eq=False)
class Linearised:
    """A network at given inputs: its output, and the way through every layer's derivative."""

    output: Float[Tensor, "sample latent"]
    layers: tuple[nn.Module, ...]
    inputs: tuple[Tensor, ...]

    def pullback(
        self, rows: Float[Tensor, "sample row latent"] | None = None
    ) -> Float[Tensor, "sample row ..."]:
        """Multiply rows by the Jacobian of their sample: ``rows @ J``, or ``J`` without rows."""
        way = zip(reversed(self.layers), reversed(self.inputs), strict=True)
        return _carry(way, self.output, rows, back=True)

    def pushforward(
        self, tangents: Float[Tensor, "sample row neuron"] | None = None
    ) -> Float[Tensor, "sample row latent"]:
        """Multiply tangents by the transposed Jacobian: ``tangents @ J^T``, or ``J^T`` alone."""
        way = zip(self.layers, self.inputs, strict=True)
        return _carry(way, self.inputs[0], tangents, back=False)

    def jacobian(self) -> Float[Tensor, "sample latent ..."]:
        """The whole Jacobian: rows pulled back or, if inputs are fewer, tangents pushed forward."""
        few_inputs = self.inputs[0].ndim == 2 and self.inputs[0].shape[1] < self.output.shape[1]
        if few_inputs and all(_is_known(layer) for layer in self.layers):
            return self.pushforward().mT
        return self.pullback()


def flat_layers(network: nn.Module) -> tuple[nn.Module, ...]:
    """The layers of a network, through any nesting of `torch.nn.Sequential`."""
    if type(network) is not nn.Sequential or _is_hooked(network) or not len(network):
        return (network,)
    return tuple(layer for child in network for layer in flat_layers(child))


def linearise(
    network: nn.Module | tuple[nn.Module, ...], x: Float[Tensor, "sample ..."]
) -> Linearised:
    """Run a network, or its layers, forward, keeping what the way back needs."""
    layers = flat_layers(network) if isinstance(network, nn.Module) else network
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer(x)
    return Linearised(x, layers, tuple(inputs))


def jacobian(
    network: nn.Module | tuple[nn.Module, ...], x: Float[Tensor, "sample ..."]
) -> Float[Tensor, "sample latent ..."]:
    """Jacobian of every output by every input, at every sample, in one pass."""
    return linearise(network, x).jacobian()


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
        return at.pullback().square().sum(dim=(1, 2)).mean()
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

    It goes through the small Gram matrices ``J J^T``, in float64 on the CPU, so that squaring loses
    nothing and any device will do. Those of full rank are inverted as they are, which takes half as
    long as decomposing them.
    """
    rows = jacobians.detach().cpu().double()
    gram = rows @ rows.mT
    eigenvalues = torch.linalg.eigvalsh(gram)
    largest = eigenvalues[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    kept = eigenvalues > cutoff**2 * largest
    smallest = torch.where(kept, eigenvalues, torch.inf).amin(dim=1)
    full = kept.all(dim=1)
    inverse_gram = torch.linalg.inv_ex(gram).inverse
    if not full.all():
        inverse_gram[~full] = _pseudo_inverse(gram[~full], cutoff**2)
    values = (inverse_gram.to(jacobians) @ jacobians).mT
    condition = (largest[:, 0] / smallest).sqrt()
    return Inverse(values, condition, kept.sum(dim=1))


def _pseudo_inverse(gram: Tensor, cutoff: float) -> Tensor:
    """Of symmetric matrices, without the eigenvalues below a relative cut-off."""
    eigenvalues, vectors = torch.linalg.eigh(gram)
    kept = eigenvalues > cutoff * eigenvalues[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    reciprocal = torch.where(kept, 1 / eigenvalues.clamp_min(1e-300), 0.0)
    return (vectors * reciprocal[:, None, :]) @ vectors.mT


def _carry(
    way: Iterable[tuple[nn.Module, Tensor]], start: Tensor, rows: Tensor | None, *, back: bool
) -> Tensor:
    """Take rows through the layers' derivatives, one after the other.

    No rows are the identity: as long as it has met only slopes it is kept as its diagonal.
    """
    diagonal, own = None, False
    for layer, entered in way:
        slope = _slope(layer, entered)
        if rows is None and slope is not None:
            diagonal = slope if diagonal is None else diagonal * slope
        elif rows is None and is_linear(layer):
            weight = layer.weight if back else layer.weight.T
            rows = weight.expand(len(start), -1, -1)
            if diagonal is not None:
                rows, own = diagonal[:, :, None] * rows, True
        elif rows is not None and slope is not None and own and not torch.is_grad_enabled():
            rows = rows.mul_(slope[:, None])
        else:
            rows = _identity(start, diagonal) if rows is None else rows
            rows, own = _through(layer, entered, rows, slope, back), True
    return _identity(start, diagonal) if rows is None else rows


def _identity(like: Tensor, diagonal: Tensor | None) -> Tensor:
    if diagonal is not None:
        return torch.diag_embed(diagonal)
    n, size = like.shape
    return torch.eye(size, dtype=like.dtype, device=like.device).expand(n, size, size)


def _through(
    layer: nn.Module, entered: Tensor, rows: Tensor, slope: Tensor | None, back: bool
) -> Tensor:
    """Rows through one layer: by its weights, its slope, or else by autograd."""
    if is_linear(layer):
        return rows @ (layer.weight if back else layer.weight.T)
    if slope is not None:
        return rows * slope[:, None]
    if type(layer) in _SYMMETRIC and not _is_hooked(layer):
        return _SYMMETRIC[type(layer)](layer, entered, rows)
    if back:
        return _by_autograd(layer, entered, rows)
    # Only by hand: `jacobian` pulls back where a layer has no registered derivative.
    raise NotImplementedError(f"no forward derivative is known for {type(layer).__name__}")


def _slope(layer: nn.Module, entered: Tensor) -> Tensor | None:
    found = _SLOPES.get(type(layer))
    return None if found is None or _is_hooked(layer) else found(layer, entered)


def is_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is an affine map and nothing more."""
    return type(layer) is nn.Linear and not _is_hooked(layer)


def _is_known(layer: nn.Module) -> bool:
    known = type(layer) in _SLOPES or type(layer) in _SYMMETRIC
    return is_linear(layer) or (known and not _is_hooked(layer))


def _is_hooked(layer: nn.Module) -> bool:
    """Whether calling a layer does more than its forward: then only autograd knows."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


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


_SYMMETRIC: dict[type[nn.Module], Callable[[nn.Module, Tensor, Tensor], Tensor]] = {}


def register_symmetric(
    kind: type[nn.Module], carry: Callable[[nn.Module, Tensor, Tensor], Tensor]
) -> None:
    """Teach the chain rule a layer whose derivative is a symmetric matrix: the same both ways."""
    _SYMMETRIC[kind] = carry


def register_slope(kind: type[nn.Module], slope: Callable[[nn.Module, Tensor], Tensor]) -> None:
    """Teach the chain rule the derivative of an element-wise layer."""
    _SLOPES[kind] = slope
