"""Operations that PyTorch does in the middle of a compiled model: those that have no rule, if the user allows it.

The node of torch.export's graph is kept. Compiled code calls back into this process with pointers to its operands, and
the node's function runs on tensors made of them. What is known of results' shapes is what the operation's fake kernel
says; sizes that it makes up are computed first, and the results fetched when there is memory for them.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from .. import errors
from ..torch_compat import pytree
from . import dtypes
from .builder import Builder
from .locations import describe, source_of
from .registry import NotLowerable, lowers
from .rules.calls import dtype_code
from .rules.common import number
from .values import Extent, Tensor

NAME = "torch.disc.fallback"


@dataclass(frozen=True)
class Fallback:
    """An operation that PyTorch does while a compiled model runs."""

    op: str
    """Its name, ``mylib::twice``."""
    source: str
    """The user's line, ``file:line``."""
    reason: str = ""
    """Why DISC cannot compile it."""


@dataclass
class Fallbacks:
    """The operations of a program that may fall back to PyTorch, and those that do."""

    nodes: dict[str, str] = field(default_factory=dict)
    """The nodes of the graph, by name, and why each has no rule."""
    used: list[Fallback] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    """The numbers of the functions that compiled code calls."""


class _View(ctypes.Structure):
    """``disc_view`` of the runtime."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


_Function = Callable[[Any], None]
_numbers = itertools.count(1)
_functions: dict[int, _Function] = {}
_errors: dict[int, BaseException] = {}


def _call(slot: int, operands: Any) -> int:
    """What compiled code calls, on whichever of its threads; the number of an exception, or 0."""
    try:
        with torch.no_grad():
            _functions[slot](operands)
    except BaseException as error:  # It goes on in the thread that called the model: see raising.
        found = next(_numbers) % 2**31 or 1
        _errors[found] = error
        return found
    return 0


_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(_View))(_call)


_EXCEPTION = re.compile(r"fails with exception #(\d+)")


def raising(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` of compiled code, with exceptions of operations as they were raised."""

    def run_or_raise(inputs: Any) -> Any:
        try:
            return run(inputs)
        except RuntimeError as error:
            match = _EXCEPTION.search(str(error))
            found = None if match is None else _errors.pop(int(match[1]), None)
            if found is None:
                raise
        setattr(found, errors.FOREIGN, True)
        raise found

    return run_or_raise


def forget(functions: Sequence[int]) -> None:
    """Drops functions whose model is gone."""
    for slot in functions:
        _functions.pop(slot, None)


def bind_lifetime(owner: Any, fallbacks: Fallbacks) -> None:
    """Keeps the functions as long as ``owner``."""
    weakref.finalize(owner, forget, list(fallbacks.functions)).atexit = False


def _memory(view: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in the memory of an operand."""
    dims, strides = list(view.dims[: view.rank]), list(view.strides[: view.rank])
    if 0 in dims:
        return torch.empty(dims, dtype=dtype)
    last = sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
    buffer = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(view.data)
    return torch.frombuffer(buffer, dtype=dtype).as_strided(dims, strides)


def _register(function: _Function, fallbacks: Fallbacks) -> int:
    slot = next(_numbers)
    _functions[slot] = function
    fallbacks.functions.append(slot)
    return slot


def _read(operands: Any, kinds: Sequence[tuple[torch.dtype, bool]]) -> list[Any]:
    """The operands as PyTorch's own; ``kinds`` are dtypes, and whether an operand is a number of Python's."""
    values: list[Any] = []
    for i, (dtype, is_number) in enumerate(kinds):
        part = dtypes.part(dtype) if dtype.is_complex else dtype
        # A copy: the operation may keep what it gets, and the memory is used again.
        tensor = _memory(operands[i], part).clone(memory_format=torch.contiguous_format)
        tensor = torch.view_as_complex(tensor) if dtype.is_complex else tensor
        values.append(tensor.item() if is_number else tensor)
    return values


def _write(view: Any, result: Any, dtype: torch.dtype, name: str, place: int) -> None:
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"{name}: result {place} is {type(result).__name__}, its fake kernel says it is a tensor")
    result = result.detach().resolve_conj().resolve_neg()
    shape, found = list(view.dims[: view.rank]), list(result.shape) + ([2] if dtype.is_complex else [])
    if result.dtype != dtype or found != shape:
        shape = shape[:-1] if dtype.is_complex else shape
        raise RuntimeError(
            f"{name}: result {place} is {result.dtype} of shape {list(result.shape)}, its fake kernel says {dtype} of "
            f"shape {shape}"
        )
    if result.numel():
        data = torch.view_as_real(result) if dtype.is_complex else result
        _memory(view, data.dtype).copy_(data)


def _results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@lowers(NAME)
def fallback(b: Builder, *operands: Any) -> Any:
    """The node's function, called while the model runs."""
    node, fallbacks = b.node, b.fallbacks
    assert isinstance(node, Node) and fallbacks is not None
    name = str(node.target).removesuffix(".default").replace(".", "::", 1)
    where = describe(source_of(node)) or ""
    expected = _results(b.node_value)
    if not any(isinstance(value, torch.Tensor) for value in expected):
        raise NotLowerable("it returns no tensor, so PyTorch cannot do it in the middle of compiled code")
    if not all(value is None or isinstance(value, torch.Tensor) for value in expected):
        raise NotLowerable("it returns a number, which PyTorch cannot compute in the middle of compiled code")
    inputs, kinds = _operands(b, node, operands)
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]
    target: Any = node.target

    def compute(views: Any) -> list[Any]:
        given = list(leaves)
        for place, value in zip(at, _read(views, kinds), strict=True):
            given[place] = value
        args, kwargs = pytree.tree_unflatten(given, spec)
        try:
            return _results(target(*args, **kwargs))
        except Exception as error:
            if where and hasattr(error, "add_note"):
                error.add_note(f"in {name}, which PyTorch does for the compiled model, at {where}")
            raise

    tensors = [(i, value) for i, value in enumerate(expected) if isinstance(value, torch.Tensor)]
    fallbacks.used.append(Fallback(name, where.partition("\n")[0], fallbacks.nodes.get(node.name, "")))
    computed = _called(b, fallbacks, inputs, len(kinds), compute, tensors, name)
    outputs: list[Tensor | None] = [None] * len(expected)
    for (i, _), tensor in zip(tensors, computed, strict=True):
        outputs[i] = tensor
    return outputs if isinstance(b.node_value, (tuple, list)) else outputs[0]


def _operands(b: Builder, node: Node, operands: Sequence[Any]) -> tuple[list[Tensor], list[tuple[torch.dtype, bool]]]:
    inputs: list[Tensor] = []
    kinds = []
    for value in operands:
        if not isinstance(value, Tensor):
            # Numbers travel as tensors without dims.
            dtype = torch.float64 if isinstance(getattr(value, "dtype", None), torch.dtype) else torch.int64
            dtype = value.dtype if dtype == torch.float64 else dtype
            inputs.append(b.map(dtype, [number(value)], lambda x: x, number_dtype=dtype, dims=[]))
            kinds.append((dtype, True))
            continue
        inputs.append(b.as_pairs(value) if value.dtype.is_complex else value)
        kinds.append((value.dtype, False))
    return inputs, kinds


def _unknown(b: Builder, size: Any) -> bool:
    return isinstance(size, torch.SymInt) and b.extent_of(size.node.expr) is None


def _called(
    b: Builder,
    fallbacks: Fallbacks,
    inputs: Sequence[Tensor],
    count: int,
    compute: Callable[[Any], list[Any]],
    tensors: Sequence[tuple[int, torch.Tensor]],
    name: str,
) -> list[Tensor]:
    """The tensors among the results; ``tensors`` are their places and what torch.export says of them."""
    sizes: dict[Any, tuple[int, int]] = {}
    for place, value in tensors:
        for dim, size in enumerate(value.shape):
            if _unknown(b, size):
                assert isinstance(size, torch.SymInt)
                sizes.setdefault(size.node.expr, (place, dim))
    if not sizes:

        def store(views: Any) -> None:
            results = compute(views)
            for i, (place, value) in enumerate(tensors):
                _write(views[count + i], results[place], value.dtype, name, place)

        return _call_op(b, inputs, _register(store, fallbacks), result_shapes(b, tensors))

    kept: dict[int, list[Any]] = {}
    lock = threading.Lock()
    tickets = itertools.count(1)

    def begin(views: Any) -> None:
        results = compute(views)
        with lock:
            ticket = next(tickets)
            kept[ticket] = results
        _memory(views[count], torch.int64).fill_(ticket)
        for i, (place, dim) in enumerate(sizes.values(), start=1):
            _memory(views[count + i], torch.int64).fill_(results[place].shape[dim])

    def fetch(views: Any) -> None:
        with lock:
            results = kept.pop(int(_memory(views[0], torch.int64)))
        for i, (place, value) in enumerate(tensors, start=1):
            _write(views[i], results[place], value.dtype, name, place)

    ticket, *found = _call_op(b, inputs, _register(begin, fallbacks), [([], torch.int64)] * (1 + len(sizes)))
    for tensor, (place, dim) in zip(found, sizes.values(), strict=True):
        size = dict(tensors)[place].shape[dim]
        assert isinstance(size, torch.SymInt)
        b.symbol_values[size.node.expr] = b.bind(tensor, size)
    return _call_op(b, [ticket], _register(fetch, fallbacks), result_shapes(b, tensors))


def result_shapes(b: Builder, tensors: Sequence[tuple[int, torch.Tensor]]) -> list[tuple[list[Extent], torch.dtype]]:
    """Extents and dtype of results; torch.export has their fake tensors, with their places."""
    shapes = []
    for _, value in tensors:
        if not value.dtype.is_complex:
            dtype_code(value.dtype)
        dims: list[Extent] = []
        for size in value.shape:
            extent = b.extent_of(size.node.expr) if isinstance(size, torch.SymInt) else int(size)
            if extent is None:
                raise NotLowerable(f"a size of its result is {size}")
            dims.append(extent)
        shapes.append((dims, value.dtype))
    return shapes


def _call_op(
    b: Builder, inputs: Sequence[Tensor], slot: int, shapes: Sequence[tuple[Sequence[Extent], torch.dtype]]
) -> list[Tensor]:
    address = ctypes.cast(_ENTRY, ctypes.c_void_p).value
    assert address is not None
    pairs = [([*dims, 2], dtypes.part(dtype)) if dtype.is_complex else (dims, dtype) for dims, dtype in shapes]
    # The number also keeps two calls that look the same from being made one.
    results = b.call("callback", inputs, pairs, config=[address, slot])
    return [b.as_complex(r) if dtype.is_complex else r for r, (_, dtype) in zip(results, shapes, strict=True)]
