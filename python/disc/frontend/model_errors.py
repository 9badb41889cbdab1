"""Exceptions of the model's own code, as errors that show the user's line and not PyTorch's."""

from __future__ import annotations

import re
import traceback
from typing import Any, NoReturn

import torch

from .. import errors
from ..torch_compat.compiling import TorchDynamoException
from ..torch_compat.symbols import ConstraintViolationError, GuardOnDataDependentSymNode
from ..torch_compat.tracing import DataDependentOutputException, UnsupportedOperatorException
from .locations import is_layer_file, is_user_line, source_of_error
from .readable import short

_PLAIN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
# What PyTorch raises for models that it cannot trace.
_TRACING = (
    ConstraintViolationError,
    DataDependentOutputException,
    GuardOnDataDependentSymNode,
    TorchDynamoException,
    UnsupportedOperatorException,
)
_OF_TRACING = ("SymInt", "SymBool", "SymFloat", "FakeTensor", "symbolic", "torch.export", "Proxy", "functional tensor")

_TRACED: dict[str, Any] = {"FakeTensor": torch.Tensor, "SymInt": int, "SymFloat": float, "SymBool": bool}
_NO_ATTRIBUTE = re.compile(r"'(\w+)' object has no attribute '(\w+)'")

_NUMPY = ".numpy() is not supported"
_ADVICE = "call the model with these arguments, without disc, to see the whole traceback"
# What PyTorch appends to messages: where its C++ code raised them, how to log more, how to change PyTorch's own code.
_APPENDED = re.compile(
    r"\s*(?:The error above occurred when calling torch\.export|Exception raised from \S+ at |The following call raised"
    r" this error:|Caused by: \(|For more information, run with TORCH_LOGS|consider using data-dependent friendly APIs)"
)


def message_of(error: BaseException) -> str:
    """The message of an error of PyTorch's, without what PyTorch appends."""
    return _APPENDED.split(str(error), maxsplit=1)[0].strip() or type(error).__name__


def model_error(error: BaseException) -> errors.ModelError | None:
    """What to raise for an exception that the model's code raised by itself; None if PyTorch's tracing is behind it."""
    if not isinstance(error, _PLAIN) or isinstance(error, (*_TRACING, errors.CompileError)):
        return None
    text = _of_users_class(message_of(error) if str(error).strip() else "no message")
    source = source_of_error(error) or _layer_line(error)
    if source is None or any(word in text for word in _OF_TRACING):
        return None
    lines = [
        f"the model's code raised {type(error).__name__} while torch.export ran it on the example: {text}",
        *_callers(error, source),
    ]
    advice = _ADVICE
    if _NUMPY in text:
        advice = (
            "only operations of PyTorch can be compiled: use those, or make a custom operator of this part with"
            " torch.library.custom_op and compile with fallback=True"
        )
    return errors.ModelError("import", "\n".join(lines), source, error, help=advice)


def _of_users_class(text: str) -> str:
    """A text about an attribute that neither torch's class for tracing nor the user's has, with the user's class."""
    match = _NO_ATTRIBUTE.match(text)
    kind = _TRACED.get(match[1]) if match is not None else None
    if match is None or kind is None or hasattr(kind, match[2]):
        return text
    return text.replace(repr(match[1]), repr(kind.__name__), 1)


def _layer_line(error: BaseException) -> str | None:
    """The line of PyTorch's own layer where no code of the user's is between it and the compiler."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_layer_file(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _callers(error: BaseException, source: str) -> list[str]:
    """The user's own line, where a package's code failed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_line(f.filename)]
    own = [f for f in frames if "site-packages" not in f.filename]
    if "site-packages" not in source or not own:
        return []
    return [f"  called from {short(f'{own[-1].filename}:{own[-1].lineno}')}: {own[-1].line}"]


def raise_failure(failure: errors.CompileError, error: BaseException | None) -> NoReturn:
    """Raises ``failure``: with ``error`` as its cause, unless that only shows where PyTorch noticed it."""
    if failure is error:
        raise failure
    if isinstance(failure, errors.ModelError):
        raise failure from None
    raise failure from error
