"""The lines of a file, or of code typed at a prompt."""

from __future__ import annotations

import linecache
from typing import Any

_TYPED = ("<ipython-input-", "<python-input-", "<stdin>-", "<doctest ")
"""How the names of typed code begin: IPython, Python 3.13 and newer, 3.13.0 with its basic prompt, doctest."""


def lines_of(file: str, module_globals: dict[str, Any] | None = None) -> list[str]:
    """The lines of ``file``; an empty list if it cannot be read."""
    if file == "<string>":
        # All code that exec runs has this name. Python 3.13 stores the lines of `python -c` under it.
        return []
    lines = linecache.getlines(file, module_globals)
    if lines or not file.startswith(_TYPED):
        return lines
    # Newer versions of Python store typed code under (file, function, line), with all of its lines.
    typed: dict[Any, Any] = getattr(linecache, "_interactive_cache", {})
    return next((list(entry[2]) for key, entry in typed.items() if key[0] == file and len(entry) > 2), [])


def line_of(file: str, number: int) -> str:
    """A line of ``file`` without the spaces around it; an empty string if it cannot be read."""
    lines = lines_of(file)
    return lines[number - 1].strip() if 1 <= number <= len(lines) else ""


def is_typed(file: str) -> bool:
    """Whether ``file`` is the name of code typed at a prompt."""
    return file.startswith(_TYPED) and bool(lines_of(file))
