"""The errors DISC raises. Each kind has a stable code, ``DISC0010``, and a page, ``docs/errors/DISC0010.md``."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .source_lines import line_of

CODES: dict[str, str] = {
    "DISC0001": "a stage of the compiler failed",
    "DISC0002": "internal error",
    "DISC0003": "unsupported operations",
    "DISC0004": "torch.export cannot trace the model",
    "DISC0005": "the model's code fails for the example",
    "DISC0006": "the example does not fit the model",
    "DISC0007": "control flow that cannot be compiled",
    "DISC0008": "an operator without a fake kernel",
    "DISC0009": "an unsupported kind of input, output or update",
    "DISC0010": "a dynamic dim that the model's code does not allow",
    "DISC0011": "a dynamic size that the model's code converts to a Python number",
    "DISC0012": "a size without a known expression",
    "DISC0013": "TorchScript that cannot be read",
    "DISC0014": "recursion or a tree that cannot be compiled",
    "DISC0015": "an ONNX model that cannot be imported",
    "DISC0016": "a program that cannot be saved or read",
    "DISC0017": "weights that cannot be loaded",
    "DISC0018": "gradients that cannot be compiled",
    "DISC0019": "a back end failed",
    "DISC0101": "a shape that the compiled model does not accept",
    "DISC0102": "a call with other arguments",
    "DISC0103": "another value of a constant argument",
    "DISC0104": "an argument of another kind, dtype or device",
    "DISC0105": "a gradient of a training step is infinite or NaN",
    "DISC0106": "a model without compiled code",
    "DISC0107": "an index out of range",
    "DISC0201": "an argument of the wrong type",
    "DISC0202": "an argument with the wrong value",
    "DISC0301": "a compiled library that cannot be used",
    "DISC0302": "weights that are not the library's",
    "DISC0303": "an invalid memory access",
    "DISC0401": "a request that was not answered in time",
    "DISC0402": "a row that cannot be computed",
}
"""Every code, with the title of its page."""


def _coded(message: str, code: str) -> str:
    """A message with its code, once: an exception that is unpickled is created from its message again."""
    return message if message.endswith(f"({code})") else f"{message} ({code})"


class CompileError(Exception):
    """A model could not be compiled.

    Attributes:
        code: what kind of error it is: a key of :data:`CODES`.
        stage: the stage of the pipeline that failed (``"import"``, ``"shape"``, ...).
        diagnostic: what went wrong, in words.
        source: the line of Python the failing operation came from, ``file.py:12``, or None.
        reproducer: path of a file that ``disc-opt`` runs to show the same failure, or None.
        help: what to do about it, or None where the diagnostic says that.
    """

    code: str = "DISC0001"

    def __init__(
        self,
        stage: str,
        diagnostic: str,
        source: str | None = None,
        reproducer: str | None = None,
        *,
        help: str | None = None,
    ) -> None:
        self.help = help
        self.stage = stage
        self.diagnostic = diagnostic
        self.source = source
        self.reproducer = reproducer
        text = f"{self.code} [{stage}] {diagnostic}"
        if source:
            text += f"\n  at {source}"
            if code := _source_line(source):
                text += f"\n    {code}"
        if reproducer:
            text += f"\n  reproduce with: disc-opt --run-reproducer {reproducer}"
        if help:
            text += f"\n  help: {help}"
        super().__init__(text)

    def reword(self, change: Callable[[str], str]) -> None:
        """Replaces the diagnostic, also in the text, by the result of ``change``."""
        before, self.diagnostic = self.diagnostic, change(self.diagnostic)
        self.args = (str(self).replace(before, self.diagnostic, 1), *self.args[1:])

    def __reduce__(self) -> Any:
        # The text is complete: it is not built again where the source file may be missing.
        state = {name: _portable(value) for name, value in vars(self).items() if name not in self._local}
        return _restored, (type(self), self.args, state)

    _local: tuple[str, ...] = ()
    """Attributes that another process does not receive."""


def _restored(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An error that was pickled, without calling its constructor."""
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


def _portable(value: Any) -> Any:
    """An attribute of an error for another process: itself, or its text if it cannot be pickled and read again."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        if isinstance(value, tuple):
            return tuple(_portable(element) for element in value)
        text = f"{type(value).__name__}: {value}"
        return RuntimeError(text) if isinstance(value, BaseException) else text
    return value


def _source_line(source: str) -> str:
    """The code at ``file.py:12``, or an empty string when the file cannot be read."""
    match = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", source)
    return line_of(match[1], int(match[2])) if match else ""


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
    """The model's code does not work for all sizes of a dim that ``dynamic_shapes`` marks as dynamic, or fixes it.

    Attributes:
        refinements: the known requirements of the model for named dims.
        without_zero: ranges from 1 on, which may be sufficient and are tried first.
        reason: the line of Python that requires it, and the condition; "" if unknown.
        asked_by_model: whether a statement of the model asked for a condition, and not only operators of PyTorch.
    """

    code = "DISC0010"

    def __init__(
        self,
        stage: str,
        diagnostic: str,
        source: str | None = None,
        *,
        refinements: Sequence[Any] = (),
        without_zero: Sequence[Any] = (),
        reason: str = "",
        asked_by_model: bool = True,
        help: str | None = None,
    ) -> None:
        self.refinements = tuple(refinements)
        self.without_zero = tuple(without_zero)
        self.reason = reason
        self.asked_by_model = asked_by_model
        super().__init__(stage, diagnostic, source, help=help)

    def with_help(self, help: str) -> DynamicDimError:
        """The same error with what to do about it."""
        return type(self)(
            self.stage,
            self.diagnostic,
            self.source,
            help=help,
            refinements=self.refinements,
            without_zero=self.without_zero,
            reason=self.reason,
            asked_by_model=self.asked_by_model,
        )


class FixedSizeError(DynamicDimError):
    """The model's code converts a dynamic size to a Python number, so that only the example's size is right."""

    code = "DISC0011"
    traced: tuple[Any, tuple[str, ...]] | None = None
    """The program that was traced for only that size, and the dims that are static in it."""
    _local = ("traced",)


class ExportError(CompileError):
    """``torch.export`` cannot trace a model."""

    code = "DISC0004"


class ModelError(CompileError):
    """The model's own code raised an exception while it was traced for the example.

    Attributes:
        error: the exception.
    """

    code = "DISC0005"

    def __init__(
        self, stage: str, diagnostic: str, source: str | None, error: BaseException, *, help: str | None = None
    ) -> None:
        self.error = error
        super().__init__(stage, diagnostic, source, help=help)


class ExampleError(CompileError):
    """The example arguments are not what the model takes, or are of a kind that no compiled model takes."""

    code = "DISC0006"


class ControlFlowError(CompileError):
    """A branch, a loop or a change in place depends on data in a way that cannot be compiled."""

    code = "DISC0007"


class FakeKernelError(CompileError):
    """A custom operator has no fake kernel, which says the shape of its result."""

    code = "DISC0008"


class UnsupportedTypeError(CompileError):
    """An input, an output, a constant or an update has a kind or dtype that is not supported."""

    code = "DISC0009"


class SizeError(CompileError):
    """A size of the model is computed by an expression that DISC does not know."""

    code = "DISC0012"


class TorchScriptError(CompileError):
    """The code of a TorchScript module cannot be read as Python."""

    code = "DISC0013"


class TreeError(CompileError):
    """A recursive function, or a tree among the arguments, cannot be compiled."""

    code = "DISC0014"


class OnnxError(CompileError):
    """An ONNX model cannot be imported."""

    code = "DISC0015"


class ProgramError(CompileError):
    """A program of ``torch.export`` cannot be saved, or what a file has cannot be read."""

    code = "DISC0016"


class LoadError(CompileError):
    """The weights of a compiled model cannot be loaded or packed."""

    code = "DISC0017"


class GradientError(CompileError):
    """The gradients of a model cannot be compiled."""

    code = "DISC0018"


class BackendError(CompileError):
    """An external back end failed: it cannot be loaded, raised an exception, or handed over code that is not usable.

    Attributes:
        backend: its name.
        region: the region that it was asked for, ``"region3"``; "" if it concerns no region.
    """

    code = "DISC0019"

    def __init__(
        self, diagnostic: str, *, backend: str, region: str = "", source: str | None = None, help: str | None = None
    ) -> None:
        self.backend = backend
        self.region = region
        super().__init__("library", diagnostic, source, help=help)


class UnsupportedOpError(CompileError):
    """A model uses operations without a lowering rule; ``ops`` lists all of them."""

    code = "DISC0003"

    def __init__(self, ops: Sequence[UnsupportedOp]) -> None:
        self.ops = tuple(ops)
        count = len(self.ops)
        lines = [f"{count} unsupported operation{'s' if count != 1 else ''}:"]
        lines += [f"  {op.source}: {op.name}: {op.reason}" for op in self.ops]
        advice = "a rule of your own can lower an op: see disc.lowers and docs/tutorials/new-operator.md"
        # PyTorch has no ONNX operators to fall back to.
        if not all(op.name.startswith("onnx.") for op in self.ops):
            advice = f"disc.compile(..., fallback=True) has PyTorch do them in this process; {advice}"
        super().__init__("import", "\n".join(lines), self.ops[0].source if self.ops else None, help=advice)


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

    code = "DISC0002"

    def __init__(self, stage: str, error: BaseException | str, source: str | None = None) -> None:
        super().__init__(stage, error if isinstance(error, str) else internal(error), source)


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
    """Mixed into the exceptions that report a wrong argument of the user's, so that the boundary lets them pass.

    Attributes:
        code: what kind of error it is: a key of :data:`CODES`.
    """

    code: str = "DISC0201"

    def __init__(self, message: str) -> None:
        super().__init__(_coded(message, self.code))


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a function of DISC has the wrong type."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of a function of DISC has the wrong value."""

    code = "DISC0202"


class CallError(ArgumentTypeError):
    """A call of a compiled model has other arguments than the example it was compiled for."""

    code = "DISC0102"


class ConstantError(ArgumentTypeError):
    """A call of a compiled model has another value for an argument that is a constant of it."""

    code = "DISC0103"


class InputTypeError(ArgumentTypeError):
    """An argument of a compiled model is not a tensor, or has another dtype or device than the example."""

    code = "DISC0104"


class IndexRangeError(IndexError):
    """An element of an input indexes beyond a dimension, or another number that an operation was given is out of range.

    The message names the operation and its line.
    """

    code = "DISC0107"

    def __init__(self, message: str) -> None:
        super().__init__(_coded(message, self.code))


def raise_coded(error: TypeError | IndexError) -> None:
    """Raises the error with a code for one that the runtime raised in a call; returns for those of others."""
    # No variable refers to the new error: it would keep the call's frame, and so the arguments, until a collection.
    if type(error) is TypeError and str(error).startswith("input "):
        raise InputTypeError(str(error)) from None
    if type(error) is IndexError and not hasattr(error, FOREIGN):
        raise IndexRangeError(str(error)) from None


FOREIGN = "_disc_foreign"
"""An attribute of exceptions that code of others raised in a call, which pass as they are."""


class NonFiniteError(FloatingPointError):
    """A gradient of a training step is infinite or NaN, and the step is to fail then; it changed nothing."""

    code = "DISC0105"

    def __init__(self, message: str) -> None:
        super().__init__(_coded(message, self.code))


class NotCompiledError(RuntimeError, AttributeError):
    """There is no compiled code yet: a decorated function was not called, or ``stop_after`` ended the compilation.

    It is an AttributeError too, so that ``hasattr(function, "save")`` is False before the first call.
    """

    code = "DISC0106"

    def __init__(self, message: str) -> None:
        super().__init__(_coded(message, self.code))


class ShapeError(ValueError):
    """An input's rank or extents do not fit what the model was compiled for.

    Attributes:
        input: name of the input at fault, or None when the violation is of no single one.
        dim: its dim, or None when the rank is wrong.
        symbol: name of the dim's symbol, or None.
        expected: what the model accepts, in words.
        got: what came, in words.
        code: ``"DISC0101"``.
    """

    code = "DISC0101"

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
        super().__init__(_coded(message, self.code))


class SanitizerError(RuntimeError):
    """A model compiled with ``Options(sanitize=True)`` accessed memory that it must not access: a bug in DISC.

    Attributes:
        code: ``"DISC0303"``.
    """

    code = "DISC0303"

    def __init__(self, message: str) -> None:
        super().__init__(_coded(message, self.code))


class LibraryError(OSError):
    """A compiled library, or a file of its weights, cannot be used.

    Attributes:
        reason: ``"file"`` (it cannot be read, is no such file, or is damaged), ``"version"`` (made by a version of DISC
            that does not fit this one), ``"target"`` (code for another kind of machine) or ``"weights"``.
        code: ``"DISC0301"``.
    """

    code: str = "DISC0301"
    reason: str

    def __init__(self, message: str, *, reason: str = "file") -> None:
        self.reason = reason
        super().__init__(_coded(message, self.code))


class WeightsError(LibraryError, ValueError):
    """Weights that are not the model's: their names, dtypes, shapes or contents differ.

    Attributes:
        code: ``"DISC0302"``.
    """

    code = "DISC0302"

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="weights")


class DeadlineError(TimeoutError):
    """A served model did not answer a request in time.

    Attributes:
        seconds: the time that the request had.
        code: ``"DISC0401"``.
    """

    code = "DISC0401"

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        self.seconds = seconds
        super().__init__(_coded(message, self.code))


class RowError(ValueError):
    """The model cannot be computed for a row of a table.

    Attributes:
        row: the number of the row in its file or batch, from 0.
        error: the reason: the exception of the model, or of the conversion of a column.
        code: ``"DISC0402"``.
    """

    code = "DISC0402"

    def __init__(self, message: str, *, row: int | None = None, error: BaseException | None = None) -> None:
        self.row = row
        self.error = error
        super().__init__(_coded(message, self.code))

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.args, {**vars(self), "error": _portable(self.error)})
