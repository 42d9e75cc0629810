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
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import cho_factor, lapack
from torch import Tensor, nn

from xcebra.common.products import product
from xcebra.data.epochs import Epochs, IntArray, samples_before
from xcebra.data.recording import Activity, Recording, rows_at_once
from xcebra.networks.decoder import Decoder, reach
from xcebra.networks.encoder import Encoder, Inputs

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
# Largest number of samples that are processed at once. It limits the memory.
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
        They are zero for neurons that never change. In single precision, they need half the memory.
    borders : ndarray of shape (n_quarters - 1,)
        Index of the first sample of each quarter except the first.
    """

    group: IntArray
    correlations: NDArray[np.floating]
    borders: IntArray

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, inputs: Inputs) -> LeaveOut:
        """Measure the correlations in one pass over time, and divide the neurons into groups."""
        times = epochs.indices()
        n_quarters = _QUARTERS if len(times) >= _LEAST_SAMPLES else 1
        quarters = np.array_split(times, n_quarters)
        n, n_neurons = len(times), len(inputs.mean)
        # Products of each quarter, which are replaced by the correlations of the other quarters.
        correlations = np.zeros((n_quarters, n_neurons, n_neurons))
        for own, quarter in zip(correlations, quarters, strict=True):
            _add_products(own, recording, quarter, inputs)
        whole = correlations.sum(axis=0)
        for own, quarter in zip(correlations, quarters, strict=True):
            if n_quarters > 1:
                np.subtract(whole, own, out=own)
                own /= n - len(quarter)
            else:
                own /= n
        n_groups = n_neurons if n_neurons <= _ONE_BY_ONE else _MOST_GROUPS
        borders = np.array([quarter[0] for quarter in quarters[1:]], dtype=np.int64)
        whole /= n
        return cls(_apart(whole, n_groups), correlations, borders)

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
        return self.projected(np.eye(len(self.group)), quarter)[g]

    def projected(
        self, projection: NDArray[np.float64], quarter: int = 0
    ) -> list[NDArray[np.float64]]:
        """Projections of the activity in which each group in turn is predicted by the others.

        This is ``weights(g, quarter) @ projection`` for every group ``g``. With few columns, it
        needs much less memory than the weights do. The weights of a ridge regression of some
        neurons on all others are a part of the inverse of the whole matrix of correlations.
        Therefore one inverse is enough for all groups.

        Parameters
        ----------
        projection : ndarray of shape (n_neurons, n_columns)
        quarter : int

        Returns
        -------
        list of ndarray of shape (n_neurons, n_columns)
            One for each group. The rows of its own neurons are zero.
        """
        inverse = _inverse(self.correlations[quarter], _RIDGE)
        projections = []
        for g in range(self.n_groups):
            own = self.members(g)
            # The weights from the others to the group are -inverse[others, own] @
            # inv(inverse[own, own]).
            predicted = np.linalg.solve(inverse[np.ix_(own, own)], projection[own])
            without = projection - inverse[:, own] @ predicted
            without[own] = 0.0
            projections.append(without)
        return projections


def _inverse(correlation: NDArray[np.floating], ridge: float) -> NDArray[np.float64]:
    """Inverse of a symmetric matrix plus a ridge penalty, in double precision."""
    # Column by column, as LAPACK stores matrices, so that one array is enough.
    matrix = correlation.astype(np.float64, order="F")
    matrix[np.diag_indices(len(matrix))] += ridge
    factor, _ = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    # Only the lower triangle is computed.
    for column in range(len(inverse)):
        inverse[column, column + 1 :] = inverse[column + 1 :, column]
    return np.asarray(inverse)


def _add_products(
    products: NDArray[np.float64], recording: Recording, times: IntArray, inputs: Inputs
) -> None:
    """Add the outer products of the standardised activity with itself over some samples."""
    step = rows_at_once(len(products), _ROWS_AT_ONCE)
    for start in range(0, len(times), step):
        rows = recording.rows(times[start : start + step]).astype(np.float64)
        u = (rows - inputs.mean) * inputs.reciprocal
        products += u.T @ u


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
    def _projections(self) -> list[list[tuple[Tensor, Tensor]]]:
        """Projections of the standardised activity, indexed by quarter and group.

        Each is a pair of weights: of the first layer of the encoder's network, of shape
        (n_units, window * n_neurons), and of the patterns, of shape (n_patterns, n_neurons). They
        are much smaller than the weights that leave out a group, of shape (n_neurons, n_neurons).
        """
        encoder = self.encoder
        n_neurons, window = len(encoder.mean), encoder.window
        layer: Any = encoder.network[0]
        first = layer.weight.detach().cpu().double().numpy()
        loadings, patterns = (
            values.cpu().double().numpy() for values in (encoder.loadings, self.patterns)
        )
        # The columns are the units for the first lag, for the next lag and so on.
        by_lag = np.concatenate([loadings @ w.T for w in np.split(first, window, axis=1)], axis=1)
        columns = np.concatenate([by_lag, patterns], axis=1)
        projections = []
        for quarter in range(len(self.leave_out.correlations)):
            pairs = []
            for without in self.leave_out.projected(columns, quarter):
                units, own_patterns = np.split(without, [by_lag.shape[1]], axis=1)
                units = units.reshape(n_neurons, window, -1).transpose(2, 1, 0)
                pairs.append(
                    (self._tensor(units.reshape(len(first), -1)), self._tensor(own_patterns.T))
                )
            projections.append(pairs)
        return projections

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        """A contiguous tensor of the encoder's precision, on its device."""
        loadings = self.encoder.loadings
        return torch.tensor(values, dtype=loadings.dtype, device=loadings.device)

    def _at(self, recording: Activity, times: IntArray) -> Tensor:
        """Latents of the samples themselves, of shape (n_groups, n_samples, n_latents)."""
        encoder = self.encoder
        shape = self.leave_out.n_groups, len(times), self.n_latents
        latents = torch.zeros(shape, device=encoder.loadings.device, dtype=encoder.loadings.dtype)
        batch_size = rows_at_once(encoder.window * len(encoder.mean), _ROWS_AT_ONCE, encoder.window)
        quarter = self.leave_out.quarter(times)
        with torch.no_grad():
            for q in np.unique(quarter):
                in_quarter = np.flatnonzero(quarter == q)
                for start in range(0, len(in_quarter), batch_size):
                    rows = in_quarter[start : start + batch_size]
                    x = encoder.standardised(encoder.samples(recording, times[rows]))
                    row_index = torch.from_numpy(rows).to(latents.device)
                    for g, projections in enumerate(self._projections[q]):
                        latents[g, row_index] = self._read(x, *projections)
        return latents

    def _read(self, x: Tensor, units: Tensor, patterns: Tensor) -> Tensor:
        """Latents of standardised samples, without a group of neurons.

        Parameters
        ----------
        x : Tensor of shape (n_samples, n_neurons) or (n_samples, window, n_neurons)
        units : Tensor of shape (n_units, window * n_neurons)
            Weights of the first layer, without the group; see `LeaveOut.projected`.
        patterns : Tensor of shape (n_patterns, n_neurons)
            Patterns that are left over, without the group.
        """
        encoder, block = self.encoder, self.time_block or slice(0, 0)
        layers: list[Any] = list(encoder.network)
        embedding = nn.Sequential(*layers[1:])(product(x.flatten(1), units, layers[0].bias))
        latents = [embedding[:, block]]
        if len(patterns):
            now = x if encoder.window == 1 else x[:, samples_before(encoder.window)]
            # What the decoder misses of the activity, along the patterns.
            expected = self.decoder.network(embedding) @ (self.decoder.loadings.T @ self.patterns)
            latents.append(product(now, patterns) - expected)
        return torch.cat(latents, dim=1)
