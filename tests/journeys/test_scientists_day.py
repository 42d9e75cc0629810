"""From spike times in an NWB file to a page, by the command line and in a real browser."""

import csv
import io
import itertools
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
import warnings
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Thread

import numpy as np
import pytest
from pynwb import NWBHDF5IO, NWBFile, TimeSeries
from pynwb.behavior import Position, SpatialSeries
from typer.testing import CliRunner

import xcebra
from xcebra.caveats import UnlearnedLabelWarning
from xcebra.cli import app
from xcebra.report import write_report

PATIENCE = 300  # seconds; the machine may be busy
WIDTH = 0.05


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="xcebra")
    assert result.exit_code == code, result.output
    return result


@contextmanager
def started(*arguments, folder):
    """The command as a user starts it at a terminal; what it says there is in a file."""
    told = folder / "told.txt"
    told.write_text("")
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 120))
    process = subprocess.Popen(
        [sys.executable, "-m", "xcebra.cli", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)

    def copy():
        with told.open("ab", buffering=0) as file, suppress(OSError):
            while text := os.read(ours, 4096):  # an OSError is the end of the process
                file.write(text)

    listener = Thread(target=copy)
    listener.start()
    try:
        yield process, told
    finally:
        process.kill()
        process.wait()
        listener.join()
        os.close(ours)


def wait_for(pattern, process, told):
    """The first match of a pattern in what a process says."""
    until = time.monotonic() + PATIENCE
    while not (found := re.search(pattern, told.read_text())):
        if process.poll() is not None:
            until = min(until, time.monotonic() + 5)  # its last words may still be on their way
        assert time.monotonic() < until, told.read_text()
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with a recording as a lab would have it: spikes, and behaviour on another clock."""
    folder = tmp_path_factory.mktemp("lab")
    rec = xcebra.datasets.synthetic(2, 2, n_steps=12_000, counts=True, seed=1)
    write_day(folder / "day1.nwb", rec, [(0.0, 250.0), (260.0, 600.0)])
    return folder, rec


@pytest.fixture(scope="module")
def short_day(tmp_path_factory):
    """A short recording, for what is the same whatever was learned: a file, and a fit of it."""
    folder = tmp_path_factory.mktemp("short")
    rec = xcebra.datasets.synthetic(2, 2, n_steps=1_500, counts=True, seed=1)
    write_day(folder / "day2.nwb", rec, [(0.0, 35.0), (37.0, 75.0)])
    fit = ("fit", folder / "day2.nwb", "--label", "position", "--time-dims", 2,
           "--bin-size", WIDTH, "--epochs", "trials", "--steps", 3, "--quiet")  # fmt: skip
    run(*fit, "--out", folder / "run")
    return folder, fit


def write_day(path, rec, trials):
    nwb = NWBFile(
        session_description="an animal walks",
        identifier="day 1",
        session_start_time=datetime(2024, 5, 1, tzinfo=UTC),
    )
    rng = np.random.default_rng(0)
    starts = WIDTH * np.arange(rec.n_times)
    for counts in rec.neural.T.astype(int):
        spikes = np.repeat(starts, counts) + rng.uniform(0, WIDTH, counts.sum())
        nwb.add_unit(spike_times=np.sort(spikes))
    # The camera is faster than the bins, and starts before the probe.
    camera = np.arange(-1.0, starts[-1] + 1.0, 0.02)
    seen = [np.interp(camera, starts + WIDTH / 2, column) for column in rec.labels["z2"].T]
    series = SpatialSeries(
        name="position", data=np.column_stack(seen), timestamps=camera, reference_frame="corner"
    )
    module = nwb.create_processing_module("behavior", "what the camera saw")
    module.add(Position(spatial_series=[series]))
    module.add(TimeSeries(name="pupil", data=rng.normal(size=500), unit="mm", rate=1.0))
    for start, stop in trials:
        nwb.add_trial(start_time=start, stop_time=stop)
    with NWBHDF5IO(str(path), "w") as file:
        file.write(nwb)


@pytest.fixture(scope="module")
def made(lab):
    """What the command line makes of it; the recording moves away on the way."""
    folder, rec = lab
    told = run(
        "fit", folder / "day1.nwb", "--label", "position", "--label-dims", 2, "--time-dims", 2,
        "--bin-size", WIDTH, "--epochs", "trials", "--steps", 200, "--out", folder / "run",
        "--json",
    ).stdout  # fmt: skip
    (folder / "day1.nwb").rename(folder / "moved.nwb")
    ranked = json.loads(run("attribute", folder / "run", "--json").stdout)
    page = run("report", folder / "run").stdout.strip()
    return folder / "run", rec, json.loads(told.splitlines()[-1]), ranked, page


def test_what_is_in_a_file_is_told_before_anything_is_asked_of_it(lab):
    folder, _ = lab
    name = "day1.nwb" if (folder / "day1.nwb").exists() else "moved.nwb"
    found = {
        each["name"]: each for each in json.loads(run("inspect", folder / name, "--json").stdout)
    }
    roles = {name: each["roles"] for name, each in found.items()}
    assert roles == {
        "units": ["neural"],
        "position": ["label"],
        "pupil": ["label"],
        "trials": ["epochs"],
    }
    assert "50 units" in found["units"]["what"]
    assert "50 Hz" in found["position"]["when"]
    table = run("inspect", folder / name).stdout
    assert all(each in table for each in roles)


def test_the_command_line_finds_the_right_neurons(made):
    folder, rec, told, ranked, _ = made
    assert told["goodness_of_fit"]["position"]["learned"] is True
    assert {p.name for p in folder.iterdir()} == {
        "run.toml", "recording.npz", "model.safetensors", "map.nc", "report.html", "log.txt",
    }  # fmt: skip
    connected = rec.ground_truth["z2"]
    order = [int(each["neuron"]) for each in ranked["neurons"]["position"]]
    assert np.mean(connected[order[:20]]) >= 0.95
    amap = xcebra.AttributionMap.load(folder / "map.nc")
    assert xcebra.metrics.auroc(amap, connected, block="position", score="block") > 0.97
    tested, opinion = amap.connections["position"], amap.opinions["position"]
    for each in ranked["neurons"]["position"]:
        k = int(each["neuron"])
        told_of = each["p_value"], each["share"], each["encoding"], each["rate"]
        kept_of = tested.p_values[k], tested.share[k], opinion.encoding[k], opinion.rate[k]
        assert told_of == pytest.approx(kept_of)
    # Trials are epochs: the ten seconds between them are not in the run.
    kept = xcebra.read(folder / "recording.npz")
    assert kept.epochs.pairs() == [(0, 5000), (5000, 11800)]


def test_a_run_can_be_repeated_bit_for_bit(short_day, tmp_path):
    folder, _ = short_day
    settings = tmp_path / "again.toml"
    moved = tmp_path / "moved.nwb"
    shutil.copy(folder / "day2.nwb", moved)
    text = (folder / "run" / "run.toml").read_text()
    settings.write_text(text.replace(str(folder / "day2.nwb"), str(moved)))
    run("fit", "--config", settings, "--out", tmp_path / "again", "--quiet")
    assert str(moved) in (tmp_path / "again" / "run.toml").read_text()
    first, second = (
        xcebra.XCEBRA.load(each / "model.safetensors")
        for each in (folder / "run", tmp_path / "again")
    )
    x = xcebra.read(folder / "run" / "recording.npz").neural
    np.testing.assert_array_equal(first.transform(x), second.transform(x))
    # The command line wins over the file; a recording that has changed is noticed.
    run("fit", "--config", settings, "--seed", 5, "--out", tmp_path / "other", "--quiet")
    assert "random_state = 5" in (tmp_path / "other" / "run.toml").read_text()
    settings.write_text(re.sub('sha256 = "..', 'sha256 = "zz', settings.read_text()))
    error = run("fit", "--config", settings, "--out", tmp_path / "three", code=2).stderr
    assert "has changed" in error
    assert not (tmp_path / "three").exists()
    run("fit", moved, "--config", settings, "--out", tmp_path / "three", "--quiet")


def test_a_finished_run_is_not_done_again_nor_replaced_unasked(short_day, tmp_path):
    folder, same = short_day
    shutil.copytree(folder / "run", tmp_path / "new")
    before = (tmp_path / "new" / "model.safetensors").stat().st_mtime_ns
    run(*same, "--out", tmp_path / "new")
    assert (tmp_path / "new" / "model.safetensors").stat().st_mtime_ns == before
    error = run(*same, "--seed", 3, "--out", tmp_path / "new", code=2).stderr
    assert "other settings (random_state)" in error
    (tmp_path / "new" / "slides.txt").write_text("mine")
    (tmp_path / "new" / "map.nc").write_text("of the run before")
    run(*same, "--seed", 3, "--out", tmp_path / "new", "--overwrite")
    assert "random_state = 3" in (tmp_path / "new" / "run.toml").read_text()
    left = {path.name for path in (tmp_path / "new").iterdir()}
    assert left == {"run.toml", "recording.npz", "model.safetensors", "log.txt", "slides.txt"}


def test_a_run_is_not_lost_to_one_that_cannot_be(made, tmp_path):
    folder, *_ = made
    moved = folder.parent / "moved.nwb"
    shutil.copytree(folder, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    impossible = ("fit", moved, "--label", "position", "--bin-size", WIDTH, "--label-dims", 90,
                  "--out", tmp_path / "run", "--overwrite")  # fmt: skip
    run(*impossible, code=2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.toml").write_text("a = 1")
    error = run(*impossible[:-3], "--out", tmp_path / "mine", "--overwrite", code=2).stderr
    assert "is not of an xcebra run" in error
    assert (tmp_path / "mine" / "run.toml").read_text() == "a = 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "nowhere.nwb"), "no file 'nowhere.nwb'"),
        (("fit",), "name a file"),
        (("fit", "FILE", "--label", "speed", "--bin-size", 0.05), "'speed' is not in it; it has"),
        (("fit", "FILE", "--label", "position"), "for instance 0.05 (option --bin-size)"),
        (("fit", "FILE", "--label", "position", "--bin-size", -1), "bin_size must be"),
        (("fit", "FILE", "--label", "position", "--bin-size", 0.05, "--epochs", "rests"), "rests"),
        (("fit", "FILE", "--label-dims", "two"), "--label-dims 'two'"),
        (("fit", "FILE", "--label", "position", "--bin-size", 0.05, "--label-dims", 90), "latents"),
        (("fit", "FILE", "--bin-size", 0.05, "--recipe", "soup"), "recipe"),
        (("fit", "--config", "nowhere.toml"), "nowhere.toml"),
        (("attribute", "nowhere"), "is no run"),
        (("report", "nowhere"), "is no run"),
        (("inspect", "FILE.txt"), "ending '.txt'"),
        (("simulate", "synthetic", "--out", "x.mat"), "must end in .npz or .nwb"),
        (("simulate", "synthetic", "--steps", 1, "--out", "x.npz"), "n_steps"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(lab, tmp_path, arguments, words, monkeypatch):
    folder, _ = lab
    name = folder / ("day1.nwb" if (folder / "day1.nwb").exists() else "moved.nwb")
    monkeypatch.chdir(tmp_path)
    told = [name if each == "FILE" else each for each in arguments]
    result = run(*told, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("xcebra: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_does_not_exist_is_told_with_the_one_that_was_meant(tmp_path):
    (tmp_path / "s.toml").write_text('[recording]\nfile = "x.npz"\n[model]\ntime_dim = 3\n')
    error = run("fit", "--config", tmp_path / "s.toml", "--out", tmp_path / "run", code=2).stderr
    assert "'time_dim'" in error
    assert "did you mean 'time_dims'?" in error


def test_ctrl_c_keeps_what_was_done_and_the_same_command_goes_on(tmp_path):
    run("simulate", "synthetic", "--steps", 3000, "--out", tmp_path / "rec.npz", "--quiet")
    command = ("fit", tmp_path / "rec.npz", "--label", "z2", "--steps", 4000, "--out", "run")
    with started(*command, folder=tmp_path) as (process, told):
        wait_for(r" [1-9]\d*/4000", process, told)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        wait_for(r"the same command goes on\s*$", process, told)
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "run.toml", "recording.npz", "checkpoint.safetensors", "log.txt",
    }  # fmt: skip
    assert "is not finished" in run("attribute", tmp_path / "run", code=2).stderr
    # That it goes on is seen by the first step it tells of.
    with started(*command, folder=tmp_path) as (process, told):
        assert int(wait_for(r"(\d+)/4000", process, told)[1]) > 0


# The page, in a real browser


@pytest.fixture
def opened(browser):
    """Opens a page offline; anything asked of a network or said on the console is a failure."""
    contexts, wrong = [], []

    def open_page(path, **options):
        context = browser.new_context(offline=True, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(
            ("file:", "data:", "blob:")) else None)  # fmt: skip
        page.goto(f"file://{path}")
        page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=1000 * PATIENCE)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def first_column(page):
    return page.locator("#neurons-table tbody th").all_inner_texts()


def painted(page, canvas):
    """How many different colours a canvas has."""
    return page.evaluate(
        """(id) => { const c = document.getElementById(id);
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set(); for (let i = 0; i < d.length; i += 4)
        seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; }""",
        canvas,
    )


def test_the_page_says_first_whether_to_believe_it(made, opened):
    page = opened(made[-1])
    assert page.locator("h1").inner_text() == "Which neurons carry position?"
    verdicts = page.locator(".verdicts li strong").all_inner_texts()
    assert verdicts[0] == "Yes: position is in these neurons."
    assert "p = 0.00" in page.locator(".verdicts li").first.inner_text()


def test_the_page_names_the_right_neurons_and_lets_itself_be_sorted(made, opened):
    _, rec, _, ranked, path = made
    page = opened(path)
    order = [each["neuron"] for each in ranked["neurons"]["position"]]
    assert first_column(page) == order
    assert np.mean([rec.ground_truth["z2"][int(n)] for n in order[:20]]) >= 0.95
    by_time = [each["neuron"] for each in ranked["neurons"]["time"]]
    page.get_by_role("button", name="score for time").click()
    assert first_column(page) == by_time
    assert page.locator("#map-order").input_value() == "time"
    page.get_by_role("button", name="score for time").click()
    assert first_column(page) == by_time[::-1]
    page.get_by_role("button", name="neuron", exact=True).click()
    assert first_column(page) == sorted(order, key=int)


def test_the_map_is_read_by_mouse_and_by_keyboard(made, opened):
    _, _, _, ranked, path = made
    page = opened(path)
    best = ranked["neurons"]["position"][0]
    canvas = page.locator("#map-canvas")
    box = canvas.bounding_box()
    readout = page.locator("#map-readout")
    canvas.hover(position={"x": box["width"] * 0.1, "y": 95})
    assert readout.inner_text().startswith(f"neuron {best['neuron']}, ")
    canvas.focus()
    page.keyboard.press("Home")
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    text = readout.inner_text()
    assert text.startswith(f"neuron {best['neuron']}, position: ")
    assert float(re.search(r"position: ([\d.]+)", text)[1]) == pytest.approx(
        best["score"], rel=0.01
    )
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#map-order").input_value() == "time"
    assert painted(page, "map-canvas") > 50


def test_time_can_be_moved_through(made, opened):
    page = opened(made[-1])
    slider, readout = page.locator("#time-slider"), page.locator("#time-readout")
    assert painted(page, "time-canvas") > 50
    slider.focus()
    page.keyboard.press("Home")
    first = readout.inner_text()
    assert first.startswith("at 0.025 s, top neurons for position: ")
    page.keyboard.press("End")
    assert readout.inner_text() != first
    page.locator("#time-block").select_option("time")
    assert "top neurons for time" in readout.inner_text()


def test_the_embedding_turns_and_changes_its_colours(made, opened):
    page = opened(made[-1])
    canvas = page.locator("#cloud-canvas")
    picture = "document.getElementById('cloud-canvas').toDataURL()"
    before = page.evaluate(picture)
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    turned = page.evaluate(picture)
    assert turned != before
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 180, box["y"] + 130)
    page.mouse.up()
    dragged = page.evaluate(picture)
    assert dragged != turned
    page.locator("#cloud-colour").select_option(label="time")
    assert page.evaluate(picture) != dragged
    page.locator("#cloud-view").select_option("all latents")
    assert painted(page, "cloud-canvas") > 50


def test_neurons_are_taken_along_as_csv(made, opened):
    folder, *_, path = made
    page = opened(path)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    text = download.value.path().read_text()
    assert download.value.suggested_filename == "neurons.csv"
    rows = list(csv.DictReader(io.StringIO(text)))
    amap = xcebra.AttributionMap.load(folder / "map.nc")
    assert [row["neuron"] for row in rows] == [name for name, _ in amap.ranking("position")]
    for row in rows:
        i = amap.neuron_names.index(row["neuron"])
        assert float(row["score position"]) == pytest.approx(amap.block("position")[i], rel=1e-4)
        assert float(row["time1"]) == pytest.approx(amap.values[i, 3], rel=1e-4)


def test_the_page_fits_a_phone_and_the_dark(made, opened):
    phone = opened(made[-1], viewport={"width": 390, "height": 800})
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    light = phone.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = opened(made[-1], color_scheme="dark")
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") != light
    dark.emulate_media(media="print")
    assert dark.locator("#download").is_hidden()


def test_every_control_has_a_name_and_a_place_in_the_order_of_tabs(made, opened):
    page = opened(made[-1])
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, canvas[tabindex]')]
        .filter((e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label')))
        .map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("html").get_attribute("lang") == "en"
    heads = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))"
    )
    assert heads[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(heads))


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")  # three steps teach nothing
def test_names_from_files_stay_text(tmp_path, opened):
    rec = xcebra.datasets.synthetic(2, 2, n_steps=1_500, seed=3)
    names = ("</script><b>x</b>", 'a"b', "c,d", *map(str, range(3, rec.n_neurons)))
    label = "<i>label</i>"
    rec = xcebra.Recording(rec.neural, {label: rec.labels["z2"]}, None, names)
    model = xcebra.XCEBRA(time_dims=2, steps=3, random_state=0, progress=False)
    model.fit(rec, label=label)
    path = write_report(tmp_path / "p.html", model, model.attribute(rec), recording=rec)
    page = opened(path)
    assert set(names) <= set(first_column(page))
    assert page.locator("b, i").count() == 0
    assert page.locator("#time-block option").first.inner_text() == label


def test_a_large_run_makes_a_page_that_opens_at_once(tmp_path, opened):
    """20,000 steps of 400 neurons: under 12 MB, open in under 3 seconds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 400)).astype(np.float32)
    xy = np.cumsum(rng.normal(size=(20_000, 2)), axis=0)
    rec = xcebra.Recording(x, {"position": xy})
    model = xcebra.XCEBRA(4, 10, steps=2, batch_size=64, random_state=0, progress=False)
    model.fit(x[:1000], {"position": xy[:1000]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlearnedLabelWarning)
        path = write_report(tmp_path / "large.html", model, model.attribute(rec), recording=rec)
    assert path.stat().st_size < 12e6
    started = time.perf_counter()
    page = opened(path)
    took = time.perf_counter() - started
    assert len(first_column(page)) == 400
    assert took < 3, f"{took:.1f} s"
