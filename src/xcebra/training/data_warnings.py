"""What in a recording would make its map mislead, said before the fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from xcebra.caveats import OversampledWarning, RedundantLabelWarning, warn
from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.significance import share_told

_TOLD = 0.9
_LEAST_CHANGES = 0.5
_MOST_LOOKED_AT = 10_000
_LEAST_TOLD_FROM = 200


def warn_of_data(recording: Recording, epochs: Epochs, labels: Sequence[Label]) -> None:
    """Give every warning that the data speaks for."""
    _warn_repeats(recording, epochs)
    for one, other in itertools.permutations(labels, 2):
        _warn_redundant(one, other, epochs)


def _warn_repeats(recording: Recording, epochs: Epochs) -> None:
    times = evenly_spaced(epochs.indices(), _MOST_LOOKED_AT)
    times = times[times + 1 < epochs.stop_of(times)]
    if len(times) == 0:
        return
    same = (recording.rows(times) == recording.rows(times + 1)).all(axis=1).mean()
    if same > 1 - _LEAST_CHANGES:
        every = f"about every {1 / (1 - same):.0f} samples" if same < 1 else "hardly ever"
        warn(
            f"{same:.0%} of all samples are the same as the one before: the activity changes "
            f"{every}, so that pairs in time tell nothing; use wider bins, or every "
            f"{max(2, round(1 / max(1 - same, 1e-3)))}th sample",
            OversampledWarning,
        )


def _warn_redundant(label: Label, source: Label, epochs: Epochs) -> None:
    times = evenly_spaced(epochs.indices(), _MOST_LOOKED_AT)
    times = times[label.valid[times] & source.valid[times]]
    if len(times) < _LEAST_TOLD_FROM:
        return
    told = share_told(label.points[times], source.points[times])
    if told > _TOLD:
        warn(
            f"label {label.name!r} can be told from {source.name!r} ({told:.0%} of its variance): "
            f"which of the two a neuron carries cannot be known; leave {label.name!r} out, or join "
            "them in one label of several columns",
            RedundantLabelWarning,
        )
