"""The Python function that makes a graph's results of its arguments and of what native code computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch

from ..frontend.graphs import GraphInterface
from ..frontend.result_layouts import Base, Layout, Source, View
from ..torch_compat.compiling import OutputType, TracingContext
from ..torch_compat.symbols import PythonPrinter
from ..torch_compat.tensors import conjugated, negated


class LayoutError(Exception):
    """An argument is not laid out as it was when the graph was traced."""


def result_function(interface: GraphInterface) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """A function of the arguments and the computed tensors. It returns the results, laid out as eager's."""
    return _Writer(interface).function()


class _Writer:
    def __init__(self, interface: GraphInterface) -> None:
        self._interface = interface
        self._names: dict[sympy.Symbol, str] = {}
        self._lines: list[str] = []
        self._scope: dict[str, Any] = {
            "math": math,
            "torch": torch,
            "laid_out": _laid_out,
            "view_of": _view_of,
            "checked": _checked,
        }

    def function(self) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
        interface = self._interface
        used = {
            symbol
            for layout in (*interface.bases, *interface.results)
            for expr in layout.expressions()
            for symbol in expr.free_symbols
        }
        for i, symbol in enumerate(sorted(used, key=str)):
            self._names[symbol] = f"s{i}"
            self._lines.append(f"s{i} = {self._read(interface.sources[symbol])}")
        for i, base in enumerate(interface.bases):
            text = f"computed[{i}]"
            if base.layout is not None:
                sizes, strides = self._layout(base.layout)
                text = f"laid_out({text}, {base.order}, {sizes}, {strides})"
            elif base.order is not None:
                text = f"{text}.permute({base.order})"
            self._lines.append(f"base{i} = {text}")
        checked: set[Base] = set()
        for result in interface.results:
            if isinstance(result, View) and result.base.kind == "argument" and result.base not in checked:
                checked.add(result.base)
                number = result.base.number
                sizes, strides = self._layout(result.base_layout)
                self._lines.append(f"argument{number} = checked(args[{number}], {sizes}, {strides})")
        results = ", ".join(self._result(i, result) for i, result in enumerate(interface.results))
        body = "\n    ".join([*self._lines, f"return [{results}]"])
        exec(f"def results(args, computed):\n    {body}\n", self._scope)
        function: Callable[[Sequence[Any], Sequence[Any]], list[Any]] = self._scope["results"]
        return function

    def _result(self, i: int, result: Any) -> str:
        if isinstance(result, View):
            base = f"{'argument' if result.base.kind == 'argument' else 'base'}{result.base.number}"
            sizes, strides = self._layout(result.layout)
            offset = self._text(result.offset)
            self._scope[f"dtype{i}"] = None if result.same_dtype else result.dtype
            return f"view_of({base}, {sizes}, {strides}, {offset}, dtype{i}, {result.conj}, {result.neg})"
        if result.kind == "constant":
            self._scope[f"constant{i}"] = result.value
            return f"constant{i}"
        return {"argument": "args[{}]", "number": "computed[{}]", "base": "base{}"}[result.kind].format(result.value)

    def _read(self, source: Source) -> str:
        place = f"{'args' if source.kind == 'argument' else 'computed'}[{source.number}]"
        text = {
            "value": place,
            "shape": f"{place}.shape[{source.dim}]",
            "stride": f"{place}.stride({source.dim})",
            "storage_offset": f"{place}.storage_offset()",
        }[source.attribute]
        return text if (source.factor, source.term) == (1, 0) else f"({text} - {source.term}) // {source.factor}"

    def _layout(self, layout: Layout) -> tuple[str, str]:
        return self._tuple(layout.sizes), self._tuple(layout.strides)

    def _tuple(self, expressions: Iterable[sympy.Expr]) -> str:
        return f"({''.join(self._text(e) + ', ' for e in expressions)})"

    def _text(self, expr: sympy.Expr) -> str:
        named = expr.xreplace({symbol: sympy.Symbol(name, integer=True) for symbol, name in self._names.items()})
        return str(PythonPrinter().doprint(named))


def _laid_out(
    computed: torch.Tensor, order: tuple[int, ...] | None, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    """A computed tensor with these strides: in its own memory if that is dense in this order, else copied.

    It is no view: autograd would refuse to change a view that a function of its own returns.
    """
    own = computed.stride() if order is None else tuple(computed.stride(d) for d in order)
    if order is None and own == strides:
        return computed
    if all(size <= 1 or stride == given for size, stride, given in zip(sizes, strides, own, strict=True)):
        result = torch.empty(0, dtype=computed.dtype, device=computed.device)
        return result.set_(computed.untyped_storage(), computed.storage_offset(), sizes, strides)
    permuted = computed if order is None else computed.permute(order)
    return torch.empty_strided(sizes, strides, dtype=computed.dtype, device=computed.device).copy_(permuted)


def _checked(argument: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """An argument whose memory results share."""
    if argument.shape != sizes or argument.stride() != strides:
        raise LayoutError(
            f"an argument has sizes {tuple(argument.shape)} and strides {argument.stride()}, "
            f"tracing expected {sizes} and {strides}"
        )
    return argument


def _view_of(
    base: torch.Tensor,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype | None,
    conj: bool,
    neg: bool,
) -> torch.Tensor:
    """A view of a base's memory, ``offset`` bytes from its first element."""
    begin = base.storage_offset() * base.itemsize + offset
    if dtype is None:
        result = base.as_strided(sizes, strides, begin // base.itemsize)
    else:
        result = torch.empty(0, dtype=dtype, device=base.device)
        result.set_(base.untyped_storage(), begin // dtype.itemsize, sizes, strides)
    if conj:
        result = conjugated(result)
    return negated(result) if neg else result


def results_in_inputs() -> list[tuple[int, int]]:
    """(result, argument) of the graph that AOTAutograd is compiling where it makes the result a view of the argument.

    It takes the sizes, strides and offset of what the graph returns.
    """
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return []
    first = len(metadata.tokens) + metadata.num_mutated_inp_runtime_indices
    return [
        (first + i, info.base_idx)
        for i, info in enumerate(metadata.output_info)
        if info.output_type is OutputType.alias_of_input and info.base_idx is not None
    ]


def with_offsets(compiled: Callable[..., Any], shared: Sequence[tuple[int, int]]) -> Callable[..., Any]:
    """``compiled`` with results in the memory of those that AOTAutograd creates instead.

    In the graph, a view of an argument that is changed is a part of the changed copy, which begins at offset 0. The
    argument may begin elsewhere in its memory.
    """

    def function(*args: Any) -> Any:
        results = list(compiled(*args))
        for i, argument in shared:
            result, base = results[i], args[argument]
            if isinstance(result, torch.Tensor) and result.untyped_storage()._cdata != base.untyped_storage()._cdata:
                dtype = None if result.dtype == base.dtype else result.dtype
                offset = int(result.storage_offset()) * result.itemsize
                results[i] = _view_of(
                    base, result.shape, result.stride(), offset, dtype, result.is_conj(), result.is_neg()
                )
        return results

    return function
