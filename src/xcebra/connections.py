"""Which neurons are connected to which block of an embedding, given all others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from xcebra.decoder import around, at, lasts, spread
from xcebra.encoder import Encoder
from xcebra.epochs import IntArray
from xcebra.labels import Label
from xcebra.recording import Recording
from xcebra.significance import Connections, find_connections

_LEAST_TESTED, _MOST_TESTED = 400, 10_000


def tested_samples(recording: Recording, labels: Mapping[str, Label]) -> IntArray:
    """Samples to test by, at which every label is known, or an error if they are too few."""
    times = spread(recording.epochs, _MOST_TESTED)
    for label in labels.values():
        times = times[label.valid[times]]
    if len(times) < _LEAST_TESTED:
        raise ValueError(
            f"test=True needs {_LEAST_TESTED} samples or more at which all labels are known, got "
            f"{len(times)}; give more, or make the map without the test"
        )
    return times


def block_connections(
    encoder: Encoder,
    recording: Recording,
    labels: Mapping[str, Label],
    blocks: Mapping[str, slice],
    axes: NDArray[np.float64],
    seed: int,
) -> dict[str, Connections]:
    """For every block, which neurons are connected to it given all others.

    A label stands for its block, as it is known without noise; the time block is that of the
    embedding, in the given axes and, where it lasts, of the samples around: a neuron's own noise
    has then no part in it.

    Parameters
    ----------
    encoder : Encoder
    recording : Recording
    labels : mapping of str to Label
        Of every block but time's.
    blocks : mapping of str to slice
    axes : ndarray of shape (n_latents, n_latents)
    seed : int
    """
    times, epochs = tested_samples(recording, labels), recording.epochs
    follow = around if lasts(encoder, recording, epochs) else at
    embedding = follow(encoder, recording)(times, epochs).double().cpu().numpy() @ axes.T
    columns = {name: label.points[times] for name, label in labels.items()}
    if "time" in blocks:
        columns["time"] = embedding[:, blocks["time"]]
    found = {}
    for name in blocks:
        others = [each for other, each in columns.items() if other != name]
        found[name] = find_connections(
            recording.rows(times).astype(np.float64),
            columns[name],
            np.concatenate(others, axis=1) if others else np.empty((len(times), 0)),
            seed=seed,
        )
    return found
