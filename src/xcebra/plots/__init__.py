"""Plots of maps and fits. Every function draws on ``ax``, or on new axes, and returns the axes.

`neurons`, `groups`, `pooled_groups`, `followed` and `tuning` are made for talks: fonts of 9 to 11
points, colours that everyone can tell apart, and no more lines than needed. `save` writes any
figure as PNG, SVG or PDF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError, MissingExtraError
from xcebra.plots.neuron_scores import groups, neurons
from xcebra.plots.pooled import followed, pooled_groups
from xcebra.plots.style import save
from xcebra.plots.tuning_grid import tuning
from xcebra.training.weight_search import MAY_LOSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xcebra.attribution.attribution_map import AttributionMap

__all__ = [
    "agreement",
    "attribution_map",
    "binned",
    "block_scores",
    "followed",
    "goodness_of_fit",
    "groups",
    "neurons",
    "penalty_path",
    "pooled_groups",
    "save",
    "scores_over_time",
    "training_curves",
    "tuning",
]

# Neurons are named on the axis up to this number; more names would overlap. Not tuned.
_MOST_NAMES = 40
# Most bins in time. More bins show finer detail and take longer to draw. Not tuned.
_MOST_BINS = 600
_CONNECTED, _UNCONNECTED = "#1f6f8b", "#c8ccd0"


def attribution_map(
    amap: AttributionMap,
    *,
    ax: Axes | None = None,
    truth: Mapping[str, Any] | None = None,
) -> Axes:
    """Heat map of neurons by latents, with each block scaled by its largest value.

    Parameters
    ----------
    amap : AttributionMap
    ax : Axes, optional
    truth : mapping of str to bool array of shape (n_neurons,), optional
        True connections by factor, which are drawn beside the map.
    """
    ax = _axes(ax, size=(5.2, 6.0))
    values = np.array(amap.values)
    for block in amap.blocks.values():
        largest = values[:, block].max()
        values[:, block] /= largest if largest > 0 else 1.0
    image = ax.imshow(
        values, aspect="auto", cmap="magma_r", vmin=0, vmax=1, interpolation="nearest"
    )
    _separate(ax, amap.blocks)
    ax.set_xticks(range(values.shape[1]), amap.latent_names, rotation=90)
    _name_neurons(ax, amap.neuron_names)
    ax.set_ylabel("neuron")
    ax.set_title("attribution")
    if truth is not None and len(truth):
        if not isinstance(truth, Mapping):
            raise InputError("truth must be a mapping from the names of factors to bool arrays")
        beside = ax.inset_axes((1.06, 0.0, 0.09 * len(truth), 1.0))
        table = np.column_stack([np.asarray(t, dtype=float) for t in truth.values()])
        beside.imshow(
            table, aspect="auto", cmap="magma_r", vmin=0, vmax=1.15, interpolation="nearest"
        )
        beside.set_xticks(range(len(truth)), list(truth), rotation=90)
        beside.set_yticks([])
        beside.set_title("truth")
    scale = ax.inset_axes((0.0, 0.0, 1.0, 0.02), transform=_below(ax))
    bar = ax.figure.colorbar(image, cax=scale, orientation="horizontal")
    aggregate = amap.made.get("aggregate", "mean")
    bar.set_label(f"{aggregate} |attribution|, share of each block's largest", fontsize="small")
    return ax


def block_scores(
    amap: AttributionMap,
    block: str,
    *,
    ax: Axes | None = None,
    truth: NDArray[np.bool_] | None = None,
) -> Axes:
    """Bar plot of the scores of all neurons for a block.

    Parameters
    ----------
    amap : AttributionMap
    block : str
    ax : Axes, optional
    truth : bool array of shape (n_neurons,), optional
        Whether each neuron is truly connected. Bars are coloured accordingly.
    """
    ax = _axes(ax, size=(7.0, 2.8))
    scores = amap.block(block)
    connected = np.ones(len(scores), dtype=bool) if truth is None else np.asarray(truth, bool)
    if connected.shape != scores.shape:
        raise InputError(f"truth must be one array with a bool for each of {len(scores)} neurons")
    for chosen, colour, name in (
        (connected, _CONNECTED, "connected"),
        (~connected, _UNCONNECTED, "unconnected"),
    ):
        if chosen.any():
            ax.bar(np.flatnonzero(chosen), scores[chosen], width=0.85, color=colour, label=name)
    ax.set_xlabel("neuron")
    ax.set_ylabel(f"score for {block!r}")
    ax.margins(x=0.01)
    if truth is not None:
        ax.legend(frameon=False)
    _open(ax)
    return ax


def scores_over_time(
    amap: AttributionMap, block: str, *, ax: Axes | None = None, order: Any = None
) -> Axes:
    """Heat map of a block's scores, neurons by time; long recordings are averaged in bins.

    Stretches of the recording that are not part of the map stay blank.

    Parameters
    ----------
    amap : AttributionMap
        A map that was computed with ``keep_time=True``.
    block : str
    ax : Axes, optional
    order : array-like of int, optional
        Indices of neurons from top to bottom. By default, all neurons in the order of the
        recording.
    """
    amap.block(block)
    if amap.steps is None:
        raise InputError(
            "scores over time need the map of every time step; make it with "
            "attribute(..., keep_time=True)"
        )
    ax = _axes(ax, size=(7.0, 4.0))
    norms = amap.steps.norms(amap.blocks[block])
    edges, means = binned(amap.steps.times, norms)
    chosen = np.arange(norms.shape[1]) if order is None else np.asarray(order)
    image = ax.imshow(
        means[:, chosen].T,
        aspect="auto",
        cmap="magma_r",
        vmin=0,
        interpolation="nearest",
        extent=(edges[0], edges[-1], len(chosen) - 0.5, -0.5),
    )
    _name_neurons(ax, tuple(amap.neuron_names[i] for i in chosen))
    ax.set_xlabel("sample")
    ax.set_ylabel("neuron")
    ax.set_title(f"score for {block!r} over time")
    figure: Any = ax.figure
    figure.colorbar(image, ax=ax, label="|attribution|")
    return ax


def training_curves(history: Mapping[str, NDArray[Any]], *, ax: Axes | None = None) -> Axes:
    """Loss of each objective over training, and its loss at chance.

    Parameters
    ----------
    history : mapping of str to ndarray of shape (n_steps,)
        `XCEBRA.history_`.
    ax : Axes, optional
    """
    ax = _axes(ax, size=(7.0, 2.8))
    names = [key.removeprefix("loss/") for key in history if key.startswith("loss/")]
    for i, name in enumerate(names):
        loss, chance = history[f"loss/{name}"], history[f"chance/{name}"]
        steps = np.arange(1, len(loss) + 1)
        ax.plot(steps, loss, color=f"C{i}", lw=0.8, label=name)
        ax.plot(steps, chance, color="0.5", lw=0.8, ls="--", label=None if i else "chance")
    ax.set_xlabel("step")
    ax.set_ylabel("loss (nats)")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _open(ax)
    return ax


def penalty_path(history: Mapping[str, NDArray[Any]], *, ax: Axes | None = None) -> Axes:
    """Weight of the Jacobian penalty over training, and its cost if the weight was searched for.

    The cost is the difference between the loss of each objective and the loss of a twin network
    without the penalty, as a share of what the objective has learned.

    Parameters
    ----------
    history : mapping of str to ndarray of shape (n_steps,)
        `XCEBRA.history_`.
    ax : Axes, optional
    """
    ax = _axes(ax, size=(7.0, 2.8))
    weight = history["weight"]
    steps = np.arange(1, len(weight) + 1)
    ax.plot(steps, np.where(weight > 0, weight, np.nan), color="0.2", lw=1.5)
    ax.set_yscale("log" if (weight > 0).any() else "linear")
    ax.set_xlabel("step")
    ax.set_ylabel("weight of the penalty")
    _open(ax)
    names = [key.removeprefix("lost/") for key in history if key.startswith("lost/")]
    if not names:
        return ax
    beside = ax.twinx()
    for i, name in enumerate(names):
        lost = history[f"lost/{name}"]
        learned = history[f"chance/{name}"] - history[f"loss/{name}"] + lost
        share = np.where(learned > 0, lost / np.where(learned > 0, learned, 1.0), np.nan)
        beside.plot(steps, 100 * share, color=f"C{i}", lw=0.8, label=name)
    beside.axhline(100 * MAY_LOSE, color="0.5", lw=0.8, ls="--", label="may lose")
    beside.set_ylabel("lost to the penalty (%)")
    beside.legend(frameon=False, loc="center right")
    beside.spines["top"].set_visible(False)
    return ax


def goodness_of_fit(fits: Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """Held-out loss of each objective, its losses after shifts in time, and its loss at chance.

    Parameters
    ----------
    fits : mapping of str to GoodnessOfFit
        `XCEBRA.goodness_of_fit_`.
    ax : Axes, optional
    """
    ax = _axes(ax, size=(7.0, 1.2 + 0.7 * len(fits)))
    for row, fit in enumerate(fits.values()):
        colour = {True: _CONNECTED, False: "#a3261b", None: "0.4"}[fit.learned]
        nulls = np.array(fit.nulls)
        # Points are placed at different heights by rank, so that they do not hide each other.
        lifted = row + 0.5 * (np.arange(len(nulls)) / max(1, len(nulls) - 1) - 0.5)
        ax.plot(nulls, lifted, ".", ms=3, color="0.7", label=None if row else "shifted")
        ax.plot([fit.chance] * 2, [row - 0.35, row + 0.35], "--", color="0.4", lw=1,
                label=None if row else "chance")  # fmt: skip
        ax.plot(fit.loss, row, "o", ms=7, color=colour, label=None if row else "loss")
        text = {"yes": "learned", "no": "NOT learned", "unclear": "unclear"}[fit.verdict]
        text += "" if fit.p_value is None else f", p = {fit.p_value:.3f}"
        text += "" if fit.effect is None else f", effect {fit.effect:.2f}"
        ax.annotate(
            text, (1.02, row), xycoords=("axes fraction", "data"), va="center", color=colour
        )
    ax.set_yticks(range(len(fits)), list(fits))
    ax.set_ylim(len(fits) - 0.5, -0.5)
    ax.set_xlabel("held-out loss (nats)")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=3)
    _open(ax)
    return ax


def agreement(
    names: Sequence[str],
    mean: NDArray[Any],
    error: NDArray[Any],
    chosen: int,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Agreement between the fits of each candidate, with standard errors.

    Parameters
    ----------
    names : sequence of str
        Names of the candidates.
    mean, error : ndarray of shape (n_candidates,)
        Mean agreement and its standard error.
    chosen : int
        Index of the candidate that is marked as chosen.
    ax : Axes, optional
    """
    ax = _axes(ax, size=(1.6 + 0.45 * len(names), 3.0))
    places = np.arange(len(names))
    ax.errorbar(places, mean, error, color=_CONNECTED, marker="o", ms=4, capsize=2, lw=1)
    ax.plot(chosen, mean[chosen], "o", ms=11, mfc="none", mec="0.2", label="chosen")
    ax.set_xticks(places, names)
    ax.set_xlabel("latents")
    ax.set_ylabel("agreement of fits (R$^2$)")
    ax.legend(frameon=False, loc="lower right")
    _open(ax)
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError(
            "plots need matplotlib; install it with: pip install 'xcebra[plot]'"
        ) from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def binned(times: NDArray[Any], norms: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Average scores in equal bins of time.

    Parameters
    ----------
    times : ndarray of int of shape (n_times,)
        Sample indices, ascending.
    norms : ndarray of shape (n_times, n_neurons)

    Returns
    -------
    edges : ndarray of shape (n_bins + 1,)
    means : ndarray of shape (n_bins, n_neurons)
        NaN for bins without a sample.
    """
    interval = int(np.median(np.diff(times))) if len(times) > 1 else 1
    span = int(times[-1]) + interval - int(times[0])
    n_bins = min(_MOST_BINS, -(-span // interval))
    # Integer arithmetic is exact: a sample on an edge belongs to the bin that starts there.
    bin_index = (times - times[0]) * n_bins // span
    starts = np.flatnonzero(np.diff(bin_index, prepend=-1))
    sizes = np.diff(starts, append=len(times))
    means = np.full((n_bins, norms.shape[1]), np.nan)
    sums = np.add.reduceat(norms, starts, axis=0, dtype=np.float64)
    means[bin_index[starts]] = sums / sizes[:, None]
    return np.linspace(times[0], times[0] + span, n_bins + 1), means


def _below(ax: Axes) -> Any:
    """Coordinates of the axes, moved down by a fixed distance to leave room for latent names."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    return ax.transAxes + ScaledTranslation(0, -0.9, figure.dpi_scale_trans)


def _separate(ax: Axes, blocks: Mapping[str, slice]) -> None:
    """Draw white lines between blocks."""
    for block in list(blocks.values())[1:]:
        ax.axvline(block.start - 0.5, color="white", lw=2.5)


def _name_neurons(ax: Axes, names: tuple[str, ...]) -> None:
    if len(names) <= _MOST_NAMES:
        ax.set_yticks(range(len(names)), names)


def _open(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
