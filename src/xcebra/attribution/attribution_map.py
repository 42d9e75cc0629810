"""AttributionMap: an immutable value that holds how much neurons and latents are related."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from xcebra.attribution.groups import GroupBy, Groups, group_scores
from xcebra.attribution.steps import Gather, Steps, rows_at, rows_in_epochs
from xcebra.caveats import XcebraWarning
from xcebra.common.checks import raise_if
from xcebra.common.choices import AGGREGATES
from xcebra.common.errors import InputError
from xcebra.data.units import UnitTable, check_units
from xcebra.statistics import second_opinion
from xcebra.statistics.second_opinion import Disagreement, SecondOpinion
from xcebra.statistics.significance import Connections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from xarray import Dataset

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of a block in two conditions, and their difference with a confidence interval.

    Parameters
    ----------
    first, second, difference, low, high : ndarray of shape (n_neurons,)
        ``difference`` is ``first - second``; ``low`` and ``high`` are the ends of its interval.
    level : float
        Confidence level of the interval.
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
        """Whether each neuron's interval excludes zero, not corrected for multiple testing."""
        return (self.low > 0) | (self.high < 0)


@dataclass(frozen=True, eq=False)
class AttributionMap:
    """A global attribution map and how it was computed. It is immutable.

    Parameters
    ----------
    values : ndarray of shape (n_neurons, n_latents)
        Non-negative: the absolute attribution, aggregated over time.
    scores : mapping of str to ndarray of shape (n_neurons,)
        For each block, the aggregated norm over its latents: one number per neuron, which does
        not depend on the axes inside the block.
    blocks : mapping of str to slice
        Latents of each block.
    neuron_names, latent_names : tuple of str
    made : mapping
        Method, basis, units, aggregate, smoothing, number of samples, and for inverted Jacobians
        how well conditioned they were.
    steps : Steps or None
        The map of every time step, if the map was computed with ``keep_time=True``.
    connections : mapping of str to Connections
        For each block that was tested, the result of the test for every neuron.
    lags : mapping of int to AttributionMap
        If the encoder has a window of several samples, the map of each sample of the window. Keys
        are offsets from the point's own sample, or positions in the window of a torch module.
        ``values`` are norms over the lags. Maps of decoders have no lags.
    opinions : mapping of str to SecondOpinion
        For each label that was available, the second opinion on every neuron.
    warnings : tuple of XcebraWarning
        Every warning that was raised when the map was computed.
    units : mapping of str to ndarray of shape (n_neurons,)
        What is known of each neuron, such as its area; see `Recording.units`.

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
    units: UnitTable = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        # These are copies, so that the caller can still change the original arrays.
        set_(self, "values", _frozen(self.values))
        set_(self, "scores", {name: _frozen(score) for name, score in self.scores.items()})
        problems: list[str] = []
        set_(self, "units", check_units(self.units, len(self.neuron_names), problems))
        raise_if(problems)
        for name in ("scores", "blocks", "made", "connections", "lags", "opinions", "units"):
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
        """Aggregate the maps of single steps into a global map that also holds them.

        Parameters
        ----------
        steps : Steps
        blocks : mapping of str to slice
        neuron_names, latent_names : tuple of str
        aggregate : {"mean", "max", "sum", "median"}
        made : mapping, optional
            How the map was computed.
        """
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate must be one of {list(AGGREGATES)}, got {aggregate!r}")
        made = {**(made or {}), "aggregate": aggregate, "n_samples": len(steps)}
        if aggregate == "median":
            values = steps.median()
            block_scores = [
                np.median(steps.norms(block), axis=0).astype(np.float64)
                for block in blocks.values()
            ]
        else:
            gather = Gather(aggregate, tuple(blocks.values()))
            for part in steps.parts():
                gather.add(part.astype(np.float64))
            values, block_scores = gather.result()
        scores = dict(zip(blocks, block_scores, strict=True))
        return cls(values, scores, blocks, neuron_names, latent_names, made, steps)

    def block(self, name: str) -> Array:
        """One score per neuron for a block, of shape (n_neurons,)."""
        if name not in self.blocks:
            raise InputError(f"block must be one of {list(self.blocks)}, got {name!r}")
        return self.scores[name]

    def z_scores(self, name: str) -> Array:
        """Scores of a block, standardised over neurons, of shape (n_neurons,)."""
        return standardised(self.block(name))

    def is_connected(self, name: str, threshold: float = 0.0) -> NDArray[np.bool_]:
        """Whether each neuron's z-score exceeds a threshold.

        The paper's threshold of 0 calls about half of the neurons connected, whatever the data.
        It is not a statistical test; use `significant` for that.

        Parameters
        ----------
        name : str
            A block.
        threshold : float

        Returns
        -------
        ndarray of bool of shape (n_neurons,)
        """
        return self.z_scores(name) > threshold

    def significant(self, name: str, alpha: float = 0.05) -> NDArray[np.bool_]:
        """Whether each neuron is significantly connected to a block, given all other blocks.

        Parameters
        ----------
        name : str
            A block.
        alpha : float
            False discovery rate: the largest expected share of unconnected neurons among those
            called connected. The procedure of Benjamini and Hochberg is applied to the p-values of
            ``connections``.

        Returns
        -------
        ndarray of bool of shape (n_neurons,)
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
        """Names and scores of the neurons for a block, highest score first."""
        score = self.block(name)
        order = np.argsort(-score, kind="stable")
        return [(self.neuron_names[i], float(score[i])) for i in order]

    def by(self, column: GroupBy, *, alpha: float = 0.05) -> Groups:
        """Summarise the map by groups of neurons.

        Parameters
        ----------
        column : str or sequence of str
            Column of ``units``, such as the area. Several columns make groups of the combinations
            of their values: ``["area", "cell_type"]``, or ``"area,cell_type"``.
        alpha : float
            False discovery rate of the neurons that count as connected.

        Returns
        -------
        Groups
            For every block and group, the mean score and, if the block was tested, the share of
            connected neurons with its interval.
        """
        return group_scores(self, column, alpha)

    @property
    def controls(self) -> tuple[str, ...]:
        """Labels that were controlled for, and not asked about."""
        return tuple(self.made.get("controls", ()))

    def agreement(self, name: str) -> float | None:
        """How well the map and an encoding model of the label alone rank neurons alike.

        Parameters
        ----------
        name : str
            A block.

        Returns
        -------
        float or None
            Spearman correlation over neurons of the block's scores with the held-out R^2 of the
            label alone; a negative R^2 counts as 0. None if it cannot be computed: for blocks that
            belong to no label, maps computed without the labels, and very short recordings.
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
            The name of each such neuron and what the disagreement may mean. The neurons whose
            ranks differ most come first. The list is empty for a block without a second opinion.

        Notes
        -----
        High means in the top quarter of the neurons, and low means in the lower half. By the
        encoding model, a neuron is high only if its R^2 is above 0.02, and low only if it is not.
        If the block was tested, a neuron is high by the map only if it is also `significant`, and
        every neuron that is not significant is low. A neuron that is significant and has an R^2 of
        0 or less is always listed.
        """
        scores = self.block(name)
        if name not in self.opinions:
            return []
        connected = self.significant(name) if name in self.connections else None
        return second_opinion.disagreements(
            name, self.neuron_names, scores, self.opinions[name], connected
        )

    # The methods below, down to `compare`, need the map of every time step.

    def signed(self) -> Array:
        """Time mean of the signed maps, of shape (n_neurons, n_latents)."""
        steps = self._steps("signed")
        sums = [part.sum(axis=0, dtype=np.float64) for part in steps.parts()]
        return np.sum(sums, axis=0) / len(steps)

    def at(self, time: int) -> AttributionMap:
        """The map of a single sample.

        Parameters
        ----------
        time : int
            Index of the sample in the recording.
        """
        return self.restrict(times=[time])

    def restrict(
        self,
        *,
        times: Iterable[int] | None = None,
        epochs: Iterable[tuple[int, int]] | None = None,
    ) -> AttributionMap:
        """The map over a part of its samples; give either ``times`` or ``epochs``.

        Parameters
        ----------
        times : iterable of int or bool array of shape (n_times,), optional
            Sample indices of the recording, or a mask over its samples.
        epochs : list of (start, stop), optional
            Stretches of the recording.
        """
        steps = self._steps("restrict")
        if (times is None) == (epochs is None):
            raise InputError("give either times or epochs")
        if epochs is None:
            rows = rows_at(steps.times, times, "times")
        else:
            rows = rows_in_epochs(steps.times, epochs, "epochs")
        chosen = steps.choose(rows)
        return self._remade(chosen, self.made.get("aggregate", "mean"))

    def aggregated(self, aggregate: str) -> AttributionMap:
        """The same map with another aggregate over time: mean, max, sum or median."""
        amap = self._remade(self._steps("aggregated"), aggregate)
        return replace(amap, connections=self.connections, opinions=self.opinions)

    def compare(
        self,
        first: Any,
        second: Any,
        block: str,
        *,
        level: float = 0.95,
        n_stretches: int = 20,
    ) -> Comparison:
        """Compare mean scores of a block in two sets of epochs, for instance running and resting.

        Each set is cut into stretches of time, and the means of the stretches are the observations
        of a Welch interval. Neighbouring samples are correlated, and counting them as independent
        observations would make the interval too short.

        Parameters
        ----------
        first, second : list of (start, stop), or bool array over the recording's samples
        block : str
        level : float
            Confidence level of the interval.
        n_stretches : int
            Number of stretches in each condition. A stretch must be long compared with the
            autocorrelation time of the activity.

        Returns
        -------
        Comparison
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
            find = rows_at if np.ndim(condition) == 1 else rows_in_epochs
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
        """Convert the map to a labelled `xarray.Dataset`; `save` writes the same to a file."""
        from xcebra.io import map_file

        return map_file.to_xarray(self)

    def to_pandas(self, *, flat: bool = False) -> DataFrame:
        """Convert the map to a table with one row per neuron.

        The columns are what is known of the neurons, the score for every block, the results of the
        test if there are any, the value for every latent, and the second opinion: the rate, and
        for every label the encoding strength and the usual score for the label's kind.

        Parameters
        ----------
        flat : bool
            Name the columns by one word each, such as ``"score_position"``, and leave out what is
            known of the neurons and the values of single latents. If all neurons have numbers as
            names, they are the index. This is the form for the metadata of a pynapple TsGroup:
            ``units.set_info(amap.to_pandas(flat=True))``.
        """
        from xcebra.io import map_file

        return map_file.to_flat_pandas(self) if flat else map_file.to_pandas(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to one netCDF file; no incomplete file is left behind."""
        from xcebra.io import map_file

        map_file.write_map(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AttributionMap:
        """Read a map written by `save`; maps of single steps are read when they are used."""
        from xcebra.io import map_file

        return map_file.read_map(path)

    def plot(
        self,
        kind: str = "map",
        *,
        ax: Axes | None = None,
        block: str | None = None,
        truth: Mapping[str, Any] | NDArray[np.bool_] | None = None,
        group_by: GroupBy | None = None,
    ) -> Axes:
        """Draw the map; see `xcebra.plots`.

        Parameters
        ----------
        kind : {"map", "bars", "time", "neurons", "groups"}
            ``"map"``: heat map of neurons by latents, and beside it the true connections if
            ``truth`` is given. ``"bars"``: one bar per neuron for a block. ``"time"``: every
            neuron's score for a block over time. ``"neurons"``: the neurons sorted by their score
            for a block, with the result of the test. ``"groups"``: the scores for a block by
            groups of neurons.
        ax : Axes, optional
        block : str, optional
            Block for all kinds but ``"map"``. By default, it is the first block.
        truth : mapping of str to bool array of shape (n_neurons,), or such an array, optional
            True connections: by factor for ``"map"``, a single array for ``"bars"``.
        group_by : str or sequence of str, optional
            Column of ``units``, or several, for the colours of ``"neurons"``, and for
            ``"groups"``, which needs it.
        """
        from xcebra import plots

        name = next(iter(self.blocks)) if block is None else block
        if kind == "map":
            return plots.attribution_map(self, ax=ax, truth=truth)  # type: ignore[arg-type]
        if kind == "bars":
            return plots.block_scores(self, name, ax=ax, truth=truth)  # type: ignore[arg-type]
        if kind == "time":
            return plots.scores_over_time(self, name, ax=ax)
        if kind == "neurons":
            return plots.neurons(self, name, group_by=group_by, ax=ax)
        if kind == "groups":
            if group_by is None:
                raise InputError(
                    f"kind='groups' needs group_by, a column of the units: {list(self.units)}",
                    ("group_by",),
                )
            return plots.groups(self, group_by, name, ax=ax)
        raise InputError(f"kind must be 'map', 'bars', 'time', 'neurons' or 'groups', got {kind!r}")

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
        # Read-only mappings cannot be pickled. `__post_init__` makes the plain ones read-only.
        parts = dict(self.scores), dict(self.blocks), self.neuron_names, self.latent_names
        others = dict(self.made), self.steps, dict(self.connections), dict(self.lags)
        last = dict(self.opinions), self.warnings, dict(self.units)
        return type(self), (self.values, *parts, *others, *last)

    def _steps(self, asked: str) -> Steps:
        if self.steps is None:
            raise InputError(
                f"{asked} needs the map of every time step; make it with "
                "attribute(..., keep_time=True)"
            )
        return self.steps

    def _remade(self, steps: Steps, aggregate: str) -> AttributionMap:
        amap = AttributionMap.from_steps(
            steps, self.blocks, self.neuron_names, self.latent_names, aggregate=aggregate
        )
        made = {**self.made, **amap.made}
        return replace(amap, made=made, warnings=self.warnings, units=self.units)


def _frozen(array: Array) -> Array:
    array = np.array(array, dtype=np.float64)
    array.flags.writeable = False
    return array


def standardised(scores: Array) -> Array:
    """Scale scores to mean zero and variance one over the last axis; zero if all are equal.

    Parameters
    ----------
    scores : ndarray of shape (..., n)

    Returns
    -------
    ndarray of shape (..., n)
    """
    varies = scores.max(axis=-1, keepdims=True) > scores.min(axis=-1, keepdims=True)
    # The standard deviation cannot decide this: rounding of the mean can make it larger than zero
    # for equal scores.
    deviation = np.where(varies, scores.std(axis=-1, keepdims=True), 1.0)
    centred = np.where(varies, scores - scores.mean(axis=-1, keepdims=True), 0.0)
    return centred / np.where(deviation > 0, deviation, 1.0)
