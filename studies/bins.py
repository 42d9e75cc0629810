"""What does the bin size change? A table from the rows of the benchmark on real recordings.

Nothing is run: the rows in ``results/real`` are summarised by the main label of each recording and
by bin size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.study import RESULTS
from xcebra.reproduce.real.data import RECORDINGS

ROWS = RESULTS.parent / "real" / "rows.jsonl"
# Known cells where there are any, else neurons of other animals.
TRUTHS = {"head_direction.nwb": "known"}


def read_rows(path: Path = ROWS) -> list[dict[str, Any]]:
    """Fits with default settings whose map and test were judged."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] == "RealFit" and _is_default(row["item"])]


def _is_default(item: Mapping[str, Any]) -> bool:
    case = item["case"]
    info = RECORDINGS[case["file"]]
    return (
        case["label"] == info.main_label
        and case["truth"] == TRUTHS.get(case["file"], "foreign")
        and item["part"] == "whole"
        and item["time_dims"] is None
        and bool(item["test"])
        and bool(item["map"])
    )


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each recording and bin size."""
    lines = [
        "| recording, label | bin (ms) | verdict | R^2 of the label | auROC | "
        "called, of those that carry it | false among called | fits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for file, info in RECORDINGS.items():
        for bin_ms in info.bins_ms:
            cases = [(row["item"]["case"], row["found"]) for row in rows]
            group = [f for case, f in cases if (case["file"], case["bin_ms"]) == (file, bin_ms)]
            if group:
                lines.append(_line(f"{info.title}, {info.main_label}", bin_ms, group))
    notes = (
        "R^2 of the label: read by ridge regression from counts smoothed by 250 ms. Head "
        "direction: thalamic units against units of CA1. All others: tuned units against neurons "
        "of other animals; a unit may be tuned in large bins and not in small ones, so that the "
        "numbers of units differ. Mean over fits."
    )
    return "\n".join([*lines, "", notes])


def _line(title: str, bin_ms: float, group: Sequence[Mapping[str, Any]]) -> str:
    words = {True: "yes", None: "unclear", False: "no"}
    verdicts = [words[found["learned"]] for found in group]
    told = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    maps = [found["methods"]["default"] for found in group]
    calls = [scores["calls"] for scores in maps]
    total = {key: sum(call[key] for call in calls) for key in calls[0]}
    r2 = np.mean([found["decoding_r2"] for found in group])
    auroc = np.mean([scores["auroc"] for scores in maps])
    return (
        f"| {title} | {bin_ms:g} | {told} | {r2:.2f} | {auroc:.3f} | {total['called_true']} of "
        f"{total['n_true']} | {total['called_null']} of {total['called']} | {len(group)} |"
    )


def main() -> None:
    """Write the table that the documentation includes."""
    text = answer(read_rows()) + "\n"
    (RESULTS / "bins.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
