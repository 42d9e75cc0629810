"""How well a label is read from the activity on held-out time, compared with shifted labels.

Recordings drift and rest, and labels and neurons are slow. A decoder finds slow relations between
two unrelated series ("nonsense correlations", Harris 2020), so that a held-out R^2 above zero alone
is no evidence. Here the decoder is fitted anew to every circular shift of the label: a shifted
label keeps its own course over time and has lost its relation to the activity, and the same fit
says how much of it is read by chance.

A circular shift joins the end of a label to its start. A label that drifts through the whole
recording jumps there, and is then harder to read than the unshifted one, whether or not it has
to do with the activity. For the comparison, changes slower than a tenth of the recording are
therefore removed from the activity and from every shifted label. Without this, unrelated random
walks had p <= 0.01 in 32 of 100 simulations; with it, in none.

The decoder is a ridge regression with a closed form. Its features do not change with the shift, so
one eigendecomposition per fold serves all shifts, which are only more columns on the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from xcebra.data.epochs import IntArray
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.ridge import (
    N_STRETCHES,
    RIDGES,
    Array,
    Singles,
    held_out_errors,
    held_out_predictions,
    make_folds,
)

# The smallest p-value is then 1 / 200, half of the level that a "yes" needs.
N_SHIFTS = 199
# Fewer samples leave stretches of less than ten samples, which hold no more than one behaviour.
LEAST_SAMPLES = 200
# Smoothing, in samples: from none to two seconds for bins of 20 ms, between which places and
# headings are read best. A width must fit into a stretch several times.
_WIDTHS = (1, 5, 15, 45, 101)
_WIDTHS_A_STRETCH = 4
# These keep 50,000 samples of 60 neurons at about two seconds on one core: samples, samples times
# columns of the label, and samples at least.
_MOST_SAMPLES, _MOST_ENTRIES, _FEWEST_SAMPLES = 20_000, 100_000, 5_000
_MOST_COMPONENTS, _ROWS_FOR_COMPONENTS = 100, 5_000
# Cosines as in the test of connections, of wavelengths somewhat longer than the data are wide.
_MOST_WAVES, _ROWS_A_WAVE = 150, 20
_WAVELENGTH = 1.5
# Half cycles of the slowest cosines that count as drift: periods down to a tenth of the recording.
# With these, p-values of unrelated slow labels and random walks are uniform in simulations.
_DRIFT_COSINES = 20
# Smaller shifts of slow labels are near copies. This share of the recording
# is the least.
_LEAST_SHIFT = 1 / 20
# Rounding errors of single precision.
_LEAST_LEFT = 1e-6
_ROWS_AT_ONCE = 16_384
# A difference of R^2 that a reader should know of.
_MENTIONED = 0.1


@dataclass(frozen=True)
class Decoding:
    """How well a label is read from the activity on held-out time.

    Parameters
    ----------
    r2 : float
        Share of the label's variance that is predicted, over all its columns together: for angles
        cosine and sine, for classes one column each. Negative if the mean predicts better.
    p_value : float
        Rank of ``r2_without_drift`` among the R^2 of shifted labels, each with decoders of its own.
    r2_without_drift : float
        R^2 after slow changes were removed from label and activity.
    nulls : tuple of float
        The same of the shifted labels.
    error, chance_error : float or None
        Median absolute error of the prediction, and of predicting the mean: degrees for angles,
        Euclidean distance in the label's own unit otherwise. None for classes.
    accuracy, chance_accuracy : float or None
        Mean over classes of the share that is predicted correctly, and one over the number of
        classes. None for other labels.
    unit : str
        ``"degrees"``, ``"label units"`` or ``"balanced accuracy"``.
    width : int
        Samples over which the activity was averaged.
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
        """R^2 with the error or the accuracy, beside chance."""
        if self.accuracy is not None:
            more = f"balanced accuracy {self.accuracy:.0%}, chance {self.chance_accuracy:.0%}"
        else:
            unit = " degrees" if self.unit == "degrees" else ""
            more = f"median error {self.error:.3g}{unit}, chance {self.chance_error:.3g}"
        r2 = f"R^2 {self.r2:.2f}"
        if abs(self.r2 - self.r2_without_drift) > _MENTIONED:
            r2 += f" ({self.r2_without_drift:.2f} without slow drift)"
        return f"{r2}, {more}"


def decode(
    recording: Recording,
    label: Label,
    *,
    window: int = 1,
    n_shifts: int = N_SHIFTS,
    seed: int = 0,
) -> Decoding | None:
    """Read a label from the activity on held-out time, and compare with shifted labels.

    The activity is averaged over several widths, never across the border of an epoch. Each width
    gives principal components of the standardised neurons, and random cosines of them, which let a
    ridge regression follow nonlinear relations. The recording is cut into 20 stretches that are
    held out in turn, five folds of four; samples that share activity with a test stretch are left
    out of training. Width and ridge penalty are those with the highest held-out R^2, chosen in the
    same way for every shifted label.

    Parameters
    ----------
    recording : Recording
    label : Label
        With one row for each sample of the recording.
    window : int
        Samples that the embedding is read from; one more width to choose from.
    n_shifts : int
    seed : int
        Of the shifts and the cosines.

    Returns
    -------
    Decoding or None
        None if there are too few samples, or if the label does not vary in them.
    """
    times = recording.epochs.indices()
    times = _evenly(times[label.valid[times]], _n_samples(label.points.shape[1]))
    points = label.points[times]
    spread = points.std(axis=0)
    if len(times) < LEAST_SAMPLES or not spread.any():
        return None
    rng = np.random.default_rng(seed)
    shifts = np.concatenate([[0], _shifts(len(times), n_shifts, rng)])
    drift = _drift_basis(len(times))
    centred = (points - points.mean(axis=0)).astype(np.float32)
    # All shifts of the label side by side, of shape (sample, shift x column). The label is shifted
    # first, so that its jump is treated like any other part of it.
    shifted = np.concatenate([np.roll(centred, shift, axis=0) for shift in shifts], axis=1)
    shifted = _without(shifted, drift)
    total = float(np.square(centred, dtype=np.float64).sum())
    totals = np.square(shifted).sum(axis=0, dtype=np.float64).reshape(len(shifts), -1).sum(axis=1)
    # A label that is nothing but drift leaves rounding errors only.
    if totals[0] < _LEAST_LEFT * total:
        return None
    best, best_without = -np.inf, np.full(len(shifts), -np.inf)
    for width, features in _features(recording, times, window, rng):
        folds = make_folds(times, width - 1 + recording.overlap)
        r2 = 1 - held_out_errors(features, centred, folds).sum(axis=1) / total
        if r2.max() > best:
            best, chosen = float(r2.max()), (features, folds, RIDGES[int(r2.argmax())], width)
        errors = held_out_errors(_without(features, drift), shifted, folds)
        errors = errors.reshape(len(RIDGES), len(shifts), -1).sum(axis=2)
        best_without = np.maximum(best_without, (1 - errors / totals).max(axis=0))
    if not np.isfinite(best):  # The activity does not vary.
        return None
    features, folds, ridge, width = chosen
    predicted = held_out_predictions(features, centred, folds, ridge) + points.mean(axis=0)
    unshifted, *nulls = best_without.tolist()
    return Decoding(
        r2=best,
        p_value=(1 + sum(null >= unshifted for null in nulls)) / len(shifts),
        r2_without_drift=unshifted,
        nulls=tuple(nulls),
        width=width,
        **_in_units(label.kind, points, predicted),
    )


def _drift_basis(n: int) -> Singles:
    """The slowest cosines of a recording, orthonormal, of shape (n, n_cosines)."""
    phase = np.pi * (np.arange(n)[:, None] + 0.5) / n
    return (np.cos(phase * np.arange(1, _DRIFT_COSINES + 1)) * np.sqrt(2 / n)).astype(np.float32)


def _without(series: Singles, basis: Singles) -> Singles:
    """What is left of a series without its part in an orthonormal basis."""
    return series - basis @ (basis.T @ series)


def _n_samples(n_columns: int) -> int:
    """How many samples to use: fewer for labels of many columns, which take as much longer."""
    return int(np.clip(_MOST_ENTRIES // n_columns, _FEWEST_SAMPLES, _MOST_SAMPLES))


def _evenly(times: IntArray, most: int) -> IntArray:
    """At most so many of ``times``, evenly spaced."""
    if len(times) <= most:
        return times
    return times[np.arange(most) * len(times) // most]


def _shifts(n: int, n_shifts: int, rng: np.random.Generator) -> IntArray:
    margin = max(1, int(n * _LEAST_SHIFT))
    possible = np.arange(margin, n - margin + 1)
    return rng.choice(possible, size=n_shifts, replace=len(possible) < n_shifts)


def _features(
    recording: Recording, times: IntArray, window: int, rng: np.random.Generator
) -> Iterator[tuple[int, Singles]]:
    """Features at ``times`` for each width: components of the activity, and cosines of them."""
    most = max(1, len(times) // (N_STRETCHES * _WIDTHS_A_STRETCH))
    # The samples may be spaced; the stretches are as much longer.
    most *= max(1, int(np.median(np.diff(times))))
    widths = sorted({w for w in (*_WIDTHS, window) if w == 1 or w <= most})
    middle = widths[len(widths) // 2]
    some = _evenly(times, _ROWS_FOR_COMPONENTS)
    rows = _smoothed(recording, some, [middle], None)[0]
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    varies = scale > 0
    if not varies.any():
        return
    loadings = _loadings((rows - mean)[:, varies] / scale[varies])
    projection = np.zeros((recording.n_neurons, loadings.shape[1]), np.float32)
    projection[varies] = loadings / scale[varies, None]
    n_waves = min(_MOST_WAVES, len(times) // _ROWS_A_WAVE)
    directions = rng.standard_normal((loadings.shape[1], n_waves)).astype(np.float32)
    phases = rng.uniform(0, 2 * np.pi, size=n_waves).astype(np.float32)
    for width, components in zip(
        widths, _smoothed(recording, times, widths, projection), strict=True
    ):
        components -= components.mean(axis=0)
        size = np.sqrt(np.square(components).sum() / len(components))
        if not size > 0:
            continue
        angles = components @ (directions / (_WAVELENGTH * size)) + phases
        # Torch's cosine is several times as fast as numpy's.
        waves = torch.from_numpy(angles).cos_().numpy()
        features = np.concatenate([components * np.sqrt(loadings.shape[1]) / size, waves], axis=1)
        yield width, features - features.mean(axis=0)


def _loadings(rows: Array) -> Singles:
    """Leading principal directions of standardised rows, of shape (n_neurons, n_components)."""
    rows = rows.astype(np.float64)
    n_components = min(_MOST_COMPONENTS, *rows.shape)
    if rows.shape[1] <= rows.shape[0]:
        vectors = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    else:
        vectors = np.linalg.svd(rows, full_matrices=False)[2].T
    return vectors[:, :n_components].astype(np.float32)


def _smoothed(
    recording: Recording, times: IntArray, widths: list[int], projection: Singles | None
) -> list[Singles]:
    """Activity around ``times``, averaged over each width inside its epoch, and projected."""
    n_columns = recording.n_neurons if projection is None else projection.shape[1]
    result = [np.empty((len(times), n_columns), np.float32) for _ in widths]
    halves = [width // 2 for width in widths]
    reach = max(halves)
    for start, stop in recording.epochs.pairs():
        for first in range(start, stop, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, stop)
            at = slice(*np.searchsorted(times, [first, last]))
            if at.start == at.stop:
                continue
            low, high = max(start, first - reach), min(stop, last + reach)
            rows = recording.rows(slice(low, high))
            if projection is not None:
                rows = rows @ projection
            sums = np.concatenate([np.zeros((1, n_columns)), np.cumsum(rows, 0, np.float64)])
            for each, half in zip(result, halves, strict=True):
                a = np.maximum(times[at] - half, low) - low
                b = np.minimum(times[at] + half + 1, high) - low
                each[at] = (sums[b] - sums[a]) / (b - a)[:, None]
    return result


def _in_units(kind: str, points: Array, predicted: Array) -> dict[str, Any]:
    """The error of predictions in the unit of the label, beside chance."""
    mean = np.broadcast_to(points.mean(axis=0), points.shape)
    if kind == "discrete":
        codes, share = points.argmax(axis=1), points.mean(axis=0)
        present = np.flatnonzero(share > 0)
        # Divided by the share of its class, so that rare classes are predicted as well.
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


def _angle_between(one: Array, other: Array) -> Array:
    """Absolute angle between rows of cosine and sine, in degrees."""
    first, second = (np.arctan2(each[:, 1], each[:, 0]) for each in (one, other))
    return np.degrees(np.abs(np.angle(np.exp(1j * (first - second)))))
