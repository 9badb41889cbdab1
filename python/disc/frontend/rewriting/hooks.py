"""What stands guard while a model is traced: control flow that tracing would fix to the example is noticed."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
import torch._refs
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from ... import errors
from ...trees import Unknown
from ..locations import is_layer_file, is_user_file, is_user_line
from . import filled, seen
from .conditions import compared, constant_of, is_assumed, known_truth, narrows_hint, number_tensor, predicate
from .dynamic import is_dynamic
from .neighbours import irrelevant, leads_to_an_error
from .raised import is_message, reasons
from .region import carry_changes
from .symbolic_calls import symbolic_call

_range = builtins.range


class NeedsRewriting(BaseException):
    """The model has control flow that depends on data, or on dynamic extents."""


# No Exception: models that catch all sorts of errors do not catch it.


def needs_rewriting(error: BaseException | None) -> bool:
    """Whether what went wrong is that Python was asked for something that is known at run time only."""
    kinds = (NeedsRewriting, Unknown, GuardOnDataDependentSymNode, DataDependentOutputException)
    return any(isinstance(reason, kinds) for reason in reasons(error))


class _Ranges(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _range)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _range)


class Range(metaclass=_Ranges):
    """In the place of ``range``."""

    def __new__(cls, *args: Any) -> Any:
        """A range, if its numbers are known."""
        if any(is_dynamic(a) for a in args) and is_user_file(sys._getframe(1).f_code.co_filename):
            raise NeedsRewriting("range() of a number that is known at run time only")
        return _range(*args)


# What makes a number of Python of a tensor.
_ASKING = {Tensor.__bool__, Tensor.__int__, Tensor.__index__, Tensor.__float__}


class _Guarding(TorchFunctionMode):
    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in filled.ASKING and (known := filled.value_of(args[0])) is not None:
            return bool(known) if func is Tensor.__bool__ else known
        filled.forget(args, kwargs)
        if func is Tensor.__iter__ and args[0].dim() and is_dynamic(args[0].shape[0]):
            raise NeedsRewriting("a loop over a dim whose extent is known at run time only")
        if func in _ASKING and constant_of(args[0]) is None:
            raise NeedsRewriting("the value of a tensor is known at run time only")
        if func is Tensor.item and _asks_for_types(sys._getframe(1)):
            raise NeedsRewriting("the type of a number that is known at run time only")
        if func is Tensor.__setitem__:
            # x[:, t] = y with a dynamic t, which torch.export does for reading alone.
            x, index, y = args
            items = list(index) if isinstance(index, tuple) else [index]
            if any(isinstance(item, torch.SymInt) or _is_number(item) for item in items):
                result = _set(x, items, y)
                carry_changes(self, func, args, {})
                return result
        if func is torch.cdist and "if_necessary" in (kwargs or {}).get("compute_mode", "if_necessary"):
            # Else it asks whether there are more than 25 rows.
            kwargs = {**(kwargs or {}), "compute_mode": "donot_use_mm_for_euclid_dist"}
        called = symbolic_call(func, args, kwargs or {}) or func
        result = called(*args, **(kwargs or {}))
        filled.note(func, args, kwargs or {}, result)
        seen.note_result(func, args, kwargs or {}, result)
        carry_changes(self, called, args, kwargs or {})
        return result


def _is_number(index: Any) -> bool:
    """Whether an index is a tensor that stands for a number: Python would ask for it."""
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype != torch.bool and constant_of(index) is None


def _set(x: Tensor, items: list[Any], y: Any) -> Tensor:
    """``x[items] = y``."""
    if any(item is Ellipsis for item in items):
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        missing = x.dim() - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    indices: list[Tensor | None] = []
    for item in items:
        dim = len(indices)
        if isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool):
            x = x.select(dim, item)
            continue
        if item is None:
            x = x.unsqueeze(dim)
        elif isinstance(item, slice):
            x = torch.ops.aten.slice(x, dim, item.start, item.stop, 1 if item.step is None else item.step)
        elif not isinstance(item, Tensor) or item.dtype == torch.bool:
            raise IndexError("a number known at run time only and a mask or a list as indices of one assignment")
        indices.append(item if isinstance(item, Tensor) else None)
    if not any(index is not None for index in indices):
        return x.copy_(y) if isinstance(y, Tensor) else x.fill_(y)
    values = y.to(x.dtype) if isinstance(y, Tensor) else number_tensor(y, x.dtype)
    # The method of a tensor refuses None before the first index.
    return torch.ops.aten.index_put_.default(x, indices, values)


_BROADCASTING = torch._refs._broadcast_shapes.__code__


def _truth_of_condition(value: torch.SymBool) -> bool:
    # Broadcasting asks whether sizes are negative. No size is, but of one such as n - 1 torch cannot prove it.
    if sys._getframe(1).f_code is _BROADCASTING and _is_negative_question(value):
        return False
    known = _ask(value)
    return _truths[0](value) if known is None else known


def _is_negative_question(value: torch.SymBool) -> bool:
    expr = value.node.expr
    return isinstance(expr, sympy.StrictLessThan) and bool(expr.rhs.is_zero)


def _truth_of_number(value: torch.SymInt) -> bool:
    depends = compared(value, 0, sympy.Ne)
    if depends is not None:
        return bool(depends)
    condition = value != 0
    known = _ask(condition)
    return bool(condition) if known is None else known


_truths = torch.SymBool.__bool__, torch.SymInt.__bool__


def _ask(condition: Any) -> bool | None:
    """What to answer to a condition that makes no difference, if it is one; None where Python may ask PyTorch."""
    # PyTorch's own code may take for granted what it does; the model's is to see its extents as they are. A layer's
    # error for some sizes is one of the compiled model, too.
    frame = sys._getframe(2)
    own = is_user_line(frame.f_code.co_filename)
    if not isinstance(condition, torch.SymBool) or not (own or is_layer_file(frame.f_code.co_filename)):
        return None
    answered = is_assumed(condition) or narrows_hint(condition)
    if not own and not (answered and leads_to_an_error(frame)):
        return None
    if answered or (condition.node.shape_env is not None and known_truth(condition) is None):
        known = irrelevant(frame)
        if known is not None:
            return known
    if answered:
        raise NeedsRewriting(f"the condition {condition.node.expr} on an extent is known at run time only")
    return None


ASKED = (_truth_of_condition.__code__, _truth_of_number.__code__)
"""What Python calls to learn whether a condition holds, or a number is not 0."""

_TEXTS = [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in ("__str__", "__repr__")]
_texts = {(kind, name): getattr(kind, name) for kind, name in _TEXTS}


def _text(original: Any) -> Any:
    def text(self: Any) -> str:
        frame = sys._getframe(1)
        file, line = frame.f_code.co_filename, frame.f_lineno
        env, symbols = self.node.shape_env, self.node.expr.free_symbols
        known = env is None or not any(map(env.is_unbacked_symint, symbols))
        if not known and is_user_line(file) and not is_message(file, line):
            raise errors.ControlFlowError(
                "import",
                "the text of a number that is known at run time only is used; it can be a part of a message alone",
                f"{file}:{line}",
            )
        return str(original(self))

    return text


_KINDS = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}
_comparisons = {f"__{name}__": getattr(torch.SymInt, f"__{name}__") for name in _KINDS}


def _comparison(name: str, kind: Any) -> Any:
    original = _comparisons[name]

    @functools.wraps(original)
    def compare(self: torch.SymInt, other: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename
        asking = is_user_line(file)
        if asking or is_layer_file(file):
            seen.note((self, other))
        depends = compared(self, other, kind) if asking else None
        return original(self, other) if depends is None else depends

    return compare


_ARITHMETIC = [f"__{side}{name}__" for name in ("add", "sub", "mul") for side in ("", "r")]
_arithmetic = {
    (kind, name): getattr(kind, name) for kind in (torch.SymBool, torch.SymInt, torch.SymFloat) for name in _ARITHMETIC
}


def _with_numbers(kind: Any, name: str) -> Any:
    """Arithmetic on a condition on extents, as Python does it: with 1 and 0. PyTorch would take the example's side."""
    original = _arithmetic[kind, name]

    @functools.wraps(original)
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, torch.SymBool) and not isinstance(self, torch.SymBool):
            return original(self, other)
        one, two = _number(self), _number(other)
        return _arithmetic[type(one), name](one, two)

    return method


def _number(value: Any) -> Any:
    """1 or 0 for a condition; other values are what they are."""
    if not isinstance(value, torch.SymBool):
        return value
    return torch.sym_ite(value, *(torch.SymInt(value.node.wrap_int(n)) for n in (1, 0)))


_int_of_condition = torch.SymBool.__int__


def _as_int(condition: torch.SymBool) -> int:
    _ask(condition)
    return _int_of_condition(condition)


_check_with = torch._check_with  # type: ignore[attr-defined]


def _checked(error_type: type[Exception], condition: Any, message: Any = None) -> None:
    """``torch._check`` and its kind: a condition that torch.export takes for granted is checked at run time."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == torch.__file__:
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    if is_user_line(file):
        wanted = condition
        if isinstance(condition, torch.SymBool) and is_assumed(condition):
            wanted = predicate(condition.node.expr, condition.node.shape_env)
        if isinstance(wanted, Tensor) and wanted.dim() == 0 and wanted.dtype == torch.bool:
            said = str(message()) if callable(message) else "a condition of torch._check does not hold"
            text = f"{error_type.__name__}: {said} ({Path(file).name}:{line})"
            torch.ops.aten._assert_async.msg(wanted, text)
            return
    _check_with(error_type, condition, message)


def _asks_for_types(frame: Any) -> bool:
    """Whether the user's code that calls asks for the types of values: those of traced numbers are PyTorch's."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    code = None if frame is None else frame.f_code
    if code is None or not is_user_line(code.co_filename) or "_disc_" in code.co_freevars:
        return False
    return "isinstance" in code.co_names or "type" in code.co_names


@contextmanager
def guarded() -> Iterator[None]:
    """While it is active, what depends on data, or on extents beyond their ranges, raises :class:`NeedsRewriting`."""
    builtins.range = Range  # type: ignore[misc, assignment]
    torch.SymBool.__bool__ = _truth_of_condition  # type: ignore[method-assign]
    torch.SymInt.__bool__ = _truth_of_number  # type: ignore[method-assign]
    for (kind, name), original in _texts.items():
        setattr(kind, name, _text(original))
    for name, kind in _KINDS.items():
        setattr(torch.SymInt, f"__{name}__", _comparison(f"__{name}__", kind))
    torch.SymBool.__int__ = _as_int  # type: ignore[method-assign]
    for of, name in _arithmetic:
        setattr(of, name, _with_numbers(of, name))
    torch._check_with = _checked  # type: ignore[attr-defined, assignment]
    try:
        with _Guarding():
            yield
    finally:
        builtins.range = _range  # type: ignore[misc]
        torch._check_with = _check_with  # type: ignore[attr-defined]
        torch.SymBool.__bool__, torch.SymInt.__bool__ = _truths  # type: ignore[method-assign]
        for (kind, name), original in _texts.items():
            setattr(kind, name, original)
        for name, original in _comparisons.items():
            setattr(torch.SymInt, name, original)
        torch.SymBool.__int__ = _int_of_condition  # type: ignore[method-assign]
        for (of, name), original in _arithmetic.items():
            setattr(of, name, original)
