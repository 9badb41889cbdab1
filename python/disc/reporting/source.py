"""The user's source with the time of each line, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath

from ..source_lines import lines_of
from .measurement import Line

_CONTEXT = 2
"""Lines shown before and after one with a kernel."""


@dataclass(frozen=True)
class Row:
    """A line of a file."""

    number: int
    code: str
    """HTML."""
    line: Line | None
    """The time of the line, if the compiler made a kernel of it."""
    gap: int
    """How many lines are left out before it."""


@dataclass(frozen=True)
class SourceFile:
    """The part of a file that kernels come from."""

    path: str
    name: str
    share: float
    """Of the time of all kernels."""
    rows: tuple[Row, ...]
    """Empty if the file cannot be read."""
    lines: tuple[Line, ...]
    """The lines with a kernel, in the order of the file."""


def source_files(lines: Sequence[Line]) -> list[SourceFile]:
    """The files that lines are in, the most expensive first."""
    by_file: dict[str, list[Line]] = {}
    for line in lines:
        # A node of an ONNX model is "model.onnx#name:3", and has no text.
        path = line.file.partition("#")[0] if ".onnx#" in line.file else line.file
        by_file.setdefault(path, []).append(line)
    files = []
    for path, found in by_file.items():
        ordered = sorted(found, key=lambda line: line.number)
        share = sum(line.share for line in found)
        files.append(SourceFile(path, PurePath(path).name, share, tuple(_rows(path, ordered)), tuple(ordered)))
    return sorted(files, key=lambda file: -file.share)


def _rows(path: str, lines: Sequence[Line]) -> list[Row]:
    text = lines_of(path) if all(line.file == path for line in lines) else []
    if not text or any(not 1 <= line.number <= len(text) for line in lines):
        return []
    timed = {line.number: line for line in lines}
    shown = _shown(text, set(timed))
    indents = [len(text[n - 1]) - len(text[n - 1].lstrip()) for n in shown if text[n - 1].strip()]
    code = highlighted([_without_indent(line, min(indents, default=0)) for line in text])
    rows, previous = [], 0
    for number in shown:
        gap = number - previous - 1
        if gap == 1:
            rows.append(Row(number - 1, code[number - 2], None, 0))
            gap = 0
        rows.append(Row(number, code[number - 1], timed.get(number), gap))
        previous = number
    return rows


def _shown(text: Sequence[str], timed: set[int]) -> list[int]:
    """The lines with a kernel and some around them, without empty ones at the ends of a group."""
    near = {n for number in timed for n in range(number - _CONTEXT, number + _CONTEXT + 1) if 1 <= n <= len(text)}
    for order in (sorted(near), sorted(near, reverse=True)):
        step = 1 if order == sorted(order) else -1
        for n in order:
            if n - step not in near and n not in timed and not text[n - 1].strip():
                near.discard(n)
    return sorted(near)


def _without_indent(line: str, most: int) -> str:
    return line[min(most, len(line) - len(line.lstrip(" "))) :]


def highlighted(lines: Sequence[str]) -> list[str]:
    """The lines of Python as HTML, with pygments' short classes."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    text = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    lexer = PythonLexer(stripnl=False, ensurenl=True)
    html = highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")[: len(lines)]
    # A form feed or another character that only Python takes for the end of a line.
    return html if len(html) == len(lines) else [escape(line.rstrip("\n")) for line in lines]
