"""Numbers of a traced graph computed where all that use them can see them.

Tracing computes a number such as ``3 * n + 1`` where it is first asked for, which may be in a side of a branch or a
step of a loop, and uses it behind that, too. It is then computed once more before the region, or where it is used, if
what it is made of is known there alone: torch takes what both sides read from one tensor for one number.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import torch_sympy
from ..torch_compat.tracing import EXTREMES_OF_MANY
from . import markers
from .one_number import use_one_number

_BEGINS = (markers.branch_begin, markers.loop_begin, markers.procedure_begin)
_ENDS = (markers.branch_end, markers.loop_end, markers.procedure_end)
_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
_FOLDED: dict[Any, Callable[..., Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    torch_sympy.Max: torch.sym_max,
    torch_sympy.Min: torch.sym_min,
    sympy.Max: torch.sym_max,
    sympy.Min: torch.sym_min,
    torch_sympy.FloorDiv: operator.floordiv,
    torch_sympy.CleanDiv: operator.floordiv,
    torch_sympy.PythonMod: operator.mod,
    torch_sympy.Mod: operator.mod,
    sympy.Mod: operator.mod,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
}


def _product(*numbers: Any) -> Any:
    return functools.reduce(operator.mul, numbers)


def _largest(*numbers: Any) -> Any:
    return functools.reduce(torch.sym_max, numbers)


def _smallest(*numbers: Any) -> Any:
    return functools.reduce(torch.sym_min, numbers)


# What is made of more than two numbers. Torch's own verifier does not know these functions.
_MANY: dict[Any, Callable[..., Any]] = {
    **EXTREMES_OF_MANY,
    _largest: torch.sym_max,
    _smallest: torch.sym_min,
    _product: operator.mul,
}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    sympy.Add: torch.sym_sum,
    sympy.Mul: _product,
    **dict.fromkeys((sympy.Max, torch_sympy.Max), _largest),
    **dict.fromkeys((sympy.Min, torch_sympy.Min), _smallest),
}


@contextmanager
def allowing_many() -> Iterator[None]:
    """While it is active, programs may have extremes and products of many numbers; :func:`settle` makes pairs of them.

    Torch makes a product of three numbers by a function of two, and fails. Before 2.13 it has nothing for extremes.
    """

    def allowed(original: Any, verifier: Any) -> tuple[type, ...]:
        return (*original(verifier), types.FunctionType)

    def handlers(original: Any) -> dict[Any, Callable[..., Any]]:
        return {**original(), **_HANDLERS}

    with replaced({patches.ALLOWED_OPERATIONS: allowed, patches.SYMPY_HANDLERS: handlers}):
        yield


@contextmanager
def sizes_from_zero() -> Iterator[None]:
    """While it is active, sizes that operators' fake kernels make up may be 0 and 1.

    The older of PyTorch's two functions for that takes them for at least 2, which no such kernel means: it is older
    than sizes of which nothing is assumed.
    """

    def create(_: Any, context: Any, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        size: torch.SymInt = context.new_dynamic_size(min=min, max=max)
        return size

    with replaced({patches.CREATE_UNBACKED: create}):
        yield


def _make_pairs(graph: Graph) -> None:
    for node in list(graph.nodes):
        pair = _MANY.get(node.target)
        if pair is None:
            continue
        first, *others, last = node.args
        result = node.meta["val"]
        env = result.node.shape_env
        number = env.create_symintnode if isinstance(result, torch.SymInt) else env.create_symfloatnode
        expr = _expression(first)
        with graph.inserting_before(node):
            for other in others:
                first = graph.call_function(pair, (first, other))
                more = _expression(other)
                expr = expr * more if pair is operator.mul else type(result.node.expr)(expr, more)
                first.meta.update(node.meta)
                first.meta["val"] = int(expr) if expr.is_Integer else number(expr, hint=None)
        node.target, node.args = pair, (first, last)


def _expression(value: Any) -> Any:
    value = value.meta["val"] if isinstance(value, Node) else value
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat)) else sympy.sympify(value)


def settle(graph: Graph) -> None:
    """Has no number that a region computes used outside of it, and one number for two that are required to be equal."""
    _make_pairs(graph)
    use_one_number(graph)
    if not any(node.target in _BEGINS for node in graph.nodes):
        return
    _Settling(graph).run()


class _Settling:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._paths: dict[Node, tuple[Node, ...]] = {}
        """The markers that begin the regions that a node is in: of an else side the one between the sides."""
        self._built: dict[tuple[Node, Any], Any] = {}
        self._symbols: dict[Any, list[Node]] = {}
        self._positions: dict[Node, int] = {}
        self._roots: dict[Any, tuple[Node, int, int, int]] = {}

    def run(self) -> None:
        path: tuple[Node, ...] = ()
        for position, node in enumerate(list(self._graph.nodes)):
            self._positions[node] = position
            if node.target in _ENDS or node.target is markers.branch_else:
                path = path[:-1]
            self._paths[node] = path
            if node.target is torch.ops.aten.sym_size.int and self._is_hidden(node.args[0], path):
                value = node.meta["val"]
                node.replace_all_uses_with(self._number(_expression(value), value, node, path))
                self._graph.erase_node(node)
                continue
            for operand in set(node.all_input_nodes):
                self._check(node, operand)
            self._note(node)
            if node.target in _BEGINS or node.target is markers.branch_else:
                path = (*path, node)

    def _is_hidden(self, tensor: Any, path: tuple[Node, ...]) -> bool:
        """Whether a tensor is computed in a region that those of `path` are not in."""
        inside = self._paths[tensor]
        return inside != path[: len(inside)]

    def _note(self, node: Node) -> None:
        """Remembers where symbols come from."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            self._symbols.setdefault(value.node.expr, []).append(node)
        # Of what a region computes, only sizes that it finds out: both sides of a branch may find out the same one.
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(size, torch.SymInt):
                continue
            if not size.node.expr.is_Symbol:
                self._note_root(node, dim, size.node.expr)
                continue
            if node.op == "placeholder" or size.node.shape_env.is_unbacked_symint(size.node.expr):
                self._symbols.setdefault(size.node.expr, []).append(node)
                self._built[node, size.node.expr] = dim

    def _note_root(self, node: Node, dim: int, expr: Any) -> None:
        """Remembers an input's extent that is a multiple of a symbol, as 2 * n + 1 is."""
        if node.op != "placeholder" or len(expr.free_symbols) != 1:
            return
        (symbol,) = expr.free_symbols
        factor, rest = expr.coeff(symbol), expr.coeff(symbol, 0)
        if factor.is_Integer and factor > 0 and rest.is_Integer and factor * symbol + rest == expr:
            self._roots.setdefault(symbol, (node, dim, int(factor), int(rest)))

    def _check(self, node: Node, operand: Node) -> None:
        value = operand.meta.get("val")
        if not isinstance(value, (torch.SymInt, torch.SymBool)):
            return
        path, here = self._paths[operand], self._paths[node]
        # The results of a region are operands of the marker that ends it.
        if node.target in (markers.branch_else, *_ENDS) and len(path) == len(here) + 1:
            return
        shared = 0
        while shared < min(len(path), len(here)) and path[shared] is here[shared]:
            shared += 1
        if shared < len(path):
            region = path[shared]
            while region.target is markers.branch_else:
                region = region.args[0]  # type: ignore[assignment]
            expr, place, around = value.node.expr, region, path[:shared]
            if any(self._source(symbol, place, around) is None for symbol in expr.free_symbols):
                place, around = node, here
            node.replace_input_with(operand, self._number(expr, value, place, around))

    def _source(self, symbol: Any, place: Node, path: tuple[Node, ...]) -> Node | None:
        """A node before `place`, in a region that it is in, that a symbol can be read from."""
        for node in self._symbols.get(symbol, []):
            inside = self._paths[node]
            if self._positions[node] < self._positions[place] and inside == path[: len(inside)]:
                return node
        return None

    def _number(self, expr: Any, value: Any, place: Node, path: tuple[Node, ...]) -> Any:
        """A number, computed before `place`, which is in the regions of `path`."""
        if expr.is_Integer:
            return int(expr)
        if isinstance(expr, sympy.logic.boolalg.BooleanAtom):
            return bool(expr)
        known = self._built.get((place, expr))
        if known is None:
            with self._graph.inserting_before(place):
                known = self._computed(expr, value, place, path)
            self._built[place, expr] = known
        return known

    def _computed(self, expr: Any, value: Any, place: Node, path: tuple[Node, ...]) -> Node:
        env = value.node.shape_env
        if expr.is_Symbol:
            node = self._source(expr, place, path)
            if node is None and expr in self._roots:
                return self._of_root(expr, env, place, path)
            if node is None:
                return self._read_again(expr, place, path)
            if isinstance(node.meta["val"], torch.SymInt):
                return node
            dim = self._built[node, expr]
            return self._node(torch.ops.aten.sym_size.int, (node, dim), expr, env, place, path)
        function = _FOLDED.get(type(expr))
        if function is None and isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and expr.args[1] > 0:
            function, args = operator.mul, [expr.args[0]] * int(expr.args[1])
        elif function is not None:
            args = list(expr.args)
        else:
            raise AssertionError(f"{expr} is used outside of the region that computes it")
        result, sofar = self._number(args[0], value, place, path), args[0]
        for arg in args[1:]:
            whole = expr if arg is args[-1] and len(args) == 2 else type(expr)(sofar, arg)
            result = self._node(function, (result, self._number(arg, value, place, path)), whole, env, place, path)
            sofar = whole
        assert isinstance(result, Node)
        return result

    def _of_root(self, symbol: Any, env: Any, place: Node, path: tuple[Node, ...]) -> Node:
        """A symbol that no dim has, of one that is a multiple of it."""
        tensor, dim, factor, rest = self._roots[symbol]
        expr = factor * symbol + rest
        result = self._node(torch.ops.aten.sym_size.int, (tensor, dim), expr, env, place, path)
        if rest:
            result = self._node(operator.sub, (result, rest), factor * symbol, env, place, path)
        return self._node(operator.floordiv, (result, factor), symbol, env, place, path) if factor != 1 else result

    def _read_again(self, symbol: Any, place: Node, path: tuple[Node, ...]) -> Node:
        """What another region reads from a tensor, read where it is asked for; torch drops the second reading."""
        for node in self._symbols.get(symbol, []):
            tensor = node.args[0] if node.target in _READS else None
            if isinstance(tensor, Node) and self._paths[tensor] == path[: len(self._paths[tensor])]:
                again = self._graph.node_copy(node)
                # Only one node of torch brings a symbol into being.
                again.meta.pop("unbacked_bindings", None)
                self._paths[again] = path
                return again
        raise AssertionError(f"{symbol} is used outside of the region that computes it")

    def _node(self, function: Any, args: tuple[Any, ...], expr: Any, env: Any, place: Node, path: Any) -> Node:
        node = self._graph.call_function(function, args)
        relation = isinstance(expr, sympy.logic.boolalg.Boolean) and not expr.is_Symbol
        node.meta["val"] = env.create_symboolnode(expr) if relation else env.create_symintnode(expr, hint=None)
        node.meta["stack_trace"] = place.meta.get("stack_trace")
        self._paths[node] = path
        return node
