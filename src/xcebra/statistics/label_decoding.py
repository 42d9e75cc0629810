"""How well a label is read from the activity on held-out time, compared with shifted labels.

Labels and neural activity change slowly and drift. Between two slow series, a decoder finds
relations even if the series are unrelated ("nonsense correlations", Harris 2020), so a held-out R^2
above zero alone is no evidence. Here, the decoder is also fitted to circular shifts of the label. A
shifted label has the same course over time but no relation to the activity, so its R^2 shows how
much of a label is read by chance.

A circular shift joins the end of a label to its start. A label that drifts through the whole
recording jumps there, and is then harder to read than the unshifted label, whether or not it is
related to the activity. For the comparison, changes slower than a tenth of the recording are
therefore removed from the activity and from every shifted label. Without this, unrelated random
walks had p <= 0.01 in 32 of 100 simulations; with it, in none.

The decoder is a ridge regression with a closed form. Its features do not change with the shift, so
one eigendecomposition per fold is enough for all shifts, which are further columns of the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from xcebra.common.eigenvalues import largest_eigenvalues
from xcebra.common.workers import Workers
from xcebra.data.epochs import IntArray
from xcebra.data.labels import Label
from xcebra.data.recording import Recording, rows_at_once
from xcebra.statistics.ridge import (
    N_STRETCHES,
    RIDGES,
    Array,
    Singles,
    held_out_errors,
    held_out_predictions,
    make_folds,
)

# Number of circular shifts. The smallest p-value is then 1 / 200, half of the level that the
# verdict "yes" needs.
N_SHIFTS = 199
# With fewer samples, the 20 stretches have less than ten samples each, too few to contain more than
# one behaviour.
LEAST_SAMPLES = 200
# Numbers of samples over which the activity is averaged: for bins of 20 ms, from no averaging to
# two seconds. Positions and headings are read best between these limits.
_WIDTHS = (1, 5, 15, 45, 101)
# A stretch must be at least this many times as long as a width, so that most averages lie inside
# it. Larger values exclude long widths in short recordings; not tuned.
_WIDTHS_A_STRETCH = 4
# Largest number of samples, largest number of samples times columns of the label, and smallest
# number of samples to which the second limit may lead. With these limits, a recording of 50,000
# samples of 60 neurons takes about two seconds on one core.
_MOST_SAMPLES, _MOST_ENTRIES, _FEWEST_SAMPLES = 20_000, 100_000, 5_000
# Number of principal components, and samples from which they are computed. More of them follow the
# activity more closely and take longer; not tuned.
_MOST_COMPONENTS, _ROWS_FOR_COMPONENTS = 100, 5_000
# Random cosines, as many as in the test of connections; their wavelengths are somewhat longer than
# the width of the data.
_MOST_WAVES, _ROWS_A_WAVE = 150, 20
_WAVELENGTH = 1.5
# Number of the slowest cosines that count as drift, from half a cycle to ten cycles: periods down
# to a tenth of the recording. With this value, p-values of unrelated slow labels and random walks
# are uniform in simulations.
_DRIFT_COSINES = 20
# Smallest shift, as a share of the recording. After a smaller shift a slow label would be nearly
# the same. Larger values leave fewer different shifts; not tuned.
_LEAST_SHIFT = 1 / 20
# A smaller share of the label's variance is a rounding error of single precision.
_LEAST_LEFT = 1e-6
# Samples that are read together: larger values need more memory. Not tuned.
_ROWS_AT_ONCE = 16_384
# Largest number of threads. Each of them needs memory for the features of one width, about 100 MB.
_MOST_WORKERS = 4
# A difference of R^2 that is large enough to be mentioned to the reader; not tuned.
_MENTIONED = 0.1


@dataclass(frozen=True)
class Decoding:
    """How well a label is read from the activity on held-out time.

    Parameters
    ----------
    r2 : float
        Share of the label's variance that is predicted, over all columns together. The columns are
        cosine and sine for an angle, and one for each class of a discrete label. It is negative if
        the mean predicts better.
    p_value : float
        From the rank of ``r2_without_drift`` among the same R^2 of shifted labels. Decoders are
        fitted to each shifted label separately.
    r2_without_drift : float
        R^2 after slow changes were removed from the label and from the activity.
    nulls : tuple of float
        The R^2 without drift of each shifted label.
    error, chance_error : float or None
        Median absolute error of the prediction, and of a prediction by the mean. It is in degrees
        for angles, and the Euclidean distance in the unit of the label for other continuous labels.
        None for discrete labels.
    accuracy, chance_accuracy : float or None
        Share of samples that is predicted correctly, averaged over classes, and 1 divided by the
        number of classes. None if the label is not discrete.
    unit : str
        ``"degrees"``, ``"label units"`` or ``"balanced accuracy"``.
    width : int
        Number of samples over which the activity was averaged.
    """

    r2: float
    p_value: float
    r2_without_drift: float
    nulls: tuple[float, ...] = ()
    error: float | None = None
    chance_error: float | None = None
    accuracy: float | None = None
    chance_accuracy: float | None = None
    unit: str = "label units"
    width: int = 1

    @property
    def in_words(self) -> str:
        """R^2 and the error or the accuracy, each with its chance level, as text."""
        if self.accuracy is not None:
            details = f"balanced accuracy {self.accuracy:.0%}, chance {self.chance_accuracy:.0%}"
        else:
            unit = " degrees" if self.unit == "degrees" else ""
            details = f"median error {self.error:.3g}{unit}, chance {self.chance_error:.3g}"
        if self.r2 <= 0 < self.r2_without_drift:
            # The error is that of a prediction with drift, which is no better than the mean.
            return f"R^2 {self.r2_without_drift:.2f} without slow drift, 0 or less with it"
        r2 = f"R^2 {self.r2:.2f}" if self.r2 > 0 else "R^2 0 or less"
        if abs(self.r2 - self.r2_without_drift) > _MENTIONED and self.r2_without_drift > 0:
            r2 += f" ({self.r2_without_drift:.2f} without slow drift)"
        return f"{r2}, {details}"


def decode(
    recording: Recording,
    label: Label,
    *,
    window: int = 1,
    n_shifts: int = N_SHIFTS,
    seed: int = 0,
) -> Decoding | None:
    """Read a label from the activity on held-out time, and compare with shifted labels.

    The activity is averaged over several widths, never across the border of an epoch. For each
    width, the features are principal components of the standardised neurons and random cosines of
    these components, with which a ridge regression can follow nonlinear relations. The recording is
    cut into 20 stretches, which are held out in five folds of four stretches each. Samples that
    share activity with a test stretch are left out of training. The width and the ridge penalty
    with the highest held-out R^2 are chosen, in the same way for every shifted label.

    Parameters
    ----------
    recording : Recording
    label : Label
        With one row for each sample of the recording.
    window : int
        Window of the embedding in samples, which is one more width to choose from.
    n_shifts : int
        Number of circular shifts of the label.
    seed : int
        Seed of the shifts and of the cosines.

    Returns
    -------
    Decoding or None
        None if there are too few samples, or if the label does not vary in them.
    """
    times = recording.epochs.indices()
    times = _evenly(times[label.valid[times]], _n_samples(label.points.shape[1]))
    points = label.points[times]
    deviation = points.std(axis=0)
    if len(times) < LEAST_SAMPLES or not deviation.any():
        return None
    rng = np.random.default_rng(seed)
    shifts = np.concatenate([[0], _shifts(len(times), n_shifts, rng)])
    drift = _drift_basis(len(times))
    centred = (points - points.mean(axis=0)).astype(np.float32)
    # All shifts of the label side by side, of shape (n_samples, n_shifts * n_columns). Drift is
    # removed after the shift, so that the jump between end and start is treated like any other part
    # of the label.
    shifted = np.concatenate([np.roll(centred, shift, axis=0) for shift in shifts], axis=1)
    shifted = _without(shifted, drift)
    total = float(np.square(centred, dtype=np.float64).sum())
    totals = np.square(shifted).sum(axis=0, dtype=np.float64).reshape(len(shifts), -1).sum(axis=1)
    # Of a label that consists of drift alone, only rounding errors are left.
    if totals[0] < _LEAST_LEFT * total:
        return None

    def read(features_of_width: tuple[int, Callable[[], Singles | None]]) -> _Reading | None:
        width, make_features = features_of_width
        features = make_features()
        if features is None:
            return None
        folds = make_folds(times, width - 1 + recording.overlap)
        r2 = 1 - held_out_errors(features, centred, folds).sum(axis=1) / total
        ridge = RIDGES[int(r2.argmax())]
        predicted = held_out_predictions(features, centred, folds, ridge)
        errors = held_out_errors(_without(features, drift), shifted, folds)
        errors = errors.reshape(len(RIDGES), len(shifts), -1).sum(axis=2)
        return _Reading(width, float(r2.max()), predicted, (1 - errors / totals).max(axis=0))

    with Workers(_MOST_WORKERS, torch.device("cpu")) as workers:
        readings = workers.map(read, _features(recording, times, window, rng))
    known = [reading for reading in readings if reading is not None]
    if not known:  # The activity does not vary.
        return None
    # The first of equals is chosen.
    best = max(known, key=lambda reading: reading.r2)
    unshifted, *nulls = np.max([reading.r2_without_drift for reading in known], axis=0).tolist()
    return Decoding(
        r2=best.r2,
        p_value=(1 + sum(null >= unshifted for null in nulls)) / len(shifts),
        r2_without_drift=unshifted,
        nulls=tuple(nulls),
        width=best.width,
        **_in_units(label.kind, points, best.predicted + points.mean(axis=0)),
    )


@dataclass(frozen=True, eq=False)
class _Reading:
    """How well a label is read from the activity averaged over one width.

    ``predicted`` has shape (n_samples, n_columns). ``r2_without_drift`` has one value for the label
    and one for each of its shifts.
    """

    width: int
    r2: float
    predicted: Array
    r2_without_drift: Array


def _drift_basis(n: int) -> Singles:
    """Orthonormal cosines that change slowest over the recording, of shape (n, n_cosines)."""
    phase = np.pi * (np.arange(n)[:, None] + 0.5) / n
    return (np.cos(phase * np.arange(1, _DRIFT_COSINES + 1)) * np.sqrt(2 / n)).astype(np.float32)


def _without(series: Singles, basis: Singles) -> Singles:
    """Subtract from a series its projection onto an orthonormal basis."""
    return series - basis @ (basis.T @ series)


def _n_samples(n_columns: int) -> int:
    """Number of samples to use, which is smaller for labels of many columns to limit the time."""
    return int(np.clip(_MOST_ENTRIES // n_columns, _FEWEST_SAMPLES, _MOST_SAMPLES))


def _evenly(times: IntArray, most: int) -> IntArray:
    """Select at most ``most`` of ``times``, evenly spaced."""
    if len(times) <= most:
        return times
    return times[np.arange(most) * len(times) // most]


def _shifts(n: int, n_shifts: int, rng: np.random.Generator) -> IntArray:
    """Draw random circular shifts, without replacement if there are enough different ones."""
    margin = max(1, int(n * _LEAST_SHIFT))
    possible = np.arange(margin, n - margin + 1)
    return rng.choice(possible, size=n_shifts, replace=len(possible) < n_shifts)


def _features(
    recording: Recording, times: IntArray, window: int, rng: np.random.Generator
) -> list[tuple[int, Callable[[], Singles | None]]]:
    """For each width, a function that makes its features.

    They are components of the activity, and cosines of them. None if the activity does not vary.
    """
    most = max(1, len(times) // (N_STRETCHES * _WIDTHS_A_STRETCH))
    # If only every n-th sample is used, stretches are n times as long.
    most *= max(1, int(np.median(np.diff(times))))
    widths = sorted({w for w in (*_WIDTHS, window) if w == 1 or w <= most})
    middle = widths[len(widths) // 2]
    component_times = _evenly(times, _ROWS_FOR_COMPONENTS)
    rows = _smoothed(recording, component_times, [middle], None)[0]
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    varies = scale > 0
    if not varies.any():
        return []
    loadings = _loadings((rows - mean)[:, varies] / scale[varies])
    projection = np.zeros((recording.n_neurons, loadings.shape[1]), np.float32)
    projection[varies] = loadings / scale[varies, None]
    n_waves = min(_MOST_WAVES, len(times) // _ROWS_A_WAVE)
    directions = rng.standard_normal((loadings.shape[1], n_waves)).astype(np.float32)
    phases = rng.uniform(0, 2 * np.pi, size=n_waves).astype(np.float32)
    averages = _smoothed(recording, times, widths, projection)

    def features(components: Singles) -> Singles | None:
        components -= components.mean(axis=0)
        size = np.sqrt(np.square(components).sum() / len(components))
        if not size > 0:
            return None
        angles = components @ (directions / (_WAVELENGTH * size)) + phases
        # Torch's cosine is several times as fast as numpy's.
        waves = torch.from_numpy(angles).cos_().numpy()
        columns = np.concatenate([components * np.sqrt(loadings.shape[1]) / size, waves], axis=1)
        return columns - columns.mean(axis=0)

    return [
        (width, partial(features, components))
        for width, components in zip(widths, averages, strict=True)
    ]


def _loadings(rows: Array) -> Singles:
    """Leading principal directions of standardised rows, of shape (n_neurons, n_components)."""
    rows = rows.astype(np.float64)
    n_components = min(_MOST_COMPONENTS, *rows.shape)
    if rows.shape[1] <= rows.shape[0]:
        vectors = largest_eigenvalues(rows.T @ rows, n_components)[1][:, ::-1]
    else:
        # The products of rows have the same eigenvalues.
        values, weights = largest_eigenvalues(rows @ rows.T, n_components)
        # Directions in which the rows do not vary are left out: they are rounding errors.
        varies = values > 1e-12 * values[-1]
        vectors = rows.T @ (weights[:, varies] / np.sqrt(values[varies]))[:, ::-1]
    return vectors.astype(np.float32)


def _smoothed(
    recording: Recording, times: IntArray, widths: list[int], projection: Singles | None
) -> list[Singles]:
    """Activity averaged over each width around ``times``, inside the epoch, and then projected.

    Returns one array of shape (len(times), n_columns) for each width.
    """
    n_columns = recording.n_neurons if projection is None else projection.shape[1]
    averages = [np.empty((len(times), n_columns), np.float32) for _ in widths]
    halves = [width // 2 for width in widths]
    reach = max(halves)
    step = max(2 * reach + 1, rows_at_once(recording.n_neurons, _ROWS_AT_ONCE))
    for start, stop in recording.epochs.pairs():
        for first in range(start, stop, step):
            last = min(first + step, stop)
            part = slice(*np.searchsorted(times, [first, last]))
            if part.start == part.stop:
                continue
            low, high = max(start, first - reach), min(stop, last + reach)
            rows = recording.rows(slice(low, high))
            if projection is not None:
                rows = rows @ projection
            sums = np.concatenate([np.zeros((1, n_columns)), np.cumsum(rows, 0, np.float64)])
            for average, half in zip(averages, halves, strict=True):
                a = np.maximum(times[part] - half, low) - low
                b = np.minimum(times[part] + half + 1, high) - low
                average[part] = (sums[b] - sums[a]) / (b - a)[:, None]
    return averages


def _in_units(kind: str, points: Array, predicted: Array) -> dict[str, Any]:
    """Fields of `Decoding` with the error or the accuracy of predictions, and its chance level."""
    mean = np.broadcast_to(points.mean(axis=0), points.shape)
    if kind == "discrete":
        codes, share = points.argmax(axis=1), points.mean(axis=0)
        present = np.flatnonzero(share > 0)
        # Each prediction is divided by the share of its class, so that rare classes are predicted
        # too.
        guess = present[(predicted[:, present] / share[present]).argmax(axis=1)]
        hits = [float((guess[codes == k] == k).mean()) for k in present]
        return {
            "accuracy": float(np.mean(hits)),
            "chance_accuracy": 1 / len(present),
            "unit": "balanced accuracy",
        }
    if kind == "circular":
        return {
            "error": float(np.median(_angle_between(points, predicted))),
            "chance_error": float(np.median(_angle_between(points, mean))),
            "unit": "degrees",
        }
    return {
        "error": float(np.median(np.linalg.norm(predicted - points, axis=1))),
        "chance_error": float(np.median(np.linalg.norm(mean - points, axis=1))),
        "unit": "label units",
    }


def _angle_between(points: Array, others: Array) -> Array:
    """Absolute angle in degrees between rows of cosine and sine, of shape (n_samples,)."""
    first, second = (np.arctan2(rows[:, 1], rows[:, 0]) for rows in (points, others))
    return np.degrees(np.abs(np.angle(np.exp(1j * (first - second)))))
