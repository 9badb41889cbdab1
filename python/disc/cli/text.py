"""Formats and errors that the commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from .. import __version__
from ..suggestions import nearest

if TYPE_CHECKING:
    from rich.console import Console

FAILURE = 1
"""The exit status of a command that could not do its work."""
USAGE = 2
"""The exit status for a wrong command line."""
INTERRUPTED = 130

_LISTED = 12
"""The most names that an error lists."""
_KNOWN_NAMES = re.compile(
    r"(.*(?:no \w+ is called|no target) '([^']*)'.*?); (?:the targets are|there are): (.+?)"
    r"( \(DISC\d+\))?",
    re.S,
)


class CommandError(Exception):
    """What a command reports as one line on stderr, before it ends with ``status``."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


def fail(message: str, status: int = FAILURE) -> NoReturn:
    """Ends the command with an error message."""
    raise CommandError(message, status)


def reason(error: BaseException) -> str:
    """An exception in one sentence."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return str(error) or "there is not enough memory"
    return str(error) or type(error).__name__


def version() -> str:
    """What ``--version`` prints."""
    return f"disc {__version__}"


def shortened(message: str, examples: Sequence[str] = (), others: Iterable[str] = ()) -> str:
    """An error that lists every known name, with the names that are most like the one that was given.

    ``others`` are names that would have been accepted in the same place, ``examples`` those that are used most.
    """
    match = _KNOWN_NAMES.fullmatch(message)
    if match is None:
        return message
    start, given, listed = match[1], match[2], match[3].split(", ")
    if len(listed) <= _LISTED:
        return message
    return f"{start}; {suggestion(given, [*others, *listed], examples)}{match[4] or ''}"


def suggestion(given: str, known: Sequence[str], examples: Sequence[str] = ()) -> str:
    """``did you mean a, b?``, or some examples if no known name is like the given one."""
    near = nearest(given, known, 4)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"names are, for example: {', '.join(examples or known[:_LISTED])}"


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for whole rows in a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def size(count: int) -> str:
    """A number of bytes, for people."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """A time, for people."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.2f} {unit}"
    return f"{value * 1e6:.2f} us"


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows as a table; the columns numbered in ``right`` end in line, the others begin so."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)
