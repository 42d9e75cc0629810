"""Second opinion: simple scores of each neuron for a label, computed without an embedding.

An attribution map depends on an embedding that was learned. The scores here do not: the mean rate,
the encoding strength, and the classical score for a label of this kind. They cannot separate
correlated factors, so a difference from the map is not always an error of the map, but it should
always be examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from xcebra.caveats import DisagreementWarning
from xcebra.data.epochs import IntArray
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.encoding_strength import encoding_strength
from xcebra.statistics.heading_and_speed import mean_vector_length
from xcebra.statistics.rate_maps import rate_maps, spatial_information

Array = NDArray[np.float64]

# Scores of single neurons hardly improve with more samples; `encoding_strength` has the same limit.
_MOST_SAMPLES = 50_000
# Number of values of the activity that are scored at once, 64 MB in double precision. It limits the
# memory.
_VALUES_AT_ONCE = 1 << 23
# Mean vector lengths are too large if a bin of heading has few samples. The documentation of
# `mean_vector_length` recommends some tens; its default is 60 bins. The lower limit is not tuned.
_SAMPLES_PER_BIN, _FEWEST_BINS, _MOST_BINS = 30, 8, 60
# Held-out R^2 above which a neuron counts as explained by the label. In the mouse recording
# A2929-200711 (50 ms bins), the head-direction cells have 0.35 or more, and six of the eight CA1
# cells have less than 0.01.
CLEAR_ENCODING = 0.02
# Neurons in the highest quarter of a ranking count as high and those in the lower half as low, by
# convention.
_TOP, _LOWER_HALF = 0.75, 0.5
# With fewer neurons, a rank correlation is too uncertain: its standard error, 1 / sqrt(n - 1), is
# 0.38 for 8 neurons. With fewer than 3 explained neurons, there is no ranking to compare with.
_FEWEST_NEURONS, _FEWEST_EXPLAINED = 8, 3


@dataclass(frozen=True, eq=False)
class SecondOpinion:
    """Scores of every neuron for one label, computed without the embedding.

    Parameters
    ----------
    rate : ndarray of shape (n_neurons,)
        Mean activity.
    rate_unit : {"per second", "per sample"}
        Per second if the activity is nowhere negative and the times of the samples are known,
        otherwise per sample.
    encoding : ndarray of shape (n_neurons,) or None
        Encoding strength: share of the neuron's variance on held-out time that the label alone
        explains (R^2). None if there are too few samples.
    usual : ndarray of shape (n_neurons,) or None
        Classical score for a label of this kind. None if there is no such score, or if the activity
        is negative somewhere.
    usual_name : {"mean_vector_length", "spatial_information", "information"} or None
        Mean vector length for a circular label; information in bits per spike for a continuous
        label of two columns or of one column, respectively.
    """

    rate: Array
    rate_unit: str = "per sample"
    encoding: Array | None = None
    usual: Array | None = None
    usual_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "encoding", "usual"):
            if (scores := getattr(self, name)) is not None:
                array = np.array(scores, dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, name, array)


@dataclass(frozen=True)
class Disagreement:
    """A neuron that is high in the map and low in the encoding model, or vice versa.

    Parameters
    ----------
    neuron : str
    higher : {"map", "encoding"}
        Which of the two ranks the neuron higher.
    score : float
        Score of the neuron in the map.
    encoding : float
        Encoding strength of the neuron: held-out R^2 of the label alone.
    meaning : str
        What the disagreement may mean, in one or two sentences.
    """

    neuron: str
    higher: Literal["map", "encoding"]
    score: float
    encoding: float
    meaning: str

    def __str__(self) -> str:
        return f"neuron {self.neuron}: {self.meaning}"


def second_opinions(
    recording: Recording, labels: Mapping[str, Label], times: IntArray
) -> dict[str, SecondOpinion]:
    """Score every neuron for every label without an embedding.

    Parameters
    ----------
    recording : Recording
    labels : mapping of str to Label
        Labels with one row for each sample of the recording.
    times : ndarray of int of shape (n_samples,)
        Indices of the samples to use, in order. At most 50,000 of them are used, evenly spaced.

    Returns
    -------
    dict of str to SecondOpinion
        One for each label. Scores that cannot be computed are None; no error is raised.
    """
    if not labels or len(times) == 0:
        return {}
    if len(times) > _MOST_SAMPLES:
        times = times[np.linspace(0, len(times) - 1, _MOST_SAMPLES).round().astype(np.int64)]
    positive, rate = _sign_and_mean(recording, times)
    unit = "per sample"
    if positive and recording.time is not None and recording.n_times > 1:
        rate, unit = rate / float(np.median(np.diff(recording.time))), "per second"
    opinions = {}
    for name, label in labels.items():
        usual, usual_name = None, None
        if positive:
            usual, usual_name = _usual_scores(recording, label, times)
        opinions[name] = SecondOpinion(
            rate, unit, _encoding(recording, label, times), usual, usual_name
        )
    return opinions


def agreement(scores: Array, opinion: SecondOpinion) -> float | None:
    """Spearman correlation of a block's scores with the encoding strength, over neurons.

    Parameters
    ----------
    scores : ndarray of shape (n_neurons,)
    opinion : SecondOpinion
        An R^2 below 0 counts as 0, because the order of neurons without encoding has no meaning.

    Returns
    -------
    float or None
        None if there is no encoding strength, if there are fewer than 3 neurons, or if one of the
        two does not vary.
    """
    if opinion.encoding is None:
        return None
    scores, encoding = np.asarray(scores, dtype=np.float64), np.maximum(opinion.encoding, 0.0)
    if len(scores) < 3 or not (np.isfinite(scores).all() and np.isfinite(encoding).all()):
        return None
    if np.ptp(scores) == 0 or np.ptp(encoding) == 0:
        return None
    return float(np.corrcoef(rankdata(scores), rankdata(encoding))[0, 1])


def disagreements(
    name: str,
    neuron_names: Sequence[str],
    scores: Array,
    opinion: SecondOpinion,
    connected: NDArray[np.bool_] | None = None,
) -> list[Disagreement]:
    """Neurons that are high in the map and low in the encoding model, or vice versa.

    High neurons are in the top quarter, and low neurons are in the lower half. In the encoding
    model, high neurons must also have an R^2 above 0.02, and low neurons one of at most 0.02. If
    there are results of a test, high neurons of the map must also be called connected, and all
    neurons that are not called connected are low in the map. A neuron that is called connected with
    an R^2 of 0 or less is always listed.

    Parameters
    ----------
    name : str
        Name of the label.
    neuron_names : sequence of str
    scores : ndarray of shape (n_neurons,)
        Scores of the map for the block of the label.
    opinion : SecondOpinion
    connected : ndarray of bool of shape (n_neurons,), optional
        Whether a test called each neuron connected.

    Returns
    -------
    list of Disagreement
        The neurons whose ranks differ most come first.
    """
    encoding = opinion.encoding
    if encoding is None or len(scores) < 2:
        return []
    tested = connected is not None
    map_rank, encoding_rank = (_relative_ranks(values) for values in (scores, encoding))
    map_high, map_low = map_rank > _TOP, map_rank < _LOWER_HALF
    encoding_high = (encoding_rank > _TOP) & (encoding > CLEAR_ENCODING)
    encoding_low = (encoding_rank < _LOWER_HALF) & (encoding <= CLEAR_ENCODING)
    map_only, encoding_only = map_high & encoding_low, map_low & encoding_high
    if connected is not None:
        map_only = connected & (map_only | (encoding <= 0))
        encoding_only = encoding_high & (map_low | ~connected)
    listed = []
    for i in np.argsort(-np.abs(map_rank - encoding_rank), kind="stable"):
        if map_only[i]:
            higher: Literal["map", "encoding"] = "map"
            meaning = _map_only(name, tested, float(encoding[i]))
        elif encoding_only[i]:
            higher = "encoding"
            not_connected = connected is not None and not connected[i]
            meaning = _encoding_only(name, not_connected, float(encoding[i]))
        else:
            continue
        listed.append(
            Disagreement(neuron_names[i], higher, float(scores[i]), float(encoding[i]), meaning)
        )
    return listed


def opposed(
    scores: Mapping[str, Array], opinions: Mapping[str, SecondOpinion]
) -> list[DisagreementWarning]:
    """Warn of every label for which the map and the encoding model disagree as a whole.

    They disagree if their rank correlation is negative by more than its standard error. In
    simulations with correlated factors, in which the map is right and the encoding model is not,
    the rank correlation is well above 0: it is 0.63 and 0.56 for correlations of 0.7 and 0.9, and
    0.87 for independent factors (dataset seed 100). In the mouse recording A2929-200711, version
    0.3.0 has -0.57 for a map with a reversed ranking (4 time latents) and 0.72 for a correct map
    (no time latents).

    Parameters
    ----------
    scores : mapping of str to ndarray of shape (n_neurons,)
        Scores of the map for the block of each label.
    opinions : mapping of str to SecondOpinion

    Returns
    -------
    list of DisagreementWarning
        One for each such label. They are returned, not issued.
    """
    warnings = []
    for name, opinion in opinions.items():
        rho = agreement(scores[name], opinion)
        if rho is None or opinion.encoding is None:
            continue
        n, n_explained = len(scores[name]), int((opinion.encoding > CLEAR_ENCODING).sum())
        if n < _FEWEST_NEURONS or n_explained < _FEWEST_EXPLAINED:
            continue
        if rho < -1 / np.sqrt(n - 1):
            message = (
                f"the map of {name!r} and an encoding model of {name!r} alone disagree: over the "
                f"{n} neurons their rank correlation is {rho:.2f}, although the label explains "
                f"the activity of {n_explained} neurons on held-out time (R^2 above "
                f"{CLEAR_ENCODING:g}). Look at both in amap.to_pandas() and at "
                f"amap.disagreements({name!r}), compare with basis='label', and do not publish "
                "the ranking before you know the reason"
            )
            warnings.append(DisagreementWarning(message))
    return warnings


def _encoding(recording: Recording, label: Label, times: IntArray) -> Array | None:
    """Encoding strength of each neuron, or None if it cannot be computed."""
    try:
        strength = encoding_strength(recording.neural, label, times)
    except ValueError:  # too few samples
        return None
    return strength if np.isfinite(strength).all() else None


def _parts(recording: Recording, times: IntArray) -> Iterator[NDArray[np.float32]]:
    """Activity of some neurons after the other, so that wide recordings need little memory."""
    step = max(1, _VALUES_AT_ONCE // len(times))
    for start in range(0, recording.n_neurons, step):
        yield np.asarray(recording.neural[times, start : start + step], dtype=np.float32)


def _sign_and_mean(recording: Recording, times: IntArray) -> tuple[bool, Array]:
    """Whether no activity is negative, and the mean activity of every neuron."""
    parts = [(part.min(), part.mean(axis=0, dtype=np.float64)) for part in _parts(recording, times)]
    return all(least >= 0 for least, _ in parts), np.concatenate([mean for _, mean in parts])


def _usual_scores(
    recording: Recording, label: Label, times: IntArray
) -> tuple[Array | None, str | None]:
    """Classical score of every neuron, and its name; None and None if there is none."""
    scores, name = [], None
    for part in _parts(recording, times):
        score, name = _usual_score(part, label, times)
        if score is None:
            return None, None
        scores.append(score)
    return np.concatenate(scores), name


def _usual_score(
    activity: NDArray[np.float32], label: Label, times: IntArray
) -> tuple[Array | None, str | None]:
    """Classical score for a label of this kind, and its name; None and None if there is none."""
    known = label.valid[times]
    activity, points = activity[known], label.points[times[known]]
    n_columns = points.shape[1]
    try:
        if label.kind == "circular":
            n_bins = int(np.clip(len(points) // _SAMPLES_PER_BIN, _FEWEST_BINS, _MOST_BINS))
            return mean_vector_length(activity, points, n_bins=n_bins), "mean_vector_length"
        if label.kind == "continuous" and n_columns == 2:
            return spatial_information(rate_maps(activity, points)), "spatial_information"
        if label.kind == "continuous" and n_columns == 1:
            # A position on a line is a position in the plane whose second coordinate is constant.
            line = np.column_stack([points[:, 0], np.zeros(len(points))])
            return spatial_information(rate_maps(activity, line)), "information"
    except ValueError:
        # These scores do not exist for labels that are never known or constant, or if the animal
        # never faced more than half a turn of directions.
        pass
    return None, None


def _relative_ranks(values: Array) -> Array:
    """Ranks from 0 for the lowest to 1 for the highest; ties share their mean rank."""
    return (rankdata(values) - 1) / (len(values) - 1)


def _map_only(name: str, tested: bool, encoding: float) -> str:
    high = "is called connected" if tested else "has one of the highest scores of the map"
    share = "none" if encoding < 0.0005 else f"only {encoding:.1%}"
    return (
        f"it {high}, but {name} alone explains {share} of its variance on held-out time. Either "
        "its response shows only once other factors are accounted for, or the map is not to be "
        "trusted for this neuron."
    )


def _encoding_only(name: str, not_connected: bool, encoding: float) -> str:
    low = "is not called connected" if not_connected else "has a score in the lower half of the map"
    return (
        f"{name} alone explains {encoding:.0%} of its variance on held-out time, but it {low}. "
        f"Either a factor that is correlated with {name} explains its activity, or the map has "
        "missed it."
    )
