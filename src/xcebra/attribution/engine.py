"""Compute attribution maps of networks over samples."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcebra.attribution import methods
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.methods import Layers
from xcebra.attribution.request import MapRequest, Names
from xcebra.attribution.step_store import StepStore
from xcebra.attribution.steps import Gather, Steps
from xcebra.data.epochs import IntArray, evenly_spaced, samples_before
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder
from xcebra.networks.jacobian import Inverse, flat_layers, invert, is_linear, linearise

# Most samples in a chunk. Nearest neighbours are searched, and random numbers drawn, in each chunk.
_CHUNK = 8192
# Most floats in the Jacobians of a chunk, which are held in memory together when they are averaged
# over neighbours, and the fewest samples of a chunk in that case. Not tuned.
_CHUNK_FLOATS = 2**27
_LEAST_CHUNK = 256
# Most samples from which shuffled baselines are made. More samples take more memory. Not tuned.
_BACKGROUND = 8192
# Floats in the largest array of a batch, so that it stays approximately within the CPU caches.
_BATCH_FLOATS = 2**19


@dataclass(frozen=True, eq=False)
class View:
    """A network in the form that a family of methods needs.

    Parameters
    ----------
    layers : tuple of Module
        Layers from the inputs to the outputs that are attributed.
    enter : callable
        Function from raw samples to those inputs.
    baseline : Tensor, optional
        The input that stands for zero activity.
    loadings : Tensor of shape (n_neurons, n_components), optional
        Orthonormal columns that convert attributions of components to attributions of neurons.
    scale : Tensor of shape (n_neurons,), optional
        Factors that convert attributions to the requested units.
    lags : tuple of int
        Lags of the samples that an output is computed from, in the order of the inputs. It is
        empty if there is a single sample.
    """

    layers: Layers
    enter: Callable[[Tensor], Tensor]
    baseline: Tensor | None = None
    loadings: Tensor | None = None
    scale: Tensor | None = None
    lags: tuple[int, ...] = ()


@dataclass(eq=False)
class _Work:
    """Everything that is needed while a map is computed, and the conditioning of its Jacobians."""

    view: View
    request: MapRequest
    read: Callable[[IntArray], Tensor]
    axes: Tensor | None  # for rows of derivatives of outputs by inputs
    inverse_axes: Tensor | None  # for rows of derivatives of inputs by latents
    background: Tensor | None = None
    conditions: _Conditions = field(default_factory=lambda: _Conditions())


def _gradient(work: _Work, jacobians: Tensor) -> Tensor:
    return _in_axes(work.axes, jacobians)


def _inverted(work: _Work, jacobians: Tensor) -> Tensor:
    # The inverse is taken in the axes as learned, so that neither the cut-off of singular values
    # nor the condition number depends on the scale of new axes.
    inverse = invert(jacobians.flatten(2))  # over neurons and lags together
    work.conditions.add(inverse, jacobians.shape[1])
    return _in_axes(work.inverse_axes, inverse.values.mT.reshape(jacobians.shape))


def _decoder(work: _Work, jacobians: Tensor) -> Tensor:
    return _in_axes(work.inverse_axes, jacobians.mT)


def _integrated(work: _Work, x: Tensor, chosen: Tensor, far: Tensor) -> Tensor:
    return methods.integrated_gradients(work.view.layers, x, _baseline(work))


def _shap_zeros(work: _Work, x: Tensor, chosen: Tensor, far: Tensor) -> Tensor:
    at_zero = torch.zeros_like(chosen)
    return methods.gradient_shap(work.view.layers, x, _baseline(work)[None], at_zero, far)


def _shap_shuffled(work: _Work, x: Tensor, chosen: Tensor, far: Tensor) -> Tensor:
    assert work.background is not None  # drawn in `make_map`
    return methods.gradient_shap(work.view.layers, x, work.background, chosen, far)


def _ablation(work: _Work, x: Tensor, chosen: Tensor, far: Tensor) -> Tensor:
    return methods.feature_ablation(work.view.layers, x, _baseline(work))


def _in_axes(axes: Tensor | None, rows: Tensor) -> Tensor:
    return rows if axes is None else torch.einsum("ij,sj...->si...", axes, rows)


def _baseline(work: _Work) -> Tensor:
    assert work.view.baseline is not None  # every view for contributions has a baseline
    return work.view.baseline


# Functions from Jacobians, (sample, output, input), to rows of the map, (sample, latent, input).
DERIVATIVES: Mapping[str, Callable[[_Work, Tensor], Tensor]] = {
    "decoder-gradient": _decoder,
    "inverted-gradient": _inverted,
    "gradient": _gradient,
}
# Functions from samples and random numbers to rows of the map, (sample, latent, input).
CONTRIBUTIONS: Mapping[str, Callable[[_Work, Tensor, Tensor, Tensor], Tensor]] = {
    "integrated-gradients": _integrated,
    "shap-zeros": _shap_zeros,
    "shap-shuffled": _shap_shuffled,
    "feature-ablation": _ablation,
}


def view_of_model(encoder: Encoder, decoder: Decoder, method: str, units: str) -> View:
    """A fitted model in the form that a method needs.

    Derivatives are taken with respect to the principal components, which are few, and
    contributions with respect to the standardised neurons. The baseline is zero activity in the
    units of the recording. A contribution has the unit of its latent and does not depend on the
    units of the neurons.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
    method : str
    units : {"standardised", "raw"}
    """
    scale = None
    if units == "raw":
        scale = encoder.reciprocal if method == "gradient" else encoder.scale
    if method == "decoder-gradient":
        layers = flat_layers(decoder.network)
        return View(layers, encoder, loadings=decoder.loadings, scale=scale)
    layers = flat_layers(encoder.network)
    lags = _lags(encoder.window)
    if method in DERIVATIVES:
        return View(layers, encoder.components, None, encoder.loadings, scale, lags)
    baseline = encoder.standardised(torch.zeros_like(encoder.mean)).repeat(encoder.window)
    layers = (encoder.first_product(), *layers[1:])
    return View(layers, lambda x: encoder.standardised(x).flatten(1), baseline, lags=lags)


def _lags(window: int) -> tuple[int, ...]:
    before = samples_before(window)
    return tuple(range(-before, window - before)) if window > 1 else ()


def view_of_module(module: nn.Module, like: Tensor) -> View:
    """A torch module in the form that every method needs, with zeros as the baseline.

    Parameters
    ----------
    module : Module
    like : Tensor of shape (n_neurons,) or (n_neurons, n_lags)
        A sample, for its shape, precision and device.
    """
    layers = flat_layers(module)
    if like.ndim > 1 and is_linear(layers[0]):
        # A linear layer acts here on the lags of each neuron and not on whole samples, so that
        # methods must not treat it as a product with the whole sample.
        layers = (nn.Identity(), *layers)
    lags = tuple(range(like.shape[1])) if like.ndim > 1 else ()
    return View(layers, lambda x: x, torch.zeros_like(like), lags=lags)


def make_map(
    view: View,
    read: Callable[[IntArray], Tensor],
    times: IntArray,
    names: Names,
    request: MapRequest,
) -> AttributionMap:
    """Attribute the latents to the neurons at ``times`` and aggregate over time.

    Parameters
    ----------
    view : View
    read : callable
        Function from sample indices to raw samples of shape (n_samples, n_neurons) or
        (n_samples, n_neurons, n_lags).
    times : ndarray of int of shape (n_times,)
        Samples of the map.
    names : Names
        Neurons, latents and blocks of the map.
    request : MapRequest
    """
    described = request.described()
    with torch.no_grad():
        if request.method in CONTRIBUTIONS:
            view, request = _read_off(view, read, times, request)
        work = _Work(view, request, read, *_axes(view, read, times, request))
        if request.method == "shap-shuffled":
            work.background = view.enter(_shuffled(read, times, request.seed))
        blocks = tuple(names.blocks.values())
        gather = Gather(request.aggregate, blocks)
        by_lag = {lag: Gather(request.aggregate, blocks) for lag in view.lags}
        store = StepStore(request.keep_time, len(times), len(names.neurons), len(names.latents))
        for where, rows in _row_batches(work, times):
            rows = _finished(work, rows)
            # Half precision is not accurate enough for sums over time.
            rows = rows if rows.dtype == torch.float64 else rows.float()
            maps = _over_lags(rows).mT
            if request.aggregate != "median":
                gather.add(maps)
                for i, lag_gather in enumerate(by_lag.values()):
                    lag_gather.add(rows[:, :, i].mT)
            store.put(where, maps)
    details = {**described, "n_samples": len(times), **work.conditions.summary()}
    steps = store.steps(times)
    if request.aggregate == "median" and steps is not None:
        return AttributionMap.from_steps(
            steps, names.blocks, names.neurons, names.latents, aggregate="median", made=details
        )

    def map_of(gathered: Gather, map_steps: Steps | None, **fields: Any) -> AttributionMap:
        values, block_scores = gathered.result()
        scores = dict(zip(names.blocks, block_scores, strict=True))
        others = (names.blocks, names.neurons, names.latents, details, map_steps)
        return AttributionMap(values, scores, *others, **fields)

    lags = {lag: map_of(lag_gather, None) for lag, lag_gather in by_lag.items()}
    return map_of(gather, steps, lags=lags)


def moments(
    view: View,
    read: Callable[[IntArray], Tensor],
    times: IntArray,
    request: MapRequest,
) -> NDArray[np.float64]:
    """Mean over time of the outer product of each neuron's row of the map with itself.

    Parameters
    ----------
    view, read, times, request
        As for `make_map`.

    Returns
    -------
    ndarray of shape (n_neurons, n_latents, n_latents)
    """
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        work = _Work(view, request, read, *_axes(view, read, times, request))
        for _, rows in _row_batches(work, times):
            maps = _over_lags(_finished(work, rows)).cpu().double()
            total = total + torch.einsum("sin,sjn->nij", maps, maps)
    return (total / len(times)).numpy()


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """Context in which a module is in evaluation mode; afterwards its own modes are restored.

    In the context, activations do not change their inputs in place, because the inputs are still
    needed for derivatives.
    """
    modes = [(part, part.training) for part in module.modules()]
    in_place = [part for part in module.modules() if getattr(part, "inplace", None) is True]
    module.eval()
    for part in in_place:
        part.inplace = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for part in in_place:
            part.inplace = True  # type: ignore[assignment]


def _row_batches(work: _Work, times: IntArray) -> Iterator[tuple[IntArray, Tensor]]:
    """Yield positions in ``times`` and the rows of the map there, (sample, latent, input)."""
    positions = np.arange(len(times))
    size = _CHUNK
    if work.request.smooth > 1:
        # All Jacobians of a chunk are held in memory at once.
        size = int(np.clip(_CHUNK_FLOATS // _widths(work, times)[1], _LEAST_CHUNK, _CHUNK))
    n_chunks = -(-len(times) // size)
    for i in range(n_chunks):
        if work.request.smooth > 1:
            # Every chunk covers the whole recording, so that it contains near neighbours.
            chunk = positions[i::n_chunks]
        else:
            chunk = positions[i * size : (i + 1) * size]
        if work.request.method in DERIVATIVES:
            yield from _derivatives(work, times, chunk)
        else:
            yield from _contributions(work, times, chunk, i)


def _derivatives(
    work: _Work, times: IntArray, chunk: IntArray
) -> Iterator[tuple[IntArray, Tensor]]:
    finish = DERIVATIVES[work.request.method]
    smooth = min(work.request.smooth, len(chunk))
    chunk_jacobians, embedding = [], []
    for part in _batches(work, times, chunk):
        x = work.view.enter(work.read(times[part]))
        linearised = linearise(work.view.layers, x)
        jacobians = linearised.jacobian()
        if smooth <= 1:
            yield part, finish(work, jacobians)
        else:
            chunk_jacobians.append(jacobians)
            embedding.append(x if work.request.method == "decoder-gradient" else linearised.output)
    if smooth > 1:
        averaged = _averaged(torch.cat(chunk_jacobians), torch.cat(embedding), smooth)
        at_once = len(chunk_jacobians[0])
        parts = [chunk[a : a + at_once] for a in range(0, len(chunk), at_once)]
        for part, jacobians in zip(parts, averaged.split(at_once), strict=True):
            yield part, finish(work, jacobians)


def _contributions(
    work: _Work, times: IntArray, chunk: IntArray, number: int
) -> Iterator[tuple[IntArray, Tensor]]:
    finish = CONTRIBUTIONS[work.request.method]
    # Random numbers are drawn for a whole chunk, so that they do not depend on the batch size.
    rng = np.random.default_rng([work.request.seed, number])
    shape = (methods.SHAP_DRAWS, len(chunk))
    n_baselines = 1 if work.background is None else len(work.background)
    chosen, far = rng.integers(n_baselines, size=shape), rng.random(shape)
    done = 0
    for part in _batches(work, times, chunk):
        x = work.view.enter(work.read(times[part]))
        drawn = slice(done, done + len(part))
        done += len(part)
        rows = finish(
            work,
            x,
            torch.from_numpy(chosen[:, drawn]).to(x.device),
            torch.from_numpy(far[:, drawn]).to(x),
        )
        yield part, rows


def _batches(work: _Work, times: IntArray, chunk: IntArray) -> list[IntArray]:
    # The number of samples for which the largest array of a batch stays within the CPU caches.
    fitting = int(np.clip(_BATCH_FLOATS // _widths(work, times)[0], 16, 1024))
    size = work.request.batch_size or fitting
    return [chunk[a : a + size] for a in range(0, len(chunk), size)]


def _widths(work: _Work, times: IntArray) -> tuple[int, int]:
    """Floats per sample in the largest array that its Jacobian needs, and in the Jacobian."""
    linearised = linearise(work.view.layers, work.view.enter(work.read(times[:1])))
    n_inputs, n_outputs = linearised.inputs[0][0].numel(), linearised.output.shape[1]
    widest = max(values[0].numel() for values in (*linearised.inputs, linearised.output))
    return widest * min(n_inputs, n_outputs), n_inputs * n_outputs


def _finished(work: _Work, rows: Tensor) -> Tensor:
    """Rows in the requested directions, neurons and units, (sample, latent, neuron).

    If outputs are computed from several lags, they are (sample, latent, lag, neuron).
    """
    select, view = work.request.select, work.view
    if isinstance(select, slice):
        rows = rows[:, select]
    elif select is not None:
        rows = _in_axes(torch.from_numpy(select).to(rows.dtype).to(rows.device), rows)
    if rows.ndim > 3:
        rows = rows.mT  # the inputs of a torch module have the lags last
    elif view.lags:
        rows = rows.unflatten(2, (len(view.lags), -1))
    if view.loadings is not None:
        rows = rows @ view.loadings.T
    return rows if view.scale is None else rows * view.scale


def _over_lags(rows: Tensor) -> Tensor:
    """The norm over lags, if rows have lags."""
    return torch.linalg.vector_norm(rows, dim=2) if rows.ndim > 3 else rows


def _averaged(jacobians: Tensor, embedding: Tensor, smooth: int) -> Tensor:
    """Average each Jacobian over the nearest samples in the embedding, itself included."""
    result = torch.zeros_like(jacobians)
    embedding = embedding.float() if embedding.dtype != torch.float64 else embedding
    for rows, target in zip(embedding.split(1024), result.split(1024), strict=True):
        # Distances are computed from differences: the faster form with matrix products is not
        # accurate enough for points far from the origin.
        distances = torch.cdist(rows, embedding, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.topk(smooth, dim=1, largest=False).indices
        for column in nearest.unbind(dim=1):
            target += jacobians[column]
    return result.div_(smooth)


def _axes(
    view: View, read: Callable[[IntArray], Tensor], times: IntArray, request: MapRequest
) -> tuple[Tensor | None, Tensor | None]:
    """New axes and their transposed inverse, with the device and precision of the rows."""
    if request.axes is None:
        return None, None
    like = view.enter(read(times[:1]))
    inverse = np.ascontiguousarray(np.linalg.inv(request.axes).T)
    tensors = (
        torch.from_numpy(matrix).to(like.dtype).to(like.device)
        for matrix in (request.axes, inverse)
    )
    return next(tensors), next(tensors)


def _read_off(
    view: View, read: Callable[[IntArray], Tensor], times: IntArray, request: MapRequest
) -> tuple[View, MapRequest]:
    """A view whose outputs are the requested latents or directions, in the requested axes.

    Contributions are linear in the outputs, so that a further linear layer can select and rotate
    them. Contributions to other outputs are then not computed.
    """
    if request.axes is None and request.select is None:
        return view, request
    like = view.enter(read(times[:1]))
    n_outputs = linearise(view.layers, like).output.shape[1]
    rows = np.eye(n_outputs) if request.axes is None else request.axes
    if isinstance(request.select, slice):
        rows = rows[request.select]
    elif request.select is not None:
        rows = request.select @ rows
    last = nn.utils.skip_init(nn.Linear, n_outputs, len(rows), bias=False, dtype=like.dtype)
    last.weight.copy_(torch.from_numpy(rows))
    last = last.to(like.device)
    return replace(view, layers=(*view.layers, last)), replace(request, axes=None, select=None)


def _shuffled(read: Callable[[IntArray], Tensor], times: IntArray, seed: int) -> Tensor:
    """Samples whose entries are shuffled over time and neurons together."""
    x = read(evenly_spaced(times, _BACKGROUND))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(x.numel()))
    return x.flatten()[order.to(x.device)].reshape(x.shape)


class _Conditions:
    """Condition numbers of the inverted Jacobians, with four bytes per sample."""

    def __init__(self) -> None:
        self._conditions = array("f")
        self._rank_lost = 0

    def add(self, inverse: Inverse, n_latents: int) -> None:
        # A list of small tensors, allocated between large temporary ones, would fragment memory.
        self._conditions.frombytes(inverse.condition.float().numpy().tobytes())
        self._rank_lost += int((inverse.rank < n_latents).sum())

    def summary(self) -> dict[str, float]:
        if not self._conditions:
            return {}
        condition = np.frombuffer(self._conditions, dtype=np.float32)
        return {
            "condition_median": float(np.median(condition)),
            "condition_worst": float(condition.max()),
            "rank_lost": self._rank_lost / len(condition),
        }
