"""Tables and figures of a run, as files for papers, talks and other programs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import GroupBy, Groups, grouping_columns
from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.report.questions import TIME, asked_blocks, doubt, ordered_blocks
from xcebra.report.run_folder import Run
from xcebra.report.tables import first_neurons, unit_texts
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Neurons whose tuning is drawn for each label.
_N_TUNING = 6
FORMATS = (".png", ".svg")


def neuron_columns(
    amap: AttributionMap, fits: Mapping[str, GoodnessOfFit], explained: Any
) -> dict[str, list[str]]:
    """Return the columns of the table of neurons as text, by plain names.

    Parameters
    ----------
    amap : AttributionMap
    fits : mapping of str to GoodnessOfFit
        ``model.goodness_of_fit_``.
    explained : ndarray of shape (n_neurons,)
        Share of each neuron's variance that is explained.

    Returns
    -------
    dict of str to list of str
        In the order of the neurons of the map. Numbers that are not known are empty, and so is
        ``connected`` for a label that was not found, because no neuron is called connected to it.
    """
    columns: dict[str, list[str]] = {"neuron": list(amap.neuron_names)}

    def add(name: str, texts: list[str]) -> None:
        plain, n = name, 2
        while plain in columns:
            plain, n = f"{name}_{n}", n + 1
        columns[plain] = texts

    for name, values in amap.units.items():
        add(word_of(name), unit_texts(values))
    for name in ordered_blocks(amap):
        word, tested = word_of(name), amap.connections.get(name)
        add(f"score_{word}", _numbers(amap.block(name)))
        if tested is not None:
            called = [str(bool(value)) for value in amap.significant(name)]
            add(f"connected_{word}", [""] * len(called) if doubt(fits, name) else called)
            add(f"share_{word}", _numbers(tested.share))
            add(f"share_low_{word}", _numbers(tested.low))
            add(f"share_high_{word}", _numbers(tested.high))
            add(f"p_value_{word}", _numbers(tested.p_values))
        if (opinion := amap.opinions.get(name)) is not None:
            if opinion.encoding is not None:
                add(f"encoding_{word}", _numbers(opinion.encoding))
            if opinion.usual is not None:
                add(f"{word_of(str(opinion.usual_name))}_{word}", _numbers(opinion.usual))
    for opinion in list(amap.opinions.values())[:1]:  # the rate is the same for all labels
        add(f"rate_{word_of(opinion.rate_unit)}", _numbers(opinion.rate))
    add("variance_explained", _numbers(explained))
    return columns


def write_neurons(path: Path, run: Run, amap: AttributionMap) -> Path:
    """Write a CSV file with one row per neuron, sorted by the score for the first label."""
    columns = neuron_columns(amap, run.model.goodness_of_fit_, run.model.variance_explained_["all"])
    order = first_neurons(amap, ordered_blocks(amap)[0])
    rows = ([texts[i] for texts in columns.values()] for i in order)
    return write_csv(path, list(columns), rows)


def write_groups(path: Path, run: Run, amap: AttributionMap, groups: Groups) -> Path:
    """Write a CSV file with one row for each label that is asked about and each group."""
    fits = run.model.goodness_of_fit_
    column = word_of(groups.column.replace(", ", "_"))
    head = ["label", column if column != "label" else "group", "neurons", "connected"]
    head += ["share_connected", "share_low", "share_high", "mean_score"]
    rows = []
    for name in asked_blocks(amap):
        for score in groups.scores[name]:
            tested = [score.n_connected, score.share, score.low, score.high]
            if doubt(fits, name) is not None:
                tested = [None] * 4
            texts = ["" if value is None else f"{value:.6g}" for value in tested]
            mean = f"{score.mean_score:.6g}"
            rows.append([name, score.group, str(score.n_neurons), *texts, mean])
    return write_csv(path, head, rows)


def write_figures(
    folder: Path, run: Run, amap: AttributionMap, group_by: GroupBy | None
) -> tuple[list[Path], list[str]]:
    """Draw the figures of every label that is asked about, as PNG and SVG.

    Parameters
    ----------
    folder : Path
    run : Run
    amap : AttributionMap
    group_by : str, sequence of str or None
        Columns of the units that give colours and make groups.

    Returns
    -------
    paths : list of Path
    notes : list of str
        Why a figure was not drawn, or was drawn in grey.
    """
    import matplotlib.pyplot as plt

    from xcebra import plots

    config = run.model.config_
    kinds = {**(config.get("label_kind") or {}), **amap.made.get("label_kinds", {})}
    delays = config.get("label_delay") or {}
    # The recording of a run without a unit table; the map may know more of the neurons.
    columns = () if group_by is None else grouping_columns(amap.units, group_by)
    tuning_groups = columns if columns and set(columns) <= set(run.recording.units) else None
    paths: list[Path] = []
    notes: list[str] = []
    words = different_words(asked_blocks(amap))
    for name, word in words.items():
        reason = doubt(run.model.goodness_of_fit_, name)
        figures: dict[str, Any] = {
            "neurons": plots.neurons(amap, name, group_by=group_by, doubt=reason)
        }
        if group_by is not None:
            figures["groups"] = plots.groups(amap, group_by, name, doubt=reason)
        if reason is not None:
            notes.append(f"{reason}; its figures are grey, and no tuning is drawn")
        elif name != TIME:
            try:
                figures["tuning"] = plots.tuning(
                    run.recording,
                    name,
                    np.array(first_neurons(amap, name)[:_N_TUNING]),
                    kind=kinds.get(name),
                    delay=delays.get(name, 0),
                    group_by=tuning_groups,
                )
            except InputError as error:
                notes.append(f"no tuning is drawn: {error}")
        for kind, figure in figures.items():
            paths += [plots.save(figure, folder / f"{kind}_{word}{suffix}") for suffix in FORMATS]
            plt.close(np.ravel(figure)[0].figure)
    return paths, notes


def write_csv(path: Path, head: list[str], rows: Iterable[list[str]]) -> Path:
    """Write a CSV file and return its path."""
    with atomically(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
    return path


def _numbers(values: Any) -> list[str]:
    return [f"{value:z.6g}" if np.isfinite(value) else "" for value in np.asarray(values, float)]


def word_of(text: str) -> str:
    """Return a text with everything but letters, digits and underscores replaced."""
    return re.sub(r"\W", "_", text)


def different_words(names: list[str]) -> dict[str, str]:
    """Return a word for each name that can be part of a file's name; no two are the same."""
    words: dict[str, str] = {}
    for name in names:
        # Names of files have a limit of 255 bytes on most systems.
        word, n = word_of(name)[:60], 2
        while word.lower() in {other.lower() for other in words.values()}:
            word, n = f"{word_of(name)[:60]}_{n}", n + 1
        words[name] = word
    return words
