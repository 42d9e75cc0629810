"""Where the map is right and where it breaks: defaults on data with known wiring.

Dataset seeds 0 to 2, none of them used to choose a default; 100,000 samples to fit, every tenth of
them to attribute. Finished rows are kept in ``results/maps.jsonl``; a run that was stopped goes on
with the missing ones. ``python benchmarks/maps.py [SUBJECT ...]`` runs some of the subjects below;
in place of subjects, ``draw`` makes the picture in ``docs/images`` from the committed rows and
``table`` prints the table of ``docs/attribution.md``.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xcebra
from xcebra.caveats import XcebraWarning
from xcebra.metrics import auroc

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "maps.jsonl"
PICTURE = HERE.parent / "docs" / "images" / "where_it_breaks.png"
SEEDS = (0, 1, 2)
EVERY = 10
D6: dict[str, Any] = {"n_hidden": 4, "n_observed": 2}
C7: dict[str, Any] = {**D6, "correlation": 0.7}

# By subject and level: the dataset, and what the estimator is told beside its dimensions.
CASES: dict[tuple[str, float], tuple[dict[str, Any], dict[str, Any]]] = {
    ("table 1, latents", 6): (D6, {}),
    ("table 1, latents", 9): ({"n_hidden": 7, "n_observed": 2}, {}),
    ("table 1, latents", 14): ({"n_hidden": 12, "n_observed": 2}, {}),
    ("table 2, latents", 6): ({"n_hidden": 2, "n_observed": 4, "observed": "z1"}, {}),
    **{("correlation", c): ({**D6, "correlation": c}, {}) for c in (0.7, 0.9, 0.95)},
    **{("unconnected", u): ({**C7, "connected": 1 - u}, {}) for u in (0.05, 0.1, 0.2, 0.3)},
    **{("noise", n): ({**C7, "noise": n}, {}) for n in (0.5, 1.0)},
    **{("extra latents", e): (C7, {"time_dims": 4 + int(e)}) for e in (-1, 1)},
    ("hidden factor, correlated", 0.7): (
        {"n_hidden": 2, "n_observed": 4, "observed": "z1", "correlation": 0.7},
        {},
    ),
    ("independent, unconnected", 0.1): ({**D6, "connected": 0.9}, {}),
}
MAPS = [
    (method, basis)
    for method in ("decoder-gradient", "inverted-gradient")
    for basis in ("raw", "label", "sparse")
]


def measure(data: dict[str, Any], told: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fit with defaults, and score the maps of z2 in every basis."""
    rec = xcebra.datasets.synthetic(n_steps=100_000, **data, seed=seed)
    dims = {"label_dims": data["n_observed"], "time_dims": data["n_hidden"], **told}
    model = xcebra.XCEBRA(**dims, random_state=seed, progress=False)
    name, label = next(iter(rec.labels.items()))
    started = time.perf_counter()
    model.fit(rec.neural, label)
    row: dict[str, Any] = {
        "fit_s": time.perf_counter() - started,
        "r2": model.score(rec.neural, label),
        "variance_explained": float(model.variance_explained_["all"].mean()),
        "left_over": model.left_over_,
    }
    mixture = model.mixture_["label"]
    row["mixture"] = {
        "n_unconnected": mixture.n_unconnected,
        "instability": mixture.instability,
        "trusted": mixture.trusted,
        "largest_weight": float(np.abs(mixture.weights).max()),
    }
    block = "label" if name == "z2" else "time"
    with warnings.catch_warnings(record=True) as told_by_default:
        warnings.simplefilter("always", XcebraWarning)
        model.attribute(rec.neural[::EVERY], block=block)
    row["warnings"] = sorted({each.category.__name__ for each in told_by_default})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        for method, basis in MAPS:
            amap = model.attribute(rec.neural[::EVERY], method=method, basis=basis)
            row[f"{method}, {basis}"] = [
                auroc(amap, rec.ground_truth, block=block, factor="z2", score=score)
                for score in ("entries", "block")
            ]
    return row


def source_digest() -> str:
    """A digest of the package's source: a version may see many changes before it is released."""
    state = hashlib.sha256()
    for path in sorted(Path(xcebra.__file__).parent.rglob("*.py")):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


def rows() -> Iterator[dict[str, Any]]:
    """What was measured so far."""
    if RESULTS.exists():
        yield from map(json.loads, RESULTS.read_text().splitlines())


def run(subjects: list[str]) -> None:
    """Measure what is missing."""
    made_with = {name: version(name) for name in ("xcebra", "torch", "numpy", "numba")}
    made_with["source"] = source_digest()
    first = ("table 1, latents", "table 2, latents", "correlation")
    work = [(key, seed) for seed in SEEDS for key in CASES if not subjects or key[0] in subjects]
    work.sort(key=lambda item: item[0][0] not in first)
    for (subject, level), seed in work:
        # Read again each time: another process may be at work on other subjects.
        done = [
            (row["subject"], row["level"], row["seed"])
            for row in rows()
            if row["made_with"] == made_with
        ]
        if (subject, level, seed) in done:
            continue
        found = {
            "subject": subject,
            "level": level,
            "seed": seed,
            **measure(*CASES[subject, level], seed),
            "threads": torch.get_num_threads(),
            "made_with": made_with,
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        numbers = {key: found[key] for key in ("decoder-gradient, sparse", "mixture")}
        print(subject, level, seed, numbers, flush=True)


def summary() -> dict[tuple[str, float], dict[str, Any]]:
    """Every case over its seeds, from the committed rows; the last of a case and seed counts."""
    latest = {(row["subject"], row["level"], row["seed"]): row for row in rows()}
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in latest.values():
        found.setdefault((row["subject"], row["level"]), []).append(row)
    table: dict[tuple[str, float], dict[str, Any]] = {}
    for key, group in found.items():
        table[key] = {
            f"{method}, {basis}": np.array([row[f"{method}, {basis}"] for row in group])
            for method, basis in MAPS
        }
        table[key]["warned"] = [warned(row) for row in group]
        table[key]["fit_s"] = [row["fit_s"] for row in group]
    return table


def warned(row: dict[str, Any]) -> bool:
    """Whether the default map came with a warning."""
    if "warnings" in row:
        return bool(row["warnings"])
    return not row["mixture"]["trusted"] and row["subject"] != "hidden factor, correlated"


def draw() -> None:
    """Curves of the studies that go step by step to where the map breaks."""
    import matplotlib.pyplot as plt

    table = summary()
    panels: dict[str, tuple[str, list[tuple[str, float, float]]]] = {
        "correlation": ("correlation of the factors", [("table 1, latents", 6, 0.0)]),
        "unconnected": ("share of neurons without z2", [("correlation", 0.7, 0.5)]),
        "noise": ("noise (s.d. of each neuron)", [("correlation", 0.7, 0.0)]),
        "extra latents": ("latents too many or too few", [("correlation", 0.7, 0.0)]),
    }
    lines = {
        "decoder-gradient, sparse": ("C0", "decoder gradient, sparse basis"),
        "inverted-gradient, sparse": ("C1", "inverted gradient, sparse basis"),
        "decoder-gradient, label": ("0.6", "decoder gradient, label basis"),
    }
    figure, all_axes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True, layout="constrained")
    for ax, (subject, (title, shared)) in zip(all_axes, panels.items(), strict=True):
        cases = {level: (subject, level) for name, level in table if name == subject}
        cases |= {at: (name, level) for name, level, at in shared if (name, level) in table}
        for key, (colour, name) in lines.items():
            for level, case in cases.items():
                told = np.array(table[case]["warned"]) & ("sparse" in key)
                for mark, chosen in (("o", ~told), ("x", told)):
                    y = table[case][key][chosen, 0]
                    ax.plot([level] * len(y), y, mark, color=colour, ms=5, alpha=0.7)
            levels = sorted(cases)
            means = [table[cases[level]][key][:, 0].mean() for level in levels]
            ax.plot(levels, means, color=colour, label=name)
        ax.set_xlabel(title)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    all_axes[0].set_ylabel("auROC of z2, entries")
    all_axes[0].set_ylim(0.3, 1.02)
    all_axes[0].plot([], [], "x", color="C0", label="warned about")
    all_axes[0].legend(frameon=False, fontsize="small", loc="lower left")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=140)
    print(f"drawn: {PICTURE}")


def table() -> None:
    """Print the table of the documentation, in Markdown."""
    columns = [
        ("decoder-gradient, sparse", "decoder, sparse (default)"),
        ("decoder-gradient, label", "decoder, label basis"),
        ("inverted-gradient, sparse", "inverted, sparse"),
        ("inverted-gradient, label", "inverted, label basis"),
    ]
    print("| | " + " | ".join(name for _, name in columns) + " | lowest, default | warned |")
    print("|---|" + "---|" * (len(columns) + 2))
    found = summary()
    for subject, level in CASES:
        if (subject, level) not in found:
            continue
        case = found[subject, level]
        cells = [
            f"{case[key][:, 0].mean():.3f} / {case[key][:, 1].mean():.3f}" for key, _ in columns
        ]
        lowest = case["decoder-gradient, sparse"].min(axis=0)
        cells.append(f"{lowest[0]:.3f} / {lowest[1]:.3f}")
        cells.append(f"{sum(case['warned'])} of {len(case['warned'])}")
        print(f"| {subject} {level:g} | " + " | ".join(cells) + " |")


def main() -> None:
    """Run what is missing, or ``draw`` or print the ``table`` of what was run."""
    actions = {"draw": draw, "table": table}
    if len(sys.argv) == 2 and sys.argv[1] in actions:
        actions[sys.argv[1]]()
    else:
        run(sys.argv[1:])


if __name__ == "__main__":
    main()
