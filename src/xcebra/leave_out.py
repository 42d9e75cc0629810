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
from numpy.typing import NDArray
from torch import Tensor

from xcebra.decoder import reach
from xcebra.encoder import Encoder, Inputs
from xcebra.epochs import Epochs, IntArray
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
    def measure(cls, recording: Recording, epochs: Epochs, inputs: Inputs, seed: int) -> LeaveOut:
        """Draw the groups, and measure the correlations in one pass over time."""
        n, products = 0, np.zeros((1, 1))
        for chunk in chunks(recording.neural, epochs):
            u = (np.asarray(chunk, dtype=np.float64) - inputs.mean) * inputs.reciprocal
            n += len(u)
            products = products + u.T @ u
        n_neurons = len(inputs.mean)
        order = np.random.default_rng(seed).permutation(n_neurons)
        group = np.empty(n_neurons, dtype=np.int64)
        n_groups = n_neurons if n_neurons <= _ONE_BY_ONE else _MOST_GROUPS
        group[order] = np.arange(n_neurons) % n_groups
        return cls(group, products / n)

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


def latents_without(
    encoder: Encoder,
    recording: Recording,
    times: IntArray,
    leave_out: LeaveOut,
    block: slice,
    *,
    around: bool,
) -> Tensor:
    """A block of the embedding at some times, read without each group of neurons in turn.

    With ``around``, it is the mean of this sample's embedding and of those just before and just
    after, read from other samples, which averages out what the encoder gets wrong from point to
    point.

    Returns
    -------
    Tensor of shape (n_groups, n_times, n_latents)
        On the encoder's device.
    """
    if around:
        before, after = recording.epochs.neighbours(times, *reach(encoder, recording))
        three = (
            latents_without(encoder, recording, each, leave_out, block, around=False)
            for each in (before, after, times)
        )
        return (next(three) + next(three) + next(three)) / 3
    at_once = max(1, _ROWS_AT_ONCE // encoder.window)
    weights = [torch.from_numpy(leave_out.weights(g)) for g in range(leave_out.n_groups)]
    loadings = [(w.to(encoder.loadings) @ encoder.loadings) for w in weights]
    parts = []
    with torch.no_grad():
        for start in range(0, len(times), at_once):
            x = encoder.standardised(encoder.samples(recording, times[start : start + at_once]))
            found = [encoder.network((x @ each).flatten(1))[:, block] for each in loadings]
            parts.append(torch.stack(found))
    if not parts:
        width = block.stop - block.start
        return torch.zeros(leave_out.n_groups, 0, width, device=encoder.loadings.device)
    return torch.cat(parts, dim=1)
