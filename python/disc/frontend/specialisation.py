"""Tracing a program again must not fix its dynamic dims to the sizes of the example.

PyTorch decomposes some operations by Python code that asks for sizes: a loop over the steps of a recurrent layer, for
one. The symbols of an exported program are frozen by then, and PyTorch answers with the example's sizes, silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx.traceback as fx_traceback
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from .. import errors
from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import ShapeEnv
from .entry_guards import EntryGuard, holds, with_sources
from .hints import environment
from .locations import source_of_trace


@dataclass(frozen=True)
class _Answer:
    """What torch answered by the example: that ``expr`` is ``value``."""

    expr: Any
    value: Any
    trace: str


@contextmanager
def unspecialised(program: ExportedProgram) -> Iterator[list[EntryGuard]]:
    """While it is active, fixing a dim of ``program`` is an error, at the end.

    The list is filled with the conditions that were answered for some sizes only.
    """
    answers: list[_Answer] = []

    def check_frozen(original: Any, self: ShapeEnv, expr: Any, concrete_val: Any) -> None:
        original(self, expr, concrete_val)
        # What only a layout depends on is asked with guards suppressed.
        if self is env and not (self._suppress_guards_tls() and concrete_val in (sympy.true, sympy.false)):
            answers.append(_Answer(expr, concrete_val, fx_traceback.current_meta.get("stack_trace") or ""))

    env = environment(program)
    guards: list[EntryGuard] = []
    with replaced({patches.CHECK_FROZEN: check_frozen}):
        yield guards
    for answer in dict.fromkeys(answers):
        assert env is not None
        _judge(program, env, answer, guards)


def _judge(program: ExportedProgram, env: ShapeEnv, answer: _Answer, guards: list[EntryGuard]) -> None:
    if not all(
        symbol in env.var_to_sources or symbol in program.range_constraints for symbol in answer.expr.free_symbols
    ):
        return
    source = source_of_trace(answer.trace)
    if answer.value not in (sympy.true, sympy.false):
        raise errors.DynamicDimError(
            "import",
            f"{with_sources(env, answer.expr)} is a dynamic size with the range {_range(program, answer.expr)}, and"
            f" PyTorch's decomposition of an operation fixes it to {answer.value}, the size in the example",
            source,
        )
    if any(map(env.is_unbacked_symint, answer.expr.free_symbols)):
        # The example does not answer that: it follows from a condition that is checked where the size is computed.
        return
    condition = answer.expr if answer.value is sympy.true else sympy.Not(answer.expr)
    # Other conditions choose between forms that are equal in value, and the operations' rules check what they need.
    if isinstance(condition, sympy.Eq) and not holds(env, condition, program.range_constraints):
        guards.append(EntryGuard(condition, source))


def of_results(before: ExportedProgram, after: ExportedProgram) -> list[EntryGuard]:
    """The conditions under which results of a decomposed program have the sizes that they had before.

    They differ where a decomposition takes a size for the largest of several because it is in the example.
    """
    env = environment(before)
    if env is None:
        return []
    guards = []
    for old, new in zip(_user_results(before), _user_results(after), strict=True):
        both = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)
        pairs = zip(old.shape, new.shape, strict=False) if both else ()
        for size, now in pairs:
            if not isinstance(size, torch.SymInt) and not isinstance(now, torch.SymInt):
                continue
            condition = sympy.Eq(*(x.node.expr if isinstance(x, torch.SymInt) else x for x in (size, now)))
            of_inputs = all(symbol in env.var_to_sources for symbol in condition.free_symbols)
            if of_inputs and not holds(env, condition, before.range_constraints):
                guards.append(EntryGuard(condition, None))
    return guards


def _user_results(program: ExportedProgram) -> list[Any]:
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    values = [node.meta.get("val") if isinstance(node, Node) else None for node in output.args[0]]
    return [value for value, kind in zip(values, kinds, strict=True) if kind is OutputKind.USER_OUTPUT]


def _range(program: ExportedProgram, expr: Any) -> str:
    known = program.range_constraints.get(expr)
    return f"{known.lower} to {known.upper}" if known is not None else "of its symbols"
