"""Advice after a fit whose verdict on a label is not yes: the next thing to try."""

from __future__ import annotations

import numpy as np

from xcebra.data.recording import Recording
from xcebra.report.run_settings import Source
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Widest bin, in seconds, that is advised. The widest bins that were tried on real recordings
# (docs/real_recordings.md); in wider ones, an animal passes through several places.
_WIDEST_BIN = 0.2
# Bins shorter than half of this, in seconds, are widened to it at once: from the shortest bins, two
# steps lead to the widest.
_MIDDLE_BIN = 0.1
# Standard deviation, in seconds, of the smoothing that is advised after bins were widened.
_SMOOTHING = 0.2
# Fewer units or minutes than this are mentioned as the likely reason. Not tuned.
_FEW_UNITS, _FEW_MINUTES = 10, 5.0


def next_step(name: str, fit: GoodnessOfFit, source: Source, recording: Recording) -> str:
    """Return one sentence about what to try next; empty if the verdict is yes.

    The advice follows one order, from the cheapest to the last, and what was done already is never
    advised again: wider bins, then smoothing, then epochs of behaviour, then more data.

    Parameters
    ----------
    name : str
        Name of the label, or ``"time"``.
    fit : GoodnessOfFit
    source : Source
        What the run has read, and how.
    recording : Recording
    """
    if fit.verdict == "yes":
        return ""
    if name == "time":
        return "the neurons share nothing that lasts beyond the labels: --time-dims 0 leaves it out"
    width = sample_width(recording)
    if width is not None and width < _WIDEST_BIN - 1e-9:
        wider = min(_WIDEST_BIN, max(_MIDDLE_BIN, 2 * width))
        return f"next, try wider bins, in which there are more spikes: --bin-size {wider:.3g}"
    if source.smooth is None and recording.time is not None:
        return f"next, try smoothing the activity: --smooth {_SMOOTHING:g}"
    if source.epochs is None and recording.time is not None:
        return (
            f"next, try only the time in which {name} matters, such as running or trials: --epochs "
            "NAME, or a condition such as --epochs 'speed > 5'; xcebra inspect lists what the file "
            "has"
        )
    return f"{_last(recording)}; a map of {name} would not be right, whatever the settings"


def sample_width(recording: Recording) -> float | None:
    """Seconds between samples; None if the times are not known."""
    if recording.time is None or recording.n_times < 2:
        return None
    return float(np.median(np.diff(recording.time)))


def _last(recording: Recording) -> str:
    """Say why there may be nothing left to try."""
    reasons = []
    if recording.n_neurons < _FEW_UNITS:
        reasons.append(f"only {recording.n_neurons} units")
    width = sample_width(recording)
    if width is not None and recording.n_times * width / 60 < _FEW_MINUTES:
        reasons.append(f"only {recording.n_times * width / 60:.1f} minutes")
    if reasons:
        return f"there are {' and '.join(reasons)}: record more, or pool sessions"
    return "bins, smoothing and epochs were tried: these neurons do not seem to carry it"
