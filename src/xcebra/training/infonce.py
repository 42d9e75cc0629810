"""The generalised InfoNCE loss. Its memory grows with N, not with N squared.

    loss = mean_i [ -psi(x_i, x_i+) + log sum_j exp psi(x_i, y_j) ]

The temperature and the cosine are implemented here by scaling the points. Therefore the kernels
implement only two similarities, and autograd computes the gradient of a learned temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from xcebra.common.errors import InputError
from xcebra.common.workers import Workers
from xcebra.training.kernels import contrast

SIMILARITIES = ("euclidean", "cosine", "dot")


def infonce(
    reference: Float[Tensor, "sample latent"],
    positive: Float[Tensor, "sample latent"],
    negative: Float[Tensor, "negative latent"],
    *,
    similarity: str = "euclidean",
    temperature: float | Float[Tensor, ""] = 1.0,
    include_positive: bool = False,
    workers: Workers | None = None,
) -> Float[Tensor, ""]:
    """Mean InfoNCE loss of references and their positives against shared negatives.

    Parameters
    ----------
    reference, positive : Tensor of shape (n_samples, n_latents)
    negative : Tensor of shape (n_negatives, n_latents)
        Shared by all references. Their number may differ from the number of references.
    similarity : {"euclidean", "cosine", "dot"}
        ``-|x - y|^2``, the cosine, or the plain dot product, each divided by the temperature.
    temperature : float or scalar Tensor
        If it is a Tensor that requires a gradient, the gradient is computed.
    include_positive : bool
        Whether the sum also includes the positive, so that the loss is never below zero.
    workers : Workers, optional
        Threads that share the work. By default, as many threads as torch uses.
    """
    reference, positive, negative = _scaled(
        (reference, positive, negative), similarity, temperature
    )
    euclidean = similarity == "euclidean"
    matched = _matched(reference, positive, euclidean)
    return _Contrast.apply(reference, negative, matched, euclidean, include_positive, workers)


def pair_losses(
    reference: Float[Tensor, "sample latent"],
    negative: Float[Tensor, "negative latent"],
    *,
    similarity: str = "euclidean",
    temperature: float = 1.0,
    include_positive: bool = False,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Prepare a function that returns the loss of single pairs.

    The sum over negatives is computed once. Losses for many choices of the positives, as in a
    permutation test, are then very cheap. There is no gradient.

    Parameters
    ----------
    reference : Tensor of shape (n_samples, n_latents)
    negative : Tensor of shape (n_negatives, n_latents)
    similarity, temperature, include_positive
        See `infonce`.

    Returns
    -------
    callable
        ``losses(rows, positive)`` returns the losses, of shape (n_rows,), of the pairs of
        ``reference[rows]`` and ``positive``, of shape (n_rows, n_latents).
    """
    euclidean = similarity == "euclidean"
    with torch.no_grad():
        points, others = _scaled((reference, negative), similarity, temperature)
        dummy = points.new_zeros(len(points))
        partition = contrast(points, others, dummy, euclidean, False, gradient=False).partition

    def losses(rows: Tensor, positive: Tensor) -> Tensor:
        with torch.no_grad():
            matched_to = points[rows]
            other = _scaled((positive, positive), similarity, temperature)[1]
            gap = partition[rows] - _matched(matched_to, other, euclidean)
            return F.softplus(gap) if include_positive else gap

    return losses


def chance_level(n_negatives: int, include_positive: bool = False) -> float:
    """Loss of a constant embedding: log N, or log(N + 1) if the sum includes the positive."""
    return math.log(n_negatives + include_positive)


def _scaled(
    points: tuple[Tensor, ...], similarity: str, temperature: float | Tensor
) -> tuple[Tensor, ...]:
    """Scale points so that the similarity has temperature 1; the references must come first."""
    if similarity not in SIMILARITIES:
        raise InputError(f"similarity must be one of {list(SIMILARITIES)}, got {similarity!r}")
    if similarity == "euclidean":
        return tuple(p * temperature**-0.5 for p in points)
    if similarity == "cosine":
        points = tuple(F.normalize(p, dim=1) for p in points)
    return (points[0] / temperature, *points[1:])


def _matched(reference: Tensor, positive: Tensor, euclidean: bool) -> Tensor:
    """Similarity of each reference with its positive, of shape (n_samples,)."""
    if euclidean:
        return -(reference - positive).square().sum(dim=1)
    return (reference * positive).sum(dim=1)


class _Contrast(torch.autograd.Function):
    """Mean loss. Its gradient is computed in the same pass as its value."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        reference: Tensor,
        negative: Tensor,
        matched: Tensor,
        euclidean: bool,
        include_positive: bool,
        workers: Workers | None,
    ) -> Tensor:
        gradient = any(ctx.needs_input_grad[:3])  # type: ignore[attr-defined]
        result = contrast(
            reference,
            negative,
            matched,
            euclidean,
            include_positive,
            gradient=gradient,
            workers=workers,
        )
        if gradient:
            ctx.save_for_backward(result.to_reference, result.to_negative, result.weight)
        gap = result.partition - matched
        return (F.softplus(gap) if include_positive else gap).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_reference, to_negative, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        scale = upstream / len(to_reference)
        return to_reference * scale, to_negative * scale, weight * -scale, None, None, None
