"""What the documentation says to type works when it is typed."""

import ast
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.statistics import significance
from xcebra.training import plan as planning
from xcebra.training import settings

pytestmark = pytest.mark.docs
DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "quickstart.md",
    "coming_from_cebra.md",
    *(f"howto/{p.name}" for p in DOCS.glob("howto/*.md") if p.stem != "index"),
)
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def short(monkeypatch):
    """The recipe with so few steps that reading a page takes seconds."""
    recipes = {**settings.RECIPES, "xcebra": replace(settings.RECIPES["xcebra"], steps=5)}
    monkeypatch.setattr(settings, "RECIPES", recipes)
    monkeypatch.setattr(planning, "RECIPES", recipes)
    monkeypatch.setattr(significance, "N_SHIFTS", 3)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """An empty folder, and no cache but its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path / "cache"))
    return tmp_path


def typed(text):
    """Commands of a shell, without the installation and with fewer samples."""
    for line in text.splitlines():
        words = shlex.split(line)
        if words and words[0] == "xcebra":
            yield words[1:] + ["--steps", "2000"] * (words[1] == "simulate")


def shorter(text):
    """The same code on fewer samples."""
    text = re.sub(r"n_steps=\d[\d_]*", "n_steps=2_000", text).replace("20_000", "2_000")
    return text.replace("time_dims=(2, 3, 4)", "time_dims=(2, 3), jobs=1, steps=2")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_a_page_can_be_typed_from_top_to_bottom(page, lab, short):
    simulate = "simulate synthetic --counts --steps 3000 --out day1.nwb --quiet"
    assert CliRunner().invoke(app, simulate.split()).exit_code == 0
    names = {"__name__": "typed"}
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert blocks
    for kind, text in blocks:
        if kind == "python":
            exec(compile(ast.parse(shorter(text)), page, "exec"), names)
            continue
        for words in typed(text):
            result = CliRunner().invoke(app, words, prog_name="xcebra")
            assert result.exit_code == 0, (words, result.output)
    plt.close("all")


def test_the_quickstart_shows_what_is_printed(lab):
    """Of the recording it simulates: the same number of spikes, the same ranges."""
    page = (DOCS / "quickstart.md").read_text()
    words = shlex.split(re.search(r"^xcebra (simulate .*)$", page, re.MULTILINE)[1])
    assert CliRunner().invoke(app, words).exit_code == 0
    told = CliRunner().invoke(app, ["inspect", "rat.nwb"]).stdout
    assert told in page


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
