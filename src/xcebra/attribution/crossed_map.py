"""The map of two decoders: how neurons move with labels and time latents, where both agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import xlogy
from scipy.stats import spearmanr
from torch import Tensor

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.label_axes import Readout
from xcebra.attribution.request import MapRequest, Names
from xcebra.attribution.sparse_basis import Bends, Mixture, sparsest
from xcebra.attribution.step_store import StepStore
from xcebra.data.epochs import IntArray, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Activity
from xcebra.networks.crossed_decoder import CrossedDecoder, LabelColumns, expected, halves
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, embed
from xcebra.networks.jacobian import jacobian
from xcebra.networks.leave_out import Reader

Array = NDArray[np.float64]

# Derivatives change slowly from sample to sample: more samples do not change a mean over time.
MOST_SAMPLES = 4096
_ROWS_AT_ONCE = 256
# Of a neuron's mean: the least rate that a prediction of counts may have.
_LEAST_RATE = 0.1


@dataclass(frozen=True, eq=False)
class Source:
    """A fitted model and the recording that its map is of.

    Parameters
    ----------
    encoder : Encoder
    embedding_decoder : Decoder
        From the embedding to the activity.
    decoder : CrossedDecoder
    recording : Activity
        A Recording, or one in which controls stand in the place of some neurons.
    labels : mapping of str to Label
        Labels that are known; of others, and where one is missing, the label of the sample of the
        fit that lies nearest in the embedding is taken.
    time_block : slice or None
        Latents of the embedding that belong to time.
    """

    encoder: Encoder
    embedding_decoder: Decoder
    decoder: CrossedDecoder
    recording: Activity
    labels: Mapping[str, Label]
    time_block: slice | None

    @cached_property
    def reader(self) -> Reader:
        """What reads the latents."""
        return self.decoder.reader(self.encoder, self.embedding_decoder, self.time_block)

    def inputs(self, times: IntArray) -> tuple[Tensor, Tensor]:
        """Label columns at some times, and the inputs of the decoders, group by group."""
        latents = self.reader.latents(self.recording, times)
        points = self.points(times)
        with torch.no_grad():
            return points, self.decoder.inputs(points, latents)

    def neurons(self, times: IntArray) -> Tensor:
        """Standardised activity at some times."""
        rows = torch.from_numpy(self.recording.rows(times)).to(self.encoder.loadings.device)
        return self.encoder.standardised(rows)

    def points(self, times: IntArray) -> Tensor:
        """Label columns at some times, as given or as nearest in the embedding."""
        given = np.full((len(times), len(self.decoder.label_mean)), np.nan)
        for label in self.decoder.labels:
            if label.name in self.labels:
                found = self.labels[label.name]
                known = found.valid[times]
                given[known, label.columns] = found.points[times[known]]
        points = torch.from_numpy(given.astype(np.float32)).to(self.decoder.label_mean)
        missing = torch.isnan(points)
        if missing.any():
            embedding = embed(self.encoder, self.recording, times)
            points = torch.where(missing, self.decoder.nearest_labels(embedding), points)
        return points


def derivatives(
    source: Source, times: IntArray
) -> Iterator[tuple[IntArray, Float[Tensor, "member sample neuron column"]]]:
    """How both decoders say that each neuron moves, a part of the samples at a time.

    Columns are those of the labels, then the time latents. A continuous label's are derivatives
    per standard deviation of the label, which all its columns share. An angle's are those along the
    circle, as parts along its cosine and sine. Of classes, they are differences from the mean over
    classes, times the root of the share of samples in that class. A time latent's are per unit of
    the embedding. Neurons are in units of their standard deviation.

    Yields
    ------
    positions : ndarray of int
        Of the samples in ``times``.
    maps : Tensor of shape (2, n_samples, n_neurons, n_columns)
    """
    decoder = source.decoder
    for start in range(0, len(times), _ROWS_AT_ONCE):
        positions = np.arange(start, min(start + _ROWS_AT_ONCE, len(times)))
        points, rows = source.inputs(times[positions])
        maps = torch.zeros(2, len(positions), len(decoder.group), rows.shape[2], device=rows.device)
        with torch.no_grad():
            for k, member in enumerate(decoder.members):
                for g in range(len(rows)):
                    own = decoder.group == g
                    last = member[-1]  # type: ignore[index]
                    layers = (*list(member)[:-1], _some_outputs(last, own))  # type: ignore[call-overload]
                    maps[k][:, own] = jacobian(layers, rows[g])
            for label in decoder.labels:
                _by_label(source.decoder, label, points, rows, maps)
            n_columns = len(decoder.label_mean)
            maps[..., n_columns:] /= decoder.embedding_scale
        yield positions, maps


def _some_outputs(layer: torch.nn.Module, chosen: Tensor) -> torch.nn.Linear:
    """The rows of a linear layer that belong to some neurons."""
    whole: torch.nn.Linear = layer  # type: ignore[assignment]
    part = torch.nn.utils.skip_init(torch.nn.Linear, whole.in_features, int(chosen.sum()))
    part = part.to(whole.weight.device)
    with torch.no_grad():
        part.weight.copy_(whole.weight[chosen])
        part.bias.copy_(whole.bias[chosen])
    return part


def _by_label(
    decoder: CrossedDecoder, label: LabelColumns, points: Tensor, rows: Tensor, maps: Tensor
) -> None:
    """Turn derivatives by standardised columns into those of the label's kind, in place."""
    mine = label.columns
    if label.kind != "discrete":
        _in_label_units(decoder, label, points, maps.transpose(1, 2))
        return
    scale, shares = decoder.label_scale[mine], decoder.class_shares[mine]
    classes = torch.eye(mine.stop - mine.start, device=points.device)
    found = []
    for one in classes:
        moved = rows.clone()
        moved[:, :, mine] = (one - decoder.label_mean[mine]) / scale
        found.append(expected(decoder, moved))
    levels = torch.stack(found, dim=3)
    contrasts = levels - (levels * shares).sum(dim=3, keepdim=True)
    maps[..., mine] = contrasts * shares.sqrt()


def _in_label_units(
    decoder: CrossedDecoder, label: LabelColumns, points: Tensor, values: Tensor
) -> None:
    """Turn slopes by standardised columns, (..., n_samples, n_columns), in place."""
    mine = label.columns
    scale = decoder.label_scale[mine]
    if label.kind == "continuous":
        # One unit for all columns of a label, so that they keep their proportions.
        values[..., mine] *= scale.square().mean().sqrt() / scale
        return
    along = torch.stack([-points[:, mine.start + 1], points[:, mine.start]], dim=1)
    turned = (values[..., mine] * (along / scale)).sum(dim=-1)
    values[..., mine] = turned[..., None] * along


def bent_slopes(source: Source, times: IntArray) -> Float[Tensor, "sample neuron latent column"]:
    """How the bent part of the latents that each neuron is explained by moves with the labels.

    In units of `derivatives`: times a neuron's derivative by that latent, it is what the label's
    own derivative changes by when the bent part is taken out of the latent. It is zero for classes.
    """
    decoder = source.decoder
    points = source.points(times)
    with torch.no_grad():
        slopes = decoder.bent_slopes(points) * decoder.embedding_scale[:, None]
        for label in decoder.labels:
            if label.kind == "discrete":
                slopes[..., label.columns] = 0.0
            else:
                _in_label_units(decoder, label, points, slopes.transpose(1, 2))
        return slopes[decoder.group].permute(1, 0, 2, 3)


def crossed_moments(source: Source, times: IntArray) -> tuple[Array, Array, Array]:
    """Mean over time of products of each neuron's rows in the two decoders, made symmetric.

    Noise of the decoders, which is another one in each, is zero on average.

    Returns
    -------
    ndarray of shape (n_neurons, n_columns, n_columns)
    bent : ndarray of shape (n_neurons, n_columns, n_time_latents, n_label_columns)
        Of each column with every time latent's, the second times the slopes of the bent part.
    both_bent : ndarray of shape (n_neurons, n_time_latents, n_time_latents, n_label_columns)
        Of time latents' columns, both times their slopes.
    """
    n_labels = len(source.decoder.label_mean)
    totals: list[Tensor] = []
    for positions, maps in derivatives(source, times):
        slopes = bent_slopes(source, times[positions]).cpu().double()
        rows = maps.cpu().double()
        bent = rows[..., n_labels:, None] * slopes
        found = [
            torch.einsum("sni,snj->nij", rows[0], rows[1]),
            torch.einsum("sni,snjc->nijc", rows[0], bent[1])
            + torch.einsum("sni,snjc->nijc", rows[1], bent[0]),
            torch.einsum("snic,snjc->nijc", bent[0], bent[1]),
        ]
        totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
    products, crossed, both_bent = ((total / max(1, len(times))).numpy() for total in totals)
    return (
        (products + products.transpose(0, 2, 1)) / 2,
        crossed / 2,
        (both_bent + both_bent.transpose(0, 2, 1, 3)) / 2,
    )


def fit_mixtures(source: Source, times: IntArray) -> dict[str, Mixture]:
    """For each label, what the time latents' columns must add to its own to make them sparse.

    A hidden factor that is correlated with a label leaves a constant mixture of its columns in
    those of the label, and a time latent that carries a function of the label leaves the slope of
    that function times its column; see `xcebra.attribution.sparse_basis`. What correlated labels do
    to each other is not undone: they are regressed on together.
    """
    n_labels, n_time = len(source.decoder.label_mean), len(source.decoder.latent_mean)
    if n_labels == 0 or n_time == 0:
        return {}
    some = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    moments, bent, both_bent = crossed_moments(source, times[some])
    others = np.arange(n_labels, n_labels + n_time)
    found = {}
    for label in source.decoder.labels:
        mine = label.columns
        of_label = bent[..., mine]
        bends = None
        if of_label.any():
            bends = Bends(
                with_others=of_label[:, n_labels:].transpose(0, 1, 3, 2),
                with_block=np.einsum("ncjc->nj", of_label[:, mine]),
                among=both_bent[..., mine].sum(axis=3),
            )
        found[label.name] = sparsest(moments, mine, others, bends)
    return found


def variance_explained(
    source: Source, times: IntArray, blocks: Mapping[str, slice], seed: int
) -> dict[str, Array]:
    """Share of each neuron's variance that is explained on held-out time, in all and by block.

    Each decoder predicts the stretches that the other one was fitted to. A block's share is half
    the mean product of the changes that both decoders expect when that block alone is exchanged
    with other samples (the total effect of Sobol, crossed): for a neuron without signal it is zero
    on average, and may be negative.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)
        ``"all"``, and each block by its name.
    """
    decoder = source.decoder
    times, half = _judged(times)
    other = torch.from_numpy(np.random.default_rng(seed).permutation(len(times)))
    _, rows = source.inputs(times)
    neurons = source.neurons(times)
    both = expected(decoder, rows)
    held_out = _of_the_other(both, half)
    variance = neurons.var(dim=0, correction=0)
    shares = {"all": 1 - (neurons - held_out).square().mean(dim=0) / variance.clamp_min(1e-12)}
    n_labels = len(decoder.label_mean)
    columns = {label.name: label.columns for label in decoder.labels}
    if "time" in blocks:
        columns["time"] = slice(n_labels, n_labels + decoder.n_time_latents)
    for name in blocks:
        exchanged = rows.clone()
        exchanged[:, :, columns[name]] = rows[:, other.to(rows.device)][:, :, columns[name]]
        changes = expected(decoder, exchanged) - both
        shares[name] = (changes[0] * changes[1]).mean(dim=0) / 2 / variance.clamp_min(1e-12)
    varies = variance > 0
    return {
        name: torch.where(varies, share, 0.0).cpu().double().numpy()
        for name, share in shares.items()
    }


def deviance_explained(source: Source, times: IntArray) -> Array | None:
    """Share of each neuron's Poisson deviance that is explained on held-out time.

    The deviance is that from counts to what they are expected to be. Each decoder predicts the
    stretches that the other one was fitted to.

    Returns
    -------
    ndarray of shape (n_neurons,) or None
        1 for a perfect prediction, 0 for the mean; 0 for a neuron that is silent. None if the
        activity is not of counts.
    """
    times, half = _judged(times)
    counts = source.recording.rows(times).astype(np.float64)
    if (counts < 0).any() or (counts != np.round(counts)).any():
        return None
    _, rows = source.inputs(times)
    encoder = source.encoder
    predicted = _of_the_other(expected(source.decoder, rows), half) * encoder.scale + encoder.mean
    return poisson_deviance_explained(counts, predicted.cpu().double().numpy())


def poisson_deviance_explained(counts: Array, predicted: Array) -> Array:
    """Share of the Poisson deviance of each column that predictions explain, beside its mean.

    Least squares may predict rates below zero, which no count has: predictions are at least a
    tenth of the neuron's mean.
    """
    fires = counts.any(axis=0)
    mean = np.where(fires, counts.mean(axis=0), 1.0)
    rates = np.maximum(predicted, _LEAST_RATE * mean)
    logs = xlogy(counts, counts)
    left, whole = (
        (logs - xlogy(counts, rate) - counts + rate).sum(axis=0) for rate in (rates, mean)
    )
    varies = fires & (whole > 0)
    return np.where(varies, 1 - left / np.where(varies, whole, 1.0), 0.0)


def _judged(times: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """Samples to judge the decoders by, and which of the two was fitted to each."""
    half = halves(len(times))
    some = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    return times[some], half[some]


def _of_the_other(both: Tensor, half: NDArray[np.int64]) -> Tensor:
    """At each sample, the expectation of the decoder that was not fitted to it."""
    return torch.where(torch.from_numpy(half == 0).to(both.device)[:, None], both[1], both[0])


def signed_root(values: Array) -> Array:
    """Root of the absolute value, with the sign: what noise makes stays on both sides of zero."""
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

    A score is the signed root of the time mean of the product of both decoders' derivatives, summed
    over the block's columns. ``values`` are the same column by column, and zero where that product
    is negative. Maps of single steps are means of both decoders. ``made["halves_agree"]`` says for
    each block how well the rankings by each decoder alone agree, that is, by each half of the time.

    Parameters
    ----------
    source : Source
    times : ndarray of int
    names : Names
        Neurons, latents and blocks of the map asked for.
    blocks : mapping of str to slice
        All blocks of the embedding.
    request : MapRequest
    mixtures : mapping of str to Mixture
        What the columns of time add to those of a label.
    readouts : mapping of str to Readout
        From the latents of a label's block to the label.
    in_label_axes : bool
        Show a label's own columns where its block has as many latents, not the latents as learned.
    scale : Tensor of shape (n_neurons,), optional
        Units of the neurons.
    """
    keep = request.keep_time
    if keep is False and request.aggregate != "median":
        some = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
        times = times[some]
    columns = _columns(source.decoder, blocks, mixtures, readouts, in_label_axes)
    chosen = request.select if isinstance(request.select, slice) else slice(None)
    store = StepStore(keep, len(times), len(names.neurons), len(names.latents))
    products: Array | float = 0.0
    alone: dict[str, Array | float] = dict.fromkeys(blocks, 0.0)
    scores: dict[str, Array | float] = dict.fromkeys(blocks, 0.0)
    extremes: Array | None = None
    for positions, found in derivatives(source, times):
        maps = found if scale is None else found * scale[:, None]
        straightened = _straightened(source, times[positions], maps, mixtures)
        maps = torch.einsum("msnc,cd->msnd", maps, columns.undone.to(maps)) + straightened
        for name in blocks:
            mine = maps[..., columns.of_block[name]]
            both = (mine[0] * mine[1]).sum(dim=(0, 2))
            scores[name] = scores[name] + both.cpu().double().numpy()
            alone[name] = alone[name] + mine.square().sum(dim=(1, 3)).cpu().double().numpy()
        shown = torch.einsum("msnd,dl->msnl", maps, columns.shown.to(maps))[..., chosen]
        products = products + (shown[0] * shown[1]).sum(dim=0).cpu().double().numpy()
        mean = shown.mean(dim=0)
        if request.aggregate == "max":
            largest = mean.abs().amax(dim=0).cpu().double().numpy()
            extremes = largest if extremes is None else np.maximum(extremes, largest)
        store.put(positions, mean)
    made = {
        **request.described(),
        "n_samples": len(times),
        "halves_agree": {name: _rank_correlation(np.asarray(alone[name])) for name in blocks},
    }
    steps = store.steps(times)
    told = (names.blocks, names.neurons, names.latents)
    if request.aggregate in ("median", "max") and steps is not None:
        return AttributionMap.from_steps(steps, *told, aggregate=request.aggregate, made=made)
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
        # A slice of latents is no block of its own: its score is over the columns shown.
        name: whole[name] if name in whole else signed_root((np.sign(root) * root**2).sum(axis=1))
        for name in names.blocks
    }
    return AttributionMap(values, of_blocks, *told, made, steps)


def _straightened(
    source: Source, times: IntArray, maps: Tensor, mixtures: Mapping[str, Mixture]
) -> Tensor | float:
    """What labels' columns gain when bent parts are taken out of the latents, as found."""
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
    """Spearman correlation over neurons of the scores that each decoder alone would give."""
    if scores.shape[1] < 3 or (np.ptp(scores, axis=1) == 0).any():
        return None
    return round(float(spearmanr(scores[0], scores[1]).statistic), 4)


@dataclass(frozen=True, eq=False)
class _Columns:
    """From columns of derivatives to those with mixtures undone, and on to the latents shown."""

    undone: Tensor
    shown: Tensor
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
    shown = np.zeros((n_labels + n_others, n_latents))
    of_block = {}
    for label in decoder.labels:
        mine, block = label.columns, blocks[label.name]
        of_block[label.name] = mine
        if label.name in mixtures:
            undone[n_labels:, mine] = mixtures[label.name].weights
        width = block.stop - block.start
        if in_label_axes and width == mine.stop - mine.start:
            shown[mine, block] = np.eye(width)
        else:
            # How the label moves with each latent, in the label's unit.
            readout = readouts[label.name]
            unit = float(np.sqrt(np.mean(readout.spread**2))) or 1.0
            shown[mine, block] = readout.weights / unit
    if "time" in blocks:
        # Patterns that are left over stand behind, and are not shown.
        time = slice(n_labels, n_labels + decoder.n_time_latents)
        of_block["time"] = time
        shown[time, blocks["time"]] = np.eye(decoder.n_time_latents)
    return _Columns(torch.from_numpy(undone), torch.from_numpy(shown), of_block)
