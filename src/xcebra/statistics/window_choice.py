"""How many samples a point of the embedding is best read from, judged on neurons left out.

Noise that is new at every sample averages out over a window; what neurons share for one sample only
does too. Which of the two counts for more is seen where one half of the neurons, averaged over
the window, predicts the other half at its middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.shared_dimensions import (
    FOLDS,
    STRETCHES,
    held_out_prediction,
    labels_design,
    samples_with_labels,
    standardised,
)

Array = NDArray[np.float64]

# With a window of 5, a fit took up to twice as long; longer ones would take more.
WINDOWS = (1, 3, 5)
_MOST_SAMPLES = 20_000
# An epoch must hold so many windows, or most of its samples would lie at its edges.
_WINDOWS_AN_EPOCH = 20
# What a longer window must add: of the neurons' variance, and of what single samples explain. In
# recordings of the hippocampus and the thalamus it lost 14 to 50 % of that, or added 0.5 % of the
# variance (head-direction cells, whose map became worse); on simulated counts it added 22 to 31 %,
# and the map became better (dataset seed 100).
_LEAST_GAIN, _LEAST_RELATIVE_GAIN = 0.01, 0.1
# Of the best window: a shorter one that explains this much is as good.
_AS_GOOD = 0.95


def choose_window(
    recording: Recording,
    labels: Sequence[Label],
    epochs: Epochs,
    longest: int | None = None,
) -> int:
    """The number of samples to read each point of the embedding from, one of `WINDOWS`.

    Parameters
    ----------
    recording : Recording
    labels : sequence of Label
        What they tell is taken out of the neurons; samples at which one is missing are left out.
    epochs : Epochs
        Samples to judge by.
    longest : int, optional
        No window may be longer.
    """
    room = int(np.median(epochs.lengths)) // _WINDOWS_AN_EPOCH
    allowed = [w for w in WINDOWS if w <= room and (longest is None or w <= longest)]
    times = samples_with_labels(labels, epochs)
    if len(times) < 2 * STRETCHES or recording.n_neurons < 4 or len(allowed) < 2:
        return 1
    times = evenly_spaced(times, _MOST_SAMPLES)
    explained = shared_activity(recording, labels, times, allowed)
    alone = explained[1]
    best = max(explained.values())
    if best <= 0 or best - alone < max(_LEAST_GAIN, _LEAST_RELATIVE_GAIN * alone):
        return 1
    return min(w for w in allowed if explained[w] >= _AS_GOOD * best)


def shared_activity(
    recording: Recording,
    labels: Sequence[Label],
    times: NDArray[np.int64],
    windows: Sequence[int],
) -> dict[int, float]:
    """Share of the neurons' variance that the other half of them predicts beyond the labels.

    Returns
    -------
    dict of int to float
        For each window over which the predicting half is averaged; on held-out time.
    """
    n, n_neurons = len(times), recording.n_neurons
    fold = np.arange(n) * STRETCHES // n % FOLDS
    design = standardised(labels_design(labels, times))
    order = np.random.default_rng(0).permutation(n_neurons)
    halves = order[: n_neurons // 2], order[n_neurons // 2 :]

    def beyond_labels(activity: Array) -> Array:
        x = standardised(activity)
        return x - held_out_prediction(design, x, fold) if design.shape[1] else x

    activity = recording.rows(times).astype(np.float64)
    single = beyond_labels(activity)
    varies = float((np.ptp(activity, axis=0) > 0).sum()) * n
    explained = {}
    for window in windows:
        averaged = single
        if window > 1:
            averaged = beyond_labels(_means(recording, times, window))
        averaged = standardised(averaged)
        gained = 0.0
        for seen, left_out in (halves, halves[::-1]):
            target = single[:, left_out]
            missed = target - held_out_prediction(averaged[:, seen], target, fold)
            gained += float(np.square(target).sum() - np.square(missed).sum())
        explained[window] = gained / max(varies, 1.0)
    return explained


def _means(recording: Recording, times: NDArray[np.int64], window: int) -> Array:
    """Activity averaged over the window around each sample, inside its epoch."""
    around = recording.epochs.windows(times, window, recording.n_times)
    total = np.zeros((len(times), recording.n_neurons))
    for column in around.T:
        total += recording.rows(column)
    return total / window
