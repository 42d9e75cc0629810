"""Warnings, before the fit, about data that would make the map misleading."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from xcebra.caveats import OversampledWarning, RedundantLabelWarning, warn
from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.statistics.smooth_regression import share_predicted

# A label is redundant if another label predicts more than this share of its variance. Smaller
# values warn more often; not tuned.
_TOLD = 0.9
# A recording is oversampled if less than this share of the samples differs from the next one.
# Larger values warn more often; not tuned.
_LEAST_CHANGES = 0.5
# Largest number of samples to use. Larger values are more precise and take longer; not tuned.
_MOST_LOOKED_AT = 10_000
# Fewest samples, with both labels known, from which a label is predicted. With fewer, there is no
# warning; not tuned.
_LEAST_TOLD_FROM = 200


def warn_of_data(recording: Recording, epochs: Epochs, labels: Sequence[Label]) -> None:
    """Give all warnings about the activity and the labels."""
    _warn_repeats(recording, epochs)
    for label, source in itertools.permutations(labels, 2):
        _warn_redundant(label, source, epochs)


def _warn_repeats(recording: Recording, epochs: Epochs) -> None:
    """Warn if most samples are the same as the one before."""
    times = evenly_spaced(epochs.indices(), _MOST_LOOKED_AT)
    times = times[times + 1 < epochs.stop_of(times)]
    if len(times) == 0:
        return
    same = (recording.rows(times) == recording.rows(times + 1)).all(axis=1).mean()
    if same > 1 - _LEAST_CHANGES:
        every = f"about every {1 / (1 - same):.0f} samples" if same < 1 else "hardly ever"
        warn(
            f"{same:.0%} of all samples are the same as the one before: the activity changes "
            f"{every}, so that pairs in time have no information; use wider bins, or every "
            f"{max(2, round(1 / max(1 - same, 1e-3)))}th sample",
            OversampledWarning,
        )


def _warn_redundant(label: Label, source: Label, epochs: Epochs) -> None:
    """Warn if a label can be predicted from the label ``source``."""
    times = evenly_spaced(epochs.indices(), _MOST_LOOKED_AT)
    times = times[label.valid[times] & source.valid[times]]
    if len(times) < _LEAST_TOLD_FROM:
        return
    share = share_predicted(label.points[times], source.points[times])
    if share > _TOLD:
        warn(
            f"label {label.name!r} can be predicted from {source.name!r} ({share:.0%} of its "
            "variance), so that it is not known which of the two a neuron is connected to; leave "
            f"{label.name!r} out, or join them in one label of several columns",
            RedundantLabelWarning,
        )
