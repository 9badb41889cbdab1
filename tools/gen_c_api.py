#!/usr/bin/env python3
"""Writes docs/api/c.md from lib/Runtime/disc.h: its sections, the comments as text and the declarations as code.

The page is checked in; `--check` fails when it is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "lib/Runtime/disc.h"
PAGE = ROOT / "docs/api/c.md"

_SECTION = re.compile(r"/\*===-- (.+?) -+===\*/\n")

_NAME = re.compile(
    r"^typedef (?:struct|enum) (\w+)|^(?!typedef|static inline|enum)[\w ]+?\*?(disc_\w+)\(", re.MULTILINE
)


def prose(comment: str) -> str:
    """The text of a comment as paragraphs, with names of the interface as code."""
    lines = [re.sub(r"^ \*(?: |$)", "", line) for line in comment.splitlines()]
    paragraphs = re.split(r"\n\s*\n", textwrap.dedent("\n".join(lines)).strip())
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return re.sub(r"(?<![\w`])((?:disc|DISC)_\w+(?:\(\))?|DL\w+|sizeof\(\w+\)|NULL)", r"`\1`", text)


def introduction(comment: str) -> str:
    """The header's first comment: paragraphs, and the example as code."""
    body = comment.split("-===\n", 1)[1].rsplit(" *===", 1)[0]
    text = "\n".join(re.sub(r"^ \* ?", "", line) for line in body.splitlines())
    parts = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        if paragraph.startswith("  "):
            parts.append(f"```c\n{textwrap.dedent(paragraph).rstrip()}\n```")
        else:
            parts.append(re.sub(r"^(\w+): (\w)", lambda m: f"**{m[1]}.** {m[2].upper()}", prose(paragraph)))
    return "\n\n".join(parts)


def blocks(section: str) -> str:
    """A section's text: each declaration with the comment before it."""
    # Comments inside of structs stay in the code.
    result, depth, chunk = [], 0, ""
    for line in section.splitlines(keepends=True):
        chunk += line
        depth += line.count("{") - line.count("}")
        if not line.strip() and depth == 0:
            result += list(_chunk(chunk))
            chunk = ""
    result += list(_chunk(chunk))
    return "\n\n".join(result)


def _chunk(text: str) -> Iterator[str]:
    """Name, text and declaration of what stands between two empty lines."""
    text = text.strip("\n")
    match = re.match(r"/\*(.*?)\*/\n?", text, re.DOTALL)
    code = text[match.end() :] if match else text
    code = "\n".join(line for line in code.splitlines() if not line.startswith(("#", "} /*", 'extern "C"'))).strip()
    # Parameters stay below each other without the word that the page leaves out.
    code = re.sub(r"^DISC_API (.*(?:\n {9}.*)*)", lambda m: m[1].replace("\n         ", "\n"), code, flags=re.MULTILINE)
    names = _NAME.findall(code)
    if len(names) == 1:
        yield f"### {''.join(names[0])}"
    if match:
        yield prose(match[1])
    if code:
        yield f"```c\n{code}\n```"


def page() -> str:
    """The whole page."""
    text = HEADER.read_text(encoding="utf-8")
    first, *rest = _SECTION.split(text)
    lines = [
        f"<!-- Generated from {HEADER.relative_to(ROOT)} by `make docs`; edit that. -->",
        "# C",
        "",
        "`disc.h` is the interface of every library that DISC compiles. [A C++ service](../tutorials/cpp-service.md)",
        "uses it in a small program; [Deployment](../howto/deployment.md) answers questions.",
        "",
        introduction(first),
    ]
    for title, section in zip(rest[::2], rest[1::2], strict=True):
        name = title.partition(":")[0]
        body = blocks(section)
        lines += ["", f"## {name}", "", body]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Writes the page, or compares it with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    text = page()
    if parser.parse_args().check:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is stale: run `make docs` and commit the result")
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
