"""Sums over the steps of a loop, computed behind it.

The gradient of a weight that a loop uses is a sum over the steps. As traced, each step computes its own part, mostly a
small product, and reads and writes the whole gradient::

    loop over i: dw = dw + a(i)^T b(i)

Where the operands of the product are at hand for all steps, one product has the steps in the dim that it sums over::

    loop over i: a(i), b(i) stacked
    dw = a[steps * rows, m]^T b[steps * rows, n]

Views and other linear operations on the product move behind the loop with it.

What this costs is memory for operands that do not have a row for each step already: those that the gradient of a step
needs have one, and those that are results of the loop. A product moves if what must be stacked for it is

- not larger, in each step, than the sum that is read and written there;
- or at most some times larger than what a step has rows of already, and one of the operands is among that. Mostly it is
  smaller: the gradient of a layer's result, beside what the layer and its activation keep.

A sum over rows, an element-wise product and a tensor that is summed up as it is move only if nothing more is stacked
for them. A part that cannot move remains in the loop, and so does one whose sizes differ from step to step.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Graph, Node

from ...torch_compat import pytree
from ...torch_compat.symbols import statically_known_true
from ...torch_compat.tracing import FakeTensor, tensor_metadata
from .. import markers
from ..settle import settle
from .differentiation import outermost
from .gradients import Gradients

_aten = torch.ops.aten
_ALIASES = (_aten.detach.default, _aten.alias.default)
_READS = (_aten.item.default, _aten._local_scalar_dense.default)
_VIEWS = (_aten.view.default, _aten._unsafe_view.default)
_TRANSPOSES = (_aten.t.default, _aten.transpose.int, _aten.permute.default)
_MOVES = (*_VIEWS, *_TRANSPOSES, _aten.unsqueeze.default, _aten.clone.default)
"""Operations whose results have the elements of their operand, which can be done for all steps at once."""
_ZEROS = (_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default)
_LINEAR = (
    *_ALIASES, *_MOVES, _aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.expand.default,
    _aten.slice.Tensor, _aten.select.int, _aten.neg.default, _aten.sum.default, _aten.sum.dim_IntList,
    _aten.mul.Scalar, _aten.div.Scalar,
)  # fmt: skip
"""Operations that are linear in their first operand, if the others are the same in each step."""
_BILINEAR = (_aten.mm.default, _aten.bmm.default, _aten.mul.Tensor)
"""Operations that are linear in each of two operands."""


_GROWTH = 4
"""How many times larger than the rows of a step those may be that are stacked for a product."""


def sum_behind_loops(gradients: Gradients) -> None:
    """Moves products and sums out of the loops of a graph."""
    graph = gradients.module.graph
    replaced: dict[Node, Node] = {}
    # A loop inside of another one ends before it, and what is moved behind it is a part of the outer loop's step.
    for end in [node for node in graph.nodes if node.target is markers.loop_end]:
        _Steps(graph, end, replaced).run()
    if replaced:
        gradients.replace(replaced)
        graph.eliminate_dead_code()
        settle(graph)


def _stripped(node: Any) -> Any:
    while isinstance(node, Node) and node.target in _ALIASES:
        node = node.args[0]
    return node


def _uses(node: Node) -> list[Node]:
    """The nodes that use a tensor or an alias of it."""
    found = []
    for user in node.users:
        found += _uses(user) if user.target in _ALIASES else [user]
    return found


def _shape(node: Any) -> Sequence[Any]:
    return node.meta["val"].shape  # type: ignore[no-any-return]


def _rank(node: Any) -> int:
    return len(_shape(node))


def _numel(node: Any) -> Any:
    return math.prod(_shape(node))


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), Tensor)


def _is_alike(a: Node, b: Node) -> bool:
    return a.meta["val"].dtype == b.meta["val"].dtype and _same(_shape(a), _shape(b))


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


def _value(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, Node) else x


def _expression(x: Any) -> Any:
    value = _value(x)
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.sympify(value)


def _swaps_last(node: Node) -> bool:
    """Whether a node swaps the last two dims."""
    rank = _rank(node)
    if node.target is _aten.permute.default:
        dims: Any = node.args[1]
        return rank > 1 and [d % rank for d in dims] == [*range(rank - 2), rank - 1, rank - 2]
    if node.target is _aten.transpose.int:
        return rank > 1 and {d % rank for d in node.args[1:]} == {rank - 2, rank - 1}  # type: ignore[operator]
    return node.target is _aten.t.default and rank == 2


@dataclass
class _Rows:
    """A tensor of the step, of all steps."""

    source: Node
    """A tensor from outside that has a row for each step; or one of the step, which is stacked."""
    dim: int | None
    """The dim of the rows; None for a tensor of the step."""
    backwards: bool
    """Whether row 0 is that of the last step."""
    views: list[Node]
    """Of these the step makes the tensor from its row, the first one last."""
    stacked: bool
    """Whether the rows are at hand, without one more tensor that the loop stacks."""


@dataclass
class _Part:
    """A part of a sum over the steps."""

    core: Node
    """What is summed over the steps..."""
    tail: list[Node]
    """...and the linear operations on it, the last one first."""
    operands: list[_Rows]
    """The operands of the core."""
    emit: Callable[..., Node]
    """Computes the sum over the steps from the operands, with the node that the result is like."""


class _Steps:
    """One loop."""

    def __init__(self, graph: Graph, end: Node, replaced: dict[Node, Node]) -> None:
        """``replaced``: gets the nodes that others stand for from now on."""
        self._graph, self._end, self._replaced = graph, end, replaced
        self._begin: Node = end.args[0]  # type: ignore[assignment]
        # What is computed behind the loop stands directly behind it, in the order in which it is added.
        self._place = end.next
        nodes = list(graph.nodes)
        self._nodes = nodes[nodes.index(self._begin) + 1 : nodes.index(end)]
        self._inside = set(self._nodes)
        self._body = set(outermost(self._nodes))
        reads = [node for node in self._nodes if node.target in _READS]
        self._own = {x for node in reads for x in _expression(node).free_symbols}
        self._index = next((_expression(node) for node in reads if node.args[0] is self._begin), None)
        self._count = self._begin.args[0]
        self._made: dict[tuple[Any, ...], Node] = {}

    def run(self) -> None:
        """Moves what can be moved."""
        if self._begin.args[1] is not None or self._index is None:
            return
        # What is stacked for a product may serve a sum.
        for sums in (False, True):
            for slot in reversed(range(len(self._list(1)))):
                self._move_sum(slot, sums)

    def _list(self, place: int) -> list[Any]:
        return list(self._end.args[place])  # type: ignore[arg-type]

    def _set(self, place: int, value: Sequence[Any]) -> None:
        args = list(self._end.args)
        args[place] = list(value)
        self._end.args = tuple(args)

    # -- sums that a loop carries ----------------------------------------------------------------------------

    def _replace(self, old: Node, new: Node) -> None:
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
        self._replaced[old] = new

    def _move_sum(self, slot: int, sums: bool) -> None:
        """Moves parts of what a step adds to a carried tensor; ``sums``: not products alone."""
        slots, carried, following = (self._list(n) for n in (1, 2, 3))
        now = _stripped(carried[slot])
        lasts = [x for x in self._end.users if x.target is markers.loop_last and x.args[3] == slot]
        if slots != list(range(len(slots))) or not lasts or now.target is not markers.loop_carried:
            return
        terms = self._terms(following[slot], now) if now.args[0] is self._begin else []
        parts = {term: part for term in terms if (part := self._part(term, sums)) is not None}
        if not parts:
            return
        total: Node | None = None
        for term, part in parts.items():
            value = self._total(part)
            total = value if total is None else self._behind(_aten.add.Tensor, (total, value), term)
        assert total is not None
        rest = [term for term in terms if term not in parts]
        first = _stripped(now.args[1])
        if rest:
            with self._graph.inserting_before(self._end):
                value = now
                for term in rest:
                    value = self._call(_aten.add.Tensor, (value, term), term)
            before, following[slot] = following[slot], value
            self._set(3, following)
            for last in lasts:
                last.args = (last.args[0], first, *last.args[2:])
            self._erase(before)
            for last in lasts:
                with self._graph.inserting_after(last):
                    new = self._call(_aten.add.Tensor, (last, total), last)
                self._replace(last, new)
            return
        if first.target not in _ZEROS:
            total = self._behind(_aten.add.Tensor, (first, total), total)
        for last in lasts:
            self._replace(last, total)
            if last is self._place:
                self._place = last.next
            self._graph.erase_node(last)
        self._drop(slot)

    def _drop(self, slot: int) -> None:
        """Removes a carried tensor."""
        for place in (2, 3):
            self._set(place, [x for n, x in enumerate(self._list(place)) if n != slot])
        self._set(1, range(len(self._list(2))))
        numbered = [x for x in self._begin.users if x.target is markers.loop_carried]
        numbered += [x for x in self._end.users if x.target is markers.loop_last]
        for node in numbered:
            number: Any = node.args[3]
            if number >= slot:
                # The tensor itself has no number until it is removed with all other dead code.
                node.args = (*node.args[:3], number - 1 if number > slot else -1)

    def _erase(self, node: Node) -> None:
        """Removes a sum that nothing uses any more, and what it adds, if that is a sum itself."""
        for user in list(node.users):
            if user.target in _ALIASES and not user.users:
                self._graph.erase_node(user)
        if node.users or node.target not in (*_ALIASES, _aten.add.Tensor) or node not in self._inside:
            return
        operands = [x for x in node.args if isinstance(x, Node)]
        self._graph.erase_node(node)
        self._inside.discard(node)
        self._body.discard(node)
        for x in operands:
            self._erase(x)

    def _terms(self, after: Node, now: Node) -> list[Node]:
        """What is added to ``now`` in a step; nothing, if it is used for something else, too."""
        found: list[Node] = []
        waiting, adds = [after], []
        while waiting:
            node = _stripped(waiting.pop())
            alike = node.target is _aten.add.Tensor and all(_is_tensor(x) and _is_alike(x, now) for x in node.args)
            if alike and node in self._body and not node.kwargs and self._is_used_once(node):
                adds.append(node)
                waiting += reversed(node.args)
            else:
                found.append(node)
        if found.count(now) != 1 or any(x not in adds and x is not self._end for x in _uses(now)):
            return []
        found.remove(now)
        return found if all(x in self._body and _is_alike(x, now) for x in found) else []

    def _is_used_once(self, node: Node) -> bool:
        """Whether one operation of the step uses a tensor, or the loop for one carried tensor."""
        # Results of the loop that are like it do not use it.
        used = [x for x in _uses(node) if x.target not in (markers.loop_last, markers.loop_stack)]
        given = [_stripped(x) for place in (3, 4) for x in self._list(place)]
        return len(used) == 1 and (used[0] is not self._end or given.count(node) == 1)

    # -- parts -----------------------------------------------------------------------------------------------

    def _part(self, node: Node, sums: bool) -> _Part | None:
        """How a tensor of the step is summed over the steps behind the loop; None if it is not."""
        tail: list[Node] = []
        at: Node | None = node
        while at is not None and at in self._body and at.meta["val"].is_floating_point():
            found = self._core(at, sums)
            if found is not None:
                return _Part(at, tail, *found)
            tail.append(at)
            at = self._linear(at)
        return None

    def _linear(self, node: Node) -> Node | None:
        """The operand of the step in which a node is linear."""
        if node.target in _LINEAR and self._is_outside(node.args[1:], node.kwargs):
            return node.args[0]  # type: ignore[return-value]
        if node.target in _BILINEAR and all(_is_tensor(x) for x in node.args):
            first, second = node.args
            if self._is_outside(second):
                return first  # type: ignore[return-value]
            if self._is_outside(first):
                return second  # type: ignore[return-value]
        return None

    def _is_outside(self, *args: Any) -> bool:
        """Whether arguments are known outside of the loop."""
        return not any(
            x in self._inside and (_is_tensor(x) or self._differs(_value(x)))
            for x in pytree.tree_leaves(args)
            if isinstance(x, Node)
        )

    def _differs(self, size: Any) -> bool:
        """Whether a number may differ from step to step."""
        return bool(_expression(size).free_symbols & self._own)

    def _core(self, node: Node, sums: bool) -> tuple[list[_Rows], Callable[..., Node]] | None:
        """If a sum of ``node`` over the steps can be computed behind the loop: the operands, and how."""
        operands: list[Any] = list(node.args)
        emit: Callable[..., Node]
        product = True
        if node.target is _aten.mm.default:
            emit = self._product
        elif node.target is _aten.bmm.default:
            emit = self._products
        elif (outer := self._outer_operands(node)) is not None:
            emit, operands = self._outer_product, outer
        elif node.target is _aten.mul.Tensor and all(_is_tensor(x) and _rank(x) == _rank(node) for x in operands):
            emit, product = self._multiplied, False
        elif node.target is _aten.sum.dim_IntList and not node.kwargs:
            emit, product, operands = functools.partial(self._summed, node), False, operands[:1]
        elif node.target not in _LINEAR:
            emit, product, operands = functools.partial(self._summed, None), False, [node]
        else:
            return None
        if not product and not sums:
            return None
        found = [rows for x in operands if (rows := self._rows(x)) is not None]
        missing = [x for x in found if not x.stacked]
        if len(found) < len(operands) or (missing and not product):
            return None
        if missing and not self._may_stack([x.source for x in missing], node, len(missing) < len(found)):
            return None
        dtypes = {x.source.meta["val"].dtype for x in found}
        return (found, emit) if dtypes == {node.meta["val"].dtype} else None

    def _may_stack(self, nodes: Sequence[Node], total: Node, beside: bool) -> bool:
        """Whether tensors of the step may be stacked for a product; ``beside`` another operand that has rows."""
        size = sum(map(_numel, nodes))
        if statically_known_true(size <= _numel(total)):
            return True
        read = {_stripped(x.args[0]): x for x in self._body if self._row(x) is not None}
        rows = sum(map(_numel, [*read.values(), *self._list(4)]))
        return beside and statically_known_true(size <= _GROWTH * rows)

    def _outer_operands(self, node: Node) -> list[Node] | None:
        """The operands of a product of [m, 1] and [1, n] or [n]."""
        if node.target is not _aten.mul.Tensor or not all(_is_tensor(x) for x in node.args):
            return None
        for column, row in (node.args, node.args[::-1]):
            (*_, width), (*more, _) = _shape(column) or (0,), _shape(row) or (0,)
            if _rank(column) == 2 and _rank(row) in (1, 2) and _same([width, *more], [1] * _rank(row)):
                return [column, row]  # type: ignore[list-item]
        return None

    def _rows(self, node: Node) -> _Rows | None:
        """A tensor of the step for all steps; None if it has other sizes in other steps."""
        views: list[Node] = []
        node = _stripped(node)
        while node in self._body:
            if (row := self._row(node)) is not None:
                return _Rows(*row, views, True)
            if self._number_of(node) is not None:
                return _Rows(node, None, False, views, True)
            if node.target not in _MOVES or not self._is_outside(node.args[1:]):
                break
            views.append(node)
            node = _stripped(node.args[0])
        if node not in self._body or any(self._differs(s) for s in _shape(node)):
            return None
        return _Rows(node, None, False, views, False)

    def _row(self, node: Node) -> tuple[Node, int, bool] | None:
        """Where a node reads the row of the step: in what, in which dim, and whether row 0 is that of the last step."""
        if node.target is not _aten.select.int:
            return None
        source, index = _stripped(node.args[0]), _expression(node.args[2])
        dim: int = node.args[1] % _rank(source)  # type: ignore[operator, assignment]
        if source in self._inside or not statically_known_true(_shape(source)[dim] == _value(self._count)):
            return None
        if sympy.expand(index - self._index) == 0:
            return source, dim, False
        if sympy.expand(_expression(self._count) - 1 - self._index - index) == 0:
            return source, dim, True
        return None

    def _number_of(self, node: Node) -> int | None:
        """Which of the tensors that the loop stacks a node is."""
        return next((number for number, row in enumerate(self._list(4)) if _stripped(row) is node), None)

    # -- behind the loop -------------------------------------------------------------------------------------

    def _total(self, part: _Part) -> Node:
        """The sum of a part over the steps."""
        value = part.emit(*self._aligned(part.operands), like=part.core)
        for node in reversed(part.tail):
            inner = self._linear(node)
            args = tuple(value if x is inner else x for x in node.args)
            value = self._behind(node.target, args, node, node.kwargs)
        return value

    def _aligned(self, operands: Sequence[_Rows]) -> list[_Rows]:
        """The operands with the steps in the same order. Which one does not matter for a sum."""
        if len({x.backwards for x in operands}) == 1:
            return list(operands)
        # The order in which a loop stacks is reversed for the gradient of a tensor of rows, too; otherwise the smaller.
        turned, others = ([x for x in operands if x.backwards is order] for order in (False, True))
        if not any(self._flip_of(self._stack(x)) for x in turned):
            sizes = [sum(_numel(x.views[0] if x.views else x.source) for x in group) for group in (turned, others)]
            if statically_known_true(sizes[1] < sizes[0]):
                turned = others
        return [self._turned(x) if x in turned else x for x in operands]

    def _turned(self, rows: _Rows) -> _Rows:
        """The same in the other order."""
        stack = self._stack(rows)
        flip = self._behind(_aten.flip.default, (stack, [0]), stack)
        if (known := self._flip_of(stack, flip)) is not None:
            self._replace(known, flip)
        return _Rows(flip, 0, not rows.backwards, rows.views, True)

    def _flip_of(self, stack: Node, other: Node | None = None) -> Node | None:
        """Another node that reverses the steps."""
        flips = (x for x in stack.users if x.target is _aten.flip.default and x.args[1] == [0])
        return next((x for x in flips if x is not other), None)

    def _stack(self, rows: _Rows) -> Node:
        """[steps, ...] of the source."""
        if rows.dim is not None:
            order = [rows.dim, *(d for d in range(_rank(rows.source)) if d != rows.dim)]
            return self._behind(_aten.permute.default, (rows.source, order), rows.source) if rows.dim else rows.source
        number = self._number_of(rows.source)
        if number is None:
            number = len(self._list(4))
            self._set(4, [*self._list(4), rows.source])
        known = [x for x in self._end.users if x.target is markers.loop_stack and x.args[3] == number]
        stack = self._behind(markers.loop_stack, (self._end, rows.source, self._count, number), rows.source)
        for other in known:
            # Others stand further behind.
            if other is not stack:
                self._replace(other, stack)
        return stack

    def _all(self, rows: _Rows) -> Node:
        """[steps, ...] of the tensor itself."""
        value = self._stack(rows)
        for view in reversed(rows.views):
            value = self._view(value, view)
        return value

    def _view(self, value: Node, view: Node) -> Node:
        """A view of the step's tensor, of [steps, ...]."""
        args: tuple[Any, ...] = view.args[1:]
        rank = _rank(view)
        target = view.target
        if target in _VIEWS:
            value, args = self._contiguous(value), ([self._count, *args[0]],)
        elif target is _aten.t.default:
            target, args = _aten.permute.default, ([0, *range(rank, 0, -1)],)
        elif target is _aten.permute.default:
            args = ([0, *(d % rank + 1 for d in args[0])],)
        elif target in (_aten.transpose.int, _aten.unsqueeze.default):
            args = tuple(d % rank + 1 for d in args)
        return self._behind(target, (value, *args), view, view.kwargs)

    def _swapped(self, rows: _Rows) -> Node:
        """[steps, ..., n, m] of a tensor [..., m, n]."""
        if rows.views and _swaps_last(rows.views[0]):
            return self._all(dataclasses.replace(rows, views=rows.views[1:]))
        return self._behind(_aten.transpose.int, (self._all(rows), -2, -1), rows.source)

    def _product(self, a: _Rows, b: _Rows, like: Node) -> Node:
        left, right = (self._merged(x, 0, like) for x in (self._swapped(a), self._all(b)))
        return self._behind(_aten.mm.default, (self._behind(_aten.t.default, (left,), like), right), like)

    def _products(self, a: _Rows, b: _Rows, like: Node) -> Node:
        # Behind the dim of the products.
        stacks = (self._behind(_aten.transpose.int, (x, 0, 1), like) for x in (self._swapped(a), self._all(b)))
        left, right = (self._merged(x, 1, like) for x in stacks)
        left = self._behind(_aten.transpose.int, (left, 1, 2), like)
        return self._behind(_aten.bmm.default, (left, right), like)

    def _outer_product(self, a: _Rows, b: _Rows, like: Node) -> Node:
        left, right = self._behind(_aten.squeeze.dim, (self._all(a), 2), like), self._all(b)
        if _rank(right) == 3:
            right = self._behind(_aten.squeeze.dim, (right, 1), like)
        return self._behind(_aten.mm.default, (self._behind(_aten.t.default, (left,), like), right), like)

    def _multiplied(self, a: _Rows, b: _Rows, like: Node) -> Node:
        product = self._behind(_aten.mul.Tensor, (self._all(a), self._all(b)), like)
        return self._behind(_aten.sum.dim_IntList, (product, [0]), like)

    def _summed(self, node: Node | None, rows: _Rows, like: Node) -> Node:
        """The sum over the steps of a tensor, or of the sums that ``node`` computes of it."""
        value = self._all(rows)
        if node is None:
            return self._behind(_aten.sum.dim_IntList, (value, [0]), like)
        rank = _rank(value) - 1
        dims: Any = node.args[1] or range(rank)
        keep = len(node.args) > 2 and node.args[2]
        total = self._behind(_aten.sum.dim_IntList, (value, [0, *(d % rank + 1 for d in dims)], keep), like)
        return self._behind(_aten.squeeze.dim, (total, 0), like) if keep else total

    def _merged(self, value: Node, dim: int, like: Node) -> Node:
        """A tensor with two of its dims, this one and the next, as one."""
        sizes = [
            s if isinstance(s, int) else self._behind(_aten.sym_size.int, (value, d), like)
            for d, s in enumerate(_shape(value))
        ]
        first, second = sizes[dim : dim + 2]
        both = (
            first * second
            if isinstance(first, int) and isinstance(second, int)
            else self._behind(operator.mul, (first, second), like)
        )
        value = self._contiguous(value)
        return self._behind(_aten._unsafe_view.default, (value, [*sizes[:dim], both, *sizes[dim + 2 :]]), like)

    def _contiguous(self, value: Node) -> Node:
        if value.target in (markers.loop_stack, _aten.flip.default, *_VIEWS):
            return value
        return self._behind(_aten.clone.default, (value,), value, {"memory_format": torch.contiguous_format})

    # -- nodes -----------------------------------------------------------------------------------------------

    def _behind(self, target: Any, args: tuple[Any, ...], like: Node, kwargs: Any = None) -> Node:
        """A node behind the loop; the one that there is, if it was made before."""
        key = (target, *(tuple(x) if isinstance(x, list) else x for x in args), *(kwargs or {}).values())
        if key not in self._made:
            with self._graph.inserting_before(self._place):
                self._made[key] = self._call(target, args, like, kwargs)
        return self._made[key]

    def _call(self, target: Any, args: tuple[Any, ...], like: Node, kwargs: Any = None) -> Node:
        node = self._graph.call_function(target, args, kwargs or {})
        given = pytree.tree_map_only(Node, _value, (args, kwargs or {}))
        mode = next((x.fake_mode for x in pytree.tree_leaves(given) if isinstance(x, FakeTensor)), nullcontext())
        with mode:
            value = target(*given[0], **given[1])
        node.meta = {key: like.meta[key] for key in ("stack_trace",) if key in like.meta}
        node.meta["val"] = value
        if isinstance(value, Tensor):
            node.meta["tensor_meta"] = tensor_metadata(value)
        return node
