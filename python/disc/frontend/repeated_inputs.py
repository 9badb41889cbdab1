"""Inputs that may have one element along a dim where the model's code broadcasts it.

``x + y`` with two dynamic dims that are equal in the example makes them one symbol to ``torch.export``, and the
compiled model would refuse 1 beside 4. An input with 1 there may be repeated 4 times before the model runs, if all that
is done with it until it meets a tensor that has 4 is done to each element alone::

    %x: tensor<?xf32> {dims = [a]}, %y: tensor<?xf32> {dims = [a]}
 -> %x: tensor<?xf32> {dims = [a], repeats = [0]}, %y: tensor<?xf32> {dims = [a], repeats = [0]}

Followed through the graph are *sources*: the dims of inputs such that a tensor's dim has one element in eager exactly
if all of them have. If these are all dims of the symbol, or one of them must not be repeated, it has as many as in the
compiled model. Where another tensor's dim, or a number, reaches an operation that is not known to keep the elements
apart, its sources are not repeated. Nor are dims whose extents the model's own code reads (``rewriting/seen.py``): what
it decides by them is not in the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from ..torch_compat import pytree
from .hints import environment, is_hint, spec_of
from .rewriting.seen import seen_symbols

_Source = tuple[int, int]
"""An input and one of its dims."""
_Sources = frozenset[_Source]
_aten: Any = torch.ops.aten
_APART: _Sources = frozenset()


class _Mixed(Exception):
    """The result of an operation may differ for repeated elements."""

    def __init__(self, sources: Iterable[_Source]) -> None:
        self.sources = frozenset(sources)
        super().__init__()


class _Dims:
    """Of one symbol: what is known of the dims of all tensors of a graph that have it."""

    def __init__(self, symbol: sympy.Symbol, members: _Sources, repeated: set[_Source]) -> None:
        self.symbol, self.members, self.repeated = symbol, members, repeated
        self.sources: dict[Node, list[_Sources | None]] = {}

    def has(self, size: Any) -> bool:
        """Whether the symbol is in an extent or another number."""
        if isinstance(size, Node):
            size = size.meta.get("val")
        node = getattr(size, "node", None)
        return node is not None and self.symbol in node.expr.free_symbols

    def open(self, sources: _Sources | None) -> bool:
        """Whether a dim may have one element in eager, and more in the compiled model."""
        return sources is not None and sources <= self.repeated and not sources >= self.members

    def of(self, node: Node) -> list[_Sources | None]:
        """The sources of each dim of a tensor."""
        return self.sources.get(node) or [None] * _tensor(node).dim()

    def require_apart(self, *args: Any) -> None:
        """Raises if an argument, a tensor or a number, may be repeated."""
        for arg in pytree.tree_leaves(args):
            if isinstance(arg, Node) and isinstance(arg.meta.get("val"), torch.Tensor):
                for sources in self.of(arg):
                    if self.open(sources):
                        raise _Mixed(sources or ())
            elif self.has(arg):
                raise _Mixed(self.repeated)

    def follow(self, node: Node) -> None:
        """Notes the sources of a node's result."""
        if node.op == "output":
            self.require_apart(node.args)
        if node.op != "call_function" or _reads_a_size(node):
            return
        rule = _rule_of(node.target)
        if rule is None or not isinstance(node.meta.get("val"), torch.Tensor):
            self.require_apart(node.args, node.kwargs)
            return
        found = rule(self, node)
        sizes = _tensor(node).shape
        self.sources[node] = [s if self.has(size) else None for s, size in zip(found, sizes, strict=True)]


def _tensor(node: Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def _reads_a_size(node: Node) -> bool:
    return node.target in (_aten.sym_size.int, _aten.sym_constrain_range_for_size.default) or isinstance(
        node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)
    )


# PyTorch does not say of these that they work on each element alone, and broadcast.
_UNTAGGED = {
    *(_aten.floor_divide.default, _aten.complex.default, _aten.polar.default, _aten.hardtanh_backward.default),
    *(_aten.where.Scalar, _aten.where.ScalarOther, _aten.where.ScalarSelf, _aten.masked_fill.Tensor),
    *(getattr(_aten, f"__{name}__").Tensor for name in ("and", "or", "xor", "lshift", "rshift")),
    *(getattr(_aten, f"{name}_backward").default for name in ("leaky_relu", "softplus", "rrelu_with_noise")),
    *(_aten.hardswish.default, _aten.log_sigmoid.default, _aten.isclose.default, _aten.rsub.Tensor),
}
_QUANTIZED = ("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default")


def _is_pointwise(target: Any) -> bool:
    tags = getattr(target, "tags", ())
    if target in _UNTAGGED or str(target) in _QUANTIZED:
        return True
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags


def _rule_of(target: Any) -> Callable[[_Dims, Node], list[Any]] | None:
    if _is_mutable(target):
        # A copy may become its source itself, which is not repeated where it is a result.
        return _written if _is_pointwise(target) else None
    return _RULES.get(target) or (_pointwise if _is_pointwise(target) else None)


def _is_mutable(target: Any) -> bool:
    return bool(getattr(getattr(target, "_schema", None), "is_mutable", False))


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, Node) and isinstance(arg.meta.get("val"), torch.Tensor)


def _joined(rank: int, operands: Iterable[tuple[Sequence[Any], Sequence[_Sources | None]]]) -> list[Any]:
    """The sources of what is broadcast from sizes with theirs."""
    result: list[Any] = [_APART] * rank
    for sizes, sources in operands:
        for i, (size, found) in enumerate(zip(sizes, sources, strict=True), rank - len(sizes)):
            if isinstance(size, int) and size == 1:
                continue
            if found is None or result[i] is None:
                result[i] = None
            else:
                result[i] = frozenset({*result[i], *found})
    return [found if found != _APART else None for found in result]


def _pointwise(dims: _Dims, node: Node) -> list[Any]:
    """The operands are broadcast."""
    args = pytree.tree_leaves((node.args, node.kwargs))
    dims.require_apart([arg for arg in args if not _is_tensor(arg)])
    operands = [arg for arg in args if _is_tensor(arg)]
    rank = max((_tensor(x).dim() for x in operands), default=0)
    return _joined(rank, [(_tensor(x).shape, dims.of(x)) for x in operands])


def _written(dims: _Dims, node: Node) -> list[Any]:
    """In place: the other operands are broadcast to the tensor that changes, but not the other way around."""
    changed: Any = node.args[0]
    dims.require_apart(changed)
    _pointwise(dims, node)
    return dims.of(changed)


def _loss(dims: _Dims, node: Node) -> list[Any]:
    """Element-wise, then perhaps reduced to a number."""
    found = _pointwise(dims, node)
    return found if _tensor(node).dim() else _without(dims, found, range(len(found)), keepdim=False)


def _compared_rows(dims: _Dims, node: Node) -> list[Any]:
    """Vectors along a dim are compared, after broadcasting."""
    if node.target == _aten.cosine_similarity.default:
        dim = int(node.args[2]) if len(node.args) > 2 else int(node.kwargs.get("dim", 1))  # type: ignore[arg-type, call-overload]
    else:
        dim = -1
    found = _pointwise(dims, node)
    return _without(dims, found, dim, keepdim=len(found) == _tensor(node).dim())


def _viewed(dims: _Dims, node: Node) -> list[Any]:
    """Dims before and behind which there are as many elements as before stay what they are."""
    # It is not known which input's dim a number comes from.
    dims.require_apart(node.args[1:])
    x: Any = node.args[0]
    old, new = list(_tensor(x).shape), list(_tensor(node).shape)
    result: list[Any] = [None] * len(new)
    for i, sources in enumerate(dims.of(x)):
        if not dims.open(sources):
            continue
        places = [j for j, size in enumerate(new) if _same(size, old[i]) and _same(_count(new[:j]), _count(old[:i]))]
        if len(places) != 1:
            raise _Mixed(sources or ())
        result[places[0]] = sources
    return result


def _count(sizes: Sequence[Any]) -> Any:
    return sympy.Mul(*(size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes))


def _same(a: Any, b: Any) -> bool:
    return bool(_count([a]) == _count([b])) if not isinstance(a, sympy.Basic) else bool(a == b)


def _expanded(dims: _Dims, node: Node) -> list[Any]:
    dims.require_apart(node.args[1:])
    found = dims.of(node.args[0])  # type: ignore[arg-type]
    return [None] * (_tensor(node).dim() - len(found)) + found


def _sliced(dims: _Dims, node: Node) -> list[Any]:
    dims.require_apart(node.args[1:])
    found = list(dims.of(node.args[0]))  # type: ignore[arg-type]
    given: list[Any] = [*node.args, *(None, 0, None, None, 1)[len(node.args) :]]
    _, dim, start, end, step = given
    whole = start in (None, 0) and end in (None, sys.maxsize) and step == 1
    return found if whole else _along(dims, node, dim, keepdim=True)


def _moved(order: Callable[[Node, int], Sequence[int]]) -> Callable[[_Dims, Node], list[Any]]:
    """A rule for operations that only change the order of dims."""

    def rule(dims: _Dims, node: Node) -> list[Any]:
        found = dims.of(node.args[0])  # type: ignore[arg-type]
        return [found[i] for i in order(node, len(found))]

    return rule


def _transposed(node: Node, rank: int) -> list[int]:
    order = list(range(rank))
    if not order:
        return order
    a, b = (int(d) % rank for d in node.args[1:3])  # type: ignore[arg-type]
    order[a], order[b] = b, a
    return order


def _permuted(node: Node, rank: int) -> list[int]:
    order: Any = node.args[1]
    return [d % rank for d in order]


def _unsqueezed(dims: _Dims, node: Node) -> list[Any]:
    found: list[Any] = list(dims.of(node.args[0]))  # type: ignore[arg-type]
    found.insert(int(node.args[1]) % (len(found) + 1), None)  # type: ignore[arg-type]
    return found


def _along(dims: _Dims, node: Node, over: Any, keepdim: bool) -> list[Any]:
    """For operations along some dims: the other dims keep their sources."""
    return _without(dims, dims.of(node.args[0]), over, keepdim)  # type: ignore[arg-type]


def _without(dims: _Dims, found: Sequence[Any], over: Any, keepdim: bool) -> list[Any]:
    """The dims that some dims are not: their elements are mixed."""
    rank = len(found)
    over = range(rank) if over is None or over == [] else [over] if isinstance(over, int) else over
    along = {int(d) % rank for d in over} if rank else set()
    for d in along:
        if dims.open(found[d]):
            raise _Mixed(found[d] or ())
    return [None if d in along else s for d, s in enumerate(found) if keepdim or d not in along]


def _reduces(place: int, keepdim: int) -> Callable[[_Dims, Node], list[Any]]:
    """A rule for reductions whose dims and ``keepdim`` are the arguments at these places."""

    def rule(dims: _Dims, node: Node) -> list[Any]:
        dims.require_apart(node.args[1:])
        over = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
        keep = node.args[keepdim] if len(node.args) > keepdim else node.kwargs.get("keepdim", False)
        return _along(dims, node, over, bool(keep))

    return rule


def _rowwise(dims: _Dims, node: Node) -> list[Any]:
    return _along(dims, node, node.args[1], keepdim=True)


def _normalized(dims: _Dims, node: Node) -> list[Any]:
    dims.require_apart(node.args[1:], node.kwargs)
    return _along(dims, node, [-1 - d for d in range(len(node.args[1]))], keepdim=True)  # type: ignore[arg-type]


def _selected(dims: _Dims, node: Node) -> list[Any]:
    dims.require_apart(node.args[1:])
    return _along(dims, node, node.args[1], keepdim=False)


def _squeezed(dims: _Dims, node: Node) -> list[Any]:
    found = _along(dims, node, node.args[1], keepdim=True)
    dropped = _along(dims, node, node.args[1], keepdim=False)
    return found if len(found) == _tensor(node).dim() else dropped


def _multiplied(dims: _Dims, x: Node, y: Node, transposed: bool = False) -> list[Any]:
    """The rows of one matrix by the columns of another, or by its rows."""
    rows, columns = dims.of(x), list(dims.of(y))
    if transposed:
        columns[-2:] = columns[:-3:-1]
    for sources in (rows[-1], columns[-2]):
        if dims.open(sources):
            raise _Mixed(sources or ())
    sizes = [(_tensor(z).shape[:-2], dims.of(z)[:-2]) for z in (x, y)]
    batch = _joined(max(len(size) for size, _ in sizes), sizes)
    return [*batch, rows[-2], columns[-1]]


def _product(dims: _Dims, node: Node) -> list[Any]:
    x, y = node.args[:2]
    if min(_tensor(x).dim(), _tensor(y).dim()) < 2:  # type: ignore[arg-type]
        dims.require_apart(x, y)
        return [None] * _tensor(node).dim()
    return _multiplied(dims, x, y)  # type: ignore[arg-type]


def _batched_product(dims: _Dims, node: Node) -> list[Any]:
    x, y = node.args[:2]
    for batch in (dims.of(x)[0], dims.of(y)[0]):  # type: ignore[arg-type]
        if dims.open(batch):
            raise _Mixed(batch or ())
    return _multiplied(dims, x, y)  # type: ignore[arg-type]


def _distances(dims: _Dims, node: Node) -> list[Any]:
    dims.require_apart(node.args[2:])
    x, y = node.args[:2]
    return _multiplied(dims, x, y, transposed=True)  # type: ignore[arg-type]


def _added_product(dims: _Dims, node: Node) -> list[Any]:
    # What is added is expanded to the product, but not the other way around.
    dims.require_apart(node.args[1:], node.kwargs)
    return [None] * _tensor(node).dim()


def _linear(dims: _Dims, node: Node) -> list[Any]:
    x: Any = node.args[0]
    dims.require_apart(node.args[1:], node.kwargs)
    found = dims.of(x)
    if dims.open(found[-1]):
        raise _Mixed(found[-1] or ())
    return [*found[:-1], None]


_SAME = _moved(lambda node, rank: range(rank))
_RULES: Mapping[Any, Callable[[_Dims, Node], list[Any]]] = {
    **dict.fromkeys((_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default), _viewed),
    _aten.expand.default: _expanded,
    **dict.fromkeys((_aten.alias.default, _aten.detach.default, _aten.lift_fresh_copy.default), _SAME),
    **dict.fromkeys((_aten.clone.default, _aten._to_copy.default, _aten.contiguous.default), _SAME),
    _aten.permute.default: _moved(_permuted),
    _aten.transpose.int: _moved(_transposed),
    _aten.t.default: _moved(lambda node, rank: range(rank)[::-1]),
    _aten.unsqueeze.default: _unsqueezed,
    _aten.slice.Tensor: _sliced,
    _aten.mT.default: _moved(lambda node, rank: range(rank) if rank < 2 else [*range(rank - 2), rank - 1, rank - 2]),
    _aten.select.int: _selected,
    **dict.fromkeys((_aten.squeeze.dim, _aten.squeeze.dims), _squeezed),
    **dict.fromkeys((_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default), _reduces(1, 2)),
    **dict.fromkeys((_aten.any.dim, _aten.all.dim, _aten.any.dims, _aten.all.dims, _aten.prod.dim_int), _reduces(1, 2)),
    **dict.fromkeys((_aten.argmax.default, _aten.argmin.default, _aten.logsumexp.default), _reduces(1, 2)),
    **dict.fromkeys((_aten.std.dim, _aten.var.dim), _reduces(1, 3)),
    **dict.fromkeys((_aten.std.correction, _aten.var.correction), _reduces(1, 4)),
    _aten.linalg_vector_norm.default: _reduces(2, 3),
    **dict.fromkeys((_aten.mse_loss.default, _aten.l1_loss.default, _aten.smooth_l1_loss.default), _loss),
    **dict.fromkeys((_aten.huber_loss.default, _aten.kl_div.default, _aten.poisson_nll_loss.default), _loss),
    **dict.fromkeys((_aten.cosine_similarity.default, _aten.pairwise_distance.default), _compared_rows),
    **dict.fromkeys((_aten._softmax.default, _aten._log_softmax.default), _rowwise),
    **dict.fromkeys((_aten.softmax.int, _aten.log_softmax.int, _aten.cumsum.default), _rowwise),
    _aten.layer_norm.default: _normalized,
    **dict.fromkeys((_aten.mm.default, _aten.matmul.default), _product),
    _aten.bmm.default: _batched_product,
    **dict.fromkeys((_aten.cdist.default, _aten._cdist_forward.default), _distances),
    **dict.fromkeys((_aten.addmm.default, _aten.baddbmm.default), _added_product),
    _aten.linear.default: _linear,
}


def repeated_inputs(
    graph: Graph, inputs: Sequence[tuple[str, Any]], asked: Collection[sympy.Symbol]
) -> dict[str, list[int]]:
    """Of inputs the dims along which they may be repeated.

    Args:
        graph: what the inputs go through.
        inputs: the names of the placeholders, and what ``dynamic_shapes`` says of each; only dims that it leaves to
            torch.export are repeated.
        asked: the symbols whose values the model's code has seen: their dims are not repeated.
    """
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    names = [name for name, _ in inputs]
    members: dict[sympy.Symbol, set[_Source]] = {}
    for i, name in enumerate(names):
        value = nodes[name].meta.get("val") if name in nodes else None
        for d, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                members.setdefault(size.node.expr, set()).add((i, d))
    result: dict[str, list[int]] = {}
    for symbol, found in members.items():
        repeated = {(i, d) for i, d in found if is_hint(spec_of(inputs[i][1], d))}
        if len(found) < 2 or symbol in asked:
            continue
        for i, d in sorted(_settled(graph, names, nodes, _Dims(symbol, frozenset(found), repeated))):
            result.setdefault(names[i], []).append(d)
    return {name: sorted(dims) for name, dims in result.items()}


def _settled(graph: Graph, inputs: Sequence[str], nodes: Mapping[str, Node], dims: _Dims) -> set[_Source]:
    """The dims that may be repeated, without those whose elements some operation mixes."""
    while dims.repeated:
        dims.sources.clear()
        for i, name in enumerate(inputs):
            if name in nodes and _is_tensor(nodes[name]):
                rank = _tensor(nodes[name]).dim()
                dims.sources[nodes[name]] = [
                    frozenset({(i, d)}) if (i, d) in dims.members else None for d in range(rank)
                ]
        try:
            for node in graph.nodes:
                dims.follow(node)
        except _Mixed as mixed:
            less = dims.repeated - mixed.sources
            dims.repeated = less if less != dims.repeated else set()
            continue
        break
    return dims.repeated


def asked_symbols(program: ExportedProgram) -> set[sympy.Symbol]:
    """The symbols that conditions of a program's code are about, or whose values it has seen.

    Equal dims are left out: a condition that operations ask for, and no matter of what the code decides.
    """
    env = environment(program)
    found: set[sympy.Symbol] = set()
    if env is not None:
        for expr in (*(guard.expr for guard in env.guards), *seen_symbols(env)):
            found |= env.replace(expr).free_symbols
    return found
