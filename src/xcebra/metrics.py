"""Scores of maps against known connections, and of predictions against labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import sklearn.metrics
from numpy.typing import NDArray
from scipy.stats import rankdata

from xcebra.attribution.attribution_map import AttributionMap, standardised
from xcebra.common.errors import InputError

Array = NDArray[np.float64]
Truth = Mapping[str, Any] | NDArray[np.bool_]


class RocCurve(NamedTuple):
    """False and true positive rates at decreasing thresholds, each of shape (n_thresholds,)."""

    false_positive: Array
    true_positive: Array
    thresholds: Array


class Gap(NamedTuple):
    """Difference between the scores of connected and of unconnected neurons.

    ``mean`` is the difference of the means. ``worst`` is the smallest connected score minus the
    largest unconnected score; if it is above zero, a threshold separates them without error. Both
    are floats, or arrays of shape (n_times,) with one number per time step.
    """

    mean: Any
    worst: Any


def auroc(
    amap: AttributionMap,
    ground_truth: Truth,
    *,
    block: str,
    factor: str | None = None,
    score: str = "entries",
    each_step: bool = False,
) -> Any:
    """Area under the ROC curve of a block's attribution against the known connections.

    Parameters
    ----------
    amap : AttributionMap
    ground_truth : mapping of str to bool array of shape (n_neurons,), or one such array
        Whether each neuron is connected, by factor.
    block : str
        Block of the map.
    factor : str, optional
        Factor of the ground truth that the block stands for. It is needed if there are several.
    score : {"entries", "block"}
        ``"entries"``: use every (neuron, latent) entry of the block, as in the paper.
        ``"block"``: use one score per neuron.
    each_step : bool
        Return one number for every time step. The map must have been computed with
        ``keep_time=True``.

    Returns
    -------
    float, or ndarray of shape (n_times,)

    Examples
    --------
    >>> import numpy as np
    >>> score = np.array([0.9, 0.2, 0.8, 0.1])
    >>> amap = AttributionMap(
    ...     score[:, None], {"label": score}, {"label": slice(0, 1)}, tuple("abcd"), ("label0",)
    ... )
    >>> auroc(amap, np.array([True, False, True, False]), block="label")
    1.0
    """
    truth, scores = _labelled(amap, ground_truth, block, factor, score, each_step)
    ranks = rankdata(scores, axis=1)
    n_true = int(truth.sum())
    n_pairs = n_true * (len(truth) - n_true)
    return _answer((ranks[:, truth].sum(axis=1) - n_true * (n_true + 1) / 2) / n_pairs, each_step)


def roc_curve(
    amap: AttributionMap,
    ground_truth: Truth,
    *,
    block: str,
    factor: str | None = None,
    score: str = "entries",
) -> RocCurve:
    """ROC curve of a block's attribution; see `auroc` for the parameters and for its area."""
    truth, scores = _labelled(amap, ground_truth, block, factor, score, False)
    return RocCurve(*sklearn.metrics.roc_curve(truth, scores[0]))


def average_precision(
    amap: AttributionMap,
    ground_truth: Truth,
    *,
    block: str,
    factor: str | None = None,
    score: str = "entries",
    each_step: bool = False,
) -> Any:
    """Average precision of a block's attribution; see `auroc` for the parameters.

    It is the mean, over the connected entries, of the precision at the entry's own score. Unlike
    the area under the ROC curve, it is low if few entries are connected and many unconnected
    entries have scores as high.
    """
    truth, scores = _labelled(amap, ground_truth, block, factor, score, each_step)
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    hits = truth[order]
    n = len(truth)
    precision = np.cumsum(hits, axis=1) / np.arange(1, n + 1)
    # Equal scores belong to the same threshold: the precision of each is that at the last of them.
    is_last = np.column_stack([ranked[:, 1:] != ranked[:, :-1], np.ones(len(ranked), bool)])
    last = np.where(is_last, np.arange(n), n)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    means = (np.take_along_axis(precision, last, axis=1) * hits).sum(axis=1) / hits.sum(axis=1)
    return _answer(means, each_step)


def accuracy(
    amap: AttributionMap,
    ground_truth: Truth,
    *,
    block: str,
    factor: str | None = None,
    score: str = "block",
    threshold: float = 0.0,
    each_step: bool = False,
) -> Any:
    """Share of correct decisions if z-scores above a threshold count as connected.

    Scores are standardised over the neurons of the block, or over its entries. See `auroc` for the
    other parameters.
    """
    truth, scores = _labelled(amap, ground_truth, block, factor, score, each_step)
    return _answer(((standardised(scores) > threshold) == truth).mean(axis=1), each_step)


def gap(
    amap: AttributionMap,
    ground_truth: Truth,
    *,
    block: str,
    factor: str | None = None,
    score: str = "block",
    each_step: bool = False,
) -> Gap:
    """Difference between connected and unconnected scores; see `auroc` for the parameters."""
    truth, scores = _labelled(amap, ground_truth, block, factor, score, each_step)
    connected, unconnected = scores[:, truth], scores[:, ~truth]
    mean = connected.mean(axis=1) - unconnected.mean(axis=1)
    worst = connected.min(axis=1) - unconnected.max(axis=1)
    return Gap(_answer(mean, each_step), _answer(worst, each_step))


def _labelled(
    amap: AttributionMap,
    ground_truth: Truth,
    block: str,
    factor: str | None,
    score: str,
    each_step: bool,
) -> tuple[NDArray[np.bool_], Array]:
    """The truth, of shape (n,), and the scores to compare with it, of shape (1 or n_times, n)."""
    truth = np.asarray(_factor(ground_truth, factor), dtype=bool)
    n_neurons = len(amap.values)
    if truth.shape != (n_neurons,):
        raise InputError(
            f"ground_truth has shape {truth.shape}, but the map has {n_neurons} neurons"
        )
    if truth.all() or not truth.any():
        raise InputError(
            f"ground_truth connects {int(truth.sum())} of {n_neurons} neurons; a map can only be "
            "judged by both connected and unconnected ones: choose another factor"
        )
    if score not in ("entries", "block"):
        raise InputError(f"score must be 'entries' or 'block', got {score!r}")
    amap.block(block)
    where = amap.blocks[block]
    if each_step:
        if amap.steps is None:
            raise InputError(
                "each_step=True needs the map of every time step; make it with "
                "attribute(..., keep_time=True)"
            )
        if score == "block":
            return truth, amap.steps.norms(where).astype(np.float64)
        parts = [np.abs(part[:, :, where]) for part in amap.steps.parts()]
        entries = np.concatenate(parts).astype(np.float64)
    elif score == "block":
        return truth, amap.block(block)[None]
    else:
        entries = amap.values[None, :, where]
    return np.repeat(truth, entries.shape[2]), entries.reshape(len(entries), -1)


def _answer(values: Array, each_step: bool) -> Any:
    return values if each_step else float(values[0])


def _factor(ground_truth: Any, factor: str | None) -> Any:
    if not isinstance(ground_truth, Mapping):
        return ground_truth
    if factor is None and len(ground_truth) == 1:
        return next(iter(ground_truth.values()))
    if factor not in ground_truth:
        raise InputError(f"factor must be one of {list(ground_truth)}, got {factor!r}")
    return ground_truth[factor]


def r_squared(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Share of variance explained (R^2), mean over columns; constant columns are left out.

    Parameters
    ----------
    y : ndarray of shape (n_samples, n_columns)
        True values.
    predicted : ndarray of shape (n_samples, n_columns)

    Returns
    -------
    float
        0 if all columns are constant.
    """
    y = np.asarray(y, dtype=np.float64)
    total = np.square(y - y.mean(axis=0)).sum(axis=0)
    rest = np.square(y - predicted).sum(axis=0)
    varies = total > 0
    return float(np.mean(1 - rest[varies] / total[varies])) if varies.any() else 0.0
