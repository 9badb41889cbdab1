"""Guards of ``torch.export`` that hold for every extent there can be.

``torch.export`` refuses a model whose code asks something of extents that sympy cannot prove, such as
``(4 * T - 1) // T == 3``. Where the ranges are small enough, trying all extents is a proof. While
:func:`proved_by_trying` is active, such a condition is decided by that.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational

from ..torch_compat import patches
from ..torch_compat.compiling import TensorPropertySource
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import (
    DimDynamic,
    PythonPrinter,
    ShapeEnv,
    StrictMinMaxConstraint,
    ValueRanges,
    bound_sympy,
    free_unbacked_symbols,
    torch_sympy,
)
from .locations import user_line
from .periodic import last_to_try
from .readable import readable

# The attribute of torch's symbols that is true while a condition is assumed of them: inside of a branch.
ASSUMING = "_disc_assuming"
# That of the least sizes of dims where a condition holds: inside of a branch.
LEAST = "_disc_least"
# That of the conditions under which sizes are the numbers of Python that PyTorch took them for, with their lines.
_NUMBERS = "_disc_numbers"
# More than so many points are not tried.
_MOST = 50_000
# A symbol is a Boolean, too, as sympy has it.
_CONDITIONS = (sympy.core.relational.Relational, sympy.logic.boolalg.BooleanFunction)


class _Prover:
    def __init__(self) -> None:
        self._ranges: dict[tuple[int, sympy.Symbol], range] = {}
        self._given: dict[tuple[int, sympy.Symbol], int] = {}
        self._hinted: set[tuple[int, sympy.Symbol]] = set()
        self._known: dict[tuple[int, Any], bool | None] = {}
        self.places: dict[str, str] = {}

    def declare(self, env: ShapeEnv, symbol: Any, source: Any, dynamic: Any, constraint: Any) -> None:
        """Notes the range that the user declared for a symbol: that of ``env`` excludes 0 and 1."""
        if not isinstance(symbol, sympy.Symbol):
            return
        name = source.name
        self.places[str(symbol)] = readable(name() if callable(name) else name)
        if dynamic is DimDynamic.DYNAMIC and not isinstance(constraint, StrictMinMaxConstraint):
            # Dim.AUTO or Dim.DYNAMIC: the user sets no lower bound. A number can be negative, an extent cannot.
            self._hinted.add((id(env), symbol))
            if isinstance(source, TensorPropertySource):
                self._given[id(env), symbol] = 0
        elif isinstance(constraint, StrictMinMaxConstraint):
            self.restrict(env, symbol, constraint.vr.lower, constraint.vr.upper)

    def restrict(self, env: ShapeEnv, symbol: sympy.Symbol, low: Any, high: Any) -> None:
        """Notes the range that the user declared for a symbol."""
        if low.is_Integer:
            self._given[id(env), symbol] = int(low)
        if low.is_Integer and high.is_Integer and int(high) - int(low) < _MOST:
            self._ranges[id(env), symbol] = range(int(low), int(high) + 1)

    def least(self, env: ShapeEnv, symbol: sympy.Symbol) -> int | None:
        """The least extent that the user declared for a symbol."""
        return self._given.get((id(env), symbol))

    def is_hinted(self, env: ShapeEnv, symbol: sympy.Symbol) -> bool:
        """Whether a symbol is a dim or number that the user marked as dynamic without a range."""
        return (id(env), symbol) in self._hinted

    def decide(self, env: ShapeEnv, condition: Any) -> bool | None:
        """Whether the condition holds for all extents; None if it holds for some, or there are too many."""
        key = id(env), condition
        if key not in self._known:
            self._known[key] = self._try(env, condition)
        return self._known[key]

    def _try(self, env: ShapeEnv, condition: Any) -> bool | None:
        symbols = sorted(condition.free_symbols, key=str)
        ranges = [self._ranges.get((id(env), symbol)) for symbol in symbols]
        if len(symbols) == 1:
            ranges[0] = self._enough(env, symbols[0], condition) or ranges[0]
        if not symbols or any(r is None for r in ranges) or math.prod(len(r or ()) for r in ranges) > _MOST:
            return None
        holds = _function(symbols, condition)
        known = [r for r in ranges if r is not None]
        try:
            # The ends first: most conditions differ there.
            ends = itertools.product(*([r[0], r[-1], r[len(r) // 2]] for r in known))
            first = holds(*(r[0] for r in known))
            if all(holds(*point) == first for point in ends) and _is_always(symbols, condition, known, first):
                return first
        except (ZeroDivisionError, NameError, TypeError, AttributeError):
            pass
        return None

    def follows(self, env: ShapeEnv, facts: list[Any], condition: Any) -> bool:
        """Whether a condition on one symbol holds for all of its values for which the facts do."""
        (symbol,) = condition.free_symbols
        least, values = self.least(env, symbol), self._ranges.get((id(env), symbol))
        if values is None and least is not None:
            last = last_to_try(condition, least, *facts)
            values = None if last is None or last - least > _MOST else range(least, last + 1)
        if values is None:
            return False
        holds, *given = (_function([symbol], each) for each in (condition, *facts))
        try:
            return all(holds(value) for value in values if all(fact(value) for fact in given))
        except (ZeroDivisionError, NameError, TypeError, AttributeError):
            return False

    def _enough(self, env: ShapeEnv, symbol: sympy.Symbol, condition: Any) -> range | None:
        """Extents that are enough to try of one that may be as large as it likes; None if that is not known."""
        least = self.least(env, symbol)
        last = None if least is None else last_to_try(condition, least)
        if (id(env), symbol) in self._ranges or least is None or last is None or last - least > _MOST:
            return None
        return range(least, last + 1)


# While it traces, torch.export replaces those of Python by slow ones that take tensors.
_NAMES = {"math": math, "torch": torch, "max": max, "min": min}


def _code(symbols: list[sympy.Symbol], condition: Any) -> tuple[list[str], str]:
    """Names for the symbols, and the condition in Python."""
    names = {symbol: sympy.Symbol(f"x{i}", integer=True) for i, symbol in enumerate(symbols)}
    return list(map(str, names.values())), PythonPrinter().doprint(condition.xreplace(names))


def _function(symbols: list[sympy.Symbol], condition: Any) -> Callable[..., bool]:
    names, text = _code(symbols, condition)
    function: Callable[..., bool] = eval(f"lambda {', '.join(names)}: bool({text})", dict(_NAMES))
    return function


def _is_always(symbols: list[sympy.Symbol], condition: Any, ranges: list[range], value: bool) -> bool:
    """Whether the condition has this value for all symbols in ``ranges``: one loop without calls, for up to _MOST."""
    names, text = _code(symbols, condition)
    loops = " ".join(f"for {name} in ranges[{i}]" for i, name in enumerate(names))
    return bool(eval(f"all(bool({text}) == value {loops})", {**_NAMES, "ranges": ranges, "value": value}))


@functools.lru_cache(4096)
def holds_from(condition: Any, least: int) -> bool | None:
    """Whether a condition on one extent holds for ``least`` and more; None if it is of a kind that is not known."""
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    last = last_to_try(condition, least)
    if last is None or last - least > _MOST:
        return None
    holds = _function(list(condition.free_symbols), condition)
    try:
        return all(map(holds, range(least, last + 1)))
    except ZeroDivisionError:
        return None


def rounds_to_less(env: ShapeEnv, condition: Any) -> bool:
    """Whether a condition says that a fraction of an extent, rounded to an integer, is no more than the extent."""
    if not isinstance(condition, (sympy.Le, sympy.Ge)):
        return False
    less, more = condition.args if isinstance(condition, sympy.Le) else condition.args[::-1]
    if isinstance(less, (sympy.Max, torch_sympy.Max)):
        known = declared_ranges(env, {more}).get(more) or env.var_to_range.get(more)
        least = None if known is None else known.lower
        return least is not None and all(
            (arg.is_Integer and arg <= least) or rounds_to_less(env, sympy.Le(arg, more)) for arg in less.args
        )
    if not isinstance(less, (torch_sympy.CeilToInt, torch_sympy.FloorToInt, torch_sympy.TruncToInt)):
        return False
    known = env.var_to_range.get(more)
    # One rounded product: what is no more than an integer is not rounded to more.
    (value,) = less.args
    if known is None or known.lower < 0 or not isinstance(value, sympy.Mul) or len(value.args) != 2:
        return False
    factor, extent = value.args
    return bool(factor.is_Float and 0 <= factor <= 1 and extent == torch_sympy.ToFloat(more))


def _compares_extents(env: ShapeEnv, condition: Any) -> bool:
    """Whether a condition asks which of several extents of inputs is larger."""
    parts = condition.args if isinstance(condition, sympy.And) else (condition,)
    ordered = all(isinstance(part, (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)) for part in parts)
    return ordered and len(condition.free_symbols) > 1 and condition.free_symbols <= env.backed_var_to_val.keys()


_active: list[_Prover] = []


def declared_ranges(env: ShapeEnv, symbols: Iterable[sympy.Symbol]) -> dict[sympy.Symbol, ValueRanges[sympy.Expr]]:
    """The ranges that the user declared, for symbols from whose ranges torch.export excludes 0 and 1."""
    found = {}
    noted: Mapping[sympy.Symbol, int] = getattr(env, LEAST, {})
    for prover in _active[-1:]:
        for symbol in symbols:
            least, known = prover.least(env, symbol), env.var_to_range.get(symbol)
            least = None if least is None else max(least, noted.get(symbol, least))
            if least is not None and known is not None and known.lower == 2 > least:
                found[symbol] = ValueRanges(sympy.Integer(least), known.upper)
    return found


def is_assumed_number(env: ShapeEnv, expr: Any) -> bool:
    """Whether an expression is one number to torch.export, but not for all sizes that the user declared."""
    if not isinstance(expr, sympy.Expr) or expr.is_number or free_unbacked_symbols(expr):
        return False
    wider = declared_ranges(env, expr.free_symbols)
    if not wider or bound_sympy(expr, {**env.var_to_range, **wider}).is_singleton():
        return False
    return bound_sympy(expr, env.var_to_range).is_singleton() or env._maybe_evaluate_static(expr) is not None


def _note_number(env: ShapeEnv, expr: sympy.Expr, number: Any) -> None:
    """Notes that PyTorch takes a size for a number, if it is another one for some of the declared sizes."""
    if getattr(number, "is_Integer", False) and not env._suppress_guards_tls() and is_assumed_number(env, expr):
        vars(env).setdefault(_NUMBERS, {}).setdefault(sympy.Eq(expr, number, evaluate=False), user_line())


def assumed_numbers(env: ShapeEnv) -> dict[Any, str | None]:
    """The conditions under which sizes are the numbers that PyTorch took them for, with the user's lines."""
    return dict(getattr(env, _NUMBERS, {}))


@contextmanager
def declared(env: ShapeEnv | None, ranges: Mapping[sympy.Symbol, Any]) -> Iterator[None]:
    """While it is active, the ranges of a traced program's inputs are those that the user declared: what a branch knows
    of an extent follows from them, as it did when the program was traced."""
    prover = _Prover()
    for symbol, known in ranges.items():
        if env is not None and symbol in env.backed_var_to_val and known.lower.is_Integer:
            prover.restrict(env, symbol, known.lower, known.upper)
    _active.append(prover)
    try:
        yield
    finally:
        _active.pop()


def may_be_empty(env: ShapeEnv, symbol: sympy.Symbol) -> bool:
    """Whether the user lets an extent be 0, which torch.export takes for impossible."""
    return any(prover.least(env, symbol) == 0 for prover in _active[-1:])


def is_proved(env: ShapeEnv, condition: Any) -> bool:
    """Whether trying shows that a condition holds for all extents in the ranges that the user declared."""
    return isinstance(condition, _CONDITIONS) and any(prover.decide(env, condition) is True for prover in _active[-1:])


def is_positive(count: Any) -> bool:
    """Whether a number is at least 1 for all extents, also for those of 0 and 1.

    A comparison does not show it: torch.export assumes that extents are 2 or more, and simplifies it to True.
    """
    if isinstance(count, int):
        return count > 0
    env, expr = count.node.shape_env, count.node.expr
    ranges = {**env.var_to_range, **declared_ranges(env, expr.free_symbols)}
    return bool(bound_sympy(expr, ranges).lower >= 1)


def follows(env: ShapeEnv, facts: Iterable[Any], condition: Any) -> bool:
    """Whether a condition on one extent of the inputs holds for all those, of the range that the user declared, for
    which the facts do. Facts about other extents are left out."""
    of_it = [fact for fact in facts if isinstance(fact, _CONDITIONS) and fact.free_symbols <= condition.free_symbols]
    if len(condition.free_symbols) != 1 or not of_it:
        return False
    return any(prover.follows(env, of_it, condition) for prover in _active[-1:])


def places_of_symbols() -> dict[str, str]:
    """Of each of torch's symbols, by its name, the place in the arguments: ``x.shape[0]`` for ``s77``."""
    return dict(_active[-1].places) if _active else {}


def is_hinted(env: ShapeEnv, symbols: Iterable[sympy.Symbol]) -> bool:
    """Whether one of the symbols comes from ``Dim.AUTO`` or ``Dim.DYNAMIC``, which torch.export narrows silently."""
    return any(prover.is_hinted(env, symbol) for prover in _active[-1:] for symbol in symbols)


class _Zeros(threading.local):
    """Whether symbols may be 0, and whether one has been made since ``made`` was reset."""

    allowed, made = True, False


_zeros = _Zeros()


def zeros_were_made() -> bool:
    """Whether this thread has traced with symbols that may be 0 since the last call."""
    made, _zeros.made = _zeros.made, False
    return made


@contextmanager
def positive_symbols() -> Iterator[None]:
    """While it is active, symbols are positive, as PyTorch has them: it divides conditions by them."""
    _zeros.allowed = False
    try:
        yield
    finally:
        _zeros.allowed = True


def _allows_zero(given: Mapping[str, Any]) -> bool:
    """Whether the user lets an extent be 0 that is about to get a symbol."""
    if not _zeros.allowed:
        return False
    constraint = given.get("constraint_dim")
    if isinstance(constraint, StrictMinMaxConstraint):
        return bool(constraint.vr.lower <= 0)
    return given.get("dynamic_dim") is DimDynamic.DYNAMIC and isinstance(given["source"], TensorPropertySource)


@contextmanager
def proved_by_trying() -> Iterator[None]:
    """While it is active, ``torch.export`` knows what holds for all extents in the ranges that it was given."""
    prover = _Prover()

    zero = False

    def make_symbol(original: Any, *args: Any, **assumptions: Any) -> Any:
        # Of a positive symbol sympy takes ``Max(n, 1)`` for n.
        if zero and assumptions.get("positive"):
            _zeros.made = True
            assumptions = {**assumptions, "positive": None, "nonnegative": True}
        return original(*args, **assumptions)

    def create_symbol(original: Any, self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        constraint, dynamic = given.get("constraint_dim"), given.get("dynamic_dim")
        nonlocal zero
        zero = _allows_zero(given)
        try:
            symbol = original(self, *args, **kwargs)
        finally:
            zero = False
        prover.declare(self, symbol, given["source"], dynamic, constraint)
        return symbol

    def evaluate_static(original: Any, self: ShapeEnv, expr: Any, **kwargs: Any) -> Any:
        if isinstance(expr, (sympy.Eq, sympy.Ne)) and any(isinstance(x, Relational) for x in expr.args):
            return None  # Torch would subtract one condition from the other.
        result = original(self, expr, **kwargs)
        if result is None and not kwargs.get("compute_hint") and isinstance(expr, _CONDITIONS):
            decided = True if rounds_to_less(self, expr) else prover.decide(self, expr)
            return None if decided is None else sympy.true if decided else sympy.false
        return result

    def evaluate_expr(original: Any, self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        given = evaluation.bind(self, *args, **kwargs).arguments
        expr, default = given["orig_expr"], given.get("fallback_value")
        if default is not None and _compares_extents(self, expr):
            # Who has a default works for all sizes: x[:n] has min(n, m) elements, whichever is less in the example.
            # What holds for 2 and more, as n + m <= n * m, may not for 0 and 1.
            symbols = expr.free_symbols
            ranges = {**{s: self.var_to_range[s] for s in symbols}, **declared_ranges(self, symbols)}
            oblivious = given.get("size_oblivious", False)
            known = self._maybe_evaluate_static(expr, size_oblivious=oblivious, var_to_range=tuple(ranges.items()))
            return sympy.sympify(default) if known is None else known
        if getattr(self, ASSUMING, False):
            # PyTorch compares an answer with the example's, which may be another one where a condition is assumed.
            given["hint"] = None
        result = original(**given)
        if isinstance(expr, sympy.Expr) and not expr.is_number:
            _note_number(self, expr, result)
        return result

    inserting = False

    def insert_assertions(original: Any, *args: Any) -> Any:
        # All of them narrowed the ranges where they were traced, and what a region learnt was forgotten at its end.
        nonlocal inserting
        inserting = True
        try:
            return original(*args)
        finally:
            inserting = False

    def refine_ranges(original: Any, self: ShapeEnv, expr: Any) -> None:
        if inserting:
            return
        # Sizes that a data-dependent size is compared with may be 0 and 1 if the user declared that.
        wider = declared_ranges(self, expr.free_symbols) if free_unbacked_symbols(expr) else {}
        before = {symbol: self.var_to_range[symbol] for symbol in wider}
        self.var_to_range.update(wider)
        try:
            original(self, expr)
        finally:
            for symbol, known in before.items():
                self.var_to_range[symbol] &= known

    signature = inspect.signature(patches.CREATE_SYMBOL.original())
    evaluation = inspect.signature(patches.EVALUATE_EXPR.original())
    _active.append(prover)
    try:
        with replaced(
            {
                patches.CREATE_SYMBOL: create_symbol,
                patches.MAKE_SYMBOL: make_symbol,
                patches.EVALUATE_STATIC: evaluate_static,
                patches.EVALUATE_EXPR: evaluate_expr,
                patches.REFINE_RANGES: refine_ranges,
                patches.INSERT_ASSERTIONS: insert_assertions,
            }
        ):
            yield
    finally:
        _active.pop()
