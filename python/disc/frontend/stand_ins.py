"""Numbers that stand for dynamic sizes where C++ code of PyTorch takes sizes for numbers.

Batching rules of ``torch.vmap`` and some formulas of gradients read ``tensor.sizes()``, which makes the example's
number of a dynamic size, and pass it on as an argument of the operations that they call. While a transform is recorded
they are told a large number instead, and where the number, or a small multiple of it, is an argument of an operation,
the size replaces it again. What depends on the numbers in another way would be wrong: a model is traced twice, with
different numbers, and the two graphs must be the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ..torch_compat import pytree

_NUMBERS = (
    (100_003, 103_867, 107_377, 110_603, 113_963, 117_203, 120_671, 124_067, 127_493, 130_873),
    (150_001, 153_533, 156_901, 160_373, 163_819, 167_267, 170_603, 174_047, 177_473, 180_877),
)
"""Primes for the symbols of a model, once for each trace."""
_LEAST = 50_000
_MOST_TIMES = 512
_MOST_ADDED = 64


class StandIns:
    """The numbers of one trace; ``second`` takes those of the second trace."""

    def __init__(self, second: bool = False) -> None:
        self._primes = _NUMBERS[second]
        self._symbols: dict[sympy.Symbol, int] = {}
        self._sizes: dict[int, Any] = {}

    @property
    def used(self) -> bool:
        """Whether any number was asked for."""
        return bool(self._sizes)

    def numbers(self, sizes: Iterable[Any]) -> tuple[int, ...]:
        """Numbers instead of sizes; a size that can have none is fixed to the example's."""
        return tuple(self._number(size) for size in sizes)

    def _number(self, size: Any) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expr = size.node.expr
        new = sorted(expr.free_symbols - self._symbols.keys(), key=str)
        if len(self._symbols) + len(new) > len(self._primes):
            return int(size)
        for symbol in new:
            self._symbols[symbol] = self._primes[len(self._symbols)]
        value = expr.xreplace({symbol: sympy.Integer(prime) for symbol, prime in self._symbols.items()})
        if not value.is_Integer or int(value) < _LEAST:
            return int(size)
        self._sizes[int(value)] = size
        return int(value)

    def replaced(self, values: Any) -> Any:
        """Arguments of an operation, with sizes for the numbers."""
        if not self._sizes:
            return values
        return pytree.tree_map_only(int, self.size, values)

    def size(self, value: int) -> Any:
        """The size that a number stands for; the number itself if it stands for none."""
        if not self._sizes or value < _LEAST - _MOST_ADDED or value >= 1 << 62:
            return value
        if value in self._sizes:
            return self._sizes[value]
        for known, size in sorted(self._sizes.items(), reverse=True):
            times, added = divmod(value + _MOST_ADDED, known)
            added -= _MOST_ADDED
            if 0 < times <= _MOST_TIMES and abs(added) <= _MOST_ADDED:
                return size * times + added
            if times > _MOST_TIMES and value % known == 0:
                factor = self.size(value // known)
                if not isinstance(factor, int):
                    return size * factor
        return value


def difference(one: Graph, two: Graph) -> Node | None:
    """The first node of ``one`` that is another one in ``two``, which was traced with other numbers."""
    places: dict[Node, Node] = {}
    others = list(two.nodes)
    for node, other in itertools.zip_longest(one.nodes, others):
        if node is None:
            return next(reversed(one.nodes))
        if other is None or (node.op, str(node.target)) != (other.op, str(other.target)):
            return node  # type: ignore[no-any-return]
        mine = map_arg((node.args, node.kwargs), lambda x: places.get(x, x))
        if not _alike(pytree.tree_leaves(mine), pytree.tree_leaves((other.args, other.kwargs))):
            return node  # type: ignore[no-any-return]
        if not _alike(_described(node), _described(other)):
            return node  # type: ignore[no-any-return]
        places[node] = other
    return None


def _alike(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return len(one) == len(two) and all(map(_same, one, two))


def _same(x: Any, y: Any) -> bool:
    if x is y:
        return True
    # Not a number is equal to nothing.
    return type(x) is type(y) and not isinstance(x, Node) and bool(x == y or x != x)


def _described(node: Node) -> list[Any]:
    """The sizes of a node's tensors: those that are numbers, and None for others."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    sizes = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape]
    return [size if isinstance(size, int) else None for size in sizes]
