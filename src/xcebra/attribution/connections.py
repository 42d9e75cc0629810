"""Which neurons are connected to which block of an embedding, given all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.attribution.crossed_map import Source
from xcebra.attribution.sparse_basis import Mixture
from xcebra.common.errors import InputError
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Activity, Recording
from xcebra.statistics.controls import with_controls
from xcebra.statistics.significance import Connections, Gains, group_gains, merge_groups

Array = NDArray[np.float64]

_LEAST_TESTED = 400
# As many samples as take a few seconds: their number times that of neurons, and its limits.
_WORK, _FEWEST, _MOST = 2_500_000, 10_000, 40_000


def tested_samples(recording: Activity, labels: Mapping[str, Label]) -> IntArray:
    """Samples to test by, at which every label is known, or an error if they are too few."""
    times = recording.epochs.indices()
    for label in labels.values():
        times = times[label.valid[times]]
    if len(times) < _LEAST_TESTED:
        raise InputError(
            f"test=True needs {_LEAST_TESTED} samples or more at which all labels are known, got "
            f"{len(times)}; give more, or make the map without the test"
        )
    most = int(np.clip(_WORK // recording.n_neurons, _FEWEST, _MOST))
    return evenly_spaced(times, most)


def block_connections(
    source: Source,
    blocks: Mapping[str, slice],
    mixtures: Mapping[str, Mixture],
    *,
    controls: bool,
    seed: int,
) -> dict[str, Connections]:
    """For every block, which neurons are connected to it given all others.

    A label stands for its block, as it is known without noise. The time block is that of the
    embedding, read without the neuron in question and without what the labels tell of it, in the
    axes of the default map.

    Parameters
    ----------
    source : Source
        With every label of the fit.
    blocks : mapping of str to slice
    mixtures : mapping of str to Mixture
        As for the map.
    controls : bool
        Carry units along that cannot be connected.
    seed : int
    """
    everyone = np.arange(source.recording.n_neurons)
    gains = _gains(source, blocks, mixtures, everyone, seed)
    carried: dict[str, Gains] = {}
    if controls:
        assert isinstance(source.recording, Recording)  # not one that has controls already
        replaced = with_controls(source.recording, seed)
        carried = _gains(
            replace(source, recording=replaced), blocks, mixtures, replaced.neurons, seed
        )
    return {name: merge_groups([gains[name]], carried.get(name)) for name in blocks}


def _gains(
    source: Source,
    blocks: Mapping[str, slice],
    mixtures: Mapping[str, Mixture],
    neurons: IntArray,
    seed: int,
) -> dict[str, Gains]:
    """What every block adds to some neurons, in their order."""
    decoder = source.decoder
    times = tested_samples(source.recording, source.labels)
    points, rows = source.inputs(times)
    n_labels = points.shape[1]
    in_units = (points * decoder.label_units()).cpu().double().numpy()
    columns = points.cpu().double().numpy()
    latents = (rows[:, :, n_labels:] * decoder.embedding_scale).cpu().double().numpy()
    with torch.no_grad():
        in_latents = decoder.embedding_scale / decoder.latent_scale
        bent = (decoder.bent_part(points) * in_latents).cpu().double().numpy()
    activity = source.recording.rows(times)[:, neurons].astype(np.float64)
    group = decoder.group.cpu().numpy()[neurons]
    of_label = {label.name: label for label in decoder.labels}
    found = {}
    for name in blocks:
        parts, order = [], []
        for g in np.unique(group):
            own = np.flatnonzero(group == g)
            x, rest = activity[:, own], latents[g]
            if name == "time":
                n_time = decoder.n_time_latents
                others = np.concatenate([columns, rest[:, n_time:]], axis=1)
                part = group_gains(x, rest[:, :n_time], others, clear=False, seed=seed)
            else:
                mine = of_label[name].columns
                mixed = np.zeros_like(rest)
                if name in mixtures:
                    mixed = in_units[:, mine] @ mixtures[name].weights.T
                    mixed = mixed + bent[g] * mixtures[name].bends
                other_labels = np.delete(columns, np.arange(mine.start, mine.stop), axis=1)
                others = np.concatenate([other_labels, rest - mixed], axis=1)
                part = group_gains(x, columns[:, mine], others, of_label[name].kind, seed=seed)
            parts.append(part)
            order.append(own)
        found[name] = Gains.together(parts, np.argsort(np.concatenate(order)))
    return found
