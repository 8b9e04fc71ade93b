"""How the documentation is built: `make docs`."""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402

import graphtheory  # noqa: E402

project = "graphtheory"
author = "The graphtheory developers"
copyright = author
version = release = graphtheory.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_nb",  # Markdown by MyST, and notebooks with the outputs that they are kept with
]
exclude_patterns = ["_build", "tables"]
nb_execution_mode = "off"
nitpicky = False
html_theme = "furo"
html_title = f"graphtheory {release}"
html_extra_path = ["_generated/llms.txt"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # as MathML, which browsers draw without a script

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # those of torch and Lightning refer to their own pages
napoleon_custom_sections = ["Shapes", "Source"]
napoleon_use_ivar = True  # attributes as fields, each described once
napoleon_use_rtype = False


def _outside(app, docname, source):
    """Links to files of the repository that are no page become their path, if it is there."""

    def shown(link):
        path = ((HERE / docname).parent / link[2].partition("#")[0]).resolve()
        if path.is_relative_to(HERE):
            return link[0]
        if path.name == "CONTRIBUTING.md":  # a page of its own here
            return f"[{link[1]}](/_generated/contributing.md)"
        if not path.exists():
            raise ValueError(f"{docname}: link to {link[2]}, expected a file of the repository")
        return f"`{path.relative_to(HERE.parent)}`"

    source[0] = re.sub(r"(?<!!)\[([^\]\[]*)\]\((\.\./[^)]*)\)", shown, source[0])


def _known(tex):
    """The same with commands that docutils knows; brackets grow with what they hold anyway."""
    return re.sub(r"\\[bB]ig[lr]?(?![a-z])", "", tex).replace(r"\dots", r"\ldots")


def _markdown(app, exception):
    """Each page as Markdown beside its HTML, for readers that are programs."""
    if exception or app.builder.format != "html":
        return
    for name in app.env.found_docs:
        page = Path(app.env.doc2path(name))
        if page.suffix == ".md" and not name.startswith("api/"):
            source = [page.read_text(encoding="utf-8")]
            _outside(app, name, source)
            (Path(app.outdir) / f"{name}.md").write_text(source[0], encoding="utf-8")


def _inline(writer, node):
    writer.body.append(tex2mathml(_known(node.astext())))
    raise nodes.SkipNode


def _block(writer, node):
    writer.body.append(
        f'<div class="math">{tex2mathml(_known(node.astext()), as_block=True)}</div>'
    )
    raise nodes.SkipNode


def setup(app):
    generate.main()
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("source-read", _outside)
    app.connect("build-finished", _markdown)
