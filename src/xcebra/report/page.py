"""The frame of a page, and parts that need no script: warnings, training curves and tables."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from xcebra.attribution.sparse_basis import Mixture

# Size and margins of the training curves in pixels, and the colours of their lines.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 260, 48, 34
_PAPER = (
    "Schneider, S., González Laiz, R., Filippova, A., Frey, M. and Mathis, M. W. (2025). "
    "Time-series attribution maps with regularized contrastive learning. AISTATS."
)
_LINES = ("#1f6f8b", "#c2571a", "#7b4aa0", "#2f8f4e", "#a3261b", "#8a7a00")


def escaped(text: Any) -> str:
    """Return a value as text with the special characters of HTML escaped."""
    return html.escape(str(text))


def document(
    title: str,
    sections: Mapping[str, tuple[str, str]],
    scripts: Sequence[str],
    *,
    below: str = "",
    numbers: Mapping[str, Any] | None = None,
    after: str = "",
) -> str:
    """Return a whole page that needs no other file.

    Parameters
    ----------
    title : str
    sections : mapping of str to (str, str)
        For each section, by its identifier, its heading and its content, as HTML.
    scripts : sequence of str
        Parts of the script, in the order in which they are joined.
    below : str
        A line below the title.
    numbers : mapping, optional
        Plain values for the script.
    after : str
        HTML after the sections.
    """
    folder = files("xcebra.report")
    style = folder.joinpath("page.css").read_text("utf-8")
    parts = [folder.joinpath("scripts", f"{name}.js").read_text("utf-8") for name in scripts]
    script = f'"use strict";\n(() => {{\n{"".join(parts)}}})();\n'
    links = "".join(
        f'<li><a href="#{name}">{_link(head)}</a></li>' for name, (head, _) in sections.items()
    )
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{head}</h2>'
        f"{content}</section>"
        for name, (head, content) in sections.items()
    )
    line = f'<p class="soft">{escaped(below)}</p>' if below else ""
    data = ""
    if numbers is not None:
        # Only "<" could end the script element, so it is escaped.
        text = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
        data = f'<script type="application/json" id="numbers">{text}</script>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{escaped(title)}</h1>{line}"
        f'<nav aria-label="On this page"><ul>{links}</ul></nav>'
        f"</header><main>{body}</main>{after}{data}<script>{script}</script></body></html>\n"
    )


def _link(head: str) -> str:
    """Return the text of a link to a section: for a question, the label that it is about."""
    asked = re.fullmatch(r"Which .*? carry (.*)\?", head)
    return head if asked is None else asked[1]


def settings_tables(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of settings that the reader can open, by their titles."""
    text = ""
    for title, values in groups.items():
        if values:
            rows = [[name, v if isinstance(v, str) else repr(v)] for name, v in values.items()]
            text += f"<details><summary>{title}</summary>{table(['', ''], rows)}</details>"
    return text


def citation() -> str:
    """Return what to cite, the method and the software."""
    return (
        f"<p>The method: {escaped(_PAPER)}</p>"
        f"<p>The software: xcebra, version {escaped(version('xcebra'))}.</p>"
    )


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
        change = f"{mixture.instability:.1%}"
        if mixture.trusted and not mixture.found:
            # The instability is that of a mixture that was not accepted.
            verdict, change = "yes: enough neurons are unconnected without a correction", "–"
        elif mixture.trusted:
            verdict = "yes: the map would be the same without a fifth of the neurons"
        elif mixture.found:
            verdict = "uncertain: it depends on too few neurons"
        else:
            verdict = "no: there are too few unconnected neurons"
        seem = f"{mixture.n_unconnected} of {n_neurons}"
        rows.append([name, verdict, seem, change])
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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain HTML table."""
    top = "".join(f'<th scope="col">{escaped(title)}</th>' for title in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    body = f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>'
