"""Conditions: Python's where they are known while tracing, 0-d bool tensors where they depend on data."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor

from ... import errors
from ...torch_compat.symbols import (
    PythonReferenceAnalysis,
    ShapeEnv,
    bound_sympy,
    free_unbacked_symbols,
    hint_of,
    sympy_interp,
    torch_sympy,
)
from ...torch_compat.tracing import DisableTorchFunction
from ...trees import Placeholder, Row
from ..proving import declared_ranges, is_assumed_number, is_hinted, may_be_empty
from .given import answer
from .optional import OptionalValue, Present, settled
from .parts import has_parts, length

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_COMPARISONS: dict[type, Callable[..., Tensor]] = {
    sympy.Eq: torch.eq,
    sympy.Ne: torch.ne,
    sympy.Gt: torch.gt,
    sympy.Ge: torch.ge,
    sympy.Lt: torch.lt,
    sympy.Le: torch.le,
}


@dataclass(frozen=True)
class Zero:
    """A fact: an expression is 0, although torch.export takes it for more."""

    expr: Any

    @property
    def free_symbols(self) -> set[sympy.Symbol]:
        """Its symbols, as those of facts that are sympy's."""
        return self.expr.free_symbols  # type: ignore[no-any-return]


class _Numbers(PythonReferenceAnalysis):  # type: ignore[misc]
    """Evaluates the functions in an expression like Python."""

    trunc_to_int = staticmethod(lambda value, dtype: math.trunc(value))
    int_truediv = staticmethod(operator.truediv)
    pow_by_natural = staticmethod(lambda base, exponent: math.prod([base] * int(exponent)))


def decide(value: Any) -> bool | Tensor:
    """``bool(value)``: a bool if it is known while tracing, else a 0-d bool tensor."""
    value = settled(value)
    if isinstance(value, OptionalValue):
        return _truth_of_optional(value)
    if isinstance(value, Tensor):
        return _of_tensor(value)
    missing = missing_node(value)
    if missing is not None:
        return torch.logical_not(missing)
    if has_parts(value):
        value = length(value)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        depends = compared(value, 0, sympy.Ne)
        if depends is not None:
            return depends
        value = value != 0
    if isinstance(value, torch.SymBool):
        known = known_truth(value)
        known = answer(value) if known is None else known
        if known is not None:
            return known
        return implying(
            predicate(value.node.expr, value.node.shape_env), (value.node.expr,), (sympy.Not(value.node.expr),)
        )
    return bool(value)


def _truth_of_optional(value: OptionalValue) -> bool | Tensor:
    """An optional value is true where it is there and true itself."""
    inside = decide(value.parts()["value"])
    if inside is False:
        return False
    there = is_present(value)
    if inside is True:
        return there
    return implying(torch.logical_and(there, inside), (Present(value, True),), ())


def is_present(value: OptionalValue) -> Tensor:
    """The condition that an optional value is not None."""
    present = value.parts()["present"]
    return marked(implying(present.view_as(present), (Present(value, True),), (Present(value, False),)))


def missing_node(value: Any) -> Tensor | None:
    """Of a node of a tree that is known at run time only: whether it is None in Python."""
    source = value._disc_source if isinstance(value, Placeholder) else None
    return source.missing if isinstance(source, Row) else None


def _of_tensor(value: Tensor) -> bool | Tensor:
    known = constant_of(value)
    if known is not None:
        # A tensor with data, of which tracing knows nothing.
        with DisableTorchFunction():
            return bool(known)
    if value.dim() != 0:
        if not all(isinstance(size, int) and size == 1 for size in value.shape):
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        value = value.reshape(())
    return value if value.dtype == torch.bool else value != 0


def implying(value: Tensor, true: tuple[Any, ...], false: tuple[Any, ...]) -> Tensor:
    """The same condition, with what is so where it holds and where it does not: conditions on numbers."""
    value._disc_implies = true, false  # type: ignore[attr-defined]
    return value


def implied(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The facts that follow from a condition, and from its opposite."""
    return getattr(value, "_disc_implies", ((), ()))


def stand_in(value: bool | Tensor) -> bool | Tensor:
    """A condition as the result of ``bool()``: a tensor that stands for a Python bool."""
    return marked(implying(value.view_as(value), *implied(value))) if isinstance(value, Tensor) else value


def marked(value: Tensor) -> Tensor:
    """The same tensor, marked as a stand-in for a Python bool."""
    value._disc_stands_for_bool = True  # type: ignore[attr-defined]
    return value


def stands_for_bool(value: Tensor) -> bool:
    """Whether a tensor stands for a Python bool."""
    return getattr(value, "_disc_stands_for_bool", False)


def constant_of(value: Tensor) -> Tensor | None:
    """The tensor that a traced one is known to be, if it was written as a constant."""
    known = getattr(value, "constant", None)
    return known if isinstance(known, Tensor) else None


def known_truth(value: Any) -> bool | None:
    """Whether a condition on extents always holds, or never; None if it depends."""
    if isinstance(value, bool):
        return value
    env: ShapeEnv = value.node.shape_env
    expr = value.node.expr
    wider = declared_ranges(env, expr.free_symbols)
    # torch.export takes extents for other than 0 and 1; the code's conditions are those that tell them apart.
    ranges = tuple({**{symbol: env.var_to_range[symbol] for symbol in expr.free_symbols}, **wider}.items())
    result = env._maybe_evaluate_static(expr, var_to_range=ranges if wider else None)
    return None if result is None else bool(result)


def compared(a: Any, b: Any, kind: Any) -> Tensor | None:
    """A comparison with an extent that may be 0, where torch.export takes it for more; None if that is the same."""
    nodes = [x.node for x in (a, b) if isinstance(x, torch.SymInt)]
    env = nodes[0].shape_env if nodes else None
    if env is None or not all(isinstance(x, (int, torch.SymInt)) for x in (a, b)):
        return None
    exprs = [x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b)]
    symbols = exprs[0].free_symbols | exprs[1].free_symbols
    empty = {s: sympy.Dummy(integer=True, nonnegative=True) for s in symbols if may_be_empty(env, s)}
    if not empty or not isinstance(kind(*exprs), sympy.logic.boolalg.BooleanAtom):
        return None
    difference = sympy.expand(exprs[0].xreplace(empty) - exprs[1].xreplace(empty))
    if difference.is_number:
        return None
    ranges = {**env.var_to_range, **declared_ranges(env, symbols)}
    known = bound_sympy(difference, {empty.get(s, s): ranges[s] for s in symbols})
    low, high = known.lower < 0, known.upper > 0
    if kind in (sympy.Eq, sympy.Ne):
        low, high = known.lower <= 0, known.upper >= 0
    elif kind in (sympy.Gt, sympy.Le):
        low = known.lower <= 0
    else:
        high = known.upper >= 0
    if not (low and high):
        return None
    result = _COMPARISONS[kind](number_tensor(a, torch.int64), number_tensor(b, torch.int64))
    return marked(implying(result, *_zero_facts(kind, exprs, known)))


def _zero_facts(kind: Any, exprs: list[Any], difference: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The facts that follow from a comparison with 0, and from its opposite."""
    for this, other, is_least, true, false in (
        (*exprs, difference.lower >= 0, (sympy.Eq, sympy.Le), (sympy.Ne, sympy.Gt)),
        (*reversed(exprs), difference.upper <= 0, (sympy.Eq, sympy.Ge), (sympy.Ne, sympy.Lt)),
    ):
        if other == 0 and is_least:
            zero = (Zero(this),)
            return (zero if kind in true else (), zero if kind in false else ())
    return (), ()


_QUOTIENTS = (torch_sympy.Mod, torch_sympy.PythonMod, torch_sympy.FloorDiv, torch_sympy.CleanDiv)


def is_assumed(value: torch.SymBool) -> bool:
    """Whether torch.export has an answer to a condition on extents that holds for some of them only.

    Such are answers for other extents than 0 and 1; and of quotients of two extents it forgets what it took so.
    """
    env, expr = value.node.shape_env, value.node.expr
    if env is not None and len(expr.free_symbols) > 1 and expr.has(*_QUOTIENTS):
        return known_truth(value) is None
    if env is None or not declared_ranges(env, expr.free_symbols):
        return False
    return known_truth(value) is None and env._maybe_evaluate_static(expr) is not None


def takes_a_number(value: Any) -> bool:
    """Whether torch.export would take a size for a number that it is for some of the declared sizes only."""
    if _narrowing or not isinstance(value, torch.SymInt) or value.node.shape_env is None:
        return False
    return is_assumed_number(value.node.shape_env, value.node.expr)


_narrowing: list[bool] = []


@contextmanager
def narrowing_hints() -> Iterator[None]:
    """While it is active, conditions in the model's code may narrow dims without a range of the user's own.

    The conditions are checked at the entry of the compiled model.
    """
    _narrowing.append(True)
    try:
        yield
    finally:
        _narrowing.pop()


def takes_the_example(value: torch.SymBool) -> bool:
    """Whether torch.export would take the example's answer to a condition.

    It narrows a ``Dim.AUTO`` or ``Dim.DYNAMIC`` dim then; of a condition on several extents it takes no notice, but of
    one that makes two equal.
    """
    env, symbols = value.node.shape_env, value.node.expr.free_symbols
    if _narrowing or env is None or not (len(symbols) > 1 or is_hinted(env, symbols)):
        return False
    return known_truth(value) is None and (is_hinted(env, symbols) or not _are_equal(env, value.node.expr))


def _are_equal(env: ShapeEnv, condition: Any) -> bool:
    """Whether the example's answer to a condition is that two extents are one."""
    if not isinstance(condition, (sympy.Eq, sympy.Ne)) or not all(arg.is_Symbol for arg in condition.args):
        return False
    if free_unbacked_symbols(condition):
        return False
    return bool(hint_of(env, condition)) == isinstance(condition, sympy.Eq)


def predicate(expr: Any, env: ShapeEnv) -> Tensor:
    """A condition on numbers, computed on tensors."""
    if isinstance(expr, sympy.logic.boolalg.BooleanAtom):
        return torch.full((), bool(expr), dtype=torch.bool)
    if isinstance(expr, sympy.And):
        return functools.reduce(torch.logical_and, (predicate(arg, env) for arg in expr.args))
    if isinstance(expr, sympy.Or):
        return functools.reduce(torch.logical_or, (predicate(arg, env) for arg in expr.args))
    if isinstance(expr, sympy.Not):
        return torch.logical_not(predicate(expr.args[0], env))
    compare = _COMPARISONS.get(type(expr))
    if compare is None:
        raise errors.SizeError("import", f"the condition {expr} is not an expression DISC knows")
    return compare(_operand(expr.args[0], env), _operand(expr.args[1], env))


def _operand(expr: Any, env: ShapeEnv) -> Tensor:
    whole = expr.is_integer and not isinstance(expr, torch_sympy.ToFloat)
    return number_tensor(number(expr, env), torch.int64 if whole else torch.float64)


# torch builds nodes for all functions of numbers but these.
_NOT_BUILT = (
    torch_sympy.PythonMod,
    torch_sympy.TruncToInt,
    torch_sympy.IntTrueDiv,
    torch_sympy.PowByNatural,
    sympy.Pow,
)


def number(expr: Any, env: ShapeEnv) -> Any:
    """A sympy expression as a number of Python, or as one of torch."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_number:
        return float(expr)
    if expr.has(*_NOT_BUILT):
        known = {symbol: _node(symbol, env) for symbol in expr.free_symbols}
        return sympy_interp(_Numbers, known, expr)
    return _node(expr, env)


def _node(expr: Any, env: ShapeEnv) -> Any:
    whole = expr.is_integer and not isinstance(expr, torch_sympy.ToFloat)
    return (env.create_symintnode if whole else env.create_symfloatnode)(expr, hint=None)


def number_tensor(value: Any, dtype: torch.dtype) -> Tensor:
    """A number, or a bool, as a 0-d tensor."""
    if isinstance(value, Tensor):
        return value.reshape(()).to(dtype)
    if isinstance(value, torch.SymBool):
        return predicate(value.node.expr, value.node.shape_env).to(dtype)
    if isinstance(value, SYMBOLIC):
        return torch.scalar_tensor(value, dtype=dtype)  # type: ignore[arg-type]
    return torch.full((), value, dtype=dtype)


def same_number(a: Any, b: Any) -> bool:
    """Whether two numbers are known to be equal, and of one kind."""
    if a is b:
        return True
    if _kind(a) is not _kind(b):
        return False
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (a != a and b != b)
    if _kind(a) is bool:
        # Sympy has no relation of conditions.
        return _condition(a) == _condition(b)
    return known_truth(a == b) is True


def _condition(value: bool | torch.SymBool) -> Any:
    return value.node.expr if isinstance(value, torch.SymBool) else sympy.true if value else sympy.false


def _kind(value: Any) -> type:
    for kind, symbolic in ((bool, torch.SymBool), (int, torch.SymInt), (float, torch.SymFloat)):
        if isinstance(value, (kind, symbolic)):
            return kind
    return type(value)


def is_bool(value: Any) -> bool:
    """Whether a value is a bool of Python or of torch."""
    return _kind(value) is bool


def is_int(value: Any) -> bool:
    """Whether a value is an int of Python or of torch, and no bool."""
    return _kind(value) is int


def is_float(value: Any) -> bool:
    """Whether a value is a float of Python or of torch."""
    return _kind(value) is float


def equal_sizes(a: Any, b: Any) -> bool:
    """Whether two extents are known to be equal."""
    return known_truth(a == b) is True
