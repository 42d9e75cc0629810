"""The page answers first: verdicts, neurons by score and group, and their tuning."""

import base64
import copy
import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.report import numerals, report_run, write_report
from xcebra.report.questions import asked_blocks, beyond, doubt, ordered_blocks
from xcebra.report.tuning import shown_neurons
from xcebra.statistics.tuning_scores import head_direction_curves, rate_maps

HOSTILE, WIDTH = "<img src=x onerror=alert(1)>", 0.05  # as in conftest.py


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="session")
def page_path(run, tmp_path_factory):
    made, amap = run
    return report_run(tmp_path_factory.mktemp("page") / "page.html", made, amap)


@pytest.fixture(scope="session")
def text(page_path):
    return page_path.read_text("utf-8")


@pytest.fixture(scope="session")
def numbers(text):
    return json.loads(re.search(r'id="numbers">(.*?)</script>', text, re.S)[1])


def block(numbers, name):
    return next(each for each in numbers["map"]["blocks"] if each["name"] == name)


# What is asked


def test_labels_come_first_then_time_then_what_was_controlled_for(run, numbers):
    _, amap = run
    assert asked_blocks(amap) == ["heading", "position"]
    assert ordered_blocks(amap) == ["heading", "position", "time", "speed"]
    roles = {each["name"]: each["role"] for each in numbers["map"]["blocks"]}
    assert roles == {"heading": "label", "position": "label", "time": "time", "speed": "control"}
    expected = (
        "beyond position, beyond activity that lasts in time and beyond speed, which was "
        "controlled for"
    )
    assert beyond(amap, "heading") == expected


def test_a_map_of_time_alone_is_asked_about_time(run):
    made, _ = run
    amap = made.model.attribute(made.recording, block="time")
    assert asked_blocks(amap) == ["time"]
    assert beyond(amap, "time") == ""


def test_the_verdict_says_beyond_what_and_controls_are_no_question(text):
    assert "<title>Which neurons carry heading and position?</title>" in text
    verdicts = re.search(r'<ul class="verdicts">(.*?)</ul>', text, re.S)[1]
    first, second, third = re.findall(r"<li.*?</li>", verdicts, re.S)
    assert "Yes: heading is in these neurons." in first
    assert "6 of 12 neurons are connected to it, beyond position" in first
    assert "beyond speed, which was controlled for." in first
    assert "No: position was not found" in second
    assert "connected to it" not in second
    assert 'class="yes small"' in third
    assert "speed" not in verdicts.replace("beyond speed, which was controlled for", "")
    assert "Controlled for: <strong>speed</strong>" in text
    assert "Which neurons carry speed" not in text
    assert "score for speed (controlled for)" in text


def test_what_the_checks_say_stands_beside_the_answer(run, text):
    _, amap = run
    answer = re.search(r'<section id="answer-0".*?</section>', text, re.S)[0]
    assert "0 of 2 units that cannot carry it were called connected" in answer
    assert f"rank correlation {amap.agreement('heading'):.2f}" in answer


# Numbers that make no sense are not shown


def test_a_label_that_was_not_found_is_grey_and_says_why(run, text, numbers):
    made, _ = run
    reason = doubt(made.model.goodness_of_fit_, "position")
    assert reason == "position was not found in the activity, so its scores must not be read"
    answer = re.search(r'<section id="answer-1".*?</section>', text, re.S)[0]
    assert reason in answer
    assert "by-group" not in answer
    assert "tuning-grid" not in answer
    shown = block(numbers, "position")
    assert shown["doubt"] == reason
    assert "called" not in shown
    assert "z" not in shown
    assert "p for position" not in text
    assert "called" in block(numbers, "heading")
    heads = re.findall(r"<th scope=\"col\"([^>]*)><button>([^<]*)</button>", text)
    assert "doubtful" in next(a for a, title in heads if title == "score for position")
    assert "doubtful" not in next(a for a, title in heads if title == "score for heading")


def test_without_a_test_there_is_no_interval_and_no_p_value(run, tmp_path):
    made, amap = run
    path = report_run(tmp_path / "page.html", made, replace(amap, connections={}))
    text = path.read_text("utf-8")
    shown = block(json.loads(re.search(r'id="numbers">(.*?)</script>', text, re.S)[1]), "heading")
    assert "tested" not in shown
    assert "called" not in shown
    assert "p for heading" not in text
    assert "share (95" not in text
    assert "was not tested" in text
    assert "z for heading" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (numerals.p_value(1e-8), "< 0.005"),
        (numerals.p_value(0.0), "< 0.005"),
        (numerals.p_value(0.005), "0.005"),
        (numerals.p_value(0.9), "0.9"),
        (numerals.share(-0.03), "0 or less"),
        (numerals.share(0.123), "12.3 %"),
        (numerals.percent(-0.2), "0 or less"),
        (numerals.percent(0.28), "28 %"),
        (numerals.r_squared(-0.07), "0 or less"),
        (numerals.r_squared(0.876), "0.88"),
        (numerals.score(-0.0), "0"),
        (numerals.score(1.2345), "1.23"),
    ],
)
def test_numbers_are_written_so_that_they_can_be(text, expected):
    assert text == expected


def test_the_page_has_no_negative_zero_nor_negative_share_of_the_variance(text):
    visible = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
    cells = re.findall(r'<td class="number[^>]*>([^<]*)</td>', visible)
    assert not [cell for cell in cells if re.fullmatch(r"-0(\.0*)?( %)?", cell)]
    assert not [cell for cell in cells if re.fullmatch(r"-.*%", cell)]
    assert not re.search(r"R² -", visible)


# Order, groups and units


def test_the_order_of_neurons_is_the_same_everywhere(run, numbers, text, tmp_path):
    made, amap = run
    order = [name for name, _ in amap.ranking("heading")]
    assert order[:2] == ["3", "7"]  # the same score: the order in which they were recorded
    assert [amap.neuron_names[i] for i in block(numbers, "heading")["order"]] == order
    table = re.search(r'<table id="neurons-table">.*?</table>', text, re.S)[0]
    assert re.findall(r'<th scope="row"><button data-neuron="\d+">([^<]*)<', table) == order
    command("export", made.folder, "--csv", "--out", tmp_path / "out", "-q")
    with (tmp_path / "out" / "neurons.csv").open() as file:
        assert [row["neuron"] for row in csv.DictReader(file)] == order
    from xcebra.cli.attribute import _ranked, _top_neurons

    assert [row["neuron"] for row in _ranked(amap)["heading"]] == order
    called = [n for n in order if amap.significant("heading")[int(n)]]
    line = _top_neurons(amap, "heading", made.model.goodness_of_fit_["heading"])
    assert re.findall(r"(\d+) \(score", line) == called[:5]


def test_the_groups_of_the_page_are_those_of_the_map(run, text, numbers):
    _, amap = run
    assert list(numbers["map"]["groups"]) == ["area", "cell type"]  # depth makes no groups
    assert numbers["group_by"] == "area"
    for column, groups in numbers["map"]["groups"].items():
        assert [groups["names"][i] for i in groups["index"]] == amap.units[column].tolist()
    tables = re.findall(r'<div class="by-group" data-column="area">.*?</table>', text, re.S)
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", tables[0])
    expected = amap.by("area").scores["heading"]
    assert len(rows) == len(expected)
    for (name, cells), score in zip(rows, expected, strict=True):
        assert name == score.group.replace("<", "&lt;").replace(">", "&gt;")
        found = re.findall(r"<td[^>]*>(.*?)</td>", cells)
        assert found[:2] == [str(score.n_neurons), str(score.n_connected)]
        share = f"{100 * score.share:.0f} % ({100 * score.low:.0f} to {100 * score.high:.0f} %)"
        assert found[2:] == [share, f"{score.mean_score:.3g}"]
    assert "Neurons of one session are not independent" in text


def test_a_column_of_the_reader_comes_first(run, tmp_path):
    made, amap = run
    options = {"recording": made.recording, "group_by": "cell type"}
    path = write_report(tmp_path / "page.html", made.model, amap, **options)
    assert '"group_by":"cell type"' in path.read_text("utf-8")
    with pytest.raises(ValueError, match=r"no column of the units.*did you mean 'area'"):
        report_run(tmp_path / "other.html", made, amap, group_by="aera")
    assert not (tmp_path / "other.html").exists()


def test_a_page_without_units_has_no_groups(run, tmp_path):
    made, amap = run
    path = write_report(tmp_path / "page.html", made.model, replace(amap, units={}))
    text = path.read_text("utf-8")
    assert '<select class="group-choice"' not in text
    assert '<div class="by-group"' not in text
    assert '"group_by":null' in text


# Tuning


def unpacked(numbers, name):
    """Means and errors of every neuron of the page, and the width of a step of a byte."""
    label = numbers["tuning"]["labels"][name]
    low, high = np.array(label["low"]), np.array(label["high"])
    step = (high - low)[:, None] / 254

    def values(text, lowest):
        bytes_ = np.frombuffer(base64.b64decode(text), np.uint8).reshape(len(low), -1)
        return np.where(bytes_ == 255, np.nan, lowest + bytes_ * step)

    return label, values(label["means"], low[:, None]), step


def test_tuning_curves_of_an_angle_are_those_of_the_scores(run, numbers):
    recording = run[0].recording
    label, means, step = unpacked(numbers, "heading")
    assert label["shape"] == "circle"
    assert label["titles"] == ["heading (degrees)"]
    assert label["rate"] == "spikes per second"
    curves = head_direction_curves(
        recording.neural, recording.labels["heading"], n_bins=means.shape[1]
    )
    assert np.nanmax(np.abs(means - curves / WIDTH) - 0.51 * step) <= 1e-3
    assert numbers["tuning"]["neurons"] == list(range(12))


def test_rate_maps_are_those_of_the_scores_and_blank_where_hardly_visited(run, numbers):
    recording = run[0].recording
    label, means, step = unpacked(numbers, "position")
    assert label["shape"] == "plane"
    assert label["titles"] == ["position 1 (m)", "position 2 (m)"]
    position = recording.labels["position"]
    size = np.ptp(position, axis=0).max() / max(len(edges) - 1 for edges in label["edges"])
    maps = rate_maps(recording.neural, position, bin_size=size)
    blank = np.isnan(means[0])
    occupancy = maps.occupancy.ravel()
    assert occupancy[blank].max() < occupancy[~blank].min()
    rates = maps.rates.reshape(12, -1) / WIDTH
    assert np.nanmax(np.abs(means - rates) - 0.51 * step) <= 1e-3


def test_a_page_of_many_neurons_has_the_tuning_of_the_first_of_each_label(run):
    _, amap = run
    n = 500
    scores = {name: np.random.default_rng(i).random(n) for i, name in enumerate(amap.blocks)}
    names = tuple(map(str, range(n)))
    many = replace(
        amap, values=np.zeros((n, amap.values.shape[1])), scores=scores, neuron_names=names,
        units={}, connections={}, opinions={},
    )  # fmt: skip
    first = np.argsort(-scores["heading"])[:60]
    shown = shown_neurons(many, ["heading"])
    assert sorted(first) == shown.tolist()
    assert len(shown_neurons(many, ["heading", "position"])) <= 120


# In a real browser


def test_a_neuron_is_chosen_in_the_figure_the_map_and_the_table(run, page_path, open_page):
    page = open_page(page_path)
    panel, head = page.locator("#neuron-panel"), page.locator("#neuron-head")
    assert panel.is_hidden()
    figure = page.locator("figure.neurons .drawing").first
    figure.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert figure.get_attribute("aria-valuetext").startswith("neuron 7 (CA1), rank 2 of 12")
    page.keyboard.press("Enter")
    assert head.inner_text() == "Neuron 7"
    assert panel.locator("figure.tuning svg").count() == 3
    assert "not to be read" in panel.inner_text()  # position was not found
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    figure.scroll_into_view_if_needed()
    dot = figure.locator("path[data-neuron='0']").first.bounding_box()
    page.mouse.click(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    assert head.inner_text() == "Neuron 0"
    page.locator("#neurons-table button[data-neuron='5']").click()
    assert head.inner_text() == "Neuron 5"
    curve = panel.locator("figure[data-label=heading] path[fill=none][stroke]").get_attribute("d")
    assert curve.count("L") > 10
    page.locator("#neuron-close").click()
    canvas = page.locator("#map-canvas")
    canvas.focus()
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    assert head.inner_text() == "Neuron 3"


def test_the_figure_shows_the_scores_the_test_and_the_groups(run, page_path, open_page):
    _, amap = run
    page = open_page(page_path)
    figure = page.locator("figure.neurons").first
    marks = figure.locator("path[data-neuron]").evaluate_all(
        "(all) => all.map((e) => [Number(e.dataset.neuron), e.getAttribute('class'),"
        " e.getBBox().y + e.getBBox().height / 2, e.getAttribute('stroke')])"
    )
    order = [int(name) for name, _ in amap.ranking("heading")]
    assert [mark[0] for mark in marks] == order * 2  # scores, then shares
    called = {neuron for neuron, kind, *_ in marks if kind == "called"}
    assert called == set(np.flatnonzero(amap.significant("heading")))
    heights = np.array([mark[2] for mark in marks[:12]])
    # Heights are a linear function of the scores; markers differ a little in their centres.
    assert np.corrcoef(heights, amap.block("heading")[order])[0, 1] < -0.999
    assert figure.locator(".interval").count() == 12
    colours = {neuron: colour for neuron, _, _, colour in marks}
    assert colours[0] == colours[5] != colours[6]
    assert HOSTILE in figure.locator(".legend").inner_text()
    page.locator(".group-choice").first.select_option("cell type")
    names = figure.locator(".legend .sample").all_inner_texts()
    assert names[:2] == ["ex", "in"]
    tables = page.locator("#answer-0 .by-group").evaluate_all("(a) => a.map((e) => !e.hidden)")
    assert tables == [False, True]
    grey = page.locator("figure.neurons").nth(1).locator("path[data-neuron]")
    assert set(grey.evaluate_all("(a) => a.map((e) => e.getAttribute('stroke'))")) == {
        "var(--soft)"
    }
    assert page.locator("#answer-0 .tuning-grid figure").count() == 6
    assert page.locator("img").count() == 0


def test_the_csv_of_the_page_has_the_units(run, page_path, open_page):
    _, amap = run
    page = open_page(page_path)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [row["neuron"] for row in rows] == [name for name, _ in amap.ranking("heading")]
    for row in rows:
        i = int(row["neuron"])
        assert row["area"] == amap.units["area"][i]
        assert float(row["depth"]) == pytest.approx(amap.units["depth"][i])
        assert row["connected heading"] == str(int(amap.significant("heading")[i]))
    assert "connected position" not in rows[0]
    assert "z position" not in rows[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_with_a_neuron_open(page_path, open_page, width, scheme):
    page = open_page(page_path, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.locator("#neurons-table tbody button").first.click()
    assert page.locator("#neuron-panel").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    panel = page.locator("#neuron-panel")
    assert panel.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    page.emulate_media(media="print")
    assert panel.is_hidden()
    assert page.locator("#neurons-table th button").first.is_visible()


def test_controls_that_fail_are_said_and_no_neuron_is_called(run, tmp_path):
    made, amap = run
    bad = replace(amap.connections["heading"], controls=np.full(4, 1e-8))
    path = write_report(
        tmp_path / "page.html", made.model, replace(amap, connections={"heading": bad})
    )
    text = path.read_text("utf-8")
    assert "No neuron is called connected, because 4 of 4 surrogate units" in text
    assert "4 of 4 units that cannot carry it were called connected" in text


def test_an_unclear_verdict_is_not_read_either(run, tmp_path):
    made, amap = run
    model = copy.copy(made.model)
    fits = dict(model.goodness_of_fit_)
    fits["heading"] = replace(fits["heading"], learned=None)
    model.goodness_of_fit_ = fits
    text = write_report(tmp_path / "page.html", model, amap).read_text("utf-8")
    assert "Unclear: it is not certain that heading is in these neurons." in text
    assert "neurons are connected to it" not in text
