"""The pages of the documentation as data: fenced blocks, links, headings. Used by tests and by the checks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FENCE = re.compile(r"^([ \t]*)(`{3,})([^\n`]*)\n(.*?)^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"<!-- (illustrative: [^\n]+|needs [^\n]+|run) -->\s*\Z")
_TITLE = re.compile(r'title="([^"]+)"')
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    """The number of the code's first line in the page, from 1."""
    title: str
    """The file name in the fence's ``title="..."``, or ""."""
    marker: str
    """The comment on the line before the fence: "run", "illustrative: reason", "needs disc.name", or ""."""


def pages(root: Path = ROOT) -> list[Path]:
    """Every hand-written or generated page, in the repository's order of reading."""
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md"]
    names += ["packaging/runtime/README.md"]
    found = [root / name for name in names if (root / name).is_file()]
    found += sorted((root / "examples").rglob("README.md"))
    found += sorted((root / "docs").rglob("*.md"))
    return found


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in _FENCE.finditer(text):
        words = match[3].split()
        title, marker = _TITLE.search(match[3]), _MARKER.search(text[: match.start()])
        yield Block(
            language=words[0] if words else "",
            code=textwrap.dedent(match[4]),
            line=text.count("\n", 0, match.start(4)) + 1,
            title=title[1] if title else "",
            marker=marker[1] if marker else "",
        )


def prose(text: str) -> str:
    """The page with its fenced blocks, code spans and comments blanked; line numbers stay the same."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = _FENCE.sub(blank, text)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", blank, text)


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line number and target of each link and image outside of code."""
    # Code spans inside a link's text hide nothing of its target.
    plain = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    plain = re.sub(r"(`+)([^`\n]+)\1", lambda match: match[0].replace("[", " ").replace("]", " "), plain)
    for match in _LINK.finditer(plain):
        yield plain.count("\n", 0, match.start()) + 1, match[1]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as both GitHub and the site make them."""
    plain = _FENCE.sub("", text)
    found: set[str] = set()
    for _, title in _HEADING.findall(plain):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", title.lower().strip()).replace(" ", "-")
        count = 0
        while (unique := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(unique)
    found.update(re.findall(r'<a (?:id|name)="([^"]+)"', plain))
    # Docstrings that the site puts there.
    found.update(re.findall(r"^::: (\S+)", plain, re.MULTILINE))
    return found
