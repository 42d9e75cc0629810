"""What both forms of the kernel return."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Contrast(NamedTuple):
    """Value and gradients of the sum over references of the loss, at temperature 1.

    ``partition`` is ``log sum_j exp psi(x_i, y_j)``. ``weight`` is the loss's derivative by it: 1,
    or ``sigmoid(partition - matched)`` with the positive in the sum; its negative is the derivative
    by ``matched``. The gradients are empty when none was asked for.
    """

    partition: Float[Tensor, " sample"]
    weight: Float[Tensor, " sample"]
    to_reference: Float[Tensor, "sample latent"]
    to_negative: Float[Tensor, "negative latent"]
