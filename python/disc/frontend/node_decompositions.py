"""Decomposes single nodes of an exported program, without tracing the program again.

``run_decompositions`` traces all nodes to change a few, which takes as long as the export. Most programs need only one
of two local changes:

- An operation without a rule is replaced by its decomposition, which is traced only for this node.
- An in-place operation becomes its functional form; views of the tensor that it changes are created again::

      x = relu(y)                     x = relu(y)
      v = x[1:]                       v = x[1:]
      z = add_(v, 1)          ->      u = add(v, 1)
                                      w = slice_scatter(x, u, 0, 1)
      mul(x, x)                       mul(w, w)

  The last value of an input that is changed becomes a result, as in the programs that PyTorch decomposes.

Whatever else there is (operations that may make views or copies, changes inside control flow of what is outside) is
left to PyTorch.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import sympy
import torch
import torch.fx.traceback as fx_traceback
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node

from ..torch_compat import pytree
from ..torch_compat.operators import (
    OperatorBase,
    OpOverload,
    has_kernel,
    override_composite_implicit_decomp,
    split_decomposition_table,
)
from ..torch_compat.symbols import free_symbols, statically_known_true
from ..torch_compat.tracing import FakeTensor, FakeTensorMode, enable_python_dispatcher, make_fx
from . import facts, markers
from .decompositions import decomposition_table, lowers_as_it_is, trains

_BEGINS = (markers.branch_begin, markers.loop_begin, markers.procedure_begin)
_SIDES = (markers.branch_else,)
_ENDS = (markers.branch_end, markers.loop_end, markers.procedure_end)
_ORIGIN = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom")
"""The metadata of a node about the model's code."""
_ALIASES = (torch.ops.aten._unsafe_view.default,)
"""Views that their schema does not declare as such."""
_NEW = frozenset(
    "linear matmul layer_norm rms_norm group_norm batch_norm softmax log_softmax conv1d conv2d conv3d conv_transpose1d"
    " conv_transpose2d conv_transpose3d scaled_dot_product_attention".split()
)
"""Composite operations whose result is a new tensor. Others, such as dropout, may return their operand."""

_UPDATES = {
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
}
_SCATTERS = {
    torch.ops.aten.slice.Tensor: torch.ops.aten.slice_scatter.default,
    torch.ops.aten.narrow.default: torch.ops.aten.slice_scatter.default,
    torch.ops.aten.select.int: torch.ops.aten.select_scatter.default,
    torch.ops.aten.diagonal.default: torch.ops.aten.diagonal_scatter.default,
}
"""Views of parts, and what writes such a part."""
_REORDERED = (
    torch.ops.aten.t.default,
    torch.ops.aten.transpose.int,
    torch.ops.aten.permute.default,
    torch.ops.aten.unsqueeze.default,
)
"""Views of all elements that another view undoes."""
_STRIDED = (torch.ops.aten.as_strided.default,)
"""Views of places in memory rather than elements."""

_VIEWS_OR_COPIES = (
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.reshape.default,
    torch.ops.aten.flatten.using_ints,
    torch.ops.aten.contiguous.default,
    torch.ops.aten.dropout.default,
)

_Table = dict[OperatorBase, Callable[..., Any]]


class _Declined(Exception):
    """The program needs more than local changes."""


def decomposed_by_node(program: ExportedProgram) -> ExportedProgram | None:
    """The program with nodes replaced one by one; None if PyTorch has to decompose it as a whole."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    output = graph.graph_copy(program.graph, copies)
    graph.output(output).meta = dict(next(iter(reversed(program.graph.nodes))).meta)
    for old, new in copies.items():
        new.name = old.name  # graph_copy renames nodes that have the name of a builtin function
    try:
        _check_regions(graph)
        specs = _with_updates(program, graph, _make_functional(graph))
        _decompose_nodes(graph)
    except _Declined:
        return None
    graph.eliminate_dead_code()
    module = GraphModule(torch.nn.Module(), graph)
    module.meta.update(program.graph_module.meta)
    result = copy.copy(program)
    result._graph_module = module
    result._graph_signature = _renamed(program, specs, graph)
    return result


def _with_updates(program: ExportedProgram, graph: Graph, values: Mapping[Node, Node]) -> list[OutputSpec]:
    """Makes the new values of inputs the first results, and returns what the results are."""
    known = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
    output = next(iter(reversed(graph.nodes)))
    specs = []
    for changed, value in values.items():
        spec = known.get(changed.name)
        kind = _UPDATES.get(spec.kind) if spec is not None else None
        if spec is None or kind is None:
            raise _Declined
        target = changed.name if kind is OutputKind.USER_INPUT_MUTATION else spec.target
        specs.append(OutputSpec(kind, TensorArgument(name=value.name), target))
    output.args = ((*values.values(), *output.args[0]),)  # type: ignore[misc]
    return [*specs, *program.graph_signature.output_specs]


def _renamed(program: ExportedProgram, known: Sequence[OutputSpec], graph: Graph) -> Any:
    """The signature with the names of the nodes that are returned now."""
    returned = next(iter(reversed(graph.nodes))).args[0]
    assert isinstance(returned, (tuple, list))
    specs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=node.name))
        if isinstance(node, Node) and hasattr(spec.arg, "name")
        else spec
        for spec, node in zip(known, returned, strict=True)
    ]
    return dataclasses.replace(program.graph_signature, output_specs=specs)


# -- in-place operations --------------------------------------------------------------------------------------------


def _make_functional(graph: Graph) -> dict[Node, Node]:
    """Replaces what changes tensors by what makes new ones; the last values of the inputs that are changed."""
    mutable = [node for node in graph.nodes if _is_mutable(node.target)]
    order = {node: place for place, node in enumerate(graph.nodes)}
    regions = _regions(graph) if mutable else {}
    holding = _holding(graph) if mutable else {}
    changed: dict[Node, Node] = {}
    """The inputs, by the values that share their storage."""
    last: dict[Node, Node] = {}
    made: set[Node] = set()
    for node in mutable:
        if node.target is torch.ops.aten.detach_.default or _copies_itself(node):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            graph.erase_node(node)
            continue
        views = _views(node, made)
        base = views[0].args[0] if views else node.args[0]
        assert isinstance(base, Node)
        known = base in made or _is_new(base) or _is_new_part(base) or _is_sole(base, made, regions)
        if not known and base.op != "placeholder":
            raise _Declined
        if any(regions[x] != regions[node] for x in (base, *views)):
            raise _Declined
        _check_aliases(base, node, order)
        with _assumed(holding[node], node):
            value = _functional(node)
        order[value], regions[value] = order[node], regions[node]
        with graph.inserting_before(node):
            for view in reversed(views):
                value = _scattered(view, value)
                order[value], regions[value] = order[node], regions[node]
            again = {base: value}
            for view in views:
                again[view] = _made_again(view, again[view.args[0]], order, regions, order[node])  # type: ignore[index]
            node.replace_all_uses_with(again[views[-1] if views else base])
            _use_new(base, value, node, again, order, regions)
        graph.erase_node(node)
        for view in reversed(views):
            for unused in (again[view], view):
                if not unused.users:
                    graph.erase_node(unused)
        made.add(value)
        if base.op == "placeholder" or base in changed:
            changed[value] = changed.get(base, base)
            last[changed[value]] = value
    return last


def _copies_itself(node: Node) -> bool:
    """The rest of ``self.total += x``, which also assigns the changed tensor to the attribute."""
    return node.target is torch.ops.aten.copy_.default and node.args[0] is node.args[1]


def _views(node: Node, made: set[Node]) -> list[Node]:
    """The views between the tensor that owns the storage and the one that a node changes, in that order."""
    changed = [a for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]  # type: ignore[union-attr]
    schema = node.target._schema  # type: ignore[union-attr]
    operand = node.args[0] if node.args else None
    in_place = schema.name.endswith("_") and len(changed) == 1 and changed[0] is schema.arguments[0]
    if not in_place or sum(argument is operand for argument in pytree.tree_leaves((node.args, node.kwargs))) != 1:
        raise _Declined
    views: list[Node] = []
    while isinstance(operand, Node) and operand not in made and operand.target in (*_SCATTERS, *_REORDERED):
        views.insert(0, operand)
        operand = operand.args[0]
    if not isinstance(operand, Node):
        raise _Declined
    return views


def _check_aliases(tensor: Node, node: Node, order: Mapping[Node, int]) -> None:
    """Declines if ``node`` changes what shares memory with ``tensor`` in a way that is not known."""
    for user in tensor.users:
        if user is node or order[user] > order[node] or _is_new(user):
            continue
        if _is_view(user) and sum(x is tensor for x in user.all_input_nodes) == 1:
            _check_aliases(user, node, order)
        elif not _is_past(user, node, order):
            raise _Declined


def _is_past(alias: Node, node: Node, order: Mapping[Node, int]) -> bool:
    """Whether nothing uses what may share memory with a tensor once ``node`` changes that."""
    plain = alias.target is operator.getitem or getattr(alias.target, "namespace", None) == "aten"
    return plain and all(
        user is not node and order[user] < order[node] and (_is_new(user) or _is_past(user, node, order))
        for user in alias.users
    )


def _use_new(
    old: Node, new: Node, node: Node, again: dict[Node, Node], order: dict[Node, int], regions: dict[Node, int]
) -> None:
    """Makes the nodes after ``node`` use ``new``, and creates views from before it again."""
    for user in list(old.users):
        if user is node or user in again.values():
            continue
        if order[user] > order[node]:
            user.replace_input_with(old, new)
        elif _is_view(user) and not _is_past(user, node, order):
            if user not in again:
                again[user] = _made_again(user, new, order, regions, order[node])
            _use_new(user, again[user], node, again, order, regions)


def _made_again(view: Node, of: Node, order: dict[Node, int], regions: dict[Node, int], place: int) -> Node:
    """The same view of another tensor, where nodes are inserted now."""
    made = view.graph.call_function(view.target, (of, *view.args[1:]), view.kwargs)  # type: ignore[arg-type]
    made.meta = dict(view.meta)
    order[made], regions[made] = place, regions[of]
    return made


def _scattered(view: Node, value: Node) -> Node:
    """The tensor that ``view`` shows a part of, with ``value`` there."""
    arguments: list[Any] = list(view.args[1:])
    whole = view.args[0]
    old = whole.meta.get("val") if isinstance(whole, Node) else None
    if not isinstance(old, FakeTensor) or view.kwargs:
        raise _Declined
    target: Any = view.target
    operands: tuple[Any, ...] = (value,)
    if target is torch.ops.aten.permute.default:
        order = [place % old.dim() for place in arguments[0]]  # type: ignore[union-attr]
        arguments = [[order.index(place) for place in range(old.dim())]]
    elif target is torch.ops.aten.unsqueeze.default:
        target = torch.ops.aten.squeeze.dim
    elif target in _SCATTERS:
        target, operands = _SCATTERS[target], (whole, value)
    if view.target is torch.ops.aten.narrow.default:
        start, length = (x.meta.get("val") if isinstance(x, Node) else x for x in arguments[1:])
        if not isinstance(start, (int, torch.SymInt)) or not isinstance(length, (int, torch.SymInt)):
            raise _Declined
        if not statically_known_true(start >= 0):
            raise _Declined
        end = view.graph.call_function(operator.add, tuple(arguments[1:]))
        end.meta["val"] = start + length
        arguments[2] = end
    result = view.graph.call_function(target, (*operands, *arguments))
    args = pytree.tree_map_only(Node, lambda n: n.meta.get("val"), result.args)
    with old.fake_mode, enable_python_dispatcher():
        result.meta = {**value.meta, "val": target(*args)}
    return result


def _functional(node: Node) -> Node:
    """The node that computes the new value of what a node changes, of which nothing else is changed."""
    schema = node.target._schema  # type: ignore[union-attr]
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"), None)
    target = getattr(packet, schema.overload_name or "default", None)
    if target is None or target._schema.is_mutable or not schema.name.startswith("aten::"):
        raise _Declined
    names = [a.name for a in schema.arguments]
    old = node.args[0].meta.get("val")  # type: ignore[union-attr]
    if names != [a.name for a in target._schema.arguments] or not isinstance(old, FakeTensor):
        raise _Declined
    args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta.get("val"), (node.args, node.kwargs))
    with old.fake_mode, enable_python_dispatcher():
        new = target(*args, **kwargs)
    # An in-place operation keeps dtype and shape of what it changes; the functional one may promote or broadcast.
    if new.dtype != old.dtype or new.dim() != old.dim() or not _same_sizes(new, old):
        raise _Declined
    with node.graph.inserting_before(node):
        value = node.graph.call_function(target, node.args, node.kwargs)
    value.meta = {**node.meta, "val": new}
    value.meta.pop("tensor_meta", None)
    return value


def _same_sizes(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(_expression(x) == _expression(y) for x, y in zip(a.shape, b.shape, strict=True))


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _is_mutable(target: Any) -> bool:
    return isinstance(target, OpOverload) and target._schema.is_mutable


def _is_new(node: Node) -> bool:
    """Whether the results of a node are not views of its operands."""
    target = node.target
    if node.op == "output":
        return True
    if node.op != "call_function" or not isinstance(target, OpOverload) or target in _ALIASES:
        return False
    if target._schema.is_mutable or any(result.alias_info is not None for result in target._schema.returns):
        return False
    if not any("Tensor" in str(result.type) for result in target._schema.returns):
        return True  # sizes
    if target is torch.ops.aten.einsum.default:
        return isinstance(node.args[1], (tuple, list)) and len(node.args[1]) > 1  # of one operand it may be a view
    composite = target._can_decompose() and has_kernel(target.name(), "CompositeImplicitAutograd")
    return not composite or target._schema.name.removeprefix("aten::") in _NEW


def _is_view(node: Node) -> bool:
    """Whether a node is nothing but a view of its first operand, whatever the sizes."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten" or target in _STRIDED:
        return False
    returns = target._schema.returns
    if target._schema.is_mutable or len(returns) != 1 or returns[0].alias_info is None:
        return False
    if str(returns[0].type) != "Tensor":
        return False
    composite = has_kernel(target.name(), "CompositeImplicitAutograd")
    return not composite or target in (*_SCATTERS, *_REORDERED)


def _is_new_part(node: Node) -> bool:
    """Whether a node takes one of several results of an operation, which is new, and no other node takes the same."""
    if node.target is not operator.getitem:
        return False
    source, index = node.args
    if not isinstance(source, Node) or getattr(source.target, "namespace", None) != "aten" or not _is_new(source):
        return False
    return all(user is node or (user.target is operator.getitem and user.args[1] != index) for user in source.users)


def _is_sole(node: Node, made: set[Node], regions: Mapping[Node, int]) -> bool:
    """Whether a node is a view or a copy of a new tensor that nothing else uses, so that it need not be known which."""
    source = node.args[0] if node.target in (*_VIEWS_OR_COPIES, *_REORDERED) else None
    if not isinstance(source, Node) or len(source.users) != 1 or regions[source] != regions[node]:
        return False
    return source in made or _is_new(source) or _is_sole(source, made, regions)


def _regions(graph: Graph, around: dict[Node, tuple[int, ...]] | None = None) -> dict[Node, int]:
    """The number of the region of control flow that each node is in; ``around`` gets those of the regions around it."""
    regions: dict[Node, int] = {}
    open_regions = [0]
    count = 0
    for node in graph.nodes:
        if node.target in _ENDS or node.target in _SIDES:
            open_regions.pop()
        if node.target in _BEGINS or node.target in _SIDES:
            count += 1
            open_regions.append(count)
        regions[node] = open_regions[-1]
        if around is not None:
            around[node] = tuple(open_regions)
    return regions


def _check_regions(graph: Graph) -> None:
    """Declines if a region computes sizes that are used after it: export does not compute them again there."""
    around: dict[Node, tuple[int, ...]] = {}
    _regions(graph, around)
    for node in graph.nodes:
        if not markers.is_marker(node.target) and any(around[x][-1] not in around[node] for x in node.all_input_nodes):
            raise _Declined


# -- operations without a rule --------------------------------------------------------------------------------------


def _decompose_nodes(graph: Graph) -> None:
    if any(node.op == "get_attr" or _needs_tracing(node.target) for node in graph.nodes):
        raise _Declined
    open_nodes = {n: f for n, f in _holding(graph).items() if n.op == "call_function" and not _is_kept(n)}
    if not open_nodes:
        return
    kept, table = split_decomposition_table(decomposition_table())
    # It touches every composite operation of PyTorch, so it is entered once and not for each node.
    with override_composite_implicit_decomp(kept):
        for node, holding in open_nodes.items():
            with _assumed(holding, node):
                _decompose_node(node, table)


def _holding(graph: Graph) -> dict[Node, list[Any]]:
    """The conditions of the branches that each node is in."""
    found: dict[Node, list[Any]] = {}
    branches: list[list[Any]] = []
    for node in graph.nodes:
        if node.target is markers.branch_begin:
            branches.append([])
        elif node.target is markers.branch_else:
            branches[-1] = []
        elif node.target is markers.branch_end:
            branches.pop()
        elif node.target is markers.branch_fact:
            _, kind, value = node.args
            known = value.meta.get("val") if isinstance(value, Node) else value
            if isinstance(known, torch.SymInt):
                branches[-1].append(markers.fact(kind, known.node.expr))
        found[node] = [fact for branch in branches for fact in branch]
    return found


@contextmanager
def _assumed(holding: Sequence[Any], node: Node) -> Iterator[None]:
    """While it is active, conditions are assumed: if the decomposition of ``node`` needs them, they do not become
    conditions of the whole program."""
    mode = _mode_of(node)
    if not holding or mode is None or mode.shape_env is None:
        yield
        return
    known = facts.Facts(mode.shape_env)
    try:
        with mode:
            for fact in holding:
                facts.assume(fact)
        yield
    finally:
        known.restore()


def _mode_of(node: Node) -> FakeTensorMode | None:
    return next((v.fake_mode for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, FakeTensor)), None)


def _needs_tracing(target: Any) -> bool:
    """Whether a function of Python's disappears, or takes another form, when the program is traced again."""
    if target in (torch.ops.aten.stride.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_storage_offset.default):
        return True
    return "functorch" in str(getattr(target, "__module__", ""))


def _is_kept(node: Node) -> bool:
    return (lowers_as_it_is(node.target) or markers.is_marker(node.target)) and not trains(node)


def _decompose_node(node: Node, table: _Table) -> None:
    target = node.target
    if not isinstance(target, OpOverload) or trains(node):
        raise _Declined
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    nodes = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    values = [n.meta.get("val") for n in nodes]
    mode = _mode_of(node)
    if mode is None or not all(isinstance(v, (FakeTensor, torch.SymInt)) for v in values):
        raise _Declined

    def call(*given: Any) -> Any:
        known = dict(zip(nodes, given, strict=True))
        args, kwargs = pytree.tree_unflatten([known[x] if isinstance(x, Node) else x for x in leaves], spec)
        return target(*args, **kwargs)

    with fx_traceback.preserve_node_meta(), fx_traceback.set_current_meta(node):
        body = _trace(call, values, mode, table)
    if not any(n.op == "call_function" and n.target is target for n in body.nodes):
        _inline(node, nodes, body)
    elif not all(n.op in ("placeholder", "output") or n.target is target for n in body.nodes):
        raise _Declined


def _trace(call: Callable[..., Any], values: Sequence[Any], mode: FakeTensorMode, table: _Table) -> Graph:
    ignored = mode.shape_env.ignore_fresh_unbacked_symbols() if mode.shape_env is not None else nullcontext()
    with mode, ignored, enable_python_dispatcher():
        body = make_fx(call, decomposition_table=table)(*values).graph  # type: ignore[arg-type]
    body.eliminate_dead_code()
    return body


def _agree(results: Any, values: Any) -> bool:
    """Whether the results of a decomposition have the sizes and dtypes of the operation in the export.

    They differ if the operation's own shape function is wrong, as that of ``unfold_backward`` for a gradient that must
    be broadcast; then the following nodes of the program have other sizes too.
    """
    if isinstance(results, Node):
        value = results.meta.get("val")
        if not isinstance(values, torch.Tensor) or not isinstance(value, torch.Tensor):
            return type(value) is type(values)
        same = value.dtype == values.dtype and value.dim() == values.dim()
        return same and all(statically_known_true(a == b) for a, b in zip(value.shape, values.shape, strict=True))
    if isinstance(results, (tuple, list)) and isinstance(values, (tuple, list)):
        return len(results) == len(values) and all(_agree(r, v) for r, v in zip(results, values, strict=True))
    return results is None


def _name_as_before(inner: Sequence[Node], results: Any, node: Node, known: Container[sympy.Symbol]) -> None:
    """Gives data-dependent sizes of a decomposition the symbols that they have in the program.

    Each trace makes new ones, and the rest of the program uses those of the operation's results.
    """
    pairs = zip(pytree.tree_leaves(results), pytree.tree_leaves(node.meta.get("val")), strict=False)
    before: dict[Any, Any] = {}
    for result, value in pairs:
        made = result.meta.get("val") if isinstance(result, Node) else None
        for new, old in zip(_sizes(made), _sizes(value), strict=False):
            if new.is_Symbol and new not in known and old.is_Symbol:
                before.setdefault(new, old)
    if not before:
        return
    for part in inner:
        part.meta["val"] = pytree.tree_map(lambda value: _with_symbols(value, before), part.meta.get("val"))
        if bound := part.meta.get("unbacked_bindings"):
            part.meta["unbacked_bindings"] = {before.get(symbol, symbol): path for symbol, path in bound.items()}


def _sizes(value: Any) -> list[Any]:
    """The expressions of a tensor's sizes, or of a number, without what has been found out about their symbols."""
    numbers = value.shape if isinstance(value, torch.Tensor) else [value] if isinstance(value, torch.SymInt) else []
    return [sympy.sympify(n.node._expr if isinstance(n, torch.SymInt) else n) for n in numbers]


def _with_symbols(value: Any, symbols: Mapping[Any, Any]) -> Any:
    """A traced value with other symbols in its sizes."""

    def number(size: Any) -> Any:
        if not isinstance(size, torch.SymInt) or not symbols.keys() & size.node._expr.free_symbols:
            return size
        return size.node.shape_env.create_symintnode(size.node._expr.xreplace(symbols), hint=None)

    if not isinstance(value, FakeTensor):
        return number(value)
    shape, strides = list(map(number, value.shape)), list(map(number, value.stride()))
    if all(map(operator.is_, (*shape, *strides), (*value.shape, *value.stride()))):
        return value
    with value.fake_mode:
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def _inline(node: Node, operands: Sequence[Node], body: Graph) -> None:
    """Replaces a node by the graph of its decomposition."""
    inner = [n for n in body.nodes if n.op not in ("placeholder", "output")]
    if not all(n.op == "call_function" and _is_kept(n) and not _needs_tracing(n.target) for n in inner):
        raise _Declined
    results = next(iter(reversed(body.nodes))).args[0]
    known_symbols = free_symbols([x.meta.get("val") for x in (node, *operands)])
    _name_as_before(inner, results, node, known_symbols)
    if not all(free_symbols(n.meta.get("val")) <= known_symbols for n in inner):
        raise _Declined
    if not _agree(results, node.meta.get("val")):
        raise _Declined
    graph = node.graph
    origin = {key: node.meta[key] for key in _ORIGIN if key in node.meta}
    known = dict(zip((n for n in body.nodes if n.op == "placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        for part in inner:
            known[part] = graph.node_copy(part, known.__getitem__)
            known[part].meta = {**origin, "val": part.meta.get("val")}
            if bound := part.meta.get("unbacked_bindings"):
                known[part].meta["unbacked_bindings"] = bound
    if isinstance(results, Node):
        node.replace_all_uses_with(known[results])
    else:
        assert isinstance(results, (tuple, list))
        for user in list(node.users):
            result = results[user.args[1]] if user.target is operator.getitem else None  # type: ignore[index]
            if not isinstance(result, Node):
                raise _Declined
            user.replace_all_uses_with(known[result])
            graph.erase_node(user)
    graph.erase_node(node)
