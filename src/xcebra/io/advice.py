"""Advice before a fit: a command to begin with, and what to expect of a recording."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass

import numpy as np

from xcebra.data.labels import MOST_CLASSES
from xcebra.io.assemble import neural_names
from xcebra.io.contents import Contents, Entry, Intervals, Series, Spikes, time_range
from xcebra.io.label_choice import could_be_label

# Width of bins, in seconds, that is suggested. In results/studies/bins.md, bins of 50 ms find all
# head-direction cells of a mouse, of which bins of 20 ms miss some, and on all three tracks they
# rank and find place cells better than bins of 200 ms do. In the open field, all widths find them.
_BIN = 0.05
# No wider bins are suggested for labels that are measured rarely: the widest that were tried there.
_WIDEST_BIN = 0.2
# Parts of names of labels that are more often controlled for than asked about.
_MOVEMENT = ("speed", "velocity")
# Names of columns that are coordinates of one position.
_COORDINATES = ("x", "y", "z", "pos_x", "pos_y", "pos_z", "x_pos", "y_pos")
# Labels that people ask about most, by parts of their names; earlier ones are suggested first.
_USUAL = (
    *("position", "pos", "heading", "head_dir", "hd", "angle", "direction", "choice", "stim"),
    *("speed", "velocity", "reward"),
)


@dataclass(frozen=True)
class Advice:
    """A command line to begin with.

    Parameters
    ----------
    command : str
        Of `xcebra fit`; empty if nothing in the source could be a label.
    reasons : tuple of str
        Why, one sentence each.
    """

    command: str
    reasons: tuple[str, ...] = ()


def advise(contents: Contents, file: str) -> Advice:
    """Suggest a command for a file, from what is in it.

    Parameters
    ----------
    contents : Contents
    file : str
        Name of the file on the command line.
    """
    try:
        names = neural_names(contents, None)
    except ValueError:
        return Advice("", ("say which entry is the activity with --neural NAME",))
    activity = contents.entries[names[0]]
    assert not isinstance(activity, Intervals)
    labels = _labels(contents, names, activity)
    if not labels:
        return Advice("", ("nothing in it could be a label: add behaviour, or learn from time",))
    text, *others = labels
    options, reasons = ["--label", text], [_size(contents, activity, text)]
    interval = _label_interval(contents, text)
    width = _bin_size(activity, interval)
    if width is not None:
        options += ["--bin-size", f"{width:.5g}"]
        milliseconds = f"bins of {1000 * width:.4g} ms"
        if _BIN < interval <= _WIDEST_BIN:
            reasons.append(f"{milliseconds}, because the label is measured every {interval:.3g} s")
        else:
            reasons.append(f"{milliseconds} suit heading and running; try half and twice that too")
    added = []
    for other in others[:2]:
        moves = any(word in other.lower() for word in _MOVEMENT)
        added.append(shlex.join(["--control" if moves else "--label", other]))
    moving = next((other for other in labels if other.startswith("position=")), None)
    if moving is not None:
        added.append(shlex.join(["--control", f"speed=speed({moving.partition('=')[2]})"]))
    if column := _grouping(activity):
        added.append(f"--group-by {column} with attribute, report and export")
    if added:
        reasons.append(f"you can add {', '.join(added)}")
    return Advice(shlex.join(["xcebra", "fit", file, *options, "--out", "run"]), tuple(reasons))


def _labels(contents: Contents, activity_names: list[str], activity: Entry) -> list[str]:
    """Return labels to suggest, as the command line takes them."""
    own = {*activity_names, *(name.rpartition("/")[0] for name in activity_names)}
    series = {
        name: entry
        for name, entry in contents.entries.items()
        if isinstance(entry, Series)
        and name not in own
        and could_be_label(entry, activity)
        and _varies(entry)
    }
    labels: list[str] = []
    compass = {n: e for n, e in series.items() if e.container == "CompassDirection"}
    if compass:
        # The heading takes all directions; tilt and roll of the head do not.
        widest = max(compass, key=lambda name: _circular_variance(compass[name]))
        labels.append(widest if widest.lower() in _USUAL else f"heading={widest}")
    coordinates = {
        n: e
        for n, e in series.items()
        if e.values.shape[1] == 1 and (e.container == "Position" or n.lower() in _COORDINATES)
    }
    if len(coordinates) > 1:
        # The animal moves in the plane of the two coordinates that vary most.
        deviation = {name: float(np.nanstd(_values(e))) for name, e in coordinates.items()}
        widest_two = sorted(deviation, key=lambda name: -deviation[name])[:2]
        labels.append(f"position={','.join(name for name in coordinates if name in widest_two)}")
    usual = [name for word in _USUAL for name in series if word in name.lower()]
    grouped = {*compass, *(coordinates if len(coordinates) > 1 else ())}
    labels += [name for name in dict.fromkeys([*usual, *series]) if name not in grouped]
    for name, entry in contents.entries.items():
        if isinstance(entry, Intervals):
            for column, values in entry.columns.items():
                if column != "tags" and 1 < len(np.unique(values)) <= MOST_CLASSES:
                    labels.append(f"{name}/{column}")
    return labels


def _grouping(activity: Series | Spikes) -> str:
    """Return a column of the unit table that makes groups; empty if there is none."""
    for column, values in activity.units.items():
        if values.dtype.kind == "U" and 1 < len(np.unique(values)) <= len(values) // 2:
            return column
    return ""


def _bin_size(activity: Entry, label_interval: float) -> float | None:
    """Return the width of bins to suggest; None if the samples are wide enough as they are."""
    # In bins that are shorter than the samples of a label, it would only be interpolated.
    width = min(max(_BIN, label_interval), _WIDEST_BIN)
    if isinstance(activity, Spikes):
        return width
    if isinstance(activity, Series) and activity.times is not None:
        # Counts stay whole numbers in bins that hold a whole number of samples: the nearest one,
        # and of two that are equally near, the smaller.
        interval = _interval(activity)
        n_samples = math.ceil(width / interval - 0.5 - 1e-6) if interval else 0
        counts = activity.values.dtype.kind in "iu"
        return n_samples * interval if counts and n_samples > 1 else None
    return None


def _label_interval(contents: Contents, label: str) -> float:
    """Return the seconds between samples of a label; 0 if it has no times."""
    entry = _first_entry(contents, label)
    return _interval(entry) if isinstance(entry, Series) else 0.0


def _interval(series: Series) -> float:
    """Return the seconds between samples, without rounding errors of times; 0 without times."""
    if series.times is None or len(series.times) < 2:
        return 0.0
    steps = np.diff(series.times)
    # Times in single precision are exact on average only; pauses are left out.
    return float(f"{steps[steps <= 1.5 * series.interval].mean():.5g}")


def _first_entry(contents: Contents, label: str) -> Entry | None:
    """Return the entry that a suggested label, or its first column, is."""
    if label in contents.entries:
        return contents.entries[label]
    return contents.entries.get(label.partition("=")[2].split(",")[0])


def _size(contents: Contents, activity: Series | Spikes, label: str) -> str:
    """Say how many units and minutes there are, and what to expect of few."""
    n = len(activity.trains) if isinstance(activity, Spikes) else activity.values.shape[1]
    start, stop = time_range(activity)
    has_times = isinstance(activity, Spikes) or activity.times is not None
    if not has_times:
        return f"{n} units, {int(stop - start):,} samples"
    first = _first_entry(contents, label)
    if isinstance(first, Series) and first.times is not None:
        start, stop = max(start, float(first.times[0])), min(stop, float(first.times[-1]))
    return f"{n} units, {(stop - start) / 60:.1f} minutes with the label"


def _values(entry: Series) -> np.ndarray:
    return np.asarray(entry.values[...])


def _circular_variance(entry: Series) -> float:
    """One less the length of the mean direction: 0 if all are equal, 1 if all are as frequent."""
    values = _values(entry)[:, 0].astype(np.float64)
    if "deg" in entry.info.unit.lower():
        values = np.deg2rad(values)
    return 1.0 - float(np.abs(np.nanmean(np.exp(1j * values))))


def _varies(entry: Series) -> bool:
    values = _values(entry)
    if values.dtype.kind in "fiub":
        return bool(np.nanmax(values) > np.nanmin(values)) if np.isfinite(values).any() else False
    return len(np.unique(values)) > 1
