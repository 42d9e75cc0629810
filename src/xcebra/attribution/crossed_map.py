"""The default map: how neurons change with labels and time latents, by two crossed decoders.

The score of a neuron is high where the derivatives of both decoders agree.
"""

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

# Means over time use at most this many samples, evenly spaced. Derivatives change slowly from
# sample to sample, so that more samples take longer and hardly change the mean. Not tuned.
MOST_SAMPLES = 4096
# Samples whose derivatives are computed at once. It changes speed and memory, not the result.
_ROWS_AT_ONCE = 256
# Smallest predicted rate of counts, as a share of the neuron's mean. Smaller values punish
# predictions near zero or below more strongly. Not tuned.
_LEAST_RATE = 0.1


@dataclass(frozen=True, eq=False)
class Source:
    """A fitted model and the recording whose map is computed.

    Parameters
    ----------
    encoder : Encoder
    embedding_decoder : Decoder
        From the embedding to the activity.
    decoder : CrossedDecoder
    recording : Activity
        A Recording, or one in which controls take the place of some neurons.
    labels : mapping of str to Label
        Known labels. Where a label is unknown or missing, the label of the nearest sample of the
        fit in the embedding is used.
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
        """The object that reads latents without the neurons of a group."""
        return self.decoder.reader(self.encoder, self.embedding_decoder, self.time_block)

    def inputs(self, times: IntArray) -> tuple[Tensor, Tensor]:
        """Label columns, and the inputs of the decoders for each group of neurons.

        Parameters
        ----------
        times : ndarray of int of shape (n_samples,)

        Returns
        -------
        points : Tensor of shape (n_samples, n_label_columns)
        rows : Tensor of shape (n_groups, n_samples, n_columns)
        """
        latents = self.reader.latents(self.recording, times)
        points = self.points(times)
        with torch.no_grad():
            return points, self.decoder.inputs(points, latents)

    def neurons(self, times: IntArray) -> Tensor:
        """Standardised activity at ``times``, of shape (n_samples, n_neurons)."""
        rows = torch.from_numpy(self.recording.rows(times)).to(self.encoder.loadings.device)
        return self.encoder.standardised(rows)

    def points(self, times: IntArray) -> Tensor:
        """Label columns at ``times``, of shape (n_samples, n_label_columns).

        Unknown values are those of the nearest sample of the fit in the embedding.
        """
        columns = np.full((len(times), len(self.decoder.label_mean)), np.nan)
        for label in self.decoder.labels:
            if label.name in self.labels:
                measured = self.labels[label.name]
                known = measured.valid[times]
                columns[known, label.columns] = measured.points[times[known]]
        points = torch.from_numpy(columns.astype(np.float32)).to(self.decoder.label_mean)
        missing = torch.isnan(points)
        if missing.any():
            embedding = embed(self.encoder, self.recording, times)
            points = torch.where(missing, self.decoder.nearest_labels(embedding), points)
        return points


def derivatives(
    source: Source, times: IntArray
) -> Iterator[tuple[IntArray, Float[Tensor, "member sample neuron column"]]]:
    """Yield the derivatives of each neuron's expected activity by both decoders, in batches.

    The columns are those of the labels, followed by the time latents:

    - for a continuous label, derivatives per standard deviation of the label, which is the same
      for all columns of the label;
    - for a circular label, derivatives along the circle, as their parts along cosine and sine;
    - for a discrete label, differences from the mean over classes, times the square root of the
      share of samples in the class;
    - for a time latent, derivatives per unit of the embedding.

    Neurons are in units of their standard deviation.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)
        Samples of the recording.

    Yields
    ------
    positions : ndarray of int of shape (n_samples,)
        Positions of the samples of this batch in ``times``.
    maps : Tensor of shape (2, n_samples, n_neurons, n_columns)
        Derivatives of the two decoders.
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
                    layers = (*list(member)[:-1], _select_outputs(last, own))  # type: ignore[call-overload]
                    maps[k][:, own] = jacobian(layers, rows[g])
            for label in decoder.labels:
                _by_label(source.decoder, label, points, rows, maps)
            n_columns = len(decoder.label_mean)
            maps[..., n_columns:] /= decoder.embedding_scale
        yield positions, maps


def _select_outputs(layer: torch.nn.Module, chosen: Tensor) -> torch.nn.Linear:
    """A linear layer with only those outputs that belong to the chosen neurons."""
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
    """Convert derivatives by standardised columns to those of the label's kind, in place."""
    columns = label.columns
    if label.kind != "discrete":
        _in_label_units(decoder, label, points, maps.transpose(1, 2))
        return
    scale, shares = decoder.label_scale[columns], decoder.class_shares[columns]
    classes = torch.eye(columns.stop - columns.start, device=points.device)
    predictions = []
    for indicator in classes:
        moved = rows.clone()
        moved[:, :, columns] = (indicator - decoder.label_mean[columns]) / scale
        predictions.append(expected(decoder, moved))
    levels = torch.stack(predictions, dim=3)
    contrasts = levels - (levels * shares).sum(dim=3, keepdim=True)
    maps[..., columns] = contrasts * shares.sqrt()


def _in_label_units(
    decoder: CrossedDecoder, label: LabelColumns, points: Tensor, values: Tensor
) -> None:
    """Convert slopes by standardised columns to the unit of the label, in place.

    ``values`` has shape (..., n_samples, n_columns).
    """
    columns = label.columns
    scale = decoder.label_scale[columns]
    if label.kind == "continuous":
        # All columns of a label have the same unit, so that they keep their proportions.
        values[..., columns] *= scale.square().mean().sqrt() / scale
        return
    tangent = torch.stack([-points[:, columns.start + 1], points[:, columns.start]], dim=1)
    by_angle = (values[..., columns] * (tangent / scale)).sum(dim=-1)
    values[..., columns] = by_angle[..., None] * tangent


def bent_slopes(source: Source, times: IntArray) -> Float[Tensor, "sample neuron latent column"]:
    """Derivatives by the labels of the bent part of the latents that explain each neuron.

    The bent part of a latent is the part that is a non-linear function of the labels. The units
    are those of `derivatives`: the slope times the neuron's derivative by the latent is the change
    of its derivative by the label when the bent part is removed from the latent. The slopes are
    zero for discrete labels.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_samples,)

    Returns
    -------
    Tensor of shape (n_samples, n_neurons, n_time_latents, n_label_columns)
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
    """Mean over time of the products of each neuron's rows in the two decoders, symmetrised.

    The noise of the two decoders is independent, so that its products are zero on average.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    products : ndarray of shape (n_neurons, n_columns, n_columns)
        Products of the columns.
    bent : ndarray of shape (n_neurons, n_columns, n_time_latents, n_label_columns)
        Products of each column with every time latent's column times the slope of its bent part.
    both_bent : ndarray of shape (n_neurons, n_time_latents, n_time_latents, n_label_columns)
        Products of the time latents' columns, each times the slope of its bent part.
    """
    n_labels = len(source.decoder.label_mean)
    totals: list[Tensor] = []
    for positions, maps in derivatives(source, times):
        slopes = bent_slopes(source, times[positions]).cpu().double()
        rows = maps.cpu().double()
        bent = rows[..., n_labels:, None] * slopes
        sums = [
            torch.einsum("sni,snj->nij", rows[0], rows[1]),
            torch.einsum("sni,snjc->nijc", rows[0], bent[1])
            + torch.einsum("sni,snjc->nijc", rows[1], bent[0]),
            torch.einsum("snic,snjc->nijc", bent[0], bent[1]),
        ]
        totals = [a + b for a, b in zip(totals, sums, strict=True)] if totals else sums
    products, crossed, both_bent = ((total / max(1, len(times))).numpy() for total in totals)
    return (
        (products + products.transpose(0, 2, 1)) / 2,
        crossed / 2,
        (both_bent + both_bent.transpose(0, 2, 1, 3)) / 2,
    )


def fit_mixtures(source: Source, times: IntArray) -> dict[str, Mixture]:
    """For each label, the mixture of time latents' columns that makes its own columns sparse.

    A hidden factor that is correlated with a label leaves a constant mixture of its columns in
    those of the label. A time latent that carries a function of the label leaves its column times
    the slope of that function. See `xcebra.attribution.sparse_basis`. Mixtures of correlated
    labels with each other are not undone: the decoders are fitted to all labels together.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    dict of str to Mixture
        The mixture of each label by its name; empty without labels or without time latents.
    """
    n_labels, n_time = len(source.decoder.label_mean), len(source.decoder.latent_mean)
    if n_labels == 0 or n_time == 0:
        return {}
    positions = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    moments, bent, both_bent = crossed_moments(source, times[positions])
    others = np.arange(n_labels, n_labels + n_time)
    mixtures = {}
    for label in source.decoder.labels:
        columns = label.columns
        of_label = bent[..., columns]
        bends = None
        if of_label.any():
            bends = Bends(
                with_others=of_label[:, n_labels:].transpose(0, 1, 3, 2),
                with_block=np.einsum("ncjc->nj", of_label[:, columns]),
                among=both_bent[..., columns].sum(axis=3),
            )
        mixtures[label.name] = sparsest(moments, columns, others, bends)
    return mixtures


def variance_explained(
    source: Source, times: IntArray, blocks: Mapping[str, slice], seed: int
) -> dict[str, Array]:
    """Share of each neuron's variance explained on held-out time, by all blocks and by each.

    Each decoder predicts the stretches of time that the other one was fitted to. The share of a
    block is half the mean product of the changes that the two decoders predict when the values of
    this block alone are exchanged with those of other samples (Sobol's total effect, with one
    factor of the product from each decoder). For a neuron without signal it is zero on average,
    and it can be negative.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)
    blocks : mapping of str to slice
    seed : int
        For the exchange of samples.

    Returns
    -------
    dict of str to ndarray of shape (n_neurons,)
        The share of all blocks together as ``"all"``, and that of each block by its name.
    """
    decoder = source.decoder
    times, half = _judged(times)
    other = torch.from_numpy(np.random.default_rng(seed).permutation(len(times)))
    _, rows = source.inputs(times)
    neurons = source.neurons(times)
    predictions = expected(decoder, rows)
    held_out = _of_the_other(predictions, half)
    variance = neurons.var(dim=0, correction=0)
    shares = {"all": 1 - (neurons - held_out).square().mean(dim=0) / variance.clamp_min(1e-12)}
    n_labels = len(decoder.label_mean)
    columns = {label.name: label.columns for label in decoder.labels}
    if "time" in blocks:
        columns["time"] = slice(n_labels, n_labels + decoder.n_time_latents)
    for name in blocks:
        exchanged = rows.clone()
        exchanged[:, :, columns[name]] = rows[:, other.to(rows.device)][:, :, columns[name]]
        changes = expected(decoder, exchanged) - predictions
        shares[name] = (changes[0] * changes[1]).mean(dim=0) / 2 / variance.clamp_min(1e-12)
    varies = variance > 0
    return {
        name: torch.where(varies, share, 0.0).cpu().double().numpy()
        for name, share in shares.items()
    }


def deviance_explained(source: Source, times: IntArray) -> Array | None:
    """Share of each neuron's Poisson deviance that is explained on held-out time.

    Each decoder predicts the stretches of time that the other one was fitted to.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    ndarray of shape (n_neurons,) or None
        1 for a perfect prediction, 0 for a prediction by the mean, and 0 for a silent neuron. None
        if the activity is not counts.
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
    """Share of each column's Poisson deviance from its mean that predictions explain.

    Least squares can predict negative rates, for which the deviance is not defined. Predictions
    are therefore raised to at least a tenth of the neuron's mean.

    Parameters
    ----------
    counts, predicted : ndarray of shape (n_times, n_neurons)

    Returns
    -------
    ndarray of shape (n_neurons,)
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
    """Samples to evaluate the decoders on, and for each the decoder that was fitted to it."""
    half = halves(len(times))
    positions = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    return times[positions], half[positions]


def _of_the_other(predictions: Tensor, half: NDArray[np.int64]) -> Tensor:
    """At each sample, the prediction of the decoder that was not fitted to it."""
    fitted_by_first = torch.from_numpy(half == 0).to(predictions.device)[:, None]
    return torch.where(fitted_by_first, predictions[1], predictions[0])


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
