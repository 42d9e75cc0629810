"""Labels that are made from series: joined columns, speed, velocity, angles, logarithms.

A label is written as ``x``, ``x, z``, ``speed(x, z)``, ``angle(x1, y1, x2, y2)`` or
``log(speed(x, z))``. Derivatives are taken at the series' own sampling rate, and smoothed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from xcebra.common.errors import InputError
from xcebra.data.label_info import LabelInfo
from xcebra.io.clock import stretches
from xcebra.io.contents import Contents, IntervalValues, Series, Spikes, joined_series
from xcebra.io.lookup import has, matching, one_line, part, spell

Array = NDArray[np.float64]

# Standard deviation, in seconds, of the Gaussian that smooths derivatives. Video tracking jitters
# from frame to frame, and animals change their speed over tenths of a second. Larger values lose
# quick movements; not tuned.
SMOOTHING = 0.1

# Functions in one label. Two are of use; the limit keeps nonsense from exhausting the stack.
_MOST_FUNCTIONS = 20

_CALL = re.compile(r"([A-Za-z_]\w*)\s*\((.*)\)", re.DOTALL)
_SMOOTH = re.compile(r"smooth\s*=\s*(.+)", re.DOTALL)


def split_name(label: str, contents: Contents) -> tuple[str, str]:
    """Return the name of a label and what it is made from.

    Parameters
    ----------
    label : str
        ``NAME`` or ``NAME=WHAT``, as in ``position=x,z``.
    contents : Contents
        An entry whose own name contains ``=`` is found first.
    """
    name, equals, what = label.partition("=")
    if not equals or has(contents, label) or not re.fullmatch(r"[^(),]+", name):
        return label.strip(), label.strip()
    if not what.strip():
        raise InputError(
            f"label {label!r} has nothing after '='; write, for instance, position=x,z", ("labels",)
        )
    return name.strip(), what.strip()


def derive(contents: Contents, what: str, argument: str = "labels") -> Series | IntervalValues:
    """Make a label from the entries of a source.

    Parameters
    ----------
    contents : Contents
    what : str
        Names of entries or of columns, separated by commas, or a function of them.
    argument : str
        Name of the argument, for errors.

    Returns
    -------
    Series or IntervalValues
        Its ``info`` says what it was made from.

    Raises
    ------
    ValueError
        If a name or a function does not exist, or does not suit what it is applied to.
    """
    if has(contents, what):
        names = matching(contents, what, argument)
        return _joined(contents, [_plain(contents, name, argument) for name in names], names)
    if what.count("(") > _MOST_FUNCTIONS:
        raise InputError(
            f"{contents.origin}: {argument}={one_line(what)} has more than {_MOST_FUNCTIONS} "
            "functions; write, for instance, log(speed(x, z))",
            (argument,),
        )
    call = _CALL.fullmatch(what.strip())
    if call is not None:
        return _called(contents, call[1], call[2], what.strip(), argument)
    pieces = _split(what)
    if len(pieces) == 1:
        if "(" in what or ")" in what:
            raise InputError(
                f"{contents.origin}: {argument}={what!r} cannot be read; write, for instance, "
                "speed(x, z)",
                (argument,),
            )
        matching(contents, what, argument)  # raises an error that names what is there
    parts = [derive(contents, piece, argument) for piece in pieces]
    return _joined(contents, parts, pieces)


def _called(contents: Contents, name: str, inside: str, what: str, argument: str) -> Series:
    if name not in _FUNCTIONS:
        near = get_close_matches(name, _FUNCTIONS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"{contents.origin}: {argument}={what!r} uses {name!r}, which is no function; {hint}"
            f"known are {', '.join(_FUNCTIONS)}",
            (argument,),
        )
    function = _FUNCTIONS[name]
    pieces = _split(inside)
    widths = [match[1] for piece in pieces if (match := _SMOOTH.fullmatch(piece)) is not None]
    pieces = [piece for piece in pieces if _SMOOTH.fullmatch(piece) is None]
    if not pieces or not all(pieces):
        raise InputError(
            f"{contents.origin}: {argument}={what!r} needs names inside its parentheses, as in "
            f"{name}({function.example})",
            (argument,),
        )
    parts = [derive(contents, piece, argument) for piece in pieces]
    series = _joined(contents, parts, pieces)
    if isinstance(series, IntervalValues) or series.values.dtype.kind not in "fiub":
        raise InputError(
            f"{contents.origin}: {argument}={what!r} needs numbers over time", (argument,)
        )
    try:
        width = _seconds(widths[-1]) if widths else SMOOTHING
        values = function.compute(series, width)
    except InputError as error:
        message = f"{contents.origin}: {argument}={what!r} {error}"
        raise InputError(message, (argument,)) from None
    has_unit = series.info.unit or function.circular
    unit = function.unit.format(unit=series.info.unit) if has_unit else ""
    sources = [entry.info.source or piece for piece, entry in zip(pieces, parts, strict=True)]
    text = f"{name}({', '.join(sources)})"
    if function.smooths:
        text += f", smoothed by {width:g} s"
    info = LabelInfo("circular" if function.circular else None, (), unit, text)
    if values.shape[1] > 1:
        titles = series.columns or [f"{pieces[0]} {i + 1}" for i in range(values.shape[1])]
        info = replace(info, columns=tuple(f"{name} of {title}" for title in titles))
    return Series(values, series.times, info.columns, info=info)


def _plain(contents: Contents, name: str, argument: str) -> Series | IntervalValues:
    entry = part(contents, name)
    if isinstance(entry, Spikes):
        raise InputError(f"{contents.origin}: {name!r} holds spike times, not a label", (argument,))
    if isinstance(entry, IntervalValues):
        return entry
    if not isinstance(entry, Series):
        columns = [f"{name}/{column}" for column in entry.columns]
        remedy = f"; its columns are {spell(columns)}" if columns else ""
        raise InputError(
            f"{contents.origin}: {argument}={name!r} is a list of intervals; it can be epochs, not "
            f"{argument}{remedy}",
            (argument,),
        )
    series = entry.read()
    titles = series.columns if series.values.shape[1] > 1 else ()
    return replace(series, info=replace(series.info, columns=titles))


def _joined(
    contents: Contents, parts: list[Series | IntervalValues], names: list[str]
) -> Series | IntervalValues:
    """Return one part, or a series with the columns of several that have the same times."""
    if len(parts) == 1:
        return parts[0]
    series = [entry for entry in parts if isinstance(entry, Series)]
    if len(series) < len(parts):
        raise InputError(
            f"{contents.origin}: {spell(names)} cannot be columns of one label: columns of "
            "intervals are labels of their own",
            ("labels",),
        )
    joined = joined_series(series, names, f"{contents.origin}:", "labels")
    units = {other.info.unit for other in series}
    unit = units.pop() if len(units) == 1 else ""
    return replace(joined, info=LabelInfo(None, joined.columns, unit, ", ".join(names)))


def _split(text: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    pieces, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            pieces.append(text[start:i].strip())
            start = i + 1
    return [*pieces, text[start:].strip()]


def _seconds(text: str) -> float:
    try:
        width = float(text)
    except ValueError:
        width = -1.0
    if not 0 <= width < np.inf:
        raise InputError(f"has smooth={text!r}, which must be a number of seconds, 0 or more")
    return width


def _rates(series: Series, width: float) -> Array:
    """Derivative of each column per second, smoothed; NaN where a column is missing.

    The derivatives are smoothed, not the values: a constant speed then stays the same up to the
    ends and beside missing samples.
    """
    if series.times is None:
        raise InputError("needs the times of its series, because a rate is per second")
    steps = np.diff(series.times)[:, None]
    slopes = np.diff(series.values.astype(np.float64), axis=0) / steps
    epochs = stretches(series)
    slopes[epochs.starts[1:] - 1] = np.nan  # across a gap
    rates = _at_samples(slopes, steps)
    for start, stop in epochs.pairs():
        rates[start:stop] = _smoothed(rates[start:stop], width / series.interval)
    return rates


def _at_samples(slopes: Array, steps: Array) -> Array:
    """Derivatives at samples from the slopes between them, as `numpy.gradient` computes them.

    Where only one of the two slopes beside a sample is known, it is taken. NaN if none is.

    Parameters
    ----------
    slopes : ndarray of shape (n_times - 1, n_columns)
    steps : ndarray of shape (n_times - 1, 1)
        Time between samples.
    """
    unknown, none = np.full((1, slopes.shape[1]), np.nan), np.zeros((1, 1))
    left, right = np.concatenate([unknown, slopes]), np.concatenate([slopes, unknown])
    before, after = np.concatenate([none, steps]), np.concatenate([steps, none])
    with np.errstate(invalid="ignore"):
        both = (after * left + before * right) / (before + after)
    return np.where(np.isnan(left), right, np.where(np.isnan(right), left, both))


def _smoothed(values: Array, width: float) -> Array:
    """Smooth columns by a Gaussian of ``width`` samples, over known samples only."""
    if width == 0:
        return values
    known = np.isfinite(values)
    total = gaussian_filter1d(np.where(known, values, 0.0), width, axis=0, mode="constant")
    weight = gaussian_filter1d(known.astype(np.float64), width, axis=0, mode="constant")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, total / weight, np.nan)


def _speed(series: Series, width: float) -> Array:
    return np.linalg.norm(_rates(series, width), axis=1, keepdims=True)


def _direction(series: Series, width: float) -> Array:
    """Direction of movement in the plane of two columns, in radians."""
    _needs_columns(series, (2,))
    rates = _rates(series, width)
    return np.arctan2(rates[:, 1], rates[:, 0])[:, None]


def _angle(series: Series, width: float) -> Array:
    """Direction of the vector (x, y), or of the line from (x1, y1) to (x2, y2), in radians."""
    _needs_columns(series, (2, 4))
    values = series.values.astype(np.float64)
    if values.shape[1] == 4:
        values = values[:, 2:] - values[:, :2]
    return np.arctan2(values[:, 1], values[:, 0])[:, None]


def _radians(series: Series, width: float) -> Array:
    _needs_columns(series, (1,))
    return np.deg2rad(series.values.astype(np.float64))


def _log(series: Series, width: float) -> Array:
    """Natural logarithm; NaN, which is missing, where a value is not above zero."""
    values = series.values.astype(np.float64)
    if not (values > 0).any():
        raise InputError("has no value above zero, and the logarithm of others is not defined")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(values > 0, np.log(values), np.nan)


def _needs_columns(series: Series, numbers: tuple[int, ...]) -> None:
    n = series.values.shape[1]
    if n not in numbers:
        needed = " or ".join(map(str, numbers))
        raise InputError(f"needs {needed} column{'s' * (needed != '1')}, got {n}")


@dataclass(frozen=True)
class _Function:
    compute: Callable[[Series, float], Array]
    example: str
    unit: str
    circular: bool = False
    smooths: bool = False


_FUNCTIONS = {
    "speed": _Function(_speed, "x, y", "{unit}/s", smooths=True),
    "velocity": _Function(_rates, "x", "{unit}/s", smooths=True),
    "direction": _Function(_direction, "x, y", "rad", circular=True, smooths=True),
    "angle": _Function(_angle, "x1, y1, x2, y2", "rad", circular=True),
    "radians": _Function(_radians, "heading", "rad", circular=True),
    "log": _Function(_log, "speed", "log {unit}"),
}
