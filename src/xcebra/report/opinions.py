"""The second opinion in the page: the map of each label beside scores of the label alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.report import numerals
from xcebra.report.agreement import LARGE
from xcebra.report.page import escaped
from xcebra.report.questions import doubt
from xcebra.report.tables import first_neurons
from xcebra.statistics.second_opinion import SecondOpinion
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Neurons that are listed as disagreeing. A longer list would not be read, and the table below it
# has all neurons; not tuned.
_MOST_LISTED = 8
_USUAL_NAMES = {
    "mean_vector_length": "mean vector length",
    "spatial_information": "spatial information (bits per spike)",
    "information": "information (bits per spike)",
}
_INTRODUCTION = (
    '<p class="soft">These scores do not use the embedding. Encoding R² is the share of '
    "the neuron's variance on held-out time that the label alone explains; 0 or less means none. "
    "It cannot separate correlated factors: a neuron that follows something else which changes "
    "with the label has a high value too.</p>"
)


def second_opinion(amap: AttributionMap, fits: Mapping[str, GoodnessOfFit] | None = None) -> str:
    """Return for each label a sentence on the agreement, the neurons that disagree, and a table.

    Labels that were controlled for come last and are folded. The text is empty if the map was made
    without the labels.

    Parameters
    ----------
    amap : AttributionMap
    fits : mapping of str to GoodnessOfFit, optional
        ``model.goodness_of_fit_``. The ranking of a label that was not found is not compared.
    """
    if not amap.opinions:
        return ""
    text = _INTRODUCTION
    for name, opinion in amap.opinions.items():
        if name not in amap.controls:
            text += f"<h3>{escaped(name)}</h3>"
            reason = doubt(fits or {}, name)
            if reason is None:
                text += _agreement(amap, name) + _disagreements(amap, name)
            else:
                text += f'<p class="doubt">{escaped(reason)}.</p>'
            text += _table(amap, name, opinion, reason)
    for name, opinion in amap.opinions.items():
        if name in amap.controls:
            text += (
                f"<details><summary>{escaped(name)} (controlled for)</summary>"
                f"{_table(amap, name, opinion, None)}</details>"
            )
    return text


def _agreement(amap: AttributionMap, name: str) -> str:
    rho = amap.agreement(name)
    if rho is None:
        return (
            "<p>Map and encoding model cannot be compared: there are too few samples or neurons, "
            "or one of the two is the same for all neurons.</p>"
        )
    if rho >= LARGE:
        words = (
            "<strong>Map and encoding model agree.</strong> The neurons with the highest scores "
            "are mostly those whose activity the label alone explains best."
        )
    elif rho > 0:
        words = (
            "<strong>Map and encoding model agree in part.</strong> Factors that are correlated "
            "with the label can be the reason, and so can a map that is not to be trusted."
        )
    else:
        words = (
            "<strong>Map and encoding model disagree.</strong> Neurons with high scores are not "
            "those whose activity the label alone explains. Compare with the map in "
            "<code>basis='label'</code>, and do not publish the ranking before you know the reason."
        )
    return f"<p>{words} Rank correlation over {len(amap.neuron_names)} neurons: {rho:z.2f}.</p>"


def _disagreements(amap: AttributionMap, name: str) -> str:
    disagreements = amap.disagreements(name)
    if not disagreements:
        return ""
    items = "".join(
        f"<li><strong>{escaped(item.neuron)}</strong>: {escaped(item.meaning)}</li>"
        for item in disagreements[:_MOST_LISTED]
    )
    more = len(disagreements) - _MOST_LISTED
    rest = f"<li>and {more} more, which the table shows</li>" if more > 0 else ""
    count = "1 neuron" if len(disagreements) == 1 else f"{len(disagreements)} neurons"
    return (
        '<div class="notes" role="note"><strong>'
        f"Map and encoding model disagree about {count}</strong><ul>{items}{rest}</ul></div>"
    )


def _table(amap: AttributionMap, name: str, opinion: SecondOpinion, reason: str | None) -> str:
    columns = []
    if reason is None:
        columns.append(("score", _texts(amap.block(name), numerals.score)))
        if name in amap.connections:
            called = ["yes" if called else "no" for called in amap.significant(name)]
            columns.append(("called connected", called))
    columns.append((f"rate {opinion.rate_unit}", _texts(opinion.rate, numerals.score)))
    if opinion.encoding is not None:
        texts = _texts(opinion.encoding, lambda value: numerals.r_squared(value, 3))
        columns.append(("encoding R²", texts))
    if opinion.usual is not None:
        usual_name = str(opinion.usual_name)
        head = _USUAL_NAMES.get(usual_name, usual_name)
        columns.append((head, _texts(opinion.usual, lambda value: f"{value:z.2f}")))
    heads = "".join(f'<th scope="col" class="number">{escaped(head)}</th>' for head, _ in columns)
    rows = "".join(
        f'<tr><th scope="row">{escaped(amap.neuron_names[i])}</th>'
        + "".join(f'<td class="number">{escaped(cells[i])}</td>' for _, cells in columns)
        + "</tr>"
        for i in (first_neurons(amap, name) if reason is None else range(len(opinion.rate)))
    )
    return (
        '<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Second opinion on {escaped(name)}"><table class="opinions"><thead><tr>'
        f'<th scope="col">neuron</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _texts(values: NDArray[np.float64], text: Callable[[float], str]) -> list[str]:
    return [text(value) if np.isfinite(value) else "–" for value in values.tolist()]
