"""Figures of several sessions and animals: groups of neurons, and neurons followed over days."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from xcebra.attribution.followed import day_key
from xcebra.common.errors import InputError
from xcebra.plots.style import COLOURS, group_styles, plain_text, talk_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xcebra.attribution.followed import FollowedNeuron, FollowedNeurons, MeanChange
    from xcebra.attribution.pooled_groups import (
        GroupComparison,
        PooledDifference,
        PooledGroup,
        PooledGroups,
    )

# Animals are told apart by colour and marker up to this number, as groups are.
_MOST_COLOURED = 12
# Differences that are written below the figure; more lines would be as tall as the figure.
_MOST_DIFFERENCES = 6
# Characters of a group's name in one line beside the axis, and lines of it.
_NAME_WIDTH, _NAME_LINES = 26, 2
# Neurons whose intervals are drawn; more would cover each other.
_MOST_INTERVALS = 12
_WIDTH = 7.0
# Points between the lower end of the axes and the lines of text below it.
_BELOW = 42


def pooled_groups(
    groups: PooledGroups,
    block: str,
    *,
    measure: Literal["connected", "score", "variance"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Groups of neurons over several sessions and animals, with intervals and differences.

    Small markers are sessions, coloured by animal. The black marker is the mean over animals, and
    the line its interval. Differences between groups are written below.

    Parameters
    ----------
    groups : PooledGroups
        Result of `PooledMaps.by`.
    block : str
    measure : {"connected", "score", "variance"}, optional
        What is drawn: the share of connected neurons, the mean score, or the mean share of
        variance that only this block explains. By default, ``"connected"`` if the block was
        tested, and ``"score"`` otherwise.
    ax : Axes, optional

    Examples
    --------
    >>> ax = plots.pooled_groups(pooled.by("area"), "heading")      # doctest: +SKIP
    >>> plots.save(ax, "areas.svg")                                 # doctest: +SKIP
    """
    if block not in groups.groups:
        raise InputError(f"block must be one of {list(groups.groups)}, got {block!r}", ("block",))
    tested = any(row.connected is not None for row in groups.groups[block])
    if measure is None:
        measure = "connected" if tested else "score"
    if measure not in ("connected", "score", "variance"):
        raise InputError(
            f"measure must be 'connected', 'score' or 'variance', got {measure!r}", ("measure",)
        )
    rows = [row for row in groups.groups[block] if getattr(row, measure) is not None]
    if not rows:
        raise InputError(
            f"measure={measure!r} needs a test of {block!r} that holds: make the maps with "
            "attribute(..., test=True), or draw measure='score'",
            ("measure",),
        )
    factor = 1.0 if measure == "score" else 100.0
    texts = _difference_texts(groups.comparisons[block], measure, factor)
    styles = _owner_styles(rows)
    with talk_style() as plt:
        if ax is None:
            # Inches for the axis, each group, each line of the legend, and each line below.
            height = 0.8 + 0.5 * len(rows) + 0.24 * (1 + len(styles) // 5) + 0.2 * (1 + len(texts))
            ax = plt.subplots(figsize=(_WIDTH, height), layout="constrained")[1]
        for place, row in enumerate(rows):
            _draw_group(ax, place, row, measure, factor, styles)
            ax.annotate(
                _counts(row, measure),
                (1.03, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=9,
                color="0.35",
                annotation_clip=False,
            )
        ax.set_yticks(range(len(rows)), [_two_lines(row.group) for row in rows])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel(_axis_title(block, measure))
        if measure == "connected":
            ax.set_xlim(-2, 102)
        else:
            ax.axvline(0, color="0.6", lw=0.8, zorder=0)
        _write_below(ax, texts)
        over = getattr(rows[0], measure).over
        _owner_legend(ax, styles, f"mean over {over}, {100 * groups.level:g} % interval")
        _open(ax)
    return ax


def followed(
    neurons: FollowedNeurons,
    block: str,
    *,
    measure: Literal["share", "score"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Neurons that were followed over several sessions, in the order of days.

    Lines are neurons, coloured by animal. Markers are filled where the neuron is called connected.
    Intervals are drawn for few neurons. The mean change is written below.

    Parameters
    ----------
    neurons : FollowedNeurons
        Result of `PooledMaps.followed`.
    block : str
    measure : {"share", "score"}, optional
        What is drawn: the share of variance that only this block explains, with its interval, or
        the score. By default, ``"share"`` if the block was tested, and ``"score"`` otherwise.
    ax : Axes, optional
    """
    if block not in neurons.neurons:
        known = list(neurons.neurons)
        raise InputError(f"block must be one of {known}, got {block!r}", ("block",))
    rows = neurons.neurons[block]
    tested = any(np.isfinite(row.shares).any() for row in rows)
    if measure is None:
        measure = "share" if tested else "score"
    if measure not in ("share", "score"):
        raise InputError(f"measure must be 'share' or 'score', got {measure!r}", ("measure",))
    if measure == "share" and not tested:
        raise InputError(
            f"measure='share' needs a test of {block!r}: make the maps with "
            "attribute(..., test=True), or draw measure='score'",
            ("measure",),
        )
    days = sorted({day for row in rows for day in row.days}, key=day_key)
    are_numbers = not isinstance(days[0], str)
    places = {day: float(day) if are_numbers else float(k) for k, day in enumerate(days)}
    animals = list(dict.fromkeys(row.animal for row in rows))
    with talk_style() as plt:
        if ax is None:
            ax = plt.subplots(figsize=(_WIDTH, 4.0), layout="constrained")[1]
        styles = _styles(animals)
        for row in rows:
            _draw_neuron(ax, row, places, styles.get(row.animal), measure, len(rows))
        ax.axhline(0, color="0.6", lw=0.8, zorder=0)
        if are_numbers:
            ax.set_xlabel("day")
            if len(days) <= 10:
                ax.set_xticks([places[day] for day in days], [f"{day:g}" for day in days])
        else:
            # Long names are turned, so that they do not overlap.
            turned = sum(len(str(day)) for day in days) > 60
            ax.set_xticks(
                range(len(days)),
                map(plain_text, days),
                rotation=45 if turned else 0,
                ha="right" if turned else "center",
            )
        ax.set_ylabel(
            f"score for {plain_text(block)}"
            if measure == "score"
            else f"variance that only\n{plain_text(block)} explains (%)"
        )
        ax.set_title(
            _change_text(neurons.changes[block], measure), fontsize=9.5, loc="left", color="0.35"
        )
        _followed_legend(
            ax, styles, any(called is not None for r in rows for called in r.connected)
        )
        _open(ax)
    return ax


def _draw_group(
    ax: Any,
    place: int,
    row: PooledGroup,
    measure: str,
    factor: float,
    styles: Mapping[str, tuple[str, str]],
) -> None:
    """Draw the sessions of a group, its mean and its interval."""
    known = [session for session in row.sessions if np.isfinite(getattr(session, measure))]
    # Sessions lie side by side, so that equal values do not hide each other.
    shifts = np.linspace(-0.26, 0.26, len(known)) if len(known) > 1 else np.zeros(1)
    for session, shift in zip(known, shifts, strict=True):
        colour, marker = styles.get(session.animal or session.session, (COLOURS[0], "o"))
        ax.plot(
            factor * getattr(session, measure),
            place + shift,
            linestyle="none",
            marker=marker,
            ms=6.5,
            mfc=colour,
            mec="white",
            mew=0.4,
            alpha=0.9,
            clip_on=False,
            zorder=2,
        )
    estimate = getattr(row, measure)
    if np.isfinite(estimate.low):
        ax.hlines(
            place, factor * estimate.low, factor * estimate.high, color="0.1", lw=2.2, zorder=3
        )
    ax.plot(
        factor * estimate.value,
        place,
        marker="D",
        ms=8,
        mfc="0.1",
        mec="white",
        mew=1.0,
        clip_on=False,
        zorder=4,
    )


def _draw_neuron(
    ax: Any,
    row: FollowedNeuron,
    places: Mapping[Any, float],
    style: tuple[str, str] | None,
    measure: str,
    n_neurons: int,
) -> None:
    """Draw one of several neurons over its sessions; of many, each is drawn fainter."""
    colour, marker = style or (COLOURS[0], "o")
    few = n_neurons <= _MOST_INTERVALS
    x = np.array([places[day] for day in row.days])
    y = row.scores if measure == "score" else 100 * row.shares
    ax.plot(x, y, color=colour, lw=1.0 if few else 0.7, alpha=0.6 if few else 0.3, zorder=2)
    if few and measure == "share":
        ax.vlines(x, 100 * row.low, 100 * row.high, color=colour, lw=1.0, alpha=0.5, zorder=1)
    for chosen, face in ((True, colour), (False, "white"), (None, colour)):
        inside = np.array([called is chosen for called in row.connected])
        if inside.any():
            ax.plot(
                x[inside],
                y[inside],
                linestyle="none",
                marker=marker,
                ms=5.5 if few else 3.5,
                mfc=face,
                mec=colour,
                mew=1.0 if few else 0.7,
                zorder=3,
            )


def _difference_texts(pairs: Sequence[GroupComparison], measure: str, factor: float) -> list[str]:
    """Lines about the differences that are called, those with the lowest rates first."""
    rated = [(getattr(pair, measure), pair) for pair in pairs]
    rated = [(difference, pair) for difference, pair in rated if difference is not None]
    called = sorted(
        ((d, pair) for d, pair in rated if d.differs), key=lambda entry: entry[0].q_value
    )
    if not rated:
        return []
    if not called:
        if len(rated) == 1:
            return [_difference_text(*rated[0], factor)]
        return [f"no difference shown in {len(rated)} pairs"]
    lines = [
        _difference_text(difference, pair, factor)
        for difference, pair in called[:_MOST_DIFFERENCES]
    ]
    more = len(called) - len(lines)
    others = len(rated) - len(called)
    if more:
        lines.append(f"and {more} more, see differences_to_pandas()")
    if others:
        lines.append(f"no difference shown in {others} of {len(rated)} pairs")
    return lines


def _difference_text(difference: PooledDifference, pair: GroupComparison, factor: float) -> str:
    names, sign = (pair.first, pair.second), 1.0
    if difference.differs and difference.value < 0:
        names, sign = names[::-1], -1.0
    ends = sorted((sign * difference.low, sign * difference.high))
    value, low, high = (_number(factor * x, factor) for x in (sign * difference.value, *ends))
    first, second = (textwrap.shorten(name, 36, placeholder="...") for name in names)
    which = f"{first} and {second}, no difference shown"
    if difference.differs:
        which = f"{first} more than {second}"
    rate = difference.rate_in_words
    return f"{which}: {value}{' points' if factor > 1 else ''} ({low} to {high}){rate}"


def _change_text(change: MeanChange, measure: str) -> str:
    """Mean change of all neurons in two lines."""
    estimate = change.score if measure == "score" or change.share is None else change.share
    factor = 1.0 if estimate is change.score else 100.0
    value, low, high = (
        _number(factor * x, factor) for x in (estimate.value, estimate.low, estimate.high)
    )
    return (
        f"{change.n_neurons} neurons of {change.n_animals} "
        f"{'animal' if change.n_animals == 1 else 'animals'}, last session minus first:\n"
        f"mean change {value}{' points' if factor > 1 else ''} ({low} to {high})"
    )


def _number(value: float, factor: float) -> str:
    """A number for a text: one decimal for small percentages, none for large ones."""
    if np.isnan(value):
        return "unknown"
    if factor == 1:
        return f"{value:.2g}"
    return f"{round(value)}" if abs(value) >= 9.5 else f"{round(value, 1) + 0.0:g}"


def _two_lines(name: str) -> str:
    lines = textwrap.wrap(plain_text(name), _NAME_WIDTH, max_lines=_NAME_LINES, placeholder=" ...")
    return "\n".join(lines)


def _write_below(ax: Any, texts: Sequence[str]) -> None:
    if texts:
        ax.annotate(
            "\n".join(map(plain_text, texts)),
            (0, 0),
            xycoords="axes fraction",
            xytext=(0, -_BELOW),
            textcoords="offset points",
            va="top",
            fontsize=9.5,
            linespacing=1.35,
            annotation_clip=False,
        )


def _counts(row: PooledGroup, measure: str) -> str:
    """Numbers of neurons, sessions and animals beside a group."""
    neurons = f"{row.n_neurons} neurons"
    if measure == "connected":
        neurons = f"{row.n_connected} of {row.n_tested} neurons"
    return f"{neurons}\n{row.where}"


def _axis_title(block: str, measure: str) -> str:
    name = plain_text(block)
    return {
        "connected": f"neurons connected to {name} (%)",
        "score": f"mean score for {name}",
        "variance": f"variance that only {name} explains (%)",
    }[measure]


def _owner_styles(rows: Sequence[PooledGroup]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each animal, or of each session if animals are not known."""
    owners = {session.animal or session.session for row in rows for session in row.sessions}
    return _styles(sorted(owners, key=day_key))


def _styles(owners: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each animal; none if there are too many to tell them apart."""
    return group_styles(owners) if len(owners) <= _MOST_COLOURED else {}


def _owner_legend(ax: Any, styles: Mapping[str, tuple[str, str]], mean: str) -> None:
    """Explain colours and the black marker above the axes, so that they keep their width."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            ls="none",
            marker=marker,
            color=colour,
            mec="white",
            mew=0.4,
            ms=6.5,
            label=plain_text(owner),
        )
        for owner, (colour, marker) in styles.items()
    ]
    handles.append(Line2D([], [], color="0.1", lw=2.2, marker="D", ms=7, mec="white", label=mean))
    longest = max(map(len, styles), default=0)
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        # The mean is the last entry and has a column of its own, or the end of one.
        ncols=int(np.clip(45 // (longest + 5), 1, 5)),
        handletextpad=0.3,
        columnspacing=1.2,
    )


def _followed_legend(ax: Any, styles: Mapping[str, tuple[str, str]], tested: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, label=plain_text(animal))
        for animal, (colour, marker) in styles.items()
    ]
    if tested:
        for face, text in (("0.25", "connected"), ("white", "not called connected")):
            handles.append(Line2D([], [], ls="none", marker="o", mfc=face, mec="0.25", label=text))
    if handles:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _open(ax: Any) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
