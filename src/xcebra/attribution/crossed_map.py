"""The default map: how neurons change with labels and time latents, by two crossed decoders.

The score of a neuron is high where the derivatives of both decoders agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.crossed_derivatives import bent_slopes, derivatives
from xcebra.attribution.crossed_source import MOST_SAMPLES, Source
from xcebra.attribution.label_axes import Readout
from xcebra.attribution.request import MapRequest, Names
from xcebra.attribution.sparse_basis import Mixture
from xcebra.attribution.step_store import StepStore
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.networks.crossed_decoder import CrossedDecoder

Array = NDArray[np.float64]


def signed_root(values: Array) -> Array:
    """Square root of the absolute values, with the sign of the values.

    Scores that are noise stay symmetric around zero.
    """
    return np.sign(values) * np.sqrt(np.abs(values))


def make_crossed_map(
    source: Source,
    times: IntArray,
    names: Names,
    blocks: Mapping[str, slice],
    request: MapRequest,
    *,
    mixtures: Mapping[str, Mixture],
    readouts: Mapping[str, Readout],
    in_label_axes: bool,
    scale: Tensor | None,
) -> AttributionMap:
    """Aggregate derivatives over time into a map.

    A score is the signed root of the product of both decoders' derivatives, averaged over time and
    summed over the columns of the block. ``values`` are computed in the same way for single
    columns, and are zero where the mean product is negative. Maps of single steps are means of the
    two decoders. ``made["halves_agree"]`` holds for each block the rank correlation of the scores
    by each decoder alone, that is, by each half of the time.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)
    names : Names
        Neurons, latents and blocks of the requested map.
    blocks : mapping of str to slice
        All blocks of the embedding.
    request : MapRequest
    mixtures : mapping of str to Mixture
        For each label, the mixture of time latents' columns that is added to its own.
    readouts : mapping of str to Readout
        From the latents of a label's block to the label.
    in_label_axes : bool
        If a label's block has as many latents as the label has columns, the map shows the columns
        of the label instead of the latents as learned.
    scale : Tensor of shape (n_neurons,), optional
        Units of the neurons.
    """
    keep = request.keep_time
    if keep is False and request.aggregate != "median":
        kept_positions = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
        times = times[kept_positions]
    columns = _columns(source.decoder, blocks, mixtures, readouts, in_label_axes)
    chosen = request.select if isinstance(request.select, slice) else slice(None)
    store = StepStore(keep, len(times), len(names.neurons), len(names.latents))
    products: Array | float = 0.0
    alone: dict[str, Array | float] = dict.fromkeys(blocks, 0.0)
    scores: dict[str, Array | float] = dict.fromkeys(blocks, 0.0)
    extremes: Array | None = None
    for positions, slopes in derivatives(source, times):
        maps = slopes if scale is None else slopes * scale[:, None]
        straightened = _straightened(source, times[positions], maps, mixtures)
        maps = torch.einsum("msnc,cd->msnd", maps, columns.undone.to(maps)) + straightened
        for name in blocks:
            of_block = maps[..., columns.of_block[name]]
            product = (of_block[0] * of_block[1]).sum(dim=(0, 2))
            scores[name] = scores[name] + product.cpu().double().numpy()
            alone[name] = alone[name] + of_block.square().sum(dim=(1, 3)).cpu().double().numpy()
        by_latent = torch.einsum("msnd,dl->msnl", maps, columns.to_latents.to(maps))[..., chosen]
        products = products + (by_latent[0] * by_latent[1]).sum(dim=0).cpu().double().numpy()
        mean = by_latent.mean(dim=0)
        if request.aggregate == "max":
            largest = mean.abs().amax(dim=0).cpu().double().numpy()
            extremes = largest if extremes is None else np.maximum(extremes, largest)
        store.put(positions, mean)
    details = {
        **request.described(),
        "n_samples": len(times),
        "halves_agree": {name: _rank_correlation(np.asarray(alone[name])) for name in blocks},
    }
    steps = store.steps(times)
    axes = (names.blocks, names.neurons, names.latents)
    if request.aggregate in ("median", "max") and steps is not None:
        return AttributionMap.from_steps(steps, *axes, aggregate=request.aggregate, made=details)
    n = len(times)
    root = signed_root(np.asarray(products) / n)
    whole = {name: signed_root(np.asarray(score) / n) for name, score in scores.items()}
    if extremes is not None:
        root = extremes
    elif request.aggregate == "sum":
        root = root * n
        whole = {name: score * n for name, score in whole.items()}
    values = np.maximum(root, 0.0)
    of_blocks = {
        # A slice of latents is not a block of the model: its score is over its own columns.
        name: whole[name] if name in whole else signed_root((np.sign(root) * root**2).sum(axis=1))
        for name in names.blocks
    }
    return AttributionMap(values, of_blocks, *axes, details, steps)


def _straightened(
    source: Source, times: IntArray, maps: Tensor, mixtures: Mapping[str, Mixture]
) -> Tensor | float:
    """Change of the labels' columns when the bent parts of ``mixtures`` are removed."""
    if not any(mixture.bends.any() for mixture in mixtures.values()):
        return 0.0
    slopes = bent_slopes(source, times).to(maps)
    n_labels = len(source.decoder.label_mean)
    gained = torch.zeros_like(maps)
    for label in source.decoder.labels:
        if label.name in mixtures and mixtures[label.name].bends.any():
            bends = torch.from_numpy(mixtures[label.name].bends).to(maps)
            weighted = maps[..., n_labels:] * bends
            gained[..., label.columns] = torch.einsum(
                "msnl,snlc->msnc", weighted, slopes[..., label.columns]
            )
    return gained


def _rank_correlation(scores: Array) -> float | None:
    """Spearman correlation over neurons of the scores by each decoder alone.

    ``scores`` has shape (2, n_neurons). The result is None for fewer than 3 neurons and for
    constant scores.
    """
    if scores.shape[1] < 3 or (np.ptp(scores, axis=1) == 0).any():
        return None
    return round(float(spearmanr(scores[0], scores[1]).statistic), 4)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Matrices from columns of derivatives to latents of the map.

    Parameters
    ----------
    undone : Tensor of shape (n_columns, n_columns)
        From columns of derivatives to columns with the mixtures undone.
    to_latents : Tensor of shape (n_columns, n_latents)
        From these columns to the latents of the map.
    of_block : mapping of str to slice
        Columns of each block.
    """

    undone: Tensor
    to_latents: Tensor
    of_block: Mapping[str, slice]


def _columns(
    decoder: CrossedDecoder,
    blocks: Mapping[str, slice],
    mixtures: Mapping[str, Mixture],
    readouts: Mapping[str, Readout],
    in_label_axes: bool,
) -> _Columns:
    n_labels, n_others = len(decoder.label_mean), len(decoder.latent_mean)
    n_latents = max(block.stop for block in blocks.values())
    undone = np.eye(n_labels + n_others)
    to_latents = np.zeros((n_labels + n_others, n_latents))
    of_block = {}
    for label in decoder.labels:
        columns, block = label.columns, blocks[label.name]
        of_block[label.name] = columns
        if label.name in mixtures:
            undone[n_labels:, columns] = mixtures[label.name].weights
        width = block.stop - block.start
        if in_label_axes and width == columns.stop - columns.start:
            to_latents[columns, block] = np.eye(width)
        else:
            # The change of the label with each latent, in the unit of the label.
            readout = readouts[label.name]
            unit = float(np.sqrt(np.mean(readout.spread**2))) or 1.0
            to_latents[columns, block] = readout.weights / unit
    if "time" in blocks:
        # Columns of left-over patterns follow the time latents and are not part of the map.
        time = slice(n_labels, n_labels + decoder.n_time_latents)
        of_block["time"] = time
        to_latents[time, blocks["time"]] = np.eye(decoder.n_time_latents)
    return _Columns(torch.from_numpy(undone), torch.from_numpy(to_latents), of_block)
