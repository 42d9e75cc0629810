"""What the documentation says to type works when it is typed."""

import ast
import json
import re
import shlex
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pynwb
import pytest
from scipy.ndimage import gaussian_filter1d
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.statistics import block_gains
from xcebra.training import plan as planning
from xcebra.training import settings

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HEAD_DIRECTION = ROOT.parent / "shared" / "data" / "head_direction.nwb"
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Pages with code that cannot be typed here, and why.
NOT_TYPED = {"docs/reproduce.md": "a script for a cluster"}
# Pages whose code needs a package that is no requirement of ours.
NEEDS = {"docs/howto/nemos.md": "nemos"}
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if "_build" not in path.parts and BLOCK.search(path.read_text(encoding="utf-8"))
]


@pytest.fixture
def short(monkeypatch):
    """The recipe with so few steps that reading a page takes seconds."""
    recipes = {**settings.RECIPES, "xcebra": replace(settings.RECIPES["xcebra"], steps=5)}
    monkeypatch.setattr(settings, "RECIPES", recipes)
    monkeypatch.setattr(planning, "RECIPES", recipes)
    monkeypatch.setattr(block_gains, "N_SHIFTS", 3)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """An empty folder, and no cache but its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def day1(lab, monkeypatch):
    """A small file with the names of the public recording of head-direction cells, in its place.

    It stands as ``day1.nwb`` in the folder, beside a table of its units.
    """
    path = write_stand_in(lab / "day1.nwb")
    shutil.copy(path, lab / "kept.nwb")
    # The function has the name of its module.
    module = import_module("xcebra.datasets.head_direction")
    monkeypatch.setattr(module, "fetch", lambda *_, **__: {"kept": lab / "kept.nwb"})
    table = "unit,cell_type,quality\n" + "".join(f"{k},pyramidal,{k % 3}\n" for k in range(10))
    (lab / "units.csv").write_text(table)
    return path


def write_stand_in(path):
    """Two minutes, ten units of two areas, the tracking of a head, trials and epochs."""
    rng = np.random.default_rng(0)
    times = np.arange(0, 120, 1 / 60)
    heading = np.cumsum(rng.normal(0, 0.1, len(times)))
    position = gaussian_filter1d(rng.normal(size=(len(times), 3)), 60, axis=0)
    file = pynwb.NWBFile("stand-in", "day1", datetime(2020, 1, 1, tzinfo=UTC))
    behaviour = file.create_processing_module("behavior", "tracking")
    columns = {"ry": np.mod(heading, 2 * np.pi), **dict(zip("xyz", position.T, strict=True))}
    for name, values in columns.items():
        unit = "radian" if name == "ry" else "meters"
        behaviour.add(pynwb.TimeSeries(name=name, data=values, unit=unit, timestamps=times))
    file.add_unit_column("location", "area")
    preferred = rng.uniform(0, 2 * np.pi, 10)
    for k in range(10):
        rate = 15 * np.exp(3 * (np.cos(heading - preferred[k]) - 1)) if k < 5 else 8.0
        file.add_unit(
            spike_times=times[rng.random(len(times)) < rate / 60],
            location="adn" if k < 5 else "ca1",
        )
    file.add_trial_column("choice", "side")
    for start in range(0, 120, 4):
        file.add_trial(start_time=start + 0.5, stop_time=start + 3.5, choice=rng.choice(["l", "r"]))
    file.add_epoch(0.0, 60.0, ["sleep"])
    file.add_epoch(60.0, 120.0, ["wake"])
    with pynwb.NWBHDF5IO(path, "w") as io:
        io.write(file)
    return path


def typed(text):
    """Commands of a shell, without the installation and with fewer samples."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "xcebra":
            yield words[1:] + ["--steps", "2000"] * (words[1] == "simulate")


def shorter(text):
    """The same code on fewer samples."""
    text = re.sub(r"n_steps=\d[\d_]*", "n_steps=2_000", text).replace("20_000", "2_000")
    return text.replace("time_dims=(2, 3, 4)", "time_dims=(2, 3), jobs=1, steps=2")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_TYPED])
@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
# Spike times that end before an epoch does, as pynapple sees it.
@pytest.mark.filterwarnings("ignore::UserWarning:pynapple")
def test_a_page_can_be_typed_from_top_to_bottom(page, day1, short):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason=f"{page} needs {NEEDS[page]}")
    names = {"__name__": "typed"}
    for kind, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(ast.parse(shorter(text)), page, "exec"), names)
            continue
        for words in typed(text):
            result = CliRunner().invoke(app, words, prog_name="xcebra")
            assert result.exit_code == 0, (words, result.output)
    plt.close("all")


def test_pages_that_are_not_typed_are_still_there():
    assert set(NOT_TYPED) | set(NEEDS) <= set(PAGES)


def test_commands_and_code_on_pages_are_marked_as_such():
    """A block without a language is not typed, and so must not look like something to type."""
    fence = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        if "_build" in page.parts:
            continue
        text = re.sub(r"^```[^\n]+\n.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for block in fence.findall(text):
            assert "xcebra" not in block, f"{page.name}: {block}"


def test_pages_call_only_labels_controls():
    """Units that cannot carry a label are surrogate units."""
    glossary = (DOCS / "glossary.md").read_text()
    assert "**control**" in glossary
    assert "**surrogate units**" in glossary
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        text = re.sub(r"`[^`]*`|which version 0.3.0 called controls", "", page.read_text())
        assert not re.search(r"\bcontrols\b", text, re.IGNORECASE), page.name


def test_what_inspect_shows_of_the_simulated_rat_is_what_is_printed(lab):
    """The same number of spikes, the same ranges."""
    page = (DOCS / "howto" / "navigation.md").read_text()
    words = shlex.split(re.search(r"^xcebra (simulate .*)$", page, re.MULTILINE)[1])
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["inspect", "rat.nwb"]).stdout in page


@pytest.mark.skipif(not HEAD_DIRECTION.is_file(), reason=f"there is no {HEAD_DIRECTION}")
def test_what_inspect_shows_of_the_real_recording_is_what_is_printed(lab):
    page = (DOCS / "quickstart.md").read_text()
    shutil.copy(HEAD_DIRECTION, lab / "day1.nwb")
    told = CliRunner().invoke(app, ["inspect", "day1.nwb"]).stdout
    for line in told.partition("\n\n")[0].splitlines()[1:]:
        # Name, kind and times; the words between them are not compared.
        name, kind, *_, when = re.split(r" {2,}", line.strip())
        assert re.search(rf"^{name} +{kind} .*{re.escape(when)}$", page, re.MULTILINE), line


@pytest.mark.parametrize("path", sorted(DOCS.glob("notebooks/*.ipynb")), ids=lambda p: p.name)
def test_notebooks_are_committed_with_their_outputs(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    outputs = [o for c in cells for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert sum("image/png" in o.get("data", {}) for o in outputs) >= 1


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/**/*.ipynb"]
)
def test_links_lead_to_files_that_are_there(page):
    """The site is built without this check, since results lie outside of it."""
    root = DOCS.parent
    found = [path for path in root.glob(page) if "_build" not in path.parts]
    assert found
    for path in found:
        for link in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", path.read_text()):
            # What has no dot is a formula: A[i](t).
            if "." in link and "://" not in link:
                assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_numbers_in_the_readme_are_those_of_the_committed_rows():
    root = DOCS.parent
    lines = re.findall(r"^\|.*\|$", (root / "README.md").read_text(), re.MULTILINE)
    rows = [line for line in lines if not line.startswith(("| measure", "|---"))]
    assert 1 <= len(rows) <= 6
    assert set(rows) <= set((root / "results" / "real" / "real.md").read_text().splitlines())


def test_every_page_is_in_the_table_of_contents():
    pages = [
        p for kind in ("md", "ipynb") for p in DOCS.glob(f"**/*.{kind}") if "_build" not in p.parts
    ]
    listed = {DOCS / "index"}
    for page in pages:
        for block in re.findall(
            r"^```{toctree}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
        ):
            listed |= {page.parent / line for line in block.split() if not line.startswith(":")}
    assert {page.with_suffix("") for page in pages} == listed
