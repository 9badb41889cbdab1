"""What stands guard while a model is traced: control flow that tracing would fix to the example is noticed."""

from __future__ import annotations

import ast
import dis
import functools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ... import errors
from ...source_lines import lines_of
from ...torch_compat import patches, pytree
from ...torch_compat.operators import broadcast_shapes
from ...torch_compat.patching import Replacement, caller, replaced
from ...torch_compat.symbols import GuardOnDataDependentSymNode
from ...torch_compat.tracing import DataDependentOutputException
from ...torch_compat.versions import MINOR
from ...trees import Unknown
from ..locations import is_layer_file, is_user_file, is_user_line
from . import filled, seen
from .computed_numbers import computed_number
from .conditions import (
    compared,
    constant_of,
    is_assumed,
    known_truth,
    number_tensor,
    predicate,
    takes_a_number,
    takes_the_example,
)
from .dynamic import is_dynamic
from .fft_calls import fft_call
from .given import answer
from .neighbours import irrelevant, leads_to_an_error
from .number_calls import number_call
from .optional import OptionalValue, used
from .raised import is_message, reasons
from .region import carry_changes
from .size_tensors import with_numbers
from .symbolic_calls import symbolic_call
from .tensor_data import data_call


class NeedsRewriting(BaseException):
    """The model has control flow that depends on data, or on dynamic extents."""


# No Exception: models that catch all sorts of errors do not catch it.


def needs_rewriting(error: BaseException | None) -> bool:
    """Whether what went wrong is that Python was asked for something that is known at run time only."""
    kinds = (NeedsRewriting, Unknown, GuardOnDataDependentSymNode, DataDependentOutputException)
    return any(isinstance(reason, kinds) for reason in reasons(error))


def _index(original: Any, number: torch.SymInt) -> int:
    """The Python number that ``range`` needs, among others. A loop over a dynamic range must not be unrolled."""
    frame = caller()
    if is_dynamic(number) and is_user_file(frame.f_code.co_filename) and _calls_range(frame):
        raise NeedsRewriting("range() of a number that is known at run time only")
    _check_number(number, frame)
    return int(original(number))


def _integer(original: Any, number: torch.SymInt) -> int:
    _check_number(number, caller())
    return int(original(number))


def _check_number(number: Any, frame: types.FrameType) -> None:
    """A size that torch.export takes for a number is none in the model's code if other sizes are declared."""
    if is_user_file(frame.f_code.co_filename) and takes_a_number(number):
        raise NeedsRewriting(f"the number {number.node.expr} is known at run time only")


def _calls_range(frame: types.FrameType) -> bool:
    """Whether a frame's instruction is a call, on a line with a call of ``range``."""
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    # Python 3.11 has PRECALL, and calls classes there.
    if "CALL" not in instruction or "range" not in frame.f_code.co_names:
        return False
    lines = _lines_with_range(frame.f_code.co_filename)
    return frame.f_lineno in lines or not lines  # Code without a file has no lines.


@functools.lru_cache(maxsize=256)
def _lines_with_range(file: str) -> frozenset[int]:
    try:
        tree = ast.parse("".join(lines_of(file)))
    except SyntaxError:
        return frozenset()
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return frozenset(
        line
        for call in calls
        if call.func.id == "range"  # type: ignore[attr-defined]
        for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)
    )


# What converts a tensor to a Python number.
_ASKING = {Tensor.__bool__, Tensor.__int__, Tensor.__index__, Tensor.__float__}


# Attributes that say nothing of a tensor's sizes and elements. PyTorch reads them for each tensor that it describes.
_PLAIN = frozenset("dtype device layout ndim requires_grad is_leaf is_sparse".split())


class _Guarding(TorchFunctionMode):
    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        attribute = getattr(func, "__self__", None)
        if (
            type(attribute) is types.GetSetDescriptorType
            and attribute.__name__ in _PLAIN
            and func.__name__ == "__get__"
        ):
            return func(*args)
        if func in filled.ASKING and (known := filled.answer(func, args[0])) is not None:
            return known
        args = filled.with_sizes(func, args)
        args, kwargs = with_numbers(func, args, kwargs)
        filled.forget(func, args, kwargs)
        if func is Tensor.__len__ and args[0].dim() and takes_a_number(args[0].shape[0]):
            raise NeedsRewriting("the length of a tensor is known at run time only")
        if func is Tensor.__iter__ and args[0].dim() and is_dynamic(args[0].shape[0]):
            raise NeedsRewriting("a loop over a dim whose extent is known at run time only")
        if func in _ASKING and constant_of(args[0]) is None:
            raise NeedsRewriting("the value of a tensor is known at run time only")
        if func is Tensor.item and _asks_for_types(sys._getframe(1)):
            raise NeedsRewriting("the type of a number that is known at run time only")
        if func is Tensor.__getitem__ or func is Tensor.__setitem__:
            args = (args[0], _with_tensors(args[1]), *args[2:])
        if func is Tensor.__setitem__:
            # x[:, t] = y with a dynamic t, which torch.export does for reading alone.
            x, index, y = args
            if isinstance(index, Tensor) and index.dim() == 0 and index.dtype == torch.bool and _is_0d(y):
                # All of it or nothing: PyTorch would ask how often the index is true.
                result = x.copy_(torch.where(index, y, x))
                carry_changes(self, func, args, {})
                return result
            items = _items(index)
            if any(isinstance(item, torch.SymInt) or _is_number(item) for item in items) or (
                MINOR < 13 and _only_slices(items)  # PyTorch 2.12 asks whether a slice and the value have one size.
            ):
                result = _set(x, items, y)
                carry_changes(self, func, args, {})
                return result
        if func is torch.cdist and "if_necessary" in (kwargs or {}).get("compute_mode", "if_necessary"):
            # Else it asks whether there are more than 25 rows.
            kwargs = {**(kwargs or {}), "compute_mode": "donot_use_mm_for_euclid_dist"}
        given = func, args, kwargs or {}
        called = data_call(func) or symbolic_call(*given) or number_call(*given) or fft_call(*given) or func
        if func is Tensor.__getitem__ and _is_mixed(args[1]):
            called = _get
        result = called(*args, **(kwargs or {}))
        filled.note(func, args, kwargs or {}, result)
        seen.note_result(func, args, kwargs or {}, result)
        carry_changes(self, called, args, kwargs or {})
        return result


def _is_0d(value: Any) -> bool:
    """Whether a value is a number, or a tensor without dims."""
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    return value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, numbers)


def _is_number(index: Any) -> bool:
    """Whether an index is a tensor that stands for a number: Python would ask for it."""
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype != torch.bool and constant_of(index) is None


def _items(index: Any) -> list[Any]:
    return list(index) if isinstance(index, tuple) else [index]


def _only_slices(items: list[Any]) -> bool:
    """Whether an index consists of slices, of which some have bounds that are known at run time only."""
    slices = [item for item in items if isinstance(item, slice)]
    plain = all(item is None or item is Ellipsis or isinstance(item, (int, slice)) for item in items)
    bounds = [bound for item in slices for bound in (item.start, item.stop)]
    return plain and any(isinstance(bound, torch.SymInt) or _is_number(bound) for bound in bounds)


def _with_tensors(index: Any) -> Any:
    """An index with tensors in the place of lists of which a number is dynamic: PyTorch would take the example's.

    So are tuples and lists with tensors as numbers, of which PyTorch asks for the values. The bounds of slices that may
    be None, or may have no value, are what they are where they have one.
    """
    if isinstance(index, tuple):
        return tuple(_indices(item) if _is_dynamic_sequence(item) else _with_tensors(item) for item in index)
    if isinstance(index, slice):
        bounds = index.start, index.stop, index.step
        optional = any(isinstance(x, OptionalValue) for x in bounds)
        return slice(*(used(x) if isinstance(x, OptionalValue) else x for x in bounds)) if optional else index
    # PyTorch takes a list of lists for a tuple, and warns.
    nested = isinstance(index, list) and any(isinstance(item, list) for item in index)
    return _indices(index) if _is_dynamic_list(index) and not nested else index


def _is_dynamic_sequence(item: Any) -> bool:
    """Whether an element of an index is a sequence of numbers of which tensors represent some."""
    numbers = pytree.tree_leaves(item) if isinstance(item, (list, tuple)) else ()
    whole = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
    known = all(n.dtype in whole if isinstance(n, Tensor) else isinstance(n, (int, torch.SymInt)) for n in numbers)
    return known and any(isinstance(n, Tensor) and _is_number(n) for n in numbers)


def _is_dynamic_list(index: Any) -> bool:
    numbers = pytree.tree_leaves(index) if isinstance(index, list) else ()
    dynamic = any(isinstance(n, torch.SymInt) for n in numbers)
    return dynamic and all(isinstance(n, (int, torch.SymInt)) for n in numbers)


def _indices(numbers: Any) -> Tensor:
    """``torch.tensor(numbers)`` of a list of integers, or of such lists."""
    if isinstance(numbers, (list, tuple)):
        return torch.stack([_indices(n) for n in numbers])
    return number_tensor(numbers, torch.int64)


def _is_mixed(index: Any) -> bool:
    """Whether numbers that are known at run time only are beside tensors of indices, where PyTorch refuses them."""
    items = _items(index)
    numbers = [part for x in items for part in ((x.start, x.stop, x.step) if isinstance(x, slice) else (x,))]
    several = any(isinstance(x, list) or (isinstance(x, Tensor) and (x.dim() or x.dtype == torch.bool)) for x in items)
    return several and any(isinstance(x, torch.SymInt) for x in numbers)


def _get(x: Tensor, index: Any) -> Tensor:
    """``x[index]``: numbers and slices first, then what tensors choose of that."""
    items = _without_ellipsis(x, _items(index))
    rest: list[Any] = []
    dim = 0
    for item in items:
        if isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool):
            x = x.select(dim, item)
        elif _is_number(item):
            at = torch.where(item < 0, item + x.shape[dim], item)
            x = x.index_select(dim, at.reshape(1)).squeeze(dim)
        elif isinstance(item, Tensor) and item.dtype == torch.bool:
            rest.append(item)
            dim += item.dim()
        else:
            rest.append(item)
            if item is None:
                x, rest[-1] = x.unsqueeze(dim), slice(None)
            elif isinstance(item, slice):
                step = 1 if item.step is None else item.step
                x, rest[-1] = torch.ops.aten.slice(x, dim, item.start, item.stop, step), slice(None)
            dim += 1
    return x[tuple(rest)]


def _without_ellipsis(x: Tensor, items: list[Any]) -> list[Any]:
    """Indices with slices in the place of ``...``."""
    if not any(item is Ellipsis for item in items):
        return items
    at = next(i for i, item in enumerate(items) if item is Ellipsis)
    used = sum(
        item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else item is not None for item in items
    )
    return [*items[:at], *[slice(None)] * (x.dim() - used + 1), *items[at + 1 :]]


def _set(x: Tensor, items: list[Any], y: Any) -> Tensor:
    """``x[items] = y``."""
    items = _without_ellipsis(x, items)
    indices: list[Tensor | None] = []
    dim = 0
    for item in items:
        if isinstance(item, list):
            item = torch.tensor(item)
        if isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool):
            x = x.select(dim, item)
            continue
        if item is None:
            x = x.unsqueeze(dim)
        elif isinstance(item, slice):
            x = torch.ops.aten.slice(x, dim, item.start, item.stop, 1 if item.step is None else item.step)
        indices.append(item if isinstance(item, Tensor) else None)
        dim += item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1
    if not any(index is not None for index in indices):
        return x.copy_(y) if isinstance(y, Tensor) else x.fill_(y)
    values = y.to(x.dtype) if isinstance(y, Tensor) else number_tensor(y, x.dtype)
    # The method of a tensor refuses None before the first index.
    return torch.ops.aten.index_put_.default(x, indices, values)


_BROADCASTING = broadcast_shapes.__code__


def _truth_of_condition(original: Any, value: torch.SymBool) -> bool:
    # Broadcasting asks whether sizes are negative. No size is, but of one such as n - 1 torch cannot prove it.
    if caller().f_code is _BROADCASTING and _is_negative_question(value):
        return False
    known = answer(value)
    known = _ask(value) if known is None else known
    return bool(original(value)) if known is None else known


def _truth_of_float(_: Any, value: torch.SymFloat) -> bool:
    return bool(value != 0)


def _is_negative_question(value: torch.SymBool) -> bool:
    expr = value.node.expr
    return isinstance(expr, sympy.StrictLessThan) and bool(expr.rhs.is_zero)


def _truth_of_number(_: Any, value: torch.SymInt) -> bool:
    depends = compared(value, 0, sympy.Ne)
    if depends is not None:
        return bool(depends)
    condition = value != 0
    known = _ask(condition)
    return bool(condition) if known is None else known


def is_builtin(code: types.CodeType) -> bool:
    """Whether a function is what torch.export puts in the place of the builtin ``max`` and ``min``."""
    return code.co_name == "_tensor_min_max" and code.co_filename.endswith("non_strict_utils.py")


def _ask(condition: Any) -> bool | None:
    """What to answer to a condition that makes no difference, if it is one; None where Python may ask PyTorch."""
    # PyTorch's own code may take for granted what it does; the model's is to see its extents as they are. A layer's
    # error for some sizes is one of the compiled model, too.
    frame = caller(2)
    while is_builtin(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    own = is_user_line(frame.f_code.co_filename)
    if not isinstance(condition, torch.SymBool) or not (own or is_layer_file(frame.f_code.co_filename)):
        return None
    answered = is_assumed(condition) or takes_the_example(condition)
    if not own and not (answered and leads_to_an_error(frame)):
        return None
    if answered or (condition.node.shape_env is not None and known_truth(condition) is None):
        known = irrelevant(frame)
        if known is not None:
            return known
    if answered:
        raise NeedsRewriting(f"the condition {condition.node.expr} on an extent is known at run time only")
    return None


def _text(original: Any, number: Any) -> str:
    frame = caller()
    file, line = frame.f_code.co_filename, frame.f_lineno
    env, symbols = number.node.shape_env, number.node.expr.free_symbols
    known = env is None or not any(map(env.is_unbacked_symint, symbols))
    if not known and is_user_line(file) and not is_message(file, line):
        raise errors.ControlFlowError(
            "import",
            "the text of a number that is known at run time only is used; it can be a part of a message alone",
            f"{file}:{line}",
        )
    return str(original(number))


_KINDS = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}


def _compare(kind: Any, original: Any, number: torch.SymInt, other: Any) -> Any:
    file = caller().f_code.co_filename
    asking = is_user_line(file)
    if asking or is_layer_file(file):
        seen.note((number, other))
    depends = compared(number, other, kind) if asking else None
    return original(number, other) if depends is None else depends


def _with_numbers(name: str, original: Any, number: Any, other: Any) -> Any:
    """Arithmetic on a condition on extents, as Python does it: with 1 and 0. PyTorch would take the example's side."""
    if not isinstance(other, torch.SymBool) and not isinstance(number, torch.SymBool):
        return original(number, other)
    one, two = _number(number), _number(other)
    return getattr(type(one), name)(one, two)


def _number(value: Any) -> Any:
    """1 or 0 for a condition; other values are what they are."""
    if not isinstance(value, torch.SymBool):
        return value
    return torch.sym_ite(value, *(torch.SymInt(value.node.wrap_int(n)) for n in (1, 0)))


def _as_int(original: Any, condition: torch.SymBool) -> int:
    _ask(condition)
    return int(original(condition))


ASKED = (_truth_of_condition.__code__, _truth_of_number.__code__, _as_int.__code__)
"""What Python calls to learn whether a condition holds, or a number is not 0."""


def _checked(original: Any, error_type: type[Exception], condition: Any, message: Any = None) -> None:
    """``torch._check`` and its kind: a condition that torch.export takes for granted is checked at run time."""
    frame: Any = caller()
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
    original(error_type, condition, message)


def _asks_for_types(frame: Any) -> bool:
    """Whether the user's code that calls asks for the types of values: those of traced numbers are PyTorch's."""
    while frame is not None and (
        seen.is_handler(frame.f_code.co_filename) or not is_user_file(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    code = None if frame is None else frame.f_code
    if code is None or not is_user_line(code.co_filename) or "_disc_" in code.co_freevars:
        return False
    return "isinstance" in code.co_names or "type" in code.co_names


_REPLACEMENTS: dict[patches.Patch, Replacement] = {
    patches.INDEX: _index,
    patches.INTEGER_OF_NUMBER: _integer,
    patches.TRUTH_OF_CONDITION: _truth_of_condition,
    patches.TRUTH_OF_NUMBER: _truth_of_number,
    patches.TRUTH_OF_FLOAT: _truth_of_float,
    patches.INTEGER_OF_CONDITION: _as_int,
    patches.CHECK: _checked,
    **dict.fromkeys(patches.TEXTS, _text),
    **{patch: functools.partial(_compare, _KINDS[name]) for name, patch in patches.COMPARISONS.items()},
    **{patch: functools.partial(_with_numbers, patch.name) for patch in patches.ARITHMETIC},
    **{patch: computed_number(patch.name) for patch in patches.COMPUTED_NUMBERS},
}


@contextmanager
def guarded() -> Iterator[None]:
    """While it is active, what depends on data, or on extents beyond their ranges, raises :class:`NeedsRewriting`."""
    with replaced(_REPLACEMENTS), _Guarding():
        yield
