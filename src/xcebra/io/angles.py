"""Recognise angles among labels, in radians or degrees, and bring them to radians."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xcebra.caveats import LabelKindWarning, warn
from xcebra.data.labels import jumps_like_angle, spans_degrees
from xcebra.io.contents import Series

_RADIANS = ("rad", "radian", "radians")
_DEGREES = ("deg", "degree", "degrees", "°")
# An angle that spans more than this many turns counts them, as that of a wheel does. `data.labels`
# refuses such angles.
_MOST_TURNS = 2


def with_kind(name: str, series: Series, said: str | None, origin: str) -> Series:
    """Return a label with its kind, and with angles in radians.

    Parameters
    ----------
    name : str
        Name of the label.
    series : Series
    said : {"continuous", "discrete", "circular"} or None
        What the user says about it. None lets the kind or the unit in the file decide, or else the
        values: a column is an angle if it jumps by a whole turn now and then.
    origin : str
        Name of the source, for messages.
    """
    unit, one_column = series.info.unit.strip().lower(), series.values.shape[1] == 1
    kind, reason = said, ""
    if kind is None:
        # Truth values become numbers where samples are missing.
        kind = "discrete" if series.values.dtype.kind == "b" else series.info.kind
    if kind is None and one_column and series.values.dtype.kind in "fiu":
        turn = 2 * np.pi if unit in _RADIANS else 360.0 if unit in _DEGREES else None
        if turn is not None and _span(series) <= _MOST_TURNS * turn:
            kind, reason = "circular", f"its unit is {series.info.unit}"
        elif jumps_like_angle(series.values) or jumps_like_angle(series.values, 360.0):
            kind, reason = "circular", "it jumps by a whole turn now and then"
    if reason:
        warn(
            f"{origin}: label {name!r} was taken as an angle, because {reason}; say "
            f"label_kind={{{name!r}: 'continuous'}} if it is none",
            LabelKindWarning,
            "label_kind",
        )
    if kind == "circular" and one_column and series.values.dtype.kind in "fiu":
        in_degrees = unit in _DEGREES or (
            unit not in _RADIANS and spans_degrees(series.values.astype(np.float64))
        )
        if in_degrees:
            if unit not in _DEGREES:
                warn(
                    f"{origin}: label {name!r} spans more than two turns in radians and at most "
                    "two in degrees, and was converted from degrees to radians",
                    LabelKindWarning,
                )
            series = replace(series, values=np.deg2rad(series.values.astype(np.float64)))
        series = replace(series, info=replace(series.info, unit="rad"))
    return replace(series, info=replace(series.info, kind=kind))


def _span(series: Series) -> float:
    """Difference between the largest and the smallest value; 0 if all are missing."""
    known = series.values[np.isfinite(series.values)]
    return float(np.ptp(known)) if len(known) else 0.0
