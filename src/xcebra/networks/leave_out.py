"""Latents that are computed without a neuron, so that no neuron is explained by itself.

The neurons are divided into groups. For each group in turn, its neurons are replaced by a linear
prediction from the other neurons, and then the activity is embedded. The embedding then contains
only what the other neurons know. Neither the noise of a neuron at this sample nor its own slow
changes influence it. The weights of the prediction for a quarter of the recording are measured on
the other quarters: on the same quarter, slow neurons or large populations would predict anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from xcebra.data.epochs import Epochs, IntArray, samples_before
from xcebra.data.recording import Activity, Recording
from xcebra.networks.decoder import Decoder, reach
from xcebra.networks.encoder import Encoder, Inputs
from xcebra.networks.left_over import missed_activity

# Number of groups, and the number of neurons up to which each neuron is a group of its own. More
# groups leave out fewer neurons at a time, but each neuron is then trained on fewer samples in
# every step of the crossed decoders. In a small population, every neuron matters. Two and three
# groups were tried and not used; ten were no better than five (docs/real_recordings.md, "What was
# tried").
_MOST_GROUPS, _ONE_BY_ONE = 5, 16
# Ridge penalty, added to the correlations of 1 on the diagonal, so that nearly identical neurons
# predict each other in a stable way. At 0.02, the predictions of neurons without noise shrink so
# much that the sparse basis becomes less accurate; at 0.001 they do not (docs/real_recordings.md).
_RIDGE = 1e-3
# Number of samples that are processed at once. It limits the memory.
_ROWS_AT_ONCE = 16_384
# Number of parts of the recording, each predicted with weights measured on the others, and the
# number of samples below which the recording is not divided. Without this division, unrelated slow
# neurons predict each other (docs/real_recordings.md). More parts use more data for each prediction
# and need more memory; the numbers were not tuned.
_QUARTERS, _LEAST_SAMPLES = 4, 200


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """Groups of neurons that are left out together, and their prediction from the others.

    Parameters
    ----------
    group : ndarray of shape (n_neurons,)
        Number of the group that each neuron belongs to.
    correlations : ndarray of shape (n_quarters, n_neurons, n_neurons)
        Correlations between the neurons, measured without each quarter of the samples in turn.
        They are zero for neurons that never change.
    borders : ndarray of shape (n_quarters - 1,)
        Index of the first sample of each quarter except the first.
    """

    group: IntArray
    correlations: NDArray[np.float64]
    borders: IntArray

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, inputs: Inputs) -> LeaveOut:
        """Measure the correlations in one pass over time, and divide the neurons into groups."""
        times = epochs.indices()
        n_quarters = _QUARTERS if len(times) >= _LEAST_SAMPLES else 1
        quarters = np.array_split(times, n_quarters)
        products = [_products(recording, quarter, inputs) for quarter in quarters]
        whole, n = np.sum(products, axis=0), len(times)
        correlations = np.array(
            [
                (whole - own) / (n - len(quarter)) if n_quarters > 1 else whole / n
                for own, quarter in zip(products, quarters, strict=True)
            ]
        )
        n_neurons = len(inputs.mean)
        n_groups = n_neurons if n_neurons <= _ONE_BY_ONE else _MOST_GROUPS
        borders = np.array([quarter[0] for quarter in quarters[1:]], dtype=np.int64)
        return cls(_apart(whole / n, n_groups), correlations, borders)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    def members(self, g: int) -> IntArray:
        """Indices of the neurons in group ``g``."""
        return np.flatnonzero(self.group == g)

    def quarter(self, times: IntArray) -> IntArray:
        """Number of the quarter that contains each sample, of shape (n_times,)."""
        return np.searchsorted(self.borders, times, side="right")

    def weights(self, g: int, quarter: int = 0) -> NDArray[np.float64]:
        """Matrix that replaces the neurons of group ``g`` by their prediction from the others.

        Returns
        -------
        ndarray of shape (n_neurons, n_neurons)
            The standardised activity ``u`` in this quarter becomes ``u @ weights``.
        """
        inside, outside = self.group == g, self.group != g
        correlation = self.correlations[quarter]
        weights = np.eye(len(self.group))
        weights[:, inside] = 0.0
        if outside.any():
            gram = correlation[np.ix_(outside, outside)] + _RIDGE * np.eye(int(outside.sum()))
            cross = correlation[np.ix_(outside, inside)]
            weights[np.ix_(outside, inside)] = np.linalg.solve(gram, cross)
        return weights


def _products(recording: Recording, times: IntArray, inputs: Inputs) -> NDArray[np.float64]:
    """Sum of the outer products of the standardised activity with itself over some samples."""
    n_neurons = len(inputs.mean)
    products = np.zeros((n_neurons, n_neurons))
    for start in range(0, len(times), _ROWS_AT_ONCE):
        rows = recording.rows(times[start : start + _ROWS_AT_ONCE]).astype(np.float64)
        u = (rows - inputs.mean) * inputs.reciprocal
        products += u.T @ u
    return products


def _apart(correlation: NDArray[np.float64], n_groups: int) -> IntArray:
    """Divide the neurons into groups of equal size with little correlation inside each group.

    If a group is left out, the signals that its neurons share with others are then still present in
    the remaining neurons. The neurons are assigned one after the other, those with the largest
    total squared correlation first. Each joins the group with the smallest squared correlation
    among those that are not full. Nothing is random: fits with different seeds leave out the same
    neurons.
    """
    n = len(correlation)
    shared = np.square(correlation)
    np.fill_diagonal(shared, 0.0)
    group = np.full(n, -1, dtype=np.int64)
    room = np.full(n_groups, n // n_groups) + (np.arange(n_groups) < n % n_groups)
    in_common = np.zeros((n_groups, n))
    for neuron in np.argsort(-shared.sum(axis=0), kind="stable"):
        joined = int(np.where(room > 0, in_common[:, neuron], np.inf).argmin())
        group[neuron] = joined
        room[joined] -= 1
        in_common[joined] += shared[neuron]
    return group


@dataclass(frozen=True, eq=False)
class Reader:
    """Computes latents from the population without each group of neurons in turn.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
    leave_out : LeaveOut
    time_block : slice or None
        Time latents of the embedding.
    patterns : Tensor of shape (n_neurons, n_patterns)
        Patterns of the activity that is left over, used as further latents; see
        `xcebra.networks.left_over`.
    around : bool
        Whether to average the latents of each sample with those of the nearest windows before and
        after that do not contain it. This reduces errors of the encoder that differ from point to
        point.
    """

    encoder: Encoder
    decoder: Decoder
    leave_out: LeaveOut
    time_block: slice | None
    patterns: Tensor
    around: bool

    @property
    def n_latents(self) -> int:
        """Number of time latents and patterns."""
        block = self.time_block or slice(0, 0)
        return block.stop - block.start + self.patterns.shape[1]

    def latents(self, recording: Activity, times: IntArray) -> Float[Tensor, "group sample latent"]:
        """Compute the latents at some times without each group of neurons in turn.

        Parameters
        ----------
        recording : Activity
        times : ndarray of shape (n_samples,)
            Indices of the samples.

        Returns
        -------
        Tensor of shape (n_groups, n_samples, n_latents)
            On the encoder's device.
        """
        if not self.around:
            return self._at(recording, times)
        before, after = recording.epochs.neighbours(times, *reach(self.encoder, recording))
        return sum(self._at(recording, t) for t in (before, after, times)) / 3  # type: ignore[return-value]

    @cached_property
    def _without(self) -> list[list[Tensor]]:
        """Weights that leave out a group, indexed by quarter and group, on the encoder's device."""
        quarters = range(len(self.leave_out.correlations))
        groups = range(self.leave_out.n_groups)
        return [
            [
                torch.from_numpy(self.leave_out.weights(g, q)).to(self.encoder.loadings)
                for g in groups
            ]
            for q in quarters
        ]

    def _at(self, recording: Activity, times: IntArray) -> Tensor:
        """Latents of the samples themselves, of shape (n_groups, n_samples, n_latents)."""
        encoder = self.encoder
        shape = self.leave_out.n_groups, len(times), self.n_latents
        latents = torch.zeros(shape, device=encoder.loadings.device, dtype=encoder.loadings.dtype)
        batch_size = max(1, _ROWS_AT_ONCE // encoder.window)
        quarter = self.leave_out.quarter(times)
        with torch.no_grad():
            for q in np.unique(quarter):
                in_quarter = np.flatnonzero(quarter == q)
                for start in range(0, len(in_quarter), batch_size):
                    rows = in_quarter[start : start + batch_size]
                    x = encoder.standardised(encoder.samples(recording, times[rows]))
                    row_index = torch.from_numpy(rows).to(latents.device)
                    for g, without in enumerate(self._without[q]):
                        latents[g, row_index] = self._read(x, without)
        return latents

    def _read(self, x: Tensor, without: Tensor) -> Tensor:
        """Latents of standardised samples, without a group of neurons.

        Parameters
        ----------
        x : Tensor of shape (n_samples, n_neurons) or (n_samples, window, n_neurons)
        without : Tensor of shape (n_neurons, n_neurons)
            Weights that replace the neurons of the group; see `LeaveOut.weights`.
        """
        encoder, block = self.encoder, self.time_block or slice(0, 0)
        embedding = encoder.network((x @ (without @ encoder.loadings)).flatten(1))
        latents = [embedding[:, block]]
        if self.patterns.shape[1]:
            now = x if encoder.window == 1 else x[:, samples_before(encoder.window)]
            missed = missed_activity(self.decoder, now @ without, embedding)
            latents.append(missed @ self.patterns)
        return torch.cat(latents, dim=1)
