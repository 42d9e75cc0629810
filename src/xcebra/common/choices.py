"""The values that string arguments can take, as types and as tuples."""

from __future__ import annotations

from typing import Literal, get_args

Method = Literal[
    "crossed-gradient",
    "decoder-gradient",
    "inverted-gradient",
    "gradient",
    "integrated-gradients",
    "shap-zeros",
    "shap-shuffled",
    "feature-ablation",
]
Basis = Literal["raw", "label", "sparse"]
Aggregate = Literal["mean", "max", "sum", "median"]
Units = Literal["standardised", "raw"]
RecipeName = Literal["xcebra", "paper"]
ObjectiveName = Literal["contrastive", "regression"]
Distance = Literal["euclidean", "cosine"]
TimeOn = Literal["all", "block"]
TimeBlock = Literal["own", "shared"]
SessionWeight = Literal["equal", "samples"]
LabelKind = Literal["continuous", "discrete", "circular"]
Experiment = Literal[
    "table1",
    "table2",
    "latents",
    "dimensions",
    "statistics",
    "paper-recipe",
    "hard",
    "table3",
    "noise",
    "cell-types",
    "timing",
    "grid-cells",
    "real",
]

# The default method. It needs the decoders of the estimator, so it is not available for a module
# without an estimator.
CROSSED: Method = "crossed-gradient"

METHODS: tuple[Method, ...] = get_args(Method)
BASES: tuple[Basis, ...] = get_args(Basis)
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
UNITS: tuple[Units, ...] = get_args(Units)
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
DISTANCES: tuple[Distance, ...] = get_args(Distance)
TIME_ON: tuple[TimeOn, ...] = get_args(TimeOn)
TIME_BLOCKS: tuple[TimeBlock, ...] = get_args(TimeBlock)
SESSION_WEIGHTS: tuple[SessionWeight, ...] = get_args(SessionWeight)
LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)
