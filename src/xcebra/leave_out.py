"""Latents read without a neuron, so that no neuron is explained by itself.

The neurons are parted into groups. For each group, its neurons are replaced by what the other
neurons predict of them, linearly, before the activity is embedded. What is left of the embedding
is what the rest of the population knows, and neither a neuron's noise at this moment nor its own
rhythm over time has a part in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from xcebra.decoder import Decoder, reach
from xcebra.encoder import Encoder, Inputs
from xcebra.epochs import Epochs, IntArray
from xcebra.left_over import missed_activity
from xcebra.recording import Recording, chunks

# More groups leave out less at a time, but each neuron is then taught by fewer samples a step. A
# small population, in which every neuron counts, is left out one by one.
_MOST_GROUPS, _ONE_BY_ONE = 5, 16
# Added to correlations of 1, so that neurons that are nearly the same predict each other stably. At
# 0.02 the predictions of noiseless neurons shrink enough to blur the sparse basis.
_RIDGE = 1e-3
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """Which neurons are left out together, and what the others predict of them.

    Parameters
    ----------
    group : ndarray of shape (n_neurons,)
        Number of the group that each neuron belongs to.
    correlation : ndarray of shape (n_neurons, n_neurons)
        Correlations between the neurons; zero for neurons that never change.
    """

    group: IntArray
    correlation: NDArray[np.float64]

    @classmethod
    def measure(cls, recording: Recording, epochs: Epochs, inputs: Inputs) -> LeaveOut:
        """Measure the correlations in one pass over time, and part the neurons by them."""
        n, products = 0, np.zeros((1, 1))
        for chunk in chunks(recording.neural, epochs):
            u = (np.asarray(chunk, dtype=np.float64) - inputs.mean) * inputs.reciprocal
            n += len(u)
            products = products + u.T @ u
        correlation = products / n
        n_neurons = len(inputs.mean)
        n_groups = n_neurons if n_neurons <= _ONE_BY_ONE else _MOST_GROUPS
        return cls(_apart(correlation, n_groups), correlation)

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return int(self.group.max()) + 1

    def members(self, g: int) -> IntArray:
        """Neurons of a group."""
        return np.flatnonzero(self.group == g)

    def weights(self, g: int) -> NDArray[np.float64]:
        """Matrix from standardised neurons to themselves, with group ``g`` predicted by the rest.

        Returns
        -------
        ndarray of shape (n_neurons, n_neurons)
            The activity ``u`` becomes ``u @ weights``.
        """
        left, kept = self.group == g, self.group != g
        whole = np.eye(len(self.group))
        whole[:, left] = 0.0
        if kept.any():
            among = self.correlation[np.ix_(kept, kept)] + _RIDGE * np.eye(int(kept.sum()))
            whole[np.ix_(kept, left)] = np.linalg.solve(among, self.correlation[np.ix_(kept, left)])
        return whole


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
        Directions of what the decoder misses, read as further latents; see `xcebra.left_over`.
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

    def latents(
        self, recording: Recording, times: IntArray
    ) -> Float[Tensor, "group sample latent"]:
        """Latents at some times, without each group of neurons in turn, on the encoder's device."""
        if not self.around:
            return self._at(recording, times)
        before, after = recording.epochs.neighbours(times, *reach(self.encoder, recording))
        return sum(self._at(recording, each) for each in (before, after, times)) / 3  # type: ignore[return-value]

    def _at(self, recording: Recording, times: IntArray) -> Tensor:
        encoder, block = self.encoder, self.time_block or slice(0, 0)
        at_once = max(1, _ROWS_AT_ONCE // encoder.window)
        groups = range(self.leave_out.n_groups)
        weights = [torch.from_numpy(self.leave_out.weights(g)).to(encoder.loadings) for g in groups]
        parts = []
        with torch.no_grad():
            for start in range(0, len(times), at_once):
                x = encoder.standardised(encoder.samples(recording, times[start : start + at_once]))
                now = x if encoder.window == 1 else x[:, encoder.window // 2]
                found = []
                for without in weights:
                    embedding = encoder.network((x @ (without @ encoder.loadings)).flatten(1))
                    latents = [embedding[:, block]]
                    if self.patterns.shape[1]:
                        missed = missed_activity(self.decoder, now @ without, embedding)
                        latents.append(missed @ self.patterns)
                    found.append(torch.cat(latents, dim=1))
                parts.append(torch.stack(found))
        if not parts:
            return torch.zeros(len(groups), 0, self.n_latents, device=encoder.loadings.device)
        return torch.cat(parts, dim=1)
