"""Transforms of functions (``torch.func``) and gradients (``torch.autograd.grad``) in a model's code.

``torch.export`` records a model's calls before PyTorch differentiates or batches them. What autograd and functorch
compute below is not recorded, so the results of a transform would be tensors that no operation of the graph computes.

While :func:`recorded_below` is active, a transform is a region whose operations are recorded one level lower, where
all transforms are done and plain ATen operations remain. They are added to the same graph, so tensors and sizes from
outside of the region are used as they are. ``torch.autograd.grad`` differentiates what was computed before it: it ends
the trace by :class:`NeedsGradients`, and the whole model is traced again as such a region with gradients enabled.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat import patches, pytree
from ..torch_compat.patching import Replacement, instead, replaced
from ..torch_compat.tracing import disable_proxy_modes_tracing, get_proxy_mode, proxy_tensor
from . import gradient_mode
from .locations import source_of_error, source_of_trace, user_line
from .stand_ins import StandIns, difference
from .zero_tangents import Zeros

# PyTorch selects the elements one by one, as many as it takes the size for.
_UNROLLED = re.compile(r"index \d+ is out of bounds for dimension \d+ with size")


_FIXING = re.compile(r"Cannot call \w+\(\) on tensor with symbolic sizes/strides")


class NeedsGradients(BaseException):
    """Ends a trace: the model's code asks for gradients of what it has computed.

    Not an ``Exception``, which the model's code may catch.
    """


class Tracing:
    """What is known of the trace of a model while :func:`recorded_below` is active."""

    def __init__(self, whole: bool, differentiated: bool) -> None:
        self.whole = whole
        self.differentiated = differentiated
        self.without = False
        """Whether gradients were disabled outside of the open transforms."""
        self.detaching = 0
        """How many calls of the model's code that leave gradients out are running."""
        self.open = 0
        """How many regions are open."""
        self.transforming = 0
        """How many transforms are asking autograd for gradients."""
        self.second = False
        """Whether the numbers that stand for sizes are those of the second trace."""
        self.numbers = StandIns()
        self.zeros = Zeros()

    @property
    def takes_numbers(self) -> bool:
        """Whether sizes were taken for numbers in the last trace: it must be compared with a second one."""
        return self.numbers.used

    @contextmanager
    def region(self) -> Iterator[None]:
        """Operations are recorded below autograd and functorch."""
        mode = get_proxy_mode()
        if mode is None or not mode.pre_dispatch:
            yield
            return
        below = _Below(self, mode)
        self.open += 1
        try:
            with disable_proxy_modes_tracing(), below:
                yield
        finally:
            self.open -= 1

    def level(self, original: Any, *args: Any) -> Any:
        """The context of one level of a transform, as a region."""

        @contextmanager
        def level() -> Iterator[Any]:
            # Without gradients PyTorch uses formulas that cannot be differentiated again, as that of silu.
            with self.region(), self._enabled(), original(*args) as value, self._explained():
                yield value

        return level()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of PyTorch's C++ code on dynamic sizes, as errors that name the line."""
        try:
            yield
        except (IndexError, RuntimeError) as error:
            if _FIXING.search(str(error)) or (self.numbers.used and _UNROLLED.match(str(error))):
                raise _refusal(error) from error
            raise

    def transform(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The gradients that a transform asks for, as a region: those of ``vjp`` are computed behind its level."""
        self.transforming += 1
        try:
            with self.region(), self._enabled():
                return original(*args, **kwargs)
        finally:
            self.transforming -= 1

    @contextmanager
    def _enabled(self) -> Iterator[None]:
        """Gradients are enabled for a transform, whose results have none for the code around it if it disabled them."""
        before = self.without
        self.without = before or not torch.is_grad_enabled()
        try:
            with torch.enable_grad():
                yield
        finally:
            self.without = before

    def called(self, original: Any, mode: Any, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Changes of PyTorch's state are recorded outside of regions only: inside, they are in effect."""
        if self.differentiated and function is torch._C._set_grad_enabled:
            return function(*args)  # What is recorded then has a note.
        if self.differentiated and gradient_mode.detaches(function):
            self.detaching += 1
            try:
                return original(mode, function, kinds, args, kwargs)
            finally:
                self.detaching -= 1
        if not self.open:
            return original(mode, function, kinds, args, kwargs)
        if function in _AUTOCAST:
            return None  # Only to be recorded.
        if function is _ATTENTION:
            return self.attention(function, *args, **(kwargs or {}))
        if function in _PRODUCTS and not kwargs and args[0].dim() == 2 and args[1].dim() == 1:
            # PyTorch's rule for batches of vectors makes views without tangents, and then rejects them.
            return torch.mm(args[1].unsqueeze(0), args[0].t()).squeeze(0)
        return function(*args, **(kwargs or {}))

    def attention(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Attention inside of a region by its definition, whose operations have gradients and batching rules."""
        if not self.open:
            return original(*args, **kwargs)
        return _attention(*args, **kwargs)

    def batch_norm(self, original: Any, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *options: Any) -> Any:
        """Normalisation by known statistics inside of a region by its definition, which has batching rules."""
        training, momentum, eps, _ = options
        if training and isinstance(momentum, torch.SymFloat) and mean is not None and var is not None:
            return _batch_norm(original, x, weight, bias, mean, var, momentum, *options[2:])
        if not self.open or training or mean is None or var is None:
            return original(x, weight, bias, mean, var, *options)
        scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
        shift = -mean * scale if bias is None else bias - mean * scale
        shape = [1, -1, *[1] * (x.dim() - 2)]
        return x * scale.view(shape) + shift.view(shape)

    def mixed(self, original: Any, node: Any, number: int) -> Any:
        """A number in arithmetic with sizes."""
        size = self.numbers.size(number) if self.open else number
        return size.node if isinstance(size, torch.SymInt) else original(node, number)

    def traced(self, original: Any, root: Callable[..., Any], tracer: Any, concrete_args: Any = None) -> Any:
        """Begins the trace of a program; all of it is a region if the model asks for gradients."""
        mode = get_proxy_mode()
        if mode is None or not mode.pre_dispatch:
            return original(root, tracer, concrete_args)
        self.numbers, self.zeros = StandIns(self.second), Zeros()
        if self.differentiated:
            gradient_mode.noted(tracer, lambda: self.without, lambda: not self.open or self.detaching > 0)
        if not self.whole:
            return original(root, tracer, concrete_args)

        @functools.wraps(root)
        def region(*args: Any) -> Any:
            with self.region(), torch.enable_grad(), self._explained():
                return root(*args)

        return original(region, tracer, concrete_args)

    def gradients(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A function that asks autograd for what was computed before it."""
        if get_proxy_mode() is not None and not (self.whole or self.transforming):
            raise NeedsGradients
        return original(*args, **kwargs)

    def dual_level(self, original: Any) -> Any:
        """A level of forward-mode gradients, of the model's own unless a transform enters it."""
        if get_proxy_mode() is not None and not self.open:
            raise NeedsGradients
        return original()


def _refusal(error: Exception) -> errors.CompileError:
    if isinstance(error, IndexError):
        text = (
            "torch.func.vmap has no batching rule for an operation here, and would run it once for each of a dynamic"
            " number of elements"
        )
    else:
        text = "PyTorch's own code for a transform of this operation does not work with dynamic sizes"
    return errors.DynamicDimError("import", text, source_of_error(error) or user_line(), help=_ADVICE)


_ADVICE = "make the sizes inside of the transform static, or use another transform, such as grad for jvp"
_AUTOCAST = (torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast)


_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mv, Tensor.mv)
_ATTENTION = patches.ATTENTION.original()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    found = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return found[0]  # type: ignore[no-any-return]


def _batch_norm(
    original: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: Any, *options: Any
) -> Tensor:
    """Batch norm with a momentum that is computed, as ``momentum=None`` is; PyTorch's operator takes a number."""
    with torch.no_grad():
        factor = torch.full((), momentum, dtype=torch.float64).to(mean.dtype)
        now = mean.clone(), var.clone()
    result: Tensor = original(x, weight, bias, *now, True, 1.0, *options)
    with torch.no_grad():
        for statistic, new in zip((mean, var), now, strict=True):
            statistic.copy_(statistic * (1 - factor) + new * factor)
    return result


_QUESTIONS: dict[Any, Callable[[Tensor], Any]] = {
    torch.ops.aten.size.default: lambda x: x.shape,
    torch.ops.aten.stride.default: lambda x: x.stride(),
}


class _Below(proxy_tensor.ProxyTorchDispatchMode):
    """Records operations below autograd and functorch in the graph of the mode above them."""

    def __init__(self, tracing: Tracing, above: Any) -> None:
        super().__init__(
            above.tracer, above.tracing_mode, False, above._allow_fake_constant, above._error_on_data_dependent_ops
        )
        self._tracing = tracing

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _QUESTIONS:
            # Asked by C++ code alone, which has no other numbers.
            return self._tracing.numbers.numbers(_QUESTIONS[func](args[0]))
        args, kwargs = self._tracing.numbers.replaced((args, kwargs or {}))
        zeros = self._tracing.zeros
        if zeros.concern(func, args):
            with self:
                return zeros.computed(func, args, kwargs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        zeros.note(func, args)
        return result


def _refused_backward(original: Any, *args: Any, **kwargs: Any) -> Any:
    if get_proxy_mode() is None:
        return original(*args, **kwargs)
    raise errors.GradientError(
        "import",
        "backward() sets the attribute .grad of tensors, which a compiled model has no results for",
        user_line(),
        help="use torch.autograd.grad(loss, tensors), which returns the gradients",
    )


def _batched(
    _: Any, func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False
) -> Callable[..., Any]:
    """PyTorch's older vmap, of whose results some may be None."""

    def batched(*args: Any) -> Any:
        known: list[Any] = []

        def tensors(*inside: Any) -> list[Tensor]:
            leaves, spec = pytree.tree_flatten(func(*inside), is_leaf=lambda x: x is None)
            known[:] = [spec, [isinstance(x, Tensor) for x in leaves]]
            return [x for x in leaves if isinstance(x, Tensor)]

        results = iter(torch.func.vmap(tensors, in_dims, out_dims)(*args))
        spec, places = known
        return pytree.tree_unflatten([next(results) if tensor else None for tensor in places], spec)

    return batched


def _chunks(original: Any, total_elems: Any, chunk_size: int) -> Any:
    if isinstance(total_elems, torch.SymInt):
        text = f"chunk_size={chunk_size} splits a dynamic size"
        raise errors.DynamicDimError("import", text, user_line(), help="leave chunk_size out, or make the size static")
    return original(total_elems, chunk_size)


def _called_module(original: Any, tracer: Any, *args: Any, **kwargs: Any) -> Any:
    depth = len(tracer.module_stack)
    try:
        return original(tracer, *args, **kwargs)
    except BaseException:
        while len(tracer.module_stack) > depth:
            tracer.module_stack.popitem()
        raise


def _basis(
    original: Any, tensors: Sequence[Tensor], tensor_numels: Sequence[Any], chunk_size: int | None = None
) -> Iterator[tuple[Tensor, ...]]:
    """The rows of unit matrices for Jacobians of any size; PyTorch's own makes Python numbers of the sizes."""
    if (chunk_size is not None and not isinstance(sum(tensor_numels), torch.SymInt)) or get_proxy_mode() is None:
        yield from original(tensors, tensor_numels, chunk_size)
        return
    if chunk_size is not None:
        _chunks(None, sum(tensor_numels), chunk_size)
    rows = torch.arange(sum(tensor_numels), device=tensors[0].device).unsqueeze(1)
    basis, first = [], 0
    for tensor, numel in zip(tensors, tensor_numels, strict=True):
        columns = torch.arange(first, first + numel, device=tensor.device)
        basis.append((rows == columns).to(tensor.dtype).view(-1, *tensor.shape))
        first = first + numel
    yield tuple(basis)


def check_same(program: ExportedProgram, second: ExportedProgram) -> None:
    """Raises DynamicDimError if a model was traced to something else with other numbers for its sizes."""
    node = difference(program.graph, second.graph)
    if node is not None:
        text = (
            f"{node.target}: PyTorch's own code for a transform takes a dynamic size for a number, and computes with it"
        )
        source = source_of_trace(node.meta.get("stack_trace", ""))
        raise errors.DynamicDimError("import", text, source, help=_ADVICE)


@contextmanager
def recorded_below(whole: bool, differentiated: bool = False) -> Iterator[Tracing]:
    """While it is active, ``torch.export`` records transforms as the ATen operations that they result in.

    With ``whole`` it records all of the model so, with gradients enabled; without, the model's calls of
    ``torch.autograd.grad`` raise :class:`NeedsGradients`. ``differentiated``: the program's gradients are wanted, and
    its nodes say where the model's code disabled gradients.
    """
    tracing = Tracing(whole, differentiated)
    replacements: dict[patches.Patch, Replacement] = {
        **dict.fromkeys(patches.TRANSFORM_LEVELS, tracing.level),
        patches.TRANSFORM_GRADIENTS: tracing.transform,
        patches.RECORDED_STATE: tracing.called,
        patches.MODE_FOR_EXPORT: instead(lambda: None),
        patches.DISPATCH_TRACE: tracing.traced,
        patches.STANDARD_BASIS: _basis,
        patches.GRADIENTS: tracing.gradients,
        patches.DUAL_LEVEL: tracing.dual_level,
        patches.BACKWARD: _refused_backward,
        patches.MIXED_NUMBER: tracing.mixed,
        patches.ATTENTION: tracing.attention,
        patches.BATCH_NORM: tracing.batch_norm,
        patches.LEGACY_VMAP: _batched,
        patches.CHUNK_SIZES: _chunks,
        patches.CALL_MODULE: _called_module,
    }
    with replaced(replacements):
        yield tracing
