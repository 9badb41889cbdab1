"""Loops and branches inside the body of a ``linalg.generic``, for elements.

Kernels evaluate bodies along the lanes of a vector: a loop goes on until no lane does, and a branch runs if any lane
takes it (lib/Target/Common/PointControlFlow.cpp). Lanes beyond a tensor's end are left out of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir
from torch_mlir.dialects import scf

from . import dtypes
from .scalar import Elem


def _types(elems: Sequence[Elem]) -> list[ir.Type]:
    return [dtypes.element_type(elem.dtype) for elem in elems]


def _elems(values: Sequence[ir.Value], like: Sequence[Elem]) -> list[Elem]:
    return [Elem(value, elem.dtype) for value, elem in zip(values, like, strict=True)]


def while_loop(
    condition: Callable[..., Elem], step: Callable[..., Sequence[Elem]], start: Sequence[Elem]
) -> list[Elem]:
    """``step`` of the elements, from ``start`` on, while the ``condition`` of them holds."""
    types = _types(start)
    loop = scf.WhileOp(types, [elem.value for elem in start])
    for region in (loop.before, loop.after):
        region.blocks.append(*types)
    before, after = loop.before.blocks[0], loop.after.blocks[0]
    with ir.InsertionPoint(before):
        scf.ConditionOp(condition(*_elems(list(before.arguments), start)).value, list(before.arguments))
    with ir.InsertionPoint(after):
        scf.YieldOp([elem.value for elem in step(*_elems(list(after.arguments), start))])
    return _elems(list(loop.results), start)


def branch(condition: Elem, then: Callable[[], Elem], otherwise: Elem) -> Elem:
    """What ``then`` computes where the condition holds: worth it for much work that few elements need."""
    if condition.dtype != torch.bool:
        raise TypeError(f"the condition of a branch is a bool, not {condition.dtype}")
    op = scf.IfOp(condition.value, _types([otherwise]), has_else=True)
    with ir.InsertionPoint(op.then_block):
        scf.YieldOp([then().value])
    with ir.InsertionPoint(op.else_block):
        scf.YieldOp([otherwise.value])
    return Elem(op.results[0], otherwise.dtype)
