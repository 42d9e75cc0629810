"""Shapes written in annotations are enforced while testing."""

import os

os.environ["MPLBACKEND"] = "Agg"
if "PYTEST_XDIST_WORKER" in os.environ:
    # Processes side by side share the cores out, as do those that tests start.
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ["OMP_NUM_THREADS"] = str(max(1, share))

from jaxtyping import install_import_hook

_CHECKED = ("infonce", "jacobian", "encoder", "decoder", "methods", "attribution")

with install_import_hook([f"xcebra.{name}" for name in _CHECKED], "beartype.beartype"):
    import xcebra  # noqa: F401


def pytest_configure(config):
    # Most models here are trained for a moment only, and miss what longer training would find.
    config.addinivalue_line("filterwarnings", "ignore:one pattern of activity:UserWarning")
