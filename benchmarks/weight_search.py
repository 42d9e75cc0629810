"""Time of fits with the automatic weight of the penalty, relative to a fixed weight.

The two run alternately.
``python benchmarks/weight_search.py`` adds a line to ``results/speed/weight_search.jsonl``.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from measuring import provenance, seconds

import xcebra

RESULTS = Path(__file__).parents[1] / "results" / "speed" / "weight_search.jsonl"
# Repetitions; the median of the ratios is reported.
_TURNS = 3


def main() -> None:
    """Time whole fits to recordings with 4, 6 and 9 factors."""
    row = provenance()
    for d in (4, 6, 9):
        rec = xcebra.datasets.synthetic(n_hidden=d - 2, n_observed=2, seed=0)

        def fit(weight: float | str, rec: xcebra.Recording = rec, d: int = d) -> None:
            model = xcebra.XCEBRA(2, d - 2, jacobian_weight=weight, random_state=0, progress=False)
            model.fit(rec.neural, rec.labels["z2"])

        pairs = [(seconds(lambda: fit("auto")), seconds(lambda: fit(0.05))) for _ in range(_TURNS)]
        ratio = statistics.median(auto / fixed for auto, fixed in pairs)
        row[f"d = {d}"] = {"seconds": [[round(s, 2) for s in pair] for pair in pairs]}
        row[f"d = {d}"]["ratio"] = round(ratio, 3)
        print(f"d = {d}: {ratio:.2f} times as long ({pairs})")
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
