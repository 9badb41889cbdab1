"""Hooks of MkDocs: pages and pictures outside of docs/ that pages link become a part of the site.

Links are written for the repository (`../bench/README.md`), so that they work on GitHub, too. The site has such files
under ``repository/``: other pages as pages, everything else as it is.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from doc_pages import ROOT, links

_DOCS = "docs/"
_REPOSITORY = "repository/"


def _source(uri: str) -> str:
    """The path in the repository of a page of the site."""
    return uri.removeprefix(_REPOSITORY) if uri.startswith(_REPOSITORY) else _DOCS + uri


def _uri(path: str) -> str:
    """Where the site has a file of the repository."""
    return path.removeprefix(_DOCS) if path.startswith(_DOCS) else _REPOSITORY + path


def _linked(path: str) -> list[str]:
    """The files of the repository that a page links."""
    text = (ROOT / path).read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for _, target in links(text) if not re.match(r"[a-z]+:|#", target)]
    found = [posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in targets]
    return [name for name in found if (ROOT / name).is_file()]


def on_files(files: Files, config: Any) -> Files:
    """Adds what pages link outside of docs/, and what those files link in turn."""
    pending = [_source(file.src_uri) for file in files.documentation_pages()]
    seen = set(pending)
    while pending:
        for path in _linked(pending.pop()):
            if path in seen or path.startswith(_DOCS):
                continue
            seen.add(path)
            level = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path), inclusion=level))
            if path.endswith(".md"):
                pending.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites links that leave docs/, or that come from outside of it, to where the site has their targets."""
    here = page.file.src_uri
    folder = posixpath.dirname(_source(here))

    def moved(match: re.Match[str]) -> str:
        target, anchor = match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if not (ROOT / path).is_file():
            return match[0]
        return f"{match[1]}({posixpath.relpath(_uri(path), posixpath.dirname(here) or '.')}{anchor})"

    # The docstrings in it write x[i][j], which would be a link to a heading.
    if here == "ops.md":
        markdown = markdown.replace("][", "]\\[")
    return re.sub(r"(\])\((?![a-z]+:)([^()#\s]+)(#[^()\s]+)?\)", moved, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Takes the roles of docstrings away (``:func:`disc.compile` ``), which Markdown does not know."""
    return re.sub(r":(?:func|class|meth|mod|attr):(?=<code>)", "", html)
