#!/usr/bin/env python3
"""Checks the documentation without building the site: links, anchors, the navigation, and pages that code names.

Prints one line per mistake and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from doc_pages import ROOT, anchors, links, pages, prose

_LIST_ITEM = re.compile(r"([-*+]|\d+\.) ")


def link_mistakes(page: Path) -> Iterator[str]:
    """Links to files that do not exist, and to headings that the target page does not have."""
    text = page.read_text(encoding="utf-8")
    for line, target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        where = f"{page.relative_to(ROOT)}:{line}"
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{where}: {target}: no such file"
        elif file.is_dir():
            yield f"{where}: {target}: is a folder; link a file in it"
        elif not file.is_relative_to(ROOT):
            yield f"{where}: {target}: outside of the repository"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{where}: {target}: no such heading"


def form_mistakes(page: Path) -> Iterator[str]:
    """Markdown that GitHub and the site render differently."""
    previous = ""
    text = page.read_text(encoding="utf-8")
    for number, (line, original) in enumerate(zip(prose(text).splitlines(), text.splitlines(), strict=True), 1):
        where = f"{page.relative_to(ROOT)}:{number}"
        item = line.strip()
        is_item, was_item = bool(_LIST_ITEM.match(item)), previous.startswith((" ", "\t")) or _LIST_ITEM.match(previous)
        plain = previous.strip() and not previous.lstrip().startswith(("|", "#", ">"))
        if is_item and plain and not was_item:
            yield f"{where}: a list needs an empty line before it"
        if item.startswith("|") and plain:
            yield f"{where}: a table needs an empty line before it"
        # A table or a list directly after a fence is text for the site.
        previous = "```" if original.strip() == "```" else line


def navigation_mistakes() -> Iterator[str]:
    """Pages that the site's navigation does not have, and entries without a page."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    entries = re.findall(r"([\w/.-]+\.md)\s*$", text.partition("\nnav:")[2], re.MULTILINE)
    existing = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    for entry in sorted(set(entries) - existing):
        yield f"mkdocs.yml: {entry}: no such page in docs"
    listed = {page for page in existing if re.fullmatch(r"errors/DISC\d+\.md", page)}  # by errors/index.md
    for page in sorted(existing - set(entries) - listed):
        yield f"docs/{page}: missing in the navigation of mkdocs.yml"
    for entry in sorted({entry for entry in entries if entries.count(entry) > 1}):
        yield f"mkdocs.yml: {entry} occurs twice"


def reference_mistakes() -> Iterator[str]:
    """Paths of pages that code, comments and error messages name."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        file = ROOT / name
        if file.suffix not in (".py", ".h", ".cpp", ".td", ".sh", ".toml", ".txt") or not file.is_file():
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for page in re.findall(r"\bdocs/[\w/.-]+?\.md\b", line):
                if not (ROOT / page).is_file():
                    yield f"{name}:{number}: {page}: no such page"


def main() -> int:
    """Prints every mistake; returns 1 if there is one."""
    mistakes = [mistake for page in pages() for check in (link_mistakes, form_mistakes) for mistake in check(page)]
    mistakes += [*navigation_mistakes(), *reference_mistakes()]
    print("\n".join(mistakes), end="\n" if mistakes else "")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
