"""The kernel in plain torch, for any device and any floating-point type."""

from __future__ import annotations

import torch
from torch import Tensor

from xcebra.training.kernels.contract import Contrast

# Number of similarities that are computed at once. Larger values need more memory; not tuned.
_TILE_ENTRIES = 2**20


def tiled(
    reference: Tensor,
    negative: Tensor,
    matched: Tensor,
    euclidean: bool,
    include_positive: bool,
    gradient: bool,
) -> Contrast:
    """Compute the sum for some references at a time; see `contrast` for the parameters."""
    if euclidean:  # this does not change distances and is more precise
        centre = negative.mean(dim=0)
        reference, negative = reference - centre, negative - centre
    rows = max(1, _TILE_ENTRIES // len(negative))
    partition = torch.empty_like(matched)
    weight = torch.ones_like(matched)
    to_reference = torch.zeros_like(reference) if gradient else reference.new_empty(0, 0)
    to_negative = torch.zeros_like(negative) if gradient else negative.new_empty(0, 0)
    for start in range(0, len(reference), rows):
        tile = slice(start, start + rows)
        x = reference[tile]
        similarity = -_squared_distances(x, negative) if euclidean else x @ negative.T
        partition[tile] = torch.logsumexp(similarity, dim=1)
        if include_positive:
            weight[tile] = torch.sigmoid(partition[tile] - matched[tile])
        if gradient:
            share = torch.softmax(similarity, dim=1).mul_(weight[tile, None])
            if euclidean:
                to_reference[tile] = 2 * (share @ negative - x * weight[tile, None])
                to_negative += 2 * (share.T @ x - negative * share.sum(dim=0)[:, None])
            else:
                to_reference[tile] = share @ negative
                to_negative += share.T @ x
    return Contrast(partition, weight, to_reference, to_negative)


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Sums of squared differences, which are more precise than |x|^2 + |y|^2 - 2xy."""
    total = x.new_zeros(len(x), len(y))
    for xk, yk in zip(x.T, y.T, strict=True):
        total += (xk[:, None] - yk[None, :]).square_()
    return total
