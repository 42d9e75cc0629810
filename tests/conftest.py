"""Shapes written in annotations are enforced while testing."""

import os

os.environ["MPLBACKEND"] = "Agg"

from jaxtyping import install_import_hook

_CHECKED = ("infonce", "jacobian", "encoder", "decoder", "methods", "attribution")

with install_import_hook([f"xcebra.{name}" for name in _CHECKED], "beartype.beartype"):
    import xcebra  # noqa: F401
