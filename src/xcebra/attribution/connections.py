"""Test which neurons are connected to each block of an embedding, given all other blocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.attribution.crossed_source import Source
from xcebra.attribution.sparse_basis import Mixture
from xcebra.common.errors import InputError
from xcebra.common.workers import Workers
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Activity, Recording
from xcebra.statistics.block_gains import BlockFunctions, Gains, group_gains
from xcebra.statistics.controls import with_controls
from xcebra.statistics.significance import Connections, merge_groups

Array = NDArray[np.float64]

# Fewest samples that are tested. Smaller values allow shorter recordings, for which the test has
# little power. Not tuned.
_LEAST_TESTED = 400
# The number of samples times the number of neurons, and the limits of the number of samples. The
# values are such that a test takes a few seconds; larger values give more power and take longer.
_WORK, _FEWEST, _MOST = 2_500_000, 10_000, 40_000
# Largest number of threads. Each of them needs memory for the functions of a block, about 50 MB.
_MOST_WORKERS = 8


def tested_samples(recording: Activity, labels: Mapping[str, Label]) -> IntArray:
    """Choose evenly spaced samples at which every label is known.

    Parameters
    ----------
    recording : Activity
    labels : mapping of str to Label

    Returns
    -------
    ndarray of int of shape (n_samples,)

    Raises
    ------
    InputError
        If there are fewer than 400 such samples.
    """
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
    """Test for every block which neurons are connected to it, given all other blocks.

    The label itself is used in place of its block, because it is known without noise. The time
    latents are read without the tested neuron, and the part of them that the labels explain is
    removed. The axes are those of the default map.

    Parameters
    ----------
    source : Source
        A source that has every label of the fit.
    blocks : mapping of str to slice
    mixtures : mapping of str to Mixture
        The mixtures of the default map.
    controls : bool
        Also test controls, which cannot be connected.
    seed : int

    Returns
    -------
    dict of str to Connections
        The result for each block by its name.
    """
    everyone = np.arange(source.recording.n_neurons)
    with Workers(_MOST_WORKERS, source.encoder.loadings.device) as workers:
        functions = _label_functions(source, blocks, workers, seed)

        def gains_of(recording: Activity, neurons: IntArray) -> dict[str, Gains]:
            replaced = source.with_recording(recording)
            return _gains(replaced, blocks, mixtures, neurons, functions, workers, seed)

        gains = gains_of(source.recording, everyone)
        carried: dict[str, Gains] = {}
        if controls:
            assert isinstance(source.recording, Recording)  # a recording without controls
            replaced = with_controls(source.recording, seed)
            carried = gains_of(replaced, replaced.neurons)
    return {name: merge_groups([gains[name]], carried.get(name)) for name in blocks}


def _label_functions(
    source: Source, blocks: Mapping[str, slice], workers: Workers, seed: int
) -> dict[str, BlockFunctions]:
    """Smooth functions of each label, which are the same for all neurons."""
    times = tested_samples(source.recording, source.labels)
    columns = source.points(times).cpu().double().numpy()
    labels = [label for label in source.decoder.labels if label.name in blocks]
    functions = workers.map(
        lambda label: BlockFunctions.of(columns[:, label.columns], label.kind, seed), labels
    )
    return {label.name: own for label, own in zip(labels, functions, strict=True)}


def _gains(
    source: Source,
    blocks: Mapping[str, slice],
    mixtures: Mapping[str, Mixture],
    neurons: IntArray,
    functions: Mapping[str, BlockFunctions],
    workers: Workers,
    seed: int,
) -> dict[str, Gains]:
    """What every block adds to the prediction of ``neurons``, in the order of ``neurons``."""
    decoder = source.decoder
    times = tested_samples(source.recording, source.labels)
    points, rows = workers.lead(source.inputs, times)
    n_labels = points.shape[1]
    in_units = (points * decoder.label_units()).cpu().double().numpy()
    columns = points.cpu().double().numpy()
    latents = (rows[:, :, n_labels:] * decoder.embedding_scale).cpu().double().numpy()
    with torch.no_grad():
        in_latents = decoder.embedding_scale / decoder.latent_scale
        bent = (decoder.bent_part(points) * in_latents).cpu().double().numpy()
    activity = source.recording.rows(times)
    if len(neurons) < activity.shape[1]:
        activity = activity[:, neurons]
    group = decoder.group.cpu().numpy()[neurons]
    of_label = {label.name: label for label in decoder.labels}

    def gains_of_group(name: str, g: int) -> Gains:
        x, rest = activity[:, group == g].astype(np.float64), latents[g]
        if name == "time":
            n_time = decoder.n_time_latents
            others = np.concatenate([columns, rest[:, n_time:]], axis=1)
            return group_gains(x, rest[:, :n_time], others, clear=False, seed=seed)
        own_columns = of_label[name].columns
        mixed = np.zeros_like(rest)
        if name in mixtures:
            mixed = in_units[:, own_columns] @ mixtures[name].weights.T
            mixed = mixed + bent[g] * mixtures[name].bends
        own_indices = np.arange(own_columns.start, own_columns.stop)
        other_labels = np.delete(columns, own_indices, axis=1)
        others = np.concatenate([other_labels, rest - mixed], axis=1)
        kind, own_functions = of_label[name].kind, functions[name]
        block = columns[:, own_columns]
        return group_gains(x, block, others, kind, seed=seed, functions=own_functions)

    groups = np.unique(group)
    parts = iter(workers.map(lambda job: gains_of_group(*job), itertools.product(blocks, groups)))
    order = np.argsort(np.concatenate([np.flatnonzero(group == g) for g in groups]))
    return {name: Gains.together([next(parts) for _ in groups], order) for name in blocks}
