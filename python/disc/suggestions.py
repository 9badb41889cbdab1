"""Names that are like one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(given: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that are most like ``given``, the best one first, ``count`` of them at most."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in difflib.get_close_matches(given.lower(), by_lower, n=count, cutoff=0.6)]


def suggesting(problem: str, given: str, known: Iterable[str], then: str) -> str:
    """``problem; did you mean 'batch'? Then ...``, or ``problem; then ...`` if no known name is like the given one."""
    near = nearest(given, known)
    return f"{problem}; did you mean {near[0]!r}? {then[:1].upper()}{then[1:]}" if near else f"{problem}; {then}"
