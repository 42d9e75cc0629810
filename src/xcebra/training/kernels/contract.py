"""The result type of both kernels."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Contrast(NamedTuple):
    """Value and gradients of the loss, summed over references, at temperature 1.

    Parameters
    ----------
    partition : Tensor of shape (n_samples,)
        ``log sum_j exp psi(x_i, y_j)``.
    weight : Tensor of shape (n_samples,)
        Derivative of the loss by ``partition``: 1, or ``sigmoid(partition - matched)`` if the sum
        includes the positive. The derivative by ``matched`` is ``-weight``.
    to_reference : Tensor of shape (n_samples, n_latents)
        Gradient of the sum over negatives by the references; empty if no gradient is requested.
    to_negative : Tensor of shape (n_negatives, n_latents)
        Gradient by the negatives; empty if no gradient is requested.
    """

    partition: Float[Tensor, " sample"]
    weight: Float[Tensor, " sample"]
    to_reference: Float[Tensor, "sample latent"]
    to_negative: Float[Tensor, "negative latent"]
