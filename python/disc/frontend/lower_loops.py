"""Loops between the markers of ``loops.py``, as ``disc_tensor.scan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from .registry import NotLowerable
from .values import Extent, Tensor

if TYPE_CHECKING:
    from .lower import Lowering

BEGIN, CARRIED, END = "torch.disc.loop_begin", "torch.disc.loop_carried", "torch.disc.loop_end"
LAST, STACK = "torch.disc.loop_last", "torch.disc.loop_stack"


@dataclass(frozen=True)
class StepNumber:
    """Stands for the tensor that holds the number of a loop's step."""

    extent: ir.Value


@dataclass
class _Loop:
    begin: ir.Operation
    body: list[ir.Operation]
    end: ir.Operation

    def group(self, number: int) -> list[ir.Value]:
        """The tensors in one of the lists that the end is given."""
        return list(self.end.operands[number].owner.operands)


def find_loop(name: Any, ops: Sequence[ir.Operation], start: int) -> tuple[_Loop, int] | None:
    """The loop that ``ops[start]`` begins, and the place behind its end; None if it has none."""
    for at in range(start + 1, len(ops)):
        if name(ops[at]) == END and ops[at].operands[0] == ops[start].result:
            return _Loop(ops[start], list(ops[start + 1 : at]), ops[at]), at + 1
    return None


def _number(value: ir.Value) -> int:
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


class LoopLowering:
    """Lowers one loop."""

    def __init__(self, lowering: Lowering, loop: _Loop, name: Any) -> None:
        self._lowering, self._loop, self._name = lowering, loop, name
        self._b = lowering.builder

    def run(self, block: ir.Block, uses: Sequence[ir.Operation]) -> None:
        """``uses`` are the operations behind the loop, among them those that take its results."""
        values, loop = self._lowering.values, self._loop
        inside = self._dependent(block)
        carries = {
            _number(op.operands[3]): op
            for op in inside
            if self._name(op) == CARRIED and op.operands[0] == loop.begin.result
        }
        changed = {_number(slot): new for slot, new in zip(loop.group(1), loop.group(3), strict=True)}
        for slot, op in carries.items():
            if slot not in changed:
                values[op.result] = values[op.operands[1]]
        inits = [values[carries[slot].operands[1]] for slot in changed]
        if any(x.dtype.is_complex for x in inits):
            raise NotLowerable("a loop that carries complex numbers")
        last = {_number(op.operands[3]): op for op in uses if self._takes(op, LAST)}
        stack = {_number(op.operands[3]): op for op in uses if self._takes(op, STACK)}
        rows = loop.group(4)
        stacked = {number: self._row_of(op) for number, op in sorted(stack.items())}

        def body(number: ir.Value, now: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            values[loop.begin.result] = StepNumber(number)
            values.update(zip((carries[slot].result for slot in changed), now, strict=True))
            self._lowering.lower_ops(inside, ir.InsertionPoint.current.block)
            self._lowering.check()
            following = [self._b.reshape(values[v], x.dims) for v, x in zip(changed.values(), now, strict=True)]
            return following, [self._b.reshape(values[rows[n]], dims) for n, (dims, _) in stacked.items()]

        count = values[loop.begin.operands[0]]
        lasts, stacks = self._b.scan(count, inits, body, list(stacked.values()))
        for op in [loop.begin, *inside]:
            for result in op.results:
                if not op.name.startswith("torch.constant."):
                    values.pop(result, None)
        values.update({op.result: lasts[number] for number, op in last.items()})
        values.update({stack[number].result: x for number, x in zip(stacked, stacks, strict=True)})

    def _dependent(self, block: ir.Block) -> list[ir.Operation]:
        """The operations of the step; those that are the same in each step are lowered before the loop."""
        reached = {self._loop.begin.result}
        inside, outside, depth = [], [], 0
        for op in self._loop.body:
            name = self._name(op)
            depth += name == BEGIN
            if depth or any(operand in reached for operand in op.operands):
                reached.update(op.results)
                inside.append(op)
            else:
                outside.append(op)
            depth -= name == END
        self._lowering.lower_ops(outside, block)
        self._lowering.check()
        return inside

    def _takes(self, op: ir.Operation, name: str) -> bool:
        return self._name(op) == name and op.operands[0] == self._loop.end.result

    def _row_of(self, op: ir.Operation) -> tuple[list[Extent], torch.dtype]:
        fake = self._lowering.fake(op)
        dims = []
        for size in fake.shape[1:]:
            extent = self._b.extent_of(size.node.expr if isinstance(size, torch.SymInt) else size)
            if extent is None:
                raise NotLowerable("what each step of a loop gives must have one shape")
            dims.append(extent)
        return dims, fake.dtype
