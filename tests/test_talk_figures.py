"""Figures for talks: what is drawn equals the map and the recording, and errors say what to do."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color

from xcebra import AttributionMap, Recording, plots
from xcebra.attribution.groups import group_columns, usual_column
from xcebra.data.label_info import LabelInfo
from xcebra.plots.curves import label_tuning
from xcebra.statistics.significance import Connections
from xcebra.statistics.tuning_scores import head_direction_curves, means_by_bin, rate_maps

N = 8
SCORES = np.array([0.1, 3.0, 2.0, 0.0, 2.0, -0.1, 1.0, 0.2])
ORDER = [1, 2, 4, 6, 7, 0, 3, 5]
AREAS = np.array(["CA1", "ADN", "ADN", "CA1", "", "CA1", "ADN", "a$b$"])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def make(tested=True):
    p_values = np.where(SCORES > 0.5, 1e-4, 0.8)
    share = SCORES / 10
    connections = {"heading": Connections(share, share - 0.1, share + 0.2, p_values)}
    return AttributionMap(
        SCORES[:, None],
        {"heading": SCORES},
        {"heading": slice(0, 1)},
        tuple(f"n{i}" for i in range(N)),
        ("heading0",),
        connections=connections if tested else {},
        units={"area": AREAS, "depth": np.linspace(0, 1, N)},
    )


def markers(ax):
    """Place, height, colour of the edge, and whether it is filled, of every neuron."""
    found = []
    for line in ax.get_lines():
        if line.get_marker() not in ("None", None, ""):
            filled = not same_color(line.get_markerfacecolor(), "white")
            found += [
                (x, y, line.get_markeredgecolor(), filled)
                for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
            ]
    return sorted(found)


def texts(all_):
    return [each.get_text() for each in all_]


# Neurons by score


def test_neurons_are_sorted_by_their_score_and_filled_if_connected():
    ax = plots.neurons(make(), "heading", group_by="area")
    found = markers(ax)
    assert [x for x, *_ in found] == list(range(N))
    assert [y for _, y, *_ in found] == SCORES[ORDER].tolist()
    assert [filled for *_, filled in found] == (SCORES[ORDER] > 0.5).tolist()
    below = ax.figure.axes[1]
    np.testing.assert_allclose([y for _, y, *_ in markers(below)], 10 * SCORES[ORDER])
    ends = np.concatenate([each.get_segments() for each in below.collections])
    ends = ends[np.argsort(ends[:, 0, 0])]
    np.testing.assert_allclose(ends[:, 0, 1], 10 * SCORES[ORDER] - 10)
    np.testing.assert_allclose(ends[:, 1, 1], 10 * SCORES[ORDER] + 20)
    assert texts(below.get_xticklabels()) == [f"n{i}" for i in ORDER]
    ax.figure.canvas.draw()


def test_groups_have_colours_and_a_legend_and_neurons_without_one_are_grey():
    ax = plots.neurons(make(), "heading", group_by="area")
    colours = [colour for _, _, colour, _ in markers(ax)]
    areas = AREAS[ORDER]
    for area in ("CA1", "ADN"):
        assert len({colours[i] for i in np.flatnonzero(areas == area)}) == 1
    assert colours[list(areas).index("")] == "#8a8f94"
    assert len(set(colours)) == 4
    legend = texts(ax.get_legend().get_texts())
    assert legend[:4] == ["ADN", "CA1", r"a\$b\$", "missing"]
    assert legend[4] == "connected (at most 5% false)"


def test_without_a_test_nothing_is_called_and_there_is_one_panel():
    ax = plots.neurons(make(tested=False), "heading")
    assert len(ax.figure.axes) == 1
    assert not any(filled for *_, filled in markers(ax))
    assert ax.get_legend() is None


def test_a_doubt_makes_everything_grey_and_is_the_title():
    ax = plots.neurons(make(), "heading", group_by="area", doubt="it was not found")
    assert len(ax.figure.axes) == 1
    assert {colour for _, _, colour, _ in markers(ax)} == {"#8a8f94"}
    assert not any(filled for *_, filled in markers(ax))
    assert ax.get_title(loc="left") == "it was not found"


def test_neurons_are_drawn_on_the_axes_given():
    figure, (left, right) = plt.subplots(1, 2, layout="constrained")
    assert plots.neurons(make(), "heading", ax=right, most=3) is right
    assert len(markers(right)) == 3
    assert not left.has_data()
    assert len(figure.axes) == 3  # the panel of the test is below the axes given
    free = plt.figure().add_axes((0.1, 0.1, 0.8, 0.8))
    assert len(plots.neurons(make(), "heading", ax=free).figure.axes) == 1


# Groups


def test_groups_show_every_neuron_their_mean_and_how_many_are_connected():
    amap = make()
    ax = plots.groups(amap, "area", "heading")
    rows = amap.by("area").scores["heading"]
    labels = texts(ax.get_xticklabels())
    adn = next(row for row in rows if row.group == "ADN")
    interval = f"({100 * adn.low:.0f} to {100 * adn.high:.0f} %)"
    assert f"ADN\n3 of 3 connected\n{interval}" in labels
    assert sorted(y for _, y, *_ in markers(ax)) == sorted(SCORES)
    means = [each.get_segments()[0][0, 1] for each in ax.collections]
    assert means == pytest.approx([row.mean_score for row in rows])
    assert labels[0].split("\n")[0] == rows[0].group
    untested = plots.groups(make(tested=False), "area", "heading")
    assert "ADN\n3 neurons" in texts(untested.get_xticklabels())


def test_the_map_draws_both():
    amap = make()
    assert markers(amap.plot("neurons", group_by="area")) == markers(
        plots.neurons(amap, "heading", group_by="area")
    )
    drawn = amap.plot("groups", group_by="area")
    assert texts(drawn.get_xticklabels()) == texts(
        plots.groups(amap, "area", "heading").get_xticklabels()
    )


def test_columns_that_make_groups_are_found():
    units = {
        "name": np.array(list("abcd")),
        "Brain area": np.array(["x", "x", "y", "y"]),
        "depth": np.arange(4.0),
        "all": np.ones(4),
        "good": np.array([True, True, False, True]),
    }
    assert group_columns(units) == ("Brain area", "good")
    assert usual_column(units) == "Brain area"
    assert usual_column({"good": units["good"]}) is None
    assert group_columns({}) == ()


# Tuning


def recording(n_times=3000, **others):
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, n_times)
    place = rng.uniform(-1, 1, (n_times, 2))
    speed = rng.gamma(2, 1, n_times)
    speed[:50] = np.nan
    choice = rng.choice(["left", "right", "none"], n_times)
    neural = rng.poisson(2 + np.cos(angle)[:, None] * np.linspace(0, 1.5, 4)).astype(np.float32)
    labels = {"angle": angle, "place": place, "speed": speed, "choice": choice}
    info = {
        "angle": LabelInfo("circular", unit="rad"),
        "place": LabelInfo(columns=("x", "z"), unit="cm"),
        "speed": LabelInfo(unit="cm/s"),
    }
    clock = 0.1 * np.arange(n_times)
    return Recording(neural, labels, time=clock, label_info=info, **others)


def test_the_curve_of_an_angle_is_that_of_the_scores():
    rec = recording()
    curves = label_tuning(rec, "angle")
    assert (curves.shape, curves.rate_title) == ("circle", "spikes per second")
    expected = head_direction_curves(rec.neural, rec.labels["angle"], n_bins=36) / 0.1
    np.testing.assert_allclose(curves.means, expected, rtol=1e-6)
    np.testing.assert_allclose(curves.centres, 10 * np.arange(36) + 5)


def test_the_map_of_a_place_is_that_of_the_scores():
    rec = recording()
    curves = label_tuning(rec, "place", [2, 0])
    assert (curves.shape, curves.titles) == ("plane", ("x (cm)", "z (cm)"))
    n_bins = len(curves.edges[0]) - 1
    size = np.ptp(rec.labels["place"], axis=0).max() / n_bins
    expected = rate_maps(rec.neural[:, [2, 0]], rec.labels["place"], bin_size=size).rates / 0.1
    seen = ~np.isnan(curves.means)
    assert seen.mean() > 0.9
    np.testing.assert_allclose(curves.means[seen], expected[seen], rtol=1e-6)


def test_the_curve_of_a_speed_is_its_mean_in_each_bin():
    rec = recording()
    curves = label_tuning(rec, "speed")
    assert (curves.shape, curves.titles) == ("line", ("speed (cm/s)",))
    edges, speed = curves.edges[0], rec.labels["speed"][:, 0]
    inside = (speed >= edges[3]) & (speed < edges[4])
    assert curves.means[:, 3] == pytest.approx(rec.neural[inside].mean(axis=0) / 0.1, rel=1e-5)
    counts = np.histogram(speed[~np.isnan(speed)], edges)[0]
    assert np.isnan(curves.means[0][counts < 10]).all()


def test_classes_have_their_means_and_names():
    rec = recording()
    curves = label_tuning(rec, "choice")
    assert (curves.shape, curves.classes) == ("classes", ("left", "none", "right"))
    left = rec.labels["choice"][:, 0] == "left"
    assert curves.means[:, 0] == pytest.approx(rec.neural[left].mean(axis=0) / 0.1, rel=1e-5)


def test_a_delay_is_that_of_the_label():
    rec = recording()
    later = label_tuning(rec, "angle", delay=3).means
    shifted = head_direction_curves(rec.neural[:-3], rec.labels["angle"][3:], n_bins=36) / 0.1
    np.testing.assert_allclose(later, shifted, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"time": None}, "activity per sample"),
        ({"neural": recording().neural + 0.25}, "activity per sample"),
        ({"neural": recording().neural - 1}, "activity per sample"),
        ({}, "spikes per second"),
    ],
)
def test_only_counts_on_a_clock_are_spikes_per_second(change, title):
    rec = recording()
    parts = {"neural": rec.neural, "labels": rec.labels, "time": rec.time, **change}
    curves = label_tuning(Recording(**parts), "angle", kind="circular")
    assert curves.rate_title == title


def test_the_standard_error_is_that_of_independent_samples_and_grows_with_correlation():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 3, 30_000)
    noise = rng.normal(size=(30_000, 40))
    means, errors, counts = means_by_bin(noise, index, 3)
    assert counts.sum() == 30_000
    np.testing.assert_allclose(means[:, 1], noise[index == 1].mean(axis=0))
    np.testing.assert_allclose(errors.mean(axis=0), 1 / np.sqrt(counts), rtol=0.1)
    slow = np.repeat(rng.normal(size=(300, 40)), 100, axis=0)
    _, larger, _ = means_by_bin(slow, index, 3)
    assert larger.mean() > 3 * errors.mean()


def test_bins_that_were_not_visited_are_unknown():
    means, errors, counts = means_by_bin(np.ones((10, 1)), [0] * 5 + [-1] * 4 + [2], 3)
    assert counts.tolist() == [5, 0, 1]
    assert np.isnan(means[0]).tolist() == [False, True, False]
    assert np.isnan(errors[0]).tolist() == [False, True, True]


@pytest.mark.parametrize("label", ["angle", "place", "speed", "choice"])
def test_every_kind_of_label_is_drawn(label):
    rec = recording(units={"area": ["a$b$", "CA1", "CA1", ""]})
    axes = plots.tuning(rec, label, ["3", 0, 1, 2], group_by="area")
    assert axes.shape == (4,)
    titles = [ax.get_title().split("\n")[0] for ax in axes]
    assert titles == ["neuron 3, missing", r"neuron 0, a\$b\$", "neuron 1, CA1", "neuron 2, CA1"]
    curves = label_tuning(rec, label, [3, 0, 1, 2])
    if label == "place":
        shown = np.ma.filled(axes[0].get_images()[0].get_array(), np.nan)
        np.testing.assert_allclose(shown, curves.means[0].T)
    elif label == "choice":
        assert [bar.get_height() for bar in axes[1].patches] == pytest.approx(curves.means[1])
    else:
        drawn = axes[1].get_lines()[0].get_ydata()
        np.testing.assert_allclose(drawn[: curves.means.shape[1]], curves.means[1])
    axes[0].figure.canvas.draw()


def test_a_figure_is_saved_as_text_and_the_same_each_time(tmp_path):
    first = plots.save(plots.neurons(make(), "heading", group_by="area"), tmp_path / "a.svg")
    second = plots.save(plots.neurons(make(), "heading", group_by="area"), tmp_path / "b.svg")
    assert "score for heading" in first.read_text("utf-8")
    assert "a$b$" in first.read_text("utf-8")
    assert first.read_bytes() == second.read_bytes()
    for suffix in (".png", ".pdf"):
        axes = plots.tuning(recording(500), "angle", [0])
        assert plots.save(axes, tmp_path / f"c{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("draw", "message", "argument"),
    [
        (lambda: plots.neurons(make(), "speed"), "block must be one of ['heading']", None),
        (lambda: plots.neurons(make(), "heading", group_by="aera"), "did you mean 'area'?",
         "group_by"),
        (lambda: plots.neurons(make(), "heading", most=0), "most must be a whole number of 1",
         "most"),
        (lambda: plots.groups(make(), "regoin", "heading"), "is no column of the units",
         "group_by"),
        (lambda: make().plot("groups"), "kind='groups' needs group_by", "group_by"),
        (lambda: plots.tuning(recording(), "angel", [0]), "did you mean 'angle'?", "label"),
        (lambda: plots.tuning(recording(), "angle", [4]), "positions from 0 to 3, got 4",
         "neurons"),
        (lambda: plots.tuning(recording(), "angle", ["x"]), "is no neuron of the recording",
         "neurons"),
        (lambda: plots.tuning(recording(), "angle", []), "neurons is empty", "neurons"),
        (lambda: plots.tuning(recording(), "angle", [0], n_columns=0), "n_columns must be",
         "n_columns"),
        (lambda: label_tuning(Recording(np.ones((9, 1)), {"a": np.eye(9)[:, :3]}), "a"),
         "has 3 columns", "label"),
        (lambda: plots.save(plots.neurons(make(), "heading"), "a.gif"), "must end in .png",
         "path"),
    ],
)  # fmt: skip
def test_errors_name_the_argument_and_the_remedy(draw, message, argument):
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        draw()
    if argument is not None:
        assert argument in raised.value.arguments
