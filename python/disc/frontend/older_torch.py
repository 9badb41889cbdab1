"""Makes PyTorch 2.12 trace as 2.13 does, for which the rest of the import is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..torch_compat import patches
from ..torch_compat.patching import Replacement, replaced
from ..torch_compat.symbols import ShapeEnv, SymT, prefix_str, symbol_is_type
from ..torch_compat.versions import MINOR
from .layout_questions import in_any_kernel, unguarded

_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_FLOAT = prefix_str[SymT.UNBACKED_FLOAT]


@contextmanager
def traces_as_the_newest() -> Iterator[None]:
    """While it is active, the calling thread traces as with PyTorch 2.13."""
    if MINOR >= 13:
        yield
        return
    jagged = torch.ops.aten._padded_dense_to_jagged_forward.default
    replacements: dict[patches.Patch, Replacement] = {
        patches.DEFER_ASSERT: _defer_assert,
        patches.INDEXING: _indexing,
        patches.FAKE_KERNELS.at(jagged): _jagged_of_padded,
        patches.CONVERSION: _converted,
    }
    with replaced(replacements):
        yield


def _defer_assert(original: Any, self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
    """A condition on floats of the data belongs to the last of them, as a condition on integers does.

    PyTorch 2.12 takes it for one on the inputs, whose ranges it then cannot find.
    """
    result = original(self, *args, **kwargs)
    deferred = self.deferred_runtime_asserts
    for check in list(deferred.get(None, ())):
        floats = [x for x in check.expr.free_symbols if symbol_is_type(x, SymT.UNBACKED_FLOAT)]
        if floats:
            deferred[None].remove(check)
            last = max(floats, key=lambda x: int(x.name.removeprefix(_FLOAT)))
            deferred.setdefault(last, []).append(check)
    return result


def _indexing(original: Any, self: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Positions that are integer tensors without dims are numbers of the data, also in slices.

    PyTorch 2.12 asks for their values in C++, which have to be known then.
    """
    if func is Tensor.__getitem__:
        x, index = args
        items = index if isinstance(index, tuple) else (index,)
        plain = (type(None), type(...), int, torch.SymInt, slice)
        if all(isinstance(x, plain) or _is_position(x) for x in items):
            args = x, tuple(map(_number, items))
    return original(self, func, args, kwargs)


def _is_position(item: Any) -> bool:
    return isinstance(item, Tensor) and not item.dim() and item.dtype in _INTEGERS


def _number(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(_number(item.start), _number(item.stop), _number(item.step))
    return item.item() if _is_position(item) else item


def _jagged_of_padded(
    original: Any, mode: Any, func: Any, padded: Tensor, offsets: list[Tensor], total_L: Any = None
) -> Tensor:
    """The number of values may be 0: PyTorch 2.12 asks whether it is, which fixes it to the example's."""
    if total_L is None:
        found: Tensor = original(mode, func, padded, offsets)
        return found
    return padded.new_empty((total_L, *padded.shape[2:]))


def _converted(original: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Fake kernels of PyTorch 2.12 give results a memory format, for which it asks which one they have."""
    if not args and kwargs.keys() == {"memory_format"} and in_any_kernel():
        with unguarded(x):
            return original(x, **kwargs)
    return original(x, *args, **kwargs)
