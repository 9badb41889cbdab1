"""What is known of symbols, which in a side of a branch or a step of a loop may be more than around it.

``torch.export`` learns from what code does: after ``a + b`` two extents are equal, after ``torch._check(n > 3)`` a
number has a range. What it learns in a region of numbers from outside holds there only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
import torch

from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import RuntimeAssert, ShapeEnv, ValueRanges, bound_sympy, count_change, try_solve
from ..torch_compat.tracing import FakeTensor, detect_fake_mode
from .proving import ASSUMING, LEAST, declared_ranges


def environment() -> ShapeEnv | None:
    """The symbols of the program that is being traced."""
    mode = detect_fake_mode()
    return None if mode is None else mode.shape_env


class Facts:
    """What is known at one moment."""

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self.ranges = dict(env.var_to_range)
        self._replacements = dict(env.replacements)
        self._axioms = dict(env.axioms)
        self._assuming = getattr(env, ASSUMING, False)
        self._least = dict(getattr(env, LEAST, {}))
        self._counts = len(getattr(env, _COUNTS, ()))
        self._asserts = {key: list(found) for key, found in env.deferred_runtime_asserts.items()}

    def conditions(self) -> list[RuntimeAssert]:
        """What has since been asked of numbers that there were then alone."""
        found = []
        for key, asserts in self._env.deferred_runtime_asserts.items():
            new = [x for x in asserts if not any(x is y for y in self._asserts.get(key, ()))]
            found += [x for x in new if x.expr.free_symbols <= self.ranges.keys()]
        return found

    def restore(self) -> None:
        """Forgets what has been learnt since of the numbers that there were."""
        env = self._env
        local = {id(x) for x in self.conditions()}
        for asserts in env.deferred_runtime_asserts.values():
            asserts[:] = [x for x in asserts if id(x) not in local]
        env.axioms.clear()
        env.axioms.update(self._axioms)
        setattr(env, ASSUMING, self._assuming)
        setattr(env, LEAST, dict(self._least))
        equal = [guard.expr.args for guard in env.guards if is_of_inputs(guard.expr)]
        for symbol in self.ranges:
            if symbol not in self._replacements and {symbol, env.replacements.get(symbol)} not in map(set, equal):
                env.replacements.pop(symbol, None)
        env.replacements.update(self._replacements)
        env.var_to_range.update(self.ranges)
        counts: list[tuple[Any, str]] = getattr(env, _COUNTS, [])
        for tensor, name in counts[self._counts :]:
            setattr(tensor, name, None)
        del counts[self._counts :]
        forget_answers(env)


# The attribute of torch's symbols that lists which tensors have their number of elements that are not 0, or differ.
_COUNTS = "_disc_counts"
_MEMOS = ("nonzero_memo", "unique_memo", "unique_consecutive_memo")


@contextmanager
def forgetting_counts() -> Iterator[None]:
    """While it is active, the sizes that ``nonzero()`` and ``unique()`` find in a region are known only there.

    PyTorch notes them at the tensor, and has the same symbol for what the next call finds, wherever that is.
    """

    def noted(original: Any, memo: Any, tensor: Any, value: Any) -> None:
        original(memo, tensor, value)
        name = next((name for name in _MEMOS if vars(FakeTensor).get(name) is memo), None)
        env = tensor.fake_mode.shape_env
        if name is not None and value is not None and env is not None:
            vars(env).setdefault(_COUNTS, []).append((tensor, name))

    with replaced({patches.SIZE_MEMO: noted}):
        yield


def is_of_inputs(guard: Any) -> bool:
    """Whether a guard says that two extents of inputs are one: what asks for it anywhere, asks for it everywhere."""
    return isinstance(guard, sympy.Eq) and all(arg.is_Symbol for arg in guard.args)


def forget_answers(env: ShapeEnv) -> None:
    """Has torch evaluate conditions anew: it remembers what it has evaluated."""
    count_change(env)
    env._resimplify_floor_div_axioms = True
    answers: Any = ShapeEnv._inner_evaluate_expr
    answers.cache_clear()


def assume(expr: Any) -> None:
    """Takes a condition for granted, up to the end of the region."""
    env = environment()
    if env is None:
        return
    expr = env.simplify(expr)
    if isinstance(expr, sympy.logic.boolalg.BooleanAtom):
        return
    env.axioms.update(dict(env.get_implications(expr)))
    setattr(env, ASSUMING, True)
    if isinstance(expr, sympy.Eq):
        for symbol, value in ((expr.lhs, expr.rhs), (expr.rhs, expr.lhs)):
            if symbol.is_Symbol and symbol not in value.free_symbols:
                _replace(env, symbol, value)
                break
    else:
        for symbol in expr.free_symbols:
            _narrow(env, expr, symbol)
    forget_answers(env)


def _narrow(env: ShapeEnv, expr: Any, symbol: sympy.Symbol) -> None:
    """Narrows the range of a symbol to what a condition leaves of it."""
    wider = declared_ranges(env, [symbol]).get(symbol)
    left = None if wider is None else narrowed(expr, symbol, wider, env.var_to_range)
    if wider is not None and left is not None and left.lower > wider.lower:
        vars(env).setdefault(LEAST, {})[symbol] = int(left.lower)
    # A range without 0 and 1 may be no more than what torch.export takes for granted.
    for known in (env.var_to_range[symbol], wider):
        narrow = None if known is None else narrowed(expr, symbol, known, env.var_to_range)
        if narrow is not None:
            env.var_to_range[symbol] = narrow
            if narrow.lower == narrow.upper:
                _replace(env, symbol, narrow.lower)
            return


def _replace(env: ShapeEnv, symbol: sympy.Symbol, value: Any) -> None:
    """Notes the value of a symbol, and of those that are known to equal it, as dims of one name do."""
    for same in [other for other, known in env.replacements.items() if known == symbol] + [symbol]:
        env.replacements[same] = value
        if value.is_Integer:
            # PyTorch would intersect the range with the value, which torch.export may have excluded from it.
            env.var_to_range[same] = ValueRanges(value, value)


def narrowed(
    expr: Any,
    symbol: sympy.Symbol,
    known: ValueRanges[sympy.Expr],
    ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]],
) -> ValueRanges[sympy.Expr] | None:
    """What a condition leaves of a symbol's range, where ``ranges`` are those of the others; None if nothing."""
    solved = try_solve(expr, symbol)
    if solved is None or not (symbol.is_integer and solved[1].is_integer):
        return None
    relation, rest = solved
    bound = bound_sympy(rest, dict(ranges))
    low, high = known.lower, known.upper
    if isinstance(relation, (sympy.Ge, sympy.Gt)):
        low = max(low, bound.lower + int(isinstance(relation, sympy.Gt)))
    if isinstance(relation, (sympy.Le, sympy.Lt)):
        high = min(high, bound.upper - int(isinstance(relation, sympy.Lt)))
    if isinstance(relation, sympy.Eq):
        low, high = max(low, bound.lower), min(high, bound.upper)
    return ValueRanges(low, high) if low <= high else None


def scoped(token: torch.Tensor) -> torch.Tensor:
    """A marker that begins a region: what is known then is noted."""
    env = environment()
    if env is not None:
        token._disc_facts = Facts(env)  # type: ignore[attr-defined]
    return token


def facts_of(token: torch.Tensor) -> Facts | None:
    """What was known where a region began."""
    return getattr(token, "_disc_facts", None)


def leave(begin: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """A marker that ends a region, and may begin another one."""
    facts = facts_of(begin)
    if facts is not None:
        facts.restore()
        token._disc_facts = facts  # type: ignore[attr-defined]
    return token
