"""Pictures: what is drawn equals the data, on the axes given or on new ones."""

import re
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

from xcebra import plots
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.steps import Steps
from xcebra.training.goodness_of_fit import GoodnessOfFit

BLOCKS = {"position": slice(0, 2), "time": slice(2, 3)}
LATENTS = ("position0", "position1", "time0")
TRUTH = np.array([True, False, False, True])
HISTORY = {
    "loss/time": np.array([3.0, 2.0, 1.5]),
    "chance/time": np.array([3.0, 3.0, 3.0]),
    "loss/position": np.array([4.0, 3.5, 3.0]),
    "chance/position": np.array([4.0, 4.0, 4.0]),
    "seconds": np.array([1.0, 1.0, 1.0]),
}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def make(times=30, aggregate="mean", n_neurons=4):
    times = np.arange(times) if np.ndim(times) == 0 else times
    maps = np.random.default_rng(0).standard_normal((len(times), n_neurons, 3))
    return AttributionMap.from_steps(
        Steps(maps.astype(np.float32), times),
        BLOCKS,
        tuple(f"n{i}" for i in range(n_neurons)),
        LATENTS,
        aggregate=aggregate,
    )


DRAW = {
    "attribution_map": lambda ax=None: plots.attribution_map(make(), ax=ax),
    "attribution_map with truth": lambda ax=None: plots.attribution_map(
        make(), ax=ax, truth={"z": TRUTH}
    ),
    "block_scores": lambda ax=None: plots.block_scores(make(), "time", ax=ax),
    "scores_over_time": lambda ax=None: plots.scores_over_time(make(), "time", ax=ax),
    "training_curves": lambda ax=None: plots.training_curves(HISTORY, ax=ax),
    "map": lambda ax=None: make().plot(ax=ax),
    "bars": lambda ax=None: make().plot("bars", ax=ax),
    "time": lambda ax=None: make().plot("time", ax=ax),
}


def image(ax):
    (found,) = ax.get_images()
    return found.get_array()


def names(ticks):
    return [tick.get_text() for tick in ticks]


def bars(ax):
    """Height of the bar at every neuron, and its colour."""
    found = {round(b.get_x() + b.get_width() / 2, 6): b for b in ax.patches}
    assert len(found) == len(ax.patches)
    at = sorted(found)
    return at, [found[i].get_height() for i in at], [found[i].get_facecolor() for i in at]


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW.keys())
def test_a_picture_is_drawn_on_the_axes_given(draw):
    figure, (left, right) = plt.subplots(1, 2)
    assert draw(ax=right) is right
    assert plt.get_fignums() == [figure.number]
    assert not left.has_data()
    assert right.has_data()
    figure.canvas.draw()


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW.keys())
def test_without_axes_a_figure_is_made(draw):
    assert plt.get_fignums() == []
    ax = draw()
    assert ax.has_data()
    assert plt.get_fignums() == [ax.figure.number]
    ax.figure.canvas.draw()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'xcebra[plot]'")):
        make().plot()


# Neurons by latents


@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_a_heat_map_shows_every_value_as_a_share_of_its_blocks_largest(aggregate):
    amap = make(aggregate=aggregate)
    ax = plots.attribution_map(amap)
    expected = amap.values.copy()
    for latents in ([0, 1], [2]):
        expected[:, latents] /= amap.values[:, latents].max()
    np.testing.assert_allclose(image(ax), expected, rtol=1e-12)
    assert names(ax.get_xticklabels()) == list(LATENTS)
    assert names(ax.get_yticklabels()) == ["n0", "n1", "n2", "n3"]
    # One line, between the two blocks.
    (line,) = ax.get_lines()
    assert list(line.get_xdata()) == [1.5, 1.5]
    told = " ".join(child.get_xlabel() for child in ax.child_axes)
    assert told.startswith(f"{aggregate} |attribution|")


def test_a_block_of_zeros_is_shown_as_zeros():
    values = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    scores = {"position": np.zeros(2), "time": values[:, 2]}
    amap = AttributionMap(values, scores, BLOCKS, ("a", "b"), LATENTS)
    assert np.array_equal(image(plots.attribution_map(amap)), [[0, 0, 1], [0, 0, 0.5]])


def test_the_known_wiring_is_shown_beside_the_map():
    truth = {"z1": TRUTH, "z2": ~TRUTH}
    ax = make().plot(truth=truth)
    beside = next(child for child in ax.child_axes if child.get_title() == "truth")
    assert np.array_equal(image(beside), np.column_stack([TRUTH, ~TRUTH]))
    assert names(beside.get_xticklabels()) == ["z1", "z2"]


def test_many_neurons_are_not_named():
    ax = plots.attribution_map(make(n_neurons=41))
    assert "n0" not in names(ax.get_yticklabels())


# Bars


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("truth", [None, TRUTH, TRUTH.tolist(), np.zeros(4, bool)])
def test_a_bar_is_as_high_as_the_score_and_tells_the_connection(block, truth):
    amap = make()
    at, heights, colours = bars(plots.block_scores(amap, block, truth=truth))
    assert at == [0, 1, 2, 3]
    np.testing.assert_allclose(heights, amap.block(block), rtol=1e-12)
    connected = np.ones(4, bool) if truth is None else np.array(truth)
    assert [c == colours[np.argmax(connected)] for c in colours] == (
        [True] * 4 if not connected.any() else connected.tolist()
    )


def test_a_legend_is_there_if_there_is_a_truth():
    assert plots.block_scores(make(), "time").get_legend() is None
    legend = plots.block_scores(make(), "time", truth=TRUTH).get_legend()
    assert names(legend.get_texts()) == ["connected", "unconnected"]


# Over time


def by_naive_means(amap, block, n_bins):
    """Mean of each equal stretch of time, sample by sample; NaN where there is none."""
    times = amap.steps.times
    norms = np.linalg.norm(amap.steps.maps[:, :, BLOCKS[block]].astype(float), axis=2)
    apart = int(np.median(np.diff(times))) if len(times) > 1 else 1
    span = int(times[-1] + apart - times[0])
    members = [[] for _ in range(n_bins)]
    for t, norm in zip(times, norms, strict=True):
        members[int(t - times[0]) * n_bins // span].append(norm)
    return np.array(
        [np.mean(m, axis=0) if m else np.full(norms.shape[1], np.nan) for m in members]
    ).T


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    ("times", "n_bins", "ends"),
    [
        (np.arange(1), 1, (0, 1)),
        (np.arange(5, 35), 30, (5, 35)),
        (np.arange(600), 600, (0, 600)),
        (np.arange(601), 600, (0, 601)),
        (np.arange(900), 600, (0, 900)),
        (np.arange(6001), 600, (0, 6001)),
        # Every third sample; two epochs with a gap between them.
        (np.arange(0, 90, 3), 30, (0, 90)),
        (np.r_[10:20, 40:45], 35, (10, 45)),
        (np.r_[0:1000, 5000:6000], 600, (0, 6000)),
    ],
)
def test_scores_over_time_are_means_of_equal_stretches(times, n_bins, ends, block):
    amap = make(times)
    ax = plots.scores_over_time(amap, block)
    found = np.ma.filled(image(ax), np.nan)
    assert found.shape == (4, n_bins)
    np.testing.assert_allclose(found, by_naive_means(amap, block, n_bins), rtol=1e-6)
    assert tuple(ax.get_images()[0].get_extent()) == (*ends, 3.5, -0.5)


def test_up_to_600_samples_are_shown_one_by_one():
    amap = make(np.arange(7, 400))
    norms = np.linalg.norm(amap.steps.maps[:, :, :2], axis=2)
    np.testing.assert_allclose(image(plots.scores_over_time(amap, "position")), norms.T, rtol=1e-6)


def test_three_times_600_samples_are_shown_as_means_of_three():
    amap = make(np.arange(1800))
    norms = np.abs(amap.steps.maps[:, :, 2])
    expected = norms.reshape(600, 3, 4).mean(axis=1).T
    np.testing.assert_allclose(image(plots.scores_over_time(amap, "time")), expected, rtol=1e-6)


def test_what_the_map_leaves_out_stays_blank():
    amap = make(np.arange(100)).restrict(epochs=[(0, 30), (70, 100)])
    found = image(plots.scores_over_time(amap, "time"))
    blank = np.isnan(np.ma.filled(found, np.nan))
    assert np.array_equal(blank, np.tile((np.arange(100) >= 30) & (np.arange(100) < 70), (4, 1)))


def test_neurons_are_shown_in_the_order_asked_for():
    amap, order = make(), [2, 0, 3]
    plain = image(plots.scores_over_time(amap, "time"))
    ax = plots.scores_over_time(amap, "time", order=order)
    assert np.array_equal(image(ax), plain[order])
    assert names(ax.get_yticklabels()) == ["n2", "n0", "n3"]


# Training


def test_curves_are_the_losses_and_the_level_of_chance():
    ax = plots.training_curves(HISTORY)
    drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
    order = ["loss/time", "chance/time", "loss/position", "chance/position"]
    assert drawn == [HISTORY[name].tolist() for name in order]
    assert all(line.get_xdata().tolist() == [1, 2, 3] for line in ax.get_lines())
    assert names(ax.get_legend().get_texts()) == ["time", "chance", "position"]


# The map's own method


def test_a_map_draws_each_kind_of_picture():
    amap = make()
    assert np.array_equal(image(amap.plot("map")), image(plots.attribution_map(amap)))
    for block in (None, "position", "time"):
        name = block or "position"
        at = bars(amap.plot("bars", block=block, truth=TRUTH))
        assert at == bars(plots.block_scores(amap, name, truth=TRUTH))
        found = image(amap.plot("time", block=block))
        assert np.array_equal(found, image(plots.scores_over_time(amap, name)))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: make().plot("pie"),
            "kind must be 'map', 'bars', 'time', 'neurons' or 'groups', got 'pie'",
        ),
        (lambda: make().plot("bars", block="z"), r"block must be one of \['position', 'time'\]"),
        (lambda: make().plot("time", block="z"), r"block must be one of \['position', 'time'\]"),
        (lambda: make().plot(truth=TRUTH), "truth must be a mapping from the names of factors"),
        (lambda: make().plot("bars", truth={"z": TRUTH}), "truth must be one array with a bool"),
        (lambda: make().plot("bars", truth=TRUTH[:3]), "with a bool for each of 4 neurons"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_scores_over_time_need_every_step():
    amap = make()
    bare = AttributionMap(amap.values, amap.scores, BLOCKS, amap.neuron_names, LATENTS)
    with pytest.raises(ValueError, match=re.escape("attribute(..., keep_time=True)")):
        bare.plot("time")


# The penalty's path, and goodness of fit


def test_the_path_of_the_penalty_is_that_of_the_history():
    weight = np.array([0.0, 0.01, 0.02, 0.02])
    ax = plots.penalty_path({**HISTORY, "weight": weight})
    assert ax.lines[0].get_ydata() == pytest.approx([np.nan, 0.01, 0.02, 0.02], nan_ok=True)
    assert ax.get_yscale() == "log"
    assert len(ax.figure.axes) == 1


def test_what_a_search_cost_is_drawn_as_a_share_of_what_was_learned():
    history = {
        "weight": np.array([0.0, 0.01, 0.02, 0.02]),
        "loss/label": np.array([5.0, 4.1, 4.2, 4.0]),
        "chance/label": np.full(4, 6.0),
        "lost/label": np.array([np.nan, 0.1, 0.2, np.nan]),
    }
    beside = plots.penalty_path(history).figure.axes[1]
    share, limit = (line.get_ydata() for line in beside.lines)
    assert share == pytest.approx([np.nan, 5.0, 10.0, np.nan], nan_ok=True)
    assert set(limit) == {5.0}
    assert [each.get_text() for each in beside.get_legend().get_texts()] == ["label", "may lose"]


def test_a_fit_without_penalty_has_a_flat_path():
    assert plots.penalty_path({"weight": np.zeros(3)}).get_yscale() == "linear"


def test_goodness_of_fit_shows_losses_shifts_and_verdicts():
    fits = {
        "position": GoodnessOfFit(4.0, 6.0, True, 0.005, 7.0, (6.9, 7.0, 7.1), 0.5, 0),
        "noise": GoodnessOfFit(6.1, 6.0, False, 0.6, 6.1, (6.0, 6.1, 6.2), 0.0, 0),
        "time": GoodnessOfFit(3.0, 6.0, None),
    }
    ax = plots.goodness_of_fit(fits)
    assert [each.get_text() for each in ax.get_yticklabels()] == list(fits)
    drawn = [line.get_xdata() for line in ax.lines]
    assert list(drawn[0]) == [6.9, 7.0, 7.1]
    assert [float(drawn[i][0]) for i in (2, 5, 8)] == [4.0, 6.1, 3.0]
    assert all(set(drawn[i]) == {6.0} for i in (1, 4, 7))
    words = [each.get_text() for each in ax.texts]
    assert words == [
        "learned, p = 0.005, effect 0.63",
        "NOT learned, p = 0.600, effect 0.00",
        "unclear",
    ]
