"""Derivatives of the crossed decoders by labels and time latents, in the units of the map."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from xcebra.attribution.crossed_source import Source
from xcebra.common.workers import Workers
from xcebra.data.epochs import IntArray
from xcebra.data.recording import rows_at_once
from xcebra.networks.crossed_decoder import CrossedDecoder, LabelColumns, expected
from xcebra.networks.jacobian import jacobian

# Largest number of samples whose derivatives are computed at once, and the number of values that a
# neuron needs at each sample, about. They change speed and memory, not the result.
_ROWS_AT_ONCE, _VALUES_A_NEURON = 256, 32


def derivatives(
    source: Source, times: IntArray
) -> Iterator[tuple[IntArray, Float[Tensor, "member sample neuron column"]]]:
    """Yield the derivatives of each neuron's expected activity by both decoders, in batches.

    The columns are those of the labels, followed by the time latents:

    - for a continuous label, derivatives per standard deviation of the label, which is the same
      for all columns of the label;
    - for a circular label, derivatives along the circle, as their parts along cosine and sine;
    - for a discrete label, differences from the mean over classes, times the square root of the
      share of samples in the class;
    - for a time latent, derivatives per unit of the embedding.

    Neurons are in units of their standard deviation.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)
        Samples of the recording.

    Yields
    ------
    positions : ndarray of int of shape (n_samples,)
        Positions of the samples of this batch in ``times``.
    maps : Tensor of shape (2, n_samples, n_neurons, n_columns)
        Derivatives of the two decoders.
    """
    step = rows_at_once(len(source.decoder.group) * _VALUES_A_NEURON, _ROWS_AT_ONCE)
    starts = range(0, len(times), step)
    batches = [np.arange(start, min(start + step, len(times))) for start in starts]
    with Workers(len(batches), source.encoder.loadings.device) as workers:
        for first in range(0, len(batches), workers.n):
            together = batches[first : first + workers.n]
            maps = workers.map(lambda positions: _derivatives(source, times[positions]), together)
            yield from zip(together, maps, strict=True)


def _derivatives(source: Source, times: IntArray) -> Float[Tensor, "member sample neuron column"]:
    """Derivatives at some samples; see `derivatives`."""
    decoder = source.decoder
    points, rows = source.inputs(times)
    maps = torch.zeros(2, len(times), len(decoder.group), rows.shape[2], device=rows.device)
    with torch.no_grad():
        for k, member in enumerate(decoder.networks):
            *earlier, last = member
            for g in range(len(rows)):
                own = decoder.group == g
                maps[k][:, own] = jacobian((*earlier, _select_outputs(last, own)), rows[g])
        for label in decoder.labels:
            _by_label(source.decoder, label, points, rows, maps)
        maps[..., len(decoder.label_mean) :] /= decoder.embedding_scale
    return maps


def bent_slopes(source: Source, times: IntArray) -> Float[Tensor, "sample neuron latent column"]:
    """Derivatives by the labels of the bent part of the latents that explain each neuron.

    The bent part of a latent is the part that is a non-linear function of the labels. The units
    are those of `derivatives`: the slope times the neuron's derivative by the latent is the change
    of its derivative by the label when the bent part is removed from the latent. The slopes are
    zero for discrete labels.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_samples,)

    Returns
    -------
    Tensor of shape (n_samples, n_neurons, n_time_latents, n_label_columns)
    """
    decoder = source.decoder
    points = source.points(times)
    with torch.no_grad():
        slopes = decoder.bent_slopes(points) * decoder.embedding_scale[:, None]
        for label in decoder.labels:
            if label.kind == "discrete":
                slopes[..., label.columns] = 0.0
            else:
                _in_label_units(decoder, label, points, slopes.transpose(1, 2))
        return slopes[decoder.group].permute(1, 0, 2, 3)


def _select_outputs(layer: torch.nn.Module, chosen: Tensor) -> torch.nn.Linear:
    """A linear layer with only those outputs that belong to the chosen neurons."""
    whole: torch.nn.Linear = layer  # type: ignore[assignment]
    part = torch.nn.utils.skip_init(torch.nn.Linear, whole.in_features, int(chosen.sum()))
    part = part.to(whole.weight.device)
    with torch.no_grad():
        part.weight.copy_(whole.weight[chosen])
        part.bias.copy_(whole.bias[chosen])
    return part


def _by_label(
    decoder: CrossedDecoder, label: LabelColumns, points: Tensor, rows: Tensor, maps: Tensor
) -> None:
    """Convert derivatives by standardised columns to those of the label's kind, in place."""
    columns = label.columns
    if label.kind != "discrete":
        _in_label_units(decoder, label, points, maps.transpose(1, 2))
        return
    scale, shares = decoder.label_scale[columns], decoder.class_shares[columns]
    classes = torch.eye(columns.stop - columns.start, device=points.device)
    predictions = []
    for indicator in classes:
        moved = rows.clone()
        moved[:, :, columns] = (indicator - decoder.label_mean[columns]) / scale
        predictions.append(expected(decoder, moved))
    levels = torch.stack(predictions, dim=3)
    contrasts = levels - (levels * shares).sum(dim=3, keepdim=True)
    maps[..., columns] = contrasts * shares.sqrt()


def _in_label_units(
    decoder: CrossedDecoder, label: LabelColumns, points: Tensor, values: Tensor
) -> None:
    """Convert slopes by standardised columns to the unit of the label, in place.

    ``values`` has shape (..., n_samples, n_columns).
    """
    columns = label.columns
    scale = decoder.label_scale[columns]
    if label.kind == "continuous":
        # All columns of a label have the same unit, so that they keep their proportions.
        values[..., columns] *= scale.square().mean().sqrt() / scale
        return
    tangent = torch.stack([-points[:, columns.start + 1], points[:, columns.start]], dim=1)
    by_angle = (values[..., columns] * (tangent / scale)).sum(dim=-1)
    values[..., columns] = by_angle[..., None] * tangent
