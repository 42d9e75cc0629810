"""Tuning curves and rate maps in the page, small enough for many neurons."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.caveats import XcebraWarning
from xcebra.common.errors import InputError
from xcebra.data.recording import Recording
from xcebra.plots.curves import Tuning, label_tuning
from xcebra.report.questions import TIME, ordered_blocks

# Up to this number of neurons, the page has the tuning of all of them; beyond it, of those that
# come first for each label. Larger values make the page larger.
_ALL_UP_TO, _FIRST = 200, 60
_DIGITS = 5
# The byte that stands for a bin that was hardly visited.
_BLANK = 255


def tuning_numbers(
    amap: AttributionMap,
    recording: Recording,
    kinds: Mapping[str, str],
    delays: Mapping[str, int],
) -> dict[str, Any]:
    """Return the tuning of neurons for each label of the map.

    Parameters
    ----------
    amap : AttributionMap
    recording : Recording
        The recording that the map was made from.
    kinds : mapping of str to str
        Kind of each label.
    delays : mapping of str to int
        Delay of each label in samples.

    Returns
    -------
    dict
        Plain values that JSON can hold: ``"neurons"``, the positions of the neurons, and
        ``"labels"``, by name. Labels that have no tuning curve are left out.
    """
    names = [name for name in ordered_blocks(amap) if name in recording.labels and name != TIME]
    neurons = shown_neurons(amap, names)
    labels = {}
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", XcebraWarning)
                tuning = label_tuning(
                    recording, name, neurons, kind=kinds.get(name), delay=delays.get(name, 0)
                )
        except InputError:  # a label of three columns or more, or one that does not vary
            continue
        labels[name] = _packed(tuning)
    return {"neurons": neurons.tolist(), "labels": labels}


def shown_neurons(amap: AttributionMap, labels: list[str]) -> NDArray[np.int64]:
    """Return the positions of the neurons whose tuning the page has, in ascending order."""
    n = len(amap.neuron_names)
    if n <= _ALL_UP_TO:
        return np.arange(n)
    first = [np.argsort(-amap.block(name), kind="stable")[:_FIRST] for name in labels]
    return np.unique(np.concatenate(first)) if first else np.arange(_FIRST)


def _packed(tuning: Tuning) -> dict[str, Any]:
    """Return one label's tuning with means and errors as bytes between two ends per neuron."""
    n = len(tuning.neurons)
    means = tuning.means.reshape(n, -1)
    errors = np.zeros_like(means) if tuning.errors is None else tuning.errors.reshape(n, -1)
    errors = np.nan_to_num(errors)
    low = np.minimum(np.nanmin(means, axis=1), 0.0)
    high = np.nanmax(means + errors, axis=1)
    span = np.where(high > low, high - low, 1.0)[:, None]
    return {
        "shape": tuning.shape,
        "titles": list(tuning.titles),
        "rate": tuning.rate_title,
        "edges": [[float(f"{v:.{_DIGITS}g}") for v in edges] for edges in tuning.edges],
        "classes": list(tuning.classes),
        "low": [float(f"{v:.{_DIGITS}g}") for v in low],
        "high": [float(f"{v:.{_DIGITS}g}") for v in high],
        "means": _bytes((means - low[:, None]) / span),
        "errors": None if tuning.errors is None else _bytes(errors / span),
    }


def _bytes(shares: NDArray[np.float64]) -> str:
    scaled = np.round(254 * np.clip(np.nan_to_num(shares), 0.0, 1.0))
    bytes_ = np.where(np.isnan(shares), _BLANK, scaled).astype(np.uint8)
    return base64.b64encode(bytes_.tobytes()).decode()
