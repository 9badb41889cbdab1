"""The program of a recursion over a tree: see ``recursion.py``.

The schedule of the tree, then what the code computes from nodes alone, for all of them; the nodes that use no children;
and a loop over the groups of nodes of one height and pattern, with a branch for each pattern.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from . import markers
from .batching import Batch, evaluate, find_independent, needed_inputs, run_batched, same_code

if TYPE_CHECKING:
    from .recursion import Function, Recursion


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


class Program:
    """The program of a recursion, in the graph that is being traced around it."""

    def __init__(self, recursion: Recursion, function: Function) -> None:
        self._recursion, self._function = recursion, function
        self._table = recursion.table
        self._functions = [f for f, graphs in recursion.graphs.items() if graphs]
        self._tables: dict[tuple[Function, int], dict[Any, Tensor]] = defaultdict(dict)
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
        leaves_ = [x if kind is Tensor else x.item() for x, (_, _, kind) in zip(own, known.results, strict=True)]
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

    def _group(self, patterns: Sequence[int], start: Tensor, end: Tensor, states: list[Tensor]) -> list[Tensor]:
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

        return [tree_store(state, new, first) for state, new in zip(states, choose(patterns), strict=True)]

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
            known = {node: Batch(tree_rows(x, first - self._first, extent)) for node, x in tables.items()}
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
