"""Labels: continuous, circular or discrete, with missing samples and a delay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.caveats import LabelKindWarning, MissingLabelWarning, warn
from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs

# Labels with whole numbers are taken as discrete if they have at most this many different values.
# Larger values take more coarsely measured quantities as classes; not tuned. The guess is always
# reported by a warning.
MOST_CLASSES = 20
# Floats with whole values cause a warning if each value occurs at least this often on average.
# Larger values give fewer warnings; not tuned.
_LEAST_REPEATS = 10
# Share of a turn that an angle must span to be recognised. An angle that crosses its border often
# spans nearly all of it; positions that jump back to the start of a track rarely do. Smaller values
# take more tracks for angles; not tuned.
_LEAST_SPAN = 0.95


@dataclass(frozen=True, eq=False)
class Label:
    """One label as points in a space in which similar values are close to each other.

    Parameters
    ----------
    name : str
    kind : {"continuous", "discrete", "circular"}
    points : ndarray of shape (n_times, n_columns)
        The values of a continuous label; cosine and sine of a circular one; for a discrete one, one
        column per class that is 1 in samples of that class and 0 elsewhere.
    valid : ndarray of shape (n_times,)
        False where the label is missing.
    classes : tuple
        Values of a discrete label, in the order of its columns.
    """

    name: str
    kind: str
    points: NDArray[np.float64]
    valid: NDArray[np.bool_]
    classes: tuple[Any, ...] = ()

    @property
    def width(self) -> int:
        """Number of latents that an embedding needs for the label.

        This is the number of columns for a continuous label, 2 for a circular one, and the number
        of classes less one, but at most 3, for a discrete one.
        """
        columns = self.points.shape[1]
        return min(columns - 1, 3) if self.kind == "discrete" else columns

    def codes(self) -> NDArray[np.int64]:
        """Index of the class of each sample of a discrete label, of shape (n_times,)."""
        return self.points.argmax(axis=1)


@dataclass(frozen=True)
class LabelSpec:
    """How the values of a label are to be interpreted.

    Parameters
    ----------
    kind : str or None
        If None, floats are continuous, and the kind of integers is guessed with a warning.
    delay : int
        Number of samples by which the label comes after the activity that it belongs to.
    classes : tuple or None
        Classes of a discrete label, if they are known already.
    """

    kind: str | None = None
    delay: int = 0
    classes: tuple[Any, ...] | None = None


def make_label(name: str, values: NDArray[Any], spec: LabelSpec) -> Label:
    """Encode the values of a label by their kind. The delay is not applied yet.

    Parameters
    ----------
    name : str
    values : ndarray of shape (n_times, n_columns)
        Values that were checked, as in ``Recording.labels``.
    spec : LabelSpec

    Returns
    -------
    Label

    Raises
    ------
    ValueError
        If the values do not fit the kind.
    """
    kind = spec.kind or _assumed_kind(name, values)
    if kind == "discrete":
        return _discrete(name, values, spec.classes)
    if values.dtype.kind in "US":
        raise InputError(
            f"label {name!r} holds text, got {str(values[0, 0])!r}; say "
            f"label_kind={{{name!r}: 'discrete'}} for class names, or convert it to numbers",
            ("label_kind",),
        )
    points = values.astype(np.float64)
    valid = np.asarray(~np.isnan(points).any(axis=1))
    if kind == "circular":
        points = _on_circle(f"label {name!r}", points, valid)
    return Label(name, kind, points, valid)


def check_varies(label: Label) -> None:
    """Raise an error if a label is constant or missing everywhere, so that no pairs exist."""
    known = label.points[label.valid]
    if len(known) == 0:
        raise InputError(f"label {label.name!r} is missing (NaN) everywhere; leave it out")
    ranges = np.ptp(known, axis=0)
    # An angle may vary although its cosine, or its sine, does not. One session need not have every
    # class that other sessions have.
    if not (ranges.all() if label.kind == "continuous" else ranges.any()):
        column = int(np.argmin(ranges))
        raise InputError(
            f"label {label.name!r} is constant (column {column} is always {known[0, column]:g}); "
            "a label must change to make pairs; leave that column out"
        )


def jumps_like_angle(values: NDArray[Any], turn: float = 2 * np.pi) -> bool:
    """Whether a label of one column seems to be an angle.

    This is so if its values span one turn, and no more, mostly change by small steps, and jump by
    nearly a whole turn at least three times.

    Parameters
    ----------
    values : ndarray of shape (n_times,) or (n_times, n_columns)
    turn : float
        A whole turn: 2 pi for radians, 360 for degrees.
    """
    if values.dtype.kind != "f" or values[:1].size != 1:
        return False
    known = values[np.isfinite(values)].ravel()
    if len(known) < 2 or not _LEAST_SPAN * turn <= np.ptp(known) <= turn * (1 + 1e-6):
        return False
    steps = np.abs(np.diff(known))
    return bool((steps > 0.75 * turn).sum() >= 3 and np.median(steps) < turn / 8)


def spans_degrees(values: NDArray[np.float64]) -> bool:
    """Whether an angle spans too much for radians, and no more than two turns in degrees."""
    known = values[np.isfinite(values)]
    return bool(len(known) and 4 * np.pi < np.ptp(known) <= 720.0)


def _assumed_kind(name: str, values: NDArray[Any]) -> str:
    """Guess the kind of a label from its values, with a warning where the guess may be wrong."""
    if values.dtype.kind in "bUS":
        return "discrete"
    if values.dtype.kind not in "iuf":
        return "continuous"
    known = values[np.isfinite(values).reshape(len(values), -1).all(axis=1)]
    if (known != np.round(known)).any():
        if jumps_like_angle(values):
            warn(
                f"label {name!r} jumps by a whole turn now and then and was taken as an angle in "
                f"radians; say label_kind={{{name!r}: 'continuous'}} if it is none",
                LabelKindWarning,
                "label_kind",
            )
            return "circular"
        return "continuous"
    n_classes = len(np.unique(known, axis=0))
    whole = values.dtype.kind in "iu"
    kind = "discrete" if whole and n_classes <= MOST_CLASSES else "continuous"
    # Floats with few different whole values may be classes: integers become floats if a sample is
    # missing.
    few = 2 <= n_classes <= min(MOST_CLASSES, len(known) // _LEAST_REPEATS)
    if whole or few:
        warn(
            f"label {name!r} holds whole numbers, {n_classes} different ones, and was taken as "
            f"{kind}; say label_kind={{{name!r}: 'continuous'}} or 'discrete' to be sure",
            LabelKindWarning,
            "label_kind",
        )
    return kind


def _discrete(name: str, values: NDArray[Any], known: tuple[Any, ...] | None) -> Label:
    """Encode a discrete label as one column per class.

    If the values have several columns, each different row is a class.
    """
    valid = np.ones(len(values), dtype=bool)
    if values.dtype.kind == "f":
        valid = np.asarray(~np.isnan(values).any(axis=1))
    elif values.dtype.kind in "US":
        valid = np.asarray((values != values.dtype.type()).all(axis=1))
    rows, codes = np.unique(values[valid], axis=0, return_inverse=True)
    classes = tuple(_plain_class(row) for row in rows)
    if known is not None:
        unseen = [c for c in classes if c not in known]
        if unseen:
            raise InputError(
                f"label {name!r} has classes {unseen} that the fit did not see; it knows "
                f"{list(known)}"
            )
        codes = np.array([known.index(c) for c in classes], dtype=np.int64)[codes.reshape(-1)]
        classes = known
    points = np.zeros((len(values), len(classes)))
    points[np.flatnonzero(valid), codes.reshape(-1)] = 1.0
    return Label(name, "discrete", points, valid, classes)


def _plain_class(row: NDArray[Any]) -> Any:
    """The values of a row as Python objects: one value, or a tuple of several."""
    return row[0].item() if len(row) == 1 else tuple(v.item() for v in row)


def _on_circle(where: str, points: NDArray[np.float64], valid: NDArray[np.bool_]) -> Any:
    """Cosine and sine of a circular label, of shape (n_times, 2); ``where`` names it in errors."""
    if points.shape[1] == 1:
        angle = points[:, 0]
        span = np.ptp(angle[valid]) if valid.any() else 0.0
        if span > 4 * np.pi:
            looks = "as degrees do; " if spans_degrees(angle[valid]) else ""
            raise InputError(
                f"{where} is circular, so it must be an angle in radians, but it spans {span:g}, "
                f"{looks}convert degrees with np.deg2rad",
                ("label_kind",),
            )
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    norms = np.linalg.norm(points[valid], axis=1)
    if points.shape[1] != 2 or not np.allclose(norms, 1.0, atol=1e-3):
        raise InputError(
            f"{where} is circular, so it must be one column of angles in radians, or two columns "
            f"with their cosine and sine; got {points.shape[1]} columns, norm up to "
            f"{norms.max(initial=0.0):g}; give several angles as several labels"
        )
    return points


def delayed(label: Label, delay: int, epochs: Epochs) -> Label:
    """Shift a label so that the activity at ``t`` is paired with the label at ``t + delay``.

    Samples for which ``t + delay`` lies outside the epoch count as missing.
    """
    if delay == 0:
        return label
    points = label.points.copy()
    valid = np.zeros_like(label.valid)
    for start, stop in epochs.pairs():
        n = stop - start - abs(delay)
        if n > 0:
            first = start + max(0, -delay)
            points[first : first + n] = label.points[first + delay : first + delay + n]
            valid[first : first + n] = label.valid[first + delay : first + delay + n]
    return replace(label, points=points, valid=valid)


def warn_missing(label: Label, epochs: Epochs) -> None:
    """Warn if samples of a label are missing, and say how many."""
    missing = sum(int((~label.valid[a:b]).sum()) for a, b in epochs.pairs())
    if missing:
        warn(
            f"label {label.name!r} is missing (NaN) at {missing} of {epochs.size} samples; these "
            "are left out of its pairs",
            MissingLabelWarning,
        )
