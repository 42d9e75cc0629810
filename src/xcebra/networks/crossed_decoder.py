"""Two decoders, fitted to alternate stretches of time, from labels and latents to neurons.

Each neuron is regressed on the labels themselves, which are known without noise, and on the time
latents. The time latents are computed without this neuron (`leave_out`), and the part of them that
the labels predict is removed. The two decoders are fitted to different data. Therefore the products
of their derivatives, averaged over time, are zero on average for a neuron without signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from xcebra.common.products import product
from xcebra.data.labels import Label
from xcebra.networks.decoder import WIDTH, Decoder
from xcebra.networks.encoder import Encoder, linear
from xcebra.networks.leave_out import LeaveOut, Reader

# Number of stretches of time, assigned to the two decoders alternately. With more stretches, both
# decoders see more of the whole recording; with fewer, less noise is shared across the borders. Not
# tuned.
N_STRETCHES = 20


@dataclass(frozen=True)
class LabelColumns:
    """The name and kind of a label, and its columns among the label columns of the decoder."""

    name: str
    kind: str
    columns: slice


def label_columns(labels: Sequence[Label]) -> tuple[LabelColumns, ...]:
    """List the columns of every label; the labels are concatenated in the given order."""
    columns, start = [], 0
    for label in labels:
        stop = start + label.points.shape[1]
        columns.append(LabelColumns(label.name, label.kind, slice(start, stop)))
        start = stop
    return tuple(columns)


class CrossedDecoder(nn.Module):
    """Two networks that map label columns and time latents to the expected standardised activity.

    Parameters
    ----------
    fixed : mapping of str to Tensor
        Values that are measured before training and registered as buffers:

        - ``around``: whether latents are means over each sample and its neighbours, which is the
          case if the embedding outlasts a sample;
        - ``patterns`` (n_neurons, n_patterns): patterns of the activity that is left over. They are
          used as further latents, which follow the time latents; see `xcebra.networks.left_over`;
        - ``group`` (n_neurons,), ``correlations`` (n_quarters, n_neurons, n_neurons),
          ``borders`` (n_quarters - 1,): see `LeaveOut`;
        - ``label_mean``, ``label_scale`` (n_label_columns,);
        - ``directions`` (n_label_columns, n_waves), ``phases`` (n_waves,): parameters of the smooth
          functions of the labels; see `smooth_functions`;
        - ``told`` (n_groups, 1 + n_label_columns + n_waves, n_time_latents): weights of the smooth
          functions in the part of every latent that is removed because the labels predict it;
        - ``bend``, of the same shape: weights of the nonlinear part of what the labels predict and
          what is not removed; the sparse basis may undo it;
        - ``latent_mean``, ``latent_scale`` (n_time_latents,): mean and standard deviation of the
          latents after the removal;
        - ``embedding_scale`` (n_time_latents,): their standard deviation before the removal;
        - ``reference_embedding`` (n_references, n_latents), ``reference_labels``
          (n_references, n_label_columns): samples of the fit, to look up labels that are not given;
        - ``class_shares`` (n_label_columns,): share of the samples in each class of a discrete
          label, and 1 for the columns of other labels.
    labels : sequence of LabelColumns
    generator : torch.Generator, optional
        Random generator for the initial weights.
    """

    around: Tensor
    patterns: Tensor
    group: Tensor
    correlations: Tensor
    borders: Tensor
    label_mean: Tensor
    label_scale: Tensor
    directions: Tensor
    phases: Tensor
    told: Tensor
    bend: Tensor
    latent_mean: Tensor
    latent_scale: Tensor
    embedding_scale: Tensor
    reference_embedding: Tensor
    reference_labels: Tensor
    class_shares: Tensor

    def __init__(
        self,
        fixed: Mapping[str, Tensor],
        labels: Sequence[LabelColumns],
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, values in fixed.items():
            self.register_buffer(name, values)
        self.labels = tuple(labels)
        n_inputs, n_neurons = len(self.label_mean) + len(self.latent_mean), len(self.group)
        self.members = nn.ModuleList(
            nn.Sequential(
                linear(n_inputs, WIDTH, generator),
                nn.GELU(),
                linear(WIDTH, WIDTH, generator),
                nn.GELU(),
                linear(WIDTH, n_neurons, generator),
            )
            for _ in range(2)
        )

    @property
    def networks(self) -> list[nn.Sequential]:
        """The two networks."""
        return [member for member in self.members if isinstance(member, nn.Sequential)]

    @property
    def n_time_latents(self) -> int:
        """Number of latents of the time block, without the patterns that are left over."""
        return len(self.latent_mean) - self.patterns.shape[1]

    def reader(self, encoder: Encoder, decoder: Decoder, time_block: slice | None) -> Reader:
        """Make the reader of the latents that the two networks were trained with."""
        leave_out = LeaveOut(
            self.group.cpu().numpy(),
            self.correlations.cpu().numpy(),
            self.borders.cpu().numpy(),
        )
        around = bool(self.around)
        return Reader(encoder, decoder, leave_out, time_block, self.patterns, around)

    def inputs(
        self,
        points: Float[Tensor, "sample column"],
        latents: Float[Tensor, "group sample latent"],
    ) -> Float[Tensor, "group sample input"]:
        """Make the inputs of the two networks.

        Parameters
        ----------
        points : Tensor of shape (n_samples, n_label_columns)
            Columns of the labels.
        latents : Tensor of shape (n_groups, n_samples, n_time_latents)
            Latents computed without each group of neurons.

        Returns
        -------
        Tensor of shape (n_groups, n_samples, n_label_columns + n_time_latents)
            Standardised labels, and standardised latents from which `labels_part` is removed.
        """
        scaled = self._standardised(points)
        rest = (latents - self.labels_part(points) - self.latent_mean) / self.latent_scale
        return torch.cat([scaled.expand(len(latents), *scaled.shape), rest], dim=2)

    def labels_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """Compute the part of the latents that is removed because the labels predict it."""
        return self._functions_of(points, self.told)

    def bent_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """Compute the nonlinear function of the labels in latents that are not copies of them."""
        return self._functions_of(points, self.bend)

    def bent_slopes(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent column"]:
        """Derivatives of `bent_part` by the standardised labels, in units of the inputs."""
        sines = torch.sin(self._standardised(points) @ self.directions + self.phases)
        n_columns = len(self.label_mean)
        waves = torch.einsum(
            "sw,cw,gwl->gslc", -sines, self.directions, self.bend[:, 1 + n_columns :]
        )
        linear_part = self.bend[:, 1 : 1 + n_columns].transpose(1, 2)[:, None]
        return (waves + linear_part) / self.latent_scale[:, None]

    def _standardised(self, points: Tensor) -> Tensor:
        return (points - self.label_mean) / self.label_scale

    def _functions_of(self, points: Tensor, weights: Tensor) -> Tensor:
        functions = smooth_functions(self._standardised(points), self.directions, self.phases)
        return torch.einsum("sf,gfl->gsl", functions, weights)

    def label_units(self) -> Tensor:
        """Factors that convert the label columns to the units of the map."""
        units = torch.ones_like(self.label_mean)
        for label in self.labels:
            if label.kind == "continuous":
                units[label.columns] = 1 / self.label_scale[label.columns].square().mean().sqrt()
            elif label.kind == "discrete":
                units[label.columns] = self.class_shares[label.columns].clamp_min(1e-6).rsqrt()
        return units

    def nearest_labels(self, embedding: NDArray[np.float32]) -> Tensor:
        """Look up the labels of the nearest stored samples of the fit.

        Parameters
        ----------
        embedding : ndarray of shape (n_samples, n_latents)

        Returns
        -------
        Tensor of shape (n_samples, n_label_columns)
        """
        z = torch.from_numpy(embedding).to(self.reference_embedding)
        nearest = [
            torch.cdist(part, self.reference_embedding).argmin(dim=1) for part in z.split(2048)
        ]
        return self.reference_labels[torch.cat(nearest)]


def smooth_functions(scaled: Tensor, directions: Tensor, phases: Tensor) -> Tensor:
    """Compute a constant, the columns themselves, and cosines along random directions.

    Parameters
    ----------
    scaled : Tensor of shape (n_samples, n_columns)
        Standardised columns.
    directions : Tensor of shape (n_columns, n_waves)
    phases : Tensor of shape (n_waves,)

    Returns
    -------
    Tensor of shape (n_samples, 1 + n_columns + n_waves)
    """
    waves = torch.cos(scaled @ directions + phases)
    return torch.cat([scaled.new_ones(len(scaled), 1), scaled, waves], dim=1)


def stretches(n: int) -> NDArray[np.int64]:
    """Number of the stretch of time that each of ``n`` consecutive samples belongs to."""
    return np.arange(n) * N_STRETCHES // n


def halves(n: int) -> NDArray[np.int64]:
    """Assign each of ``n`` consecutive samples to one of the two decoders, 0 or 1."""
    return stretches(n) % 2


def expected(
    decoder: CrossedDecoder, rows: Float[Tensor, "group sample input"]
) -> Float[Tensor, "member sample neuron"]:
    """Activity of every neuron that the two decoders expect, from the inputs of its own group.

    Parameters
    ----------
    decoder : CrossedDecoder
    rows : Tensor of shape (n_groups, n_samples, n_inputs)
        See `CrossedDecoder.inputs`.

    Returns
    -------
    Tensor of shape (2, n_samples, n_neurons)
        Standardised activity.
    """
    activity = torch.empty(2, rows.shape[1], len(decoder.group), device=rows.device)
    with torch.no_grad():
        for k, member in enumerate(decoder.networks):
            layers, last = member[:-1], member[-1]
            for g in range(len(rows)):
                own = decoder.group == g
                hidden = layers(rows[g])
                weight, bias = last.weight[own], last.bias[own]  # type: ignore[index]
                activity[k][:, own] = product(hidden, weight, bias)
    return activity
