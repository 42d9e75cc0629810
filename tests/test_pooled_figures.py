"""Figures of several sessions: what is drawn equals the numbers, and no text covers another."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import xcebra
from xcebra import plots
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.common.errors import InputError
from xcebra.statistics.significance import Connections


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def make(rng, areas, likely, tested=True):
    n = len(areas)
    connected = rng.random(n) < likely
    scores = connected * rng.gamma(2, 0.5, n)
    share = 0.1 * scores
    tests = Connections(share, share - 0.02, share + 0.03, np.where(connected, 1e-6, 0.9))
    return AttributionMap(
        scores[:, None],
        {"heading": scores},
        {"heading": slice(0, 1)},
        tuple(map(str, range(n))),
        ("heading0",),
        connections={"heading": tests} if tested else {},
        units={"area": np.array(areas), "cell": np.arange(n)},
    )


def pooled(names, n_animals=3, n_sessions=2, tested=True, days=False):
    rng = np.random.default_rng(0)
    likely = np.repeat(np.linspace(0.9, 0.1, len(names)), 8)
    sessions = [f"m{a}_{s}" for a in range(n_animals) for s in range(n_sessions)]
    maps = {name: make(rng, np.repeat(names, 8), likely, tested) for name in sessions}
    animals = {name: f"mouse {name[1:].split('_')[0]}" for name in sessions}
    return xcebra.pool(maps, animals, {n: int(n[-1]) for n in sessions} if days else None)


def overlaps(ax):
    """Pairs of texts beside and below the axes that cover each other."""
    ax.figure.canvas.draw()
    texts = [t for t in (*ax.texts, *ax.get_yticklabels(), *ax.get_xticklabels(), ax.xaxis.label)
             if t.get_text()]  # fmt: skip
    texts += list(ax.get_legend().get_texts())
    boxes = [text.get_window_extent() for text in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(boxes))
        for j in range(i)
        if boxes[i].shrunk(0.95, 0.9).overlaps(boxes[j].shrunk(0.95, 0.9))
    ]


class TestPooledGroups:
    def test_means_intervals_and_sessions_are_drawn(self):
        groups = pooled(["adn", "ca1"]).by("area")
        ax = plots.pooled_groups(groups, "heading")
        rows = groups.groups["heading"]
        diamonds = [line for line in ax.get_lines() if line.get_markersize() == 8]
        assert [line.get_xdata()[0] for line in diamonds] == pytest.approx(
            [100 * row.connected.value for row in rows]
        )
        segments = [c.get_segments()[0] for c in ax.collections]
        np.testing.assert_allclose(
            [segment[:, 0] for segment in segments],
            [(100 * row.connected.low, 100 * row.connected.high) for row in rows],
        )
        sessions = [line.get_xdata()[0] for line in ax.get_lines() if line.get_markersize() == 6.5]
        assert sorted(sessions) == pytest.approx(
            sorted(100 * s.connected for row in rows for s in row.sessions)
        )
        texts = [text.get_text() for text in ax.texts]
        assert texts[0] == f"{rows[0].n_connected} of 48 neurons\n6 sessions of 3 animals"
        assert texts[-1].startswith("adn more than ca1: ")

    @pytest.mark.parametrize("n_groups", [2, 5, 9])
    @pytest.mark.parametrize("long", [False, True])
    def test_no_text_covers_another(self, n_groups, long):
        end = " of a structure with a long name, layers 2 and 3" if long else ""
        names = [f"area {k}{end}" for k in range(n_groups)]
        ax = plots.pooled_groups(pooled(names, n_animals=12).by("area"), "heading")
        assert overlaps(ax) == []

    def test_measures(self):
        groups = pooled(["adn", "ca1"]).by("area")
        ax = plots.pooled_groups(groups, "heading", measure="score")
        assert ax.get_xlabel() == "mean score for heading"
        ax = plots.pooled_groups(groups, "heading", measure="variance")
        assert ax.get_xlabel() == "variance that only heading explains (%)"
        untested = pooled(["adn", "ca1"], tested=False).by("area")
        assert plots.pooled_groups(untested, "heading").get_xlabel() == "mean score for heading"

    def test_on_the_axes_given(self):
        _, given = plt.subplots()
        assert plots.pooled_groups(pooled(["a$b$"]).by("area"), "heading", ax=given) is given

    def test_what_cannot_be_drawn(self):
        groups = pooled(["adn", "ca1"], tested=False).by("area")
        with pytest.raises(InputError, match=r"block must be one of \['heading'\], got 'speed'"):
            plots.pooled_groups(groups, "speed")
        with pytest.raises(InputError, match="measure='connected' needs a test of 'heading'"):
            plots.pooled_groups(groups, "heading", measure="connected")
        with pytest.raises(InputError, match="measure must be 'connected', 'score' or"):
            plots.pooled_groups(groups, "heading", measure="shares")


class TestFollowed:
    def test_neurons_are_lines_over_days(self):
        followed = pooled(["adn"], n_sessions=3, days=True).followed("cell")
        ax = plots.followed(followed, "heading")
        lines = [line for line in ax.get_lines() if line.get_linestyle() == "-"][:-1]
        rows = followed.neurons["heading"]
        assert len(rows) == 24
        for line, row in zip(lines, rows, strict=True):
            np.testing.assert_allclose(line.get_xdata(), row.days)
            np.testing.assert_allclose(line.get_ydata(), 100 * row.shares)
        assert ax.get_title(loc="left").startswith("24 neurons of 3 animals, last session minus")
        assert plots.followed(followed, "heading", measure="score").get_ylabel() == (
            "score for heading"
        )

    def test_what_cannot_be_drawn(self):
        followed = pooled(["adn"], tested=False, days=True).followed("cell")
        with pytest.raises(InputError, match="measure='share' needs a test"):
            plots.followed(followed, "heading", measure="share")
        with pytest.raises(InputError, match="block must be one of"):
            plots.followed(followed, "speed")
        with pytest.raises(InputError, match="measure must be 'share' or 'score'"):
            plots.followed(followed, "heading", measure="variance")
