"""What the commands print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def fail(command: str, message: str, status: int) -> NoReturn:
    """Ends the process with an error message."""
    print(f"{command}: error: {message}", file=sys.stderr)
    sys.exit(status)


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
