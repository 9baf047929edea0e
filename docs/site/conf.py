"""The documentation as a site: `make docs-site` builds it with Sphinx into out/site."""

from __future__ import annotations

import re
from typing import ClassVar

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from jupyter_client.manager import KernelManager
from pygments.lexer import RegexLexer
from pygments.token import Generic, Text
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "weft"
html_title = "weft"
language = "en"
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["README.md", "*.py", "site"]  # README.md is the index for readers of the repository
show_warning_types = True

html_theme = "furo"
html_static_path = ["weft.css"]
html_css_files = ["weft.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # a page that is a file may not read the others
html_math_renderer = "mathml"  # the default loads MathJax from the network
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "github-dark"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_update_mathjax = False

nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # of a cell
nb_merge_streams = True
KernelManager.transport_encryption.default_value = "auto"  # or every kernel warns
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have the types
autodoc_preserve_defaults = True
default_role = "py:obj"  # `name` in a docstring: a link where there is such a name
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line, as MathML, which browsers show without a script."""
    self.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    self.body.append(mathml(node, as_block=True))
    raise nodes.SkipNode


def mathml(node: nodes.Element, *, as_block: bool) -> str:
    """A formula that cannot be read is an error of the build."""
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as wrong:
        raise ValueError(f"{node.astext()!r}: {wrong}") from None


class Console(RegexLexer):
    """Commands after a `$`, and what they print, which is of no language."""

    name = "console"
    tokens: ClassVar[dict[str, list[tuple[str, object]]]] = {
        "root": [(r"^\$ ", Generic.Prompt), (r"(?<=\$ ).*\n", Text), (r".*\n", Generic.Output)],
    }


def listed(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings that explain parameters as "`name`: text" show them as a list."""
    item = re.compile(r"^(`[\w`, *]+`|\w+Error): (.*(?:\n {4}.*)*)", re.MULTILINE)
    text = item.sub(lambda found: f"\n- {found[1]}: " + re.sub(r"\n +", "\n  ", found[2]) + "\n", "\n".join(lines))
    lines[:] = text.split("\n")


def no_fields(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Fields of named tuples stand in the docstring of their class."""
    return True if str(getattr(thing, "__doc__", "")).startswith("Alias for field number") else None


def outside(_: Sphinx, name: str, text: list[str]) -> None:
    """Links to pages outside docs/ lead to their copies in the site."""
    to_root = "../" * (name.count("/") + 1)
    to_docs = "../" * name.count("/")
    for page in ("CONTRIBUTING", "CHANGELOG"):
        text[0] = text[0].replace(f"]({to_root}{page}.md", f"]({to_docs}{page.lower()}.myst")


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    app.add_source_suffix(".myst", "myst-nb")  # pages of the site that show one from outside docs/
    app.add_lexer("console", Console)
    app.connect("autodoc-process-docstring", listed)
    app.connect("autodoc-skip-member", no_fields)
    app.connect("source-read", outside)
