"""The graph that is being traced, and its symbols, where markers are put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Node

from ...torch_compat.symbols import ShapeEnv, ValueRanges, bound_sympy, int_oo, torch_sympy
from ...torch_compat.tracing import disable_proxy_modes_tracing, get_proxy_mode, get_proxy_slot
from .. import facts, markers
from ..proving import declared_ranges
from .conditions import known_truth, number
from .optional import OptionalValue


def is_traced() -> bool:
    """Whether operations become nodes of a graph just now: they do not while something is only tried."""
    return get_proxy_mode() is not None


def environment() -> ShapeEnv:
    """The symbols of the program that is being traced."""
    env = facts.environment()
    assert env is not None
    return env


class Symbols:
    """The symbols that there are at one moment."""

    def __init__(self) -> None:
        self._known = set(environment().var_to_range)

    def know(self, size: Any) -> bool:
        """Whether a number depends only on these symbols."""
        return isinstance(size, (bool, int, float)) or self.know_all(size.node.expr.free_symbols)

    def know_all(self, symbols: set[sympy.Symbol]) -> bool:
        """Whether these are among them."""
        return symbols <= self._known


def bound(number: Any, values: Iterable[Any], *, size: bool = False) -> None:
    """Notes that a number is in the range of others; ``size``: it is an extent."""
    low, high = bounds(values)
    if size:
        low = max(low or 0, 0)
    if low is not None:
        torch._check(number >= low)
    if high is not None:
        torch._check(number <= high)


def widen(number: Any, values: Iterable[Any]) -> None:
    """Has a number reach down to the least that others can be: torch takes extents for other than 0 and 1."""
    low, _ = bounds(values)
    env, symbol = environment(), number.node.expr
    known = env.var_to_range.get(symbol)
    if low is not None and known is not None and known.lower > low:
        env.var_to_range[symbol] = ValueRanges(low, known.upper)


@contextmanager
def tried(holding: Iterable[Any] = ()) -> Iterator[None]:
    """Discards the nodes that are traced inside, and what was learned about symbols.

    ``holding``: facts that are true inside, so that PyTorch's checks of them add no guards.
    """
    env = environment()
    known, guards = facts.Facts(env), list(env.guards)
    try:
        for fact in holding:
            if isinstance(fact, sympy.core.relational.Relational):
                facts.assume(fact)
        with disable_proxy_modes_tracing(), env.ignore_fresh_unbacked_symbols():
            yield
    finally:
        env.guards[:] = [*guards, *(guard for guard in env.guards[len(guards) :] if facts.is_of_inputs(guard.expr))]
        known.restore()


def assume(token: Tensor, expr: Any) -> None:
    """Notes a condition on numbers that holds in the region that ``token`` begins."""
    if isinstance(expr, sympy.And):
        for arg in expr.args:
            assume(token, arg)
    kinds: dict[Any, tuple[int, Callable[[Any, Any], Any]]] = {
        sympy.Ge: (0, lambda a, b: a - b),
        sympy.Gt: (0, lambda a, b: a - b - 1),
        sympy.Le: (0, lambda a, b: b - a),
        sympy.Lt: (0, lambda a, b: b - a - 1),
        sympy.Eq: (1, lambda a, b: a - b),
        sympy.Ne: (2, lambda a, b: a - b),
    }
    if type(expr) not in kinds or not all(arg.is_integer and not arg.has(torch_sympy.ToFloat) for arg in expr.args):
        return
    kind, difference = kinds[type(expr)]
    env = environment()
    markers.branch_fact(token, kind, difference(*(number(arg, env) for arg in expr.args)))


def keep_conditions(begin: Tensor) -> None:
    """At the end of a region: what it asks of numbers from outside is checked there, not where they come from."""
    known = facts.facts_of(begin)
    if known is None or not is_traced():
        return
    conditions = known.conditions()
    if conditions:
        # Where they are known to hold they would be nothing to check.
        known.restore()
    for condition in conditions:
        value = environment().create_symboolnode(condition.expr)
        if known_truth(value) is None:
            torch.ops.aten._assert_scalar.default(value, condition.msg)


def node_of(tensor: Tensor) -> Node:
    """The node that computes a tensor."""
    mode = get_proxy_mode()
    assert mode is not None
    return get_proxy_slot(tensor, mode.tracer).proxy.node  # type: ignore[no-any-return]


def forget_facts(token: Tensor) -> None:
    """Forgets the facts that are only true in the region that ``token`` begins."""
    known = facts.facts_of(token)
    if known is not None:
        known.restore()


class Placeholder:
    """A ``branch_else`` whose operands are known later."""

    def __init__(self, begin: Tensor) -> None:
        """``begin``: the branch's."""
        self._begin = begin
        self.token = markers.branch_else(begin, [], [], [])
        self._node = node_of(self.token) if is_traced() else None

    def fill(self, make: Callable[[], tuple[Any, ...]]) -> None:
        """``make`` returns values, entered tensors and numbers; its nodes are added at the end of the then side."""
        if self._node is None:
            make()
            return
        last = self._node.prev
        with self._node.graph.inserting_before(self._node):
            full = node_of(markers.branch_else(self._begin, *make()))
            self._node.args = full.args
            self._node.graph.erase_node(full)
        # PyTorch records a size where it is first used, which may be in the else side.
        behind: set[Node] = set()
        node = self._node.next
        while node.op != "root":
            behind.add(node)
            node = node.next
        first = node = last.next
        while node is not self._node.next:
            self._move(node.all_input_nodes, behind, first)
            node = node.next

    def _move(self, nodes: Iterable[Node], behind: set[Node], first: Node) -> None:
        """Moves nodes that are behind the marker before ``first``, and what they are computed from."""
        for node in nodes:
            if node in behind:
                self._move(node.all_input_nodes, behind, first)
                behind.discard(node)
                first.prepend(node)


def require(pred: Tensor, message: str) -> None:
    """Puts an error for run time where ``pred`` does not hold."""
    torch.ops.aten._assert_async.msg(pred, message)


OptionalValue.require = staticmethod(require)  # type: ignore[assignment]


def bounds(values: Iterable[Any]) -> tuple[int | None, int | None]:
    """The range that is known to contain some numbers."""
    env = environment()
    low, high = int_oo, -int_oo
    for value in values:
        known = None if isinstance(value, int) else _range_of(value.node.expr, env)
        low = min(low, value if known is None else known.lower)
        high = max(high, value if known is None else known.upper)
    return _finite(low), _finite(high)


def _range_of(expr: Any, env: ShapeEnv) -> Any:
    return bound_sympy(expr, {**env.var_to_range, **declared_ranges(env, expr.free_symbols)})


def _finite(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or value.is_Integer else None
