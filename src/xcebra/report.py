"""One fitted model and its map as one plain page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xcebra import plots
from xcebra.basis import Mixture
from xcebra.diagnostics import GoodnessOfFit
from xcebra.estimator import XCEBRA
from xcebra.maps import AttributionMap
from xcebra.storage import atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.2rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884;
         font-variant-numeric: tabular-nums; vertical-align: top; }
figure { margin: 1rem 0; } img { max-width: 100%; background: white; border-radius: 4px; }
figcaption { font-size: .9rem; opacity: .8; } code { overflow-wrap: anywhere; }
"""


def write_report(
    path: str | os.PathLike[str],
    model: XCEBRA,
    amap: AttributionMap,
    *,
    title: str = "Which neurons carry this behaviour?",
    truth: Mapping[str, Any] | None = None,
    factors: Mapping[str, str] | None = None,
    scores: Mapping[str, float] | None = None,
) -> Path:
    """Write the page and return its path.

    Parameters
    ----------
    path : path
    model : XCEBRA
        Fitted.
    amap : AttributionMap
    title : str
    truth : mapping of str to bool array, optional
        Known wiring, by factor.
    factors : mapping of str to str, optional
        Which factor of the truth a block stands for.
    scores : mapping of str to float, optional
        Numbers to show beside the verdict, such as an auROC.
    """
    path = Path(path)
    factors = dict(factors or {})
    sections = [f"<h1>{html.escape(title)}</h1>", _verdict(model.goodness_of_fit_)]
    if scores:
        sections.append(_table(["measure", "value"], [[k, f"{v:.4f}"] for k, v in scores.items()]))
    if amap.made.get("basis") == "sparse" and model.mixture_:
        sections.append(_mixtures(model.mixture_, len(amap.neuron_names)))
    sections += [
        "<h2>Attribution map</h2>",
        _figure(
            plots.attribution_map(amap, truth=truth),
            f"Neurons by latents, {amap.made['aggregate']} over {amap.made['n_samples']} samples.",
        ),
    ]
    for name in amap.blocks:
        known = truth[factors[name]] if truth and name in factors else None
        bars = plots.block_scores(amap, name, truth=known)
        sections += [
            f"<h2>Neurons by their score for {html.escape(name)}</h2>",
            _figure(bars, f"One score per neuron for the block {name!r}."),
            _ranking(amap, name),
        ]
    sections += [
        "<h2>Training</h2>",
        _figure(
            plots.training_curves(model.history_),
            "Loss at each step; dashed: the loss of an embedding that tells nothing.",
        ),
        "<h2>Settings</h2>",
        _table(["setting", "value"], [[k, repr(v)] for k, v in model.config_.items()]),
        "<h2>How this map was made</h2>",
        _table(["", ""], [[k, repr(v)] for k, v in amap.made.items()]),
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _verdict(fits: Mapping[str, GoodnessOfFit]) -> str:
    words = {
        True: "learned",
        False: "not learned better than chance: do not read its map",
        None: "could not be judged, nothing was held out",
    }
    rows = [
        [
            name,
            words[fit.learned],
            f"{fit.loss:.3f}",
            f"{fit.chance:.3f}",
            "" if fit.p_value is None else f"{fit.p_value:.3f}",
        ]
        for name, fit in fits.items()
    ]
    head = ["objective", "verdict", "held-out loss", "chance", "p"]
    return "<h2>Is it in these neurons?</h2>" + _table(head, rows)


def _mixtures(mixtures: Mapping[str, Mixture], n_neurons: int) -> str:
    rows = []
    for name, mixture in mixtures.items():
        if mixture.trusted:
            verdict = "yes: without a fifth of the neurons the map would be the same"
        elif mixture.found:
            verdict = "uncertain: it rests on too few neurons"
        else:
            verdict = "no: too few neurons are unconnected to tell"
        seem = f"{mixture.n_unconnected} of {n_neurons}"
        rows.append([name, verdict, seem, f"{mixture.instability:.1%}"])
    head = ["label", "verdict", "neurons that seem unconnected", "change without a fifth"]
    return "<h2>Can it be told from correlated factors?</h2>" + _table(head, rows)


def _ranking(amap: AttributionMap, block: str, n: int = 10) -> str:
    order = np.argsort(-amap.block(block))[:n]
    z = amap.z_scores(block)
    rows = [[amap.neuron_names[i], f"{amap.block(block)[i]:.4f}", f"{z[i]:+.2f}"] for i in order]
    return _table([f"first {len(order)} neurons", "score", "z"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _figure(ax: Axes, caption: str) -> str:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure: Any = ax.figure
    figure.savefig(buffer, format="png", dpi=130)
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    words = html.escape(caption)
    return (
        f'<figure><img alt="{words}" src="data:image/png;base64,{data}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
