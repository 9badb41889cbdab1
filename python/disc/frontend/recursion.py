"""Recursion over the children of a tree, computed for all nodes of a height at once.

A function that calls itself for the children of its node (``self.node(tree.left)``) is traced once for each pattern of
children and optional fields that a node can have: what the code asks of them (``tree.left is None``) is known there. The
calls for children are inputs of the traced graph, its results are rows of a table with a row for each node. The program
then has the schedule of the tree (``disc::tree_schedule``), a loop over the groups of nodes of one height and pattern,
and in it the graph for a batch of nodes (``batching.py``). A tree is as deep as it likes: nothing recurses.

Several functions may call each other. What they take beside the node must be the same in all calls.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import _disable_current_modes

from .. import errors
from ..trees import Placeholder, Table, TreeType, placeholder
from . import markers
from .batching import (
    Batch,
    NotBatchable,
    decompositions,
    evaluate,
    find_independent,
    needed_inputs,
    run_batched,
    same_code,
)
from .locations import is_user_file, is_user_line, user_line

_MOST_FUNCTIONS = 16


# -- the schedule ------------------------------------------------------------------------------------------------


@torch.library.custom_op("disc::tree_schedule", mutates_args=())
def tree_schedule(
    children: Tensor, present: Tensor | None, uses: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """order, rows, leaves, starts, kinds, count and root of a tree: see lib/Runtime/Functions/Trees.cpp."""
    raise NotImplementedError("a program with recursion over trees runs only when it is compiled")


@tree_schedule.register_fake
def _(
    children: Tensor, present: Tensor | None, uses: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    nodes = children.shape[0]
    fields = 0 if present is None else present.shape[1]

    def vector(size: Any) -> Tensor:
        return children.new_empty([size])

    order, rows, leaves = vector(nodes), torch.empty_like(children), vector(2 ** (fields + children.shape[1]) + 1)
    return order, rows, leaves, vector(nodes + 1), vector(nodes), children.new_empty([]), children.new_empty([])


@torch.library.custom_op("disc::tree_rows", mutates_args=())
def tree_rows(x: Tensor, start: int, count: int) -> Tensor:
    """Some rows of a table. ``narrow``, but of extents that a loop's step computes, of which PyTorch asks too much."""
    return x.narrow(0, start, count).clone()


@tree_rows.register_fake
def _(x: Tensor, start: int, count: int) -> Tensor:
    return x.new_empty((count, *x.shape[1:]))


@torch.library.custom_op("disc::tree_store", mutates_args=())
def tree_store(x: Tensor, rows: Tensor, start: int) -> Tensor:
    """A table with some rows replaced."""
    return x.slice_scatter(rows, 0, start, start + rows.shape[0])


@tree_store.register_fake
def _(x: Tensor, rows: Tensor, start: int) -> Tensor:
    return torch.empty_like(x)


# -- nodes while a function is traced ----------------------------------------------------------------------------


class _Node:
    """The node that a function is traced for."""

    def __init__(self, trace: _Trace) -> None:
        self.trace = trace
        self._children: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The value of a field."""
        kind = self.trace.recursion.kind
        if name in kind.children:
            number = kind.children.index(name)
            if not self.trace.has_child(number):
                return None
            if name not in self._children:
                self._children[name] = placeholder(kind, _Child(self.trace, number))
            return self._children[name]
        return self.trace.field(name)


@dataclass(frozen=True)
class _Child:
    """A child of that node."""

    trace: _Trace
    number: int

    def get(self, name: str) -> Any:
        """The value of a field."""
        kind = self.trace.recursion.kind
        known = next((f for f in kind.fields if f.name == name), None)
        if known is None or known.optional:
            raise _refuse(
                f"{name} of a node's child is read: a function of a node knows the fields of its children, but not "
                "their children; pass the child to a function that reads them"
            )
        return self.trace.field(name, self.number)


def _refuse(why: str, source: str | None = None) -> errors.CompileError:
    return errors.CompileError("import", f"recursion over a tree: {why}", source or user_line())


# -- functions of a node -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """A function, with all that it takes beside a node."""

    call: Any = field(compare=False)
    args: tuple[Any, ...] = field(compare=False)
    kwargs: Mapping[str, Any] = field(compare=False)
    place: Any
    """Where the node is among the arguments."""
    identity: Any

    @property
    def name(self) -> str:
        """For messages."""
        return getattr(self.call, "__qualname__", type(self.call).__name__)

    @property
    def source(self) -> str | None:
        """Where it is defined."""
        plain = inspect.unwrap(self.call.forward if isinstance(self.call, torch.nn.Module) else self.call)
        code = getattr(plain, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None

    def run(self, node: Any) -> Any:
        """The function of a node."""
        if isinstance(self.place, str):
            return self.call(*self.args, **{**self.kwargs, self.place: node})
        args = list(self.args)
        args[self.place] = node
        return self.call(*args, **self.kwargs)


def _identity(value: Any) -> Any:
    if isinstance(value, types.MethodType):
        return id(value.__func__), id(value.__self__)
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return type(value), value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_identity, value))
    return id(value)


def _function(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Function, Any]:
    """The function that is called, and the node."""
    places: list[Any] = [i for i, x in enumerate(args) if isinstance(x, Placeholder)]
    places += [key for key, x in kwargs.items() if isinstance(x, Placeholder)]
    if len(places) != 1:
        raise _refuse("a function takes several nodes; one is supported")
    place = places[0]
    node = kwargs[place] if isinstance(place, str) else args[place]
    others = [(i, _identity(x)) for i, x in (*enumerate(args), *sorted(kwargs.items())) if i != place]
    return _Function(call, tuple(args), dict(kwargs), place, (_identity(call), tuple(others))), node


@dataclass
class _Graph:
    """A function as traced for one pattern."""

    module: GraphModule
    inputs: dict[Any, Tensor]
    """What differs from node to node, by what it is, and the tensor that stands for it in the graph."""
    spec: pytree.TreeSpec
    results: list[tuple[torch.dtype, tuple[int, ...], type]]
    """Of each result, dtype, shape and what the code gives (a tensor, or a number)."""


class _Trace:
    """A function that is being traced for one pattern."""

    def __init__(self, recursion: _Recursion, function: _Function, pattern: int) -> None:
        self.recursion, self.function, self.pattern = recursion, function, pattern
        self.inputs: dict[Any, Tensor] = {}

    def has_child(self, number: int) -> bool:
        """Whether the pattern has it."""
        return bool(self.pattern >> (len(self.recursion.kind.optional) + number) & 1)

    def field(self, name: str, child: int | None = None) -> Any:
        """A field of the node or of a child."""
        kind = self.recursion.kind
        known = next((f for f in kind.fields if f.name == name), None)
        if known is None:
            raise _refuse(f"{name} is read, which is no tensor, number or child")
        if known.optional and not self.pattern >> kind.optional.index(known) & 1:
            return None
        return self.input(("field", name, child), known.shape, known.dtype)

    def input(self, what: Any, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The tensor that stands for something of each node's own."""
        if what not in self.inputs:
            with disable_proxy_modes_tracing(), self.recursion.fakes:
                self.inputs[what] = torch.empty(tuple(shape), dtype=dtype)
        return self.inputs[what]

    def child_call(self, function: _Function, child: _Child) -> Any:
        """The result of a function for a child."""
        calls = self.recursion.calls[self.function]
        if function not in calls:
            calls[function] = user_line()
        known = self.recursion.signature(function)
        leaves = [
            self.input(("result", function, number, child.number), shape, dtype)
            for number, (dtype, shape, _) in enumerate(known.results)
        ]
        return pytree.tree_unflatten(leaves, known.spec)

    def run(self) -> _Graph:
        """Traces it."""
        spec: list[pytree.TreeSpec] = []
        kinds: list[type] = []

        def flat() -> list[Tensor]:
            result = self.function.run(placeholder(self.recursion.kind, _Node(self)))
            leaves, found = pytree.tree_flatten(result)
            spec.append(found)
            tensors = []
            for leaf in leaves:
                if not isinstance(leaf, (Tensor, bool, int, float)):
                    raise _refuse(f"{self.function.name} gives a {type(leaf).__name__}; tensors and numbers can be")
                kinds.append(Tensor if isinstance(leaf, Tensor) else type(leaf))
                number = torch.float64 if isinstance(leaf, float) else None
                tensors.append(leaf if isinstance(leaf, Tensor) else torch.full((), leaf, dtype=number))
            return tensors

        with _isolated(), self.recursion.fakes, _tracing(self):
            module = make_fx(
                flat, decomposition_table=decompositions(), tracing_mode="real", _allow_non_fake_inputs=True
            )()
        output = next(n for n in module.graph.nodes if n.op == "output").args[0]
        values = [n.meta["val"] for n in output]
        results = [(x.dtype, tuple(x.shape), kind) for x, kind in zip(values, kinds, strict=True)]
        return _Graph(module, self.inputs, spec[0], results)


@contextmanager
def _isolated() -> Iterator[None]:
    """Without what traces the program around it."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


_traces: list[_Trace] = []


@contextmanager
def _tracing(trace: _Trace) -> Iterator[None]:
    _traces.append(trace)
    try:
        yield
    finally:
        _traces.pop()


# -- the recursion -----------------------------------------------------------------------------------------------


class _Recursion:
    """Functions of a node that call each other for its children."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.kind: TreeType = table.kind
        self.fakes = torch._guards.detect_fake_mode(table.tensors)
        self.calls: dict[_Function, dict[_Function, str | None]] = {}
        """The functions that each calls for children, and where."""
        self.graphs: dict[_Function, dict[int, _Graph]] = {}
        self.failed: dict[int, Exception] = {}
        """Patterns that the code is not for, and what it raises."""
        self._signatures: dict[_Function, _Graph] = {}

    @property
    def patterns(self) -> range:
        """Optional fields, and above them children, as bits."""
        return range(1 << (len(self.kind.optional) + len(self.kind.children)))

    @property
    def leaves(self) -> int:
        """How many patterns have no children; they come first."""
        return 1 << len(self.kind.optional)

    def signature(self, function: _Function) -> _Graph:
        """The function for a node without children, of which it cannot ask anything."""
        if function not in self._signatures:
            if len(self.graphs) > _MOST_FUNCTIONS:
                raise _refuse(
                    f"what {function.name} takes beside the node differs from call to call; it must be the same for "
                    "all nodes: put it into the nodes",
                    function.source,
                )
            self.calls.setdefault(function, {})
            self.graphs.setdefault(function, {})
            error: Exception | None = None
            for pattern in range(self.leaves):
                try:
                    self._signatures[function] = _Trace(self, function, pattern).run()
                    break
                except _LIMITS:
                    raise
                except Exception as raised:
                    error = raised
            else:
                raise _refuse(
                    f"{function.name} fails for nodes without children: {type(error).__name__}: {error}",
                    _raised_at(error) or function.source,
                ) from error
        return self._signatures[function]

    def is_recursive(self, function: _Function) -> bool:
        """Whether the function calls itself for children, be it through others. Traces what it needs to know."""
        self.calls.setdefault(function, {})
        for pattern in self.patterns:
            try:
                _Trace(self, function, pattern).run()
            except Exception:  # noqa: S112  (what it calls is known; if it recurses, it is traced again)
                continue
        reached, pending = set(), list(self.calls[function])
        while pending:
            callee = pending.pop()
            if callee in reached:
                continue
            reached.add(callee)
            if callee not in self.calls or not self.graphs.get(callee):
                self._trace_all(callee)
            pending += self.calls[callee]
        return function in reached

    def _trace_all(self, function: _Function) -> None:
        """The function for each pattern that it is for."""
        known = self.signature(function)
        for pattern in self.patterns:
            try:
                graph = _Trace(self, function, pattern).run()
            except _LIMITS as error:
                raise _explained(error, function) from error
            except Exception as error:
                self.failed.setdefault(pattern, error)
                continue
            if (graph.spec, graph.results) != (known.spec, known.results):
                raise _refuse(
                    f"{function.name} gives {_described(known)} for nodes without children and {_described(graph)} "
                    "for others; it must be the same for all",
                    function.source,
                )
            self.graphs[function][pattern] = graph

    def used(self, pattern: int) -> int:
        """The children of whose results the code for a pattern needs some, as bits; -1 if the code is not for it."""
        if pattern in self.failed:
            return -1
        inputs = [what for graphs in self.graphs.values() if graphs for what in graphs[pattern].inputs]
        return sum(1 << child for child in {what[-1] for what in inputs if what[-1] is not None})

    def run(self, function: _Function) -> Any:
        """The function of the tree's root."""
        return _Program(self, function).run()


_LIMITS = (errors.CompileError, NotBatchable, GuardOnDataDependentSymNode)


def _explained(error: Exception, function: _Function) -> errors.CompileError:
    if isinstance(error, errors.CompileError):
        return error
    return _refuse(f"{function.name}: {error}", _raised_at(error) or function.source)


def _raised_at(error: BaseException | None) -> str | None:
    """The innermost line of the user's code on the way to an error."""
    found, trace = None, error.__traceback__ if error is not None else None
    while trace is not None:
        if is_user_line(trace.tb_frame.f_code.co_filename):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _described(graph: _Graph) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape, _ in graph.results) or "nothing"


class _Program:
    """The program of a recursion, in the graph that is being traced around it."""

    def __init__(self, recursion: _Recursion, function: _Function) -> None:
        self._recursion, self._function = recursion, function
        self._table = recursion.table
        self._functions = [f for f, graphs in recursion.graphs.items() if graphs]
        self._tables: dict[tuple[_Function, int], dict[Any, Tensor]] = defaultdict(dict)
        """What is computed before the loop, of which a group takes its rows; the first is that of node ``_first``."""
        self._first: Any = 0
        self._slots = [
            (f, number, dtype, shape)
            for f in self._functions
            for number, (dtype, shape, _) in enumerate(recursion.signature(f).results)
        ]

    def run(self) -> Any:
        """The result for the root."""
        recursion, children = self._recursion, self._table.children
        nodes = children.shape[0]
        uses = [recursion.used(p) for p in recursion.patterns]
        inner = [p for p in recursion.patterns if uses[p] > 0]
        schedule = torch.ops.disc.tree_schedule(children, self._table.present, uses)
        self._order, self._rows, leaves, starts, self._kinds, count, root = schedule
        states = [torch.zeros((nodes, *shape), dtype=dtype) for *_, dtype, shape in self._slots]
        for pattern in recursion.patterns:
            if uses[pattern] == 0:
                states = self._group([pattern], leaves[pattern], leaves[pattern + 1], states)
        if inner:
            # What depends on a node alone is computed for all at once, before the loop.
            behind = leaves[len(uses)]
            groups = _number(count, nodes)
            self._first = _number(behind, nodes)
            self._hoist(inner, self._first, _number(starts[groups] - behind, nodes))

            def step(number: Any, states: list[Tensor]) -> list[Tensor]:
                return self._group(inner, starts[number], starts[number + 1], states)

            states = _loop(groups, nodes, states, step)
        place = root.reshape(1)
        results = [x.index_select(0, place).squeeze(0) for x in states]
        own = [x for x, (f, *_) in zip(results, self._slots, strict=True) if f == self._function]
        known = recursion.signature(self._function)
        leaves_ = [
            x if kind is Tensor else x.item() for x, (_, _, kind) in zip(own, known.results, strict=True)
        ]
        return pytree.tree_unflatten(leaves_, known.spec)

    def _hoist(self, patterns: Sequence[int], first: Any, extent: Any) -> None:
        """Computes for the nodes of a range what their code does without its children."""
        nodes = self._table.children.shape[0]
        torch._check(first + extent <= nodes)
        order = tree_rows(self._order, first, extent)
        tables: dict[Any, Tensor] = {}
        fields: dict[Any, Tensor] = {}
        for function in self._functions:
            for pattern in patterns:
                graph = self._recursion.graphs[function][pattern]
                names = {id(fake): what for what, fake in graph.inputs.items()}
                own = {place: what for place, what in names.items() if what[0] == "field" and what[-1] is None}
                for what in own.values():
                    if what not in fields:
                        fields[what] = self._table.column(what[1]).index_select(0, order)
                batches = {place: fields[what] for place, what in own.items()}
                values: dict[Any, Any] = {}
                keys: dict[Any, Any] = {}
                for node in find_independent(graph.module, names.keys() - own.keys(), own):
                    key = same_code(graph.module, node, own, keys)
                    if key not in tables:
                        tables[key] = evaluate(graph.module, [node], batches, extent, values)[node].tensor
                    self._tables[function, pattern][node] = tables[key]

    def _group(
        self, patterns: Sequence[int], start: Tensor, end: Tensor, states: list[Tensor]
    ) -> list[Tensor]:
        """``states`` with the rows of the nodes that stand at ``start`` to ``end`` of the order, all of one pattern."""
        nodes = self._table.children.shape[0]
        first, extent = _number(start, nodes), _number(end - start, nodes)
        torch._check(first + extent <= nodes)

        def choose(patterns: Sequence[int]) -> list[Tensor]:
            if len(patterns) == 1:
                return self._rows_of(patterns[0], first, extent, states)
            begin = markers.branch_begin(self._kinds[first] == patterns[0])
            other = markers.branch_else(begin, choose(patterns[:1]), [], [])
            results = choose(patterns[1:])
            merged = markers.branch_end(other, results, [], [])
            return [
                markers.branch_result(merged, x, [extent, *x.shape[1:]], number) for number, x in enumerate(results)
            ]

        return [
            tree_store(state, new, first)
            for state, new in zip(states, choose(patterns), strict=True)
        ]

    def _rows_of(self, pattern: int, first: Any, extent: Any, states: list[Tensor]) -> list[Tensor]:
        """The results for the nodes of a pattern from ``first`` on."""
        order = tree_rows(self._order, first, extent)
        rows = tree_rows(self._rows, first, extent)
        values: dict[Any, Tensor] = {}

        def value(what: Any) -> Tensor:
            if what not in values:
                values[what] = self._value(what, order, rows, states)
            return values[what]

        results = []
        for function in self._functions:
            graph = self._recursion.graphs[function][pattern]
            tables = self._tables[function, pattern]
            known = {
                node: Batch(tree_rows(x, first - self._first, extent)) for node, x in tables.items()
            }
            names = {id(fake): what for what, fake in graph.inputs.items()}
            needed = needed_inputs(graph.module, names, known)
            batches = {place: value(names[place]) for place in needed}
            results += run_batched(graph.module, batches, extent, known)
        return results

    def _value(self, what: Any, order: Tensor, rows: Tensor, states: list[Tensor]) -> Tensor:
        if what[0] == "field":
            _, name, child = what
            places = order if child is None else self._order.index_select(0, rows[:, child])
            return self._table.column(name).index_select(0, places)  # type: ignore[no-any-return]
        _, function, number, child = what
        slot = next(i for i, (f, n, *_) in enumerate(self._slots) if f == function and n == number)
        return states[slot].index_select(0, rows[:, child])


def _number(x: Tensor, most: Any) -> Any:
    # Of a copy: PyTorch cannot retrace item() of a view whose offset is dynamic.
    number: Any = x.clone().item()
    torch._check(number >= 0)
    torch._check(number <= most)
    return number


def _loop(
    count: Any, most: Any, states: list[Tensor], step: Callable[[Any, list[Tensor]], list[Tensor]]
) -> list[Tensor]:
    """``states`` after ``count`` steps, which are less than ``most``."""
    begin = markers.loop_begin(count, None)
    number: Any = begin.item()
    # Not that it is less than count, from which PyTorch would conclude that there is a step.
    torch._check(number >= 0)
    torch._check(number < most)
    inside = [markers.loop_carried(begin, x, x.shape, slot) for slot, x in enumerate(states)]
    following = step(number, inside)
    end = markers.loop_end(begin, list(range(len(states))), inside, following, [], None, [])
    return [markers.loop_last(end, x, x.shape, number) for number, x in enumerate(following)]


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call in the code that is traced: its result where it is one of a recursion over a tree, else NotImplemented."""
    nodes = [x for x in (*args, *kwargs.values()) if isinstance(x, Placeholder)]
    if not nodes or not _is_code(function):
        return NotImplemented
    sources = [node._disc_source for node in nodes]
    if any(isinstance(s, _Child) for s in sources):
        known, node = _function(function, args, kwargs)
        return _traces[-1].child_call(known, node._disc_source)
    if any(isinstance(s, Table) for s in sources) and len(nodes) == 1:
        known, node = _function(function, args, kwargs)
        recursion = _Recursion(node._disc_source)
        if recursion.is_recursive(known):
            return recursion.run(known)
    return NotImplemented


@contextmanager
def kept_recursion(module: torch.nn.Module) -> Iterator[None]:
    """While it is active, the methods of ``module`` and its parts call each other through :func:`call`."""
    replaced: list[tuple[dict[str, Any], str]] = []
    try:
        for part in module.modules():
            for name in _methods(type(part)):
                if name not in part.__dict__:
                    part.__dict__[name] = _watched(getattr(part, name))
                    replaced.append((part.__dict__, name))
        yield
    finally:
        for holder, name in replaced:
            del holder[name]


def _methods(cls: type) -> list[str]:
    return [
        name
        for base in cls.__mro__
        for name, value in base.__dict__.items()
        if isinstance(value, types.FunctionType)
        and is_user_file(value.__code__.co_filename)
        and not (name.startswith("__") and name.endswith("__"))
    ]


def _watched(method: Any) -> Any:
    @functools.wraps(method)
    def watched(*args: Any, **kwargs: Any) -> Any:
        result = call(method, args, kwargs)
        return method(*args, **kwargs) if result is NotImplemented else result

    return watched


def _is_code(function: Any) -> bool:
    return isinstance(function, (types.FunctionType, types.MethodType, torch.nn.Module)) and not inspect.isclass(
        function
    )
