"""Work items on real recordings: one fit each, and what is measured."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score

from xcebra.caveats import XcebraWarning
from xcebra.common.choices import Method
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.reproduce.encoding_test import encoding_significant
from xcebra.reproduce.measurements import measure, rounded, without_caveats
from xcebra.reproduce.real.cebra import cebra_scores, has_cebra
from xcebra.reproduce.real.truth import NOISE, STRENGTHS, Challenge, RealCase, build
from xcebra.statistics.encoding_strength import encoding_strength
from xcebra.statistics.label_decoding import decode
from xcebra.training.goodness_of_fit import GoodnessOfFit, is_readable, with_decoding
from xcebra.training.plan import make_plan

DEFAULT, ENCODING, CEBRA = "default", "encoding model", "CEBRA"
PAPER_METHODS: tuple[Method, ...] = (
    "inverted-gradient",
    "gradient",
    "integrated-gradients",
    "shap-zeros",
    "shap-shuffled",
    "feature-ablation",
)
# Maps of the paper's methods use at most this many evenly spaced samples. More samples take more
# time; not tuned.
MAP_SAMPLES = 2_000
# Power is also reported for tuned neurons whose encoding strength is larger than this. Larger
# values leave fewer neurons; not tuned.
STRONG = 0.05
# Standard deviation of the Gaussian that smooths counts before ridge regression. A larger value
# removes more noise and more fast changes; not tuned.
_SMOOTH_SECONDS = 0.25
# Folds of the ridge regression, and stretches of time that are assigned to the folds in turn.
_DECODING_FOLDS, _DECODING_STRETCHES = 5, 20
GRAPHS = ("anchor", "redundant")


@dataclass(frozen=True)
class RealFit:
    """One fit to a real recording.

    Parameters
    ----------
    folder : str
        Folder of the recordings. It is not part of the identity of the item.
    case : RealCase
    seed : int
    time_dims : int or None
        None is the estimator's default.
    part : {"whole", "first half", "second half"}
        Samples that the model is fitted to.
    test : bool
        Whether to test every neuron and count those that are called.
    methods : bool
        Whether to make the maps of the paper's methods too.
    map : bool
        Whether to make maps at all. If False, only the verdict (``learned``) is measured.
    steps : int or None
        Training steps; None is the estimator's default.
    """

    folder: str = field(compare=False)
    case: RealCase
    seed: int = 0
    time_dims: int | None = None
    part: str = "whole"
    test: bool = True
    methods: bool = False
    map: bool = True
    steps: int | None = None


@dataclass(frozen=True)
class CebraFit:
    """One fit of CEBRA's own model to a real recording, with its inverted gradient."""

    folder: str = field(compare=False)
    case: RealCase
    seed: int = 0
    steps: int = 1_000


@dataclass(frozen=True)
class IndependentTest:
    """Twelve simulated neurons and two autoregressive latents; the first one is attributed.

    Parameters
    ----------
    graph : {"anchor", "redundant"}
        "anchor": one neuron for each latent and ten neurons of noise; "redundant": six neurons for
        each latent.
    seed : int
    both : bool
        Whether both latents are labels, or only the first one.
    steps : int or None
    """

    graph: str
    seed: int = 0
    both: bool = False
    steps: int | None = None


def can_run(item: object) -> bool:
    """Whether what the item needs is installed."""
    return has_cebra() or not isinstance(item, CebraFit)


@measure.register
def _(item: RealFit) -> dict[str, Any]:
    challenge = build(item.folder, item.case)
    recording, name = part_of(challenge.recording, item.part), item.case.label
    model = XCEBRA(
        time_dims=item.time_dims,
        steps=item.steps,
        label_kind={name: challenge.label.kind},
        random_state=item.seed,
        progress=False,
    )
    with _caveats() as caught:
        seconds, learned = _timed(lambda: _learned(model, recording, name, item.map))
    results: dict[str, Any] = {
        "n_times": recording.epochs.size,
        "n_neurons": recording.n_neurons,
        "n_own": int(challenge.own.sum()),
        "n_true": int((challenge.truth == 1).sum()),
        "learned": learned,
        "decoding_r2": round(decoding_r2(recording, challenge.label, item.case.bin_ms), 4),
        "seconds": {"fit": round(seconds, 2)},
    }
    if item.map:
        results["strength"] = rounded(challenge.strength)
        with _caveats() as caught_by_maps:
            results["methods"] = _of_maps(item, model, recording, challenge, results["seconds"])
        caught += caught_by_maps
    results["warned"] = sorted({warning.category.__name__ for warning in caught})
    return results


@measure.register
def _(item: CebraFit) -> dict[str, Any]:
    challenge = build(item.folder, item.case)
    started = time.perf_counter()
    scores = cebra_scores(challenge.recording, challenge.label, steps=item.steps, seed=item.seed)
    return {
        "n_own": int(challenge.own.sum()),
        "strength": rounded(challenge.strength),
        "seconds": {"fit": round(time.perf_counter() - started, 2)},
        "methods": {CEBRA: ranking(scores, challenge)},
    }


@measure.register
def _(item: IndependentTest) -> dict[str, Any]:
    recording, truth = independent_recording(item.graph, item.seed)
    names = ["z1", "z2"] if item.both else ["z1"]
    model = XCEBRA(
        steps=item.steps,
        label_kind=dict.fromkeys(names, "continuous"),
        random_state=item.seed,
        progress=False,
    )
    with _caveats() as caught:
        model.fit(recording, label=names)
        amap = model.attribute(recording, test=True)
    called = amap.significant("z1")
    return {
        "warned": sorted({warning.category.__name__ for warning in caught}),
        "learned": _verdict(model, "z1"),
        "auroc": float(roc_auc_score(truth, amap.block("z1"))),
        "calls": {
            "called": int(called.sum()),
            "called_null": int(called[~truth].sum()),
            "n_null": int((~truth).sum()),
            "called_true": int(called[truth].sum()),
            "n_true": int(truth.sum()),
        },
    }


def independent_recording(graph: str, seed: int) -> tuple[Recording, NDArray[np.bool_]]:
    """Simulate the recording of an `IndependentTest`.

    Returns
    -------
    recording : Recording
    truth : ndarray of bool of shape (n_neurons,)
        Neurons that follow the first latent.
    """
    rng = np.random.default_rng(seed)
    n = 1_200
    latents = np.zeros((n, 2))
    for t in range(1, n):
        latents[t] = 0.8 * latents[t - 1] + rng.standard_normal(2)
    source = {"anchor": [0, 1, *[-1] * 10], "redundant": [0] * 6 + [1] * 6}[graph]
    follows = np.array(source)
    signal = np.where(follows >= 0, np.tanh(latents[:, np.maximum(follows, 0)]), 0.0)
    noise = 0.05 * rng.standard_normal(signal.shape)
    labels = {"z1": latents[:, :1], "z2": latents[:, 1:]}
    return Recording(neural=signal + noise, labels=labels), follows == 0


def part_of(recording: Recording, part: str) -> Recording:
    """Restrict a recording to the epochs of its first or second half, or return all of it."""
    if part == "whole":
        return recording
    times = recording.epochs.indices()
    middle = int(times[len(times) // 2])
    if part == "first half":
        pairs = [(a, min(b, middle)) for a, b in recording.epochs.pairs() if a < middle]
    else:
        pairs = [(max(a, middle), b) for a, b in recording.epochs.pairs() if b > middle]
    return replace(recording, epochs=pairs)  # type: ignore[arg-type]


def ranking(scores: NDArray[Any], challenge: Challenge) -> dict[str, Any]:
    """How well scores rank the neurons, and the scores themselves.

    Parameters
    ----------
    scores : ndarray of shape (n_neurons,)
    challenge : Challenge

    Returns
    -------
    dict
        "auroc", or None if the truth has one class only; "spearman" with the encoding strength of
        the recording's own neurons, or None if one of the two is constant; "scores".
    """
    judged = ~np.isnan(challenge.truth)
    truth = challenge.truth[judged] == 1
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64))
    own = challenge.own
    varies = len(np.unique(values[own])) > 1 and len(np.unique(challenge.strength[own])) > 1
    has_both_classes = truth.any() and not truth.all()
    rank = spearmanr(values[own], challenge.strength[own]).statistic if varies else None
    return {
        "auroc": float(roc_auc_score(truth, values[judged])) if has_both_classes else None,
        "spearman": None if rank is None else round(float(rank), 4),
        "scores": rounded(values),
    }


def calls(called: NDArray[np.bool_], challenge: Challenge) -> dict[str, Any]:
    """Number of neurons that were called, by kind. Counts can be pooled over fits.

    Parameters
    ----------
    called : ndarray of bool of shape (n_neurons,)
    challenge : Challenge
    """
    true = challenge.truth == 1
    strong = true & (challenge.strength > STRONG)
    counts: dict[str, Any] = {
        "called": int(called.sum()),
        "called_null": int(called[challenge.null].sum()),
        "n_null": int(challenge.null.sum()),
        "called_true": int(called[true].sum()),
        "n_true": int(true.sum()),
        "called_strong": int(called[strong].sum()),
        "n_strong": int(strong.sum()),
    }
    names = challenge.recording.neuron_names
    for sort in NOISE:
        group = np.array([name.startswith(sort) for name in names])
        if group.any():
            counts[sort] = [int(called[group].sum()), int(group.sum())]
    if np.isfinite(challenge.implanted).any():
        groups = {share: challenge.implanted == share for share in (0.0, *STRENGTHS)}
        counts["by_strength"] = {
            f"{share:g}": [int(called[group].sum()), int(group.sum())]
            for share, group in groups.items()
        }
    return counts


def decoding_r2(recording: Recording, label: Label, bin_ms: float) -> float:
    """Held-out R^2 of the label, decoded from smoothed counts by ridge regression.

    Parameters
    ----------
    recording : Recording
    label : Label
    bin_ms : float
        Bin size of the recording in milliseconds.
    """
    times = recording.epochs.indices()
    times = times[label.valid[times]]
    smooth = gaussian_filter1d(
        recording.rows(slice(None)).astype(np.float64), 1000 * _SMOOTH_SECONDS / bin_ms, axis=0
    )[times]
    smooth = (smooth - smooth.mean(axis=0)) / np.maximum(smooth.std(axis=0), 1e-12)
    points = label.points[times]
    fold = np.arange(len(times)) * _DECODING_STRETCHES // len(times) % _DECODING_FOLDS
    predicted = np.empty_like(points)
    for k in range(_DECODING_FOLDS):
        held_out = fold == k
        model = Ridge(alpha=0.01 * float((~held_out).sum()))
        model.fit(smooth[~held_out], points[~held_out])
        predicted[held_out] = model.predict(smooth[held_out]).reshape(-1, points.shape[1])
    return float(r2_score(points, predicted, multioutput="variance_weighted"))


def _of_maps(
    item: RealFit,
    model: XCEBRA,
    recording: Recording,
    challenge: Challenge,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Rankings and calls of every method; the times of map and test are added to ``seconds``."""
    name = item.case.label
    seconds["map"], amap = _timed(lambda: model.attribute(recording))
    results = {DEFAULT: ranking(amap.block(name), challenge)}
    if item.test:
        map_and_test, tested = _timed(lambda: model.attribute(recording, test=True))
        seconds["test"] = round(max(0.0, map_and_test - seconds["map"]), 2)
        results[DEFAULT]["calls"] = calls(tested.significant(name), challenge)
    if not item.methods:
        return results
    every = max(1, -(-recording.epochs.size // MAP_SAMPLES))
    with without_caveats():
        for method in PAPER_METHODS:
            amap = model.attribute(recording, method=method, every=every)
            results[method] = ranking(amap.block(name), challenge)
    # The encoding model is judged on the half of the time that was not used to choose neurons.
    activity, label, times = recording.rows(slice(None)), challenge.label, challenge.judged
    results[ENCODING] = ranking(encoding_strength(activity, label, times), challenge)
    if item.test:
        # Neurons with implanted responses are not chosen by their tuning, so that the encoding
        # model can be tested on the whole recording, as our map is.
        test_times = recording.epochs.indices() if item.case.truth == "implanted" else times
        called = encoding_significant(activity, label, test_times, seed=item.seed)
        results[ENCODING]["calls"] = calls(called, challenge)
    return results


def _caveats() -> Any:
    """Return a context that records all warnings of this package."""
    return warnings.catch_warnings(record=True, action="always", category=XcebraWarning)


def _learned(model: XCEBRA, recording: Recording, name: str, fit: bool) -> bool | None:
    """Return the verdict on a label.

    If ``fit`` is False, the model is fitted only if decoding alone does not already decide.
    """
    if not fit:
        plan = make_plan(recording, model.get_params(deep=False))
        label = next(candidate for candidate in plan.labels if candidate.name == name)
        decided = plan.decisions
        decoding = decode(recording, label, window=decided.window, seed=decided.train.seed)
        if decoding is None or not is_readable(decoding):
            # Whatever the loss of the embedding, the verdict would not be yes.
            return with_decoding(GoodnessOfFit(math.nan, math.nan, None), decoding).learned
    model.fit(recording, label=name)
    return _verdict(model, name)


def _verdict(model: XCEBRA, name: str) -> bool | None:
    learned = model.goodness_of_fit_[name].learned
    return None if learned is None else bool(learned)


def _timed(call: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return round(time.perf_counter() - started, 2), result
