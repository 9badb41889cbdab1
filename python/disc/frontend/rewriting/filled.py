"""Tensors of one integer that a model makes of numbers: their values are numbers of Python, as in eager PyTorch.

``torch.ones([1]).item()`` is 1, and ``torch.div(x.shape[1], 4, rounding_mode="trunc") - 1`` a number of chunks that
``view`` and slices take for a size: it has a symbolic form, where PyTorch would take it for data that nothing is known
of. While tracing, PyTorch knows the values of ``torch.tensor`` alone. Others are known here as long as nothing but
Python's questions and arithmetic has seen the tensor: whatever else takes it may change it, or give away what shares
its memory.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...torch_compat import pytree
from ...torch_compat.operators import OpOverloadPacket
from .conditions import known_truth

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_VALUES = {torch.zeros: 0, torch.ones: 1}
_GIVEN = {torch.full: (1, "fill_value"), torch.scalar_tensor: (0, "s")}
"""Which argument is the value."""

_Number = int | bool | torch.SymInt

# Those whose value is known, by id: mostly none, and every function of torch asks.
_known: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

ASKING = (Tensor.item, Tensor.__bool__, Tensor.__int__, Tensor.__index__)
"""What asks for the value of a tensor."""


def _divided(a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode not in ("floor", "trunc") or known_truth(b > 0) is not True:
        return None
    # Rounded to 0 is rounded down for what is not negative.
    return a // b if rounding_mode == "floor" or known_truth(a >= 0) is True else None


def _floored(a: Any, b: Any) -> Any:
    return a // b if known_truth(b > 0) is True else None


def _remainder(a: Any, b: Any) -> Any:
    return a % b if known_truth(b > 0) is True else None


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), operator.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), operator.sub),
    **dict.fromkeys(("rsub", "__rsub__"), lambda a, b: b - a),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), operator.mul),
    **dict.fromkeys(("neg", "negative", "__neg__"), operator.neg),
    **dict.fromkeys(("div", "divide"), _divided),
    **dict.fromkeys(("floor_divide", "__floordiv__"), _floored),
    **dict.fromkeys(("remainder", "__mod__"), _remainder),
}
"""Functions of integers, by their names in ``torch`` and ``Tensor``. A result of None is not known."""
_COMPARISONS = "eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__".split()
"""What else does no more than read a tensor, and has a result with memory of its own."""
_DESCRIBING = ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "is_sparse", "is_quantized")
"""Attributes that give nothing of a tensor's memory away."""


def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Remembers the value of a tensor of one element that ``func`` has made."""
    if not isinstance(result, Tensor) or "out" in kwargs or result.dtype not in _WHOLE:
        return
    if not all(type(size) is int and size == 1 for size in result.shape):
        return
    value = _VALUES.get(func)
    if func in _GIVEN:
        place, name = _GIVEN[func]
        value = args[place] if place < len(args) else kwargs.get(name)
    elif value is None:
        value = _computed(func, args, kwargs, result)
    if isinstance(value, torch.SymInt):
        if result.dtype != torch.int64:
            return  # it may not fit
    elif type(value) in (bool, int, float):
        value = bool(value) if result.dtype == torch.bool else int(value)  # type: ignore[arg-type]
    else:
        return
    result._disc_filled = value  # type: ignore[attr-defined]
    _known[id(result)] = result


def _computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Tensor) -> Any:
    """The value that arithmetic has of numbers, and of tensors whose values are known."""
    compute = _arithmetic(func)
    if compute is None or result.dtype != torch.int64:
        return None
    values = [value_of(x) if isinstance(x, Tensor) else x for x in args]
    if not values or not all(type(x) in (int, torch.SymInt) for x in values) or kwargs.keys() - {"rounding_mode"}:
        return None
    return compute(*values, **kwargs)


def _arithmetic(func: Any) -> Callable[..., Any] | None:
    return _ARITHMETIC.get(_name(func))


@functools.lru_cache(1024)
def _name(func: Any) -> str:
    """What a function of PyTorch is called; nothing for others."""
    name = getattr(func, "__name__", None)
    own = isinstance(name, str) and func in (getattr(torch, name, None), getattr(Tensor, name, None))
    return str(name) if own else ""


def value_of(x: Any) -> _Number | None:
    """The value of a tensor of one element, if it is known."""
    # A proxy of torch.fx has any attribute.
    return getattr(x, "_disc_filled", None) if isinstance(x, Tensor) else None


def answer(func: Any, x: Any) -> _Number | None:
    """What Python gets that asks a tensor for its value; None if that is not known, or not when it is compiled."""
    value = value_of(x)
    if value is None:
        return None
    if isinstance(value, torch.SymInt):
        # Python accepts nothing but an int from the others.
        return value if func is Tensor.item else None
    return bool(value) if func is Tensor.__bool__ else value


def with_sizes(func: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, with numbers in the place of tensors whose values are known, where ``func`` takes numbers."""
    if not _known:
        return tuple(args)
    if func is Tensor.__getitem__ and len(args) == 2:
        items = args[1] if isinstance(args[1], tuple) else (args[1],)
        items = tuple(_with_bounds(item) if isinstance(item, slice) else item for item in items)
        return args[0], items if isinstance(args[1], tuple) else items[0]
    tensors = _tensors_of(func)
    if tensors is None:
        return tuple(args)
    return tuple(x if place in tensors else _with_numbers(x) for place, x in enumerate(args))


def _with_bounds(item: slice) -> slice:
    return slice(*map(_with_numbers, (item.start, item.stop, item.step)))


def _with_numbers(x: Any) -> Any:
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(_with_numbers, x))
    value = value_of(x) if isinstance(x, Tensor) and x.dim() == 0 else None
    return x if value is None else value


@functools.lru_cache(1024)
def _tensors_of(func: Any) -> frozenset[int] | None:
    """Which arguments of a function of PyTorch may be tensors; None if it is no operator."""
    packet = getattr(torch.ops.aten, _name(func), None) if _name(func) else None
    if not isinstance(packet, OpOverloadPacket):
        return None  # __eq__ is a method of any object
    schemas = [getattr(packet, name)._schema.arguments for name in packet.overloads()]
    places = (place for schema in schemas for place, argument in enumerate(schema) if "Tensor" in str(argument.type))
    return frozenset(places)


def forget(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Notes that something takes these arguments."""
    if not _known or _arithmetic(func) is not None or _name(func) in _COMPARISONS:
        return
    attribute = getattr(func, "__self__", None)
    if type(attribute) is types.GetSetDescriptorType and attribute.__name__ in _DESCRIBING:
        return
    for x in pytree.tree_leaves((tuple(args), kwargs)):
        if value_of(x) is not None:
            del x._disc_filled
            _known.pop(id(x), None)
