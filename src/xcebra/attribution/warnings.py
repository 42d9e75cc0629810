"""Warnings about maps that may be wrong, from what is known about the fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.attribution.request import GENERATIVE, MapRequest
from xcebra.caveats import (
    CollapsedEmbeddingWarning,
    DuplicateNeuronWarning,
    IllConditionedWarning,
    MissingFactorWarning,
    SaturatedOutputWarning,
    SparseBasisWarning,
    UnlearnedLabelWarning,
    XcebraWarning,
)
from xcebra.common.choices import CROSSED
from xcebra.data.epochs import evenly_spaced
from xcebra.data.recording import Recording
from xcebra.networks.encoder import Encoder
from xcebra.networks.jacobian import linearise

# Largest share of variance in a left-over pattern without a warning. It was chosen on dataset seeds
# 100 and 101, between fits with all latents and fits with one latent too few.
_MOST_LEFT_OVER = 0.03
# Fewest samples from which copies of neurons are searched, and most samples that are examined. More
# samples take longer. Not tuned.
_LEAST_LOOKED_AT, _LOOKED_AT = 100, 500
# Correlation above which two neurons count as copies, and number of pairs that the warning lists.
# Smaller correlations report more pairs. Not tuned.
_SAME, _FEW = 0.998, 3
# A latent is at its bound if it is above this share of the bound, and the warning is given if this
# happens in more than this share of the samples. Smaller values warn more often. Not tuned.
_NEAR_BOUND, _MOST_SATURATED = 0.95, 0.05
# Largest median condition number of the encoder's Jacobian without a warning. Fits with the correct
# number of latents have 2 to 7.
_WORST_CONDITION = 100.0


def map_warnings(
    model: Any, recording: Recording, request: MapRequest, map_blocks: Mapping[str, slice]
) -> Iterator[XcebraWarning]:
    """Yield every warning that a fitted model has for a map.

    Parameters
    ----------
    model : XCEBRA
        A fitted model.
    recording : Recording
        The samples of the map.
    request : MapRequest
    map_blocks : mapping of str to slice
        Blocks of the map. For slices of latents and for directions, their names are not those of
        blocks of the model.
    """
    method = request.method
    # Directions and slices can belong to any block. Nobody asks about labels that are controlled
    # for.
    blocks = [
        name
        for name in model.blocks_
        if (name in map_blocks or not set(map_blocks) <= set(model.blocks_))
        and name not in model.controls_
    ]
    missing = method in GENERATIVE and model.left_over_ > _MOST_LEFT_OVER
    # The warning about collapsed directions advises fewer latents. It is not given if a factor has
    # no latent, because that needs more latents, nor for a map that uses the labels themselves.
    yield from _unlearned(model, blocks, collapsed=not missing and method != CROSSED)
    if request.basis == "sparse":
        yield from _mixed(model, method, request.select)
    if missing:
        yield _missing_factor(model, method)
    encoder = model.encoder_
    times = evenly_spaced(recording.epochs.indices(), _LOOKED_AT)
    rows = recording.rows(times)
    if method not in (CROSSED, "decoder-gradient") and len(rows) >= _LEAST_LOOKED_AT:
        yield from _duplicates(rows, model.neuron_names_)
    x = encoder.samples(recording, times)
    if not model.decisions_.on_spheres:
        yield from _saturated(encoder, x, model.config_)
    if method == "inverted-gradient":
        yield from _ill_conditioned(encoder, x, model)


def _missing_factor(model: Any, method: str) -> XcebraWarning:
    wanted = f"time_dims={model.config_['time_dims'] + 1} or more, or more steps"
    text = (
        f"one pattern of activity holds {model.left_over_:.0%} of the neurons' variance and "
        "is not in the embedding: a factor may lack a latent"
    )
    if method == CROSSED:
        # The crossed decoders read this pattern from the neurons and use it like a latent, but the
        # map does not show it.
        text += f". The map accounts for it, less exactly than a latent would; try {wanted}"
    else:
        text += f", and its neurons may then seem connected to others. Try {wanted}"
    return MissingFactorWarning(text, ("time_dims", "steps"))


def _unlearned(model: Any, blocks: list[str], *, collapsed: bool) -> Iterator[XcebraWarning]:
    for name in blocks:
        fit = model.goodness_of_fit_[name]
        judged = fit.p_value is not None
        if fit.learned is False or (fit.learned is None and judged):
            text = fit.explanation(repr(name))
            advice = "do not read its map" if fit.learned is False else "read its map with caution"
            yield UnlearnedLabelWarning(f"{text}: {advice}")
        elif fit.collapsed and collapsed:
            yield CollapsedEmbeddingWarning(
                f"the embedding of {name!r} has {fit.collapsed} direction"
                f"{'s' * (fit.collapsed > 1)} in which samples do not differ, and where the map "
                f"shows only noise; use {fit.collapsed} fewer latent{'s' * (fit.collapsed > 1)}, "
                "or a lower jacobian_weight",
            )


def _mixed(model: Any, method: str, select: Any) -> Iterator[XcebraWarning]:
    latents = np.arange(max(block.stop for block in model.blocks_.values()))
    latents = latents[select] if isinstance(select, slice) else latents
    for name, mixture in model.mixture_.items():
        # A label that was not learned has its own warning.
        unlearned = model.goodness_of_fit_[name].learned is False
        if name in model.controls_:
            continue
        # A mixture changes the columns of the label. In methods that describe how the encoder
        # computes latents, it changes those of the time block.
        moved = model.blocks_.get(name if method in GENERATIVE else "time", slice(0, 0))
        touched = np.isin(latents, np.arange(moved.start, moved.stop)).any()
        if mixture.trusted or unlearned or not touched:
            continue
        n_neurons = len(model.neuron_names_)
        if not mixture.found:
            yield SparseBasisWarning(
                f"{mixture.n_unconnected} of {n_neurons} neurons seem unconnected to {name!r}, "
                f"too few to find a mixture with {len(mixture.weights)} other latents: its "
                "map is in the label basis. If other factors are correlated with it, their "
                "neurons may seem connected to it",
            )
        else:
            yield SparseBasisWarning(
                f"the sparse basis of {name!r} is based on {mixture.n_unconnected} of {n_neurons} "
                f"neurons and changes by {mixture.instability:.0%} without a fifth of all; "
                "compare with basis='label', and trust neither where they differ",
            )


def _saturated(
    encoder: Encoder, x: torch.Tensor, config: Mapping[str, Any]
) -> Iterator[XcebraWarning]:
    with torch.no_grad():
        near = encoder(x).abs() > _NEAR_BOUND * config["limit"]
    share = near.double().mean(dim=0)
    if float(share.max()) > _MOST_SATURATED:
        yield SaturatedOutputWarning(
            f"latent {int(share.argmax())} lies at the bound of the outputs in "
            f"{float(share.max()):.0%} of the samples, where it no longer follows the neurons; "
            f"lower temperature, to {config['temperature'] / 4:.2g} for instance, which makes the "
            "embedding smaller",
        )


def _ill_conditioned(encoder: Encoder, x: torch.Tensor, model: Any) -> Iterator[XcebraWarning]:
    with torch.no_grad():
        rows = linearise(encoder.network, encoder.components(x)).jacobian()
    # On the CPU, because not every device can compute singular values in double precision.
    values = torch.linalg.svdvals(rows.cpu().double())
    n_free = values.shape[1]
    if model.decisions_.on_spheres:
        n_free -= len(model.blocks_)  # the norm of each block is fixed
    if n_free < 1:
        return
    condition = float((values[:, 0] / values[:, n_free - 1].clamp_min(1e-300)).median())
    if condition > _WORST_CONDITION:
        yield IllConditionedWarning(
            f"the encoder's Jacobian is ill-conditioned (its weakest direction is {condition:.0f} "
            "times weaker than its strongest): the inverse magnifies errors; use "
            "method='decoder-gradient', fewer latents, or a higher jacobian_weight",
        )


def _duplicates(x: NDArray[np.float32], names: Sequence[str]) -> Iterator[XcebraWarning]:
    centred = x.astype(np.float64) - x.mean(axis=0)
    size = np.linalg.norm(centred, axis=0)
    centred /= np.where(size > 0, size, 1.0)
    firsts, seconds = np.nonzero(np.triu(np.abs(centred.T @ centred) > _SAME, k=1))
    if len(firsts) == 0:
        return
    pairs = [
        f"{names[i]} and {names[j]}" for i, j in zip(firsts[:_FEW], seconds[:_FEW], strict=True)
    ]
    more = f" and {len(firsts) - _FEW} more pairs" if len(firsts) > _FEW else ""
    yield DuplicateNeuronWarning(
        f"neurons {', '.join(pairs)}{more} are nearly the same (correlation above {_SAME}): how "
        "the map is divided between them is arbitrary; keep one of each, average them, or use "
        "method='decoder-gradient', which treats each neuron separately",
    )
