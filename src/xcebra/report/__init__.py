"""One fitted model and its map as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.report import page
from xcebra.report.numbers import (
    embedding_numbers,
    map_numbers,
    map_over_time,
    training_numbers,
)
from xcebra.report.opinions import second_opinion
from xcebra.report.page import escaped
from xcebra.report.run_folder import Run

_LITTLE = 0.05  # of a neuron's variance: less is too little to attribute
_TITLE = "Which neurons carry this behaviour?"
_PAPER = (
    "Schneider, S., González Laiz, R., Filippova, A., Frey, M. and Mathis, M. W. (2025). "
    "Time-series attribution maps with regularized contrastive learning. AISTATS."
)


def report_run(
    path: str | os.PathLike[str],
    run: Run,
    amap: AttributionMap | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Write the page of a run; without a map, of the default one."""
    if amap is None:
        amap = run.model.attribute(run.recording)
    source = {k: v for k, v in run.settings.as_table()["recording"].items() if k != "labels"}
    return write_report(
        path,
        run.model,
        amap,
        recording=run.recording,
        title=title or _title(run),
        truth=run.recording.ground_truth,
        source=source,
    )


def write_report(
    path: str | os.PathLike[str],
    model: XCEBRA,
    amap: AttributionMap,
    *,
    recording: Recording | None = None,
    title: str = _TITLE,
    truth: Mapping[str, Any] | None = None,
    scores: Mapping[str, float] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page and return its path.

    Parameters
    ----------
    path : path
    model : XCEBRA
        Fitted.
    amap : AttributionMap
    recording : Recording, optional
        What the map is of; with it the page shows the map over time and the embedding.
    title : str
    truth : mapping of str to bool array, optional
        Known wiring, by factor.
    scores : mapping of str to float, optional
        Numbers to show beside the verdict, such as an auROC.
    source : mapping, optional
        Where the recording came from.
    """
    path = Path(path)
    over_time = None if recording is None else map_over_time(model, amap, recording)
    numbers = {
        "map": map_numbers(amap, _explained(model), truth),
        "over_time": over_time,
        "embedding": None if recording is None else embedding_numbers(model, recording),
    }
    warnings = () if over_time is None else over_time.pop("warnings")
    if "selected" in amap.made:  # maps of version 0.4.0 and earlier have not kept their warnings
        warnings = amap.warnings
    told = list(dict.fromkeys(str(warning) for warning in warnings))
    sections = {
        "verdict": ("Verdict", _verdict(model, amap, told, scores)),
        "map": ("Map", _map(amap)),
        "time": ("Over time", _TIME if over_time else ""),
        "embedding": ("Embedding", _EMBEDDING if recording is not None else ""),
        "opinion": ("Second opinion", second_opinion(amap)),
        "training": ("Training", _training(model)),
        "neurons": ("Neurons", _neurons(model, amap, truth)),
        "settings": ("Settings", _settings(model, amap, source)),
        "cite": ("How to cite", _cite()),
    }
    shown = {name: section for name, section in sections.items() if section[1]}
    here = files("xcebra.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    # Inside a script element only "<" could end it.
    data = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
    links = "".join(f'<li><a href="#{name}">{head}</a></li>' for name, (head, _) in shown.items())
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{head}</h2>'
        f"{content}</section>"
        for name, (head, content) in shown.items()
    )
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{style}</style></head><body>"
        f'<header><h1>{escaped(title)}</h1><nav aria-label="On this page"><ul>{links}</ul></nav>'
        f"</header><main>{body}</main>"
        f'<script type="application/json" id="numbers">{data}</script>'
        f"<script>{script}</script></body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _title(run: Run) -> str:
    labels = run.settings.recording.labels
    return f"Which neurons carry {' and '.join(labels)}?" if labels else _TITLE


def _verdict(
    model: XCEBRA, amap: AttributionMap, told: list[str], scores: Mapping[str, float] | None
) -> str:
    explained = model.variance_explained_["all"]
    low = int((explained < _LITTLE).sum())
    found = page.verdicts(model.goodness_of_fit_, amap) + page.notes(told)
    unread = f"; of {low} of them less than {_LITTLE:.0%}: do not read their scores"
    deviance = ""
    if model.deviance_explained_ is not None:
        deviance = f" ({model.deviance_explained_.mean():.0%} of the deviance of their counts)"
    crossed, n_patterns = model.crossed_decoder_, 0
    if crossed is not None and amap.made.get("method") == "crossed-gradient":
        n_patterns = crossed.patterns.shape[1]
    by_what = "The embedding explains"
    if crossed is not None:
        by_what = "On held-out time, the labels and the other neurons explain"
    accounted = f" The map accounts for {n_patterns} such." if n_patterns else ""
    found += (
        f'<p class="soft">{by_what} '
        f"{explained.mean():.0%} of the neurons' variance{deviance}, on average"
        f"{unread if low else ''}. The largest shared pattern of activity that the embedding does "
        f"not hold has {model.left_over_:.1%} of the variance; above 3 %, a factor may lack a "
        f"latent.{accounted}</p>{_chosen(model)}"
    )
    if scores:
        found += page.table(["measure", "value"], [[k, f"{v:.4f}"] for k, v in scores.items()])
    return found


def _chosen(model: XCEBRA) -> str:
    """Settings that the fit chose from the data, in one sentence."""
    given, config = model.get_params(deep=False), model.config_
    if given["recipe"] == "paper" or model.crossed_decoder_ is None:
        return ""
    told = []
    if given["time_dims"] is None and given["objective"] == "contrastive":
        n = config["time_dims"]
        told.append(f"{n} time latent{'' if n == 1 else 's'}")
    if given["window"] is None:
        n = config.get("window", 1)
        told.append(f"a window of {n} sample{'' if n == 1 else 's'}")
    return f'<p class="soft">Chosen from the data: {" and ".join(told)}.</p>' if told else ""


def _map(amap: AttributionMap) -> str:
    made = amap.made
    how = f"{made['method']}, {made['aggregate']} over {made['n_samples']:,} samples"
    return (
        f'<p class="soft">Neurons down; one score per block, then each latent; {escaped(how)}.'
        " Each block has its own scale. Point at a cell, or move with the arrow keys; Enter sorts."
        '</p><div class="controls"><label>sort by <select id="map-order"></select></label>'
        '<span class="scale">0 <canvas id="map-scale"></canvas> most of its block</span></div>'
        '<output class="readout" id="map-readout" aria-live="polite"></output>'
        '<figure><canvas id="map-canvas" tabindex="0" role="img" aria-describedby="map-readout" '
        f'aria-label="Attribution map of {len(amap.neuron_names)} neurons; the table of neurons '
        'below has the same numbers"></canvas></figure>'
    )


_TIME = (
    '<p class="soft">Score of every neuron in the order above, from the first sample to the last.'
    '</p><div class="controls"><label>block <select id="time-block"></select></label></div>'
    '<figure><canvas id="time-canvas" role="img" aria-describedby="time-readout" '
    'aria-label="Scores over time, neurons down"></canvas></figure>'
    '<label>time <input type="range" id="time-slider" min="0" step="1"></label>'
    '<output class="readout" id="time-readout" aria-live="polite"></output>'
)

_EMBEDDING = (
    '<p class="soft">Each point is a moment. Drag to turn it, or use the arrow keys. Of more than '
    "three latents, the three directions with most variance.</p>"
    '<div class="controls"><label>show <select id="cloud-view"></select></label>'
    '<label>colour <select id="cloud-colour"></select></label>'
    '<span class="scale classes" id="cloud-legend"></span></div>'
    '<figure><canvas id="cloud-canvas" class="turn" tabindex="0" role="img" '
    'aria-label="The embedding in three dimensions"></canvas></figure>'
)


def _training(model: XCEBRA) -> str:
    found = ""
    if model.config_.get("find_weight"):
        found = (
            " The weight of the penalty was looked for while training, and found to be "
            f"{model.config_['jacobian_weight']:.3g}."
        )
    return (
        '<p class="soft">Loss of each objective, in nats; dashed: chance, the loss of an embedding '
        f"that never changes.{found}</p>{page.curves(training_numbers(model.history_))}"
    )


def _explained(model: XCEBRA) -> dict[str, Any]:
    """What is explained of every neuron, on held-out time, by measure."""
    found = {"variance": model.variance_explained_["all"]}
    if model.deviance_explained_ is not None:
        found["deviance"] = model.deviance_explained_
    return found


def _neurons(model: XCEBRA, amap: AttributionMap, truth: Mapping[str, Any] | None) -> str:
    tested = (
        " Variance that only a label explains: what it adds beyond all other labels and latents, "
        "as a share of the neuron's variance. p: of no connection to it, one neuron at a time."
        if amap.connections
        else ""
    )
    return (
        '<p class="soft">z: how many standard deviations a score lies above the mean of all '
        f"neurons. It ranks neurons; it is no test.{tested} A neuron of which little is explained "
        'has no score worth reading.</p><div class="controls">'
        '<button id="download">Download as CSV</button></div>'
        + page.ranking(amap, _explained(model), truth)
    )


def _settings(model: XCEBRA, amap: AttributionMap, source: Mapping[str, Any] | None) -> str:
    found = ""
    if amap.made.get("basis") == "sparse" and model.mixture_:
        found += page.mixtures(model.mixture_, len(amap.neuron_names))
    groups = {
        "Recording": source or {},
        "Model, as resolved": model.config_,
        "Map": amap.made,
        "Made with": made_with(),
    }
    for title, values in groups.items():
        if values:
            rows = [[name, _plain(value)] for name, value in values.items()]
            found += f"<details><summary>{title}</summary>{page.table(['', ''], rows)}</details>"
    return found


def _cite() -> str:
    return (
        f"<p>The method: {escaped(_PAPER)}</p>"
        f"<p>The software: xcebra, version {escaped(version('xcebra'))}.</p>"
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
