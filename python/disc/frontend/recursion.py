"""Recursion over the children of a tree, computed for all nodes of a height at once.

A function that calls itself for the children of its node (``self.node(tree.left)``) is traced once for each pattern of
children and optional fields that a node can have, so that tests of them (``tree.left is None``) have known results.
The calls for children are inputs of the traced graph; its results are rows of a table with a row for each node. The
program (``tree_program.py``) has a loop over groups of nodes of one height and pattern, and in it the graph for a batch
of nodes (``batching.py``). The compiled code does not recurse, so the depth of a tree is not limited.

Several functions may call each other. Their arguments other than the node must be the same in all calls.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from .. import errors, trees
from ..torch_compat import pytree
from ..torch_compat.symbols import GuardOnDataDependentSymNode
from ..torch_compat.tracing import (
    DisableTorchFunction,
    detect_fake_mode,
    disable_current_modes,
    disable_proxy_modes_tracing,
    make_fx,
)
from ..trees import Placeholder, Table, TreeType, placeholder
from .batching import NotBatchable, decompositions
from .locations import is_user_file, is_user_line, user_line
from .tree_program import Program

_MOST_FUNCTIONS = 16


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
                f"{name} of a node's child is read: a function of a node can read the fields of its children, but not "
                "their children; pass the child to a function that reads them"
            )
        return self.trace.field(name, self.number)


def _refuse(why: str, source: str | None = None) -> errors.CompileError:
    return errors.TreeError("import", f"recursion over a tree: {why}", source or user_line())


# -- functions of a node -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function, with its arguments other than the node."""

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


def _function(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Function, Any]:
    """The function that is called, and the node."""
    places: list[Any] = [i for i, x in enumerate(args) if isinstance(x, Placeholder)]
    places += [key for key, x in kwargs.items() if isinstance(x, Placeholder)]
    if len(places) != 1:
        raise _refuse("a function has several nodes as arguments; pass only one")
    place = places[0]
    node = kwargs[place] if isinstance(place, str) else args[place]
    others = [(i, _identity(x)) for i, x in (*enumerate(args), *sorted(kwargs.items())) if i != place]
    return Function(call, tuple(args), dict(kwargs), place, (_identity(call), tuple(others))), node


@dataclass
class Graph:
    """A function as traced for one pattern."""

    module: GraphModule
    inputs: dict[Any, Tensor]
    """The values that differ between nodes, by kind, with the tensor for each in the graph."""
    spec: pytree.TreeSpec
    results: list[tuple[torch.dtype, tuple[int, ...], type]]
    """The dtype, the shape and the Python type (a tensor or a number) of each result."""


@dataclass
class Gradients:
    """A function as traced for one pattern, with its gradients."""

    module: GraphModule
    inputs: dict[Any, Tensor]
    """As in :class:`Graph`; among them ("gradient", function, number, None) are those of the results."""
    wanted: list[Any]
    """For each output of the graph, the input, or the place of the parameter, that it is the gradient of."""

    @property
    def outputs(self) -> list[Any]:
        """The nodes that compute them."""
        return list(self.module.graph.output_node().args[0])  # type: ignore[arg-type]


class _Trace:
    """A function that is being traced for one pattern."""

    def __init__(self, recursion: Recursion, function: Function, pattern: int, *, differs: bool = False) -> None:
        self.recursion, self.function, self.pattern = recursion, function, pattern
        self.inputs: dict[Any, Tensor] = {}
        self._differs = differs
        """Whether gradients are wanted."""

    def has_child(self, number: int) -> bool:
        """Whether the pattern has it."""
        return bool(self.pattern >> (len(self.recursion.kind.optional) + number) & 1)

    def field(self, name: str, child: int | None = None) -> Any:
        """A field of the node or of a child."""
        kind = self.recursion.kind
        known = next((f for f in kind.fields if f.name == name), None)
        if known is None:
            raise _refuse(f"{name} is read, but it is not a tensor, a number or a child")
        if known.optional and not self.pattern >> kind.optional.index(known) & 1:
            return None
        return self.input(("field", name, child), known.shape, known.dtype)

    def input(self, what: Any, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The tensor that stands for a value that differs between nodes."""
        if what not in self.inputs:
            with disable_proxy_modes_tracing(), self.recursion.fakes:
                self.inputs[what] = torch.empty(tuple(shape), dtype=dtype)
            if self._differs and what[0] == "result" and dtype.is_floating_point:
                self.inputs[what].requires_grad_()
        return self.inputs[what]

    def child_call(self, function: Function, child: _Child) -> Any:
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

    def run(self) -> Graph:
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
                    name = self.function.name
                    raise _refuse(f"{name} must return tensors and numbers, got a {type(leaf).__name__}")
                kinds.append(Tensor if isinstance(leaf, Tensor) else type(leaf))
                number = torch.float64 if isinstance(leaf, float) else None
                tensors.append(leaf if isinstance(leaf, Tensor) else torch.full((), leaf, dtype=number))
            return tensors

        module = self._traced(flat)
        output = next(n for n in module.graph.nodes if n.op == "output").args[0]
        values = [n.meta["val"] for n in output]
        results = [(x.dtype, tuple(x.shape), kind) for x, kind in zip(values, kinds, strict=True)]
        return Graph(module, self.inputs, spec[0], results)

    def run_gradients(self, parameters: Sequence[Tensor]) -> Gradients:
        """Traces it with its gradients."""
        wanted: list[Any] = []

        def flat() -> list[Tensor]:
            with torch.enable_grad():
                result = self.function.run(placeholder(self.recursion.kind, _Node(self)))
            given = {what: x for what, x in self.inputs.items() if x.requires_grad}
            outputs = [
                (x, self.input(("gradient", self.function, number, None), x.shape, x.dtype))
                for number, x in enumerate(pytree.tree_leaves(result))
                if isinstance(x, Tensor) and x.requires_grad
            ]
            if not outputs:
                return []
            found = torch.autograd.grad(
                [x for x, _ in outputs], [*given.values(), *parameters], [g for _, g in outputs], allow_unused=True
            )
            names = [*given, *range(len(parameters))]
            wanted.extend(name for name, x in zip(names, found, strict=True) if x is not None)
            return [x for x in found if x is not None]

        return Gradients(self._traced(flat), self.inputs, wanted)

    def _traced(self, function: Any) -> GraphModule:
        with isolated(), self.recursion.fakes, _tracing(self):
            module: GraphModule = make_fx(
                function, decomposition_table=decompositions(), tracing_mode="real", _allow_non_fake_inputs=True
            )()
        if any(node.target in _BEGINNINGS for node in module.graph.nodes):
            raise _refuse(
                f"{self.function.name} branches or loops on the data of a node, but nodes are computed in batches:"
                " compute both sides and select one with torch.where"
            )
        return module


@contextmanager
def isolated() -> Iterator[None]:
    """Disables the modes that trace the surrounding program."""
    with DisableTorchFunction(), disable_current_modes():
        yield


_BEGINNINGS = (torch.ops.disc.branch_begin.default, torch.ops.disc.loop_begin.default)
_traces: list[_Trace] = []


@contextmanager
def _tracing(trace: _Trace) -> Iterator[None]:
    _traces.append(trace)
    try:
        yield
    finally:
        _traces.pop()


# -- the recursion -----------------------------------------------------------------------------------------------


class Recursion:
    """Functions of a node that call each other for its children."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.kind: TreeType = table.kind
        self.fakes: Any = detect_fake_mode(table.tensors)
        self.calls: dict[Function, dict[Function, str | None]] = {}
        """The functions that each function calls for children, and where."""
        self.graphs: dict[Function, dict[int, Graph]] = {}
        self.failed: dict[int, Exception] = {}
        """Patterns that the code does not support, with the exceptions that it raises."""
        self._signatures: dict[Function, Graph] = {}

    @property
    def patterns(self) -> range:
        """Optional fields, and above them children, as bits."""
        return range(1 << (len(self.kind.optional) + len(self.kind.children)))

    @property
    def leaves(self) -> int:
        """The number of patterns without children; they come first."""
        return 1 << len(self.kind.optional)

    def signature(self, function: Function) -> Graph:
        """The function as traced for a node without children."""
        if function not in self._signatures:
            if len(self.graphs) > _MOST_FUNCTIONS:
                raise _refuse(
                    f"the arguments of {function.name} other than the node differ between calls; they must be the same "
                    "for all nodes: make them fields of the nodes",
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

    def is_recursive(self, function: Function) -> bool:
        """Whether the function calls itself for children, directly or through others. Traces the functions it calls."""
        self.calls.setdefault(function, {})
        for pattern in self.patterns:
            try:
                _Trace(self, function, pattern).run()
            except Exception:
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

    def _trace_all(self, function: Function) -> None:
        """Traces the function for each pattern that it supports."""
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
                    f"{function.name} returns {_described(known)} for nodes without children and {_described(graph)} "
                    "for others; it must return the same dtypes and shapes for all nodes",
                    function.source,
                )
            self.graphs[function][pattern] = graph

    def used(self, pattern: int) -> int:
        """The children whose results the code for a pattern reads, as bits; -1 if it does not support the pattern."""
        if pattern in self.failed:
            return -1
        inputs = [what for graphs in self.graphs.values() if graphs for what in graphs[pattern].inputs]
        return sum(1 << child for child in {what[-1] for what in inputs if what[-1] is not None})

    def gradients(self, parameters: Sequence[Tensor]) -> dict[Function, dict[int, Gradients]]:
        """The gradients of all functions, for each pattern that they support."""
        return {
            function: {
                pattern: _Trace(self, function, pattern, differs=True).run_gradients(parameters)
                for pattern in graphs
                if pattern not in self.failed
            }
            for function, graphs in self.graphs.items()
            if graphs
        }

    def run(self, function: Function) -> Any:
        """Calls the function for the tree's root."""
        known = self.signature(function)
        if _kept:
            return pytree.tree_unflatten(_kept[-1](self, function), known.spec)
        values = Program(self, function).run()
        leaves = [x if kind is Tensor else x.item() for x, (_, _, kind) in zip(values, known.results, strict=True)]
        return pytree.tree_unflatten(leaves, known.spec)


_kept: list[Callable[[Recursion, Function], list[Tensor]]] = []


@contextmanager
def kept_apart(results: Callable[[Recursion, Function], list[Tensor]]) -> Iterator[None]:
    """While it is active, ``results`` returns the values of a recursion, and nothing is computed."""
    _kept.append(results)
    try:
        yield
    finally:
        _kept.pop()


_LIMITS = (errors.CompileError, NotBatchable, GuardOnDataDependentSymNode)


def _explained(error: Exception, function: Function) -> errors.CompileError:
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


def _described(graph: Graph) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for dtype, shape, _ in graph.results) or "nothing"


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call in the code that is traced: its result if it belongs to a recursion over a tree, else NotImplemented."""
    nodes = [x for x in (*args, *kwargs.values()) if isinstance(x, Placeholder)]
    if not nodes or not _is_code(function):
        return NotImplemented
    sources = [node._disc_source for node in nodes]
    if any(isinstance(s, _Child) for s in sources):
        known, node = _function(function, args, kwargs)
        return _traces[-1].child_call(known, node._disc_source)
    if any(isinstance(s, Table) for s in sources) and len(nodes) == 1:
        known, node = _function(function, args, kwargs)
        if known.identity in _by_rows:
            return NotImplemented
        recursion = Recursion(node._disc_source)
        try:
            if recursion.is_recursive(known):
                return recursion.run(known)
        except errors.CompileError as error:
            # Not possible for all nodes of a height at once: the rewritten code computes one node after another.
            if not trees.is_by_rows():
                raise trees.Unknown(error.stage, error.diagnostic, error.source) from error
            _by_rows.add(known.identity)
    return NotImplemented


_by_rows: set[Any] = set()
"""The functions that cannot be computed for all nodes of a height at once."""


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
        _by_rows.clear()


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
