"""Comparison of several fits: how well they agree, and the choice of the number of latents."""

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

# About the most samples on which fits are compared. More samples take longer. Not tuned.
_MOST_ROWS = 20_000
_RECORDING, _ROWS = "recording.npz", "rows.jsonl"

Dims = int | Mapping[str, int] | None


def consistency(models: Sequence[XCEBRA], X: Any) -> dict[str, NDArray[np.float64]]:
    """Agreement of the embeddings of several fits: R^2 after an affine map, for each pair of fits.

    Identified latents are the same in every fit up to an affine map, so that fits with different
    seeds agree. This can be checked without ground truth.

    Parameters
    ----------
    models : sequence of XCEBRA
        Two or more fitted models with the same blocks.
    X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        Activity to embed.

    Returns
    -------
    dict of str to ndarray of shape (n_models, n_models)
        For each block by name, and for all latents as ``"all"``. Entry ``[i, j]`` is the share of
        the variance of model ``j``'s latents that model ``i``'s latents explain, mean over
        latents. The diagonal is 1.

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
    """Map the source to the target by the best affine map (least squares).

    Parameters
    ----------
    source : ndarray of shape (n_times, n_source)
    target : ndarray of shape (n_times, n_target)

    Returns
    -------
    ndarray of shape (n_times, n_target)
        The mapped source.
    """
    design = np.column_stack([np.asarray(source, dtype=np.float64), np.ones(len(source))])
    return design @ np.linalg.lstsq(design, np.asarray(target, dtype=np.float64), rcond=None)[0]


def _explained(source: NDArray[Any], target: NDArray[Any]) -> float:
    return r_squared(target, affine(source, target))


@dataclass(frozen=True, eq=False)
class DimensionChoice:
    """Agreement of fits with different seeds for numbers of latents, and the chosen numbers.

    Parameters
    ----------
    label_dims : int, mapping or None
    time_dims : int
        The chosen numbers: the fewest latents whose fits agree as well as the best candidate's,
        within one standard error.
    candidates : tuple of (label_dims, time_dims)
    consistency : ndarray of shape (n_candidates, n_seeds)
        Agreement of each fit with the other fits, for the block that agrees least.
    """

    label_dims: Dims
    time_dims: int
    candidates: tuple[tuple[Dims, int], ...]
    consistency: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean agreement of each candidate's fits, of shape (n_candidates,)."""
        return self.consistency.mean(axis=1)

    @property
    def error(self) -> NDArray[np.float64]:
        """Standard error of `mean` over seeds, of shape (n_candidates,)."""
        return _standard_error(self.consistency)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot agreement against numbers of latents, with standard errors; the choice is marked."""
        chosen = self.candidates.index((self.label_dims, self.time_dims))
        names = [_candidate_name(*candidate) for candidate in self.candidates]
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

    With too few latents, fits differ in the factors that they keep. With too many, they differ in
    what the superfluous latents hold. Agreement is the R^2 between embeddings after an affine map,
    for the block that agrees least. Of all candidates within one standard error of the best, the
    one with the fewest latents is chosen.

    Parameters
    ----------
    X, y, label, epochs
        As for `XCEBRA.fit`.
    label_dims : sequence of int, mapping or None
        Candidates for the argument of `XCEBRA`; None is the number of columns of the label.
    time_dims : sequence of int
        Candidates for the argument of `XCEBRA`. Every pair of candidates is fitted.
    seeds : int
        Number of fits of each candidate, 2 or more.
    folder : path, optional
        Folder for the results of finished candidates, so that an interrupted search can be
        continued. A search on a cluster needs a folder that every worker can read.
    jobs, dask, progress
        As for `xcebra.sweep.sweep`.
    **settings
        Other arguments of `XCEBRA`, as plain values.

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
    for name, candidates in (("label_dims", label_dims), ("time_dims", time_dims)):
        if isinstance(candidates, (str, int, Mapping)) or not len(candidates):
            problems.append(f"{name} must be a list of candidates, got {candidates!r}")
    for argument in {"random_state", "progress"} & set(settings):
        problems.append(f"{argument} is not for each fit; give seeds= and progress= to the search")
    raise_if(problems)
    recording = XCEBRA()._recording(X, y, label, epochs, reset=True)
    pairs = [(label_dim, time_dim) for label_dim in label_dims for time_dim in time_dims]
    for label_dim, time_dim in pairs:
        XCEBRA(
            label_dim, time_dim, **settings
        )  # raises an error for unknown arguments before any fit
    with ExitStack() as stack:
        results = Path(folder or stack.enter_context(TemporaryDirectory(prefix="xcebra-")))
        results.mkdir(parents=True, exist_ok=True)
        recording_path = results / _RECORDING
        write(recording, recording_path)
        with recording_path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        items = [
            _Candidate(
                json.dumps(label_dim), time_dim, seeds, json.dumps(settings, sort_keys=True), digest
            )
            for label_dim, time_dim in pairs
        ]
        work = partial(_agreement, str(recording_path.resolve()))
        rows = sweep(work, items, RowFile(results / _ROWS), jobs=jobs, dask=dask, progress=progress)
    agreements = np.array([row["found"]["consistency"] for row in rows])
    sizes = [row["found"]["n_latents"] for row in rows]
    label_dim, time_dim = pairs[_fewest_as_good(agreements, sizes)]
    return DimensionChoice(label_dim, time_dim, tuple(pairs), agreements)


@dataclass(frozen=True)
class _Candidate:
    """Fits of one pair of dimensions. Mappings are JSON strings; the recording is its digest."""

    label_dims: str
    time_dims: int
    seeds: int
    settings: str
    data: str


def _agreement(path: str, item: _Candidate) -> dict[str, Any]:
    """Fit a candidate with every seed, and compute how well the fits agree."""
    recording = read(path)
    settings = json.loads(item.settings)
    with warnings.catch_warnings():
        # Most candidates have a wrong number of latents, and each of them would warn about it.
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
    activity = recording.neural[:: max(1, recording.n_times // _MOST_ROWS)]
    tables = consistency(models, activity)
    del tables["all"]
    others = ~np.eye(item.seeds, dtype=bool)
    by_block = [
        ((table + table.T) / 2).mean(axis=1, where=others).tolist() for table in tables.values()
    ]
    blocks = models[0].blocks_.values()
    return {
        "consistency": np.min(by_block, axis=0).tolist(),
        "n_latents": max(block.stop for block in blocks),
    }


def _fewest_as_good(agreements: NDArray[np.float64], sizes: Sequence[int]) -> int:
    """Index of the smallest candidate within one standard error of the best.

    Of candidates of the same size, it is the one with the highest mean. ``agreements`` has shape
    (n_candidates, n_seeds).
    """
    means = agreements.mean(axis=1)
    best = int(means.argmax())
    enough = np.flatnonzero(means >= means[best] - _standard_error(agreements)[best]).tolist()
    return int(min(enough, key=lambda i: (sizes[i], -means[i])))


def _standard_error(agreements: NDArray[np.float64]) -> NDArray[np.float64]:
    return agreements.std(axis=1, ddof=1) / np.sqrt(agreements.shape[1])


def _candidate_name(label_dims: Dims, time_dims: int) -> str:
    """Name of a candidate in a plot: its numbers of latents."""
    if label_dims is None:
        return str(time_dims)
    widths = list(label_dims.values()) if isinstance(label_dims, Mapping) else [label_dims]
    return " + ".join(map(str, [*widths, time_dims]))
