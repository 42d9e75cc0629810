"""The part of each latent that the labels predict, and how much of it is removed.

A latent may be a copy of a label, a function of it, or a factor of its own that is only correlated
with it. The share that the labels predict on held-out time decides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from xcebra.networks.crossed_decoder import stretches

# The part of a latent that the labels predict is a ridge regression with this penalty per sample. A
# smaller penalty follows finer functions, but also more noise; not tuned.
_RIDGE = 1e-3
# Number of folds that hold out stretches for this regression. More folds train on more of the data
# and take longer; not tuned.
_FOLDS = 4
# Shares of a latent's variance that the labels predict on held-out time.
# - Up to _LEAST_TOLD, the share counts as zero.
# - Up to _OWN_FACTOR, after one standard error is subtracted, the latent is a factor of its own and
#   nothing is removed from it. The sparse basis undoes its mixture with the label.
# - From _COPY_OF_LABEL on, the latent is a copy of the label, and the label's part is removed.
# Between the last two, a part is removed in proportion. Larger values remove less. The rule was
# chosen on real recordings and on simulations with dataset seeds 100 to 104, so that results on
# these are not independent evidence (docs/real_recordings.md, "What was tried").
_LEAST_TOLD, _OWN_FACTOR, _COPY_OF_LABEL = 0.01, 0.2, 0.3


def fit_labels_part(functions: Tensor, latents: Tensor, n_columns: int) -> tuple[Tensor, Tensor]:
    """Fit the weights of the smooth functions of the labels in each latent.

    The share of a latent that the labels predict is measured on held-out stretches, because slow
    latents and slow labels that are unrelated look related within a single stretch of time. From
    latents that are copies of the labels, the whole prediction is removed. For other latents, its
    nonlinear part is returned separately: it is not known here whether such a latent contains a
    function of the label or is only correlated with it.

    Parameters
    ----------
    functions : Tensor of shape (n_samples, n_functions)
        See `xcebra.networks.crossed_decoder.smooth_functions`.
    latents : Tensor of shape (n_groups, n_samples, n_latents)
    n_columns : int
        Number of label columns.

    Returns
    -------
    removed, bend : Tensor of shape (n_groups, n_functions, n_latents)
        Weights of the part to remove, and of the nonlinear part that is not removed.
    """
    # On the CPU: some devices have no double precision or cannot solve for dependent regressors.
    design = functions.cpu().double()
    n_groups, n, n_latents = latents.shape
    y = latents.cpu().double().permute(1, 0, 2).reshape(n, n_groups * n_latents)
    if design.shape[1] <= 1 or n_latents == 0:
        zeros = latents.new_zeros(n_groups, design.shape[1], n_latents)
        return zeros, zeros.clone()
    stretch = torch.from_numpy(stretches(n))
    fold = stretch % _FOLDS
    gram, cross = design.T @ design, design.T @ y
    ridge = torch.ones(design.shape[1], dtype=torch.float64)
    ridge[0] = 1e-9  # the constant is not penalised
    predicted = torch.empty_like(y)
    for k in range(_FOLDS):
        out = fold == k
        rows, targets = design[out], y[out]
        inner = gram - rows.T @ rows + torch.diag(_RIDGE * (n - len(rows)) * ridge)
        predicted[out] = rows @ torch.linalg.solve(inner, cross - rows.T @ targets)
    centred = y - y.mean(dim=0)
    centred_prediction = predicted - predicted.mean(dim=0)
    shares, errors = _share_explained(
        (centred - centred_prediction).square(), centred.square(), stretch
    )
    # The median over groups is used for each latent, so that the same mixture with the label
    # remains in all groups.
    share, lower_bound = (
        values.reshape(n_groups, n_latents).quantile(0.5, dim=0).repeat(n_groups)
        for values in (shares, shares - errors)
    )
    copied = ((lower_bound - _OWN_FACTOR) / (_COPY_OF_LABEL - _OWN_FACTOR)).clamp(0.0, 1.0)
    weights = torch.linalg.solve(gram + torch.diag(_RIDGE * n * ridge), cross)
    weights[0] = 0.0  # the mean of a latent is not removed
    columns = design[:, : 1 + n_columns]
    bend = weights.clone()
    bend[: 1 + n_columns] -= torch.linalg.lstsq(columns, design @ weights).solution
    bend *= torch.where(share > _LEAST_TOLD, 1 - copied, 0.0)
    by_group = (
        values.reshape(-1, n_groups, n_latents).permute(1, 0, 2).contiguous().to(latents)
        for values in (weights * copied, bend)
    )
    return next(by_group), next(by_group)


def _share_explained(residual: Tensor, total: Tensor, stretch: Tensor) -> tuple[Tensor, Tensor]:
    """Share of the variance that is explained, and its standard error over stretches of time.

    The standard error is that of the jackknife. In a short recording of slow factors there are few
    independent stretches, and a share of a quarter can be due to chance alone.

    Parameters
    ----------
    residual, total : Tensor of shape (n_samples, n_columns)
        Squared residuals, and squared deviations from the mean.
    stretch : Tensor of shape (n_samples,)
        Number of the stretch that each sample belongs to.

    Returns
    -------
    share, error : Tensor of shape (n_columns,)
    """
    n_stretches = int(stretch.max()) + 1
    sums = [
        torch.zeros(n_stretches, squares.shape[1], dtype=squares.dtype).index_add_(
            0, stretch, squares
        )
        for squares in (residual, total)
    ]
    totals = [by_stretch.sum(dim=0) for by_stretch in sums]
    share = 1 - totals[0] / totals[1].clamp_min(1e-300)
    without = 1 - (totals[0] - sums[0]) / (totals[1] - sums[1]).clamp_min(1e-300)
    variance = (without - without.mean(dim=0)).square().mean(dim=0)
    return share, ((n_stretches - 1) * variance).sqrt()
