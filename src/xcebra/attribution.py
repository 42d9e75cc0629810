"""Attribution maps: which neuron is connected to which latent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from xcebra.encoder import Encoder
from xcebra.epochs import IntArray
from xcebra.jacobian import invert, jacobian
from xcebra.recording import Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("inverted-gradient", "gradient")
AGGREGATES = ("mean", "max", "sum")
BASES = ("raw", "label")
UNITS = ("standardised", "raw")
_NEIGHBOURHOOD = 8192
_BATCH = 1024


@dataclass(frozen=True, eq=False)
class AttributionMap:
    """A global attribution map and how it was made; it does not change once made.

    Parameters
    ----------
    values : ndarray of shape (n_neurons, n_latents)
        Non-negative: the absolute attribution, aggregated over time.
    scores : mapping of str to ndarray of shape (n_neurons,)
        For each block, the aggregated norm over its latents: one number per neuron that does not
        depend on the axes inside the block.
    blocks : mapping of str to slice
    neuron_names, latent_names : tuple of str
    made : mapping
        Method, basis, units, aggregate, smoothing, number of samples, and for inverted Jacobians
        how well conditioned they were.
    """

    values: NDArray[np.float64]
    scores: Mapping[str, NDArray[np.float64]]
    blocks: Mapping[str, slice]
    neuron_names: tuple[str, ...]
    latent_names: tuple[str, ...]
    made: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        # Copies: neither the caller's later changes nor its right to make them are touched.
        set_(self, "values", _frozen(self.values))
        set_(self, "scores", {name: _frozen(score) for name, score in self.scores.items()})
        for name in ("scores", "blocks", "made"):
            set_(self, name, MappingProxyType(dict(getattr(self, name))))

    def block(self, name: str) -> NDArray[np.float64]:
        """One score per neuron for a block, of shape (n_neurons,)."""
        self._check(name)
        return self.scores[name]

    def z_scores(self, name: str) -> NDArray[np.float64]:
        """Scores of a block, standardised over neurons."""
        score = self.block(name)
        spread = score.std()
        return (score - score.mean()) / (spread if spread > 0 else 1.0)

    def is_connected(self, name: str, threshold: float = 0.0) -> NDArray[np.bool_]:
        """Whether each neuron's z-score exceeds a threshold.

        The paper's threshold of 0 calls about half of the neurons connected, whatever the data;
        it ranks, it does not test.
        """
        return self.z_scores(name) > threshold

    def plot(self, ax: Axes | None = None, *, truth: Mapping[str, Any] | None = None) -> Axes:
        """Draw the map, beside the known wiring if ``truth`` is given; see `xcebra.plots`."""
        from xcebra import plots

        return plots.attribution_map(self, ax=ax, truth=truth)

    def __repr__(self) -> str:
        n_neurons, n_latents = self.values.shape
        blocks = ", ".join(f"{name}: {b.stop - b.start}" for name, b in self.blocks.items())
        return (
            f"AttributionMap({n_neurons} neurons x {n_latents} latents, blocks {{{blocks}}}, "
            f"method={self.made.get('method')!r})"
        )

    def _check(self, name: str) -> None:
        if name not in self.blocks:
            raise ValueError(f"block must be one of {list(self.blocks)}, got {name!r}")


def _frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array = array.copy()
    array.flags.writeable = False
    return array


def attribution_map(
    encoder: Encoder,
    recording: Recording,
    times: IntArray,
    blocks: Mapping[str, slice],
    latent_names: tuple[str, ...],
    *,
    method: str,
    basis: NDArray[np.float64] | None = None,
    smooth: int = 1,
    units: str = "standardised",
    aggregate: str = "mean",
) -> AttributionMap:
    """Attribute every latent to every neuron, aggregated over ``times``.

    Parameters
    ----------
    encoder : Encoder
    recording : Recording
    times : ndarray of shape (n_times,)
        Samples to aggregate over.
    blocks : mapping of str to slice
    latent_names : tuple of str
    method : {"inverted-gradient", "gradient"}
    basis : ndarray of shape (n_latents, n_latents), optional
        New axes, ``z_new = basis @ z``.
    smooth : int
        Average each Jacobian over this many samples nearest in the embedding, itself among them.
    units : {"standardised", "raw"}
        Neurons in units of their standard deviation, or as recorded.
    aggregate : {"mean", "max", "sum"}
    """
    gather = _Gather(aggregate, tuple(blocks.values()))
    conditions, ranks = [], []
    scale = _unit_scale(encoder, method, units)
    axes = None if basis is None else torch.from_numpy(basis).to(encoder.loadings)
    with torch.no_grad():
        for chunk in _interleaved(times, _NEIGHBOURHOOD):
            jacobians = _jacobians(encoder, recording, chunk, smooth)
            for part in jacobians.split(_BATCH):
                rows = part if axes is None else axes @ part
                if method == "inverted-gradient":
                    inverse = invert(rows)
                    conditions.append(inverse.condition)
                    ranks.append(inverse.rank)
                    in_components = inverse.values
                else:
                    in_components = rows.mT
                gather.add(encoder.loadings @ in_components * scale[:, None])
    made = {
        "method": method,
        "units": units,
        "aggregate": aggregate,
        "smooth": smooth,
        "n_samples": len(times),
    }
    if conditions:
        condition = torch.cat(conditions).numpy()
        made["condition_median"] = float(np.median(condition))
        made["condition_worst"] = float(condition.max())
        made["rank_lost"] = float((torch.cat(ranks) < len(latent_names)).double().mean())
    values, scores = gather.result()
    return AttributionMap(
        values,
        dict(zip(blocks, scores, strict=True)),
        blocks,
        recording.neuron_names,
        latent_names,
        made,
    )


def _interleaved(times: IntArray, size: int) -> list[IntArray]:
    """Cut samples into chunks that each cover the whole recording."""
    n_chunks = -(-len(times) // size)
    return [times[i::n_chunks] for i in range(n_chunks)]


def _jacobians(encoder: Encoder, recording: Recording, times: IntArray, smooth: int) -> Tensor:
    """Jacobians in component space, each averaged over its neighbours in the embedding."""
    device = encoder.loadings.device
    found, embedding = [], []
    for part in np.array_split(times, -(-len(times) // _BATCH)):
        u = encoder.components(torch.from_numpy(recording.rows(part)).to(device))
        found.append(jacobian(encoder.network, u))
        embedding.append(encoder.network(u))
    jacobians = torch.cat(found)
    smooth = min(smooth, len(times))
    return jacobians if smooth <= 1 else _averaged(jacobians, torch.cat(embedding), smooth)


def _averaged(jacobians: Tensor, embedding: Tensor, smooth: int) -> Tensor:
    result = torch.zeros_like(jacobians)
    for rows, target in zip(embedding.split(_BATCH), result.split(_BATCH), strict=True):
        # By differences: the faster form by products confuses neighbours far from the origin.
        apart = torch.cdist(rows, embedding, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = apart.topk(smooth, dim=1, largest=False).indices
        for column in nearest.unbind(dim=1):
            target += jacobians[column]
    return result.div_(smooth)


def _unit_scale(encoder: Encoder, method: str, units: str) -> Tensor:
    """What takes a map over standardised neurons to the units asked for."""
    if units == "standardised":
        return torch.ones_like(encoder.scale)
    return encoder.scale if method == "inverted-gradient" else encoder.reciprocal


class _Gather:
    """Aggregates maps over time, entry by entry and block by block, in constant memory."""

    def __init__(self, aggregate: str, blocks: tuple[slice, ...]) -> None:
        self._aggregate = aggregate
        self._blocks = blocks
        self._n = 0
        self._state: list[Tensor] = []

    def add(self, maps: Float[Tensor, "sample neuron latent"]) -> None:
        entries = maps.abs()
        found = [entries, *(torch.linalg.norm(maps[:, :, b], dim=2) for b in self._blocks)]
        if self._aggregate == "max":
            new = [f.amax(dim=0).cpu().double() for f in found]
            merge = torch.maximum
        else:
            new = [f.cpu().double().sum(dim=0) for f in found]
            merge = torch.add
        if self._state:
            new = [merge(a, b) for a, b in zip(self._state, new, strict=True)]
        self._state = new
        self._n += len(maps)

    def result(self) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        divide = self._n if self._aggregate == "mean" else 1
        values, *scores = [(s / divide).numpy() for s in self._state]
        return values, scores
