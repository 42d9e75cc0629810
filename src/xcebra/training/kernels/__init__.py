"""The expensive sum of the loss, over all pairs of references and negatives.

There are two implementations with the same result type: ``fused`` for float32 on the CPU, and
``tiled`` for any device and any floating-point type.
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
    """Compute the sum with the implementation for the device and type of the data.

    Parameters
    ----------
    reference : Tensor of shape (n_samples, n_latents)
    negative : Tensor of shape (n_negatives, n_latents)
    matched : Tensor of shape (n_samples,)
        Similarity of each reference with its positive.
    euclidean : bool
        Whether the similarity is the negative squared distance. If False, it is the dot product.
    include_positive : bool
        Whether the sum also includes the positive.
    gradient : bool
        Whether to compute the gradients.
    """
    on_cpu = reference.device.type == "cpu" and reference.dtype == float32
    kernel = fused if on_cpu else tiled
    return kernel(
        reference.detach(),
        negative.detach(),
        matched.detach(),
        euclidean,
        include_positive,
        gradient,
    )
