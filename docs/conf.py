"""The documentation site, built by `make docs`: Sphinx reads these settings, and each warning fails the build."""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import orlomo  # noqa: E402

project = "orlomo"
author = "the authors of orlomo"
project_copyright = author
release = version = orlomo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build"]
root_doc = "index"
language = "en"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

default_role = "py:obj"  # `Task` in a docstring is a link where there is such a name, else code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "orlomo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = ">>> "
copybutton_only_copy_prompt_lines = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


def mathml(block: bool) -> object:
    """Write a formula as MathML, which browsers draw themselves: nothing is fetched from elsewhere."""

    def visit(translator: object, node: nodes.Element) -> None:
        made = tex2mathml(node.astext(), as_block=block)
        translator.body.append(f'<div class="math">{made}</div>' if block else made)  # type: ignore[attr-defined]
        raise nodes.SkipNode

    return visit, None


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.add_html_math_renderer("mathml", mathml(False), mathml(True))
