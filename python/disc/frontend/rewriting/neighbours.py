"""Conditions that neighbouring operands make irrelevant: ``length > 1 and mask is None`` if there is a mask.

Both values of the first operand then have the same result, so tracing continues, and no function must be rewritten.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from ...source_lines import lines_of
from . import source
from .conditions import known_truth

_Place = tuple[int | None, int | None, int | None, int | None]
# Instructions that may occur between those of an operand and the one that tests it.
_BETWEEN = {"CACHE", "COPY", "EXTENDED_ARG", "NOP", "TO_BOOL"}


def irrelevant(frame: types.FrameType) -> bool | None:
    """The value to return for the condition that ``frame`` tests, if the value does not matter; else None.

    Operands of ``and`` after the condition are evaluated as long as they consist of names, constants, ``is``, ``not``,
    comparisons of numbers, attributes of modules, and calls that only ask PyTorch whether it traces: if one of them is
    False, so is the whole. For ``or``, True.
    """
    operand = _operands(frame.f_code, frame.f_lasti)
    if operand is None:
        return None
    operation, later = operand
    goes_on = isinstance(operation, ast.And)
    for expression in later:
        known = _value(expression, frame)
        if type(known) is not bool:
            return None
        if known != goes_on:
            return goes_on
    return None


_UNKNOWN = object()
_OF_TRACING = {"torch", "compiler", "is_compiling", "is_dynamo_compiling", "is_exporting", "Exception"}
_NUMBERS = (int, torch.SymInt)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _value(expression: ast.expr, frame: types.FrameType) -> Any:
    """The value of an expression that does not run code of the model; ``_UNKNOWN`` for others."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        if expression.id in frame.f_locals or expression.id in frame.f_code.co_varnames:
            return frame.f_locals.get(expression.id, _UNKNOWN)
        return frame.f_globals.get(expression.id, _UNKNOWN)
    elif isinstance(expression, ast.Attribute):
        owner = _value(expression.value, frame)
        if isinstance(owner, torch.nn.Module) and expression.attr in vars(owner):
            return vars(owner)[expression.attr]
    elif isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        inside = _value(expression.operand, frame)
        return not inside if type(inside) is bool else _UNKNOWN
    elif isinstance(expression, ast.Call) and not expression.args and not expression.keywords:
        function = _value(expression.func, frame)
        return function() if _asks_whether_traced(function) else _UNKNOWN
    elif isinstance(expression, ast.Compare) and len(expression.ops) == 1:
        left, right = _value(expression.left, frame), _value(expression.comparators[0], frame)
        kind = type(expression.ops[0])
        if left is not _UNKNOWN and right is not _UNKNOWN and kind in (ast.Is, ast.IsNot):
            return (left is right) == (kind is ast.Is)
        if kind in _COMPARISONS and isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            known = known_truth(_COMPARISONS[kind](left, right))
            return _UNKNOWN if known is None else known
    return _UNKNOWN


def _asks_whether_traced(function: Any) -> bool:
    """Whether a function is like ``transformers.utils.is_torchdynamo_compiling``: its code names nothing else."""
    if not isinstance(function, types.FunctionType) or function.__closure__ or inspect.signature(function).parameters:
        return False
    code = function.__code__
    return (
        set(code.co_names) <= _OF_TRACING
        and "torch" in code.co_names
        and not any(isinstance(constant, types.CodeType) for constant in code.co_consts)
    )


@functools.lru_cache(maxsize=1024)
def _operands(code: types.CodeType, offset: int) -> tuple[ast.boolop, list[ast.expr]] | None:
    """The ``and`` or ``or`` whose operand the instruction at ``offset`` tests, and the operands after that."""
    before = None
    for instruction in dis.get_instructions(code):
        # From Python 3.13 on a comparison may ask for the truth of its result itself.
        if instruction.offset > offset or (instruction.offset == offset and instruction.opname != "COMPARE_OP"):
            break
        if instruction.opname not in _BETWEEN:
            before = instruction
    if before is None or before.positions is None:
        return None
    place = tuple(before.positions)
    try:
        function = source.node_of(code)
    except source.NotRewritable:
        return None
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp):
            for number, value in enumerate(node.values):
                if _place(value) == place:
                    return node.op, node.values[number + 1 :]
    return None


def _place(node: ast.expr) -> _Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def leads_to_an_error(frame: types.FrameType) -> bool:
    """Whether the condition that Python asks for in ``frame`` is that of an ``if`` that only raises."""
    return frame.f_lineno in _lines_before_errors(frame.f_code.co_filename)


@functools.cache
def _lines_before_errors(file: str) -> frozenset[int]:
    """The lines of the conditions in ``file`` that are only followed by an error."""
    try:
        tree = ast.parse("".join(lines_of(file)))
    except SyntaxError:
        return frozenset()
    return frozenset(
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and all(isinstance(statement, ast.Raise) for statement in node.body)
        for line in range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
    )
