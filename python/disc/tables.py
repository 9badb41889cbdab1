"""Small tables for notebooks (HTML) and terminals (text)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

_MOST = 20
"""Rows that a notebook shows."""


def html(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Collection[int] = (),
    note: str = "",
) -> str:
    """A table with a caption; the notebook's own style colours it, in light and in dark."""

    def cell(tag: str, i: int, value: object) -> str:
        side = "right" if i in right else "left"
        return f'<{tag} style="text-align:{side}">{escape(str(value))}</{tag}>'

    head = "".join(cell("th", i, column) for i, column in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(cell("td", i, value) for i, value in enumerate(row)) + "</tr>" for row in rows[:_MOST]
    )
    if len(rows) > _MOST:
        note = f"and {len(rows) - _MOST} more" + (f"; {note}" if note else "")
    foot = f"<div><small>{escape(note)}</small></div>" if note else ""
    caption = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def text(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Collection[int] = ()) -> str:
    """A table with aligned columns, two spaces apart."""
    cells = [list(map(str, row)) for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = []
    for row in cells:
        parts = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def size(count: int) -> str:
    """A number of bytes with its unit."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"
