"""Shapes written in annotations are enforced while testing; Ctrl-C works however pytest started."""

import os
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

os.environ["MPLBACKEND"] = "Agg"

from jaxtyping import install_import_hook

_CHECKED = (
    "statistics.deviance",
    "training.infonce",
    "networks.jacobian",
    "networks.encoder",
    "networks.decoder",
    "networks.crossed_decoder",
    "networks.crossed_fit",
    "networks.labels_part",
    "attribution.crossed_source",
    "attribution.crossed_derivatives",
    "attribution.crossed_mixtures",
    "attribution.crossed_explained",
    "attribution.crossed_map",
    "attribution.methods",
    "attribution.engine",
)

with install_import_hook([f"xcebra.{name}" for name in _CHECKED], "beartype.beartype"):
    # Names of the package are imported when they are used: these are used here.
    import xcebra.attribution.module
    import xcebra.estimator  # noqa: F401
    from xcebra.training.settings import RECIPES


# Steps of the decoders in tests, a third of the recipe's; slow tests and typed pages have them all.
_DECODER_STEPS = 500
_RECIPES = dict(RECIPES)


def pytest_configure(config):
    if "not slow" in config.option.markexpr:
        for name, recipe in _RECIPES.items():
            RECIPES[name] = replace(recipe, decoder_steps=_DECODER_STEPS)
    # Most models here are trained for a moment only, and miss what longer training would find.
    config.addinivalue_line("filterwarnings", "ignore:one pattern of activity:UserWarning")
    # A shell that starts a process in the background may let it ignore Ctrl-C, and so its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def full_decoders():
    """A context in which decoders are trained as a user's are."""

    @contextmanager
    def full():
        before = dict(RECIPES)
        RECIPES.update(_RECIPES)
        try:
            yield
        finally:
            RECIPES.update(before)

    return full


@pytest.fixture
def short_decoders(monkeypatch):
    """For what is told by the encoder alone: its decoders are trained for a moment only."""
    for name, recipe in RECIPES.items():
        monkeypatch.setitem(RECIPES, name, replace(recipe, decoder_steps=40))


@pytest.fixture(scope="session")
def browser():
    """A real browser, one for all tests of a process."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        if os.environ.get("XCEBRA_REQUIRE_CHROMIUM"):
            pytest.fail("Chromium is required here and is not on the PATH")
        pytest.skip("needs Chromium on the PATH to look at the page")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
