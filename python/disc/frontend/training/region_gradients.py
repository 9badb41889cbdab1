"""Gradients of branches and loops: branches and loops.

A side of a branch and a step of a loop are run with autograd while they are traced. What autograd keeps for the
gradient becomes a result of the region: of a branch as it is, of a loop stacked, one row for each step. The gradient of
a branch is a branch on the same condition. The gradient of a loop is a loop over the same steps in reverse order::

    loop over i: x, (s, ...) = step(x, outer)            # s: what the gradient of this step needs
    loop over i from the end: dx, d_outer += gradient(step)(s[i], dx)

A tensor of which step i reads row i has a gradient of which step i computes row i; gradients of all other tensors from
outside are sums over the steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Node

from ... import errors
from ...torch_compat import pytree
from ...torch_compat.symbols import statically_known_true
from ...torch_compat.tracing import from_functional, get_proxy_mode, get_proxy_slot
from .. import markers
from .differentiation import Evaluation, outermost, requires_grad, source_of
from .differentiation import gradients as gradients_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALIASES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def recorded(value: Tensor) -> Node | None:
    """The node that stands for a tensor in the trace; of one that only shares a tensor's memory, that tensor's."""
    mode = get_proxy_mode()
    assert mode is not None
    inner: Any = from_functional(value)
    slot: Any = get_proxy_slot(inner, mode.tracer, None)
    if slot is None:
        return None
    node = slot.proxy.node
    while node.target in _ALIASES:
        node = node.args[0]
    return node  # type: ignore[no-any-return]


def _viewed(node: Node) -> tuple[Node, list[Callable[[Tensor], Tensor]]]:
    """The tensor that a view is of, and the views in between, as far as these are known outside of the region."""
    views: list[Callable[[Tensor], Tensor]] = []
    while True:
        if node.target in _ALIASES:
            node = node.args[0]  # type: ignore[assignment]
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None or not _is_view(schema) or not isinstance(node.args[0], Node):
            return node, views[::-1]
        if any(isinstance(x, Node) for x in pytree.tree_leaves((node.args[1:], node.kwargs))):
            return node, views[::-1]
        views.append(functools.partial(_view, node.target, node.args[1:], node.kwargs))
        node = node.args[0]


def _is_view(schema: Any) -> bool:
    aliases = [result.alias_info for result in schema.returns]
    return len(aliases) == 1 and aliases[0] is not None and not schema.is_mutable


def _view(target: Any, args: Any, kwargs: Any, value: Tensor) -> Tensor:
    return target(value, *args, **kwargs)  # type: ignore[no-any-return]


def _made(value: Tensor, views: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    for view in views:
        value = view(value)
    return value


class _Kept:
    """What autograd keeps while a side or step runs."""

    def __init__(self, outer: dict[Node, Tensor]) -> None:
        self.outer = outer
        """Tensors from outside of the region, by the nodes that stand for them; others where the gradient runs."""
        self.rows: dict[Node, tuple[Node, int]] = {}
        """Nodes that read the row of a step, with the tensor from outside and its dim."""
        self._numbers: dict[Node, int] = {}
        self.tensors: list[Tensor] = []
        """The tensors that must become results of the region."""
        self.restored: Callable[[int], Tensor] = lambda _: torch.empty(())
        """How the gradient finds them."""
        self.step: Any = None
        """In the gradient of a loop, the number of the step."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Collects what autograd keeps of the operations that run."""
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    def _pack(self, value: Tensor) -> Any:
        node = recorded(value)
        if node is None:
            return value
        base, views = _viewed(node)
        if base in self.outer:
            # Also of a view, which the gradient makes again: a transposed weight need not be kept for each step.
            return lambda: _made(self.outer[base], views)
        if base in self.rows:
            source, dim = self.rows[base]
            return lambda: _made(self.outer[source].select(dim, self.step), views)
        if node not in self._numbers:
            self._numbers[node] = len(self.tensors)
            self.tensors.append(value.detach())
        return self._numbers[node]

    def _unpack(self, kept: Any) -> Tensor:
        if isinstance(kept, int):
            return self.restored(kept)
        return kept if isinstance(kept, Tensor) else kept()


class _Region:
    """What branches and loops have in common."""

    def __init__(self, evaluation: Evaluation, end: Node, outer: Sequence[Node]) -> None:
        self._evaluation = evaluation
        self._values = evaluation.values
        self._end = end
        self._source = source_of(end)
        tensors = [node for node in outer if isinstance(self._values[node], Tensor)]
        self._captured = [node for node in tensors if requires_grad(self._values[node])]
        self._known: dict[Node, Tensor] = {}
        for node in tensors:
            value = self._values[node].detach()
            if (found := recorded(value)) is not None:
                # As a loop's result is written back to the tensor that it changes.
                self._known[found] = value.clone() if evaluation.changes(node) else value
        env = self._environment()
        self._before = set(env.var_to_range) if env is not None else set()

    def _environment(self) -> Any:
        from ..facts import environment

        return environment()

    def _leaves(self, nodes: Sequence[Node], mutable: bool) -> tuple[list[Tensor], dict[Node, Any]]:
        """Of tensors from outside new leaves of autograd's graph, and what stands for them inside."""
        leaves = [self._values[node].detach().requires_grad_() for node in nodes]
        return leaves, dict(zip(nodes, (x.clone() if mutable else x for x in leaves), strict=True))

    def _graft(
        self,
        results: Sequence[Node],
        sizes: Sequence[Node],
        kept: Sequence[_Kept],
        tensors: Sequence[Tensor],
        backward: Callable[..., Any],
    ) -> None:
        """Evaluates the results of the region and their sizes, and sets ``backward`` as the gradient of the results.

        ``backward`` is called with the gradients of the results, then ``tensors``. If this region is part of another
        one, those are results of that region by then.
        """
        with torch.no_grad():
            self._evaluation.evaluate(sizes)
            for node in results:
                self._values[node] = self._evaluation.call(node)
        given = [self._values[node] for node in self._captured]
        count = len(tensors)

        def run(gradients: Sequence[Tensor | None], found: Sequence[Tensor]) -> list[Tensor | None]:
            for one in kept:
                one.outer = dict(zip(self._known, found[count:], strict=True))
            return backward(gradients, found[:count])  # type: ignore[no-any-return]

        saved = [*tensors, *self._known.values()]
        inputs = (*saved, *given, *(self._values[node] for node in results))
        grafted = _Graft.apply(run, (len(saved), len(given)), *inputs)
        self._values.update(zip(results, grafted, strict=True))

    def _check_size(self, value: Tensor) -> None:
        for size in value.shape:
            if isinstance(size, torch.SymInt) and not size.node.expr.free_symbols <= self._before:
                raise errors.GradientError(
                    "import",
                    f"the gradient needs a tensor of shape {list(value.shape)} that is computed in a branch or loop"
                    " where a size of it is first known; make the size known before it",
                    self._source,
                )

    def _gradients(
        self, outputs: Sequence[tuple[Tensor, Tensor | None]], leaves: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradients of leaves from those of outputs."""
        used = [(x, g) for x, g in outputs if g is not None and requires_grad(x)]
        if not used or not leaves:
            return [None] * len(leaves)
        values, gradients = zip(*used, strict=True)
        return gradients_of(values, leaves, gradients)


def _changes(nodes: Sequence[Node]) -> bool:
    """Whether operations change tensors in place."""
    return any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in nodes)


def _zeros(value: Tensor) -> Tensor:
    # Not like the tensor, which may be inside of a region.
    return torch.zeros(value.shape, dtype=value.dtype, device=value.device)


class Branch(_Region):
    """A branch with a gradient."""

    def __init__(
        self, evaluation: Evaluation, then: Sequence[Node], orelse: Sequence[Node], end: Node, outer: Sequence[Node]
    ) -> None:
        super().__init__(evaluation, end, outer)
        self._sides = then, orelse

    def run(self, results: Sequence[Node], sizes: Sequence[Node]) -> None:
        """Traces the branch, then its results."""
        evaluation, values = self._evaluation, self._values
        begin = self._sides[0][0]
        pred = values[begin.args[0]].detach()  # type: ignore[index]
        token = evaluation.call(begin)
        sides: list[tuple[list[Any], list[Tensor], _Kept]] = []
        marks: list[Tensor] = []
        places: list[list[Node | None]] = []
        for nodes, last in zip(self._sides, (self._sides[1][0], self._end), strict=True):
            kept = _Kept(self._known)
            with kept.recording():
                leaves, inside = self._leaves(self._captured, _changes(nodes))
                side = Evaluation(evaluation.module, {**values, **inside, nodes[0]: token})
                side.evaluate(nodes[1:])
                given, entered, numbers = (side.operands(x) for x in last.args[1:])
            # Views of what was changed in place are computed when they are asked for: before the end of the side.
            places.append([recorded(x) for x in kept.tensors])
            with torch.no_grad():
                marker: Any = last.target
                token = marker(token, [x.detach() for x in given], [x.detach() for x in entered], numbers)
            marks.append(token)
            sides.append((given, leaves, kept))
            # Numbers and the tensors that results are like.
            values.update({node: x for node, x in side.values.items() if node not in values})
            values[last] = token
        count = len(sides[0][0])
        kept_tensors = [x for *_, kept in sides for x in kept.tensors]
        for x in kept_tensors:
            self._check_size(x)
        self._add_results(marks, places, [kept.tensors for *_, kept in sides])
        token = marks[1]
        saved = [markers.branch_result(token, x, list(x.shape), count + n) for n, x in enumerate(kept_tensors)]
        first = len(sides[0][2].tensors)
        numbers = [node.args[3] for node in results]

        def backward(gradients: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> list[Tensor | None]:
            pred, *restored = tensors
            sides[0][2].restored = lambda n: restored[n]
            sides[1][2].restored = lambda n: restored[first + n]
            return self._backward(pred, sides, numbers, gradients)

        self._graft(results, sizes, [kept for *_, kept in sides], [pred, *saved], backward)

    def _add_results(
        self, marks: Sequence[Tensor], places: Sequence[Sequence[Node | None]], kept: Sequence[Sequence[Tensor]]
    ) -> None:
        """Adds what both sides keep to the values that they return; of what the other side keeps, memory alone."""
        ends = [recorded(x) for x in marks]
        for number, end in enumerate(ends):
            assert end is not None
            added = []
            for side, tensors in enumerate(kept):
                for x, place in zip(tensors, places[side], strict=True):
                    added.append(place if side == number else _empty_before(end, x))
            end.args = (end.args[0], [*end.args[1], *added], *end.args[2:])  # type: ignore[misc]

    def _backward(
        self,
        pred: Tensor,
        sides: Sequence[tuple[list[Any], list[Tensor], _Kept]],
        numbers: Sequence[Any],
        gradients: Sequence[Any],
    ) -> list[Tensor | None]:
        token = markers.branch_begin(pred)
        used: list[Tensor] = []
        for (given, leaves, _), marker in zip(sides, (markers.branch_else, markers.branch_end), strict=True):
            outputs = []
            for number, gradient in zip(numbers, gradients, strict=True):
                if gradient is not None:
                    _equal_sizes(token, given[number], gradient)
                    outputs.append((given[number], gradient))
            found = self._gradients(outputs, leaves)
            used = [(x if x is not None else _zeros(leaf)).contiguous() for x, leaf in zip(found, leaves, strict=True)]
            token = marker(token, used, [], [])
        return [markers.branch_result(token, x, list(x.shape), n) for n, x in enumerate(used)]


def _empty_before(place: Node, like: Tensor) -> Node:
    """Memory like a tensor's, as a node before another."""
    sizes = [s if isinstance(s, int) else _node_of_size(s) for s in like.shape]
    graph = place.graph
    with graph.inserting_before(place):
        node = graph.call_function(
            torch.ops.aten.empty.memory_format, (sizes,), {"dtype": like.dtype, "device": like.device}
        )
    kept = recorded(like)
    assert kept is not None
    node.meta = {key: kept.meta[key] for key in ("val", "tensor_meta", "stack_trace") if key in kept.meta}
    return node


def _node_of_size(size: torch.SymInt) -> Any:
    mode = get_proxy_mode()
    assert mode is not None
    if size.node.expr.is_Integer:
        return int(size.node.expr)
    proxy: Any = get_proxy_slot(size, mode.tracer, None)
    if proxy is None:
        raise errors.InternalError("import", f"the size {size} is not part of the trace. {errors.REPORT}")
    return (proxy.force() if hasattr(proxy, "force") else proxy).node


def _equal_sizes(token: Tensor, value: Tensor, gradient: Tensor) -> None:
    """Has a side know that the sizes of a result are those of its own value there."""
    for have, want in zip(value.shape, gradient.shape, strict=True):
        if not statically_known_true(have == want):
            markers.branch_fact(token, 1, have - want)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


class Loop(_Region):
    """A loop with a gradient."""

    def __init__(self, evaluation: Evaluation, nodes: Sequence[Node], end: Node, outer: Sequence[Node]) -> None:
        super().__init__(evaluation, end, outer)
        self._nodes = nodes

    def run(self, results: Sequence[Node], sizes: Sequence[Node]) -> None:
        """Traces the loop, then its results."""
        evaluation, values = self._evaluation, self._values
        begin, end = self._nodes[0], self._end
        count = evaluation.operands(begin.args[0])
        has_condition = begin.args[1] is not None
        token = evaluation.call(begin)
        mutable = _changes(self._nodes)
        by_row = {} if has_condition else self._read_by_row(count)
        kept = _Kept(self._known)
        # Not those of loops inside.
        carried = [node for node in self._nodes if node.target is markers.loop_carried and node.args[0] is begin]
        differentiable = [node for node in carried if node.meta["val"].is_floating_point()]
        self._check_carried(differentiable)
        first: dict[Node, Tensor] = {}

        def leaf(node: Node, value: Tensor) -> Tensor:
            first[node] = value.detach().requires_grad_()
            return first[node].clone() if mutable else first[node]

        def carry(node: Node) -> Callable[[Evaluation], Tensor]:
            def value(step: Evaluation) -> Tensor:
                _, start, size, slot = node.args
                with torch.no_grad():
                    begins = step.operands(start).detach()
                    return markers.loop_carried(token, begins, step.operands(size), slot)  # type: ignore[no-any-return]

            return lambda step: leaf(node, value(step))

        def read(node: Node, source: Node, dim: int) -> Callable[[Evaluation], Tensor]:
            def value(step: Evaluation) -> Tensor:
                with torch.no_grad():
                    whole = values[source].detach()
                    row = whole.select(dim, step.operands(node.args[2]))
                found, known = recorded(row), recorded(whole)
                assert found is not None and known is not None
                kept.rows[found] = known, dim
                return row

            return lambda step: leaf(node, value(step))

        special = {node: carry(node) for node in differentiable}
        special.update({node: read(node, *place) for node, place in by_row.items()})
        with kept.recording():
            summed = [node for node in self._captured if not self._only_rows(node, by_row)]
            leaves, inside = self._leaves(summed, mutable)
            step = Evaluation(evaluation.module, {**values, **inside, begin: token}, special)
            step.evaluate(self._nodes[1:])
            slots, now, after, stacked, again, numbers = (step.operands(x) for x in end.args[1:])
        for x in kept.tensors:
            self._check_size(x)
        given = [x.detach() for x in (*stacked, *kept.tensors)]
        with torch.no_grad():
            detached = ([x.detach() for x in now], [x.detach() for x in after], given)
            token = markers.loop_end(token, slots, *detached, None if again is None else again.detach(), numbers)
        values.update({node: x for node, x in step.values.items() if node not in values})
        values[end] = token
        trips = self._trips(sizes, token) if has_condition else count
        saved = [markers.loop_stack(token, x, trips, len(stacked) + n) for n, x in enumerate(kept.tensors)]
        place = {slot: number for number, slot in enumerate(slots)}
        backward = _LoopGradient(
            self, kept, trips,
            carried=[(node.args[3], first[node]) for node in differentiable],
            firsts=[node.args[1] for node in differentiable],
            after={slot: after[number] for slot, number in place.items()},
            stacked=list(stacked),
            summed=dict(zip(summed, leaves, strict=True)),
            rows=[(source, dim, first[node]) for node, (source, dim) in by_row.items()],
            results=[(node.target, node.args[-1]) for node in results],
        )  # fmt: skip
        self._graft(results, sizes, [kept], saved, backward)

    def _check_carried(self, carried: Sequence[Node]) -> None:
        """A tensor that has other sizes in other steps has no gradient yet."""
        for node in carried:
            first, inside = node.args[1].meta["val"], node.meta["val"]  # type: ignore[union-attr]
            if any(_expression(a) != _expression(b) for a, b in zip(first.shape, inside.shape, strict=True)):
                raise errors.GradientError(
                    "import",
                    f"the gradient of a tensor that changes its size from step to step of a loop: at first"
                    f" {list(first.shape)}, then {list(inside.shape)}",
                    self._source,
                    help="write to the rows of a tensor that has its final size before the loop, or use torch.where",
                )

    def _trips(self, sizes: Sequence[Node], token: Tensor) -> Any:
        """How many steps the loop made."""
        marks = [node for node in sizes if node.target is markers.loop_trips]
        reads = [node for node in sizes if marks and node.args and node.args[0] is marks[0]]
        if reads:
            # Only one number stands for it.
            self._evaluation.evaluate([marks[0], reads[0]])
            return self._values[reads[0]]
        trips = markers.loop_trips(token).item()
        torch._check(trips >= 0)
        return trips

    def _read_by_row(self, count: Any) -> dict[Node, tuple[Node, int]]:
        """The nodes of a step that read the step's own row of a tensor from outside that has a row for each step."""
        found = {}
        indices = [
            node for node in self._nodes if node.args and node.args[0] is self._nodes[0] and node.op == "call_function"
            and node.target in (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
        ]  # fmt: skip
        for node in outermost(self._nodes[1:]):
            if node.target is torch.ops.aten.select.int and node.args[0] in self._captured:
                source, dim, index = node.args
                value = self._values[source]  # type: ignore[index]
                if index in indices and statically_known_true(value.shape[dim] == count):
                    found[node] = (source, dim)
        return found  # type: ignore[return-value]

    def _only_rows(self, source: Node, by_row: dict[Node, Any]) -> bool:
        """Whether a tensor is used by the step for its rows alone."""
        return all(node in by_row for node in self._nodes if source in node.all_input_nodes)

    @property
    def captured(self) -> Sequence[Node]:
        """The tensors from outside that have gradients."""
        return self._captured

    @property
    def values(self) -> dict[Node, Any]:
        """What nodes outside of the loop are."""
        return self._values


class _LoopGradient:
    """The gradient of a loop: called with the gradients of its results."""

    def __init__(
        self, loop: Loop, kept: _Kept, trips: Any, *, carried: Sequence[tuple[Any, Tensor]], firsts: Sequence[Any],
        after: dict[Any, Tensor], stacked: Sequence[Tensor], summed: dict[Node, Tensor],
        rows: Sequence[tuple[Node, int, Tensor]], results: Sequence[tuple[Any, Any]],
    ) -> None:  # fmt: skip
        self._loop, self._kept, self._trips = loop, kept, trips
        self._carried, self._firsts, self._after, self._stacked = carried, firsts, after, stacked
        self._summed, self._rows, self._results = summed, rows, results

    def __call__(self, gradients: Sequence[Tensor | None], saved: Sequence[Tensor]) -> list[Tensor | None]:
        self._kept.restored = lambda n: saved[n].select(0, self._kept.step)
        of_last: dict[Any, Tensor] = {}
        of_stack: dict[Any, Tensor] = {}
        for (target, number), gradient in zip(self._results, gradients, strict=True):
            if gradient is not None:
                where = of_last if target is markers.loop_last else of_stack
                where[number] = where[number] + gradient if number in where else gradient
        begins = [of_last[slot].contiguous() if slot in of_last else _zeros(leaf) for slot, leaf in self._carried]
        begins += [_zeros(leaf) for leaf in self._summed.values()]
        begin = markers.loop_begin(self._trips, None)
        index = begin.item()
        torch._check(index >= 0)
        torch._check(index < self._trips)
        number = self._trips - 1 - index
        torch._check(number >= 0)
        inside = [markers.loop_carried(begin, x, list(x.shape), slot) for slot, x in enumerate(begins)]
        now, sums = inside[: len(self._carried)], inside[len(self._carried) :]
        self._kept.step = number
        outputs: list[tuple[Tensor, Tensor | None]] = [
            (self._after[slot], x) for (slot, _), x in zip(self._carried, now, strict=True)
        ]
        outputs += [(self._stacked[n], x.select(0, number)) for n, x in of_stack.items()]
        leaves = [*(x for _, x in self._carried), *self._summed.values(), *(x for *_, x in self._rows)]
        found = self._loop._gradients(outputs, leaves)
        split = len(self._carried), len(self._carried) + len(self._summed)
        after = [(x if x is not None else _zeros(old)).contiguous() for x, old in zip(found, now, strict=False)]
        after += [old if x is None else old + x for x, old in zip(found[split[0] : split[1]], sums, strict=True)]
        rows = [
            (x if x is not None else _zeros(leaf)).contiguous()
            for x, (*_, leaf) in zip(found[split[1] :], self._rows, strict=True)
        ]
        end = markers.loop_end(begin, list(range(len(inside))), inside, after, rows, None, [])
        lasts = [markers.loop_last(end, x, list(x.shape), slot) for slot, x in enumerate(begins)]
        stacks = [markers.loop_stack(end, x, self._trips, n) for n, x in enumerate(rows)]
        return self._totals(lasts, stacks, split[0])

    def _totals(self, lasts: Sequence[Tensor], stacks: Sequence[Tensor], carried: int) -> list[Tensor | None]:
        """The gradients of the tensors from outside."""
        totals: dict[Node, Tensor] = {}

        def add(node: Node, gradient: Tensor) -> None:
            totals[node] = totals[node] + gradient if node in totals else gradient

        for node, gradient in zip(self._firsts, lasts, strict=False):
            add(node, gradient)
        for node, gradient in zip(self._summed, lasts[carried:], strict=True):
            add(node, gradient)
        for (node, dim, _), stack in zip(self._rows, stacks, strict=True):
            add(node, stack.flip(0).movedim(0, dim))
        return [totals.get(node) for node in self._loop.captured]


class _Graft(torch.autograd.Function):
    """Results of a region with the region's gradient: ``apply(backward, (k, n), k tensors, n captured ones, results)``.

    ``backward`` is called with the gradients of the results and the k tensors.
    """

    @staticmethod
    def forward(
        ctx: Any, backward: Callable[..., Any], counts: tuple[int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        kept, captured = counts
        ctx.gradient, ctx.counts = backward, (*counts, len(tensors) - kept - captured)
        ctx.save_for_backward(*tensors[:kept])
        results = tuple(x.view_as(x) for x in tensors[kept + captured :])
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        kept, captured, results = ctx.counts
        found: Sequence[Tensor | None] = [None] * captured
        if any(x is not None for x in gradients):
            found = ctx.gradient(gradients, ctx.saved_tensors)
        return (None, None, *[None] * kept, *found, *[None] * results)
