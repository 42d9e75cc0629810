"""AttributionMap: an immutable value that says which neuron is connected to which latent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from xcebra.caveats import XcebraWarning
from xcebra.common.choices import AGGREGATES
from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs, IntArray
from xcebra.statistics import second_opinion
from xcebra.statistics.second_opinion import Disagreement, SecondOpinion
from xcebra.statistics.significance import Connections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from xarray import Dataset

Array = NDArray[np.float64]
_ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Steps:
    """Maps of single time steps, signed.

    Parameters
    ----------
    stored : ndarray of shape (n_stored, n_neurons, n_latents)
        In memory, or mapped from a file.
    times : ndarray of shape (n_times,)
        Sample index of each map.
    rows : ndarray of shape (n_times,), optional
        Which of the stored maps these are; all of them if not given.
    """

    stored: NDArray[np.float32]
    times: IntArray
    rows: IntArray | None = None

    def __post_init__(self) -> None:
        for name in ("stored", "times", "rows"):
            if (array := getattr(self, name)) is not None:
                # A view: large arrays are not copied, and the caller keeps its rights.
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def maps(self) -> NDArray[np.float32]:
        """Every map, of shape (n_times, n_neurons, n_latents)."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def choose(self, rows: IntArray) -> Steps:
        """Some of the steps, without a copy."""
        return Steps(self.stored, self.times[rows], rows if self.rows is None else self.rows[rows])

    def parts(self) -> Iterator[NDArray[np.float32]]:
        """The maps, a stretch of time small enough to work on at once."""
        at_once = max(1, _ENTRIES_AT_ONCE // max(1, int(np.prod(self.stored.shape[1:]))))
        for start in range(0, len(self), at_once):
            part = slice(start, start + at_once)
            yield self.stored[part if self.rows is None else self.rows[part]]

    def norms(self, block: slice) -> NDArray[np.float32]:
        """Norm over a block's latents at every step, of shape (n_times, n_neurons)."""
        return np.concatenate([np.linalg.norm(p[:, :, block], axis=2) for p in self.parts()])

    def median(self) -> Array:
        """Median over time of absolute values, some neurons at a time."""
        n_neurons, n_latents = self.stored.shape[1:]
        at_once = max(1, _ENTRIES_AT_ONCE // max(1, len(self) * n_latents))
        found = []
        for start in range(0, n_neurons, at_once):
            some = slice(start, start + at_once)
            entries = self.stored[:, some] if self.rows is None else self.stored[self.rows, some]
            found.append(np.median(np.abs(entries), axis=0))
        return np.concatenate(found).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of a block under two conditions, and their difference with its interval.

    Parameters
    ----------
    first, second, difference, low, high : ndarray of shape (n_neurons,)
        ``difference`` is ``first - second``; ``low`` and ``high`` are the ends of its interval.
    level : float
        How often such an interval should hold the true difference.
    neuron_names : tuple of str
    """

    first: Array
    second: Array
    difference: Array
    low: Array
    high: Array
    level: float
    neuron_names: tuple[str, ...]

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Whether a neuron's interval excludes zero; one neuron at a time, not corrected."""
        return (self.low > 0) | (self.high < 0)


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
    steps : Steps or None
        The map of every time step, if it was made with ``keep_time=True``.
    connections : mapping of str to Connections
        For each block that was tested, what every neuron owes to it and how sure that is.
    lags : mapping of int to AttributionMap
        Where the encoder reads several samples, the map of each: samples from the point's own, or
        places in a module's window. ``values`` are norms over them. The decoder has none.
    opinions : mapping of str to SecondOpinion
        For each label that was at hand, what simple scores of the label alone say of every neuron.
    warnings : tuple of XcebraWarning
        Every warning that was given when the map was made.

    Examples
    --------
    >>> import numpy as np
    >>> amap = AttributionMap(
    ...     np.array([[3.0, 0.1], [0.2, 2.0]]),
    ...     {"position": np.array([3.0, 0.2]), "time": np.array([0.1, 2.0])},
    ...     {"position": slice(0, 1), "time": slice(1, 2)},
    ...     ("a", "b"),
    ...     ("position0", "time0"),
    ... )
    >>> amap.ranking("time")
    [('b', 2.0), ('a', 0.1)]
    """

    values: Array
    scores: Mapping[str, Array]
    blocks: Mapping[str, slice]
    neuron_names: tuple[str, ...]
    latent_names: tuple[str, ...]
    made: Mapping[str, Any] = field(default_factory=dict)
    steps: Steps | None = None
    connections: Mapping[str, Connections] = field(default_factory=dict)
    lags: Mapping[int, AttributionMap] = field(default_factory=dict)
    opinions: Mapping[str, SecondOpinion] = field(default_factory=dict)
    warnings: tuple[XcebraWarning, ...] = ()

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        # Copies: neither the caller's later changes nor its right to make them are touched.
        set_(self, "values", _frozen(self.values))
        set_(self, "scores", {name: _frozen(score) for name, score in self.scores.items()})
        for name in ("scores", "blocks", "made", "connections", "lags", "opinions"):
            set_(self, name, MappingProxyType(dict(getattr(self, name))))

    @classmethod
    def from_steps(
        cls,
        steps: Steps,
        blocks: Mapping[str, slice],
        neuron_names: tuple[str, ...],
        latent_names: tuple[str, ...],
        *,
        aggregate: str = "mean",
        made: Mapping[str, Any] | None = None,
    ) -> AttributionMap:
        """Aggregate maps of single steps into a global one that keeps them."""
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate must be one of {list(AGGREGATES)}, got {aggregate!r}")
        made = {**(made or {}), "aggregate": aggregate, "n_samples": len(steps)}
        if aggregate == "median":
            values = steps.median()
            found = [np.median(steps.norms(b), axis=0).astype(np.float64) for b in blocks.values()]
        else:
            gather = Gather(aggregate, tuple(blocks.values()))
            for part in steps.parts():
                gather.add(part.astype(np.float64))
            values, found = gather.result()
        scores = dict(zip(blocks, found, strict=True))
        return cls(values, scores, blocks, neuron_names, latent_names, made, steps)

    def block(self, name: str) -> Array:
        """One score per neuron for a block, of shape (n_neurons,)."""
        if name not in self.blocks:
            raise InputError(f"block must be one of {list(self.blocks)}, got {name!r}")
        return self.scores[name]

    def z_scores(self, name: str) -> Array:
        """Scores of a block, standardised over neurons."""
        return standardised(self.block(name))

    def is_connected(self, name: str, threshold: float = 0.0) -> NDArray[np.bool_]:
        """Whether each neuron's z-score exceeds a threshold.

        The paper's threshold of 0 calls about half of the neurons connected, whatever the data;
        it ranks, it does not test: `significant` does.
        """
        return self.z_scores(name) > threshold

    def significant(self, name: str, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Neurons connected to a block, given all others, with few false ones among them.

        Parameters
        ----------
        name : str
        alpha : float
            Share of false ones to expect among those found: Benjamini and Hochberg's procedure on
            the p-values of ``connections``.
        """
        self.block(name)
        if not 0 < alpha < 1:
            raise InputError(f"alpha must lie between 0 and 1, got {alpha!r}")
        if name not in self.connections:
            raise InputError(
                f"{name!r} was not tested: make the map with attribute(..., test=True), on a "
                "Recording with its labels or with y=..."
            )
        return self.connections[name].significant(alpha)

    def ranking(self, name: str) -> list[tuple[str, float]]:
        """Neurons by their score for a block, highest first."""
        score = self.block(name)
        order = np.argsort(-score, kind="stable")
        return [(self.neuron_names[i], float(score[i])) for i in order]

    def agreement(self, name: str) -> float | None:
        """Whether the map ranks the neurons as an encoding model of the label alone does.

        Parameters
        ----------
        name : str
            A block.

        Returns
        -------
        float or None
            Spearman correlation over neurons of the block's scores with the held-out R^2 of the
            label alone; a negative R^2 counts as 0. None where it cannot be computed: for blocks
            that are not a label's, maps made without the labels, and very short recordings.
        """
        scores = self.block(name)
        opinion = self.opinions.get(name)
        return None if opinion is None else second_opinion.agreement(scores, opinion)

    def disagreements(self, name: str) -> list[Disagreement]:
        """Neurons that are high by the map and low by the encoding model, or the other way round.

        Parameters
        ----------
        name : str
            A block.

        Returns
        -------
        list of Disagreement
            Each with the neuron's name and what its disagreement may mean; the neurons whose ranks
            differ most come first. Empty for a block without a second opinion.

        Notes
        -----
        High means in the top quarter of the neurons, and low means in the lower half. By the
        encoding model, high ones have an R^2 above 0.02 and low ones have not. If the block was
        tested, high ones are also `significant`, and all that are not are low. A neuron that is
        significant with an R^2 of 0 or less is always listed.
        """
        scores = self.block(name)
        if name not in self.opinions:
            return []
        connected = self.significant(name) if name in self.connections else None
        return second_opinion.disagreements(
            name, self.neuron_names, scores, self.opinions[name], connected
        )

    # What follows needs the map of every time step.

    def signed(self) -> Array:
        """Time mean of the signed maps, of shape (n_neurons, n_latents)."""
        steps = self._steps("signed")
        sums = [part.sum(axis=0, dtype=np.float64) for part in steps.parts()]
        return np.sum(sums, axis=0) / len(steps)

    def at(self, time: int) -> AttributionMap:
        """The map of one sample, by its index in the recording."""
        return self.restrict(times=[time])

    def restrict(
        self,
        *,
        times: Iterable[int] | None = None,
        epochs: Iterable[tuple[int, int]] | None = None,
    ) -> AttributionMap:
        """The map over some of its samples: sample indices, a mask, or epochs of the recording."""
        steps = self._steps("restrict")
        if (times is None) == (epochs is None):
            raise InputError("give either times or epochs")
        if epochs is None:
            rows = _rows(steps.times, times, "times")
        else:
            rows = _rows_in_epochs(steps.times, epochs, "epochs")
        chosen = steps.choose(rows)
        return self._remade(chosen, self.made.get("aggregate", "mean"))

    def aggregated(self, aggregate: str) -> AttributionMap:
        """The same map with another aggregate over time: mean, max, sum or median."""
        made = self._remade(self._steps("aggregated"), aggregate)
        return replace(made, connections=self.connections, opinions=self.opinions)

    def compare(
        self,
        first: Any,
        second: Any,
        block: str,
        *,
        level: float = 0.95,
        n_stretches: int = 20,
    ) -> Comparison:
        """Mean scores of a block in two sets of epochs, for instance running and resting.

        Each set is cut into stretches of time, whose means count as the observations of a Welch
        interval: neighbouring samples tell the same, and counting each of them would make the
        interval too short.

        Parameters
        ----------
        first, second : list of (start, stop), or bool array over the recording's samples
        block : str
        level : float
            How often the interval should hold the true difference.
        n_stretches : int
            For each condition; a stretch must be long beside the memory of the activity.
        """
        steps = self._steps("compare")
        self.block(block)
        if not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, got {level!r}")
        if n_stretches < 2:
            raise InputError(f"n_stretches must be 2 or more, got {n_stretches!r}")
        norms = steps.norms(self.blocks[block])
        means, variances, freedom, taken = [], [], [], np.zeros(len(steps), dtype=int)
        for name, condition in (("first", first), ("second", second)):
            find = _rows if np.ndim(condition) == 1 else _rows_in_epochs
            rows = find(steps.times, condition, name)
            if len(rows) < 2:
                raise InputError(f"{name} holds 1 sample of the map; an interval needs 2 or more")
            taken[rows] += 1
            stretches = np.array_split(norms[rows], min(n_stretches, len(rows)))
            of_stretches = np.array([s.mean(axis=0, dtype=np.float64) for s in stretches])
            means.append(norms[rows].mean(axis=0, dtype=np.float64))
            variances.append(of_stretches.var(axis=0, ddof=1) / len(stretches))
            freedom.append(len(stretches) - 1)
        if (taken > 1).any():
            raise InputError(
                f"first and second share {(taken > 1).sum()} samples; an interval needs conditions "
                "that exclude each other"
            )
        variance = variances[0] + variances[1]
        parts = sum(v**2 / n for v, n in zip(variances, freedom, strict=True))
        varies = parts > 0
        degrees = np.where(varies, variance**2 / np.where(varies, parts, 1.0), 1.0)
        reach = student_t.ppf((1 + level) / 2, degrees) * np.sqrt(variance)
        difference = means[0] - means[1]
        return Comparison(
            means[0],
            means[1],
            difference,
            difference - reach,
            difference + reach,
            level,
            self.neuron_names,
        )

    def to_xarray(self) -> Dataset:
        """As a labelled `xarray.Dataset`; `save` writes the same to a file."""
        from xcebra.io import map_file

        return map_file.to_xarray(self)

    def to_pandas(self) -> DataFrame:
        """One row per neuron: its score for every block, then its value for every latent.

        What a test found follows the scores. The second opinion comes last: the rate, and for every
        label the encoding strength and the usual score of its kind.
        """
        from xcebra.io import map_file

        return map_file.to_pandas(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to one netCDF file, complete or not at all."""
        from xcebra.io import map_file

        map_file.write_map(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AttributionMap:
        """Read a map written by `save`; maps of single steps stay in the file until used."""
        from xcebra.io import map_file

        return map_file.read_map(path)

    def plot(
        self,
        kind: str = "map",
        *,
        ax: Axes | None = None,
        block: str | None = None,
        truth: Mapping[str, Any] | NDArray[np.bool_] | None = None,
    ) -> Axes:
        """Draw the map; see `xcebra.plots`.

        Parameters
        ----------
        kind : {"map", "bars", "time"}
            Neurons by latents, beside the known wiring if ``truth`` names it by factor; one bar
            per neuron for a block; or a block's score of every neuron over time.
        ax : Axes, optional
        block : str, optional
            For ``"bars"`` and ``"time"``; the first block if not given.
        truth : mapping of str to bool array, or for bars one bool array, optional
        """
        from xcebra import plots

        name = next(iter(self.blocks)) if block is None else block
        if kind == "map":
            return plots.attribution_map(self, ax=ax, truth=truth)  # type: ignore[arg-type]
        if kind == "bars":
            return plots.block_scores(self, name, ax=ax, truth=truth)  # type: ignore[arg-type]
        if kind == "time":
            return plots.scores_over_time(self, name, ax=ax)
        raise InputError(f"kind must be 'map', 'bars' or 'time', got {kind!r}")

    def __repr__(self) -> str:
        n_neurons, n_latents = self.values.shape
        blocks = ", ".join(f"{name}: {b.stop - b.start}" for name, b in self.blocks.items())
        steps = "" if self.steps is None else f", {len(self.steps)} time steps"
        return (
            f"AttributionMap({n_neurons} neurons x {n_latents} latents, blocks {{{blocks}}}, "
            f"method={self.made.get('method')!r}{steps})"
        )

    def _repr_html_(self) -> str:
        from xcebra.common.rendering import map_html

        return map_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings cannot be pickled; plain ones become read-only again.
        parts = dict(self.scores), dict(self.blocks), self.neuron_names, self.latent_names
        others = dict(self.made), self.steps, dict(self.connections), dict(self.lags)
        return type(self), (self.values, *parts, *others, dict(self.opinions), self.warnings)

    def _steps(self, asked: str) -> Steps:
        if self.steps is None:
            raise InputError(
                f"{asked} needs the map of every time step; make it with "
                "attribute(..., keep_time=True)"
            )
        return self.steps

    def _remade(self, steps: Steps, aggregate: str) -> AttributionMap:
        made = AttributionMap.from_steps(
            steps, self.blocks, self.neuron_names, self.latent_names, aggregate=aggregate
        )
        return replace(made, made={**self.made, **made.made}, warnings=self.warnings)


class Gather:
    """Aggregates maps over time, entry by entry and block by block, in constant memory."""

    def __init__(self, aggregate: str, blocks: tuple[slice, ...]) -> None:
        self._aggregate = aggregate
        self._blocks = blocks
        self._n = 0
        self._state: list[Array] = []

    def add(self, maps: Any) -> None:
        """Take in maps of shape (n_samples, n_neurons, n_latents), of numpy or torch."""
        found = [abs(maps), *(_norm(maps[:, :, b]) for b in self._blocks)]
        if self._aggregate == "max":
            new = [_as_double(f.amax(0) if hasattr(f, "amax") else f.max(0)) for f in found]
            merge: Any = np.maximum
        else:
            new = [_as_double(f.sum(0)) for f in found]
            merge = np.add
        if self._state:
            new = [merge(a, b) for a, b in zip(self._state, new, strict=True)]
        self._state = new
        self._n += len(maps)

    def result(self) -> tuple[Array, list[Array]]:
        """Values, and the scores of each block."""
        divide = self._n if self._aggregate == "mean" else 1
        values, *scores = [s / divide for s in self._state]
        return values, scores


def _norm(entries: Any) -> Any:
    return (entries * entries).sum(2) ** 0.5


def _as_double(found: Any) -> Array:
    return np.asarray(found.cpu() if hasattr(found, "cpu") else found, dtype=np.float64)


def _frozen(array: Array) -> Array:
    array = np.array(array, dtype=np.float64)
    array.flags.writeable = False
    return array


def standardised(scores: Array) -> Array:
    """Mean zero and variance one over the last axis; zero where all are equal."""
    varies = scores.max(axis=-1, keepdims=True) > scores.min(axis=-1, keepdims=True)
    # Not by the spread: rounding of the mean leaves some even between equal scores.
    spread = np.where(varies, scores.std(axis=-1, keepdims=True), 1.0)
    apart = np.where(varies, scores - scores.mean(axis=-1, keepdims=True), 0.0)
    return apart / np.where(spread > 0, spread, 1.0)


def _rows(known: IntArray, times: Any, name: str) -> IntArray:
    """Where the samples asked for, by index or mask, stand among those that a map has."""
    try:
        wanted = np.asarray(times if isinstance(times, np.ndarray) else list(times))
    except (TypeError, ValueError):
        wanted = np.empty((0, 0))
    if wanted.ndim == 1 and len(wanted) == 0:
        wanted = wanted.astype(np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "biu":
        raise InputError(f"{name} must hold sample indices or a mask, got {times!r}")
    if wanted.dtype == bool:
        last = int(known.max())
        if len(wanted) <= last:
            raise InputError(
                f"{name} is a mask of {len(wanted)} samples, but the map reaches sample {last} of "
                "the recording"
            )
        wanted = np.flatnonzero(wanted)
    elif len(missing := np.setdiff1d(wanted, known)):
        raise InputError(f"{name} asks for sample {missing[0]}, which the map does not have")
    return _some(np.isin(known, wanted), name)


def _rows_in_epochs(known: IntArray, epochs: Any, name: str) -> IntArray:
    """The same for epochs of the recording, which may go on after the map's last sample."""
    epochs = list(epochs) if isinstance(epochs, Iterable) else epochs
    try:
        reach = max(int(stop) for _, stop in epochs)
    except (TypeError, ValueError, OverflowError):
        reach = 0
    checked = Epochs.check(epochs, max(reach, int(known.max()) + 1))
    which = np.searchsorted(checked.starts, known, side="right") - 1
    return _some((which >= 0) & (known < checked.stops[which]), name)


def _some(inside: NDArray[np.bool_], name: str) -> IntArray:
    if not inside.any():
        raise InputError(f"{name} holds no sample of the map")
    return np.flatnonzero(inside)
