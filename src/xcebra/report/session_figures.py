"""Figures of the page of several sessions, as SVG that needs no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xcebra.attribution.pooled_groups import PooledGroup
from xcebra.report.page import escaped
from xcebra.statistics.hierarchical import Estimate

# Width of a figure, the height of a group, and of the axis below, in pixels of the drawing.
_WIDTH, _ROW, _AXIS, _SIDE = 430.0, 80.0, 40.0, 16.0
# Parts of a group's height: its name, its points, and their mean with its interval.
_NAME, _BAND, _MEAN = 22.0, 30.0, 18.0
# Width and height of the figure of one session, and its margin for numbers.
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_LEFT = 190.0, 104.0, 32.0
# Neurons that a figure draws; of more, every n-th. More would hide each other.
MOST_POINTS = 3000
# So few points lie evenly across their band, one below the other.
_FEW = 8
# The colours of the page, and the animals that colours and shapes tell apart.
_N_COLOURS, _MOST_OWNERS = 6, 24
# Shapes of markers, as paths around 0 with a radius of 1.
_SHAPES = (
    "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0Z",
    "M-.9,-.9h1.8v1.8h-1.8Z",
    "M0,-1.15L1.1,.85H-1.1Z",
    "M0,1.15L1.1,-.85H-1.1Z",
)
_DIAMOND = "M0,-1.25L1.25,0L0,1.25L-1.25,0Z"


class Point(NamedTuple):
    """A neuron or a session in a figure.

    Parameters
    ----------
    value : float
    owner : str
        Whose colour it has: the animal, or the session.
    name : str
        Shown when it is pointed at.
    filled : bool
        Whether it is called connected.
    readable : bool
        Whether its value may be read.
    """

    value: float
    owner: str
    name: str
    filled: bool = True
    readable: bool = True


class Style(NamedTuple):
    """Colour and shape of a marker."""

    colour: str
    shape: str


@dataclass(frozen=True, eq=False)
class GroupPoints:
    """One group of neurons in a figure: its points, their mean and its interval."""

    title: str
    points: Sequence[Point]
    mean: Estimate | None


def owner_styles(owners: Sequence[str]) -> dict[str, Style]:
    """Return colours and shapes of animals or sessions; none if there are too many."""
    names = list(dict.fromkeys(owners))
    if len(names) > _MOST_OWNERS:
        return {}
    return {
        name: Style(f"var(--group-{i % _N_COLOURS})", _SHAPES[i // _N_COLOURS])
        for i, name in enumerate(names)
    }


def legend(styles: Mapping[str, Style], mean: str, *, tested: bool) -> str:
    """Return the legend of the figures of groups.

    Parameters
    ----------
    styles : mapping of str to Style
        Of each animal or session.
    mean : str
        What the black marker is.
    tested : bool
        Whether filled markers are connected neurons.
    """
    items = [_sample(style.shape, style.colour, style.colour, n) for n, style in styles.items()]
    items.append(_sample(_DIAMOND, "var(--text)", "var(--text)", mean))
    if tested:
        circle = _SHAPES[0]
        items.append(_sample(circle, "var(--soft)", "var(--soft)", "called connected"))
        items.append(_sample(circle, "var(--soft)", "var(--back)", "not called connected"))
    return f'<div class="classes legend">{"".join(items)}</div>'


def strips(
    groups: Sequence[GroupPoints],
    styles: Mapping[str, Style],
    axis: str,
    *,
    ends: tuple[float, float] | None = None,
    percent: bool = False,
) -> str:
    """Draw the points of each group in a row, with their mean and its interval.

    Parameters
    ----------
    groups : sequence of GroupPoints
    styles : mapping of str to Style
    axis : str
        Title of the axis; it also describes the figure to those who cannot see it.
    ends : (float, float), optional
        Ends of the axis; by default those of the values.
    percent : bool
        Whether values are shares, shown in percent.
    """
    low, high = ends or _ends(groups)
    height = _ROW * len(groups) + _AXIS
    bottom = height - _AXIS

    def x(value: float) -> float:
        return _SIDE + (_WIDTH - 2 * _SIDE) * (value - low) / (high - low)

    parts = []
    for value in ticks(low, high):
        kind = "zero" if value == 0 else "grid"
        text = f"{100 * value:.0f} %" if percent else f"{value:g}"
        lines = "".join(
            f"M{x(value):.1f},{_ROW * row + _NAME:g}v{_ROW - _NAME - 4:g}"
            for row in range(len(groups))
        )
        parts.append(f'<path class="{kind}" d="{lines}"/>')
        parts.append(
            f'<text x="{x(value):.1f}" y="{bottom + 14:.1f}" text-anchor="middle">{text}</text>'
        )
    parts.append(
        f'<text class="title" x="{_WIDTH / 2}" y="{height - 4:.1f}" text-anchor="middle">'
        f"{escaped(axis)}</text>"
    )
    for row, group in enumerate(groups):
        top = _ROW * row
        parts.append(
            f'<text class="title" x="{_SIDE}" y="{top + _NAME - 7:.1f}">{escaped(group.title)}'
            "</text>"
        )
        middle = top + _NAME + 2 + _BAND / 2
        for i, point in enumerate(group.points):
            shift = (_place(i, len(group.points)) - 0.5) * (_BAND - 8)
            parts.append(_marker(point, styles, x(point.value), middle + shift))
        if group.mean is not None:
            parts.append(_mean(group.mean, x, top + _NAME + _BAND + _MEAN / 2, (low, high)))
    return (
        f'<figure class="strips"><svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escaped(_described(groups, axis, percent))}">{"".join(parts)}</svg></figure>'
    )


def sorted_scores(
    scores: NDArray[np.float64],
    connected: NDArray[np.bool_] | None,
    ends: tuple[float, float],
    about: str,
    *,
    readable: bool = True,
) -> str:
    """Draw the scores of one session, highest first.

    Parameters
    ----------
    scores : ndarray of shape (n_neurons,)
    connected : bool ndarray of shape (n_neurons,), or None
        None if this cannot be said.
    ends : (float, float)
        Ends of the vertical axis, the same for all sessions.
    about : str
        Describes the figure to those who cannot see it.
    readable : bool
        Whether the scores may be read.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[:: -(-len(order) // MOST_POINTS)]
    low, high = ends
    bottom = _SMALL_HEIGHT - 6

    def y(value: float) -> float:
        return bottom - (bottom - 8) * (value - low) / (high - low)

    parts = []
    for value in ticks(low, high, 3):
        kind = "zero" if value == 0 else "grid"
        parts.append(
            f'<path class="{kind}" d="M{_SMALL_LEFT},{y(value):.1f}H{_SMALL_WIDTH}"/>'
            f'<text x="{_SMALL_LEFT - 4}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    colour = "var(--accent)" if readable else "var(--soft)"
    width = _SMALL_WIDTH - _SMALL_LEFT - 10
    radius = 2.6 if len(order) > 60 else 3.4
    for rank, neuron in enumerate(order):
        x = _SMALL_LEFT + 5 + width * rank / max(1, len(order) - 1)
        filled = connected is not None and bool(connected[neuron]) and readable
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y(float(scores[neuron])):.1f}" r="{radius}" '
            f'stroke="{colour}" fill="{colour if filled else "var(--back)"}"/>'
        )
    return (
        f'<svg viewBox="0 0 {_SMALL_WIDTH:g} {_SMALL_HEIGHT:g}" role="img" '
        f'aria-label="{escaped(about)}">{"".join(parts)}</svg>'
    )


def session_points(row: PooledGroup) -> list[Point]:
    """Return the share of connected neurons in each session of a group."""
    return [
        Point(
            one.connected,
            one.animal or one.session,
            f"{one.session}: {100 * one.connected:.0f} % of {one.n_neurons} neurons",
        )
        for one in row.sessions
        if np.isfinite(one.connected)
    ]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between two ends, for an axis."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.6g}") for i in range(first, last + 1)]


def score_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis of scores, with zero inside and some room at both."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *known]), max([0.0, *known])
    room = 0.04 * ((high - low) or 1.0)
    return low - room, high + room


def _ends(groups: Sequence[GroupPoints]) -> tuple[float, float]:
    values = [point.value for group in groups for point in group.points]
    return score_ends(values + [g.mean.value for g in groups if g.mean is not None])


def _place(i: int, n: int) -> float:
    """Return where one of n points lies across its band, from 0 to 1."""
    if n <= _FEW:
        return (i + 0.5) / n
    # Steps of the golden ratio keep neighbours apart.
    return (i * 0.618034) % 1


def _marker(point: Point, styles: Mapping[str, Style], x: float, y: float) -> str:
    style = styles.get(point.owner, Style("var(--accent)", _SHAPES[0]))
    colour = style.colour if point.readable else "var(--soft)"
    fill = colour if point.filled and point.readable else "var(--back)"
    return (
        f'<path transform="translate({x:.1f} {y:.1f}) scale(4)" d="{style.shape}" '
        f'stroke="{colour}" stroke-width=".35" fill="{fill}"><title>{escaped(point.name)}</title>'
        "</path>"
    )


def _mean(
    estimate: Estimate,
    place: Callable[[float], float],
    middle: float,
    ends: tuple[float, float],
) -> str:
    text = ""
    if math.isfinite(estimate.low):
        low, high = (place(min(max(v, ends[0]), ends[1])) for v in (estimate.low, estimate.high))
        text = f'<path class="interval" d="M{low:.1f},{middle:.1f}H{high:.1f}"/>'
    return text + (
        f'<path class="mean" transform="translate({place(estimate.value):.1f} {middle:.1f}) '
        f'scale(6)" d="{_DIAMOND}"/>'
    )


def _sample(shape: str, stroke: str, fill: str, text: str) -> str:
    return (
        '<span class="sample"><svg viewBox="-1.6 -1.6 3.2 3.2" aria-hidden="true">'
        f'<path d="{shape}" stroke="{stroke}" stroke-width=".35" fill="{fill}"/></svg>'
        f"{escaped(text)}</span>"
    )


def _described(groups: Sequence[GroupPoints], axis: str, percent: bool) -> str:
    """Say in words what a figure shows."""
    texts = []
    for group in groups:
        if group.mean is not None:
            factor, unit = (100, " %") if percent else (1, "")
            texts.append(f"{group.title}: mean {factor * group.mean.value:.3g}{unit}")
    return f"{axis}. {'; '.join(texts)}"
