"""Controls: units that cannot be connected to a label, in the place of recorded neurons.

Messages and pages call them surrogate units, because a control is a label there.

In the input of the encoder, a few neurons are replaced by copies of themselves that are shifted in
time or shuffled. These controls are then tested in the same way as neurons. They contribute to the
latents exactly as the replaced neurons do. If the test called neurons connected only because their
own activity is part of the latents that explain them, it would therefore call controls connected
too. The map itself is computed without controls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording, chunks

# A tenth of the neurons, but at least 4 and at most 20: few enough that the latents hardly change,
# and enough to notice a test that calls everything connected. Not tuned.
_SHARE, _FEWEST, _MOST = 0.1, 4, 20
# Shifts of copies are at least this share of the recording. Larger values separate slow activity
# from its copy more reliably, but leave fewer different shifts; not tuned.
_LEAST_SHIFT = 0.1


@dataclass(frozen=True, eq=False)
class WithControls:
    """A recording in which some neurons are replaced by controls, with the interface `Activity`.

    Parameters
    ----------
    recording : Recording
    neurons : ndarray of shape (n_controls,)
        Indices of the neurons that are replaced.
    activity : ndarray of shape (n_times, n_controls)
        Activity of the controls.
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
        """Number of samples on either side that share activity because it was smoothed."""
        return self.recording.overlap

    @property
    def n_times(self) -> int:
        """Number of samples of the recording."""
        return self.recording.n_times

    @property
    def n_neurons(self) -> int:
        """Number of neurons of the recording."""
        return self.recording.n_neurons

    def rows(self, times: IntArray) -> NDArray[np.float32]:
        """Activity at ``times``, of shape (n, n_neurons)."""
        rows = self.recording.rows(times)
        rows[:, self.neurons] = self.activity[times]
        return rows

    def windows(self, times: IntArray, size: int) -> NDArray[np.float32]:
        """Activity in the windows around ``times``, of shape (n, size, n_neurons)."""
        indices = self.epochs.windows(times, size, self.n_times)
        return self.rows(indices.ravel()).reshape(*indices.shape, self.n_neurons)


def with_controls(recording: Recording, seed: int) -> WithControls:
    """Replace some neurons, drawn at random, by controls.

    The controls are alternately copies that are shifted circularly in time and copies whose samples
    are shuffled. A shuffled copy keeps the distribution of the neuron, so that counts stay counts
    with the same mean.
    """
    rng = np.random.default_rng(seed)
    n_neurons, n = recording.n_neurons, recording.n_times
    size = min(n_neurons, int(np.clip(round(_SHARE * n_neurons), _FEWEST, _MOST)))
    neurons = np.sort(rng.permutation(n_neurons)[:size])
    # All of them are read in one pass: of a wide recording, a single neuron takes as long as all.
    parts = [np.asarray(chunk[:, neurons], np.float32) for chunk in chunks(recording.neural)]
    activity = np.concatenate(parts)
    least = max(1, int(_LEAST_SHIFT * n))
    for i in range(size):
        original = activity[:, i].copy()
        if i % 2:
            activity[:, i] = rng.permutation(original)
        else:
            activity[:, i] = np.roll(original, int(rng.integers(least, max(least + 1, n - least))))
    return WithControls(recording, neurons, activity)
