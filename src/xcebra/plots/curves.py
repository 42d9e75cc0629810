"""Tuning curves and rate maps: mean activity of neurons as a function of a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.label_info import NOTHING_KNOWN, column_titles
from xcebra.data.labels import Label, LabelSpec, check_varies, delayed, make_label
from xcebra.data.recording import Recording
from xcebra.statistics.binned_means import means_by_bin
from xcebra.statistics.rate_maps import rate_maps

Array = NDArray[np.float64]
Shape = Literal["circle", "line", "plane", "classes"]

# A bin of a curve should have some tens of samples; a circle has at most 36 bins, of 10 degrees.
_SAMPLES_PER_BIN = 30
_CIRCLE_BINS, _LINE_BINS = (8, 36), (5, 25)
# Limits of the number of bins along the longest side of a rate map. 25 bins are 4 cm in a box of
# one metre; more bins make the page larger and hardly show more after smoothing.
_PLANE_BINS = (8, 25)
_SAMPLES_PER_SQUARE = 10
# Bins with less than this share of the typical (median) time of the visited bins are left blank,
# and so are bins with fewer samples than the least: a rate map is smoothed and needs fewer than a
# curve. Larger values leave more bins blank; not tuned.
_LEAST_SHARE, _LEAST_CURVE, _LEAST_MAP = 0.1, 10, 2
# A curve over a continuous label covers the values between these quantiles: few samples lie
# outside, and a single outlier would make all bins too wide.
_QUANTILES = (0.005, 0.995)


@dataclass(frozen=True, eq=False)
class Tuning:
    """Mean activity of neurons as a function of a label.

    Parameters
    ----------
    label : str
    shape : {"circle", "line", "plane", "classes"}
        Circle for a circular label, line and plane for continuous labels of one and two columns,
        classes for a discrete label.
    titles : tuple of str
        Titles of the axes, one for each column of the label.
    rate_title : str
        ``"spikes per second"``, or ``"activity per sample"`` if the activity is not known to be
        counts on a clock.
    means : ndarray of shape (n_neurons, n_bins), or (n_neurons, n_x, n_y) for a plane
        NaN in bins that were hardly visited.
    errors : ndarray of the shape of ``means``, or None for a plane
        Standard errors, from leaving out stretches of time.
    edges : tuple of ndarray of shape (n_bins + 1,)
        Limits of the bins, in degrees for a circle; two arrays for a plane, none for classes.
    classes : tuple of str
        Names of the classes.
    neurons : ndarray of int of shape (n_neurons,)
        Positions of the neurons in the recording.
    """

    label: str
    shape: Shape
    titles: tuple[str, ...]
    rate_title: str
    means: Array
    errors: Array | None
    edges: tuple[Array, ...]
    classes: tuple[str, ...]
    neurons: NDArray[np.int64]

    @property
    def centres(self) -> Array:
        """Centres of the bins of a circle or a line, of shape (n_bins,)."""
        return (self.edges[0][1:] + self.edges[0][:-1]) / 2


def label_tuning(
    recording: Recording,
    label: str,
    neurons: Sequence[int | str] | NDArray[np.int64] | None = None,
    *,
    kind: str | None = None,
    delay: int = 0,
) -> Tuning:
    """Compute tuning curves or rate maps of neurons for one label.

    Parameters
    ----------
    recording : Recording
    label : str
        Name of a label of the recording.
    neurons : sequence of int or str, optional
        Positions or names of neurons; all of them if not given.
    kind : {"continuous", "discrete", "circular"}, optional
        If not given, what the recording says of the label, or a guess from its values.
    delay : int
        Number of samples by which the label comes after the activity, as ``label_delay``.

    Returns
    -------
    Tuning

    Raises
    ------
    ValueError
        If there is no such label or neuron, or if the label has no tuning curve.
    """
    if label not in recording.labels:
        near = get_close_matches(str(label), list(recording.labels), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"label={label!r} is no label of the recording, which has "
            f"{list(recording.labels)}{hint}",
            ("label",),
        )
    chosen = neuron_positions(recording, neurons)
    info = recording.label_info.get(label, NOTHING_KNOWN)
    values = recording.labels[label]
    made = make_label(label, values, LabelSpec(kind or info.kind))
    made = delayed(made, delay, recording.epochs)
    check_varies(made)
    n_columns = made.points.shape[1]
    if made.kind == "continuous" and n_columns > 2:
        raise InputError(
            f"label={label!r} has {n_columns} columns, but tuning curves need one and rate maps "
            "two; give its columns as labels of their own",
            ("label",),
        )
    times = recording.epochs.indices()
    recorded = recording.rows(times)
    scale, rate_title = _rate(recording, recorded)
    activity = recorded[:, chosen].astype(np.float64) * scale
    titles = column_titles(label, info, values.shape[1])
    if made.kind == "continuous" and n_columns == 2:
        means, edges = _plane(activity, np.where(made.valid[:, None], made.points, np.nan)[times])
        return Tuning(label, "plane", titles, rate_title, means, None, edges, (), chosen)
    index, limits, classes = _bins(made, times)
    n_bins = len(classes) or len(limits[0]) - 1
    means, errors, counts = means_by_bin(activity, index, n_bins)
    if made.kind != "discrete":
        rare = counts < _least_samples(counts, _LEAST_CURVE)
        means, errors = (np.where(rare, np.nan, part) for part in (means, errors))
    shape: Shape = {"circular": "circle", "discrete": "classes"}.get(made.kind, "line")  # type: ignore[assignment]
    if shape == "circle":
        titles = (f"{label} (degrees)",)
    elif shape == "classes":
        titles = (label,)
    return Tuning(label, shape, titles, rate_title, means, errors, limits, classes, chosen)


def neuron_positions(
    recording: Recording, neurons: Sequence[int | str] | NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return the positions of neurons that are given by position or by name.

    Parameters
    ----------
    recording : Recording
    neurons : sequence of int or str, or None for all
    """
    names = recording.neuron_names
    if neurons is None:
        return np.arange(len(names))
    positions = []
    for neuron in neurons:
        if isinstance(neuron, str):
            if neuron not in names:
                near = get_close_matches(neuron, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"neurons has {neuron!r}, which is no neuron of the recording{hint}",
                    ("neurons",),
                )
            positions.append(names.index(neuron))
        elif isinstance(neuron, (int, np.integer)) and 0 <= neuron < len(names):
            positions.append(int(neuron))
        else:
            raise InputError(
                f"neurons must hold names, or positions from 0 to {len(names) - 1}, got {neuron!r}",
                ("neurons",),
            )
    if not positions:
        raise InputError("neurons is empty; name at least one neuron", ("neurons",))
    return np.array(positions, dtype=np.int64)


def _rate(recording: Recording, activity: NDArray[np.float32]) -> tuple[float, str]:
    """Return the factor that makes rates of the activity, and the title of their axis.

    Only counts on a clock are known to be spikes: other activity may be fluorescence.
    """
    is_count = bool((activity >= 0).all() and (activity == np.round(activity)).all())
    if is_count and recording.time is not None and recording.n_times > 1:
        return 1 / float(np.median(np.diff(recording.time))), "spikes per second"
    return 1.0, "activity per sample"


def _bins(
    label: Label, times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[Array, ...], tuple[str, ...]]:
    """Return the bin of each sample (-1 for none), the limits of the bins, and names of classes."""
    valid, points = label.valid[times], label.points[times]
    if label.kind == "discrete":
        return np.where(valid, label.codes()[times], -1), (), tuple(map(str, label.classes))
    n_known = int(valid.sum())
    if label.kind == "circular":
        n_bins = int(np.clip(n_known // _SAMPLES_PER_BIN, *_CIRCLE_BINS))
        turn = np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi) % 1
        # A negative angle close to 0 may be rounded to a whole turn, which belongs to bin 0.
        index = np.floor(np.where(valid, turn, 0.0) * n_bins).astype(np.int64) % n_bins
        return np.where(valid, index, -1), (np.linspace(0, 360, n_bins + 1),), ()
    n_bins = int(np.clip(n_known // _SAMPLES_PER_BIN, *_LINE_BINS))
    low, high = np.quantile(points[valid, 0], _QUANTILES)
    if not low < high:
        low, high = points[valid, 0].min(), points[valid, 0].max()
    inside = valid & (points[:, 0] >= low) & (points[:, 0] <= high)
    share = np.where(inside, (points[:, 0] - low) / (high - low), 0.0)
    index = np.minimum((share * n_bins).astype(np.int64), n_bins - 1)
    return np.where(inside, index, -1), (np.linspace(low, high, n_bins + 1),), ()


def _plane(activity: Array, position: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return rate maps and the limits of their bins; bins that were hardly visited are NaN."""
    known = ~np.isnan(position).any(axis=1)
    longest = float(np.ptp(position[known], axis=0).max())
    n_bins = int(np.clip(np.sqrt(known.sum() / _SAMPLES_PER_SQUARE), *_PLANE_BINS))
    maps = rate_maps(activity, position, bin_size=longest / n_bins)
    rare = maps.occupancy < _least_samples(maps.occupancy, _LEAST_MAP)
    return np.where(rare, np.nan, maps.rates), maps.edges


def _least_samples(counts: Array, least: float) -> float:
    """Return the number of samples that a bin needs to be shown; some bin always has it."""
    typical = float(np.median(counts[counts > 0]))
    return min(max(least, _LEAST_SHARE * typical), typical)
