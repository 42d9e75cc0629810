"""Choice of the window: how many samples each point of the embedding is computed from.

Averaging over a window removes noise that is independent from sample to sample, but also activity
that neurons share for one sample only. To see which of the two matters more, one half of the
neurons, averaged over the window, predicts the other half in the middle of the window. The window
with the best prediction is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.held_out_time import N_STRETCHES, folds
from xcebra.statistics.shared_dimensions import (
    chosen_neurons,
    columns_of,
    held_out_prediction,
    labels_design,
    samples_with_labels,
)
from xcebra.statistics.smooth_regression import standardised

Array = NDArray[np.float64]

# Windows to choose from. With a window of 5 samples a fit took up to twice as long as without;
# longer windows would take even longer.
WINDOWS = (1, 3, 5)
# More samples make the choice more reliable and take longer; not tuned.
_MOST_SAMPLES = 20_000
# Number of values of the activity that are regressed at once, 32 MB. It limits the memory.
_VALUES_AT_ONCE = 1 << 22
# The median epoch must be this many times as long as a window, so that few samples lie at the edges
# of epochs. Larger values exclude long windows for short trials; not tuned.
_WINDOWS_AN_EPOCH = 20
# What a longer window must add, as a share of the neurons' variance and as a share of what single
# samples explain. In recordings of the hippocampus and the thalamus, longer windows lost 14 to 50 %
# of what single samples explain, or added 0.5 % of the variance (head-direction cells, whose map
# became worse). On simulated counts they added 22 to 31 %, and the map became better (dataset seed
# 100).
_LEAST_GAIN, _LEAST_RELATIVE_GAIN = 0.01, 0.1
# The shortest window that explains at least this share of what the best window explains is chosen.
# Larger values choose longer windows more often; not tuned.
_AS_GOOD = 0.95


def choose_window(
    recording: Recording,
    labels: Sequence[Label],
    epochs: Epochs,
    longest: int | None = None,
) -> int:
    """Choose the number of samples that each point of the embedding is computed from.

    Parameters
    ----------
    recording : Recording
    labels : sequence of Label
        The prediction of the neurons from the labels is subtracted. Samples at which any label is
        missing are left out.
    epochs : Epochs
        Samples to use.
    longest : int, optional
        Longest window that is allowed.

    Returns
    -------
    int
        One of `WINDOWS`.
    """
    limit = int(np.median(epochs.lengths)) // _WINDOWS_AN_EPOCH
    allowed = [w for w in WINDOWS if w <= limit and (longest is None or w <= longest)]
    times = samples_with_labels(labels, epochs)
    if len(times) < 2 * N_STRETCHES or recording.n_neurons < 4 or len(allowed) < 2:
        return 1
    times = evenly_spaced(times, _MOST_SAMPLES)
    explained = shared_activity(recording, labels, times, allowed)
    single = explained[1]
    best = max(explained.values())
    if best <= 0 or best - single < max(_LEAST_GAIN, _LEAST_RELATIVE_GAIN * single):
        return 1
    return min(w for w in allowed if explained[w] >= _AS_GOOD * best)


def shared_activity(
    recording: Recording,
    labels: Sequence[Label],
    times: NDArray[np.int64],
    windows: Sequence[int],
) -> dict[int, float]:
    """Share of the neurons' variance that the other half of the neurons predicts beyond the labels.

    Parameters
    ----------
    recording : Recording
    labels : sequence of Label
    times : ndarray of int of shape (n_samples,)
        Indices of the samples to use, in order.
    windows : sequence of int
        Numbers of samples over which the predicting half is averaged.

    Returns
    -------
    dict of int to float
        The share for each window, on held-out time.
    """
    neurons = chosen_neurons(recording.n_neurons)
    n, n_neurons = len(times), len(neurons)
    fold = folds(n)
    design = standardised(labels_design(labels, times))
    order = np.random.default_rng(0).permutation(n_neurons)
    halves = order[: n_neurons // 2], order[n_neurons // 2 :]

    # Some neurons at a time, so that many of them do not need much memory.
    step = max(1, _VALUES_AT_ONCE // n)
    parts = [slice(start, start + step) for start in range(0, n_neurons, step)]

    def beyond_labels(activity: NDArray[np.floating]) -> Array:
        x = np.empty(activity.shape)
        for part in parts:
            own = standardised(activity[:, part].astype(np.float64))
            if design.shape[1]:
                own -= held_out_prediction(design, own, fold)
            x[:, part] = own
        return x

    activity = columns_of(recording, times, neurons)
    single = beyond_labels(activity)
    # Sum of squares of the standardised activity: n for each neuron that varies.
    total = float((np.ptp(activity, axis=0) > 0).sum()) * n
    explained = {}
    for window in windows:
        if window > 1:
            averaged = beyond_labels(_means(recording, times, window, neurons))
        else:
            averaged = single.copy()
        for part in parts:
            averaged[:, part] = standardised(averaged[:, part])
        gain = 0.0
        for seen, left_out in (halves, halves[::-1]):
            target = single[:, left_out]
            residual = target - held_out_prediction(averaged[:, seen], target, fold)
            gain += float(np.square(target).sum() - np.square(residual).sum())
        explained[window] = gain / max(total, 1.0)
    return explained


def _means(
    recording: Recording, times: NDArray[np.int64], window: int, neurons: NDArray[np.int64]
) -> Array:
    """Activity averaged over the window around each sample, of shape (n_samples, n_neurons)."""
    indices = recording.epochs.windows(times, window, recording.n_times)
    total = np.zeros((len(times), len(neurons)))
    for column in indices.T:
        total += columns_of(recording, column, neurons)
    total /= window
    return total
