"""Random numbers of a graph: PyTorch draws them before native code runs, in the order of the graph.

The draws become arguments of the graph, so that the rest stays one graph, and a seed means what it means in eager. A
distribution whose parameters are computed in the graph is split: PyTorch draws the noise that its kernel would draw,
and the graph computes the values from the noise, as the kernel does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from ..frontend import effects
from ..frontend.graphs import drawn_after, draws
from ..torch_compat import pytree
from ..torch_compat.compiling import run_and_save_rng_state, run_with_rng_state
from ..torch_compat.operators import OpOverload
from ..torch_compat.symbols import PythonPrinter
from ..torch_compat.tracing import FakeTensor, FakeTensorMode

_aten = torch.ops.aten

# Of these, only shape, dtype and layout of the tensors they take matter.
_BY_SHAPE = {"rand_like", "randn_like", "randint_like", "bernoulli.p"}
# The same, as operations that fill a tensor in its own layout, on which the order of the draws depends.
_FILLS = {
    _aten.uniform.default: _aten.uniform_.default,
    _aten.exponential.default: _aten.exponential_.default,
    _aten.cauchy.default: _aten.cauchy_.default,
    _aten.geometric.default: _aten.geometric_.default,
    _aten.log_normal.default: _aten.log_normal_.default,
    _aten.normal_functional.default: _aten.normal_.default,
    _aten.random.default: _aten.random_.default,
    getattr(_aten.random, "from"): getattr(_aten.random_, "from"),
    _aten.random.to: _aten.random_.to,
}
_SAVING = (run_and_save_rng_state, run_with_rng_state)


class _NotBefore(Exception):
    """A draw depends on what the graph computes."""


Draw = Callable[[Sequence[Any]], Sequence[Any]]


def take_draws(graph: GraphModule) -> Draw | None:
    """Takes the draws of random numbers out of the graph, which gets a placeholder for each, behind its others.

    The result is a function of the graph's former arguments that draws the values of the new ones; None if there are
    none. A draw that depends on what the graph computes stays in the graph, and so do all after it, in
    their order.
    """
    if not any(_draws(node) for node in graph.graph.nodes):
        return None
    taker = _Taker(graph)
    left: Node | None = None
    for node in list(graph.graph.nodes):
        if not _draws(node):
            continue
        if left is None:
            try:
                taker.take(node)
            except _NotBefore:
                left = node
        else:
            # Its place among the draws is a dependency from now on.
            node.args = (node.target, left, *node.args)
            node.target = drawn_after
            left = node
    graph.recompile()
    return taker.function()


def with_draws(compiled: Callable[..., Any], draw: Draw) -> Callable[..., Any]:
    """``compiled``, called with its arguments and what ``draw`` draws."""

    def call(*args: Any) -> Any:
        return compiled(*args, *draw(args))

    return call


def _draws(node: Node) -> bool:
    return node.op == "call_function" and (node.target in _SAVING or draws(node))


class _Taker:
    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph.graph
        self._placeholders = [node for node in self._graph.nodes if node.op == "placeholder"]
        self._last = self._placeholders[-1] if self._placeholders else None
        self._readers: dict[sympy.Symbol, str] = {}
        self._used: dict[sympy.Symbol, str] = {}
        self._lines: list[str] = []
        self._results: list[str] = []
        self._scope: dict[str, Any] = {"torch": torch, "empty": torch.empty_strided, "copied": _copied}
        self._scope.update(save=run_and_save_rng_state, restore=run_with_rng_state)
        self._wrapper = ""
        self._state: Node | None = None
        for i, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            if isinstance(value, (torch.SymInt, torch.SymFloat)):
                self._note(value, f"args[{i}]")
            elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
                for dim in range(value.dim()):
                    self._note(value.shape[dim], f"args[{i}].shape[{dim}]")
                    self._note(value.stride(dim), f"args[{i}].stride({dim})")

    def _note(self, value: Any, text: str) -> None:
        if isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.expr.is_Symbol:
            self._readers.setdefault(value.node.expr, text)

    def function(self) -> Draw:
        """The function that draws."""
        symbols = [f"{name} = {self._readers[symbol]}" for symbol, name in self._used.items()]
        lines = ["def draw(args):", *symbols, *self._lines, f"return [{', '.join(self._results)}]"]
        exec("\n    ".join(lines), self._scope)
        return self._scope["draw"]  # type: ignore[no-any-return]

    def take(self, node: Node) -> None:
        """Takes one draw out of the graph."""
        before = len(self._lines), len(self._results), len(self._placeholders)
        try:
            new = self._replacement(node)
        except _NotBefore:
            del self._lines[before[0] :], self._results[before[1] :]
            for placeholder in self._placeholders[before[2] :]:
                self._graph.erase_node(placeholder)
            del self._placeholders[before[2] :]
            raise
        self._replace(node, new)

    def _replace(self, node: Node, new: Node | tuple[Any, ...]) -> None:
        if isinstance(new, tuple):
            for user in list(node.users):
                if user.target is not operator.getitem:
                    raise AssertionError(f"{user}: expected an element of {node}")
                self._replace(user, new[user.args[1]])  # type: ignore[index]
        else:
            new.meta = {**node.meta, **new.meta}
            node.replace_all_uses_with(new)
        self._graph.erase_node(node)

    def _replacement(self, node: Node) -> Node | tuple[Node, ...]:
        op: Any = node.target
        args, value = node.args, node.meta.get("val")
        self._wrapper = ""
        if op in _SAVING:
            # (operation, arguments) or (state, operation, arguments)
            saves = op is run_and_save_rng_state
            self._wrapper = "save(" if saves else f"restore({self.text(args[0])}, "
            op, args = (args[0], args[1:]) if saves else (args[1], args[2:])
            value = self._value(op, args, node.kwargs)
        if not isinstance(op, OpOverload) or op.namespace != "aten":
            raise _NotBefore
        split = _SPLIT.get(op)
        if split is not None:
            new = split(_Splitter(self, self._graph, node, value), *args, **node.kwargs)
        elif op in _FILLS:
            first: Any = args[0]
            like = first.meta["val"]
            new = self.draw(_FILLS[op], [self.empty(like), *map(self.text, args[1:])], {}, value, like)
        else:
            new = self.draw(op, [self._argument(op, i, x) for i, x in enumerate(args)], node.kwargs, value)
        if node.target is run_and_save_rng_state:
            assert self._state is not None
            return self._state, new  # type: ignore[return-value]
        return new

    def _value(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The fake results of an operation: AOTAutograd's partitioner leaves them out."""
        fake_args, fake_kwargs = pytree.tree_map_only(Node, lambda n: n.meta["val"], (tuple(args), dict(kwargs)))
        with self._mode():
            return op(*fake_args, **fake_kwargs)

    def _mode(self) -> FakeTensorMode:
        fakes = (v for n in self._graph.nodes for v in pytree.tree_leaves(n.meta.get("val")))
        return next(v.fake_mode for v in fakes if isinstance(v, FakeTensor))

    def draw(
        self, op: Any, args: Sequence[str], kwargs: dict[str, Any], value: Any, like: torch.Tensor | None = None
    ) -> Node:
        """A placeholder for what an operation draws, which has the layout of ``like`` if that is given."""
        name = drawn = f"draw{len(self._lines)}"
        named = [f"{key}={self.text(given)}" for key, given in kwargs.items()]
        opening = self._wrapper or f"{self._constant(op)}("
        given = [self._constant(op), *args, *named] if self._wrapper else [*args, *named]
        self._lines.append(f"{name} = {opening}{', '.join(given)})")
        if self._wrapper == "save(":
            with self._mode():
                state = torch.empty(torch.get_rng_state().shape, dtype=torch.uint8)
            self._state, drawn = self._placeholder(f"{name}[0]", state), f"{name}[1]"
        if like is not None and not _same_layout(like, value):
            drawn = f"copied({self.empty(value)}, {drawn})"
        return self._placeholder(drawn, value)

    def _placeholder(self, text: str, value: Any) -> Node:
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            raise _NotBefore
        first = next(iter(self._graph.nodes))
        with self._graph.inserting_after(self._last) if self._last else self._graph.inserting_before(first):
            node = self._graph.placeholder(f"drawn_{len(self._results)}")
        node.meta["val"] = value
        self._last = node
        self._placeholders.append(node)
        self._results.append(text)
        return node

    def _argument(self, target: Any, place: int, value: Any) -> str:
        """The text of an argument of an operation that draws."""
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            name = target._schema.name.partition("::")[2]
            by_shape = place == 0 and not _BY_SHAPE.isdisjoint((name, f"{name}.{target._overloadname}"))
            if by_shape:
                return self.empty(value.meta["val"])
        return self.text(value)

    def text(self, value: Any) -> str:
        """A Python expression for an argument; _NotBefore if the graph computes it."""
        if isinstance(value, Node):
            fake = value.meta.get("val")
            if isinstance(fake, torch.Tensor):
                if value.op == "placeholder" and value in self._placeholders:
                    place = self._placeholders.index(value)
                    # Those behind are draws themselves.
                    if not value.name.startswith("drawn_"):
                        return f"args[{place}]"
                raise _NotBefore
            return self.text(fake)
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self._expression(value.node.expr)
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self.text, value))}]"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, torch.SymBool):
            raise _NotBefore
        return self._constant(value)

    def empty(self, value: torch.Tensor) -> str:
        """A tensor of this shape, dtype and layout."""
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise _NotBefore
        return f"empty({self.text(value.shape)}, {self.text(value.stride())}, dtype={value.dtype})"

    def _expression(self, expr: sympy.Expr) -> str:
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol not in self._readers:
                raise _NotBefore
            self._used.setdefault(symbol, f"n{len(self._used)}")
        named = {symbol: sympy.Symbol(name, integer=symbol.is_integer) for symbol, name in self._used.items()}
        return f"({PythonPrinter().doprint(expr.xreplace(named))})"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    def texts(values: Sequence[Any]) -> list[str]:
        return [str(v.node.expr) if isinstance(v, torch.SymInt) else str(v) for v in values]

    return texts(a.shape) == texts(b.shape) and texts(a.stride()) == texts(b.stride())


def _copied(to: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    return to.copy_(drawn)


class _Splitter:
    """Makes the nodes that compute random values from noise, in the place of one operation."""

    def __init__(self, taker: _Taker, graph: torch.fx.Graph, node: Node, value: Any) -> None:
        self._taker = taker
        self._graph = graph
        self._node = node
        self.value = value
        """The fake result of the operation."""
        self._mode = next(v.fake_mode for v in pytree.tree_leaves(value) if isinstance(v, FakeTensor))

    @property
    def mode(self) -> FakeTensorMode:
        """The mode of the graph's fake tensors."""
        return self._mode

    def drawn(self, function: Any, like: torch.Tensor, *args: Any) -> Node:
        """Noise in the shape, dtype and layout of a fake tensor."""
        return self._taker.draw(function, [self._taker.empty(like), *map(self._taker.text, args)], {}, like)

    def empty(self, shape: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
        """A fake tensor."""
        with self._mode:
            return torch.empty(shape, dtype=dtype)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Node:
        """One more operation."""
        with self._graph.inserting_before(self._node):
            return effects.call(self._graph, self._node, function, *args, **kwargs)

    def require(self, holds: Node, message: str) -> None:
        """A condition on all elements of a tensor."""
        with self._graph.inserting_before(self._node):
            effects.require(self._graph, self._node, holds, message)

    def converted(self, node: Node, dtype: torch.dtype) -> Node:
        """The tensor in another dtype."""
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(_aten._to_copy.default, node, dtype=dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _bernoulli(s: _Splitter, p: Node, generator: Any = None) -> Node:
    return _bernoulli_of(s, s.empty(p.meta["val"].shape, p.meta["val"].dtype), p)


def _bernoulli_tensor(s: _Splitter, x: Node, p: Node, generator: Any = None) -> Node:
    return _bernoulli_of(s, x.meta["val"], p)


def _bernoulli_of(s: _Splitter, like: torch.Tensor, p: Node) -> Node:
    """1 where an even number is less than p, drawn for each element."""
    inside = s.call(_aten.mul.Tensor, s.call(_aten.ge.Scalar, p, 0), s.call(_aten.le.Scalar, p, 1))
    s.require(inside, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    wide = _wide(p.meta["val"].dtype)
    with s.mode:
        noise = torch.empty_strided(like.shape, like.stride(), dtype=wide)
    even = s.drawn(_aten.uniform_.default, noise)
    return s.converted(s.call(_aten.lt.Tensor, even, s.converted(p, wide)), like.dtype)


def _multinomial(s: _Splitter, p: Node, count: Any, replacement: bool = False, *, generator: Any = None) -> Node:
    """The largest quotients of weights and exponential noise, or places of even numbers in the cumulated weights."""
    weights = p.meta["val"]
    natural, finite = s.call(_aten.ge.Scalar, p, 0), s.call(_aten.lt.Scalar, p, math.inf)
    if not replacement or count == 1:
        both = s.call(_aten.mul.Tensor, natural, finite)
        s.require(both, "probability tensor contains either `inf`, `nan` or element < 0")
    else:
        s.require(natural, "invalid multinomial distribution (encountering probability entry < 0)")
        s.require(finite, "invalid multinomial distribution (encountering probability entry = infinity or NaN)")
    some = s.call(_aten.any.dim, s.call(_aten.gt.Scalar, p, 0), -1)
    s.require(some, "invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement or count == 1:
        with s.mode:
            noise = torch.empty_like(weights)
        quotients = s.call(_aten.div.Tensor, p, s.drawn(_aten.exponential_.default, noise, 1.0))
        if isinstance(count, int) and count == 1:
            return s.call(_aten.argmax.default, quotients, -1, True)
        return s.call(operator.getitem, s.call(_aten.topk.default, quotients, count), 1)
    wide = _wide(weights.dtype)
    size = count.meta["val"] if isinstance(count, Node) else count
    even = s.drawn(_aten.uniform_.default, s.empty([*weights.shape[:-1], size], torch.float64))
    sums = s.call(_aten.cumsum.default, s.converted(p, wide), -1)
    shares = s.call(_aten.div.Tensor, sums, s.call(_aten.slice.Tensor, sums, -1, -1))
    places = s.call(_aten.searchsorted.Tensor, s.converted(shares, torch.float64), even)
    last = weights.shape[-1] - 1
    if not isinstance(last, int):
        last = s.call(operator.sub, s.call(_aten.sym_size.int, p, weights.dim() - 1), 1)
    return s.call(_aten.clamp.default, places, None, last)


def _normal(s: _Splitter, mean: Any, std: Any = 1.0, *, generator: Any = None) -> Node:
    """Normal noise times std, plus mean."""
    value = s.value
    if not isinstance(std, Node) or not isinstance(std.meta["val"], torch.Tensor):
        return s.call(
            _aten.add.Tensor, s.drawn(_aten.normal_.default, s.empty(value.shape, value.dtype), 0.0, std), mean
        )
    s.require(s.call(_aten.ge.Scalar, std, 0), "normal expects all elements of std >= 0.0")
    noise = s.drawn(_aten.normal_.default, s.empty(value.shape, value.dtype), 0.0, 1.0)
    return s.call(_aten.add.Tensor, s.call(_aten.mul.Tensor, noise, std), mean)


def _native_dropout(s: _Splitter, x: Node, p: float, train: bool | None) -> tuple[Node, ...]:
    """x / (1 - p) where it is kept, and the mask."""
    value = x.meta["val"]
    if train is False:
        return x, s.call(_aten.ones_like.default, x, dtype=torch.bool)
    with s.mode:
        mask = torch.empty_like(value, dtype=torch.bool)
    kept = s.drawn(_aten.bernoulli_.float, mask, 1.0 - p)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return s.call(_aten.mul.Tensor, s.call(_aten.mul.Tensor, x, kept), scale), kept


_SPLIT: dict[Any, Callable[..., Node | tuple[Node, ...]]] = {
    _aten.bernoulli.default: _bernoulli,
    _aten.bernoulli.Tensor: _bernoulli_tensor,
    _aten.multinomial.default: _multinomial,
    _aten.normal.Tensor_float: _normal,
    _aten.normal.float_Tensor: _normal,
    _aten.normal.Tensor_Tensor: _normal,
    _aten.native_dropout.default: _native_dropout,
}
