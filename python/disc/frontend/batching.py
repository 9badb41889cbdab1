"""Runs a traced function for many values at once: each op of its graph over tensors with one more dim in front.

It does the same as ``torch.vmap``, but on a graph of ATen ops, and for a batch of any size, also a data-dependent one:
the function is traced for one value, whose shapes are static, and no rule reads the batch's size. A tensor is
either a batch, with the new dim as its first, or the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ..torch_compat import pytree
from ..torch_compat.operators import OpOverload, core_aten_decompositions
from .decompositions import OWN

_aten: Any = torch.ops.aten


class NotBatchable(Exception):
    """An op has no rule; the message says which."""

    def __init__(self, what: str, node: Node) -> None:
        super().__init__(what)
        self.node = node


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions to trace a function with: PyTorch's, for ops that have no rule here."""
    table = {**core_aten_decompositions(), **OWN}
    kept = {*_RULES, _aten.embedding_dense_backward}
    return {op: fn for op, fn in table.items() if op.overloadpacket not in kept and torch.Tag.pointwise not in op.tags}


@dataclass(frozen=True)
class Batch:
    """A tensor for each value, along a first dim."""

    tensor: Tensor


def constant_of(graph: GraphModule, node: Node) -> Any:
    """The tensor of a ``get_attr`` node."""
    assert isinstance(node.target, str)
    return getattr(graph, node.target)


def run_batched(
    graph: GraphModule, batches: Mapping[int, Tensor], extent: Any, known: Mapping[Node, Batch] | None = None
) -> list[Any]:
    """The outputs of ``graph``: tensors with a first dim of ``extent``, and other values as they are.

    ``graph`` has no inputs: ``batches`` are those of its constant tensors that differ from value to value, by their id.
    ``known`` are values of nodes that need not be computed.
    """
    output = graph.graph.output_node()
    values = evaluate(graph, output.all_input_nodes, batches, extent, dict(known or {}))
    results = pytree.tree_map_only(Node, lambda n: values[n], list(output.args[0]))  # type: ignore[arg-type]
    return [spread(x, extent) if isinstance(x, (Tensor, Batch)) else x for x in results]


def evaluate(
    graph: GraphModule, wanted: Sequence[Node], batches: Mapping[int, Tensor], extent: Any, values: dict[Node, Any]
) -> dict[Node, Any]:
    """``values`` with those of the nodes that are ``wanted``, and of what they need."""
    needed, pending = set(), list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed and node not in values:
            needed.add(node)
            pending += node.all_input_nodes
    for node in graph.graph.nodes:
        if node not in needed:
            continue
        if node.op == "get_attr":
            own = constant_of(graph, node)
            values[node] = Batch(batches[id(own)]) if id(own) in batches else own
        elif node.op == "call_function":
            args, kwargs = pytree.tree_map_only(Node, lambda n: values[n], (node.args, node.kwargs))
            values[node] = _call(node, args, kwargs, extent)
        else:
            raise NotBatchable(f"{node.op} {node.target}", node)
    return values


def needed_inputs(
    graph: GraphModule, wanted: Sequence[Node], inputs: Collection[int], known: Collection[Node]
) -> set[int]:
    """Those of ``inputs`` (ids of constants) that the nodes ``wanted`` need where some values are known."""
    found, met, pending = set(), set(known), list(wanted)
    while pending:
        node = pending.pop()
        if node in met:
            continue
        met.add(node)
        pending += node.all_input_nodes
        if node.op == "get_attr" and id(constant_of(graph, node)) in inputs:
            found.add(id(constant_of(graph, node)))
    return found


def find_independent(graph: GraphModule, changing: Collection[int], own: Collection[int]) -> list[Node]:
    """The nodes that depend on tensors of ``own`` (ids) and not on those of ``changing``, and that others need.

    Nothing that is changed in place is among them.
    """
    free: set[Node] = set()
    depends: set[Node] = set()
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            place = id(constant_of(graph, node))
            if place not in changing:
                free.add(node)
            if place in own:
                depends.add(node)
        elif node.op == "call_function":
            target: Any = node.target
            if isinstance(target, OpOverload) and target._schema.is_mutable:
                return []
            if all(n in free for n in node.all_input_nodes):
                free.add(node)
            if any(n in depends for n in node.all_input_nodes):
                depends.add(node)
    return [
        node
        for node in graph.graph.nodes
        if node in free
        and node in depends
        and node.op == "call_function"
        and isinstance(node.meta.get("val"), Tensor)
        and any(user not in free for user in node.users)
    ]


# Ops for which the sum over a batch of what they make is what they make of the sum.
_LINEAR = (_aten.t, _aten.transpose, _aten.permute, _aten.view, _aten.reshape, _aten._unsafe_view, _aten.squeeze,
           _aten.unsqueeze, _aten.neg, _aten.detach, _aten.alias, _aten.clone)  # fmt: skip


def summed(
    graph: GraphModule, node: Node, batches: Mapping[int, Tensor], extent: Any, values: dict[Node, Any]
) -> Tensor:
    """The sum over the batch of what ``node`` computes: products of matrices become one, of the whole batch."""
    target: Any = node.target
    packet = getattr(target, "overloadpacket", None)
    operands = [x for x in node.args if isinstance(x, Node)]
    if packet in _LINEAR and node.all_input_nodes == [node.args[0]]:
        total: Tensor = target(summed(graph, operands[0], batches, extent, values), *node.args[1:], **node.kwargs)
        return total
    alike = all(x.meta["val"].shape == node.meta["val"].shape for x in operands)
    if packet is _aten.add and len(operands) == 2 and not node.kwargs and alike:
        a, b = (summed(graph, x, batches, extent, values) for x in operands)
        return a + b
    if packet in (_aten.mm, _aten.embedding_dense_backward):
        evaluate(graph, operands, batches, extent, values)
        (x, batched_x), (y, batched_y) = (_parts(values[n]) for n in operands)
        if packet is not _aten.mm:
            total = target(x, y, *node.args[2:])
            return total
        if batched_x and batched_y:
            rows, inner, columns = x.shape[1], x.shape[2], y.shape[2]
            wide = x.squeeze(2).t() if inner == 1 else x.permute(1, 0, 2).reshape(rows, extent * inner)
            return torch.mm(wide, y.squeeze(1) if inner == 1 else y.reshape(extent * inner, columns))
        if batched_x or batched_y:
            return torch.mm(x.sum(0) if batched_x else x, y.sum(0) if batched_y else y)
    value, batched = _parts(evaluate(graph, [node], batches, extent, values)[node])
    return value.sum(0) if batched else value * extent


def _parts(value: Any) -> tuple[Tensor, bool]:
    return (value.tensor, True) if isinstance(value, Batch) else (value, False)


def same_code(graph: GraphModule, node: Node, batches: Mapping[int, Any], keys: dict[Node, Any]) -> Any:
    """A key that is equal for equal computations, in other graphs too. ``batches``: the value of each input."""
    if node not in keys:
        if node.op == "get_attr":
            own = id(constant_of(graph, node))
            keys[node] = ("input", batches[own]) if own in batches else ("constant", own)
        else:
            parts, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
            found = tuple(same_code(graph, x, batches, keys) if isinstance(x, Node) else (type(x), x) for x in parts)
            keys[node] = (node.target, str(spec), found)
    return keys[node]


def spread(x: Tensor | Batch, extent: Any) -> Tensor:
    """A batch of what may be the same for all."""
    return x.tensor if isinstance(x, Batch) else x.unsqueeze(0).expand(extent, *x.shape)


def _is_batch(x: Any) -> bool:
    return isinstance(x, Batch)


@dataclass
class _Call:
    """One op, with the operands of its schema by name."""

    node: Node
    operands: dict[str, Any]
    extent: Any

    @property
    def target(self) -> Any:
        return self.node.target

    def rank(self, name: str) -> int:
        """The dims of an operand for one value."""
        value = self.operands[name]
        return value.tensor.dim() - 1 if isinstance(value, Batch) else value.dim()

    def run(self) -> Any:
        """The op on the operands as they are now."""
        positional, named = [], {}
        plain = {
            name: pytree.tree_map_only(Batch, lambda b: b.tensor, value, is_leaf=_is_batch)
            for name, value in self.operands.items()
        }
        for argument in self.target._schema.arguments:
            if argument.name in plain:
                if argument.kwarg_only:
                    named[argument.name] = plain[argument.name]
                else:
                    positional.append(plain[argument.name])
        return pytree.tree_map_only(Tensor, Batch, self.target(*positional, **named))

    def batched(self) -> list[str]:
        """The names of the operands that are batches, or lists that hold some."""
        return [n for n, v in self.operands.items() if any(map(_is_batch, pytree.tree_leaves(v, is_leaf=_is_batch)))]


def _call(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], extent: Any) -> Any:
    target: Any = node.target
    leaves = pytree.tree_leaves((args, kwargs), is_leaf=_is_batch)
    if not any(map(_is_batch, leaves)):
        return target(*args, **kwargs)
    if not isinstance(target, OpOverload):
        # getitem of a list of results.
        return target(*args, **kwargs)
    names = [argument.name for argument in target._schema.arguments]
    operands = dict(zip(names, args, strict=False)) | dict(kwargs)
    for argument in target._schema.arguments:
        if argument.name not in operands and argument.has_default_value():
            operands[argument.name] = argument.default_value
    call = _Call(node, operands, extent)
    rule = _RULES.get(target.overloadpacket)
    if rule is None:
        rule = _pointwise if torch.Tag.pointwise in target.tags else _along_dims
    return rule(call)


# -- rules -----------------------------------------------------------------------------------------------------


def _pointwise(call: _Call) -> Any:
    tensors = [n for n, v in call.operands.items() if isinstance(v, (Tensor, Batch))]
    rank = max(map(call.rank, tensors))
    for name in tensors:
        value = call.operands[name]
        if isinstance(value, Batch):
            x = value.tensor
            while x.dim() <= rank:
                x = x.unsqueeze(1)
            call.operands[name] = Batch(x)
        elif call.rank(name) == rank and name == "self" and call.target._schema.is_mutable:
            raise NotBatchable(f"{call.target} changes in place what is the same for all", call.node)
    result = call.run()
    # A number among tensors does not decide the dtype of a result; a batch of them would.
    dtype = call.node.meta["val"].dtype
    return result if result.tensor.dtype == dtype else Batch(result.tensor.to(dtype))


def _shifted(dim: int, rank: int) -> int:
    return (dim if dim >= 0 else dim + max(rank, 1)) + 1


# Ops that take a dim of the result, which has one more.
_INSERTING = (_aten.unsqueeze, _aten.unsqueeze_, _aten.stack)
_DIMS = ("dim", "dims", "dim0", "dim1", "dim2")


def _along_dims(call: _Call) -> Any:
    """Ops of which arguments name the dims that they work along: those move up by one."""
    schema = call.target._schema
    batched = call.batched()
    named = [a for a in schema.arguments if a.name in _DIMS]
    tensors = [a.name for a in schema.arguments if isinstance(call.operands.get(a.name), (Tensor, Batch))]
    lists = [n for n in batched if isinstance(call.operands[n], (list, tuple))]
    if not named or schema.arguments[0].name not in batched or (lists and len(batched) > 1):
        raise NotBatchable(f"{call.target} has no rule for batches", call.node)
    first = schema.arguments[0].name
    if lists:
        items = list(call.operands[first])
        call.operands[first] = [Batch(spread(x, call.extent)) for x in items]
        rank = call.operands[first][0].tensor.dim() - 1
    else:
        rank = call.rank(first)
        for name in tensors:
            # Others beside the first (an index, a source) have as many dims.
            call.operands[name] = Batch(spread(call.operands[name], call.extent))
            if call.rank(name) != rank:
                raise NotBatchable(f"{call.target} has no rule for batches of unlike ranks", call.node)
    if rank == 0 and call.target.overloadpacket not in _INSERTING:
        raise NotBatchable(f"{call.target} of a number has no rule for batches", call.node)
    rank += call.target.overloadpacket in _INSERTING
    for argument in named:
        dims = call.operands.get(argument.name)
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            if "List" not in str(argument.type):
                raise NotBatchable(f"{call.target} over all dims has no rule for batches", call.node)
            call.operands[argument.name] = list(range(1, rank + 1))
        elif isinstance(dims, int):
            call.operands[argument.name] = _shifted(dims, rank)
        else:
            call.operands[argument.name] = [_shifted(d, rank) for d in dims]
    return call.run()


def _over_all(packet: Any) -> Callable[[_Call], Any]:
    """A reduction; without dims, over all of them."""

    def rule(call: _Call) -> Any:
        if "dim" in call.operands and call.operands["dim"] is not None and call.operands["dim"] != []:
            return _along_dims(call)
        rank = call.rank("self")
        x = call.operands["self"].tensor
        if rank == 0:
            x, rank = x.unsqueeze(1), 1
        named = {k: v for k, v in call.operands.items() if k in ("dtype", "keepdim")}
        return Batch(packet(x, list(range(1, rank + 1)), **named))

    return rule


def _flat(packet: Any) -> Callable[[_Call], Any]:
    """A reduction of one dim that, without one, flattens."""

    def rule(call: _Call) -> Any:
        if call.operands.get("dim") is not None:
            return _along_dims(call)
        result = packet(call.operands["self"].tensor.flatten(1), 1)
        return Batch(result[0] if isinstance(result, tuple) else result)

    return rule


def _permute(call: _Call) -> Any:
    rank = call.rank("self")
    call.operands["dims"] = [0, *(_shifted(d, rank) for d in call.operands["dims"])]
    return call.run()


def _transposed(call: _Call) -> Any:
    x = call.operands["self"].tensor
    return Batch(x.transpose(1, 2) if x.dim() == 3 else x)


def _resized(call: _Call) -> Any:
    """Views by the extents of the result."""
    name = "size" if "size" in call.operands else "shape"
    call.operands[name] = [call.extent, *call.operands[name]]
    return call.run()


def _expand(call: _Call) -> Any:
    x, size = call.operands["self"].tensor, list(call.operands["size"])
    while x.dim() <= len(size):
        x = x.unsqueeze(1)
    return Batch(x.expand(call.extent, *size))


def _repeat(call: _Call) -> Any:
    x, repeats = call.operands["self"].tensor, list(call.operands["repeats"])
    while x.dim() <= len(repeats):
        x = x.unsqueeze(1)
    return Batch(x.repeat(1, *repeats))


def _squeeze(call: _Call) -> Any:
    x = call.operands["self"].tensor
    rank = x.dim() - 1
    dims = call.operands.get("dim")
    wanted = list(range(rank)) if dims is None else [dims] if isinstance(dims, int) else list(dims)
    for d in sorted((_shifted(d, rank) for d in wanted), reverse=True):
        if d < x.dim() and x.shape[d] == 1:
            x = x.squeeze(d)
    return Batch(x)


def _same(call: _Call) -> Any:
    """Ops that work on a batch without changes."""
    return call.run()


def _of_like_shape(call: _Call) -> Any:
    """``new_zeros`` and similar ops, which use only the dtype of the batch."""
    values = {n: v.tensor[:0].flatten() if isinstance(v, Batch) else v for n, v in call.operands.items()}
    return _unwrapped(_Call(call.node, values, call.extent).run())


def _unwrapped(x: Any) -> Any:
    return pytree.tree_map_only(Batch, lambda b: b.tensor, x, is_leaf=_is_batch)


def _matrices(call: _Call, name: str) -> tuple[Tensor, bool]:
    return _parts(call.operands[name])


def _product(x: Tensor, batched_x: bool, y: Tensor, batched_y: bool, extent: Any) -> Tensor:
    """Matrices [m, k] and [k, n] as [B, m, n]."""
    if batched_x and not batched_y:
        # One product of all rows.
        rows = x.shape[1]
        return torch.mm(x.reshape(extent * rows, x.shape[2]), y).reshape(extent, rows, y.shape[1])
    if batched_y and not batched_x:
        x = x.unsqueeze(0).expand(extent, *x.shape)
    return torch.bmm(x, y)


def _mm(call: _Call) -> Any:
    return Batch(_product(*_matrices(call, "self"), *_matrices(call, "mat2"), call.extent))


def _mv(call: _Call) -> Any:
    (x, batched_x), (v, batched_v) = _matrices(call, "self"), _matrices(call, "vec")
    if batched_v and not batched_x:
        return Batch(torch.mm(v, x.t()))
    return Batch(_product(x, batched_x, v.unsqueeze(-1), batched_v, call.extent).squeeze(-1))


def _dot(call: _Call) -> Any:
    (x, _), (y, _) = _matrices(call, "self"), _matrices(call, "tensor")
    return Batch((x * y).sum(-1))


def _bmm(call: _Call) -> Any:
    x, y = (spread(call.operands[n], call.extent) for n in ("self", "mat2"))
    batch = x.shape[1]
    result = torch.bmm(x.flatten(0, 1), y.flatten(0, 1))
    return Batch(result.reshape(call.extent, batch, x.shape[2], y.shape[3]))


def _addmm(call: _Call) -> Any:
    scaled = {n: call.operands.get(n, 1) for n in ("alpha", "beta")}
    product = _product(*_matrices(call, "mat1"), *_matrices(call, "mat2"), call.extent)
    bias, batched = _matrices(call, "self")
    if batched and bias.dim() == 2:
        bias = bias.unsqueeze(1)
    product = product if scaled["alpha"] == 1 else product * scaled["alpha"]
    return Batch(product + (bias if scaled["beta"] == 1 else bias * scaled["beta"]))


def _layer_norm(call: _Call) -> Any:
    if any(isinstance(call.operands.get(n), Batch) for n in ("weight", "bias")):
        raise NotBatchable(f"{call.target} with weights of each value's own has no rule for batches", call.node)
    return call.run()


def _embedding(call: _Call) -> Any:
    weight, batched = _matrices(call, "weight")
    if batched:
        raise NotBatchable(f"{call.target} of a table of each value's own has no rule for batches", call.node)
    return Batch(torch.nn.functional.embedding(_matrices(call, "indices")[0], weight))


def _index_select(call: _Call) -> Any:
    (x, batched_x), (index, batched_index) = _matrices(call, "self"), _matrices(call, "index")
    dim, rank = call.operands["dim"], call.rank("self")
    if not batched_index:
        return Batch(torch.index_select(x, _shifted(dim, rank), index))
    if batched_x or call.rank("index") > 1 or _shifted(dim, rank) != 1:
        raise NotBatchable(f"{call.target} with an index of each value's own has no rule for batches", call.node)
    flat = torch.index_select(x, 0, index.reshape(-1))
    return Batch(flat.reshape(call.extent, -1, *x.shape[1:]) if call.rank("index") else flat)


def _index(call: _Call) -> Any:
    (x, batched), indices = _matrices(call, "self"), list(call.operands["indices"])
    if batched or any(i is None for i in indices):
        raise NotBatchable(f"{call.target} of each value's own has no rule for batches", call.node)
    rank = max(i.tensor.dim() - 1 if isinstance(i, Batch) else i.dim() for i in indices)
    aligned = []
    for index in indices:
        wide = index.tensor if isinstance(index, Batch) else index
        while isinstance(index, Batch) and wide.dim() <= rank:
            wide = wide.unsqueeze(1)
        aligned.append(wide)
    return Batch(_aten.index.Tensor(x, aligned))


_RULES: dict[Any, Callable[[_Call], Any]] = {
    **{getattr(_aten, n): _over_all(getattr(_aten, n)) for n in ("sum", "mean", "amax", "amin")},
    **{getattr(_aten, n): _flat(getattr(torch, n)) for n in ("max", "min", "argmax", "argmin", "any", "all", "prod")},
    **dict.fromkeys((_aten.view, _aten.reshape, _aten._unsafe_view, _aten._reshape_copy, _aten.view_copy), _resized),
    **dict.fromkeys((_aten.squeeze, _aten.squeeze_), _squeeze),
    **dict.fromkeys((_aten.t, _aten.t_), _transposed),
    **dict.fromkeys(
        (_aten.clone, _aten.detach, _aten.alias, _aten._to_copy, _aten.contiguous, _aten.lift_fresh), _same
    ),
    **dict.fromkeys((_aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.empty_like), _same),
    **dict.fromkeys((_aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty), _of_like_shape),
    **dict.fromkeys((_aten.layer_norm, _aten.native_layer_norm, _aten.rms_norm), _layer_norm),
    _aten.permute: _permute,
    _aten.expand: _expand,
    _aten.repeat: _repeat,
    _aten.mm: _mm,
    _aten.mv: _mv,
    _aten.dot: _dot,
    _aten.bmm: _bmm,
    _aten.addmm: _addmm,
    _aten.embedding: _embedding,
    _aten.index_select: _index_select,
    _aten.index: _index,
}
