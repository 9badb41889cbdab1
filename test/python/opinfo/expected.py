"""The lists of what does not pass, or only with less asked: one line each, ``op | dtypes | reason``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .evaluate import Outcome
from .samples import DTYPES

PATH = Path(__file__).with_name("failing.txt")
LESS = Path(__file__).with_name("less.txt")
NOT_EXPORTED = Path(__file__).with_name("not_exported.txt")
_HEADS = {
    PATH: "# Ops of OpInfo that do not pass, by dtype, and why. The list only shrinks: python -m opinfo --shrink.",
    LESS: "# Ops of OpInfo that pass only where less is asked: static extents, static weights or fewer samples.",
    NOT_EXPORTED: "# Ops of OpInfo of whose samples torch.export can express none.",
}


def read(path: Path) -> dict[tuple[str, str], str]:
    """(op, dtype) to reason."""
    entries = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            op, dtypes, reason = (part.strip() for part in line.split("|"))
            entries |= {(op, dtype): reason for dtype in dtypes.split()}
    return entries


def write(path: Path, entries: dict[tuple[str, str], str]) -> None:
    """Writes what :func:`read` reads; dtypes with one reason share a line."""
    lines: dict[tuple[str, str], list[str]] = {}
    for (op, dtype), reason in entries.items():
        lines.setdefault((op, reason), []).append(dtype)
    order = list(DTYPES)
    text = [_HEADS[path]]
    for (op, reason), dtypes in sorted(lines.items(), key=lambda item: (item[0][0], order.index(item[1][0]))):
        text.append(f"{op} | {' '.join(sorted(dtypes, key=order.index))} | {reason}")
    path.write_text("\n".join(text) + "\n")


def renew(outcomes: Iterable[Outcome], *, grow: bool) -> None:
    """Brings the lists up to date with ``outcomes``; new failures are listed only if ``grow``."""
    failing, less, unexported = read(PATH), read(LESS), read(NOT_EXPORTED)
    for outcome in outcomes:
        key = (outcome.op, outcome.dtype)
        known = failing.pop(key, None)
        unexported.pop(key, None)
        was_less = less.pop(key, None)
        if outcome.kind == "less" and (was_less is not None or known is not None or grow):
            less[key] = outcome.less
        elif outcome.kind == "export":
            unexported[key] = outcome.reason
        elif outcome.kind == "fail" and (known is not None or grow):
            # Why values differ is written by hand.
            failing[key] = known if known and outcome.reason.startswith("values") else outcome.reason
    write(PATH, failing)
    write(LESS, less)
    write(NOT_EXPORTED, unexported)
