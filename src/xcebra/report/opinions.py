"""The second opinion in the page: the map of each label beside scores of the label alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.report.page import escaped
from xcebra.statistics.second_opinion import SecondOpinion

# Neurons that are listed as disagreeing. A longer list would not be read, and the table below it
# has all neurons; not tuned.
_MOST_LISTED = 8
# Correlations of 0.5 and more are commonly called large (Cohen 1988). The value only decides which
# sentence is shown.
_LARGE = 0.5
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


def second_opinion(amap: AttributionMap) -> str:
    """Return for each label a sentence on the agreement, the neurons that disagree, and a table.

    The text is empty if the map was made without the labels.
    """
    if not amap.opinions:
        return ""
    return _INTRODUCTION + "".join(
        f"<h3>{escaped(name)}</h3>{_agreement(amap, name)}{_disagreements(amap, name)}"
        f"{_table(amap, name, opinion)}"
        for name, opinion in amap.opinions.items()
    )


def _agreement(amap: AttributionMap, name: str) -> str:
    rho = amap.agreement(name)
    if rho is None:
        return (
            "<p>Map and encoding model cannot be compared: there are too few samples or neurons, "
            "or one of the two is the same for all neurons.</p>"
        )
    if rho >= _LARGE:
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
    return f"<p>{words} Rank correlation over {len(amap.neuron_names)} neurons: {rho:.2f}.</p>"


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


def _table(amap: AttributionMap, name: str, opinion: SecondOpinion) -> str:
    scores = amap.block(name)
    connected = amap.significant(name) if name in amap.connections else None
    columns = [("score", _numbers(scores, ".3g"))]
    if connected is not None:
        columns.append(("called connected", ["yes" if called else "no" for called in connected]))
    columns.append((f"rate {opinion.rate_unit}", _numbers(opinion.rate, ".3g")))
    if opinion.encoding is not None:
        columns.append(("encoding R²", _numbers(opinion.encoding, ".3f")))
    if opinion.usual is not None:
        usual_name = str(opinion.usual_name)
        head = _USUAL_NAMES.get(usual_name, usual_name)
        columns.append((head, _numbers(opinion.usual, ".2f")))
    heads = "".join(f'<th scope="col" class="number">{escaped(head)}</th>' for head, _ in columns)
    rows = "".join(
        f'<tr><th scope="row">{escaped(amap.neuron_names[i])}</th>'
        + "".join(f'<td class="number">{escaped(cells[i])}</td>' for _, cells in columns)
        + "</tr>"
        for i in np.argsort(-scores, kind="stable")
    )
    return (
        '<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Second opinion on {escaped(name)}"><table class="opinions"><thead><tr>'
        f'<th scope="col">neuron</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _numbers(values: NDArray[np.float64], digits: str) -> Sequence[str]:
    # The option "z" removes the minus sign of values that round to zero.
    return [format(value, f"z{digits}") for value in values.tolist()]
