"""Where the results of a graph are stored: which memory each one shares, at which offset and with which strides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import sympy
import torch
from torch.fx import Node

# Stands for the value of a symbol that tracing does not know, where dims are ordered by their strides.
_UNKNOWN_SIZE = 8191


@dataclass(frozen=True)
class Base:
    """A tensor whose memory results share: an argument of the graph, or a tensor that the graph computes."""

    kind: Literal["argument", "computed"]
    number: int


@dataclass(frozen=True)
class Source:
    """What has the value of a symbol: an argument or a computed result, its size, stride or offset."""

    kind: Literal["argument", "computed"]
    number: int
    attribute: Literal["value", "shape", "stride", "storage_offset"]
    dim: int = 0
    factor: int = 1
    """The attribute is the symbol times ``factor`` plus ``term``."""
    term: int = 0


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of a result, as expressions over the graph's symbols."""

    sizes: tuple[sympy.Expr, ...]
    strides: tuple[sympy.Expr, ...]

    def expressions(self) -> Iterable[sympy.Expr]:
        """All expressions that have to be evaluated."""
        return (*self.sizes, *self.strides)


@dataclass(frozen=True)
class Owned:
    """A computed tensor in memory of its own."""

    base: Base
    order: tuple[int, ...] | None
    """The permutation from the computed tensor, whose dims are in memory order, to the result."""
    layout: Layout | None
    """None if it is row-major for all sizes."""

    def expressions(self) -> Iterable[sympy.Expr]:
        """All expressions that have to be evaluated."""
        return () if self.layout is None else self.layout.expressions()


@dataclass(frozen=True)
class View:
    """A view of a base's memory."""

    base: Base
    layout: Layout
    dtype: torch.dtype
    same_dtype: bool
    offset: sympy.Expr
    """From the first element of the base, in bytes."""
    conj: bool
    """Whether the conjugate bit differs from the base's."""
    neg: bool
    """Whether the negative bit differs from the base's."""
    base_layout: Layout
    """The base's own layout, which the offset and the strides of the view assume."""

    def expressions(self) -> Iterable[sympy.Expr]:
        """All expressions that have to be evaluated."""
        return (*self.layout.expressions(), self.offset, *self.base_layout.expressions())


@dataclass(frozen=True)
class Unstored:
    """A result that needs no layout."""

    kind: Literal["constant", "argument", "number", "base"]
    """``value`` itself, an argument itself, a computed number, or a whole computed tensor."""
    value: Any

    def expressions(self) -> Iterable[sympy.Expr]:
        """No expression has to be evaluated."""
        return ()


Result: TypeAlias = "Unstored | View"


def expression(value: Any) -> sympy.Expr:
    """A size, stride or offset as a sympy expression."""
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def layout(fake: torch.Tensor) -> Layout:
    """Sizes and strides of a fake tensor."""
    return Layout(tuple(map(expression, fake.shape)), tuple(map(expression, fake.stride())))


def storage_of(value: Any) -> int | None:
    """What identifies the memory of a fake tensor; None if it has none."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage()._cdata


def creators(nodes: Iterable[Node]) -> dict[int, Node]:
    """The first node that has a tensor in each storage."""
    found: dict[int, Node] = {}
    for node in nodes:
        key = storage_of(node.meta.get("val"))
        if key is not None:
            found.setdefault(key, node)
    return found


def view(base: Base, base_fake: torch.Tensor, fake: torch.Tensor) -> View:
    """How to make ``fake`` of its base."""
    begin = expression(fake.storage_offset()) * fake.dtype.itemsize
    base_begin = expression(base_fake.storage_offset()) * base_fake.dtype.itemsize
    return View(
        base,
        layout(fake),
        fake.dtype,
        fake.dtype == base_fake.dtype,
        sympy.expand(begin - base_begin),
        fake.is_conj() != base_fake.is_conj(),
        fake.is_neg() != base_fake.is_neg(),
        layout(base_fake),
    )


def is_same(fake: torch.Tensor, base_fake: torch.Tensor) -> bool:
    """Whether a tensor of the same storage is the whole base, unchanged."""
    return (
        layout(fake) == layout(base_fake)
        and expression(fake.storage_offset()) == expression(base_fake.storage_offset())
        and fake.dtype == base_fake.dtype
        and fake.is_conj() == base_fake.is_conj()
        and fake.is_neg() == base_fake.is_neg()
    )


def owned(base: Base, fake: torch.Tensor) -> Owned:
    """How to store a computed tensor."""
    exact = layout(fake)
    order = memory_order(fake)
    identity = order == tuple(range(fake.dim()))
    if identity and exact.strides == _row_major(exact.sizes):
        return Owned(base, None, None)
    back = tuple(order.index(d) for d in range(len(order)))
    return Owned(base, None if identity else back, exact)


def memory_order(fake: torch.Tensor) -> tuple[int, ...]:
    """The dims from the one with the largest stride to the one with the smallest."""
    sizes = [_hint(size) for size in fake.shape]
    strides = [_hint(stride) for stride in fake.stride()]
    if 0 in strides:
        return tuple(range(fake.dim()))
    # Dims of size 1 may have any stride: they stay where they are relative to others if that is row-major.
    if all(sizes[d] == 1 or strides[d] == _product(sizes[d + 1 :]) for d in range(fake.dim())):
        return tuple(range(fake.dim()))
    return tuple(sorted(range(fake.dim()), key=lambda d: -strides[d]))


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= max(size, 1)
    return result


def _hint(value: Any) -> int:
    if isinstance(value, int):
        return value
    known = value.node.hint
    if known is not None:
        return int(known)
    expr = value.node.expr
    return int(expr.xreplace({symbol: sympy.Integer(_UNKNOWN_SIZE) for symbol in expr.free_symbols}))


def _row_major(sizes: Sequence[sympy.Expr]) -> tuple[sympy.Expr, ...]:
    strides: list[sympy.Expr] = []
    step: sympy.Expr = sympy.Integer(1)
    for size in reversed(sizes):
        strides.append(step)
        step = step * (sympy.Integer(1) if size == 0 else size)
    return tuple(reversed(strides))
