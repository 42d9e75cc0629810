"""Real recordings with neurons for which it is known whether they carry the label.

There are four sources of truth: cells that are known by their area, neurons of other animals, noise
units with the rates or the spikes of the recording's own units, and implanted responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.reproduce.real.data import RECORDINGS, label_of, read_recording
from xcebra.statistics.encoding_strength import encoding_strength

Array = NDArray[np.float64]
Counts = NDArray[np.float32]
Bools = NDArray[np.bool_]
Times = NDArray[np.int64]

KINDS = ("own", "known", "known-poisson", "foreign", "noise", "implanted", "other-label")
# Shares of a neuron's variance that implanted responses explain, from weak to strong.
STRENGTHS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# Prefixes of the names of noise units.
NOISE = ("Poisson unit", "shifted unit")
# A neuron is tuned if its encoding strength is larger than this (docs/real_recordings.md). Larger
# values give fewer and more strongly tuned neurons; not tuned.
TUNED = 0.02
# A unit that is known not to carry the label may still follow something correlated with it. It
# counts as a false discovery only if its encoding strength is smaller than this
# (docs/real_recordings.md). Larger values count more units; not tuned.
NOT_TUNED = 0.01
# Time is divided into this many stretches. Tuned neurons are chosen on every other stretch, and the
# encoding model is judged on the rest. Fewer stretches make the halves more independent; more
# stretches make them more alike. Not tuned.
_N_STRETCHES = 20
# Number of Poisson units that are added to known carriers, and maximum number of noise units of
# each kind. Not tuned.
_N_POISSON = 8
_MOST_NOISE_UNITS = 20
# An implanted response is the sum of this many Gaussian bumps. Their standard deviation is a share
# of the label's range. More and narrower bumps make the response less smooth; not tuned.
_N_BUMPS = 3
_BUMP_WIDTH = 0.2
# Steps of the bisection for the depth of a response. Each step halves the interval of its
# logarithm, whose length is log(1e7) at first.
_BISECTIONS = 16


@dataclass(frozen=True)
class RealCase:
    """A recording with one label and one kind of truth, specified by plain values.

    Parameters
    ----------
    file : str
        One of `RECORDINGS`.
    label : str
        A label of the recording; for the truth "other-label", a label of ``other``.
    bin_ms : float
        Bin size in milliseconds.
    truth : str
        One of `KINDS`.
    other : str or None
        The recording of another animal from which foreign neurons or labels are taken.
    draw : int
        Seed of all random draws.
    """

    file: str
    label: str
    bin_ms: float
    truth: str
    other: str | None = None
    draw: int = 0


@dataclass(frozen=True, eq=False)
class Challenge:
    """A recording, and what is known about its neurons.

    Parameters
    ----------
    recording : Recording
        The recording with one label and with the added neurons.
    label : Label
        That label.
    truth : ndarray of shape (n_neurons,)
        1.0 for neurons that carry the label, 0.0 for neurons that do not, and NaN for neurons that
        are not judged. auROC is computed from it.
    null : ndarray of shape (n_neurons,)
        True for neurons that are false discoveries if they are called.
    own : ndarray of shape (n_neurons,)
        True for neurons that belong to the recording itself.
    strength : ndarray of shape (n_neurons,)
        Encoding strength, measured on the whole recording.
    judged : ndarray of int
        Samples of the half of the time on which the encoding model is judged.
    implanted : ndarray of shape (n_neurons,)
        Share of variance that the implanted response explains: 0.0 for the foreign neurons of the
        truth "implanted" that have no response, and NaN for all other neurons.
    """

    recording: Recording
    label: Label
    truth: Array
    null: Bools
    own: Bools
    strength: Array
    judged: Times
    implanted: Array


@dataclass(frozen=True, eq=False)
class _Neurons:
    """Some of the neurons of a challenge, and what is known about them."""

    counts: Counts
    names: tuple[str, ...]
    truth: Array
    null: Bools
    implanted: Array

    @classmethod
    def without_label(cls, counts: Counts, names: Sequence[str]) -> _Neurons:
        """Make neurons that cannot carry the label."""
        n = counts.shape[1]
        not_implanted = np.full(n, np.nan)
        return cls(counts, tuple(names), np.zeros(n), np.ones(n, dtype=bool), not_implanted)


def build(folder: str, case: RealCase) -> Challenge:
    """Read the recordings of a case and combine their neurons.

    Parameters
    ----------
    folder : str
        Folder of the recordings.
    case : RealCase
    """
    host = read_recording(folder, case.file, case.bin_ms)
    rng = np.random.default_rng([case.draw, KINDS.index(case.truth)])
    counts = np.asarray(host.neural, dtype=np.float32)
    if case.truth == "other-label":
        values, kind = _other_label(folder, case, host.n_times, rng)
        label = label_of(case.label, values, kind)
        own, added = _Neurons.without_label(counts, host.neuron_names), None
    else:
        values = host.labels[case.label]
        label = label_of(case.label, values, RECORDINGS[case.file].labels[case.label].kind)
        own = _own_neurons(case, host, label)
        added = _added_neurons(folder, case, host, label, rng)
    groups = [own] if added is None else [own, added]
    neural = np.concatenate([group.counts for group in groups], axis=1)
    recording = Recording(
        neural=neural,
        labels={case.label: values},
        epochs=host.epochs,
        neuron_names=tuple(name for group in groups for name in group.names),
        time=host.time,
    )
    times = host.epochs.indices()
    return Challenge(
        recording=recording,
        label=label,
        truth=np.concatenate([group.truth for group in groups]),
        null=np.concatenate([group.null for group in groups]),
        own=np.arange(neural.shape[1]) < len(own.names),
        strength=encoding_strength(neural, label, times),
        judged=halves_of_time(times)[1],
        implanted=np.concatenate([group.implanted for group in groups]),
    )


def _own_neurons(case: RealCase, host: Recording, label: Label) -> _Neurons:
    """Neurons of the recording itself, known by their area or tuned on one half of the time."""
    counts, times = np.asarray(host.neural, dtype=np.float32), host.epochs.indices()
    n = host.n_neurons
    truth, null, units = np.full(n, np.nan), np.zeros(n, dtype=bool), np.arange(n)
    if case.truth in ("known", "known-poisson"):
        carries = np.isin(units, RECORDINGS[case.file].carriers[case.label])
        truth = carries.astype(np.float64)
        null = ~carries & (encoding_strength(counts, label, times) < NOT_TUNED)
        if case.truth == "known-poisson":
            units = np.flatnonzero(carries)
    elif case.truth != "implanted":
        truth[encoding_strength(counts, label, halves_of_time(times)[0]) > TUNED] = 1.0
    names = tuple(host.neuron_names[k] for k in units)
    return _Neurons(counts[:, units], names, truth[units], null[units], np.full(len(units), np.nan))


def _added_neurons(
    folder: str, case: RealCase, host: Recording, label: Label, rng: np.random.Generator
) -> _Neurons | None:
    """Neurons that do not belong to the recording, or None if the kind of truth has none."""
    counts, n_times = np.asarray(host.neural, dtype=np.float32), host.n_times
    if case.truth == "known-poisson":
        carriers = RECORDINGS[case.file].carriers[case.label]
        rates = np.delete(counts.mean(axis=0), carriers)
        noise = poisson_units(np.resize(rates, _N_POISSON), n_times, rng)
        return _Neurons.without_label(noise, [f"{NOISE[0]} {k}" for k in range(_N_POISSON)])
    if case.truth == "noise":
        units = rng.permutation(counts.shape[1])[:_MOST_NOISE_UNITS]
        noise = poisson_units(counts[:, units].mean(axis=0), n_times, rng)
        added = np.concatenate([noise, shifted_units(counts[:, units], rng)], axis=1)
        names = [f"{sort} {host.neuron_names[k]}" for sort in NOISE for k in units]
        return _Neurons.without_label(added, names)
    if case.truth not in ("foreign", "implanted"):
        return None
    foreign = _foreign_neurons(folder, case, n_times, rng)
    if case.truth == "foreign":
        return foreign
    shares = np.zeros(len(foreign.names))
    # Every other neuron gets no response, so that false discoveries can be counted too.
    shares[1::2] = np.resize(STRENGTHS, len(shares[1::2]))
    changed = implant(foreign.counts, label, shares, rng)
    return _Neurons(changed, foreign.names, (shares > 0).astype(float), shares == 0, shares)


def halves_of_time(times: Times) -> tuple[Times, Times]:
    """Divide samples into two halves that alternate in 20 stretches of time.

    Parameters
    ----------
    times : ndarray of int of shape (n_samples,)
        Samples in increasing order.

    Returns
    -------
    first, second : ndarray of int
        Samples of the stretches with even and with odd numbers, counted from 0.
    """
    stretch = np.arange(len(times)) * _N_STRETCHES // len(times)
    return times[stretch % 2 == 0], times[stretch % 2 == 1]


def foreign_activity(activity: NDArray[Any], n_times: int, rng: np.random.Generator) -> Any:
    """Samples of another recording, repeated or cut to ``n_times``, from a random start.

    All columns are shifted together, so that the relations between them are kept.

    Parameters
    ----------
    activity : ndarray of shape (n_times_of_other,) or (n_times_of_other, n_columns)
    n_times : int
        Number of samples of the result.
    rng : numpy.random.Generator
    """
    start = int(rng.integers(len(activity)))
    return activity[(start + np.arange(n_times)) % len(activity)]


def poisson_units(means: Array, n_times: int, rng: np.random.Generator) -> Counts:
    """Poisson counts with constant rates.

    Parameters
    ----------
    means : ndarray of shape (n_units,)
        Expected counts per sample.
    n_times : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_times, n_units)
    """
    return rng.poisson(means, size=(n_times, len(means))).astype(np.float32)


def shifted_units(counts: Counts, rng: np.random.Generator) -> Counts:
    """Shift each unit circularly in time by its own random amount.

    Parameters
    ----------
    counts : ndarray of shape (n_times, n_units)
    rng : numpy.random.Generator
    """
    n = len(counts)
    margin = max(1, n // 10)
    shifts = rng.integers(margin, max(margin + 1, n - margin), size=counts.shape[1])
    rows = (np.arange(n)[:, None] - shifts) % n
    return np.take_along_axis(counts, rows, axis=0)


def implant(counts: Counts, label: Label, shares: Array, rng: np.random.Generator) -> Counts:
    """Give neurons a known response to a label by removing and adding spikes.

    The response is a random smooth function of the label, the sum of a few bumps. Where it is below
    its mean, spikes are removed at random; where it is above, Poisson spikes are added. Its depth
    is chosen so that regression on the true response explains the requested share of the variance.

    Parameters
    ----------
    counts : ndarray of shape (n_times, n_neurons)
    label : Label
    shares : ndarray of shape (n_neurons,)
        Requested share of each neuron's variance; 0.0 leaves the neuron unchanged.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_times, n_neurons)
    """
    changed = counts.copy()
    for k, share in enumerate(shares):
        seed = int(rng.integers(2**32))
        if share > 0:
            changed[:, k] = _responding(counts[:, k], label, float(share), seed)
    return changed


def smooth_response(label: Label, rng: np.random.Generator) -> Array:
    """A random smooth function of a label.

    Returns
    -------
    ndarray of shape (n_times,)
        The mean is 0 and the largest absolute value 1 over samples with a label; 0 elsewhere.
    """
    points = label.points[label.valid]
    if label.kind == "discrete":
        value = points @ rng.standard_normal(points.shape[1])
    else:
        low, high = np.quantile(points, (0.005, 0.995), axis=0)
        scaled = (points - low) / np.maximum(high - low, 1e-12)
        centres = scaled[rng.integers(len(points), size=_N_BUMPS)]
        distance = np.square(scaled[:, None] - centres).sum(axis=2) / _BUMP_WIDTH**2
        value = np.exp(-0.5 * distance) @ rng.standard_normal(_N_BUMPS)
    value = value - value.mean()
    response = np.zeros(len(label.points))
    response[label.valid] = value / max(float(np.abs(value).max()), 1e-300)
    return response


def _responding(counts: Counts, label: Label, share: float, seed: int) -> Counts:
    """Counts of one neuron with a response, whose depth is determined by bisection."""
    response = smooth_response(label, np.random.default_rng(seed))
    mean = max(float(counts.mean()), 1e-6)

    def with_depth(depth: float) -> tuple[Counts, float]:
        # Every depth uses the same random numbers, so that the explained share grows with depth.
        rng = np.random.default_rng(seed + 1)
        factor = np.maximum(1 + depth * response, 0.0)
        remaining = rng.binomial(counts.astype(np.int64), np.minimum(factor, 1.0))
        total = remaining + rng.poisson(mean * np.maximum(factor - 1.0, 0.0))
        explained = 0.0
        if total.any() and factor.std() > 0:
            explained = float(np.corrcoef(total, factor)[0, 1] ** 2)
        return total.astype(np.float32), explained

    low, high = np.log(1e-3), np.log(1e4)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if with_depth(np.exp(middle))[1] < share:
            low = middle
        else:
            high = middle
    return with_depth(np.exp(high))[0]


def _foreign_neurons(
    folder: str, case: RealCase, n_times: int, rng: np.random.Generator
) -> _Neurons:
    """Neurons of a recording of another animal, without those that never fire."""
    donor = _donor(folder, case)
    counts = foreign_activity(np.asarray(donor.neural, np.float32), n_times, rng)
    fires = np.flatnonzero(counts.any(axis=0))
    names = [f"foreign {donor.neuron_names[k]}" for k in fires]
    return _Neurons.without_label(counts[:, fires], names)


def _other_label(
    folder: str, case: RealCase, n_times: int, rng: np.random.Generator
) -> tuple[NDArray[Any], str]:
    """Values and kind of a label of another recording, repeated or cut to ``n_times``.

    A label that rarely changes may be constant in the part that is drawn; then another is drawn.
    """
    donor = _donor(folder, case)
    assert case.other is not None
    values = foreign_activity(donor.labels[case.label], n_times, rng)
    while (values == values[0]).all() and np.ptp(donor.labels[case.label], axis=0).any():
        values = foreign_activity(donor.labels[case.label], n_times, rng)
    return values, RECORDINGS[case.other].labels[case.label].kind


def _donor(folder: str, case: RealCase) -> Recording:
    if case.other is None or RECORDINGS[case.other].animal == RECORDINGS[case.file].animal:
        raise InputError(f"{case} needs a recording of another animal as other")
    return read_recording(folder, case.other, RECORDINGS[case.other].nearest_bin(case.bin_ms))
