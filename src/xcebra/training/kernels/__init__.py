"""The one expensive sum of the loss: every reference against every negative.

Two forms of one contract: ``fused`` for float32 on the CPU, ``tiled`` for any device and type.
"""

from __future__ import annotations

from torch import Tensor, float32

from xcebra.training.kernels.contract import Contrast
from xcebra.training.kernels.fused import fused
from xcebra.training.kernels.tiled import tiled

__all__ = ["Contrast", "contrast", "fused", "tiled"]


def contrast(
    reference: Tensor,
    negative: Tensor,
    matched: Tensor,
    euclidean: bool,
    include_positive: bool,
    *,
    gradient: bool,
) -> Contrast:
    """Choose the form by where the data lives; see `Contrast` for what comes back."""
    on_cpu = reference.device.type == "cpu" and reference.dtype == float32
    form = fused if on_cpu else tiled
    return form(
        reference.detach(),
        negative.detach(),
        matched.detach(),
        euclidean,
        include_positive,
        gradient,
    )
