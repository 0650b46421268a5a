"""The site: `make docs` builds it in build/docs, without a network, and fails on any warning."""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from generate import write_pages  # noqa: E402

project = "factormer"
author = "The factormer developers"
copyright = author
version = release = version_of("factormer")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["generated/fragments/**", "results/benchmarks/*.md"]
default_role = "code"
smartquotes = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say them, with shapes
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "factormer"
html_static_path = ["_static", "examples/sounds"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072b2",
        "color-brand-content": "#0072b2",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
    },
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}

write_pages(HERE)


def setup(app):
    """Read docstrings as plain text with `code`, and link to the log as to other files."""
    app.connect("autodoc-process-docstring", _as_plain_text, priority=100)
    app.connect("source-read", _link_files)


def _as_plain_text(app, what, name, obj, options, lines):
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
        lines[number] = "".join(pieces)


def _link_files(app, docname, source):
    """Turn links to pages of the lab, which are no pages of the site, into links to files."""
    source[0] = re.sub(r"\]\(((?:\.\./)+lab/[^)]*\.md)\)", r"](path:\1)", source[0])
