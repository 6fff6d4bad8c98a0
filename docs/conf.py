"""The documentation site, built by `make docs`: Sphinx reads these settings, and each warning fails the build."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

import orlomo  # noqa: E402

project = "orlomo"
author = "the authors of orlomo"
project_copyright = author
release = version = orlomo.__version__

extensions = [
    "extension",  # extension.py in this folder
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "index"
language = "en"

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "orlomo-code"
autodoc_preserve_defaults = True
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "orlomo"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "navigation_with_keys": True,
    "light_logo": "favicon.svg",
    "dark_logo": "favicon.svg",
}
