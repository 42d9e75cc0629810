"""Shapes written in annotations are enforced while testing."""

import os

os.environ["MPLBACKEND"] = "Agg"

from jaxtyping import install_import_hook

_CHECKED = (
    "infonce",
    "jacobian",
    "encoder",
    "decoder",
    "crossed_decoder",
    "crossed_map",
    "methods",
    "attribution",
)

with install_import_hook([f"xcebra.{name}" for name in _CHECKED], "beartype.beartype"):
    import xcebra  # noqa: F401


def pytest_configure(config):
    # Most models here are trained for a moment only, and miss what longer training would find.
    config.addinivalue_line("filterwarnings", "ignore:one pattern of activity:UserWarning")
