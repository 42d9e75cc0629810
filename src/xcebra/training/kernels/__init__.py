"""The expensive sum of the loss, over all pairs of references and negatives.

There are two implementations with the same result type: ``fused`` for float32 on the CPU, and
``tiled`` for any device and any floating-point type.
"""

from __future__ import annotations

from torch import Tensor, float32

from xcebra.common.workers import Workers
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
    workers: Workers | None = None,
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
    workers : Workers, optional
        Threads that share the work on the CPU. By default, as many threads as torch uses.
    """
    points = reference.detach(), negative.detach(), matched.detach()
    if reference.device.type == "cpu" and reference.dtype == float32:
        return fused(*points, euclidean, include_positive, gradient, workers)
    return tiled(*points, euclidean, include_positive, gradient)
