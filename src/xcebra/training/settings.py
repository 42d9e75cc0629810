"""Recipes, defaults and checks: from the user's arguments to the settings of a fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcebra.caveats import ShortRecordingWarning, warn
from xcebra.common.checks import choice, number, raise_if
from xcebra.common.choices import (
    DISTANCES,
    LABEL_KINDS,
    OBJECTIVES,
    SESSION_WEIGHTS,
    TIME_BLOCKS,
    TIME_ON,
    Basis,
    Method,
)
from xcebra.common.errors import InputError, Problem
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label, LabelSpec

# Share of the samples that is held out. Larger values make the tests on held-out samples more
# precise, but leave fewer samples to train on; not tuned.
HELD_OUT = 0.1
AUTO = "auto"
# Fewest held-out samples, as a number and as a multiple of the time offset. With fewer, there are
# too few pairs for a test, and nothing is held out; not tuned.
_LEAST_HELD_OUT, _OFFSETS_A_STRETCH = 50, 4
# Largest number of held-out stretches, and their usual shortest length in samples. Ten stretches
# cover most of what happens in a session. Every stretch costs training pairs at its two borders, so
# that short recordings have fewer stretches. Not tuned.
_MOST_STRETCHES, _LEAST_STRETCH = 10, 100
# A warning is given if the training samples are fewer than this many batches: every step then sees
# nearly the same negatives. Larger values warn more often; not tuned.
_LEAST_BATCHES = 2
# Number of time latents if it is not counted from the data, which is the case for the recipe
# "paper"; not tuned.
_DEFAULT_TIME_DIMS = 4


@dataclass(frozen=True)
class Recipe:
    """A complete set of default values; None means that the value is chosen from the data.

    ``weight_decay`` is the value for a recording with 1,000 training samples. It decreases with the
    square root of their number. Regression has its own number of steps and its own weight of the
    penalty, because its steps are cheap and its loss is small compared with the penalty.
    ``method``, ``basis`` and ``smooth`` are the defaults for attribution maps. ``smooth`` applies
    to derivatives of the encoder only, because those of the decoder need no smoothing.

    What each value does to the map is measured in docs/recipe.md.
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
        # On the paper's data (temperature 1, steps of 0.1), the optimal embedding reaches +-7.07.
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
    """Check the arguments of the constructor, as far as no data is needed.

    Parameters
    ----------
    params : mapping
        The estimator's parameters by name.

    Raises
    ------
    ValueError
        If there are problems. The message lists all of them.
    """
    problems: list[str] = []
    choice(problems, "recipe", params["recipe"], RECIPES)
    choice(problems, "objective", params["objective"], OBJECTIVES)
    choice(problems, "distance", params["distance"], DISTANCES)
    choice(problems, "time_on", params["time_on"], TIME_ON)
    choice(problems, "time_block", params["time_block"], TIME_BLOCKS)
    choice(problems, "session_weight", params["session_weight"], SESSION_WEIGHTS)
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
    """Assign the values of an argument to the labels.

    Parameters
    ----------
    problems : list of str
        Problems are appended to it.
    argument : str
        Name of the argument, for messages.
    value : object
        One value for all labels, or a mapping from names of labels to values.
    names : list of str
        Names of all labels.
    default : object
        Value for labels that the argument does not mention.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, default if value is None else value)
    value = {str(name): entry for name, entry in value.items()}
    for unknown in sorted(set(value) - set(names)):
        problems.append(f"{argument} names {unknown!r}, but the labels are {names}")
    return {name: value.get(name, default) for name in names}


def label_specs(
    params: Mapping[str, Any],
    names: list[str],
    known: Mapping[str, str] | None = None,
) -> dict[str, LabelSpec]:
    """Kind and delay of each label, as far as the parameters or the recording specify them.

    Parameters
    ----------
    params : mapping
        The estimator's parameters.
    names : list of str
        Names of all labels.
    known : mapping of str to str, optional
        Kinds that the recording says; the parameters win.
    """
    problems: list[str] = []
    kinds = named(problems, "label_kind", params["label_kind"], names, None)
    kinds = {
        name: (known or {}).get(name) if kind is None else kind for name, kind in kinds.items()
    }
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
    controls: Collection[str] = (),
) -> dict[str, slice]:
    """Choose the latents of each label and of time.

    The blocks have the order of ``label_dims`` if it is a mapping, otherwise the order of the
    labels. Labels that are controlled for come after the others, and the time block is the last
    one.

    Parameters
    ----------
    params : mapping
        The estimator's parameters.
    labels : list of Label
    n_neurons : int
    shared : callable, optional
        Called if ``time_dims`` is None. It returns the number of latents that the neurons share
        beyond the labels. Without it, the number is 4.
    controls : collection of str
        Labels that are controlled for. ``label_dims`` may leave them out.
    """
    regression = params["objective"] == "regression"
    widths = {label.name: label.points.shape[1] if regression else label.width for label in labels}
    given = params["label_dims"]
    asked = {name: width for name, width in widths.items() if name not in controls}
    others = {name: width for name, width in widths.items() if name in controls}
    if isinstance(given, Mapping):
        mentioned = [name for name in others if name in given]
        asked |= {name: others.pop(name) for name in mentioned}
    dims = {**_label_dims(given, asked), **others}
    dims = {name: dims[name] for name in sorted(dims, key=lambda name: name in controls)}
    n_label = sum(dims.values())
    time_dims = params["time_dims"]
    if regression:
        _check_regression(dims, widths, time_dims)
        time_dims = 0
    elif time_dims is None:
        usual = _DEFAULT_TIME_DIMS if shared is None else shared()
        time_dims = max(0 if labels else 1, min(usual, n_neurons - n_label))
    problems: list[str] = []
    if not labels and time_dims == 0:
        problems.append("there is nothing to learn: give labels (y) or time_dims of 1 or more")
    if n_label + time_dims > n_neurons:
        problems.append(
            f"label_dims and time_dims ask for {n_label} + {time_dims} latents, but {n_neurons} "
            "neurons cannot identify more latents than there are neurons; ask for fewer"
        )
    raise_if(problems)
    blocks, start = {}, 0
    for name, dim in [*dims.items(), *([("time", time_dims)] if time_dims else [])]:
        blocks[name] = slice(start, start + dim)
        start += dim
    return blocks


def _label_dims(label_dims: Any, widths: Mapping[str, int]) -> dict[str, int]:
    """Number of latents of each label, in the order of the blocks.

    Parameters
    ----------
    label_dims : int, mapping or None
        As given to the estimator.
    widths : mapping of str to int
        Default number of latents of each label.
    """
    problems: list[str] = []
    if isinstance(label_dims, Mapping):
        given = named(problems, "label_dims", label_dims, list(widths), None)
        first = [str(name) for name in label_dims if str(name) in widths]
        order = [*first, *(name for name in widths if name not in first)]
        dims = {name: widths[name] if given[name] is None else given[name] for name in order}
    else:
        if label_dims is not None and not widths:
            text = f"label_dims={label_dims!r} needs labels: give y, or leave label_dims out"
            problems.append(Problem(text, "label_dims"))
        if label_dims is not None and len(widths) > 1:
            text = (
                f"label_dims={label_dims!r} does not say which of the labels {list(widths)} it is "
                f"for; give a mapping, for instance {dict(widths)}"
            )
            problems.append(Problem(text, "label_dims"))
        dims = {name: width if label_dims is None else label_dims for name, width in widths.items()}
    for name, dim in dims.items():
        number(problems, f"label_dims[{name!r}]", dim, least=1, whole=True)
    raise_if(problems)
    return dims


def _check_regression(
    dims: Mapping[str, int], widths: Mapping[str, int], time_dims: int | None
) -> None:
    """Raise an error unless there is one output for each label column and no time block."""
    problems: list[str] = [
        f"label_dims[{name!r}] is {dim}, but regression has one output per label column, "
        f"{widths[name]}; leave label_dims out"
        for name, dim in dims.items()
        if dim != widths[name]
    ]
    if time_dims:
        problems.append(f"time_dims must be 0 for regression, got {time_dims}")
    if not widths:
        problems.append("objective='regression' needs labels: give y")
    raise_if(problems)


def split_epochs(epochs: Epochs, offset: int, window: int = 1) -> tuple[Epochs, Epochs | None]:
    """Drop epochs that are too short for a pair, and hold out a tenth of the others.

    About ten stretches are held out, evenly spaced over the whole recording, because a session
    changes over time: an animal gets tired, rests and learns. There are fewer stretches if they
    would be too short to contain enough pairs. If the epochs are too short to take stretches out of
    them, whole epochs are held out, also evenly spaced. Samples whose window would extend beyond
    their part of an epoch are in neither part.

    Parameters
    ----------
    epochs : Epochs
    offset : int
        Time offset of pairs, in samples.
    window : int
        Window of the encoder, in samples.

    Returns
    -------
    training : Epochs
    held_out : Epochs or None
        None if a tenth is too short for a test. ``training`` then has all samples.
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
    # The first choice is up to ten long stretches, then whole epochs, then shorter stretches.
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
    """Take stretches out of the longer epochs.

    The result is None if these epochs have less than half of all samples.

    Returns
    -------
    rest, stretches : Epochs
    """
    length = n_samples // n_stretches
    # More than half of an epoch must remain.
    is_long = epochs.lengths > 2 * length + least
    if length == 0 or epochs.every(is_long).size < epochs.size / 2:
        return None
    rest, stretches = epochs.every(is_long).cut(n_stretches, length, least)
    others = epochs.every(~is_long)
    starts, stops = (
        np.sort(np.concatenate([getattr(others, edge), getattr(rest, edge)]))
        for edge in ("starts", "stops")
    )
    return Epochs(starts, stops), stretches


def refuse_offset(offset: int, window: int, overlap: int) -> None:
    """Raise an error, because the samples of a pair in time would share their noise."""
    reasons = [f"window={window} reads {window} samples"] if window > 1 else []
    reasons += [f"smoothing spreads each sample over {overlap} on either side"] if overlap else []
    raise InputError(
        f"time_offset={offset} is too short: {' and '.join(reasons)}, so that pairs in time would "
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
    """Warn about epochs that `split_epochs` left out, and if it could not hold out samples."""
    dropped = len(epochs) - len(epochs.longer_than(offset + window - 1))
    if dropped:
        limit = f"time_offset={offset}" + (f" and window={window}" if window > 1 else "")
        warn(
            f"{dropped} of {len(epochs)} epochs are no longer than {limit} samples "
            "and were left out",
            ShortRecordingWarning,
        )
    if held_out is None:
        warn(
            f"the recording is too short to hold out a tenth of it ({epochs.size} samples): "
            "all of it is used for training, and it cannot be tested whether the labels were "
            "learned",
            ShortRecordingWarning,
        )


def resolve_batch_size(batch_size: int | None, recipe: Recipe, n_training: int) -> int:
    """Return the batch size to use.

    Parameters
    ----------
    batch_size : int or None
        The user's value, which must not exceed the number of training samples. If None, the
        recipe's value is used, reduced to the number of training samples if necessary.
    recipe : Recipe
    n_training : int
        Number of training samples.
    """
    if batch_size is None:
        return max(2, min(recipe.batch_size, n_training))
    if batch_size > n_training:
        raise InputError(
            f"batch_size is {batch_size}, but there are only {n_training} samples to train on; "
            "lower it, or leave it out to let it adapt",
            ("batch_size",),
        )
    if batch_size > n_training // _LEAST_BATCHES:
        warn(
            f"batch_size={batch_size} is more than half of the {n_training} samples to train on: "
            "every step sees nearly the same negatives, and the model may overfit; lower it, "
            f"to {max(2, n_training // 8)} for instance, or leave it out to let it adapt",
            ShortRecordingWarning,
            "batch_size",
        )
    return int(batch_size)
