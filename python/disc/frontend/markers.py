"""Markers: the structure of control flow in a flat graph of ``torch.export``.

The order of a graph's nodes is the structure: the nodes between the markers that begin and end a branch or a loop
belong to it. They nest. Nodes inside use earlier values directly; values computed inside are used outside only through
the results. (Only arithmetic of ints may be in the region that needed it first, and be used after it.)

A branch on a 0-d bool tensor::

    begin = branch_begin(pred)
    branch_fact(begin, kind, n)        # here n >= 0, n == 0 or n != 0 (kind 0, 1 or 2): the condition says so
    x = branch_enter(begin, x)         # a tensor that the then side changes: its copy
    else_ = branch_else(begin, values, entered, numbers)
    x = branch_enter(else_, x)
    end = branch_end(else_, values, entered, numbers)
    n = branch_size(end, number, dim).item()
    m = branch_number(end, number).item()
    r = branch_result(end, like, size, number)

``values`` and ``numbers`` are the results of a side; ``entered`` is an operand so that it is kept.

A loop that runs while the number of its steps is below ``count`` (if that is not negative) and ``pred`` is true (if
there is one)::

    begin = loop_begin(count, pred)
    index = begin.item()
    x = loop_carried(begin, first, size, slot)
    n = loop_number(begin, first, number).item()      # an int, or an extent, that changes from step to step
    end = loop_end(begin, slots, carried, next, rows, pred, numbers)
    trips = loop_trips(end).item()
    m = loop_last_number(end, number).item()
    last = loop_last(end, like, size, number)
    stack = loop_stack(end, row, count, number)

A function that calls itself, with its calls: those inside name the marker that begins it, those outside the marker that
ends it::

    begin = procedure_begin()
    n = procedure_number(begin, number).item()        # an int, or an extent of an argument
    x = procedure_argument(begin, dtype, size, slot)
    call = procedure_call(begin, arguments, numbers)
    m = procedure_size(call, result, dim).item()
    r = procedure_result(call, dtype, size, result)
    end = procedure_end(begin, values, sizes, open)

``arguments`` are in the order of the slots; ``sizes`` are all extents of all ``values``, of which those at ``open`` are
not expressions over the function's numbers and outer values.

All functions are without side effects, and run only when they are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import has_side_effect

from .. import errors
from ..torch_compat.operators import OpOverload
from ..torch_compat.tensors import functorch
from .facts import assume, leave, scoped
from .locations import user_line

_MARKERS: set[Any] = set()


def _run(*_: Any) -> Any:
    raise NotImplementedError("a program with control flow runs only when it is compiled")


def _marker(schema: str, fake: Callable[..., Any]) -> Any:
    name = schema.partition("(")[0]
    # Not a function of its arguments as far as torch needs to know: it would compute those of constants, drop those
    # that only assert something, and take two branches by one condition for one.
    tags = [torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded]
    torch.library.define(f"disc::{name}", schema[len(name) :], tags=tags)
    torch.library.impl(f"disc::{name}", "CompositeExplicitAutograd", _run)
    torch.library.register_fake(f"disc::{name}", _without_values(fake))
    marker = getattr(torch.ops.disc, name).default
    _MARKERS.add(marker)
    return marker


def _without_values(fake: Callable[..., Any]) -> Callable[..., Any]:
    """A fake kernel whose results have no known values: PyTorch knows what is in memory like that of a constant."""

    def without(*args: Any) -> Any:
        result = fake(*args)
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if getattr(value, "constant", None) is not None:
                value.constant = None
        return result

    return without


def _number(*_: Any) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64)


def _begin(*_: Any) -> torch.Tensor:
    return scoped(_number())


def _leave(begin: torch.Tensor, *_: Any) -> torch.Tensor:
    return leave(begin, _number())


def _fact(_: torch.Tensor, kind: int, value: Any) -> torch.Tensor:
    if isinstance(value, torch.SymInt):
        assume(fact(kind, value.node.expr))
    return _number()


def fact(kind: int, expr: Any) -> Any:
    """The condition of a ``branch_fact``."""
    return _FACTS[kind](expr, 0)


_FACTS = (sympy.Ge, sympy.Eq, sympy.Ne)


def _copy(_: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _sized(_: torch.Tensor, like: torch.Tensor, size: Any, __: int) -> torch.Tensor:
    return like.new_empty(size)


def _made(_: torch.Tensor, dtype: torch.dtype, size: Any, __: int) -> torch.Tensor:
    return torch.empty(size, dtype=dtype)


def _stacked(_: torch.Tensor, row: torch.Tensor, count: Any, __: int) -> torch.Tensor:
    return row.new_empty((count, *row.shape))


branch_begin = _marker("branch_begin(Tensor pred) -> Tensor", _begin)
branch_enter = _marker("branch_enter(Tensor token, Tensor value) -> Tensor", _copy)
branch_else = _marker(
    "branch_else(Tensor token, Tensor[] values, Tensor[] entered, SymInt[] numbers) -> Tensor", _leave
)
branch_end = _marker("branch_end(Tensor token, Tensor[] values, Tensor[] entered, SymInt[] numbers) -> Tensor", _leave)
branch_fact = _marker("branch_fact(Tensor token, int kind, SymInt value) -> Tensor", _fact)
branch_size = _marker("branch_size(Tensor end, int value, int dim) -> Tensor", _number)
branch_number = _marker("branch_number(Tensor end, int number) -> Tensor", _number)
branch_result = _marker("branch_result(Tensor end, Tensor like, SymInt[] size, int number) -> Tensor", _sized)

loop_begin = _marker("loop_begin(SymInt count, Tensor? pred) -> Tensor", _begin)
loop_carried = _marker("loop_carried(Tensor index, Tensor first, SymInt[] size, int slot) -> Tensor", _sized)
loop_number = _marker("loop_number(Tensor index, SymInt first, int number) -> Tensor", _number)
loop_end = _marker(
    # Tensors that are changed in place are in `carried` with their final values; they are operands so that they are
    # kept.
    "loop_end(Tensor index, int[] slots, Tensor[] carried, Tensor[] next, Tensor[] rows, Tensor? pred,"
    " SymInt[] numbers) -> Tensor",
    _leave,
)
loop_trips = _marker("loop_trips(Tensor end) -> Tensor", _number)
loop_last_number = _marker("loop_last_number(Tensor end, int number) -> Tensor", _number)
loop_last = _marker("loop_last(Tensor end, Tensor like, SymInt[] size, int number) -> Tensor", _sized)
loop_stack = _marker("loop_stack(Tensor end, Tensor row, SymInt count, int number) -> Tensor", _stacked)

procedure_begin = _marker("procedure_begin() -> Tensor", _begin)
procedure_number = _marker("procedure_number(Tensor begin, int number) -> Tensor", _number)
procedure_argument = _marker(
    "procedure_argument(Tensor begin, ScalarType dtype, SymInt[] size, int slot) -> Tensor", _made
)
procedure_end = _marker("procedure_end(Tensor begin, Tensor[] values, SymInt[] sizes, int[] open) -> Tensor", _leave)
procedure_call = _marker("procedure_call(Tensor procedure, Tensor[] arguments, SymInt[] numbers) -> Tensor", _number)
procedure_size = _marker("procedure_size(Tensor call, int result, int dim) -> Tensor", _number)
procedure_result = _marker(
    "procedure_result(Tensor call, ScalarType dtype, SymInt[] size, int result) -> Tensor", _made
)

# A region may contain conditions to be checked even if its results are unused; a number may be used only at the end.
for _structure in (branch_begin, branch_fact, branch_else, branch_end, loop_begin, loop_number, loop_end,
                   procedure_begin, procedure_number, procedure_argument, procedure_end, procedure_call):  # fmt: skip
    has_side_effect(_structure)
# As torch has it for the one with a message.
has_side_effect(torch.ops.aten._assert_async.default)


def refuse_inside_transforms(what: str) -> None:
    """Raises ControlFlowError while ``torch.func`` transforms the function that is being traced."""
    if functorch.maybe_current_level() is not None:
        text = f"{what} inside of a function that torch.func transforms (grad, vmap, jvp, ...) is not supported"
        advice = "torch.where(condition, a, b) chooses between values that are both computed"
        raise errors.ControlFlowError("import", text, user_line(), help=advice)


def _keep_line(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.source = user_line()


def _refuse_gradient(ctx: Any, *_: Any) -> None:
    text = "torch.autograd.grad: gradients through control flow on data are not supported"
    raise errors.GradientError("import", text, ctx.source)


for _result in (branch_enter, branch_result, loop_carried, loop_last, loop_stack):
    torch.library.register_autograd(_result.name().partition(".")[0], _refuse_gradient, setup_context=_keep_line)


def is_marker(target: Any) -> bool:
    """Whether a target is an operator of this module."""
    return isinstance(target, OpOverload) and target in _MARKERS


def is_step(node: Node) -> bool:
    """Whether an op of a traced program makes a Python number of the number of a loop's step."""
    return bool(node.args) and isinstance(node.args[0], Node) and node.args[0].target is loop_begin
