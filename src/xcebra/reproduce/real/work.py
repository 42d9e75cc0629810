"""Pieces of work on real recordings: one fit each, and what is measured of it."""

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
from xcebra.reproduce.real.cebra import cebra_scores
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
# Maps of the paper's methods are made on this many samples, evenly spaced.
MAP_SAMPLES = 2_000
# Power is also told for the neurons that the label explains this much of.
STRONG = 0.05
_SMOOTH_SECONDS = 0.25
_DECODING_FOLDS, _DECODING_STRETCHES = 5, 20
GRAPHS = ("anchor", "redundant")


@dataclass(frozen=True)
class RealFit:
    """One fit to a real recording.

    Parameters
    ----------
    folder : str
        Where the recordings are. It is not part of what the work is known by.
    case : RealCase
    seed : int
    time_dims : int or None
        None is the estimator's default.
    part : {"whole", "first half", "second half"}
        Samples that the model is fitted to.
    test : bool
        Test every neuron, and count how many are called.
    methods : bool
        Also make the maps of the paper's methods.
    map : bool
        Make a map at all; without it only ``learned`` is measured.
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
    """Twelve simulated neurons and two autoregressive latents, of which the first is asked for.

    Parameters
    ----------
    graph : {"anchor", "redundant"}
        One neuron for each latent and ten of noise, or six neurons for each latent.
    seed : int
    both : bool
        Both latents are given as labels, not only the first.
    steps : int or None
    """

    graph: str
    seed: int = 0
    both: bool = False
    steps: int | None = None


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
    found: dict[str, Any] = {
        "n_times": recording.epochs.size,
        "n_neurons": recording.n_neurons,
        "n_own": int(challenge.own.sum()),
        "n_true": int((challenge.truth == 1).sum()),
        "learned": learned,
        "decoding_r2": round(decoding_r2(recording, challenge.label, item.case.bin_ms), 4),
        "seconds": {"fit": round(seconds, 2)},
    }
    if item.map:
        found["strength"] = rounded(challenge.strength)
        with _caveats() as more:
            found["methods"] = _of_maps(item, model, recording, challenge, found["seconds"])
        caught += more
    found["warned"] = sorted({each.category.__name__ for each in caught})
    return found


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
        "warned": sorted({each.category.__name__ for each in caught}),
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
    """The recording of an `IndependentTest`, and which neurons follow the first latent."""
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
    """The recording with the epochs of its first or second half, or all of them."""
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
    """How well scores rank the neurons, and the scores themselves."""
    judged = ~np.isnan(challenge.truth)
    truth = challenge.truth[judged] == 1
    values = np.nan_to_num(np.asarray(scores, dtype=np.float64))
    own = challenge.own
    varies = len(np.unique(values[own])) > 1 and len(np.unique(challenge.strength[own])) > 1
    both = truth.any() and not truth.all()
    rank = spearmanr(values[own], challenge.strength[own]).statistic if varies else None
    return {
        "auroc": float(roc_auc_score(truth, values[judged])) if both else None,
        "spearman": None if rank is None else round(float(rank), 4),
        "scores": rounded(values),
    }


def calls(called: NDArray[np.bool_], challenge: Challenge) -> dict[str, Any]:
    """How many neurons were called, and of which sort; counts, so that they can be pooled."""
    true = challenge.truth == 1
    strong = true & (challenge.strength > STRONG)
    found: dict[str, Any] = {
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
            found[sort] = [int(called[group].sum()), int(group.sum())]
    if np.isfinite(challenge.implanted).any():
        groups = {share: challenge.implanted == share for share in (0.0, *STRENGTHS)}
        found["by_strength"] = {
            f"{share:g}": [int(called[group].sum()), int(group.sum())]
            for share, group in groups.items()
        }
    return found


def decoding_r2(recording: Recording, label: Label, bin_ms: float) -> float:
    """Held-out R^2 of the label, read by ridge regression from smoothed counts."""
    times = recording.epochs.indices()
    times = times[label.valid[times]]
    smooth = gaussian_filter1d(
        recording.rows(slice(None)).astype(np.float64), 1000 * _SMOOTH_SECONDS / bin_ms, axis=0
    )[times]
    smooth = (smooth - smooth.mean(axis=0)) / np.maximum(smooth.std(axis=0), 1e-12)
    points = label.points[times]
    fold = np.arange(len(times)) * _DECODING_STRETCHES // len(times) % _DECODING_FOLDS
    read = np.empty_like(points)
    for k in range(_DECODING_FOLDS):
        held_out = fold == k
        model = Ridge(alpha=0.01 * float((~held_out).sum()))
        model.fit(smooth[~held_out], points[~held_out])
        read[held_out] = model.predict(smooth[held_out]).reshape(-1, points.shape[1])
    return float(r2_score(points, read, multioutput="variance_weighted"))


def _of_maps(
    item: RealFit,
    model: XCEBRA,
    recording: Recording,
    challenge: Challenge,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Rankings and calls of every method; the time that ours took is added to ``seconds``."""
    name = item.case.label
    seconds["map"], amap = _timed(lambda: model.attribute(recording))
    found = {DEFAULT: ranking(amap.block(name), challenge)}
    if item.test:
        both, tested = _timed(lambda: model.attribute(recording, test=True))
        seconds["test"] = round(max(0.0, both - seconds["map"]), 2)
        found[DEFAULT]["calls"] = calls(tested.significant(name), challenge)
    if not item.methods:
        return found
    every = max(1, -(-recording.epochs.size // MAP_SAMPLES))
    with without_caveats():
        for method in PAPER_METHODS:
            amap = model.attribute(recording, method=method, every=every)
            found[method] = ranking(amap.block(name), challenge)
    # The encoding model is judged on the half of the time on which no neuron was chosen.
    activity, label, times = recording.rows(slice(None)), challenge.label, challenge.judged
    found[ENCODING] = ranking(encoding_strength(activity, label, times), challenge)
    if item.test:
        # Implanted responses were not chosen on any time: there it gets as much as we do.
        fair = recording.epochs.indices() if item.case.truth == "implanted" else times
        called = encoding_significant(activity, label, fair, seed=item.seed)
        found[ENCODING]["calls"] = calls(called, challenge)
    return found


def _caveats() -> Any:
    """Keep the warnings of this package, one of each kind and place."""
    return warnings.catch_warnings(record=True, action="always", category=XcebraWarning)


def _learned(model: XCEBRA, recording: Recording, name: str, fit: bool) -> bool | None:
    """The verdict on a label, by a fit; where one is not needed otherwise, only if it decides."""
    if not fit:
        plan = make_plan(recording, model.get_params(deep=False))
        label = next(each for each in plan.labels if each.name == name)
        decided = plan.decisions
        decoding = decode(recording, label, window=decided.window, seed=decided.train.seed)
        if decoding is None or not is_readable(decoding):
            # No loss of the embedding would make a yes of this.
            return with_decoding(GoodnessOfFit(math.nan, math.nan, None), decoding).learned
    model.fit(recording, label=name)
    return _verdict(model, name)


def _verdict(model: XCEBRA, name: str) -> bool | None:
    learned = model.goodness_of_fit_[name].learned
    return None if learned is None else bool(learned)


def _timed(call: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    made = call()
    return round(time.perf_counter() - started, 2), made
