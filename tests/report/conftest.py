"""One small run that the tests of the page, of the export and of the commands share."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.report.session_case import HOSTILE, QUICK, WIDTH, session_recording
from xcebra import Recording
from xcebra.caveats import XcebraWarning
from xcebra.data.label_info import LabelInfo
from xcebra.io import write
from xcebra.report.run_folder import Settings, Source, make_run
from xcebra.report.session_maps import make_maps
from xcebra.report.session_runs import make_session_run
from xcebra.report.session_settings import SessionSettings, read_sessions
from xcebra.statistics.significance import Connections

N_NEURONS = 12


def simulated(n_times=1500):
    """Six head-direction cells, four place cells and two that follow nothing, as counts."""
    rng = np.random.default_rng(0)
    heading = np.cumsum(rng.normal(0, 0.4, n_times)) % (2 * np.pi)
    position = np.stack([np.sin(np.arange(n_times) / 31), np.cos(np.arange(n_times) / 47)], axis=1)
    position += 0.3 * rng.normal(size=position.shape)
    speed = np.abs(rng.normal(1, 0.4, n_times))
    preferred = np.linspace(0, 2 * np.pi, 6, endpoint=False)
    centres = np.array([[-0.6, -0.6], [-0.6, 0.6], [0.6, -0.6], [0.6, 0.6]])
    rates = np.full((n_times, N_NEURONS), 0.5)
    rates[:, :6] = 3 * np.exp(2 * (np.cos(heading[:, None] - preferred) - 1))
    distance = ((position[:, None] - centres) ** 2).sum(axis=2)
    rates[:, 6:10] = 3 * np.exp(-distance / 0.4)
    info = {"heading": LabelInfo("circular", unit="rad"), "position": LabelInfo(unit="m")}
    return Recording(
        rng.poisson(rates).astype(np.float32),
        {"heading": heading, "position": position, "speed": speed},
        time=WIDTH * np.arange(n_times),
        units={
            "area": [HOSTILE] * 6 + ["CA1"] * 6,
            "cell type": ["in", "ex"] * 6,
            "depth": np.linspace(0.1, 1.2, N_NEURONS),
        },
        label_info=info,
    )


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run and its map, whose test was written by hand: heading is found, position is not."""
    folder = tmp_path_factory.mktemp("run")
    write(simulated(), folder / "day.npz")
    settings = Settings(
        Source(str(folder / "day.npz"), ("heading", "position"), ("speed",)),
        {"steps": 60, "batch_size": 128, "time_dims": 1, "window": 1, "random_state": 0},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        made = make_run(settings, folder / "run")
        amap = made.model.attribute(made.recording)
    amap = with_test(amap)
    amap.save(folder / "run" / "map.nc")
    return made, amap


def with_test(amap):
    """The map with known results of the test, and with two neurons that have the same score."""
    p_values = np.r_[np.full(5, 1e-8), 0.005, np.full(6, 0.9)]
    share = np.r_[np.linspace(0.5, 0.1, 6), np.full(6, -0.02)]
    controls = np.array([0.4, 0.6])
    tested = {
        "heading": Connections(share, share - 0.05, share + 0.05, p_values, None, controls),
        "position": Connections(
            share[::-1], share[::-1] - 0.05, share[::-1] + 0.05, p_values[::-1], None, controls
        ),
    }
    scores = {name: values.copy() for name, values in amap.scores.items()}
    scores["heading"][[7, 3]] = scores["heading"].max() + 0.1
    return replace(amap, scores=scores, connections=tested)


@pytest.fixture(scope="session")
def session_files(tmp_path_factory):
    """A table of four sessions of two animals, whose names are HTML."""
    folder = tmp_path_factory.mktemp("sessions")
    lines = ["file,session,animal,day"]
    for animal in range(2):
        for day in (1, 2):
            name = f"m{animal}day{day}.npz"
            write(session_recording(10 * animal + day, n_heading=4 + animal), folder / name)
            lines.append(f"{name},<b>{animal}</b> {day},<i>mouse</i>{animal},{day}")
    (folder / "sessions.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="session")
def joint_run(session_files):
    """A run over four sessions that were trained together, and its maps."""
    settings = SessionSettings(
        Source("", ("heading",)), read_sessions(session_files / "sessions.csv"), QUICK
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        made = make_session_run(settings, session_files / "joint")
        return made, make_maps(made, test=True)


@pytest.fixture
def open_page(browser):
    """Opens a page offline; a request to a network or a message on the console is a failure."""
    contexts, wrong = [], []

    def opened(path, **options):
        context = browser.new_context(offline=True, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"file://{path}")
        page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=300_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
