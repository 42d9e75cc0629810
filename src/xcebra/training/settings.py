"""From what the user wrote to what the fit uses: recipes, defaults, and one round of checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcebra.caveats import ShortRecordingWarning, warn
from xcebra.common.checks import choice, number, raise_if
from xcebra.common.choices import DISTANCES, LABEL_KINDS, OBJECTIVES, TIME_ON, Basis, Method
from xcebra.common.errors import InputError, Problem
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label, LabelSpec

HELD_OUT = 0.1
AUTO = "auto"
# With fewer samples than these, or than these offsets, there are too few pairs to judge by.
_LEAST_HELD_OUT, _OFFSETS_A_STRETCH = 50, 4
# Ten are enough to see most of what a session holds; every stretch costs training pairs at its two
# borders, so that short recordings have fewer.
_MOST_STRETCHES, _LEAST_STRETCH = 10, 100
_LEAST_BATCHES = 2
_DEFAULT_TIME_DIMS = 4


@dataclass(frozen=True)
class Recipe:
    """A complete set of choices; None means that the data decides.

    ``weight_decay`` is that of a recording with 1,000 samples to train on; it falls with the square
    root of their number. A step of regression is cheap, and its loss small beside the penalty: it
    has its own number of steps and weight. ``method``, ``basis`` and ``smooth`` are how a map is
    made when the user does not say;
    ``smooth`` is for derivatives of the encoder, the decoder's need none.
    """

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    schedule: str
    jacobian_weight: float
    temperature: float | None
    time_offset: int | None
    include_positive: bool
    exclude_self: bool
    project: bool
    limit: float
    penalty_samples: int
    regression_steps: int
    regression_weight: float
    decoder_steps: int
    decoder_learning_rate: float
    method: Method
    basis: Basis
    smooth: int


RECIPES: Mapping[str, Recipe] = {
    "xcebra": Recipe(
        steps=400,
        batch_size=1024,
        learning_rate=3e-3,
        weight_decay=3.0,
        schedule="one-cycle",
        jacobian_weight=0.05,
        temperature=None,
        time_offset=None,
        include_positive=True,
        exclude_self=True,
        project=True,
        limit=5.0,
        penalty_samples=256,
        regression_steps=1200,
        regression_weight=0.01,
        decoder_steps=1500,
        decoder_learning_rate=2e-3,
        method="crossed-gradient",
        basis="sparse",
        smooth=16,
    ),
    "paper": Recipe(
        steps=20_000,
        batch_size=5000,
        learning_rate=3e-4,
        weight_decay=0.0,
        schedule="constant",
        jacobian_weight=0.1,
        temperature=1.0,
        time_offset=1,
        include_positive=False,
        exclude_self=False,
        project=False,
        # At temperature 1 and steps of 0.1 the optimum has the unit box at +-7.07.
        limit=10.0,
        penalty_samples=256,
        regression_steps=20_000,
        regression_weight=0.1,
        decoder_steps=1500,
        decoder_learning_rate=2e-3,
        method="inverted-gradient",
        basis="raw",
        smooth=1,
    ),
}


def check_parameters(params: Mapping[str, Any]) -> None:
    """Check everything about the constructor's arguments that needs no data.

    Raises
    ------
    ValueError
        With every problem found.
    """
    problems: list[str] = []
    choice(problems, "recipe", params["recipe"], RECIPES)
    choice(problems, "objective", params["objective"], OBJECTIVES)
    choice(problems, "distance", params["distance"], DISTANCES)
    choice(problems, "time_on", params["time_on"], TIME_ON)
    number(problems, "steps", params["steps"], least=1, whole=True)
    number(problems, "batch_size", params["batch_size"], least=2, whole=True)
    number(problems, "learning_rate", params["learning_rate"], least=0, above=True)
    number(problems, "temperature", params["temperature"], least=0, above=True)
    number(problems, "time_offset", params["time_offset"], least=1, whole=True)
    number(problems, "time_dims", params["time_dims"], least=0, whole=True)
    number(problems, "window", params["window"], least=1, whole=True)
    weight = params["jacobian_weight"]
    if isinstance(weight, str) and weight != AUTO:
        problems.append(
            f"jacobian_weight must be a number of 0 or more or {AUTO!r}, got {weight!r}"
        )
    elif not isinstance(weight, str):
        number(problems, "jacobian_weight", weight, least=0)
    if params["progress"] not in (None, True, False):
        problems.append(f"progress must be True, False or None, got {params['progress']!r}")
    raise_if(problems)


def named(
    problems: list[str], argument: str, value: Any, names: list[str], default: Any
) -> dict[str, Any]:
    """Spread an argument over the labels: one value for all, or a mapping by name."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, default if value is None else value)
    value = {str(name): each for name, each in value.items()}
    for unknown in sorted(set(value) - set(names)):
        problems.append(f"{argument} names {unknown!r}, but the labels are {names}")
    return {name: value.get(name, default) for name in names}


def label_specs(params: Mapping[str, Any], names: list[str]) -> dict[str, LabelSpec]:
    """How to read each label, as far as the parameters say."""
    problems: list[str] = []
    kinds = named(problems, "label_kind", params["label_kind"], names, None)
    delays = named(problems, "label_delay", params["label_delay"], names, 0)
    for name, kind in kinds.items():
        if kind is not None:
            choice(problems, f"label_kind[{name!r}]", kind, LABEL_KINDS)
    for name, delay in delays.items():
        number(problems, f"label_delay[{name!r}]", delay, least=-np.inf, whole=True)
    for name, meaning in (("time", "names the time block"), ("all", "stands for all blocks")):
        if name in names:
            problems.append(f"{name!r} {meaning} and cannot be a label; rename that label")
    raise_if(problems)
    return {name: LabelSpec(kinds[name], int(delays[name] or 0)) for name in names}


def resolve_blocks(
    params: Mapping[str, Any],
    labels: list[Label],
    n_neurons: int,
    shared: Callable[[], int] | None = None,
) -> dict[str, slice]:
    """Which latents belong to which label, and to time.

    Blocks stand in the order of ``label_dims`` if it is a mapping, else of the labels; time last.
    Where ``time_dims`` is not given, ``shared`` counts the latents that the neurons share beyond
    the labels; without it there are 4.
    """
    problems: list[str] = []
    given = params["label_dims"]
    widths = {label.name: label.width for label in labels}
    regression = params["objective"] == "regression"
    if regression:
        widths = {label.name: label.points.shape[1] for label in labels}
    order = list(widths)
    if isinstance(given, Mapping):
        dims = named(problems, "label_dims", given, order, None)
        dims = {name: widths[name] if dim is None else dim for name, dim in dims.items()}
        order = [str(n) for n in given if str(n) in widths]
        order += [n for n in widths if n not in order]
    else:
        if given is not None and not labels:
            text = f"label_dims={given!r} needs labels: give y, or leave label_dims out"
            problems.append(Problem(text, "label_dims"))
        if given is not None and len(labels) > 1:
            text = (
                f"label_dims={given!r} does not say which of the labels {order} it is for; "
                f"give a mapping, for instance {dict(widths)}"
            )
            problems.append(Problem(text, "label_dims"))
        dims = {name: widths[name] if given is None else given for name in order}
    for name, dim in dims.items():
        number(problems, f"label_dims[{name!r}]", dim, least=1, whole=True)
    raise_if(problems)
    total = sum(dims.values())
    time_dims = params["time_dims"]
    if regression:
        for name, dim in dims.items():
            if dim != widths[name]:
                problems.append(
                    f"label_dims[{name!r}] is {dim}, but regression has one output per label "
                    f"column, {widths[name]}; leave label_dims out"
                )
        if time_dims:
            problems.append(f"time_dims must be 0 for regression, got {time_dims}")
        if not labels:
            problems.append("objective='regression' needs labels: give y")
        time_dims = 0
    elif time_dims is None:
        usual = _DEFAULT_TIME_DIMS if shared is None else shared()
        time_dims = max(0 if labels else 1, min(usual, n_neurons - total))
    if not labels and time_dims == 0 and not regression:
        problems.append("there is nothing to learn: give labels (y) or time_dims of 1 or more")
    if total + time_dims > n_neurons:
        problems.append(
            f"label_dims and time_dims ask for {total} + {time_dims} latents, but {n_neurons} "
            "neurons cannot identify more latents than there are neurons; ask for fewer"
        )
    raise_if(problems)
    blocks, at = {}, 0
    for name in order:
        blocks[name] = slice(at, at + dims[name])
        at += dims[name]
    if time_dims:
        blocks["time"] = slice(at, at + time_dims)
    return blocks


def split_epochs(epochs: Epochs, offset: int, window: int = 1) -> tuple[Epochs, Epochs | None]:
    """Drop epochs too short for a pair, and hold out a tenth of the rest.

    A session changes: an animal tires, rests, learns. So what is held out are about ten stretches
    spread evenly through the whole recording; fewer where they would be too short to hold enough
    pairs. Where epochs are too short to take stretches out of them, whole epochs are held out,
    spread evenly too. Samples whose window would reach beyond their part of an epoch are left out
    of both.

    Returns
    -------
    training : Epochs
    held_out : Epochs or None
        None if a tenth is too short to judge by; training then has everything.
    """
    least = offset + window - 1
    long_enough = epochs.longer_than(least)
    if len(long_enough) == 0:
        raise InputError(
            f"no epoch is long enough: pairs are {_spans(offset, window)}, and the longest epoch "
            f"has {epochs.lengths.max()} samples; join epochs or lower {_either(window)}"
        )
    enough = max(_LEAST_HELD_OUT, _OFFSETS_A_STRETCH * offset)
    n_held_out = int(HELD_OUT * long_enough.size)
    usual = max(_LEAST_STRETCH, enough) + window - 1
    n_usual = int(np.clip(n_held_out // usual, 1, _MOST_STRETCHES))
    shortest = 2 * offset + window - 1
    # Ten long stretches; else whole epochs; else shorter stretches.
    candidates = [_stretches_out(long_enough, n_usual, n_held_out, least)]
    candidates.append(long_enough.thin(HELD_OUT))
    for n in range(n_usual + 1, _MOST_STRETCHES + 1):
        if n_held_out // n > shortest:
            candidates.append(_stretches_out(long_enough, n, n_held_out, least))
    for training, stretches in filter(None, candidates):
        held_out = stretches.inside(window).longer_than(offset)
        if held_out.size >= enough and len(training) > 0:
            return training.inside(window), held_out
    return long_enough.inside(window), None


def _stretches_out(
    epochs: Epochs, n_stretches: int, n_samples: int, least: int
) -> tuple[Epochs, Epochs] | None:
    """Take stretches out of the longer epochs; None if these are less than half of all samples.

    Returns
    -------
    rest, stretches : Epochs
    """
    length = n_samples // n_stretches
    # An epoch keeps more than half of itself.
    roomy = epochs.lengths > 2 * length + least
    if length == 0 or epochs.every(roomy).size < epochs.size / 2:
        return None
    rest, stretches = epochs.every(roomy).cut(n_stretches, length, least)
    others = epochs.every(~roomy)
    starts, stops = (
        np.sort(np.concatenate([getattr(others, edge), getattr(rest, edge)]))
        for edge in ("starts", "stops")
    )
    return Epochs(starts, stops), stretches


def refuse_offset(offset: int, window: int, overlap: int) -> None:
    """Raise because pairs in time would share what was measured."""
    why = [f"window={window} reads {window} samples"] if window > 1 else []
    why += [f"smoothing spreads each sample over {overlap} on either side"] if overlap else []
    raise InputError(
        f"time_offset={offset} is too short: {' and '.join(why)}, so that pairs in time would "
        f"share their noise and learn it; give time_offset={window + overlap} or more, or leave it "
        "out",
        ("time_offset",),
    )


def _spans(offset: int, window: int) -> str:
    apart = f"time_offset={offset} samples apart"
    return apart if window == 1 else f"{apart} and read from window={window} samples each"


def _either(window: int) -> str:
    return "time_offset" if window == 1 else "time_offset or window"


def warn_split(epochs: Epochs, offset: int, held_out: Epochs | None, window: int = 1) -> None:
    """Say what `split_epochs` left out or could not do."""
    dropped = len(epochs) - len(epochs.longer_than(offset + window - 1))
    if dropped:
        reach = f"time_offset={offset}" + (f" and window={window}" if window > 1 else "")
        warn(
            f"{dropped} of {len(epochs)} epochs are no longer than {reach} samples "
            "and were left out",
            ShortRecordingWarning,
        )
    if held_out is None:
        warn(
            f"the recording is too short to hold out a tenth of it ({epochs.size} samples): "
            "all of it is used for training, and nothing tells whether the labels were learned",
            ShortRecordingWarning,
        )


def resolve_batch_size(given: int | None, recipe: Recipe, n_training: int) -> int:
    """The batch size: as given, which must fit, or the recipe's, which adapts."""
    if given is None:
        return max(2, min(recipe.batch_size, n_training))
    if given > n_training:
        raise InputError(
            f"batch_size is {given}, but there are only {n_training} samples to train on; "
            "lower it, or leave it out to let it adapt",
            ("batch_size",),
        )
    if given > n_training // _LEAST_BATCHES:
        warn(
            f"batch_size={given} is more than half of the {n_training} samples to train on: every "
            "step sees the same negatives, and what is learned may not hold elsewhere; lower it, "
            f"to {max(2, n_training // 8)} for instance, or leave it out to let it adapt",
            ShortRecordingWarning,
            "batch_size",
        )
    return int(given)
