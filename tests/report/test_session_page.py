"""The page of several sessions: its numbers, its words, and how it looks in a real browser."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.report.session_case import HOSTILE
from xcebra.attribution.label_axes import Readout
from xcebra.joint_sessions import crossed_readouts
from xcebra.report.session_export import write_session_tables
from xcebra.report.session_figures import (
    GroupPoints,
    Point,
    owner_styles,
    score_ends,
    strips,
    ticks,
)
from xcebra.report.session_maps import groups_of
from xcebra.report.session_page import report_sessions, session_page
from xcebra.statistics.hierarchical import Estimate

pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")


@pytest.fixture(scope="module")
def pages(joint_run):
    run, _ = joint_run
    return report_sessions(None, run)


@pytest.fixture(scope="module")
def text(pages):
    return pages[0].read_text("utf-8")


class TestWords:
    def test_it_answers_by_area_with_the_words_of_the_groups(self, joint_run, text):
        _, pooled = joint_run
        groups = groups_of(pooled, "area")
        assert "<h1>Which areas carry heading?</h1>" in text
        assert "4 sessions of 2 animals, fitted together" in text
        lines = [row.in_words() for row in groups.groups["heading"]]
        lines += [pair.in_words() for pair in groups.comparisons["heading"]]
        assert len(lines) == 3
        for line in lines:
            assert f"<li>{line.replace('<', '&lt;').replace('>', '&gt;')}.</li>" in text

    def test_names_of_sessions_animals_and_neurons_are_escaped(self, pages, text):
        for page in (text, *(path.read_text("utf-8") for path in pages[1:])):
            assert "<img" not in page
            assert not re.search(r"<b>\d</b>|<i>mouse</i>", page)
        assert "&lt;b&gt;0&lt;/b&gt; 1" in text
        assert "&lt;i&gt;mouse&lt;/i&gt;0" in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text

    def test_it_needs_no_other_file_and_links_to_the_pages_of_sessions(self, pages, text):
        links = set(re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', text))
        assert links == {f"sessions/b_{a}_b_{d}/report.html" for a in (0, 1) for d in (1, 2)}
        assert {str(path.relative_to(pages[0].parent)) for path in pages[1:]} == links

    def test_there_is_no_caution_that_the_groups_do_not_give(self, joint_run):
        run, pooled = joint_run
        one = replace(pooled, animals=dict.fromkeys(pooled, "the only one"))
        page = session_page(run, one, "area")
        assert "All sessions are of one animal, &#x27;the only one&#x27;" in page
        assert "All sessions are of one animal" not in session_page(run, pooled, "area")

    def test_a_label_that_was_not_found_has_no_groups(self, joint_run):
        run, pooled = joint_run
        models = {}
        for name, model in run.models.items():
            fits = {"heading": replace(model.goodness_of_fit_["heading"], learned=False)}
            models[name] = type(model)(**model.get_params())
            vars(models[name]).update(vars(model), goodness_of_fit_=fits)
        page = session_page(replace(run, models=models, joint=None), pooled, "area")
        assert "heading was found in 0 of 4 sessions." in page
        assert "must not be read, so that no groups are compared" in page
        assert 'class="strips"' not in page
        assert "fitted one by one" in page
        del models["<b>0</b> 1"]
        some = {**models, "<b>0</b> 1": run.models["<b>0</b> 1"]}
        page = session_page(replace(run, models=some), pooled, "area")
        assert "heading was found in 1 of 4 sessions." in page
        assert "Grey markers are neurons of sessions in which the label was not" in page

    def test_tables_have_sessions_animals_and_differences(self, joint_run, tmp_path):
        run, pooled = joint_run
        groups = groups_of(pooled, "area")
        paths = write_session_tables(tmp_path, run, pooled, groups)
        assert [path.name for path in paths] == ["neurons.csv", "groups.csv", "differences.csv"]
        neurons, by_group, differences = (path.read_text("utf-8").splitlines() for path in paths)
        assert neurons[0].startswith("session,animal,day,neuron,area,cell,score_heading,")
        assert len(neurons) == 1 + 8 + 8 + 9 + 9
        assert neurons[1].startswith("<b>0</b> 1,<i>mouse</i>0,1,")
        assert by_group[0].startswith("label,area,neurons,sessions,animals,tested,connected,share")
        assert len(by_group) == 3
        assert differences[0].startswith("label,first,second,measure,difference,low,high,p_value")


class TestAlignment:
    def test_it_is_what_one_readout_gives_for_another_session(self):
        """Blocks are the label itself, turned by half and by a quarter of a turn."""
        rng = np.random.default_rng(0)
        label = np.linalg.qr(rng.normal(size=(400, 3)))[0]
        label = np.linalg.qr(label - label.mean(axis=0))[0][:, :2]
        turns = {"same": np.eye(2), "half": -np.eye(2), "quarter": np.array([[0.0, 1], [-1, 0]])}
        points = {name: (label @ turn, label) for name, turn in turns.items()}
        readouts = {n: Readout.fit(block, values) for n, (block, values) in points.items()}
        found = crossed_readouts([*turns, "lacks it"], points, readouts)
        # Half a turn predicts -label, so that R^2 is 1 - 4, and a quarter turn 1 - 2.
        expected = np.array([[1, -3, -1], [-3, 1, -1], [-1, -1, 1.0]])
        np.testing.assert_allclose(found[:3, :3], expected, atol=1e-9)
        assert np.isnan(found[3]).all()
        assert np.isnan(found[:, 3]).all()

    def test_other_columns_cannot_be_compared(self):
        block = np.random.default_rng(0).normal(size=(50, 2))
        points = {"a": (block, block), "b": (block, block[:, :1])}
        readouts = {n: Readout.fit(*both) for n, both in points.items()}
        found = crossed_readouts(["a", "b"], points, readouts)
        np.testing.assert_array_equal(np.isnan(found), ~np.eye(2, dtype=bool))

    def test_the_diagonal_is_the_score_of_each_session(self, joint_run):
        run, _ = joint_run
        scores = run.joint.alignment(dict(run.recordings))["heading"]
        own = [
            model.score(run.recordings[name], {"heading": run.recordings[name].labels["heading"]})
            for name, model in run.models.items()
        ]
        np.testing.assert_allclose(np.diag(scores), own)
        names = list(run.recordings)[::-1]
        turned = run.joint.alignment({name: run.recordings[name] for name in names})["heading"]
        np.testing.assert_array_equal(turned, scores[::-1, ::-1])
        with pytest.raises(ValueError, match="alignment is for models of several sessions"):
            run.models[names[0]].alignment({})


class TestFigures:
    def test_ticks_are_round_and_inside(self):
        assert ticks(-0.02, 1.02) == [0.0, 0.5, 1.0]
        assert ticks(-0.3, 1.3) == [0.0, 0.5, 1.0]
        assert ticks(0, 7e-5, 3) == [0.0, 5e-05]
        assert score_ends([]) == (-0.04, 0.04)

    def test_the_mean_stands_at_its_value_and_its_interval_stays_inside(self):
        group = GroupPoints("a", [Point(0.0, "x", "n"), Point(1.0, "y", "m")], Estimate(0.5, -9, 9))
        drawing = strips([group], owner_styles(["x", "y"]), "share", ends=(0, 1), percent=True)
        assert "translate(215.0 " in drawing
        assert re.search(r'class="interval" d="M16\.0,[\d.]+H414\.0"', drawing)
        assert 'aria-label="share. a: mean 50 %"' in drawing

    def test_many_animals_have_no_colours(self):
        assert len(owner_styles([str(i) for i in range(24)])) == 24
        assert len(set(owner_styles([str(i) for i in range(24)]).values())) == 24
        assert owner_styles([str(i) for i in range(25)]) == {}


class TestBrowser:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    def test_it_fits_the_screen(self, pages, open_page, width, scheme):
        page = open_page(pages[0], viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate(
            "[...document.querySelectorAll('.strips svg, .small-figure svg')]"
            ".map((s) => s.getBoundingClientRect().width)"
        )
        assert len(boxes) == 6
        assert min(boxes) > 120
        # Words in the figures can be read on a phone too: 12 pixels, scaled with the figure.
        scale = page.evaluate(
            "document.querySelector('.strips svg').getBoundingClientRect().width / 430"
        )
        assert 12 * scale >= 9

    def test_a_session_opens_by_keyboard(self, pages, open_page):
        page = open_page(pages[0])
        link = page.locator("#sessions tbody a").nth(2)
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/b_1_b_1/report.html")
        assert page.locator("h1").inner_text() == "<b>1</b> 1: which neurons carry heading?"

    def test_print_is_light_and_opens_all_details(self, pages, open_page):
        page = open_page(pages[0], color_scheme="dark")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.locator("details[open]").count() == page.locator("details").count()
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(255, 255, 255)"

    def test_the_name_of_a_neuron_is_in_its_marker(self, pages, open_page):
        page = open_page(pages[0])
        titles = page.evaluate(
            "[...document.querySelectorAll('.strips title')].map((t) => t.textContent)"
        )
        assert any(HOSTILE in title and "<b>0</b> 1" in title for title in titles)
