"""The figure of the benchmark on real recordings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xcebra.reproduce.cell_figures import plain
from xcebra.reproduce.real.rows import implanted_power
from xcebra.reproduce.real.truth import STRENGTHS
from xcebra.reproduce.real.work import DEFAULT, ENCODING
from xcebra.reproduce.row_selection import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def real(rows: Sequence[Row]) -> dict[str, Figure]:
    """Power by strength of implanted responses, for our default and the encoding model."""
    import matplotlib.pyplot as plt

    chosen = [row for row in rows if row["item"].get("case", {}).get("truth") == "implanted"]
    if not chosen:
        return {}
    figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
    for method, colour in ((DEFAULT, "C0"), (ENCODING, "C2")):
        counts = [implanted_power(chosen, method, share) for share in STRENGTHS]
        curve = [(s, c / n) for s, (c, n) in zip(STRENGTHS, counts, strict=True) if n]
        if curve:
            shares, power = zip(*curve, strict=True)
            ax.plot([100 * s for s in shares], power, "o-", color=colour, label=method)
            called, n = implanted_power(chosen, method, 0.0)
            ax.axhline(called / n if n else 0.0, color=colour, lw=0.8, ls=":")
    ax.set_xscale("log")
    ticks = [100 * share for share in STRENGTHS]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    ax.set_xticks([], minor=True)
    ax.set(
        xlabel="variance that the label explains (%)",
        ylabel="share called significant",
        ylim=(-0.02, 1.02),
        title="Implanted responses (dotted: none implanted)",
    )
    ax.legend(frameon=False, fontsize="small", loc="best")
    plain(ax)
    return {"real": figure}
