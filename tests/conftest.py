"""Shapes written in annotations are enforced while testing; Ctrl-C works however pytest started."""

import os
import signal

os.environ["MPLBACKEND"] = "Agg"

from jaxtyping import install_import_hook

_CHECKED = (
    "training.infonce",
    "networks.jacobian",
    "networks.encoder",
    "networks.decoder",
    "networks.crossed_decoder",
    "attribution.crossed_map",
    "attribution.methods",
    "attribution.engine",
)

with install_import_hook([f"xcebra.{name}" for name in _CHECKED], "beartype.beartype"):
    # Names of the package are imported when they are used: these are used here.
    import xcebra.attribution.module
    import xcebra.estimator  # noqa: F401


def pytest_configure(config):
    # Most models here are trained for a moment only, and miss what longer training would find.
    config.addinivalue_line("filterwarnings", "ignore:one pattern of activity:UserWarning")
    # A shell that starts a process in the background may let it ignore Ctrl-C, and so its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
