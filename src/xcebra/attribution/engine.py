"""From a network and samples to an attribution map."""

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
from xcebra.attribution.attribution_map import AttributionMap, Gather, Steps
from xcebra.attribution.methods import Layers
from xcebra.attribution.request import MapRequest, Names
from xcebra.attribution.step_store import StepStore
from xcebra.data.epochs import IntArray, evenly_spaced, samples_before
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder
from xcebra.networks.jacobian import Inverse, flat_layers, invert, is_linear, linearise

# Neighbours are sought, and random draws made, among this many samples at a time.
_CHUNK = 8192
_CHUNK_FLOATS = 2**27
_LEAST_CHUNK = 256
_BACKGROUND = 8192
# Floats in the largest array of one batch: about what stays in the caches.
_BATCH_FLOATS = 2**19


@dataclass(frozen=True, eq=False)
class View:
    """A network as one family of methods sees it.

    Parameters
    ----------
    layers : tuple of Module
        From the inputs to the outputs whose derivatives or changes are attributed.
    enter : callable
        From raw samples to those inputs.
    baseline : Tensor, optional
        What stands for the absence of activity, as an input.
    loadings : Tensor of shape (n_neurons, n_components), optional
        Orthonormal columns that take attributions to components on to neurons.
    scale : Tensor of shape (n_neurons,), optional
        What takes attributions on to the units asked for.
    lags : tuple of int
        Of the samples that an output is read from, in the order of the inputs, lag by lag; empty if
        there is one.
    """

    layers: Layers
    enter: Callable[[Tensor], Tensor]
    baseline: Tensor | None = None
    loadings: Tensor | None = None
    scale: Tensor | None = None
    lags: tuple[int, ...] = ()


@dataclass(eq=False)
class _Work:
    """What is at hand while a map is made, and what it tells about the inverses taken."""

    view: View
    request: MapRequest
    read: Callable[[IntArray], Tensor]
    axes: Tensor | None  # for rows of outputs
    inverse_axes: Tensor | None  # for rows that say how inputs move with latents
    background: Tensor | None = None
    conditions: _Conditions = field(default_factory=lambda: _Conditions())


def _gradient(work: _Work, jacobians: Tensor) -> Tensor:
    return _in_axes(work.axes, jacobians)


def _inverted(work: _Work, jacobians: Tensor) -> Tensor:
    # As learned, so that neither the cut-off nor the conditioning depends on the scale of axes.
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
    assert work.view.baseline is not None  # every view of contributions has one
    return work.view.baseline


# From Jacobians, (sample, output, input), to rows of the map, (sample, latent, input).
DERIVATIVES: Mapping[str, Callable[[_Work, Tensor], Tensor]] = {
    "decoder-gradient": _decoder,
    "inverted-gradient": _inverted,
    "gradient": _gradient,
}
# From samples and random draws to rows of the map.
CONTRIBUTIONS: Mapping[str, Callable[[_Work, Tensor, Tensor, Tensor], Tensor]] = {
    "integrated-gradients": _integrated,
    "shap-zeros": _shap_zeros,
    "shap-shuffled": _shap_shuffled,
    "feature-ablation": _ablation,
}


def view_of_model(encoder: Encoder, decoder: Decoder, method: str, units: str) -> View:
    """How a method sees a fitted model.

    Derivatives are taken by the components, which are few, and contributions by the standardised
    neurons; zero activity is zero as recorded. A contribution has the unit of its latent, so that
    the neurons' units make no difference.
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
    """How every method sees a module of its own: as it is, with zeros as baseline."""
    layers = flat_layers(module)
    if like.ndim > 1 and is_linear(layers[0]):
        # It acts on the lags of each neuron: not the product with whole samples that methods share.
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
    """Attribute the latents to the neurons at ``times`` and aggregate.

    ``read`` gives the raw samples at some times, (sample, neuron) or (sample, neuron, lag).
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
            # Half precision is not enough to sum over time.
            rows = rows if rows.dtype == torch.float64 else rows.float()
            maps = _over_lags(rows).mT
            if request.aggregate != "median":
                gather.add(maps)
                for i, each in enumerate(by_lag.values()):
                    each.add(rows[:, :, i].mT)
            store.put(where, maps)
    made = {**described, "n_samples": len(times), **work.conditions.summary()}
    steps = store.steps(times)
    if request.aggregate == "median" and steps is not None:
        return AttributionMap.from_steps(
            steps, names.blocks, names.neurons, names.latents, aggregate="median", made=made
        )

    def summed_up(gathered: Gather, kept: Steps | None, **more: Any) -> AttributionMap:
        values, found = gathered.result()
        scores = dict(zip(names.blocks, found, strict=True))
        told = (names.blocks, names.neurons, names.latents, made, kept)
        return AttributionMap(values, scores, *told, **more)

    lags = {lag: summed_up(each, None) for lag, each in by_lag.items()}
    return summed_up(gather, steps, lags=lags)


def moments(
    view: View,
    read: Callable[[IntArray], Tensor],
    times: IntArray,
    request: MapRequest,
) -> NDArray[np.float64]:
    """Mean over time of each neuron's row of the map times itself, (neuron, latent, latent)."""
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        work = _Work(view, request, read, *_axes(view, read, times, request))
        for _, rows in _row_batches(work, times):
            maps = _over_lags(_finished(work, rows)).cpu().double()
            total = total + torch.einsum("sin,sjn->nij", maps, maps)
    return (total / len(times)).numpy()


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every part of the module is in its own mode again after.

    Nor do activations change their inputs in place, which are still needed.
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
    """Rows of the map, (sample, latent, input), and the positions in ``times`` they belong to."""
    positions = np.arange(len(times))
    size = _CHUNK
    if work.request.smooth > 1:
        # All Jacobians of a chunk are held at once.
        size = int(np.clip(_CHUNK_FLOATS // _widths(work, times)[1], _LEAST_CHUNK, _CHUNK))
    n_chunks = -(-len(times) // size)
    for i in range(n_chunks):
        if work.request.smooth > 1:
            # Every chunk covers the whole recording, so that neighbours can be near.
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
    found, embedding = [], []
    for part in _batches(work, times, chunk):
        x = work.view.enter(work.read(times[part]))
        at = linearise(work.view.layers, x)
        jacobians = at.jacobian()
        if smooth <= 1:
            yield part, finish(work, jacobians)
        else:
            found.append(jacobians)
            embedding.append(x if work.request.method == "decoder-gradient" else at.output)
    if smooth > 1:
        averaged = _averaged(torch.cat(found), torch.cat(embedding), smooth)
        at_once = len(found[0])
        parts = [chunk[a : a + at_once] for a in range(0, len(chunk), at_once)]
        for part, jacobians in zip(parts, averaged.split(at_once), strict=True):
            yield part, finish(work, jacobians)


def _contributions(
    work: _Work, times: IntArray, chunk: IntArray, number: int
) -> Iterator[tuple[IntArray, Tensor]]:
    finish = CONTRIBUTIONS[work.request.method]
    # Draws belong to the samples of a chunk, however it is cut into batches.
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
    # As many samples as keep the largest array of a batch in the caches.
    fitting = int(np.clip(_BATCH_FLOATS // _widths(work, times)[0], 16, 1024))
    size = work.request.batch_size or fitting
    return [chunk[a : a + size] for a in range(0, len(chunk), size)]


def _widths(work: _Work, times: IntArray) -> tuple[int, int]:
    """Floats of one sample in the largest array on the way to its Jacobian, and in that."""
    at = linearise(work.view.layers, work.view.enter(work.read(times[:1])))
    n_inputs, n_outputs = at.inputs[0][0].numel(), at.output.shape[1]
    widest = max(entered[0].numel() for entered in (*at.inputs, at.output))
    return widest * min(n_inputs, n_outputs), n_inputs * n_outputs


def _finished(work: _Work, rows: Tensor) -> Tensor:
    """Rows in the directions, neurons and units asked for: (sample, latent, neuron).

    Where outputs are read from several lags, (sample, latent, lag, neuron).
    """
    select, view = work.request.select, work.view
    if isinstance(select, slice):
        rows = rows[:, select]
    elif select is not None:
        rows = _in_axes(torch.from_numpy(select).to(rows.dtype).to(rows.device), rows)
    if rows.ndim > 3:
        rows = rows.mT  # a module of its own has its lags last
    elif view.lags:
        rows = rows.unflatten(2, (len(view.lags), -1))
    if view.loadings is not None:
        rows = rows @ view.loadings.T
    return rows if view.scale is None else rows * view.scale


def _over_lags(rows: Tensor) -> Tensor:
    """The norm over lags, if there are several."""
    return torch.linalg.vector_norm(rows, dim=2) if rows.ndim > 3 else rows


def _averaged(jacobians: Tensor, embedding: Tensor, smooth: int) -> Tensor:
    result = torch.zeros_like(jacobians)
    embedding = embedding.float() if embedding.dtype != torch.float64 else embedding
    for rows, target in zip(embedding.split(1024), result.split(1024), strict=True):
        # By differences: the faster form by products confuses neighbours far from the origin.
        apart = torch.cdist(rows, embedding, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = apart.topk(smooth, dim=1, largest=False).indices
        for column in nearest.unbind(dim=1):
            target += jacobians[column]
    return result.div_(smooth)


def _axes(
    view: View, read: Callable[[IntArray], Tensor], times: IntArray, request: MapRequest
) -> tuple[Tensor | None, Tensor | None]:
    """New axes, and their transposed inverse, where and in what precision the rows will be."""
    if request.axes is None:
        return None, None
    like = view.enter(read(times[:1]))
    inverse = np.ascontiguousarray(np.linalg.inv(request.axes).T)
    both = (
        torch.from_numpy(each).to(like.dtype).to(like.device) for each in (request.axes, inverse)
    )
    return next(both), next(both)


def _read_off(
    view: View, read: Callable[[IntArray], Tensor], times: IntArray, request: MapRequest
) -> tuple[View, MapRequest]:
    """A view whose outputs are what is asked for, in its axes: nothing else is then computed.

    Contributions are linear in the outputs, so that a last layer may choose and turn them.
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
    """Samples whose entries were shuffled over time and neurons."""
    x = read(evenly_spaced(times, _BACKGROUND))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(x.numel()))
    return x.flatten()[order.to(x.device)].reshape(x.shape)


class _Conditions:
    """How well conditioned the inverted Jacobians were, in four bytes a sample."""

    def __init__(self) -> None:
        self._found = array("f")
        self._rank_lost = 0

    def add(self, inverse: Inverse, n_latents: int) -> None:
        # Small tensors kept between large ones that come and go would break the memory up.
        self._found.frombytes(inverse.condition.float().numpy().tobytes())
        self._rank_lost += int((inverse.rank < n_latents).sum())

    def summary(self) -> dict[str, float]:
        if not self._found:
            return {}
        condition = np.frombuffer(self._found, dtype=np.float32)
        return {
            "condition_median": float(np.median(condition)),
            "condition_worst": float(condition.max()),
            "rank_lost": self._rank_lost / len(condition),
        }
