"""Sphinx: Markdown pages, notebooks with their stored outputs, API from docstrings."""

from importlib.metadata import version as installed

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
# Results and the README's pictures lie beside the documentation, as links to files.
suppress_warnings = ["myst.xref_missing"]

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
