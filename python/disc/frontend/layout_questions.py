"""Comparisons of sizes by which PyTorch chooses memory layouts must not become conditions on the model's inputs.

While tracing, PyTorch checks whether each result is dense, chooses the memory format of convolutions, and checks
whether a reshape can be a view. For symbolic sizes all of these install guards, for example that a batch is not 1. The
compiled program has its own layouts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import sympy
import torch

from ..torch_compat import patches, pytree
from ..torch_compat.operators import OpOverload
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import (
    NO_HINT,
    ShapeEnv,
    SymNode,
    bound_sympy,
    free_unbacked_symbols,
    hint_of,
    torch_sympy,
)
from ..torch_compat.tracing import CACHED_RESULT, FakeTensorMode, proxy_tensor, unset_fake_temporarily
from .proving import declared_ranges, holds_from

_CONVOLUTIONS = (
    torch.ops.aten.convolution.default,
    torch.ops.aten._convolution.default,
    torch.ops.aten.convolution_backward.default,
)
_aten = torch.ops.aten
_CHOOSING = {
    _aten.view,
    _aten._unsafe_view,
    _aten.reshape,
    _aten.reshape_as,
    _aten.view_as,
    _aten.flatten,
    _aten.unflatten,
    _aten.batch_norm,
    _aten._batch_norm_impl_index,
}
"""Operators that compare sizes only to choose a view or a library: on GPUs batch norm checks whether the batch is at
most 65535. Their other comparisons are in other files."""
_OF_STRIDES = ("Contiguity.h", "MemoryOverlap.cpp", "TensorUtils.cpp")
"""Files of C++ code that check whether a tensor's elements are contiguous or overlap, and whether a reshape can be a
view, to choose between ways to the same result."""
_SHORTCUT = "fast_binary_impl"
"""The fake kernel of operators with two operands."""
_EXTREMA = (torch_sympy.Min, torch_sympy.Max)
_COMPARISONS = "SymInt.h"
"""Where C++ code compares sizes as if they were numbers."""


@contextmanager
def answered_by_the_example() -> Iterator[None]:
    """While it is active, questions about layouts are answered by the example's sizes, and install no guards."""
    kernels = patches.FAKE_KERNELS
    with replaced(
        {
            **dict.fromkeys((*patches.DESCRIBE_TENSOR, *patches.MEMORY_FORMATS, *patches.LAYOUT_QUESTIONS), _unguarded),
            patches.RESHAPE_OF_KERNELS: _in_kernels,
            patches.GUARD_OF_CPP: _guard_bool,
            patches.GUARD_OF_PYTHON: _of_shortcuts,
            **dict.fromkeys(patches.DIVISIONS, _without_zero),
            **dict.fromkeys(patches.GUARDS_OF_VIEWS, _of_views),
            **{kernels.at(op): _plain for op in _CONVOLUTIONS if op in kernels.items()},
        }
    ):
        yield


def _unguarded(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of a tensor, or of its sizes, without guards on them."""
    with unguarded(*args):
        return original(*args, **kwargs)


def _in_kernels(original: Callable[..., Any], a: torch.Tensor, shape: Any, allow_copy: bool) -> Any:
    """A reshape without guards where a fake kernel calls it: only the strides of the result depend on these."""
    if _operator() is None and not in_any_kernel():
        return original(a, shape, allow_copy)
    with unguarded(a):
        try:
            result = original(a, shape, allow_copy)
        except (ValueError, ZeroDivisionError):
            if not _is_view_in_the_example(a, shape):
                raise
            # Where computed sizes are 1 it is a view, for which PyTorch asks; in the form for all sizes it need not be.
            # Where they are 0 in the example, what PyTorch asks of a remainder has no answer.
            return torch.as_strided(a, shape, _contiguous(shape))
        if all(_same(got, wanted) for got, wanted in zip(result.shape, shape, strict=True)):
            return result
        # Extents that are equal in the example were taken for the same: n chunks for a 1, where n is 1 there.
        return torch.as_strided(a, shape, _contiguous(shape))


def _contiguous(shape: Any) -> list[Any]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _is_view_in_the_example(a: torch.Tensor, shape: Any) -> bool:
    """Whether a tensor of the example's sizes can be seen in another shape without a copy."""
    if not any(isinstance(size, torch.SymInt) for size in a.shape):
        return False
    given = [[_in_the_example(x) for x in numbers] for numbers in (a.shape, a.stride(), shape)]
    with unset_fake_temporarily():
        try:
            torch.empty_strided(given[0], given[1], device="meta").view(given[2])
        except RuntimeError:
            return False
    return True


def _in_the_example(size: Any) -> int:
    return int(hint_of(size.node.shape_env, size.node.expr)) if isinstance(size, torch.SymInt) else size


def _same(size: Any, other: Any) -> bool:
    known = [x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (size, other)]
    return bool(known[0] == known[1])


def unguarded(*given: Any) -> Any:
    """While it is active, comparisons of sizes use the example, and install no guards.

    ``given``: the tensors, or their sizes and strides; other objects in it are ignored.
    """
    shapes = (x.shape if isinstance(x, torch.Tensor) else x for x in given)
    sizes = (size for shape in shapes if isinstance(shape, (tuple, list)) for size in shape)
    env = next((size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)), None)
    return nullcontext() if env is None else env.suppress_guards()


def _guard_bool(original: Callable[..., bool], self: SymNode, file: str, line: int) -> bool:
    """The truth of a condition that C++ code asks for: without a guard where only a layout or kernel depends on it."""
    env = self.shape_env
    if env is not None and _of_emptiness(env, self.expr) and (_in_fake_kernel() or _of_attention() is not None):
        # The shape of a result does not depend on it; what the elements are then is for the lowering to know.
        return isinstance(self.expr, sympy.Ne)
    if env is not None and _infers_a_size(self.expr):
        # Without elements there is no size to infer, which is an error at run time, as in PyTorch.
        return self.expect_true(file, line)
    if env is not None and free_unbacked_symbols(self.expr) and _of_cached_result():
        # Whether it is contiguous, which it also is if sizes are equal or 1 that need not be.
        general = {x: sympy.sympify(isinstance(x, sympy.Ne)) for x in self.expr.atoms(sympy.Eq, sympy.Ne)}
        return self.expr.xreplace(general) is sympy.true
    # A model's own conditions come without a file.
    if env is not None and file.endswith(_COMPARISONS) and _of_parts(self.expr):
        return isinstance(self.expr, sympy.Ne)
    if env is not None and file.endswith(_COMPARISONS) and _of_elements(self.expr):
        # An operator that requires elements asks so: that there are some is checked at run time.
        return self.expect_true(file, line)
    of_width = file != "" and _of_index_width(self.expr)
    if env is None or not (of_width or (file.endswith(_COMPARISONS) and _of_layout(env, self.expr))):
        return original(self, file, line)
    with env.suppress_guards():
        return original(self, file, line)


def _without_zero(original: Callable[[SymNode, SymNode], SymNode], self: SymNode, other: SymNode) -> SymNode:
    """A quotient or a remainder, which has no value in the example where it would divide by 0."""
    try:
        return original(self, other)
    except ZeroDivisionError:
        if other.constant is not None or other.expr.is_number:
            raise
        unknown = SymNode(other.expr, other.shape_env, other.pytype, NO_HINT, fx_node=other.fx_node)
        return original(self, unknown)


def _of_views(original: Callable[..., bool], self: SymNode, file: str, line: int) -> bool:
    """Comparisons of sizes in C++ code: without guards if they only choose a view or a library."""
    env = self.shape_env
    if env is not None and _of_parts(self.expr):
        return isinstance(self.expr, sympy.Ne)
    with nullcontext() if env is None or not (file.endswith(_OF_STRIDES) or _choosing()) else env.suppress_guards():
        return original(self, file, line)


def _of_shortcuts(original: Callable[..., bool], a: Any, default: bool) -> bool:
    """Whether a computed size is 1, asked where a tensor is broadcast: the general way is right for 1, too."""
    condition = a.node.expr if isinstance(a, torch.SymBool) and a.node.shape_env is not None else None
    if condition is None or (frame := _broadcasting()) is None:
        return original(a, default)
    env, general = a.node.shape_env, isinstance(condition, sympy.Ne)
    if frame.f_code.co_name == _SHORTCUT:
        # Whether no operand is repeated: then the result has the strides of one.
        known = env._maybe_evaluate_static(condition)
        return default if known is None else bool(known)
    if not isinstance(condition, (sympy.Eq, sympy.Ne)):
        return original(a, default)
    if not condition.rhs.is_number:
        # Which of two sizes is 1 is asked next.
        return general if any(_is_one(env, size) for size in condition.args) else original(a, default)
    if condition.rhs != 1:
        return original(a, default)
    if _is_one(env, condition.lhs):
        return general is _meets_one(frame, condition.lhs)
    return general if _of_parts(condition) else original(a, default)


def _is_one(env: ShapeEnv, size: Any) -> bool:
    """Whether a computed size is never more than 1, or is 1 for all sizes from 2 on: ``min(n, 1)`` is repeated."""
    if not size.has(*_EXTREMA) or free_unbacked_symbols(size):
        return False
    if bound_sympy(size, {**env.var_to_range, **declared_ranges(env, size.free_symbols)}).upper <= 1:
        return True
    return env._maybe_evaluate_static(size) == 1 or (
        len(size.free_symbols) == 1 and holds_from(sympy.Eq(size, 1), 2) is True
    )


def _meets_one(frame: FrameType, size: Any) -> bool:
    """Whether a size is broadcast with a 1, where the result has the size."""
    known = frame.f_locals
    if "common_shape" in known:
        others = [known["common_shape"][known["idx"]]] if "idx" in known else []
    else:
        sizes = [known[name] for name in ("sizeA", "sizeB") if name in known]
        others = [x for x in sizes if not (isinstance(x, torch.SymInt) and x.node.expr == size)]
    return any(isinstance(x, int) and x == 1 for x in others)


def _broadcasting() -> FrameType | None:
    """The code that asks, if it broadcasts: that which reshapes drops dims of 1, which other sizes do not allow."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(("patching.py", "symbolic_shapes.py")):
        frame = frame.f_back
    name = "" if frame is None else frame.f_code.co_name
    return frame if "broadcast" in name or name in ("infer_size", "should_expand", _SHORTCUT) else None


def _choosing() -> bool:
    """Whether an operator that views or copies, say, is taken apart, be it in the fake kernel of another."""
    if getattr(_operator(), "overloadpacket", None) in _CHOOSING:
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not OpOverload.decompose.__code__:
        frame = frame.f_back
    return frame is not None and getattr(frame.f_locals["self"], "overloadpacket", None) in _CHOOSING


def _operator() -> Any:
    """The operator of the trace whose fake kernel is running, if one is."""
    frame = _of_proxy()
    return None if frame is None else frame.f_locals["func"]


def _of_attention() -> FrameType | None:
    """The frame of a mode that calls attention, which also chooses a kernel before an operator is recorded."""
    frame, name = _of_function()
    return frame if name == "scaled_dot_product_attention" else None


def _infers_a_size(condition: Any) -> bool:
    """Whether a reshape to -1 asks if the other sizes, which depend on data, are 0."""
    if not isinstance(condition, sympy.Ne) or condition.rhs != 0 or not free_unbacked_symbols(condition):
        return False
    operator = _operator()
    return (_of_function()[1] if operator is None else operator.overloadpacket.__name__) in ("reshape", "view")


def _of_function() -> tuple[FrameType | None, str]:
    """The frame of the mode that calls a function of torch, and the name of the function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "__torch_function__":
        frame = frame.f_back
    # The function itself may be replaced while a model is traced.
    return frame, "" if frame is None else getattr(frame.f_locals.get("func"), "__name__", "")


def _of_proxy() -> FrameType | None:
    """The frame of the call of that operator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not proxy_tensor.proxy_call.__code__:
        frame = frame.f_back
    return frame


def _of_dispatch() -> FrameType | None:
    """The frame of the call of an operator that runs only for the shape of its result, where nothing is recorded."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not FakeTensorMode.dispatch.__code__:
        frame = frame.f_back
    return frame


def in_any_kernel() -> bool:
    """Whether a fake kernel is running, and not an operator of the trace that calls others."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not proxy_tensor.proxy_call.__code__:
        if frame.f_code is FakeTensorMode.dispatch.__code__:
            return True
        frame = frame.f_back
    return False


def _of_emptiness(env: ShapeEnv, condition: Any) -> bool:
    """Whether a condition compares a size, or the number of elements, which may be 0 or not, with 0."""
    if not isinstance(condition, (sympy.Eq, sympy.Ne)) or condition.rhs != 0:
        return False
    if not free_unbacked_symbols(condition):
        return env._maybe_evaluate_static(condition) is None and _is_of_operand(condition.lhs)
    factors = sympy.Mul.make_args(condition.lhs)
    return all(x.is_Symbol or (x.is_Integer and x > 0) for x in factors) or _is_of_operand(condition.lhs)


def _is_of_operand(number: Any) -> bool:
    """Whether a number is a size of an operand of the operator whose fake kernel is running, or of all its elements."""
    frame = _of_proxy() or _of_attention() or _of_dispatch()
    if frame is None:
        return False
    for x in pytree.tree_leaves((frame.f_locals["args"], frame.f_locals["kwargs"])):
        if isinstance(x, torch.Tensor):
            sizes = [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in x.shape]
            if number in sizes or sympy.expand(number - math.prod(sizes)) == 0:
                return True
    return False


def _of_elements(condition: Any) -> bool:
    """Whether a condition says that a size that depends on data is at least 1."""
    if not isinstance(condition, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)) or not free_unbacked_symbols(condition):
        return False
    return bool(condition.lts == int(not isinstance(condition, (sympy.Gt, sympy.Lt))))


def _of_cached_result() -> bool:
    """Whether PyTorch asks while it makes a result like one before, whose sizes and strides it knows."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not FakeTensorMode.dispatch.__code__:
        if frame.f_code is CACHED_RESULT:
            return True
        frame = frame.f_back
    return False


def _in_fake_kernel() -> bool:
    """Whether an operator runs only for the shape of its result, so that nothing is recorded."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not proxy_tensor.proxy_call.__code__:
        if frame.f_code is FakeTensorMode.dispatch.__code__:
            return True
        frame = frame.f_back
    # Before autograd operators are recorded as the model has them, also those that call others.
    return frame is not None and bool(frame.f_locals.get("pre_dispatch"))


def _of_layout(env: ShapeEnv, condition: Any) -> bool:
    """Whether a condition compares strides, or says that an extent is not 1.

    Code that treats 1 differently saves work, broadcasts, or drops dims, as squeeze does. In the first two cases the
    general code is correct for 1, too. Operators that drop dims use other functions.
    """
    if _choosing():
        return True
    if free_unbacked_symbols(condition):
        return False
    if isinstance(condition, sympy.StrictLessThan) and condition.rhs == 2:
        # Dims of 0 and 1 are left out where strides are compared.
        return not hint_of(env, condition)
    if not isinstance(condition, (sympy.Eq, sympy.Ne)):
        return False
    if not condition.rhs.is_Integer:
        # A stride and what it would be if a slice were the whole tensor, which it is for some sizes.
        return isinstance(condition, sympy.Ne) and hint_of(env, condition) and not in_any_kernel()
    factor, _ = (condition.lhs - condition.rhs).as_content_primitive()
    general = isinstance(condition, sympy.Ne)
    if hint_of(env, condition) != general:
        return False
    # Who goes on with sizes that are not equal asks for a way that is shorter if they are: whether the last steps of a
    # series, which are all of a short one, follow each other in memory. Fake kernels also ask what a result's shape is.
    return factor == condition.rhs or not in_any_kernel()


def _of_parts(condition: Any) -> bool:
    """Whether a condition asks if a computed size is 1, as that of ``(n + 15) // 16`` chunks: the general way is right.

    PyTorch also asks for what the size is a factor of: whether a multiple of 16 is 16.
    """
    if not isinstance(condition, (sympy.Eq, sympy.Ne)) or len(condition.free_symbols) != 1:
        return False
    size, of_one = condition.args
    if free_unbacked_symbols(condition) or size.is_Symbol or not of_one.is_Integer or of_one < 1:
        return False
    return of_one == 1 or holds_from(sympy.Eq(torch_sympy.PythonMod(size, of_one), 0), 1) is True


def _of_index_width(condition: Any) -> bool:
    """Whether a condition asks if 32 bits are enough for indices: what chooses among PyTorch's own kernels.

    PyTorch's quantile() counts in float32, and takes no more elements than that can count.
    """
    return isinstance(condition, sympy.core.relational.Relational) and bool(
        {2**31 - 1, 2**31, 2**24}.intersection(condition.args)
    )


def _plain(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The fake kernel of a convolution: the memory format that it asks for is chosen, and made, without guards."""
    with replaced(dict.fromkeys((patches.CONVOLUTION_FORMAT, patches.CONVERSION), _unguarded)):
        return original(*args, **kwargs)
