"""The numbers published by Schneider, Gonzalez Laiz, Filippova, Frey and Mathis, AISTATS 2025.

auROC is in per cent, with the ends of its 95 % bootstrap interval. The values are those of the
tables in ``paper.tex``.
"""

from __future__ import annotations

from typing import NamedTuple


class Value(NamedTuple):
    """A mean and its interval, in per cent."""

    mean: float
    low: float
    high: float


TRAININGS = ("supervised", "supervised contrastive", "hybrid contrastive")
METHODS = (
    "feature-ablation",
    "shap-shuffled",
    "shap-zeros",
    "integrated-gradients",
    "gradient",
    "inverted-gradient",
)


def _row(*numbers: float) -> list[Value]:
    return [Value(*numbers[start : start + 3]) for start in range(0, len(numbers), 3)]


_COLUMNS = [(training, penalty) for training in TRAININGS for penalty in (False, True)]
_TABLE_1 = {
    "feature-ablation": _row(
        *(83.1, 81.3, 84.8, 88.5, 87.0, 90.0, 84.0, 82.1, 85.6),
        *(84.7, 82.8, 86.5, 82.9, 81.3, 84.5, 85.2, 83.4, 86.9),
    ),
    "shap-shuffled": _row(
        *(82.0, 80.3, 83.7, 89.2, 87.6, 90.8, 83.3, 81.4, 84.9),
        *(84.6, 82.6, 86.6, 81.6, 80.1, 83.2, 85.1, 83.0, 87.1),
    ),
    "shap-zeros": _row(
        *(81.0, 79.3, 82.8, 84.9, 83.1, 86.8, 82.0, 80.2, 83.7),
        *(82.4, 80.4, 84.3, 81.6, 79.9, 83.4, 83.2, 81.2, 85.0),
    ),
    "integrated-gradients": _row(
        *(81.0, 79.2, 82.7, 84.9, 83.1, 86.6, 81.9, 80.2, 83.7),
        *(82.3, 80.5, 84.3, 83.9, 82.1, 85.6, 86.9, 84.9, 88.8),
    ),
    "gradient": _row(
        *(79.2, 77.4, 81.0, 93.0, 91.5, 94.5, 80.6, 78.8, 82.4),
        *(86.7, 84.6, 89.0, 79.2, 77.5, 81.0, 88.0, 85.8, 90.1),
    ),
    "inverted-gradient": _row(
        *(76.9, 74.9, 78.7, 92.9, 91.5, 94.5, 77.5, 75.5, 79.4),
        *(86.1, 83.8, 88.3, 87.9, 86.3, 89.5, 98.2, 97.4, 98.9),
    ),
}

# By attribution method, training and whether there is a penalty.
TABLE_1: dict[tuple[str, str, bool], Value] = {
    (method, training, penalty): value
    for method, row in _TABLE_1.items()
    for (training, penalty), value in zip(_COLUMNS, row, strict=True)
}

_TABLE_2 = {
    "feature-ablation": _row(77.1, 73.8, 80.4, 86.7, 83.1, 89.9),
    "shap-shuffled": _row(74.4, 71.2, 77.5, 87.5, 84.0, 91.0),
    "shap-zeros": _row(75.8, 72.6, 78.7, 85.3, 82.0, 88.6),
    "integrated-gradients": _row(77.5, 75.4, 79.6, 86.8, 83.4, 89.9),
    "gradient": _row(69.3, 66.0, 72.4, 91.9, 88.3, 95.3),
    "inverted-gradient": _row(84.2, 81.2, 86.7, 99.2, 98.4, 99.8),
}

# By attribution method and whether there is a penalty; the factor attributed was not observed.
TABLE_2: dict[tuple[str, bool], Value] = {
    (method, penalty): value
    for method, row in _TABLE_2.items()
    for penalty, value in zip((False, True), row, strict=True)
}

_TABLE_3 = {
    "feature-ablation": _row(
        *(45.8, 44.3, 47.2, 96.2, 95.3, 97.0, 96.1, 95.3, 97.2),
        *(95.8, 90.7, 98.6, 86.5, 85.3, 87.5, 78.3, 70.5, 82.6),
    ),
    "shap-shuffled": _row(
        *(61.1, 59.1, 63.1, 94.6, 90.4, 97.2, 99.5, 99.2, 99.8),
        *(100.0, 100.0, 100.0, 99.2, 99.0, 99.4, 99.2, 98.9, 99.6),
    ),
    "shap-zeros": _row(
        *(46.3, 44.9, 47.7, 62.8, 58.4, 69.0, 88.0, 86.3, 89.7),
        *(97.7, 97.2, 98.1, 83.5, 82.3, 84.9, 85.8, 82.5, 88.6),
    ),
    "integrated-gradients": _row(
        *(45.7, 44.5, 47.1, 62.2, 58.1, 68.6, 86.4, 84.4, 88.1),
        *(96.3, 95.6, 96.7, 81.5, 80.0, 83.3, 84.7, 82.0, 87.6),
    ),
    "gradient": _row(
        *(63.7, 61.8, 65.6, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
        *(100.0, 99.9, 100.0, 100.0, 99.9, 100.0, 99.0, 97.1, 100.0),
    ),
    "inverted-gradient": _row(
        *(68.4, 66.6, 70.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0),
        *(100.0, 100.0, 100.0, 100.0, 99.9, 100.0, 99.9, 99.8, 100.0),
    ),
}

# Position in simulated cells, by attribution method, training and whether there is a penalty.
TABLE_3: dict[tuple[str, str, bool], Value] = {
    (method, training, penalty): value
    for method, row in _TABLE_3.items()
    for (training, penalty), value in zip(_COLUMNS, row, strict=True)
}

# Seconds of a training on an A5000, by training and whether there is a penalty.
FIT_SECONDS = dict(zip(_COLUMNS, (142, 307, 458, 614, 657, 996), strict=True))

_MAP_SECONDS = {
    "feature-ablation": (124.9, 125.5, 279.0, 213.1, 757.4, 659.8),
    "shap-shuffled": (6.7, 7.0, 17.8, 15.6, 38.6, 39.3),
    "shap-zeros": (3.6, 5.1, 9.2, 8.0, 34.9, 31.5),
    "integrated-gradients": (19.2, 19.6, 67.1, 65.8, 212.3, 199.5),
    "gradient": (2.9, 2.9, 9.0, 7.9, 23.2, 26.9),
    "inverted-gradient": (3.7, 3.7, 10.8, 9.6, 29.6, 32.5),
}

# Seconds of a map of 20,000 samples on an A5000.
MAP_SECONDS: dict[tuple[str, str, bool], float] = {
    (method, training, penalty): seconds
    for method, row in _MAP_SECONDS.items()
    for (training, penalty), seconds in zip(_COLUMNS, row, strict=True)
}
# Outputs of each training on simulated cells.
WIDTHS = {"supervised": 2, "supervised contrastive": 4, "hybrid contrastive": 14}

# Sum of squares and degrees of freedom of the paper's analysis of variance, and its F.
ANOVA: dict[tuple[str, ...], tuple[float, int, float]] = {
    ("method",): (807.50, 5, 6.14),
    ("latents",): (3286.82, 5, 24.98),
    ("training",): (1505.46, 2, 28.60),
    ("penalty",): (15722.40, 1, 597.37),
    ("method", "latents"): (456.86, 25, 0.69),
    ("method", "training"): (8747.26, 10, 33.24),
    ("latents", "training"): (270.05, 10, 1.03),
    ("method", "penalty"): (6661.36, 5, 50.62),
    ("latents", "penalty"): (2647.68, 5, 20.12),
    ("training", "penalty"): (2813.94, 2, 53.46),
    ("method", "latents", "training"): (463.75, 50, 0.35),
    ("method", "latents", "penalty"): (672.62, 25, 1.02),
    ("method", "training", "penalty"): (177.68, 10, 0.68),
    ("latents", "training", "penalty"): (237.40, 10, 0.90),
    ("method", "latents", "training", "penalty"): (932.86, 50, 0.71),
    ("residual",): (50059.50, 1902, float("nan")),
}

# What the dimensionality figure finds: latents at the peak of consistency.
PEAKS = {
    "time contrastive": "5 to 6",
    "supervised contrastive": "3",
    "hybrid contrastive": "2 to 3 each",
}
