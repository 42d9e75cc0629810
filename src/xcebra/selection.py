"""What takes several fits: how well they agree, and how many latents that speaks for."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.caveats import XcebraWarning
from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.estimator import XCEBRA
from xcebra.io import read, write
from xcebra.metrics import r_squared
from xcebra.plots import agreement
from xcebra.sweep import RowFile, sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 20_000
_RECORDING, _ROWS = "recording.npz", "rows.jsonl"

Dims = int | Mapping[str, int] | None


def consistency(models: Sequence[XCEBRA], X: Any) -> dict[str, NDArray[np.float64]]:
    """Agreement of the embeddings of several fits: R^2 after an affine fit, pair by pair.

    Identified latents are the same in every fit up to an affine map, so that fits which differ in
    their seed alone agree; it takes no ground truth to see it.

    Parameters
    ----------
    models : sequence of XCEBRA
        Two or more fitted models with the same blocks.
    X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        Activity to embed.

    Returns
    -------
    dict of str to ndarray of shape (n_models, n_models)
        For each block, and for ``"all"`` latents: entry ``[i, j]`` is the variance of model ``j``'s
        latents, mean over latents, that model ``i``'s explain; 1 on the diagonal.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
    >>> fits = [
    ...     xcebra.XCEBRA(2, 2, steps=20, random_state=seed).fit(rec.neural, rec.labels["z2"])
    ...     for seed in range(2)
    ... ]
    >>> {name: table.shape for name, table in consistency(fits, rec.neural).items()}
    {'label': (2, 2), 'time': (2, 2), 'all': (2, 2)}
    """
    if len(models) < 2:
        raise InputError(f"models must hold 2 or more fitted models to compare, got {len(models)}")
    blocks = dict(models[0].blocks_)
    for i, model in enumerate(models[1:], start=1):
        if model.blocks_ != blocks:
            raise InputError(
                f"models[{i}] has blocks {model.blocks_}, but models[0] has {blocks}; only "
                "models with the same blocks can be compared"
            )
    embeddings = [model.transform(X) for model in models]
    blocks["all"] = slice(0, max(block.stop for block in blocks.values()))
    return {
        name: np.array(
            [[_explained(z[:, block], other[:, block]) for other in embeddings] for z in embeddings]
        )
        for name, block in blocks.items()
    }


def affine(source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """The source after the affine map that brings it nearest to the target.

    Parameters
    ----------
    source : ndarray of shape (n_times, n_source)
    target : ndarray of shape (n_times, n_target)

    Returns
    -------
    ndarray of shape (n_times, n_target)
    """
    design = np.column_stack([np.asarray(source, dtype=np.float64), np.ones(len(source))])
    return design @ np.linalg.lstsq(design, np.asarray(target, dtype=np.float64), rcond=None)[0]


def _explained(source: NDArray[Any], target: NDArray[Any]) -> float:
    return r_squared(target, affine(source, target))


@dataclass(frozen=True, eq=False)
class DimensionChoice:
    """How well fits with other seeds agree, by the numbers of latents, and what that speaks for.

    Parameters
    ----------
    label_dims : int, mapping or None
    time_dims : int
        The fewest latents whose fits agree as well as the best, but for one standard error.
    candidates : tuple of (label_dims, time_dims)
    consistency : ndarray of shape (n_candidates, n_seeds)
        Agreement of each fit with the others, of the block that agrees least.
    """

    label_dims: Dims
    time_dims: int
    candidates: tuple[tuple[Dims, int], ...]
    consistency: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Agreement of each candidate's fits."""
        return self.consistency.mean(axis=1)

    @property
    def error(self) -> NDArray[np.float64]:
        """Its standard error over seeds."""
        return _standard_error(self.consistency)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Agreement against latents, with standard errors and the choice marked."""
        chosen = self.candidates.index((self.label_dims, self.time_dims))
        names = [_spoken(*candidate) for candidate in self.candidates]
        return agreement(names, self.mean, self.error, chosen, ax=ax)


def select_dimensions(
    X: Any,
    y: Any = None,
    *,
    label_dims: Sequence[Dims] = (None,),
    time_dims: Sequence[int] = (2, 3, 4, 5, 6, 8),
    seeds: int = 3,
    label: str | Sequence[str] | None = None,
    epochs: Any = None,
    folder: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    progress: bool = False,
    **settings: Any,
) -> DimensionChoice:
    """Choose numbers of latents by how well fits with different seeds agree.

    With too few latents, fits differ in which factors they keep; with too many, in what the spare
    ones hold. Agreement is the R^2 between embeddings after an affine map, block by block, and the
    block that agrees least counts. Of all candidates within one standard error of the best, the
    one with the fewest latents is taken.

    Parameters
    ----------
    X, y, label, epochs
        As for `XCEBRA.fit`.
    label_dims : sequence of int, mapping or None
        Candidates for `XCEBRA`'s argument; None is the label's own width.
    time_dims : sequence of int
        Candidates; every pair with one of ``label_dims`` is fitted.
    seeds : int
        Fits of each candidate, 2 or more.
    folder : path, optional
        Where finished candidates are kept, so that an interrupted search goes on. A search on a
        cluster needs one that every worker can read.
    jobs, dask, progress
        As `xcebra.sweep.sweep`.
    **settings
        Other arguments of `XCEBRA`, plain values.

    Returns
    -------
    DimensionChoice

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=100_000)
    >>> choice = select_dimensions(rec, label="z2", time_dims=(1, 2, 3))  # doctest: +SKIP
    >>> ax = choice.plot()  # doctest: +SKIP
    """
    problems: list[str] = []
    number(problems, "seeds", seeds, least=2, whole=True)
    for name, given in (("label_dims", label_dims), ("time_dims", time_dims)):
        if isinstance(given, (str, int, Mapping)) or not len(given):
            problems.append(f"{name} must be a list of candidates, got {given!r}")
    for own in {"random_state", "progress"} & set(settings):
        problems.append(f"{own} is not for each fit; give seeds= and progress= to the search")
    raise_if(problems)
    recording = XCEBRA()._recording(X, y, label, epochs, reset=True)
    pairs = [(wide, deep) for wide in label_dims for deep in time_dims]
    for wide, deep in pairs:
        XCEBRA(wide, deep, **settings)  # arguments that do not exist are told before any fit
    with ExitStack() as stack:
        where = Path(folder or stack.enter_context(TemporaryDirectory(prefix="xcebra-")))
        where.mkdir(parents=True, exist_ok=True)
        kept = where / _RECORDING
        write(recording, kept)
        with kept.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        items = [
            _Candidate(json.dumps(wide), deep, seeds, json.dumps(settings, sort_keys=True), digest)
            for wide, deep in pairs
        ]
        work = partial(_agreement, str(kept.resolve()))
        rows = sweep(work, items, RowFile(where / _ROWS), jobs=jobs, dask=dask, progress=progress)
    found = np.array([row["found"]["consistency"] for row in rows])
    sizes = [row["found"]["n_latents"] for row in rows]
    wide, deep = pairs[_fewest_as_good(found, sizes)]
    return DimensionChoice(wide, deep, tuple(pairs), found)


@dataclass(frozen=True)
class _Candidate:
    """Fits of one pair of dimensions; mappings as JSON, the recording as its digest."""

    label_dims: str
    time_dims: int
    seeds: int
    settings: str
    data: str


def _agreement(path: str, item: _Candidate) -> dict[str, Any]:
    recording = read(path)
    settings = json.loads(item.settings)
    with warnings.catch_warnings():
        # Most candidates are wrong, and would say so.
        warnings.simplefilter("ignore", XcebraWarning)
        models = [
            XCEBRA(
                json.loads(item.label_dims),
                item.time_dims,
                random_state=seed,
                progress=False,
                **settings,
            ).fit(recording, label=list(recording.labels))
            for seed in range(item.seeds)
        ]
    shown = recording.neural[:: max(1, recording.n_times // _MOST_ROWS)]
    tables = consistency(models, shown)
    del tables["all"]
    others = ~np.eye(item.seeds, dtype=bool)
    each = [
        ((table + table.T) / 2).mean(axis=1, where=others).tolist() for table in tables.values()
    ]
    blocks = models[0].blocks_.values()
    return {
        "consistency": np.min(each, axis=0).tolist(),
        "n_latents": max(block.stop for block in blocks),
    }


def _fewest_as_good(found: NDArray[np.float64], sizes: Sequence[int]) -> int:
    """The smallest candidate within one standard error of the best; of equal ones the best."""
    means = found.mean(axis=1)
    best = int(means.argmax())
    enough = np.flatnonzero(means >= means[best] - _standard_error(found)[best]).tolist()
    return int(min(enough, key=lambda i: (sizes[i], -means[i])))


def _standard_error(found: NDArray[np.float64]) -> NDArray[np.float64]:
    return found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])


def _spoken(label_dims: Dims, time_dims: int) -> str:
    if label_dims is None:
        return str(time_dims)
    wide = list(label_dims.values()) if isinstance(label_dims, Mapping) else [label_dims]
    return " + ".join(map(str, [*wide, time_dims]))
