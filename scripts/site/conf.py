"""Sphinx's configuration of the site. `make docs` runs it, with the root of the repository as the folder of sources."""

import pathlib
import re

from docutils import nodes
from pygments.lexers import TextLexer
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

# See docs/decisions.md, "The site is made of the documents as they are".
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where readers of the site find files of the repository that are no pages of it.
REPOSITORY = "https://github.com/ringcache/ringcache"

project = "ringcache"
root_doc = "docs/index"
# The pages: all of docs, and those that documents link to. Markdown elsewhere is for readers of the sources.
include_patterns = [
    "docs/*.md", "docs/*/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/results/*.md",
    "README.md", "*/README.md", "*/*/README.md",
]
exclude_patterns = [".*", "bin", "**/testdata"]
extensions = ["myst_parser"]
myst_heading_anchors = 6  # the anchors that readers of the files have, too
myst_links_external_new_tab = False
suppress_warnings = ["toc.not_included"]  # the README and tables of figures are linked to, and have no place of their own
highlight_language = "none"  # blocks without a language are output
nitpicky = True

html_theme = "furo"
html_title = "ringcache"
html_show_copyright = False
html_copy_source = False
html_last_updated_fmt = None  # the site of one commit is always the same
# Colours alone: the theme's own fonts are those of the reader's system, and nothing is loaded from elsewhere.
html_theme_options = {"light_css_variables": {"color-brand-primary": "#2a6a9b", "color-brand-content": "#2a6a9b"}}

logger = logging.getLogger(__name__)


class RepositoryLinks(SphinxTransform):
    """Links to files and folders that are no pages go to the repository; each must exist."""

    default_priority = 5  # before Sphinx collects what is to be downloaded

    def apply(self, **_):
        page = pathlib.Path(self.env.doc2path(self.env.docname)).parent
        for node in [*self.document.findall(addnodes.download_reference), *self.document.findall(addnodes.pending_xref)]:
            target, _, anchor = node["reftarget"].partition("#")
            if isinstance(node, addnodes.pending_xref):
                # Of a page or a heading Sphinx takes care.
                if node.get("reftype") != "myst" or not target or not (page / target).is_dir():
                    continue
            path = (page / target.lstrip("/")).resolve()
            if not path.exists() or not path.is_relative_to(ROOT):
                logger.warning("no such file: %s", node["reftarget"], location=node)
                continue
            kind = "tree" if path.is_dir() else "blob"
            uri = f"{REPOSITORY}/{kind}/main/{path.relative_to(ROOT)}" + (f"#{anchor}" if anchor else "")
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=False))


def navigation(app, docname, source):
    """Makes the side bar of docs/index.md, which is a plain list: a section is a caption, its first links are the pages."""
    if docname != root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        caption, text = section.split("\n", 1)
        pages = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", text, re.M)
        # A page that an earlier section has is in the side bar once.
        listed = [p for p in pages if not re.search(rf"^{re.escape(p)}$", source[0].partition("```{toctree}")[2], re.M)]
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(listed) + "\n```\n"


def first_page(app, error):
    """Whoever opens the site's folder gets its first page."""
    if error is None:
        start = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{project}</title>\n' \
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n<a href="{root_doc}.html">{project}</a>\n'
        (pathlib.Path(app.outdir) / "index.html").write_text(start)


def setup(app):
    for language in "request", "request-refused", "reply", "reply-alone":  # of docs/daemon.md, whose test needs to tell them apart
        app.add_lexer("wire-" + language, TextLexer)
    app.add_transform(RepositoryLinks)
    app.connect("source-read", navigation)
    app.connect("build-finished", first_page)
