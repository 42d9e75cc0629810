"""Matrix products by the fastest library for the processor, and linear layers that use them.

For single precision on the CPU, torch uses Intel's MKL, which does not use the wide registers
(AVX-512) of processors by other makers. Torch also contains oneDNN, which does: on an AMD EPYC of
2024 its products take half as long (`benchmarks/products.py`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

# Products of fewer multiplications are so short that the choice of the library does not matter.
_FEWEST_MULTIPLICATIONS = 1 << 16


class Dense(nn.Linear):
    """A linear layer; see `product`."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the weights and add the bias."""
        return product(x, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``x @ weight.T + bias``, as `torch.nn.functional.linear` does.

    Parameters
    ----------
    x : Tensor of shape (..., n_inputs)
    weight : Tensor of shape (n_outputs, n_inputs)
    bias : Tensor of shape (n_outputs,), optional

    Returns
    -------
    Tensor of shape (..., n_outputs)
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not _has_faster_products():
        return F.linear(x, weight, bias)
    is_short = x.numel() * len(weight) < _FEWEST_MULTIPLICATIONS
    if x.ndim < 2 or is_short or _is_transformed():
        return F.linear(x, weight, bias)
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    needs_gradient = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (rows, weight, bias)
    )
    if needs_gradient:
        result = _Product.apply(rows, weight, bias)
    else:
        result = _onednn_product(rows, weight, bias)
    return result if x.ndim == 2 else result.unflatten(0, x.shape[:-1])


class _Product(torch.autograd.Function):
    """The product and its derivatives, which are such products too."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _onednn_product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor):  # type: ignore[no-untyped-def]
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            product(upstream, weight.T) if needs_x else None,
            product(upstream.T, x.T) if needs_weight else None,
            upstream.sum(dim=0) if needs_bias else None,
        )


def _is_transformed() -> bool:
    """Whether torch transforms the operations that run now, which it can do with its own ones only.

    It does so inside `torch.func`, for derivatives in forward mode, for `torch.autocast` and while
    it records a graph with `torch.jit.trace`.
    """
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
        or torch.jit.is_tracing()
    )


def _onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # oneDNN reads the bias as if its numbers were next to each other, whatever its strides are.
    bias = None if bias is None else bias.contiguous()
    x, weight = _dense(x), _dense(weight)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _dense(matrix: Tensor) -> Tensor:
    """Return the matrix, copied if it is a part of a larger one.

    For parts of larger matrices, oneDNN may use a slow reference implementation: a product was seen
    to take a thousand times as long.
    """
    is_dense = matrix.is_contiguous() or matrix.T.is_contiguous()
    return matrix if is_dense else matrix.contiguous()


@functools.cache
def _has_faster_products() -> bool:
    """Whether oneDNN is faster than MKL here: on processors with AVX-512 that Intel did not make.

    The function of oneDNN is the one that code compiled by `torch.compile` calls. It is not part of
    torch's public interface. Where it is missing or gives other results, it is not used.
    """
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if not (binding.get_host_cpu_name().startswith("znver") and features.get("avx512f")):
        return False
    # Whatever torch's default device and default type are.
    numbers = torch.arange(12, dtype=torch.float32, device="cpu")
    x, weight, bias = numbers.reshape(4, 3), numbers[:6].reshape(2, 3), numbers[6:8]
    try:
        result = _onednn_product(x, weight, bias)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(torch.equal(result, F.linear(x, weight, bias)))
