"""Attribution maps of any torch module, without the estimator."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.engine import (
    in_evaluation,
    make_map,
    view_of_module,
)
from xcebra.attribution.request import Names, Subject, latent_names, resolve
from xcebra.common.choices import Aggregate, Method
from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.recording import Recording

# Samples that are checked for NaN at once. It changes speed and memory, not the result.
_ROWS_AT_ONCE = 65_536


def attribute(
    module: nn.Module,
    X: Any,
    *,
    method: Method = "inverted-gradient",
    aggregate: Aggregate = "mean",
    block: Any = None,
    blocks: Mapping[str, slice] | None = None,
    basis: Any = "raw",
    smooth: int = 1,
    keep_time: bool | str | Path = False,
    epochs: Iterable[tuple[int, int]] | None = None,
    batch_size: int | None = None,
    neuron_names: Iterable[str] | None = None,
    random_state: int = 0,
) -> AttributionMap:
    """Attribute the outputs of a torch module to its input neurons.

    The module is run in evaluation mode, in its own precision and on its own device. Afterwards its
    mode, parameters and gradients are the same as before.

    Parameters
    ----------
    module : torch.nn.Module
        From (sample, neuron) or (sample, neuron, lag) to (sample, latent).
    X : array-like or Tensor of shape (n_samples, n_neurons) or (n_samples, n_neurons, n_lags)
        Or a Recording. With lags, Jacobians are inverted over neurons and lags together, and the
        attribution of a neuron is the norm over its lags.
    method : str
        One of the methods of `XCEBRA.attribute` that need no decoder, which excludes
        ``"crossed-gradient"`` and ``"decoder-gradient"``.
    aggregate : {"mean", "max", "sum", "median"}
        How absolute values are aggregated over time. The median needs ``keep_time=True``.
    block : str, slice, array-like or None
        What to attribute: the name of a block, a slice of latents, or directions of the embedding
        as an array of shape (n_directions, n_latents). None is the whole embedding.
    blocks : mapping of str to slice, optional
        Adjacent slices of latents in order, by name. By default, all latents are in one block
        ``"all"``.
    basis : "raw" or array-like of shape (n_latents, n_latents)
        New axes of the embedding, ``z_new = basis @ z``.
    smooth : int
        Number of nearest samples in the embedding over which each Jacobian is averaged, the sample
        itself included; 1 does not average.
    keep_time : bool or path
        Keep the map of every sample, in memory if it is small enough and otherwise in a temporary
        file; a path is the file to keep it in.
    epochs : list of (start, stop), optional
        Stretches of time to aggregate over.
    batch_size : int, optional
        Number of samples computed at once. It changes speed and memory, not the map.
    neuron_names : iterable of str, optional
    random_state : int
        Seed for the random draws of the two SHAP methods.

    Returns
    -------
    AttributionMap

    Examples
    --------
    >>> import torch, xcebra
    >>> network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> xcebra.attribute(network, torch.randn(100, 5), method="integrated-gradients")
    AttributionMap(5 neurons x 2 latents, blocks {all: 2}, method='integrated-gradients')
    """
    if not isinstance(module, nn.Module):
        raise InputTypeError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; a fitted XCEBRA has a "
            "method of its own, model.attribute(X)"
        )
    if isinstance(X, Recording):
        neuron_names = X.neuron_names if neuron_names is None else neuron_names
        epochs = X.epochs.pairs() if epochs is None else epochs
        X = X.neural
    values = _samples(X)
    tensors = itertools.chain(module.parameters(), module.buffers())
    first_sample = _tensor(values[:1])
    # A tensor with the precision and the device of the module.
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), first_sample)

    def read(times: IntArray) -> Tensor:
        return _tensor(values[times]).to(like)

    times = Epochs.check(epochs, len(values)).indices()
    with in_evaluation(module):
        n_latents = _n_latents(module, first_sample.to(like))
        subject = Subject(names=_names(values.shape[1], n_latents, blocks, neuron_names))
        problems: list[str] = []
        if smooth is None:
            problems.append("smooth must be a whole number of 1 or more, got None")
        request, names = resolve(
            subject,
            n_samples=len(times),
            method=method,
            basis=basis,
            smooth=smooth,
            units="raw",
            aggregate=aggregate,
            block=block,
            keep_time=keep_time,
            batch_size=batch_size,
            seed=random_state,
            problems=problems,
        )
        view = view_of_module(module, first_sample[0].to(like))
        return make_map(view, read, times, names, request)


def _samples(X: Any) -> Any:
    """Check X and return it as an array or a tensor.

    A memory-mapped file is not loaded into memory as a whole.
    """
    try:
        values = X.detach() if isinstance(X, Tensor) else np.asanyarray(X)
        few = _tensor(values[:1])
        numbers = not few.is_complex()
        described = f"{values.dtype} of shape {tuple(values.shape)}"
    except (TypeError, ValueError, IndexError):
        numbers, described = False, type(X).__name__
    if not numbers or values.ndim not in (2, 3) or 0 in values.shape:
        raise InputError(
            "X must hold numbers of shape (n_samples, n_neurons) or (n_samples, n_neurons, "
            f"n_lags), got {described}"
        )
    for start in range(0, len(values), _ROWS_AT_ONCE):
        if not bool(torch.isfinite(_tensor(values[start : start + _ROWS_AT_ONCE])).all()):
            raise InputError("X has NaN or infinite entries; fill them or leave those samples out")
    return values


def _tensor(part: Any) -> Tensor:
    """Copy samples to a new tensor; integers become single precision."""
    tensor = part.clone() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.float()


def _n_latents(module: nn.Module, sample: Tensor) -> int:
    """Number of outputs of a module for a batch of one sample, or an error that says why not."""
    try:
        with torch.no_grad():
            output = module(sample)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"the module cannot read samples of shape {tuple(sample.shape)}: {error}; X must be "
            "(n_samples, n_neurons), or (n_samples, n_neurons, n_lags) for models of time windows"
        ) from error
    shape = tuple(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if isinstance(shape, str) or len(shape) != 2 or shape[0] != 1:
        raise InputError(
            f"the module must answer (sample, latent), but for one sample it gave {shape}; "
            "add a layer that flattens or selects its output"
        )
    return shape[1]


def _names(
    n_neurons: int,
    n_latents: int,
    blocks: Mapping[str, slice] | None,
    neuron_names: Iterable[str] | None,
) -> Names:
    neurons = tuple(map(str, range(n_neurons) if neuron_names is None else neuron_names))
    if len(neurons) != n_neurons:
        raise InputError(f"neuron_names has {len(neurons)} names, but X has {n_neurons} neurons")
    blocks = {"all": slice(0, n_latents)} if blocks is None else dict(blocks)
    end = 0
    for name, block in blocks.items():
        follows = isinstance(block, slice) and (block.start or 0) == end and block.stop is not None
        if not follows or block.stop <= end or block.step not in (None, 1):
            raise InputError(
                f"blocks[{name!r}] is {block}, but blocks must be slices that lie side by side and "
                f"in order; this one starts at {end}"
            )
        end = block.stop
    if end != n_latents:
        raise InputError(f"blocks end at {end}, but the module has {n_latents} latents")
    blocks = {name: slice(block.start or 0, block.stop) for name, block in blocks.items()}
    return Names(neurons, latent_names(blocks), blocks)
