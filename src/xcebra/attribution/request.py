"""What a user asks of a map: how it is made, which latents it shows, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Options:
    """How a map is made; trusted.

    Parameters
    ----------
    method : str
    axes : ndarray of shape (n_latents, n_latents), optional
        New axes of the embedding, ``z_new = axes @ z``.
    select : slice or ndarray of shape (n_chosen, n_latents), optional
        Latents, or orthonormal directions, to attribute, in the new axes; all if not given.
    smooth : int
        Average each Jacobian over this many samples nearest in the embedding, itself among them.
    aggregate : str
    keep_time : bool or path
        Keep every step's map, in memory or in a file, temporary unless given.
    batch_size : int, optional
    seed : int
        For methods that draw baselines.
    """

    method: str
    axes: NDArray[np.float64] | None = None
    select: slice | NDArray[np.float64] | None = None
    smooth: int = 1
    aggregate: str = "mean"
    keep_time: bool | Path = False
    batch_size: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Names:
    """What the axes of a map are called."""

    neurons: tuple[str, ...]
    latents: tuple[str, ...]
    blocks: Mapping[str, slice]


def choose(names: Names, block: Any) -> tuple[slice | NDArray[np.float64] | None, Names]:
    """What ``block=`` asks for: what to select, and the names of what is left.

    Parameters
    ----------
    names : Names
    block : str, slice, array-like of shape (n_directions, n_latents) or None
        A block by name, latents by position, or directions of the embedding, one per row, which
        are made orthonormal in the order given.
    """
    n_latents = len(names.latents)
    if block is None:
        return None, names
    if isinstance(block, str):
        if block not in names.blocks:
            raise ValueError(
                f"block must be one of {list(names.blocks)}, a slice of the {n_latents} latents or "
                f"a matrix of directions, got {block!r}"
            )
        chosen = names.blocks[block]
        only = {block: slice(0, chosen.stop - chosen.start)}
        return chosen, Names(names.neurons, names.latents[chosen], only)
    if isinstance(block, slice):
        start, stop, step = block.indices(n_latents)
        # Negative and missing ends mean what they mean for lists; what lies beyond is a mistake.
        beyond = any(e is not None and abs(e) > n_latents for e in (block.start, block.stop))
        if step != 1 or start >= stop or beyond:
            raise ValueError(
                f"block={block!r} must choose one or more neighbours of the {n_latents} latents"
            )
        only = {f"{start}:{stop}": slice(0, stop - start)}
        chosen = slice(start, stop)
        return chosen, Names(names.neurons, names.latents[chosen], only)
    try:
        vectors = np.asarray(block)
        vectors = np.empty((0, 0)) if vectors.dtype == bool else vectors.astype(np.float64)
    except (TypeError, ValueError):
        vectors = np.empty((0, 0))
    # One row of numbers could as well be meant as a choice of latents.
    n = len(vectors) if vectors.ndim == 2 else 0
    if vectors.shape != (n, n_latents) or n == 0 or not np.isfinite(vectors).all():
        raise ValueError(
            f"block must be one of {list(names.blocks)}, a slice, or finite directions of shape "
            f"(n_directions, {n_latents}), one per row, got shape {np.shape(block)}"
        )
    if np.linalg.matrix_rank(vectors) < n:
        raise ValueError(
            f"the {n} directions of block span only {np.linalg.matrix_rank(vectors)} dimensions; "
            "leave out those that follow from the others"
        )
    q, r = np.linalg.qr(vectors.T)
    latents = tuple(f"direction{i}" for i in range(n))
    select = np.ascontiguousarray((q * np.sign(np.diag(r))).T)
    return select, Names(names.neurons, latents, {"directions": slice(0, n)})


def latent_names(blocks: Mapping[str, slice]) -> tuple[str, ...]:
    """Block and number of every latent."""
    return tuple(f"{name}{i}" for name, b in blocks.items() for i in range(b.stop - b.start))
