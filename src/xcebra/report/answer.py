"""The answer: the verdict on each label, and a figure of the neurons that carry it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import Groups
from xcebra.data.label_info import LabelInfo
from xcebra.report import numerals
from xcebra.report.agreement import agreement_words
from xcebra.report.page import escaped
from xcebra.report.questions import TIME, asked_blocks, beyond, doubt
from xcebra.report.tables import group_table
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Differences of R² that are mentioned, as in the words of `Decoding`.
_MENTIONED = 0.1
_LASTING = "activity that lasts, beyond the labels,"


def verdicts(
    fits: Mapping[str, GoodnessOfFit],
    amap: AttributionMap,
    infos: Mapping[str, LabelInfo] | None = None,
    advice: Mapping[str, str] | None = None,
) -> str:
    """Return the verdict on each objective, with its numbers and how many neurons are connected.

    Labels that are asked about come first. Time and labels that are controlled for follow, small.

    Parameters
    ----------
    fits : mapping of str to GoodnessOfFit
        ``model.goodness_of_fit_``.
    amap : AttributionMap
    infos : mapping of str to LabelInfo, optional
        What is known of the labels.
    advice : mapping of str to str, optional
        What to try next, for each objective whose verdict is not yes.
    """
    advice = advice or {}
    controls = [name for name in fits if name in amap.controls]
    questions = [name for name in fits if name not in controls and name != TIME]
    unit = {name: info.unit for name, info in (infos or {}).items()}
    items = [
        _verdict(fits[name], amap, name, unit.get(name, ""), advice.get(name, ""))
        for name in questions
    ]
    if TIME in fits:
        small = bool(questions)
        items.append(_verdict(fits[TIME], amap, TIME, "", advice.get(TIME, ""), small=small))
    text = f'<ul class="verdicts">{"".join(items)}</ul>'
    for name in controls:
        text += _controlled_for(fits[name], name, unit.get(name, ""))
    return text


def _verdict(
    fit: GoodnessOfFit,
    amap: AttributionMap,
    name: str,
    unit: str,
    advice: str,
    *,
    small: bool = False,
) -> str:
    about = _LASTING if name == TIME else name
    kind, words = {
        "yes": ("yes", f"Yes: {about} is in these neurons."),
        "no": ("no", f"No: {about} was not found in these neurons. Do not read its map."),
        "unclear": ("open", f"Unclear: it is not certain that {about} is in these neurons."),
    }[fit.verdict]
    parts = []
    if name in amap.blocks and name != TIME and fit.verdict == "yes":
        parts.append(_connected(amap, name))
    subject = about if fit.verdict == "unclear" else "it"
    parts.append(_sentence(_explained(fit, subject, unit), about))
    if advice:
        parts.append(_sentence(advice))
    details = []
    if fit.decoding is not None:
        where = "Training" if fit.loss_p_value is None else "Held-out"
        details.append(f"{where} loss {fit.loss:.2f} nats, chance {fit.chance:.2f}.")
    if fit.effect is not None:
        effect = max(fit.effect, 0.0)
        details.append(f"Effect size {effect:.2f}, from 0 (none) to 1 (largest possible).")
    agree = (amap.made.get("halves_agree") or {}).get(name)
    if agree is not None and fit.verdict == "yes" and name != TIME:
        details.append(
            "Rankings of the neurons from two halves of the recording agree with a rank "
            f"correlation of {agree:z.2f}."
        )
    more = f'<br><span class="soft">{escaped(" ".join(details))}</span>' if details else ""
    classes = f"{kind} small" if small else kind
    return (
        f'<li class="{classes}"><strong>{escaped(words)}</strong><br>'
        f"{escaped(' '.join(parts))}{more}</li>"
    )


def _connected(amap: AttributionMap, name: str) -> str:
    """Return how many neurons are connected to a label, beyond what."""
    if name not in amap.connections:
        return "Which neurons are connected was not tested."
    tested = amap.connections[name]
    if not tested.controls_hold():
        return _sentence(tested.in_words())
    n_called, n = int(tested.significant().sum()), len(tested.p_values)
    than = beyond(amap, name)
    words = f"{n_called} of {n} neurons are connected to it{f', {than}' if than else ''}."
    return f"{words} Expect that up to 5\u00a0% of them are false." if n_called else words


def _explained(fit: GoodnessOfFit, about: str, unit: str) -> str:
    """Return the explanation of a verdict, without numbers that have no meaning."""
    text = fit.explanation(about)
    if fit.decoding is None:
        return text
    return text.replace(fit.decoding.in_words, _decoding(fit.decoding, unit))


def _decoding(decoding: Decoding, unit: str) -> str:
    """Return how well a label is read, each number with its chance level."""
    r2 = f"R² {numerals.r_squared(decoding.r2)}"
    if abs(decoding.r2 - decoding.r2_without_drift) > _MENTIONED:
        without = numerals.r_squared(decoding.r2_without_drift)
        r2 = f"R² {without} once slow drift is removed, {numerals.r_squared(decoding.r2)} with it"
    if decoding.accuracy is not None:
        chance = f"chance {decoding.chance_accuracy:.0%}"
        return f"{r2}; balanced accuracy {decoding.accuracy:.0%}, {chance}"
    unit = "degrees" if decoding.unit == "degrees" else unit
    error = f"{decoding.error:.3g}{f' {unit}' if unit else ''}"
    return f"{r2}; median error {error}, chance {decoding.chance_error:.3g}"


def _controlled_for(fit: GoodnessOfFit, name: str, unit: str) -> str:
    """Return one small paragraph on a label that was controlled for."""
    found = {
        "yes": "It is in these neurons",
        "no": "It was not found in these neurons",
        "unclear": "It is not certain that it is in these neurons",
    }[fit.verdict]
    numbers = "" if fit.decoding is None else f" ({escaped(_decoding(fit.decoding, unit))})"
    return (
        f'<p class="soft">Controlled for: <strong>{escaped(name)}</strong>. {found}{numbers}. '
        "What it explains does not count for the labels above.</p>"
    )


def answer_sections(
    fits: Mapping[str, GoodnessOfFit],
    amap: AttributionMap,
    groups: Sequence[Groups],
    column: str | None,
    has_tuning: Mapping[str, str],
) -> dict[str, tuple[str, str]]:
    """Return one section of the page for each label that is asked about.

    Parameters
    ----------
    fits : mapping of str to GoodnessOfFit
    amap : AttributionMap
    groups : sequence of Groups
        Summaries of the map by every column that the reader can choose.
    column : str or None
        The column that is chosen first.
    has_tuning : mapping of str to str
        Labels whose tuning the page has, and its shape: circle, line, plane or classes.

    Returns
    -------
    dict of str to (title, content)
        By the name of the section.
    """
    sections = {}
    for i, name in enumerate(asked_blocks(amap)):
        if name == TIME:
            continue
        title = f"Which neurons carry {escaped(name)}?"
        content = _figure(fits, amap, name, groups, column)
        content += _checks(fits, amap, name)
        if name in has_tuning and doubt(fits, name) is None:
            content += _tuning(amap, name, has_tuning[name])
        sections[f"answer-{i}"] = (title, content)
    return sections


def _figure(
    fits: Mapping[str, GoodnessOfFit],
    amap: AttributionMap,
    name: str,
    groups: Sequence[Groups],
    column: str | None,
) -> str:
    reason, block = doubt(fits, name), escaped(name)
    text = ""
    if reason is not None:
        text += f'<p class="doubt">{escaped(_sentence(reason, name))}</p>'
    tested = name in amap.connections and reason is None
    lower = (
        "The lower panel shows the share of each neuron's variance that only this label explains, "
        "with its interval of 95\u00a0%. Filled markers are neurons that are called connected. "
        if tested
        else ""
    )
    text += (
        '<p class="soft">Neurons, highest score first. Scores of neurons without signal lie around '
        f"0. {lower}Click on a neuron, or move with the arrow keys and press Enter, to see its "
        "tuning.</p>"
    )
    if groups and reason is None:
        options = "".join(
            f'<option value="{escaped(g.column)}"{" selected" if g.column == column else ""}>'
            f"{escaped(g.column)}</option>"
            for g in groups
        )
        none = f'<option value=""{"" if column else " selected"}>no groups</option>'
        text += (
            '<div class="controls"><label>groups <select class="group-choice">'
            f"{options}{none}</select></label></div>"
        )
    n = len(amap.neuron_names)
    text += (
        f'<figure class="neurons" data-block="{block}"><figcaption class="classes legend">'
        '</figcaption><div class="drawing" tabindex="0" role="slider" aria-valuemin="1" '
        f'aria-valuemax="{n}" aria-valuenow="1" aria-label="Neurons by their score for {block}; '
        'the table of neurons has the same numbers"></div>'
        '<output class="readout" aria-live="polite"></output></figure>'
    )
    if reason is None:
        text += "".join(group_table(g, name) for g in groups)
    return text


def _checks(fits: Mapping[str, GoodnessOfFit], amap: AttributionMap, name: str) -> str:
    """Return what surrogate units and the second opinion say of a label, in one line each."""
    lines = []
    tested = amap.connections.get(name)
    if tested is not None and tested.controls is not None and doubt(fits, name) is None:
        lines.append(
            f"<strong>Surrogate units:</strong> {tested.controls_called()} of "
            f"{len(tested.controls)} units that cannot carry it were called connected."
        )
    words = agreement_words(amap, name)
    if words and doubt(fits, name) is None:
        lines.append(f'<strong><a href="#opinion">Second opinion</a>:</strong> {escaped(words)}.')
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="checks">{items}</ul>' if items else ""


def _tuning(amap: AttributionMap, name: str, shape: str) -> str:
    n = min(6, len(amap.neuron_names))
    what = {
        "circle": "Tuning curves",
        "line": "Tuning curves",
        "plane": "Rate maps",
        "classes": "Mean activity by class",
    }[shape]
    error = (
        "Bins that were hardly visited are blank."
        if shape == "plane"
        else "Bands and bars are standard errors, from leaving out stretches of time."
    )
    if name in amap.connections:
        error += " Open markers are neurons that are not called connected."
    return (
        f"<h3>{what} of the {n} neurons with the highest scores</h3>"
        f'<p class="soft">These are means of the recorded activity, without the model. {error}</p>'
        f'<div class="tuning-grid" data-block="{escaped(name)}"></div>'
    )


def _sentence(words: str, about: str = "") -> str:
    """Return words as a sentence; the name of a label at its start keeps its letters."""
    if about and words.startswith(about):
        return f"{words}."
    return f"{words[0].upper()}{words[1:]}."
