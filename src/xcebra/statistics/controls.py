"""Controls: units that cannot carry a label, in the place of recorded neurons.

A few neurons are replaced, in what the encoder sees, by copies of themselves that are moved in time
or by noise of the same distribution, and are tested as neurons are. They take part in the latents
exactly as the neuron does whose place they hold: if a neuron could find itself in the latents that
it is explained by, they would be called connected too. The map itself is made without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording

# A tenth of the neurons, within these limits: few enough that the latents stay what they are,
# enough to see a test that calls everything connected.
_SHARE, _FEWEST, _MOST = 0.1, 4, 20
# Shifts of copies are at least this share of the recording.
_LEAST_SHIFT = 0.1


@dataclass(frozen=True, eq=False)
class WithControls:
    """A recording in which some neurons are replaced; it is read as a Recording is.

    Parameters
    ----------
    recording : Recording
    neurons : ndarray of shape (n_controls,)
        Whose place the controls take.
    activity : ndarray of shape (n_times, n_controls)
    """

    recording: Recording
    neurons: IntArray
    activity: NDArray[np.float32]

    @property
    def epochs(self) -> Epochs:
        """Epochs of the recording."""
        return self.recording.epochs

    @property
    def overlap(self) -> int:
        """How far smoothing spreads each sample of the recording."""
        return self.recording.overlap

    @property
    def n_times(self) -> int:
        """Samples of the recording."""
        return self.recording.n_times

    @property
    def n_neurons(self) -> int:
        """Neurons of the recording."""
        return self.recording.n_neurons

    def rows(self, times: IntArray) -> NDArray[np.float32]:
        """Activity at some times."""
        rows = self.recording.rows(times)
        rows[:, self.neurons] = self.activity[times]
        return rows

    def windows(self, times: IntArray, size: int) -> NDArray[np.float32]:
        """Activity around some times, of shape (n, size, n_neurons)."""
        around = self.epochs.windows(times, size, self.n_times)
        return self.rows(around.ravel()).reshape(*around.shape, self.n_neurons)


def with_controls(recording: Recording, seed: int) -> WithControls:
    """Put controls in the place of some neurons: copies moved in time, and shuffled ones, in turn.

    A shuffled copy keeps the neuron's distribution, so that counts stay counts of the same rate.
    """
    rng = np.random.default_rng(seed)
    n_neurons, n = recording.n_neurons, recording.n_times
    size = min(n_neurons, int(np.clip(round(_SHARE * n_neurons), _FEWEST, _MOST)))
    neurons = np.sort(rng.permutation(n_neurons)[:size])
    activity = np.empty((n, size), dtype=np.float32)
    least = max(1, int(_LEAST_SHIFT * n))
    for i, neuron in enumerate(neurons):
        own = np.asarray(recording.neural[:, neuron], dtype=np.float32)
        if i % 2:
            activity[:, i] = rng.permutation(own)
        else:
            activity[:, i] = np.roll(own, int(rng.integers(least, max(least + 1, n - least))))
    return WithControls(recording, neurons, activity)
