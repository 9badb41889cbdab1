"""The errors DISC raises, all importable from ``disc``."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


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


class DynamicDimError(CompileError):
    """The model's code does not work for all sizes of a dim that ``dynamic_shapes`` has as dynamic, or fixes it.

    Attributes:
        refinements: what the model requires of named dims, as far as it is known.
        reason: the line of Python that requires it, and the condition; "" if unknown.
    """

    def __init__(
        self,
        stage: str,
        diagnostic: str,
        source: str | None = None,
        *,
        refinements: Sequence[Any] = (),
        reason: str = "",
    ) -> None:
        self.refinements = tuple(refinements)
        self.reason = reason
        super().__init__(stage, diagnostic, source)

    def with_advice(self, advice: str) -> DynamicDimError:
        """The same error with one more step to take."""
        return DynamicDimError(
            self.stage,
            f"{self.diagnostic}\n  {advice}",
            self.source,
            refinements=self.refinements,
            reason=self.reason,
        )


class UnsupportedOpError(CompileError):
    """A model uses operations without a lowering rule; ``ops`` lists all of them."""

    def __init__(self, ops: Sequence[UnsupportedOp]) -> None:
        self.ops = tuple(ops)
        count = len(self.ops)
        lines = [f"{count} unsupported operation{'s' if count != 1 else ''}:"]
        lines += [f"  {op.source}: {op.name}: {op.reason}" for op in self.ops]
        # PyTorch has no ONNX operators to fall back to.
        if not all(op.name.startswith("onnx.") for op in self.ops):
            lines.append("disc.compile(..., fallback=True) has PyTorch do them in this process.")
        lines.append("A rule of your own can lower an op: see disc.lowers and docs/tutorials/new-operator.md.")
        super().__init__("import", "\n".join(lines), self.ops[0].source if self.ops else None)


REPORT = "This is a bug in DISC; please report it with this message and the model's code."


def internal(error: BaseException) -> str:
    """The text of a bug in DISC that showed as ``error``."""
    lines = str(error).strip().splitlines()
    detail = f": {lines[0]}" if lines else ""
    return f"internal error: {type(error).__name__}{detail}. {REPORT}"


class InternalError(CompileError):
    """A bug in DISC: a model could not be compiled, for a reason that says nothing about the model.

    Its ``__cause__`` is the exception that was raised.
    """

    def __init__(self, stage: str, error: BaseException, source: str | None = None) -> None:
        super().__init__(stage, internal(error), source)


@contextmanager
def boundary(stage: str) -> Iterator[None]:
    """Raises every unexpected exception of a stage as an :class:`InternalError`.

    Errors that say what to do pass: a CompileError, a missing package or file, exhausted memory, and an
    :class:`ArgumentError`.
    """
    try:
        yield
    except (ArgumentError, CompileError, ImportError, MemoryError, OSError):
        raise
    except Exception as error:
        raise InternalError(stage, error) from error


class ArgumentError(Exception):
    """Mixed into the exceptions that report a wrong argument of the user's, so that the boundary lets them pass."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument has the wrong value."""


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


class SanitizerError(RuntimeError):
    """A model compiled with ``Options(sanitize=True)`` accessed memory that it must not access: a bug in DISC."""


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
