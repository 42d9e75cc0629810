"""Select the finished rows of a table or figure, and average over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.statistics import Interval, Observation, interval

Row = Mapping[str, Any]

TITLES = {
    "feature-ablation": "Feature ablation",
    "shap-shuffled": "Shapley, shuffled",
    "shap-zeros": "Shapley, zeros",
    "integrated-gradients": "Integrated gradients",
    "gradient": "Neuron gradient",
    "inverted-gradient": "Inverted gradient, our axes",
    "inverted-gradient, plain": "Inverted gradient, as in the paper",
    "decoder-gradient, label": "Decoder gradient, label basis",
    "decoder-gradient, sparse": "Decoder gradient, sparse basis (default)",
    "encoding model": "Encoding model",
}


def observations(rows: Iterable[Row]) -> list[Observation]:
    """Return one observation per fit and method of the paper, with the score in per cent."""
    return [
        {
            "method": method,
            "latents": n_latents(row),
            "training": row["item"]["training"]["kind"],
            "penalty": "penalty" if row["item"]["training"]["penalty"] else "none",
            "dataset": row["item"]["data"]["seed"],
            "score": 100 * row["found"]["maps"][method]["entries"],
        }
        for row in rows
        for method in paper.METHODS
    ]


def summed(rows: Sequence[Row], name: str, score: str) -> Interval | None:
    """Mean and interval of one map's score over rows, or None without rows."""
    rows = [row for row in rows if name in row["found"].get("maps", {})]
    if not rows:
        return None
    scores = [row["found"]["maps"][name][score] for row in rows]
    return interval(scores, [row["item"]["data"]["seed"] for row in rows])


def single_fits(rows: Sequence[Row]) -> list[Row]:
    """Rows of single fits that have maps."""
    return [row for row in rows if row["kind"] == "Fit" and "maps" in row["found"]]


def n_latents(row: Row) -> int:
    """Total width of the two factors of a row's recording."""
    data = row["item"]["data"]
    return int(data["n_hidden"] + data["n_observed"])


def of_training(rows: Sequence[Row], kind: str, penalty: bool) -> list[Row]:
    """Rows of one training, with or without penalty."""
    trained = [(row, row["item"]["training"]) for row in rows]
    return [
        row
        for row, training in trained
        if training["kind"] == kind and training["penalty"] == penalty
    ]


def with_batch(rows: Sequence[Row]) -> list[Row]:
    """Rows of recordings of 100,000 time steps whose batch size is set explicitly.

    Fits with the default batch size are left out, because the same fit also exists with that batch
    size set explicitly.
    """
    return [
        row
        for row in rows
        if row["item"]["training"]["batch_size"] is not None
        and row["item"]["data"]["n_steps"] == 100_000
    ]


def like(rows: Sequence[Row], *items: Any) -> list[Row]:
    """Rows that equal one of the items in everything but the seed of the recording."""
    return [row for item in items for row in rows if _is_like(row, item)]


def _is_like(row: Row, item: Any) -> bool:
    data = {**row["item"]["data"], "seed": item.data.seed}
    return row["kind"] == type(item).__name__ and {**row["item"], "data": data} == asdict(item)
