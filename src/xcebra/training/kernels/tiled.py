"""The kernel in plain torch: any device, any floating type, a few megabytes at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from xcebra.training.kernels.contract import Contrast

_TILE_ENTRIES = 2**20


def tiled(
    reference: Tensor,
    negative: Tensor,
    matched: Tensor,
    euclidean: bool,
    include_positive: bool,
    gradient: bool,
) -> Contrast:
    """Go through the references a tile at a time; see `Contrast`."""
    if euclidean:  # distances do not change, and digits are kept
        centre = negative.mean(dim=0)
        reference, negative = reference - centre, negative - centre
    rows = max(1, _TILE_ENTRIES // len(negative))
    partition = torch.empty_like(matched)
    weight = torch.ones_like(matched)
    to_reference = torch.zeros_like(reference) if gradient else reference.new_empty(0, 0)
    to_negative = torch.zeros_like(negative) if gradient else negative.new_empty(0, 0)
    for start in range(0, len(reference), rows):
        at = slice(start, start + rows)
        x = reference[at]
        similarity = -_squared_distances(x, negative) if euclidean else x @ negative.T
        partition[at] = torch.logsumexp(similarity, dim=1)
        if include_positive:
            weight[at] = torch.sigmoid(partition[at] - matched[at])
        if gradient:
            share = torch.softmax(similarity, dim=1).mul_(weight[at, None])
            if euclidean:
                to_reference[at] = 2 * (share @ negative - x * weight[at, None])
                to_negative += 2 * (share.T @ x - negative * share.sum(dim=0)[:, None])
            else:
                to_reference[at] = share @ negative
                to_negative += share.T @ x
    return Contrast(partition, weight, to_reference, to_negative)


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Sum of squared differences; the expansion |x|^2 + |y|^2 - 2xy loses digits far from zero."""
    total = x.new_zeros(len(x), len(y))
    for xk, yk in zip(x.T, y.T, strict=True):
        total += (xk[:, None] - yk[None, :]).square_()
    return total
