"""Latents read without a neuron, so that no neuron is explained by itself.

The neurons are parted into groups. For each group, its neurons are replaced by what the other
neurons predict of them, linearly, before the activity is embedded. What is left of the embedding
is what the rest of the population knows, and neither a neuron's noise at this moment nor its own
rhythm over time has a part in it. The prediction is learned on other quarters of the recording than
it is made for: in the same one, slow neurons or many of them would predict anything.
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

# More groups leave out less at a time, but each neuron is then taught by fewer samples a step. A
# small population, in which every neuron counts, is left out one by one.
_MOST_GROUPS, _ONE_BY_ONE = 5, 16
# Added to correlations of 1, so that neurons that are nearly the same predict each other stably. At
# 0.02 the predictions of noiseless neurons shrink enough to blur the sparse basis.
_RIDGE = 1e-3
_ROWS_AT_ONCE = 16_384
# Parts of the recording, each of which is predicted by weights measured on the others, and how many
# samples are worth parting.
_QUARTERS, _LEAST_SAMPLES = 4, 200


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """Which neurons are left out together, and what the others predict of them.

    Parameters
    ----------
    group : ndarray of shape (n_neurons,)
        Number of the group that each neuron belongs to.
    correlations : ndarray of shape (n_quarters, n_neurons, n_neurons)
        Correlations between the neurons, measured without each quarter of the samples in turn; zero
        for neurons that never change.
    borders : ndarray of shape (n_quarters - 1,)
        First samples of all quarters but the first.
    """

    group: IntArray
    correlations: NDArray[np.float64]
    borders: IntArray

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, inputs: Inputs) -> LeaveOut:
        """Measure the correlations in one pass over time, and part the neurons by them."""
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
        """How many groups there are."""
        return int(self.group.max()) + 1

    def members(self, g: int) -> IntArray:
        """Neurons of a group."""
        return np.flatnonzero(self.group == g)

    def quarter(self, times: IntArray) -> IntArray:
        """The quarter that each sample lies in."""
        return np.searchsorted(self.borders, times, side="right")

    def weights(self, g: int, quarter: int = 0) -> NDArray[np.float64]:
        """Matrix from standardised neurons to themselves, with group ``g`` predicted by the rest.

        Returns
        -------
        ndarray of shape (n_neurons, n_neurons)
            The activity ``u`` in this quarter becomes ``u @ weights``.
        """
        left, kept = self.group == g, self.group != g
        correlation = self.correlations[quarter]
        whole = np.eye(len(self.group))
        whole[:, left] = 0.0
        if kept.any():
            among = correlation[np.ix_(kept, kept)] + _RIDGE * np.eye(int(kept.sum()))
            whole[np.ix_(kept, left)] = np.linalg.solve(among, correlation[np.ix_(kept, left)])
        return whole


def _products(recording: Recording, times: IntArray, inputs: Inputs) -> NDArray[np.float64]:
    """Sum over some samples of the outer product of the standardised activity with itself."""
    n_neurons = len(inputs.mean)
    products = np.zeros((n_neurons, n_neurons))
    for start in range(0, len(times), _ROWS_AT_ONCE):
        rows = recording.rows(times[start : start + _ROWS_AT_ONCE]).astype(np.float64)
        u = (rows - inputs.mean) * inputs.reciprocal
        products += u.T @ u
    return products


def _apart(correlation: NDArray[np.float64], n_groups: int) -> IntArray:
    """Groups of one size in which neurons are as little correlated with each other as possible.

    What a neuron shares with others is then still known to those that are kept. One neuron after
    the other, those with most to share first, joins the group that has room and least in common
    with it. Nothing is drawn at random: fits with different seeds leave out the same neurons.
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
    """What is read of the population without some of its neurons.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
    leave_out : LeaveOut
    time_block : slice or None
        Latents of the embedding to read.
    patterns : Tensor of shape (n_neurons, n_patterns)
        Directions of what the decoder misses, read as further latents; see
        `xcebra.networks.left_over`.
    around : bool
        Read the mean of this sample's latents and of those just before and just after, from other
        samples, which averages out what the encoder gets wrong from point to point.
    """

    encoder: Encoder
    decoder: Decoder
    leave_out: LeaveOut
    time_block: slice | None
    patterns: Tensor
    around: bool

    @property
    def n_latents(self) -> int:
        """Time latents and patterns."""
        block = self.time_block or slice(0, 0)
        return block.stop - block.start + self.patterns.shape[1]

    def latents(self, recording: Activity, times: IntArray) -> Float[Tensor, "group sample latent"]:
        """Latents at some times, without each group of neurons in turn, on the encoder's device."""
        if not self.around:
            return self._at(recording, times)
        before, after = recording.epochs.neighbours(times, *reach(self.encoder, recording))
        return sum(self._at(recording, each) for each in (before, after, times)) / 3  # type: ignore[return-value]

    @cached_property
    def _without(self) -> list[list[Tensor]]:
        """Weights that leave out a group, by quarter and group, on the encoder's device."""
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
        encoder = self.encoder
        shape = self.leave_out.n_groups, len(times), self.n_latents
        found = torch.zeros(shape, device=encoder.loadings.device, dtype=encoder.loadings.dtype)
        at_once = max(1, _ROWS_AT_ONCE // encoder.window)
        quarter = self.leave_out.quarter(times)
        with torch.no_grad():
            for q in np.unique(quarter):
                mine = np.flatnonzero(quarter == q)
                for start in range(0, len(mine), at_once):
                    rows = mine[start : start + at_once]
                    x = encoder.standardised(encoder.samples(recording, times[rows]))
                    where = torch.from_numpy(rows).to(found.device)
                    for g, without in enumerate(self._without[q]):
                        found[g, where] = self._read(x, without)
        return found

    def _read(self, x: Tensor, without: Tensor) -> Tensor:
        """Latents of standardised samples, without a group of neurons."""
        encoder, block = self.encoder, self.time_block or slice(0, 0)
        embedding = encoder.network((x @ (without @ encoder.loadings)).flatten(1))
        latents = [embedding[:, block]]
        if self.patterns.shape[1]:
            now = x if encoder.window == 1 else x[:, samples_before(encoder.window)]
            missed = missed_activity(self.decoder, now @ without, embedding)
            latents.append(missed @ self.patterns)
        return torch.cat(latents, dim=1)
