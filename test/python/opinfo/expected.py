"""The list of what does not pass: one line each, ``op | dtypes | reason``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .evaluate import Outcome
from .samples import DTYPES

PATH = Path(__file__).with_name("failing.txt")
NOT_EXPORTED = Path(__file__).with_name("not_exported.txt")
_HEADS = {
    PATH: "# Ops of OpInfo that do not pass, by dtype, and why. The list only shrinks: python -m opinfo --shrink.",
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
    """Brings both lists up to date with ``outcomes``; new failures are listed only if ``grow``."""
    failing, unexported = read(PATH), read(NOT_EXPORTED)
    for outcome in outcomes:
        key = (outcome.op, outcome.dtype)
        known = failing.pop(key, None)
        unexported.pop(key, None)
        if outcome.kind == "export":
            unexported[key] = outcome.reason
        elif outcome.kind == "fail" and (known is not None or grow):
            # Why values differ is written by hand.
            failing[key] = known if known and outcome.reason.startswith("values") else outcome.reason
    write(PATH, failing)
    write(NOT_EXPORTED, unexported)
