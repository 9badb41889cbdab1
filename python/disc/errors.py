"""The errors DISC raises, all importable from ``disc``."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass


class CompileError(Exception):
    """A model could not be compiled.

    Attributes:
        stage: the stage of the pipeline that failed (``"import"``, ``"shape"``, ...).
        diagnostic: what went wrong, in words.
        source: the line of Python the failing operation came from, ``file.py:12``, or None.
        reproducer: path of a file that ``disc-opt`` runs to show the same failure, or None.
    """

    def __init__(
        self,
        stage: str,
        diagnostic: str,
        source: str | None = None,
        reproducer: str | None = None,
    ) -> None:
        self.stage = stage
        self.diagnostic = diagnostic
        self.source = source
        self.reproducer = reproducer
        text = f"[{stage}] {diagnostic}"
        if source:
            text += f"\n  at {source}"
            if code := _source_line(source):
                text += f"\n    {code}"
        if reproducer:
            text += f"\n  reproduce with: disc-opt --run-reproducer {reproducer}"
        super().__init__(text)


def _source_line(source: str) -> str:
    """The code at ``file.py:12``, or an empty string when the file cannot be read."""
    match = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", source)
    return linecache.getline(match[1], int(match[2])).strip() if match else ""


@dataclass(frozen=True)
class UnsupportedOp:
    """One operation of a model that cannot be lowered."""

    name: str
    """The torch op, e.g. ``torch.aten.topk``."""
    source: str
    """``file.py:12``, or ``unknown``."""
    reason: str
    """Why it cannot be lowered."""
    node: str = ""
    """Its name in the graph that was compiled."""


class UnsupportedOpError(CompileError):
    """A model uses operations without a lowering rule; ``ops`` lists all of them."""

    def __init__(self, ops: Sequence[UnsupportedOp]) -> None:
        self.ops = tuple(ops)
        count = len(self.ops)
        lines = [f"{count} unsupported operation{'s' if count != 1 else ''}:"]
        lines += [f"  {op.source}: {op.name}: {op.reason}" for op in self.ops]
        lines.append("A rule of your own can lower an op: see disc.lowers and docs/adding-an-op.md.")
        super().__init__("import", "\n".join(lines), self.ops[0].source if self.ops else None)


class ShapeError(ValueError):
    """An input's rank or extents do not fit what the model was compiled for.

    Attributes:
        input: name of the input at fault, or None when the violation is of no single one.
        dim: its dim, or None when the rank is wrong.
        symbol: name of the dim's symbol, or None.
        expected: what the model accepts, in words.
        got: what came, in words.
    """

    def __init__(
        self,
        message: str,
        *,
        input: str | None = None,
        dim: int | None = None,
        symbol: str | None = None,
        expected: str | None = None,
        got: str | None = None,
    ) -> None:
        self.input = input
        self.dim = dim
        self.symbol = symbol
        self.expected = expected
        self.got = got
        super().__init__(message)


class LibraryError(OSError):
    """A compiled library, or a file of its weights, cannot be used.

    Attributes:
        reason: ``"file"`` (it cannot be read, is no such file, or is damaged), ``"version"`` (made by a version of DISC
            that does not fit this one), ``"target"`` (code for another kind of machine) or ``"weights"``.
    """

    reason: str = "file"

    def __init__(self, message: str, *, reason: str = "file") -> None:
        self.reason = reason
        super().__init__(message)


class WeightsError(LibraryError, ValueError):
    """Weights that are not the model's: their names, dtypes, shapes or contents differ."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="weights")
