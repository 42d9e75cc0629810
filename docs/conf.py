"""Sphinx: Markdown pages, notebooks with their stored outputs, API from docstrings."""

import re
from importlib.metadata import version as installed
from typing import Any

project = "xcebra"
author = "The xcebra developers"
copyright = "The xcebra developers"
version = release = installed("xcebra")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_build"]

# Outputs are committed; nothing runs while the site is built.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
autosummary_generate = False

html_theme = "pydata_sphinx_theme"
html_title = "xcebra"
html_theme_options = {
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without others below them have no use for a list of those.
html_sidebars = {page: [] for page in ("index", "quickstart", "trust", "coming_from_cebra", "api")}
html_show_sourcelink = False


def _lead_to_pages(app: Any, page: str, source: list[str]) -> None:
    """Tables lie beside the documentation; on the site, links to them lead to the page of all."""
    text = re.sub(r"\]\((?:\.\./)+results/paper/([\w-]+)\.md\)", r"](#results-\1)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+results\)", "](/results.md)", text)


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _lead_to_pages)
