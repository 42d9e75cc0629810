"""Parts of the page that need no script: verdicts, warnings, training curves and tables."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.sparse_basis import Mixture
from xcebra.training.goodness_of_fit import GoodnessOfFit

# Size and margins of the training curves in pixels, and the colours of their lines.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 260, 48, 34
_LINES = ("#1f6f8b", "#c2571a", "#7b4aa0", "#2f8f4e", "#a3261b", "#8a7a00")


def escaped(text: Any) -> str:
    """Return a value as text with the special characters of HTML escaped."""
    return html.escape(str(text))


def verdicts(fits: Mapping[str, GoodnessOfFit], amap: AttributionMap) -> str:
    """Return the verdict on each objective, with its numbers and how many neurons are connected.

    Parameters
    ----------
    fits : mapping of str to GoodnessOfFit
        ``model.goodness_of_fit_``.
    amap : AttributionMap
    """
    items = []
    # Labels come first, because users ask about them.
    for name, fit in sorted(fits.items(), key=lambda item: item[0] == "time"):
        about = "activity that lasts, beyond the labels," if name == "time" else name
        kind, words = {
            "yes": ("yes", f"Yes: {about} is in these neurons."),
            "no": ("no", f"No: {about} was not found in these neurons. Do not read its map."),
            "unclear": ("open", f"Unclear: it is not certain that {about} is in these neurons."),
        }[fit.verdict]
        text = fit.explanation(about)
        text = (text if text.startswith(about) else text[0].upper() + text[1:]) + "."
        if fit.decoding is not None:
            where = "Training" if fit.loss_p_value is None else "Held-out"
            text += f" {where} loss {fit.loss:.2f} nats, chance {fit.chance:.2f}."
        if fit.effect is not None:
            text += f" Effect size {fit.effect:.2f}, from 0 (none) to 1 (largest possible)."
        if name in amap.blocks and name != "time" and fit.verdict == "yes":
            text += (
                f" {_sentence(amap.connections[name].in_words())} Expect that up to 5 % of them "
                "are false."
                if name in amap.connections
                else " Which neurons are connected was not tested."
            )
            agree = (amap.made.get("halves_agree") or {}).get(name)
            if agree is not None:
                text += (
                    f" Rankings from two halves of the recording agree with a rank correlation of "
                    f"{agree:.2f}."
                )
        items.append(
            f'<li class="{kind}"><strong>{escaped(words)}</strong><br>{escaped(text)}</li>'
        )
    return f'<ul class="verdicts">{"".join(items)}</ul>'


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def notes(messages: Sequence[str]) -> str:
    """Return the messages of warnings as a list; empty if there are none."""
    if not messages:
        return ""
    items = "".join(f"<li>{escaped(message)}</li>" for message in messages)
    return (
        f'<div class="notes" role="note"><strong>Before you read on</strong><ul>{items}</ul></div>'
    )


def mixtures(mixture_by_label: Mapping[str, Mixture], n_neurons: int) -> str:
    """Return a table that says whether each label can be separated from correlated factors."""
    rows = []
    for name, mixture in mixture_by_label.items():
        if mixture.trusted:
            verdict = "yes: the map would be the same without a fifth of the neurons"
        elif mixture.found:
            verdict = "uncertain: it depends on too few neurons"
        else:
            verdict = "no: there are too few unconnected neurons"
        seem = f"{mixture.n_unconnected} of {n_neurons}"
        rows.append([name, verdict, seem, f"{mixture.instability:.1%}"])
    head = [
        "label",
        "verdict",
        "neurons that seem unconnected",
        "change without a fifth of the neurons",
    ]
    return "<h3>Can it be told from correlated factors?</h3>" + table(head, rows)


def curves(numbers: Mapping[str, Any]) -> str:
    """Draw the losses over training with their chance levels, as SVG.

    Parameters
    ----------
    numbers : mapping
        From `training_numbers`.
    """
    steps, losses, chances = (numbers[key] for key in ("steps", "losses", "chances"))
    values = [
        v for group in (losses, chances) for curve in group.values() for v in curve if v is not None
    ]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * (step - steps[0]) / max(1, steps[-1] - steps[0])

    def y(value: float) -> float:
        return 8 + (_HEIGHT - _BOTTOM - 8) * (high - value) / span

    def path(values: Sequence[float | None]) -> str:
        points = [
            f"{x(s):.1f},{y(v):.1f}" for s, v in zip(steps, values, strict=True) if v is not None
        ]
        return "M" + "L".join(points) if points else ""

    parts, legend = [], []
    for i, name in enumerate(losses):
        colour = _LINES[i % len(_LINES)]
        parts.append(
            f'<path d="{path(chances[name])}" fill="none" stroke="{colour}" stroke-width="1" '
            'stroke-dasharray="4 4" opacity="0.7"/>'
            f'<path d="{path(losses[name])}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        legend.append(f'<span style="--colour:{colour}">{escaped(name)}</span>')
    for value in (low, high):
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    for step in (steps[0], steps[-1]):
        anchor = "start" if step == steps[0] else "end"
        parts.append(
            f'<text x="{x(step):.1f}" y="{_HEIGHT - 14}" text-anchor="{anchor}">{step}</text>'
        )
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">step</text>')
    last = "; ".join(
        f"{name} from {v[0]} to {v[-1]}, chance {chances[name][-1]}" for name, v in losses.items()
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Loss over training in nats: {escaped(last)}">{"".join(parts)}</svg>'
        f'<figcaption class="classes">{"".join(legend)}</figcaption></figure>'
    )


def ranking(
    amap: AttributionMap, explained: Mapping[str, Any], truth: Mapping[str, Any] | None
) -> str:
    """Return a table with the scores and test results of every neuron, which can be sorted.

    Parameters
    ----------
    amap : AttributionMap
    explained : mapping of str to ndarray of shape (n_neurons,)
        Share of each neuron that is explained, by measure.
    truth : mapping of str to bool array of shape (n_neurons,), optional
        Known wiring, by factor.
    """
    columns = []
    for name in amap.blocks:
        columns.append((f"score for {name}", name, amap.block(name), ".4g"))
        columns.append((f"z for {name}", "", amap.z_scores(name), "+.2f"))
        if tested := amap.connections.get(name):
            columns.append((f"variance that only {name} explains", "", tested.share, ".3f"))
            columns.append((f"p for {name}", "", tested.p_values, ".2g"))
    columns += [
        (f"{measure} explained", "", shares, ".2f") for measure, shares in explained.items()
    ]
    heads = ['<th scope="col" data-first="ascending"><button>neuron</button></th>']
    for title, block, *_ in columns:
        sorts = f' data-block="{escaped(block)}"' if block else ""
        button = f"<button>{escaped(title)}</button>"
        heads.append(f'<th scope="col" class="number"{sorts}>{button}</th>')
    heads += [
        f'<th scope="col"><button>{escaped(name)} (truth)</button></th>' for name in truth or {}
    ]
    first = next(iter(amap.blocks))
    lines = []
    for i in (-amap.block(first)).argsort(kind="stable"):
        cells = [f'<th scope="row">{escaped(amap.neuron_names[i])}</th>']
        for *_, values, digits in columns:
            cells.append(
                f'<td class="number" data-value="{values[i]:.6g}">{values[i]:{digits}}</td>'
            )
        cells += [f"<td>{'yes' if known[i] else 'no'}</td>" for known in (truth or {}).values()]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Neurons and their scores">'
        f'<table id="neurons-table"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain HTML table."""
    top = "".join(f'<th scope="col">{escaped(title)}</th>' for title in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    body = f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>'
