"""Requests for maps: the arguments of the user, checked and with every default resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xcebra.common.checks import choice, number, raise_if
from xcebra.common.choices import (
    AGGREGATES,
    BASES,
    CROSSED,
    METHODS,
    UNITS,
    Aggregate,
    Basis,
    Method,
    Units,
)
from xcebra.common.errors import InputError, Problem

# Methods that describe how neurons change with latents. The others describe how the encoder
# computes latents from neurons.
GENERATIVE = (CROSSED, "decoder-gradient", "inverted-gradient")
# Methods that compute a map from Jacobians of a network, and methods that compute contributions of
# neurons to its outputs.
BY_DERIVATIVES = ("decoder-gradient", "inverted-gradient", "gradient")
BY_CONTRIBUTIONS = ("integrated-gradients", "shap-zeros", "shap-shuffled", "feature-ablation")
# A Jacobian is averaged over at most one neighbour for this many samples. In a short recording the
# nearest neighbours are far away, and averaging over many of them would blur the map. The recipe's
# 16 neighbours are used from 9,600 samples on. Larger values average less; not tuned.
_SAMPLES_A_NEIGHBOUR = 600


@dataclass(frozen=True)
class Names:
    """Names of neurons, latents and blocks of a map."""

    neurons: tuple[str, ...]
    latents: tuple[str, ...]
    blocks: Mapping[str, slice]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a map is computed of: a fitted model, or a torch module on its own.

    Parameters
    ----------
    names : Names
        Neurons, latents and blocks.
    method, basis, smooth
        Defaults for arguments that are None.
    cosine : bool
        Whether the embedding lies on spheres.
    has_decoder, has_crossed_decoder : bool
        Whether there is a decoder from latents to neurons, and whether there are crossed decoders.
    """

    names: Names
    method: Method = "inverted-gradient"
    basis: Basis = "raw"
    smooth: int = 1
    cosine: bool = False
    has_decoder: bool = False
    has_crossed_decoder: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class MapRequest:
    """A complete and checked request for a map.

    Parameters
    ----------
    method : str
    basis : str
        ``"given"`` if the user passed a matrix.
    axes : ndarray of shape (n_latents, n_latents), optional
        New axes of the embedding, ``z_new = axes @ z``.
    select : slice or ndarray of shape (n_chosen, n_latents), optional
        Latents or orthonormal directions to attribute, in the new axes. None means all latents.
    smooth : int
        Number of nearest samples in the embedding, the sample itself included, over which each
        Jacobian is averaged.
    units : {"standardised", "raw"}
    aggregate : {"mean", "max", "sum", "median"}
    keep_time : bool or path
        Whether to keep the map of every time step, in memory or in a temporary file. A path is
        the file to keep them in.
    batch_size : int, optional
    seed : int
        Seed for methods that draw baselines at random.
    """

    method: Method
    basis: Basis | Literal["given"] = "raw"
    axes: NDArray[np.float64] | None = None
    select: slice | NDArray[np.float64] | None = None
    smooth: int = 1
    units: Units = "standardised"
    aggregate: Aggregate = "mean"
    keep_time: bool | Path = False
    batch_size: int | None = None
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """The request as plain values, sufficient to request the same map again."""
        selected: Any = None
        if isinstance(self.select, slice):
            selected = [self.select.start, self.select.stop]
        elif self.select is not None:
            selected = self.select.tolist()
        return {
            "method": self.method,
            "basis": self.basis,
            "units": self.units,
            "aggregate": self.aggregate,
            "smooth": int(self.smooth),
            "selected": selected,
        }


def same_block(selected: Any) -> slice | list[list[float]] | None:
    """The argument ``block`` that selects the same as an earlier request.

    Parameters
    ----------
    selected : list or None
        The entry ``"selected"`` of `MapRequest.described`.
    """
    if selected is None or not isinstance(selected[0], int):
        block: list[list[float]] | None = selected
        return block
    return slice(*selected)


def resolve(
    subject: Subject,
    *,
    n_samples: int,
    method: Method | None = None,
    basis: Any = None,
    smooth: int | None = None,
    units: Units = "standardised",
    aggregate: Aggregate = "mean",
    block: Any = None,
    keep_time: bool | str | Path = False,
    batch_size: int | None = None,
    seed: int = 0,
    problems: list[str] | None = None,
) -> tuple[MapRequest, Names]:
    """Check the arguments for a map and replace None by defaults.

    Parameters
    ----------
    subject : Subject
        The fitted model or the torch module.
    n_samples : int
        Number of samples of the map.
    method, basis, smooth, units, aggregate, block, keep_time, batch_size, seed
        Arguments of the user; None is the default of the subject. For a torch module, ``basis``
        may be a matrix.
    problems : list of str, optional
        Problems with other arguments, which are raised together with those found here.

    Returns
    -------
    MapRequest
    Names
        Neurons, latents and blocks of the map.

    Raises
    ------
    InputError
        If there is any problem; the message lists all of them.
    """
    problems = [] if problems is None else problems
    directions = block is not None and not isinstance(block, (str, slice))
    if method is None:
        method = subject.method
        if method == CROSSED and (directions or not subject.has_crossed_decoder):
            method = "decoder-gradient"  # it can attribute any direction of the embedding
    _check_method(problems, subject, method, directions, smooth)
    axes = None
    if basis is None:
        basis = _default_basis(subject, method, directions)
    elif subject.has_decoder:
        _check_basis(problems, subject, basis, directions)
    else:
        basis, axes = _module_basis(problems, basis, len(subject.names.latents))
    choice(problems, "units", units, UNITS)
    choice(problems, "aggregate", aggregate, AGGREGATES)
    number(problems, "smooth", smooth, least=1, whole=True)
    number(problems, "batch_size", batch_size, least=1, whole=True)
    number(problems, "random_state", seed, least=0, whole=True)
    if seed is None:
        problems.append("random_state must be a whole number of 0 or more, got None")
    _check_keep_time(problems, keep_time, aggregate)
    averages = isinstance(smooth, (int, np.integer)) and smooth > 1
    if averages and method in BY_CONTRIBUTIONS:
        text = (
            f"smooth={smooth} averages Jacobians, and {method!r} has none; use smooth=1, or one of "
            f"{list(BY_DERIVATIVES)}"
        )
        problems.append(Problem(text, "smooth"))
    raise_if(problems)
    select, names = choose(subject.names, block)
    request = MapRequest(
        method=method,
        basis=basis,
        axes=axes,
        select=select,
        smooth=_default_smooth(subject, method, n_samples) if smooth is None else smooth,
        units=units,
        aggregate=aggregate,
        keep_time=keep_time if isinstance(keep_time, bool) else Path(keep_time),
        batch_size=batch_size,
        seed=seed,
    )
    return request, names


def _check_method(
    problems: list[str], subject: Subject, method: Any, directions: bool, smooth: Any
) -> None:
    if subject.has_decoder:
        choice(problems, "method", method, METHODS)
    else:
        choice(problems, "method", method, (*BY_DERIVATIVES, *BY_CONTRIBUTIONS))
        if isinstance(method, str) and method == "decoder-gradient":
            others = [name for name in (*BY_DERIVATIVES, *BY_CONTRIBUTIONS) if name != method]
            text = (
                "method='decoder-gradient' needs a decoder, which XCEBRA fits and a bare module "
                f"does not have; use one of {others}"
            )
            problems.append(Problem(text, "method"))
    if not isinstance(method, str) or method != CROSSED or not subject.has_decoder:
        return
    if not subject.has_crossed_decoder:
        text = (
            f"method={CROSSED!r} needs decoders that models of version 0.3 do not have; fit "
            "the model again, or use 'decoder-gradient'"
        )
        problems.append(Problem(text, "method"))
    if directions:
        text = (
            f"method={CROSSED!r} knows labels and time latents, not any direction of the "
            "embedding; use 'decoder-gradient'"
        )
        problems.append(Problem(text, "method"))
    if smooth not in (None, 1):
        text = f"smooth={smooth!r} averages Jacobians of networks; {CROSSED!r} has none"
        problems.append(Problem(text, "smooth"))


def _default_basis(subject: Subject, method: Any, directions: bool) -> Basis:
    basis = "raw" if directions else subject.basis
    # The sparse basis undoes a constant mixture. There is none on a sphere, nor in methods that
    # describe how the encoder computes latents.
    if basis == "sparse" and (subject.cosine or method not in GENERATIVE):
        return "label"
    return basis


def _check_basis(problems: list[str], subject: Subject, basis: Any, directions: bool) -> None:
    choice(problems, "basis", basis if isinstance(basis, str) else type(basis).__name__, BASES)
    if directions and basis != "raw":
        text = (
            f"block gives directions of the embedding as learned, so basis must be 'raw', "
            f"got {basis!r}"
        )
        problems.append(Problem(text, "basis"))
    elif subject.cosine and isinstance(basis, str) and basis == "sparse":
        text = "basis='sparse' needs distance='euclidean'; use 'label' or 'raw'"
        problems.append(Problem(text, "basis"))


def _module_basis(
    problems: list[str], basis: Any, n_latents: int
) -> tuple[Basis | Literal["given"], NDArray[np.float64] | None]:
    """The basis of a torch module: ``"raw"``, or a matrix of new axes."""
    if isinstance(basis, str):
        if basis != "raw":
            problems.append(
                f"basis={basis!r} needs a fitted XCEBRA; for a bare module give 'raw' or a matrix "
                f"of shape ({n_latents}, {n_latents})"
            )
        return "raw", None
    try:
        axes = np.asarray(basis, dtype=np.float64)
    except (TypeError, ValueError):
        axes = np.empty(0)
    if axes.shape != (n_latents, n_latents) or not np.isfinite(axes).all():
        problems.append(
            f"basis must be 'raw' or a finite matrix of shape ({n_latents}, {n_latents}), got "
            f"shape {axes.shape}"
        )
    elif np.linalg.matrix_rank(axes) < n_latents:
        problems.append("basis has no inverse: its rows must be linearly independent")
    return "given", axes


def _default_smooth(subject: Subject, method: str, n_samples: int) -> int:
    # On a sphere, the outputs move within the tangent plane of each point. The mean of Jacobians of
    # several points would not lie in one tangent plane.
    if subject.cosine or method not in ("inverted-gradient", "gradient"):
        return 1
    return min(subject.smooth, max(1, n_samples // _SAMPLES_A_NEIGHBOUR))


def _check_keep_time(problems: list[str], keep_time: Any, aggregate: Any) -> None:
    if not isinstance(keep_time, (bool, str, Path)):
        text = f"keep_time must be True, False or a path, got {keep_time!r}"
        problems.append(Problem(text, "keep_time"))
    elif isinstance(keep_time, (str, Path)) and not Path(keep_time).parent.is_dir():
        folder = str(Path(keep_time).parent)
        text = f"keep_time={str(keep_time)!r}: there is no folder {folder!r}"
        problems.append(Problem(text, "keep_time"))
    elif isinstance(keep_time, (str, Path)) and Path(keep_time).exists():
        text = f"keep_time={str(keep_time)!r} is there already; remove it or rename"
        problems.append(Problem(text, "keep_time"))
    if aggregate == "median" and keep_time is False:
        text = "aggregate='median' needs every time step: give keep_time=True"
        problems.append(Problem(text, "keep_time"))


def choose(names: Names, block: Any) -> tuple[slice | NDArray[np.float64] | None, Names]:
    """Resolve the argument ``block``.

    Parameters
    ----------
    names : Names
        Neurons, latents and blocks of the whole embedding.
    block : str, slice, array-like of shape (n_directions, n_latents) or None
        The name of a block, a slice of latents, or directions of the embedding, one per row, which
        are made orthonormal in the order of the rows.

    Returns
    -------
    select : slice, ndarray of shape (n_directions, n_latents) or None
        Latents or orthonormal directions; None means all latents.
    Names
        Neurons, latents and blocks of what is selected.
    """
    n_latents = len(names.latents)
    if block is None:
        return None, names
    if isinstance(block, str):
        if block not in names.blocks:
            raise InputError(
                f"block must be one of {list(names.blocks)}, a slice of the {n_latents} latents or "
                f"a matrix of directions, got {block!r}"
            )
        chosen = names.blocks[block]
        only = {block: slice(0, chosen.stop - chosen.start)}
        return chosen, Names(names.neurons, names.latents[chosen], only)
    if isinstance(block, slice):
        start, stop, step = block.indices(n_latents)
        # Negative and missing ends mean the same as for lists, but ends out of range are errors.
        beyond = any(e is not None and abs(e) > n_latents for e in (block.start, block.stop))
        if step != 1 or start >= stop or beyond:
            raise InputError(
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
    # A one-dimensional array is refused: the user may have meant indices of latents.
    n = len(vectors) if vectors.ndim == 2 else 0
    if vectors.shape != (n, n_latents) or n == 0 or not np.isfinite(vectors).all():
        raise InputError(
            f"block must be one of {list(names.blocks)}, a slice, or finite directions of shape "
            f"(n_directions, {n_latents}), one per row, got shape {np.shape(block)}"
        )
    if np.linalg.matrix_rank(vectors) < n:
        raise InputError(
            f"the {n} directions of block span only {np.linalg.matrix_rank(vectors)} dimensions; "
            "leave out those that follow from the others"
        )
    q, r = np.linalg.qr(vectors.T)
    latents = tuple(f"direction{i}" for i in range(n))
    select = np.ascontiguousarray((q * np.sign(np.diag(r))).T)
    return select, Names(names.neurons, latents, {"directions": slice(0, n)})


def latent_names(blocks: Mapping[str, slice]) -> tuple[str, ...]:
    """Name of every latent: its block and its number inside the block."""
    return tuple(f"{name}{i}" for name, b in blocks.items() for i in range(b.stop - b.start))
