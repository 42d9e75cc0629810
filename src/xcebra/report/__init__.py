"""Report on a fitted model and its map: one HTML page that needs no other file and no network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import (
    GroupBy,
    group_columns,
    group_names,
    group_title,
    usual_column,
)
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.report import numerals, page
from xcebra.report.answer import answer_sections, verdicts
from xcebra.report.next_step import next_step
from xcebra.report.numbers import (
    embedding_numbers,
    map_numbers,
    map_over_time,
    training_numbers,
)
from xcebra.report.opinions import second_opinion
from xcebra.report.page import escaped
from xcebra.report.questions import asked_blocks, doubt
from xcebra.report.run_folder import Run
from xcebra.report.tables import neuron_table
from xcebra.report.tuning import tuning_numbers

# The page counts the neurons of which less than this share of the variance is explained, and says
# how to read them. Larger values exclude more neurons; not tuned.
_LITTLE = 0.05
# Parts of the script, in the order in which they are joined.
_SCRIPTS = ("base", "tuning", "answer", "map", "time", "embedding", "table", "start")
_TITLE = "Which neurons carry this behaviour?"


def report_run(
    path: str | os.PathLike[str],
    run: Run,
    amap: AttributionMap | None = None,
    *,
    title: str | None = None,
    group_by: GroupBy | None = None,
) -> Path:
    """Write the page of a run and return its path.

    Parameters
    ----------
    path : path
    run : Run
    amap : AttributionMap, optional
        By default, the default map is made.
    title : str, optional
        By default, a question with the names of the labels.
    group_by : str or sequence of str, optional
        Column of the units that groups the neurons, such as the area; see `write_report`.
    """
    if amap is None:
        amap = run.model.attribute(run.recording)
    source = {k: v for k, v in run.settings.as_table()["recording"].items() if k != "labels"}
    return write_report(
        path,
        run.model,
        amap,
        recording=run.recording,
        title=title or _title(amap),
        truth=run.recording.ground_truth,
        source=source,
        group_by=group_by,
        advice={
            name: next_step(name, fit, run.settings.recording, run.recording)
            for name, fit in run.model.goodness_of_fit_.items()
        },
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
    group_by: GroupBy | None = None,
    advice: Mapping[str, str] | None = None,
) -> Path:
    """Write the page and return its path.

    Parameters
    ----------
    path : path
    model : XCEBRA
        A fitted model.
    amap : AttributionMap
    recording : Recording, optional
        The recording that the map was made from. With it the page shows tuning curves, the map
        over time and the embedding.
    title : str
    truth : mapping of str to bool array of shape (n_neurons,), optional
        Known wiring: for each factor, whether each neuron is connected to it.
    scores : mapping of str to float, optional
        Numbers to show below the verdict, such as an auROC.
    source : mapping, optional
        Where the recording came from, shown with the settings.
    group_by : str or sequence of str, optional
        Column of ``amap.units`` that groups the neurons at first, or several columns, whose
        combinations are the groups. By default, it is the area or cell type, if there is such a
        column; the reader can choose another one.
    advice : mapping of str to str, optional
        What to try next, for each objective whose verdict is not yes.

    Returns
    -------
    Path
    """
    path = Path(path)
    columns, column = _group_columns(amap, group_by)
    fits = model.goodness_of_fit_
    tuning = _tuning(model, amap, recording)
    over_time = None if recording is None else map_over_time(model, amap, recording)
    numbers = {
        "map": map_numbers(amap, _explained(model), truth, fits, columns),
        "tuning": tuning,
        "group_by": column,
        "over_time": over_time,
        "embedding": None if recording is None else embedding_numbers(model, recording),
    }
    warnings = () if over_time is None else over_time.pop("warnings")
    if "selected" in amap.made:  # maps of version 0.4.0 and earlier did not store their warnings
        warnings = amap.warnings
    messages = list(dict.fromkeys(str(warning) for warning in warnings))
    shapes = {name: label["shape"] for name, label in tuning["labels"].items()}
    groups = [amap.by(name) for name in columns]
    sections = {
        "verdict": ("Verdict", _verdict(model, amap, messages, scores, advice)),
        **answer_sections(fits, amap, groups, column, shapes),
        "map": ("Map", _map(amap)),
        "time": ("Over time", _TIME if over_time else ""),
        "embedding": ("Embedding", _EMBEDDING if recording is not None else ""),
        "opinion": ("Second opinion", second_opinion(amap, fits)),
        "training": ("Training", _training(model)),
        "neurons": ("Neurons", _neurons(model, amap, truth)),
        "settings": ("Settings", _settings(model, amap, source)),
        "cite": ("How to cite", page.citation()),
    }
    sections = {name: section for name, section in sections.items() if section[1]}
    text = page.document(title, sections, _SCRIPTS, numbers=numbers, after=_PANEL)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _title(amap: AttributionMap) -> str:
    labels = [name for name in asked_blocks(amap) if name != "time"]
    return f"Which neurons carry {' and '.join(labels)}?" if labels else _TITLE


def _group_columns(
    amap: AttributionMap, group_by: GroupBy | None
) -> tuple[tuple[str, ...], str | None]:
    """Return the columns that the reader can group neurons by, and the one that is chosen first."""
    columns = group_columns(amap.units)
    if group_by is None:
        return columns, usual_column(amap.units)
    group_names(amap.units, group_by)  # raises an error if it makes no groups
    title = group_title(amap.units, group_by)
    return (columns if title in columns else (title, *columns)), title


def _tuning(model: XCEBRA, amap: AttributionMap, recording: Recording | None) -> dict[str, Any]:
    if recording is None:
        return {"neurons": [], "labels": {}}
    config = model.config_
    kinds = {**(config.get("label_kind") or {}), **amap.made.get("label_kinds", {})}
    return tuning_numbers(amap, recording, kinds, config.get("label_delay") or {})


def _verdict(
    model: XCEBRA,
    amap: AttributionMap,
    messages: list[str],
    scores: Mapping[str, float] | None,
    advice: Mapping[str, str] | None,
) -> str:
    explained = model.variance_explained_["all"]
    text = verdicts(model.goodness_of_fit_, amap, model.label_info_, advice) + page.notes(messages)
    deviance = ""
    if model.deviance_explained_ is not None:
        share = numerals.percent(float(model.deviance_explained_.mean()))
        deviance = f" ({share} of the deviance of their counts)"
    crossed, n_patterns = model.crossed_decoder_, 0
    if crossed is not None and amap.made.get("method") == "crossed-gradient":
        n_patterns = crossed.patterns.shape[1]
    predictors = "The embedding explains"
    if crossed is not None:
        predictors = "On held-out time, the labels and the other neurons explain"
    patterns = "pattern" if n_patterns == 1 else "patterns"
    accounted = f" The map accounts for {n_patterns} such {patterns}." if n_patterns else ""
    text += (
        '<details><summary>How much is explained, and what was chosen</summary><p class="soft">'
        f"{predictors} {numerals.percent(float(explained.mean()))} of the neurons' variance"
        f"{deviance}, on average. The largest shared pattern of activity that the embedding does "
        f"not hold has {model.left_over_:.1%} of the variance; above 3 %, a factor may lack a "
        f"latent.{accounted}</p>{_chosen(model)}</details>"
    )
    if scores:
        text += page.table(["measure", "value"], [[k, f"{v:.4f}"] for k, v in scores.items()])
    return text


def _chosen(model: XCEBRA) -> str:
    """Return one sentence about the settings that the fit chose from the data."""
    params, config = model.get_params(deep=False), model.config_
    if params["recipe"] == "paper" or model.crossed_decoder_ is None:
        return ""
    choices = []
    if params["time_dims"] is None and params["objective"] == "contrastive":
        n = config["time_dims"]
        choices.append(f"{n} time latent{'' if n == 1 else 's'}")
    if params["window"] is None:
        n = config.get("window", 1)
        choices.append(f"a window of {n} sample{'' if n == 1 else 's'}")
    return f'<p class="soft">Chosen from the data: {" and ".join(choices)}.</p>' if choices else ""


def _map(amap: AttributionMap) -> str:
    record = amap.made
    how = f"{record['method']}, {record['aggregate']} over {record['n_samples']:,} samples"
    return (
        '<p class="soft">Each row is a neuron. The columns are one score per block, then the value '
        f"for each latent ({escaped(how)}). Each block has its own colour scale. Point at a cell, "
        "or move with the arrow keys. Click on it, or press the space bar, to see the neuron; "
        "press Enter to sort the neurons by that column."
        '</p><div class="controls"><label>sort by <select id="map-order"></select></label>'
        '<span class="scale">0 <canvas id="map-scale"></canvas> largest of its block</span></div>'
        '<output class="readout" id="map-readout" aria-live="polite"></output>'
        '<figure><canvas id="map-canvas" tabindex="0" role="img" aria-describedby="map-readout" '
        f'aria-label="Attribution map of {len(amap.neuron_names)} neurons; the table of neurons '
        'below has the same numbers"></canvas></figure>'
    )


_PANEL = (
    '<aside id="neuron-panel" aria-labelledby="neuron-head" hidden><div class="controls">'
    '<h2 id="neuron-head" aria-live="polite"></h2><button id="neuron-close">Close</button></div>'
    '<div id="neuron-body"></div></aside>'
)

_TIME = (
    '<p class="soft">The score of every neuron over time. Rows are neurons in the order of the map.'
    '</p><div class="controls"><label>block <select id="time-block"></select></label></div>'
    '<figure><canvas id="time-canvas" role="img" aria-describedby="time-readout" '
    'aria-label="Scores over time, one row per neuron"></canvas></figure>'
    '<label>time <input type="range" id="time-slider" min="0" step="1"></label>'
    '<output class="readout" id="time-readout" aria-live="polite"></output>'
)

_EMBEDDING = (
    '<p class="soft">Each point is one sample. Drag the picture to rotate it, or use the arrow '
    "keys. If there are more than three latents, the three directions with the largest variance "
    "are shown.</p>"
    '<div class="controls"><label>show <select id="cloud-view"></select></label>'
    '<label>colour <select id="cloud-colour"></select></label>'
    '<span class="scale classes" id="cloud-legend"></span></div>'
    '<figure><canvas id="cloud-canvas" class="turn" tabindex="0" role="img" '
    'aria-label="The embedding in three dimensions"></canvas></figure>'
)


def _training(model: XCEBRA) -> str:
    weight = ""
    if model.config_.get("find_weight"):
        weight = (
            " The weight of the penalty was searched for during training; the result is "
            f"{model.config_['jacobian_weight']:.3g}."
        )
    return (
        '<p class="soft">Loss of each objective, in nats. The dashed line is chance, the loss of '
        f"an embedding that never changes.{weight}</p>"
        f"{page.curves(training_numbers(model.history_))}"
    )


def _explained(model: XCEBRA) -> dict[str, Any]:
    """Return the share of each neuron that is explained on held-out time, by measure."""
    shares = {"variance": model.variance_explained_["all"]}
    if model.deviance_explained_ is not None:
        shares["deviance"] = model.deviance_explained_
    return shares


def _neurons(model: XCEBRA, amap: AttributionMap, truth: Mapping[str, Any] | None) -> str:
    explained = _explained(model)
    low = int((explained["variance"] < _LITTLE).sum())
    if amap.connections:
        text = (
            "The variance that only a label explains is what it adds to all other labels and "
            "latents, as a share of the neuron's variance. p is the p-value for no connection of "
            "the neuron to the label, not corrected for the number of neurons."
        )
        advice = "rely on the test for them, not on their scores"
    else:
        text = (
            "z is the number of standard deviations by which a score is above the mean of all "
            "neurons. It ranks neurons; it is not a test."
        )
        advice = "do not read their scores"
    if low:
        text += (
            f" Less than {_LITTLE:.0%} of the variance is explained for {low} of "
            f"{len(amap.neuron_names)} neurons: {advice}."
        )
    if any(doubt(model.goodness_of_fit_, name) for name in amap.blocks):
        text += " Grey scores must not be read, because their label was not found in the activity."
    return (
        f'<p class="soft">{text} Click on a neuron to see its tuning.</p><div class="controls">'
        '<button id="download">Download as CSV</button></div>'
        + neuron_table(amap, model.goodness_of_fit_, explained, truth)
    )


def _settings(model: XCEBRA, amap: AttributionMap, source: Mapping[str, Any] | None) -> str:
    text = ""
    if amap.made.get("basis") == "sparse" and model.mixture_:
        text += page.mixtures(model.mixture_, len(amap.neuron_names))
    groups = {
        "Recording": source or {},
        "Model, as resolved": model.config_,
        "Map": amap.made,
        "Made with": made_with(),
    }
    return text + page.settings_tables(groups)
