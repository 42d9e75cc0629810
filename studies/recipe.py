"""How each choice of the recipe matters: variants that change one choice at a time.

Every variant is fitted to the same recordings (dataset seeds 100 and above, which are not used for
any result). Finished rows are kept in ``results/studies/recipe.jsonl``; a run that was interrupted
continues with the missing rows. ``python -m studies.recipe [VARIANT ...]`` runs all variants or
those that are named. ``python -m studies.recipe table`` prints the table of ``docs/recipe.md`` from
the committed rows.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xcebra
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc
from xcebra.networks import decoder, encoder
from xcebra.sweep import RowFile, sweep
from xcebra.training import loop as training
from xcebra.training import plan as planning
from xcebra.training import settings, timescale

RESULTS = RowFile(Path(__file__).parents[1] / "results" / "studies" / "recipe.jsonl")

# Recordings by name: the arguments of `xcebra.datasets.synthetic`, and the dataset seeds.
RECORDINGS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "d = 9": ({"n_hidden": 7, "n_observed": 2}, (112, 113)),
    "noisy": ({"n_hidden": 4, "n_observed": 2, "correlation": 0.7, "noise": 0.5}, (114, 115)),
    "short": ({"n_hidden": 3, "n_observed": 3, "n_steps": 1000}, (116, 117, 118)),
}


@dataclass(frozen=True)
class Try:
    """One variant on one recording."""

    variant: str
    recording: str
    seed: int


def recipe(**changes: Any) -> Callable[[], Any]:
    """Return a context in which some settings of the recipe are changed."""

    @contextmanager
    def changed() -> Iterator[None]:
        before = settings.RECIPES
        settings.RECIPES = {**before, "xcebra": replace(before["xcebra"], **changes)}
        planning.RECIPES = settings.RECIPES
        try:
            yield
        finally:
            settings.RECIPES = planning.RECIPES = before

    return changed


def patched(module: Any, name: str, value: Any) -> Callable[[], Any]:
    """Return a context in which a function or constant of a module is replaced.

    If ``value`` is callable, it is called with the original and returns the replacement.
    """

    @contextmanager
    def changed() -> Iterator[None]:
        before = getattr(module, name)
        setattr(module, name, value(before) if callable(value) else value)
        try:
            yield
        finally:
            setattr(module, name, before)

    return changed


def averaged(share: float) -> Callable[[Any], Any]:
    """Replace the final weights by their mean over the last share of the training steps."""

    def wrap(take_step: Any) -> Any:
        mean: dict[str, Any] = {"n": 0}

        def stepped(
            state: Any, batch: Any, objectives: Any, config: Any, step: int, workers: Any
        ) -> Any:
            if step == 0:
                mean.update(n=0)
            record = take_step(state, batch, objectives, config, step, workers)
            if step >= (1 - share) * config.steps:
                weights = state.learner.encoders[0].network.state_dict()
                mean["n"] += 1
                if mean["n"] == 1:
                    mean["weights"] = copy.deepcopy(weights)
                else:
                    for name, value in mean["weights"].items():
                        value.lerp_(weights[name], 1 / mean["n"])
            if step + 1 == config.steps:
                state.learner.encoders[0].network.load_state_dict(mean["weights"])
            return record

        return stepped

    return wrap


def optimised(make: Callable[[Any, float], torch.optim.Optimizer]) -> Callable[[Any], Any]:
    """Train with another optimiser."""

    def wrap(new_state: Any) -> Any:
        def new_state_with_optimizer(nets: Any, config: Any) -> Any:
            state = new_state(nets, config)
            state.learner.optimizer = make(nets[0].network.parameters(), config.learning_rate)
            return state

        return new_state_with_optimizer

    return wrap


def scaled_temperature(factor: float) -> Callable[[Any], Any]:
    """Multiply the chosen temperature by a factor."""
    return lambda choose: lambda *args: factor * choose(*args)


VARIANTS: dict[str, Callable[[], Any]] = {
    "ours": recipe(),
    "positive not in the sum": recipe(include_positive=False),
    "time offset 1": recipe(time_offset=1),
    "time offset halved": patched(timescale, "_SHARE", 1.3),
    "time offset doubled": patched(timescale, "_SHARE", 0.7),
    "time offset chosen with the noise": patched(
        timescale, "reliability", lambda _: lambda series, epochs, n: np.ones(n)
    ),
    "temperature halved": patched(planning, "choose_temperature", scaled_temperature(0.5)),
    "temperature doubled": patched(planning, "choose_temperature", scaled_temperature(2.0)),
    "no projection": recipe(project=False),
    "penalty 0": recipe(jacobian_weight=0.0),
    "penalty 0.02": recipe(jacobian_weight=0.02),
    "penalty 0.1": recipe(jacobian_weight=0.1),
    "penalty 0.2": recipe(jacobian_weight=0.2),
    "constant rate": recipe(schedule="constant"),
    "rate halved": recipe(learning_rate=1.5e-3),
    "rate doubled": recipe(learning_rate=6e-3),
    "800 steps": recipe(steps=800),
    "1200 steps, rate 1e-3": recipe(steps=1200, learning_rate=1e-3),
    "batch 512, 800 steps": recipe(batch_size=512, steps=800),
    "batch 2048, 200 steps": recipe(batch_size=2048, steps=200),
    "weight decay 0": recipe(weight_decay=0.0),
    "weight decay 3 times as large": recipe(weight_decay=9.0),
    "RAdam": patched(
        training,
        "new_state",
        optimised(
            lambda p, lr: torch.optim.RAdam(p, lr, weight_decay=0.3, decoupled_weight_decay=True)
        ),
    ),
    "NAdam": patched(
        training,
        "new_state",
        optimised(
            lambda p, lr: torch.optim.NAdam(p, lr, weight_decay=0.3, decoupled_weight_decay=True)
        ),
    ),
    "weights averaged over the last fifth": patched(training, "take_step", averaged(0.2)),
    "encoder half as wide": patched(encoder, "WIDTHS", (15, 15, 5)),
    "encoder twice as wide": patched(encoder, "WIDTHS", (60, 60, 20)),
    "decoder sees its own sample": patched(
        decoder, "outlasts_samples", lambda _: lambda *args: False
    ),
    "decoder half as wide": patched(decoder, "WIDTH", 96),
    "decoder twice as wide": patched(decoder, "WIDTH", 384),
    "decoder 750 steps": recipe(decoder_steps=750),
    "decoder 3000 steps": recipe(decoder_steps=3000),
}

MAPS: dict[str, dict[str, Any]] = {
    "inverted": {"method": "inverted-gradient"},
    "inverted, raw": {"method": "inverted-gradient", "basis": "raw", "smooth": 1},
    "decoder, label": {"method": "decoder-gradient", "basis": "label"},
    "decoder, sparse": {"method": "decoder-gradient", "basis": "sparse"},
}


def measure(item: Try) -> dict[str, Any]:
    """Fit a variant, and measure auROC of its maps for z2."""
    data, _ = RECORDINGS[item.recording]
    rec = xcebra.datasets.synthetic(**data, seed=item.seed)
    model = xcebra.XCEBRA(
        label_dims=data["n_observed"], time_dims=data["n_hidden"], random_state=0, progress=False
    )
    with warnings.catch_warnings(), VARIANTS[item.variant]():
        warnings.simplefilter("ignore", XcebraWarning)
        started = time.perf_counter()
        model.fit(rec.neural, rec.labels["z2"])
        results: dict[str, Any] = {"fit_s": round(time.perf_counter() - started, 1)}
        results["time_offset"] = model.config_["time_offset"]
        results["temperature"] = model.config_["temperature"]
        results["r2"] = model.score(rec.neural, rec.labels["z2"])
        neural = rec.neural[:: max(1, len(rec.neural) // 10_000)]
        for name, options in MAPS.items():
            amap = model.attribute(neural, **options)
            results[name] = [
                auroc(amap, rec.ground_truth, block="label", factor="z2", score=score)
                for score in ("entries", "block")
            ]
    return results


def items(variants: list[str]) -> list[Try]:
    """Return the items of the variants in order; ``variant@recording`` selects one recording."""
    return [
        Try(variant.split("@")[0], name, seed)
        for variant in variants
        for name, (_, seeds) in RECORDINGS.items()
        for seed in seeds
        if name == [*variant.split("@"), name][1]
    ]


def table() -> None:
    """Print the table of the documentation, in Markdown."""
    done = RESULTS.finished(items(list(VARIANTS)))
    print("| | " + " | ".join(RECORDINGS) + " | seconds, d = 9 |")
    print("|---|" + "---|" * (len(RECORDINGS) + 1))
    for variant in VARIANTS:
        rows = [row for row in done.values() if row["item"]["variant"] == variant]
        if not rows:
            continue
        cells = []
        for name in RECORDINGS:
            group = [row["found"] for row in rows if row["item"]["recording"] == name]
            cells.append(_cell(group) if group else "")
        seconds = [r["found"]["fit_s"] for r in rows if r["item"]["recording"] == "d = 9"]
        cells.append(f"{np.mean(seconds):.0f}" if seconds else "")
        print(f"| {variant} | " + " | ".join(cells) + " |")


def _cell(group: list[dict[str, Any]]) -> str:
    """Mean auROC of the inverted gradient / decoder gradient (R^2) over recordings."""
    inverted, ours = (
        np.mean([result[key][0] for result in group]) for key in ("inverted", "decoder, sparse")
    )
    return f"{inverted:.3f} / {ours:.3f} ({np.mean([result['r2'] for result in group]):.3f})"


def main() -> None:
    """Run the missing items, or print the table of the finished ones."""
    asked = sys.argv[1:]
    if asked == ["table"]:
        table()
    else:
        sweep(measure, items(asked or list(VARIANTS)), RESULTS, progress=sys.stderr.isatty())


if __name__ == "__main__":
    main()
