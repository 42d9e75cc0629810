"""Where do our map and a Poisson GLM with a group lasso agree, and where do they differ?

One recording, `xcebra.datasets.head_direction`. Ours: heading and position, controlled for speed.
The other: NeMoS, a Poisson GLM of each unit with the labels in a basis of splines, one group of
coefficients for each label; with and without our time latents as a further group. Needs
``pip install nemos``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from studies.study import run
from xcebra.caveats import XcebraWarning
from xcebra.datasets import head_direction
from xcebra.estimator import XCEBRA
from xcebra.sweep import Row

Array = NDArray[np.float64]

LABELS = ("heading", "position", "speed")
# Strengths of the group lasso that are compared on held-out time, in steps of about three.
STRENGTHS = (0.001, 0.003, 0.01)
# Time is divided into this many stretches; every fifth one is held out in turn.
_N_STRETCHES, _N_FOLDS = 25, 5


@dataclass(frozen=True)
class Beside:
    """One fit of ours, and GLMs of the same bins."""

    bin_size: float = 0.05
    seed: int = 0


ITEMS = [Beside()]


def measure(item: Beside) -> dict[str, Any]:
    """Scores of both for every unit and label."""
    recording = head_direction(bin_size=item.bin_size)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(random_state=item.seed, progress=False)
        model.fit(recording, label=["heading", "position"], control="speed")
        amap = model.attribute(recording, test=True)
    seconds = {"xcebra": round(time.perf_counter() - started, 1)}
    latents = model.transform(recording)[:, model.blocks_["time"]]
    counts = np.asarray(recording.neural, np.float64)
    started = time.perf_counter()
    groups = bases(recording.labels)
    glm = compare(groups, counts)
    with_time = with_latents({**groups, "time": _standardised(latents)}, counts, glm["strength"])
    seconds["nemos"] = round(time.perf_counter() - started, 1)
    return {
        "area": recording.units["location"].tolist(),
        "scores": {name: np.round(amap.block(name), 4).tolist() for name in LABELS},
        "called": {name: amap.significant(name).tolist() for name in LABELS},
        "n_time_latents": int(latents.shape[1]),
        "glm": glm,
        "glm_with_time_latents": with_time,
        "seconds": seconds,
    }


def bases(labels: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Columns of a design matrix for each label: splines, cyclic ones for heading."""
    import nemos

    x, z = labels["position"].T
    heading = np.mod(labels["heading"][:, 0], 2 * np.pi)
    values = {
        "heading": nemos.basis.CyclicBSplineEval(8).compute_features(heading),
        "position": np.concatenate(
            [nemos.basis.BSplineEval(6).compute_features(column) for column in (x, z)], axis=1
        ),
        "speed": nemos.basis.BSplineEval(5).compute_features(labels["speed"][:, 0]),
    }
    return {name: _standardised(np.asarray(columns)) for name, columns in values.items()}


def _standardised(columns: Array) -> Array:
    return np.asarray((columns - columns.mean(axis=0)) / columns.std(axis=0), np.float64)


def compare(groups: Mapping[str, Array], counts: Array) -> dict[str, Any]:
    """Strength by cross-validation, then groups that are kept, and what each adds held out."""
    strengths = [(_held_out(groups, counts, strength).mean(), strength) for strength in STRENGTHS]
    _, strength = max(strengths)
    whole = _held_out(groups, counts, strength)
    coefficients = _fit(groups, counts, strength).coef_
    ends = np.cumsum([columns.shape[1] for columns in groups.values()])[:-1]
    norms = [np.linalg.norm(part, axis=0) for part in np.split(np.asarray(coefficients), ends)]
    without = {
        name: _held_out({k: v for k, v in groups.items() if k != name}, counts, strength)
        for name in groups
    }
    return {
        "strength": strength,
        "explained": np.round(whole, 4).tolist(),
        "kept": {name: (norm > 0).tolist() for name, norm in zip(groups, norms, strict=True)},
        "norm": {name: np.round(n, 4).tolist() for name, n in zip(groups, norms, strict=True)},
        "adds": {name: np.round(whole - rest, 4).tolist() for name, rest in without.items()},
    }


def with_latents(groups: Mapping[str, Array], counts: Array, strength: float) -> dict[str, Any]:
    """What heading adds beside all other groups, the time latents among them."""
    whole = _held_out(groups, counts, strength)
    others = {name: columns for name, columns in groups.items() if name != "heading"}
    adds = whole - _held_out(others, counts, strength)
    return {"explained": np.round(whole, 4).tolist(), "heading_adds": np.round(adds, 4).tolist()}


def _fit(groups: Mapping[str, Array], counts: Array, strength: float) -> Any:
    import nemos

    design = np.concatenate(list(groups.values()), axis=1)
    # One group of coefficients for each label and each unit.
    group_of = np.repeat(np.arange(len(groups)), [v.shape[1] for v in groups.values()])
    n_units = counts.shape[1]
    mask = np.zeros((len(groups), n_units, design.shape[1], n_units))
    for unit in range(n_units):
        mask[group_of, unit, np.arange(len(group_of)), unit] = 1
    glm = nemos.glm.PopulationGLM(
        regularizer=nemos.regularizer.GroupLasso(mask=mask.reshape(-1, *mask.shape[2:])),
        regularizer_strength=strength,
        solver_kwargs={"maxiter": 500, "tol": 1e-5},
    )
    return glm.fit(design, counts)


def _held_out(groups: Mapping[str, Array], counts: Array, strength: float) -> Array:
    """Share of the Poisson deviance of each unit that is explained on held-out time."""
    fold = np.arange(len(counts)) * _N_STRETCHES // len(counts) % _N_FOLDS
    residual, total = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    for k in range(_N_FOLDS):
        train = {name: columns[fold != k] for name, columns in groups.items()}
        model = _fit(train, counts[fold != k], strength)
        design = np.concatenate([columns[fold == k] for columns in groups.values()], axis=1)
        seen = counts[fold == k]
        residual += _deviance(seen, np.asarray(model.predict(design), np.float64))
        total += _deviance(seen, np.broadcast_to(counts[fold != k].mean(axis=0), seen.shape))
    return 1 - residual / total


def _deviance(counts: Array, rates: Array) -> Array:
    rates = np.maximum(rates, 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(counts > 0, counts * np.log(counts / rates), 0.0)
    return np.asarray(2 * (logs - counts + rates).sum(axis=0))


def answer(rows: Sequence[Row]) -> str:
    """One line for each unit, then how the two agree."""
    found = rows[0]["found"]
    glm = found["glm"]
    lines = [
        "| unit | area | xcebra: score for heading | called | GLM: heading adds | group kept | "
        "xcebra: score for position | called | GLM: position adds | group kept |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for k, area in enumerate(found["area"]):
        cells = [
            f"{found['scores'][name][k]:.2f} | {_yes(found['called'][name][k])} | "
            f"{100 * glm['adds'][name][k]:.1f} % | {_yes(glm['kept'][name][k])}"
            for name in ("heading", "position")
        ]
        lines.append(f"| {k} | {area} | {' | '.join(cells)} |")
    notes = [
        "GLM: adds is the share of a unit's Poisson deviance, on held-out time, by which the model "
        "of all labels is better than the one without this label; group kept: its coefficients are "
        f"not zero. Strength of the group lasso {glm['strength']:g}, chosen on held-out time among "
        f"{', '.join(f'{s:g}' for s in STRENGTHS)}; at most 500 steps of the solver, after which "
        "some fits had not converged.",
        "",
        f"Spearman correlation of our scores with what the label adds to the GLM: heading "
        f"{_rank(found, 'heading'):.2f}, position {_rank(found, 'position'):.2f}. Groups that the "
        f"GLM keeps: heading {sum(glm['kept']['heading'])}, position "
        f"{sum(glm['kept']['position'])}, speed {sum(glm['kept']['speed'])} of "
        f"{len(found['area'])} units. Units that our test calls: heading "
        f"{sum(found['called']['heading'])}, position {sum(found['called']['position'])}.",
        "",
        _about_time(found),
    ]
    return "\n".join([*lines, "", *notes])


def _about_time(found: Mapping[str, Any]) -> str:
    labels, both = found["glm"], found["glm_with_time_latents"]
    n = found["n_time_latents"]
    means = [100 * float(np.mean(glm["explained"])) for glm in (labels, both)]
    heads = [k for k, area in enumerate(found["area"]) if area == "adn"]
    adds = [
        100 * float(np.mean([of_unit[k] for k in heads]))
        for of_unit in (labels["adds"]["heading"], both["heading_adds"])
    ]
    return (
        f"With our time latents ({n}) as a further group, the GLM explains {means[1]:.1f} % of the "
        f"deviance on average over units in place of {means[0]:.1f} %, and heading adds "
        f"{adds[1]:.1f} % to the thalamic units in place of {adds[0]:.1f} %."
    )


def _rank(found: Mapping[str, Any], name: str) -> float:
    return float(spearmanr(found["scores"][name], found["glm"]["adds"][name]).statistic)


def _yes(value: bool) -> str:
    return "yes" if value else ""


if __name__ == "__main__":
    run("beside_nemos", measure, ITEMS, answer)
