#!/usr/bin/env python3
"""Finds turns of phrase that readers have to translate: in pages, and in texts that users see in errors.

It knows only the worst patterns. A phrase that is right all the same goes into `ALLOWED`. Prints one line per finding,
and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from doc_pages import ROOT, pages, prose

# What to look for, and what to write instead.
PATTERNS = [
    (r"(?:is|are|was|were|be) had\b", "use a verb: uses, has, receives"),
    (r"(?<!there )(?-i:(?:is|are) none)(?: of)?\b", "say 'no X', 'is not an X' or 'X is missing'"),
    (r"(?<!there )(?<!it )(?<!which )(?:is|are) no (?!longer|more|less|such|\w+er\b)\w+", "say 'is not a ...'"),
    (r"(?:is|are|was|were|be|being) refused\b", "say 'is not supported', 'is an error' or 'raises ...'"),
    (r"that (?:are|is) no (?!longer|more|less)\w+", "say 'that are not ...'"),
    (r"(?:lies|lie|lay)\b", "say 'is stored', 'is in', 'is at'"),
    (r"(?:gives|gave)(?! (?:way|up))\b", "say 'returns', 'produces' or 'results in'"),
    (r"tells\b", "say 'reports', 'says' or 'exports'"),
    (r"(?:can|could|cannot) be told\b", "say 'can be seen' or 'is unknown'"),
    (r"(?:is|are) to (?:be|do|go|have|hold|run|say|take)\b", "say 'must', 'should' or 'will'"),
    (r"(?:that|what) data decides\b|(?:extent|size)s? that depends? on (?:the )?data's", "say 'data-dependent'"),
    (r"some \d+", "say 'about'"),
    (r"what (?:\w+ ){1,4}(?:is|are) (?:not )?(?:taken|accepted|supported)\b", "name the thing"),
    (
        r"(?:whereof|thereof|therein|thereby|hitherto|lest|whither|thence|hence|upon|save for|ere)\b",
        "use a modern word",
    ),
    (r"(?:one's own|of its like|of the like)\b", "say 'your own' or name the thing"),
    (r"whatever is (?:no|not)\b", "name the thing"),
    (r"(?:holds|held) of\b", "say 'contains' or 'applies to'"),
    (r"(?:is|are) asked of\b", "say 'is required of'"),
    (r"makes? of (?:it|them|these|those)\b", "say 'turns ... into'"),
]
_COMPILED = [(re.compile(rf"\b(?:{pattern})", re.IGNORECASE), advice) for pattern, advice in PATTERNS]

ALLOWED = {
    "What was done, and what each step gave",  # A heading that other pages link.
    "what-was-done-and-what-each-step-gave",
    '"extent that data decides"',  # The glossary, of words to avoid.
    '"what it takes, what it gives"',
    "gives them turns",
}

PENDING: set[str] = set()
"""Files with findings that wait for their turn."""

_CPP_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, phrase and advice for each finding."""
    for number, line in enumerate(text.splitlines(), 1):
        plain = line
        for allowed in ALLOWED:
            plain = plain.replace(allowed, " " * len(allowed))
        for pattern, advice in _COMPILED:
            for match in pattern.finditer(plain):
                yield number, match[0], advice


def strings_of_python(text: str) -> str:
    """The file's string literals on their lines, docstrings left out."""
    lines = [""] * (text.count("\n") + 2)
    tree = ast.parse(text)
    documentation = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            lines[node.lineno - 1] += " " + node.value.replace("\n", " ")
    return "\n".join(lines)


def strings_of_cpp(text: str) -> str:
    """The file's string literals with a space in them, on their lines."""
    without = re.sub(r"//[^\n]*|/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)
    lines = without.splitlines()
    return "\n".join(" ".join(s for s in _CPP_STRING.findall(line) if " " in s) for line in lines)


def sources() -> Iterator[tuple[Path, str]]:
    """Each file to check, with the text that a reader sees."""
    generated = {ROOT / "docs/ops.md", ROOT / "docs/api/c.md"}
    for page in pages():
        if page not in generated and not page.is_relative_to(ROOT / "docs/reference"):
            yield page, prose(page.read_text(encoding="utf-8"))
    command = ["git", "ls-files", "python/disc", "lib", "dialects"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        file = ROOT / name
        if not file.is_file():
            continue
        if file.suffix == ".py":
            yield file, strings_of_python(file.read_text(encoding="utf-8"))
        elif file.suffix in (".cpp", ".h"):
            yield file, strings_of_cpp(file.read_text(encoding="utf-8"))


def main() -> int:
    """Prints every finding; returns 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="only these files (default: all)")
    wanted = {file.resolve() for file in parser.parse_args().files}
    found = 0
    for file, text in sources():
        if file not in wanted if wanted else file.relative_to(ROOT).as_posix() in PENDING:
            continue
        for line, phrase, advice in findings(text):
            print(f'{file.relative_to(ROOT)}:{line}: "{phrase}": {advice}')
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
