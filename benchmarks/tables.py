"""Tables of docs/benchmarks.md from the last line of each file in ``results/speed``.

``python benchmarks/tables.py`` writes them between the comments ``<!-- table: NAME -->`` and
``<!-- end of table -->``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "results" / "speed"
NOT_MEASURED = "This has not been measured yet."
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
_PEERS = {
    "CEBRA's training": "training",
    "CEBRA's map (`jacobian-based`)": "cebra_map",
    "Captum's gradient": "captum_gradient",
}
_VARIANTS = {"mkl": "MKL", "onednn": "oneDNN", "bfloat16": "bfloat16", "mixed": "mixed"}
_WAYS = {"package": "written out", "autograd": "autograd", "compiled": "`torch.compile`"}


def last_row(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """The last line of a file of results. None if there is no such file.

    If some recordings were measured again alone, they replace those of earlier lines.
    """
    path = folder / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not rows:
        return None
    recordings = {key: value for row in rows for key, value in row.get("recordings", {}).items()}
    return {**rows[-1], **({"recordings": recordings} if recordings else {})}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def made_with(row: dict[str, Any]) -> str:
    """One sentence about the version and the machine of a row."""
    versions, machine = row["made_with"], row["machine"]
    commit = f" ({row['commit']})" if row.get("commit") else ""
    threads = machine["threads"]
    return (
        f"xcebra {versions['xcebra']}{commit}, CEBRA {versions['cebra']}, Captum "
        f"{versions['captum']}, torch {versions['torch']}; {machine['processor']}, "
        f"{threads} thread{'s' if threads > 1 else ''}; {row['made_at'][:10]}."
    )


def budget(row: dict[str, Any]) -> str:
    """Seconds of each phase and its share of matrix products, for all recordings."""
    recordings = {n: r for n, r in row["recordings"].items() if "left_out" not in r}
    phases = dict.fromkeys(phase for r in recordings.values() for phase in r["seconds"])
    rows = [
        [phase, *(_phase_cell(r, phase) for r in recordings.values())]
        for phase in phases
        if any(r["seconds"].get(phase, 0.0) >= 0.05 for r in recordings.values())
    ]
    rows.append(
        ["**all**"]
        + [
            f"**{r['total_s']:.1f} s** ({r['product_share']['total']:.0%})"
            for r in recordings.values()
        ]
    )
    rows.append(["peak of memory", *(f"{r['peak_mb']:,.0f} MB" for r in recordings.values())])
    rows.append(
        ["training steps x batch", *(f"{r['steps']} x {r['batch']:,}" for r in recordings.values())]
    )
    for name, key in _PEERS.items():
        rows.append([name, *(_peer_cell(r.get("peers"), key) for r in recordings.values())])
    rows.append(
        ["CEBRA's peak of memory", *(_peer_memory(r.get("peers")) for r in recordings.values())]
    )
    notes = [
        f"{name}: left out, because {r['left_out']}."
        for name, r in row["recordings"].items()
        if "left_out" in r
    ]
    notes += [
        f"{name}: {r['peers']['left_out']}."
        for name, r in recordings.items()
        if "left_out" in r.get("peers", {})
    ]
    if not row["numpy_products_counted"]:
        notes.append("Matrix products of numpy are not counted.")
    text = table(["", *recordings], rows)
    return "\n\n".join([text, " ".join([*notes, made_with(row)])])


def _phase_cell(recording: dict[str, Any], phase: str) -> str:
    if phase not in recording["seconds"]:
        return ""
    share = recording["product_share"].get(phase, 0.0)
    return f"{recording['seconds'][phase]:.1f} s ({share:.0%})"


def _peer_cell(peers: dict[str, Any] | None, key: str) -> str:
    if peers is None or "left_out" in peers:
        return "left out"
    return f"{peers[f'{key}_s']:,.0f} s ({peers[f'{key}_product_share']:.0%})"


def _peer_memory(peers: dict[str, Any] | None) -> str:
    if peers is None or "left_out" in peers:
        return "left out"
    return f"{peers['peak_mb']:,.0f} MB"


def neighbours(row: dict[str, Any]) -> str:
    """How much slower fits are beside other work."""
    head = ["", "alone", "beside a loop of Python", "beside matrix products"]
    head.append("two fits side by side, relative to one after the other")
    rows = []
    for size, versions in row["sizes"].items():
        for version, measured in versions.items():
            slower = (f"{measured['slower'][kind]:.2f}x" for kind in ("Python", "products"))
            alone = f"{measured['median_s']['alone']:.1f} s"
            ratio = f"{measured['side_by_side_ratio']:.2f}"
            rows.append([f"{size}, {version}", alone, *slower, ratio])
    return f"{table(head, rows)}\n\nMedians of {row['turns']} runs. {made_with(row)}"


def products(row: dict[str, Any]) -> str:
    """All products of a step, by library and precision, and ways to compute a whole pass."""
    head = ["rows", *_VARIANTS.values()]
    rows = [
        [
            f"{sums['rows']:,}",
            *(f"{sums['ms'][v]:.1f} ms ({sums['largest_error'][v]:.0e})" for v in _VARIANTS),
        ]
        for sums in row["sums"]
    ]
    steps = [
        [
            f"{step['rows']:,}",
            *(f"{step['ms'][way]:.1f} ms" if way in step["ms"] else "no" for way in _WAYS),
            "" if step["compiled"] is None else f"{step['compiled']['first_call_s']:.0f} s",
        ]
        for step in row["steps"]
    ]
    step_head = ["rows, with penalty", *_WAYS.values(), "first call, compiled"]
    return "\n\n".join([table(head, rows), table(step_head, steps), made_with(row)])


def core(row: dict[str, Any]) -> str:
    """Parts of training beside CEBRA."""
    steps = row["training_step"]
    parts = {
        "InfoNCE, forward and backward": row["infonce"],
        "label positives of one batch": row["label_positives"],
        "whole training step, hybrid, penalty on": steps["xcebra"],
        "the same with the paper's recipe": steps["paper"],
    }
    rows = [
        [name, f"{r['ours_s'] * 1e3:.1f} ms", f"{r['cebra_s'] * 1e3:,.0f} ms", f"{r['ratio']:.0f}x"]
        for name, r in parts.items()
    ]
    share = steps["xcebra"]["matrix_product_share"]
    return "\n\n".join(
        [
            table(["", "xcebra", "CEBRA", "ratio"], rows),
            f"Matrix products are {share:.0%} of our step. {made_with(row)}",
        ]
    )


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "budget": budget,
    "core": core,
    "neighbours": neighbours,
    "products": products,
}


def with_tables(page: str, folder: Path = RESULTS) -> str:
    """Return the text of a page with its tables made from the last rows."""

    def fill(match: re.Match[str]) -> str:
        row = last_row(match[2], folder)
        text = NOT_MEASURED if row is None else TABLES[match[2]](row)
        return f"{match[1]}{text}\n{match[4]}"

    return _MARKED.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
