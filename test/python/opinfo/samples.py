"""OpInfo's samples as programs: tensors are inputs, everything else is constant."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

DTYPES = {
    "f32": torch.float32,
    "i64": torch.int64,
    "bool": torch.bool,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
}
# Evaluated on request, and not listed.
MORE_DTYPES = {
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "f16": torch.float16,
    "c64": torch.complex64,
}
ALL_DTYPES = {**DTYPES, **MORE_DTYPES}
# Given other values in the place of these offsets and lengths, eager PyTorch crashes, or gives anything; and an array
# that is a matrix to tensorinv and tensorsolve has no inverse when its rows repeat.
_FIXED = (
    "_segment_reduce.lengths",
    "_segment_reduce.offsets",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "nn.functional.embedding_bag",
)
# Generating all of an op's samples can take seconds; the first ones are as varied as the rest.
_CONSIDERED = 96


def name_of(op: OpInfo) -> str:
    """The op's name, and that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


OPS: dict[str, OpInfo] = {name_of(op): op for op in op_db}


def supports(op: OpInfo, dtype: torch.dtype) -> bool:
    """Whether PyTorch has the op for ``dtype``."""
    return dtype in op.supported_dtypes("cpu")


class _Hole:
    """Where a tensor belongs among a sample's leaves."""


HOLE = _Hole()


@dataclass
class Sample:
    """One call of an op."""

    name: str
    op: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    leaves: list[Any]
    spec: pytree.TreeSpec
    op_name: str
    """The op's name without that of its variant."""
    drops: bool = False
    """Whether it drops elements at random, as only some samples of attention do."""
    stable: bool = False
    """Whether equal elements keep their order."""

    def call(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The op of ``tensors`` in the places of the sample's own."""
        given = iter(tensors)
        leaves = [next(given) if leaf is HOLE else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.op(*args, **kwargs)


def samples(op: OpInfo, dtype: torch.dtype, limit: int) -> list[Sample]:
    """At most ``limit`` samples, spread evenly over the op's; all of them if ``limit`` is 0."""
    torch.manual_seed(0)
    generated = op.sample_inputs("cpu", dtype, requires_grad=False)
    if not limit:
        return [_sample(op, info) for info in generated]
    found = list(itertools.islice(generated, _CONSIDERED))
    step = max(len(found) / limit, 1.0)
    places = sorted({min(int(i * step), len(found) - 1) for i in range(min(limit, len(found)))})
    return [_sample(op, found[i]) for i in places]


def _sample(op: OpInfo, info: Any) -> Sample:
    leaves, spec = pytree.tree_flatten(((info.input, *info.args), dict(info.kwargs)))
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    holes = [HOLE if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    drops, stable = bool(info.kwargs.get("dropout_p")), bool(info.kwargs.get("stable"))
    return Sample(name_of(op), op.op, tensors, holes, spec, op.name, drops, stable)


class Program(nn.Module):
    """Several calls as one program: exporting and compiling cost the most, and not much more for several."""

    def __init__(self, calls: Sequence[Sample]) -> None:
        super().__init__()
        self.calls = tuple(calls)

    def forward(self, *tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        return [call.call(own) for call, own in zip(self.calls, tensors, strict=True)]

    def inputs(self) -> tuple[tuple[torch.Tensor, ...], ...]:
        """The samples' tensors."""
        return tuple(call.tensors for call in self.calls)

    def dynamic_shapes(self, *, first: bool = False) -> tuple[Any, ...]:
        """Every dim as dynamic as torch.export can make it, or only those of each call's ``first`` tensor."""

        def dims(place: int, tensor: torch.Tensor) -> dict[int, Any]:
            return dict.fromkeys(range(tensor.dim()), Dim.STATIC if first and place else Dim.AUTO)

        return (tuple(tuple(dims(i, t) for i, t in enumerate(call.tensors)) for call in self.calls),)


# -- other shapes ----------------------------------------------------------------------------------


def other_shapes(program: ExportedProgram, calls: Sequence[Sample]) -> list[list[tuple[torch.Tensor, ...]]]:
    """For each call, its tensors at other extents of the exported symbols: a few to try, best first."""
    fakes = iter([n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"])
    ranges = program.range_constraints
    # Constants and buffers come first among the placeholders.
    skip = sum(1 for n in program.graph.nodes if n.op == "placeholder") - sum(len(c.tensors) for c in calls)
    for _ in range(skip):
        next(fakes)
    result = []
    for call in calls:
        own = [next(fakes) for _ in call.tensors]
        result.append(list(_resized(call, own, ranges)))
    return result


def _resized(call: Sample, fakes: Sequence[Any], ranges: Any) -> Iterator[tuple[torch.Tensor, ...]]:
    values: dict[sympy.Symbol, int] = {}
    if call.name in _FIXED:
        return
    for tensor, fake in zip(call.tensors, fakes, strict=True):
        for size, dim in zip(tensor.shape, fake.shape, strict=True):
            if isinstance(dim, torch.SymInt) and dim.node.expr.is_Symbol:
                values[dim.node.expr] = size
    if not values:
        return
    for change in (lambda n, i: n + 1 + i % 2, lambda n, i: n + 2, lambda n, i: n * 2, lambda n, i: n - 1):
        chosen = {symbol: change(n, i) for i, (symbol, n) in enumerate(values.items())}
        if not all(_allowed(ranges.get(symbol), n) for symbol, n in chosen.items()):
            continue
        shapes = [_shape(fake, chosen) for fake in fakes]
        if all(shape is not None for shape in shapes):
            yield tuple(resize(t, s, f) for t, s, f in zip(call.tensors, shapes, fakes, strict=True) if s is not None)


def _allowed(bounds: Any, value: int) -> bool:
    return value >= 2 and (bounds is None or bool(bounds.lower <= value <= bounds.upper))


def _shape(fake: torch.Tensor, values: dict[sympy.Symbol, int]) -> list[int] | None:
    shape = []
    for dim in fake.shape:
        size = dim if isinstance(dim, int) else dim.node.expr.xreplace(values)
        if not (isinstance(size, int) or size.is_Integer) or size < 0:
            return None
        shape.append(int(size))
    return shape


def resize(tensor: torch.Tensor, shape: Sequence[int], fake: torch.Tensor) -> torch.Tensor:
    """``tensor`` with other extents and values that mean as much: repeated or cut.

    A square matrix gets new diagonal entries instead, so that it stays invertible, definite or triangular.
    """
    square = (
        tensor.dim() >= 2
        and str(fake.shape[-1]) == str(fake.shape[-2])
        and (tensor.is_floating_point() or tensor.is_complex())
        and shape[-1] > tensor.shape[-1]
    )
    result = tensor
    for dim, size in enumerate(shape):
        old = tensor.shape[dim]
        if old and not (square and dim >= tensor.dim() - 2):
            result = result.index_select(dim, torch.arange(size) % old)
            if size > old and tensor.is_floating_point():
                # Not the same: no value may come twice where results tell positions, no row be another's multiple.
                more = result.narrow(dim, old, size - old)
                more.copy_(more.roll(1, (dim + 1) % tensor.dim()) * 0.9863)
    if square:
        n, more = tensor.shape[-1], shape[-1] - tensor.shape[-1]
        wide = result.new_zeros([*result.shape[:-2], shape[-1], shape[-1]])
        wide[..., :n, :n] = result
        wide[..., n:, n:] = torch.diag(torch.arange(2, 2 + more, dtype=torch.float32)).to(tensor.dtype)
        result = wide
    return result
