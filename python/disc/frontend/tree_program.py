"""The program of a recursion over a tree: see ``recursion.py``.

The schedule of the tree, then what the code computes from nodes alone, for all of them; the nodes that use no children;
and a loop over the groups of nodes of one height and pattern, with a branch for each pattern.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
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
        self._recursion, self.function = recursion, function
        self._table = recursion.table
        self.functions = [f for f, graphs in recursion.graphs.items() if graphs]
        self._tables: dict[tuple[Function, int], dict[Any, Tensor]] = defaultdict(dict)
        """What is computed before the loop, of which a group takes its rows; the first is that of node ``_first``."""
        self._first: Any = 0
        self.slots = [
            (f, number, dtype, shape)
            for f in self.functions
            for number, (dtype, shape, _) in enumerate(recursion.signature(f).results)
        ]

    def run(self) -> list[Tensor]:
        """The results for the root."""
        recursion, children = self._recursion, self._table.children
        nodes = children.shape[0]
        self.uses = [recursion.used(p) for p in recursion.patterns]
        self.inner = [p for p in recursion.patterns if self.uses[p] > 0]
        schedule = torch.ops.disc.tree_schedule(children, self._table.present, self.uses)
        self._order, self._rows, leaves, self._starts, self.kinds, self._count, self.root = schedule
        states = [torch.zeros((nodes, *shape), dtype=dtype) for *_, dtype, shape in self.slots]
        for pattern in recursion.patterns:
            if self.uses[pattern] == 0:
                states = self._group([pattern], leaves[pattern], leaves[pattern + 1], states)
        self.groups = _number(self._count, nodes)
        if self.inner:
            # What depends on a node alone is computed for all at once, before the loop.
            behind = leaves[len(self.uses)]
            self._first = _number(behind, nodes)
            self._hoist(self.inner, self._first, _number(self._starts[self.groups] - behind, nodes))

            def step(number: Any, states: list[Tensor]) -> list[Tensor]:
                return self._group(self.inner, self._starts[number], self._starts[number + 1], states)

            states = loop(self.groups, nodes, states, step)
        self.states = states
        place = self.root.reshape(1)
        results = [x.index_select(0, place).squeeze(0) for x in states]
        return [x for x, (f, *_) in zip(results, self.slots, strict=True) if f == self.function]

    def _hoist(self, patterns: Sequence[int], first: Any, extent: Any) -> None:
        """Computes for the nodes of a range what their code does without its children."""
        nodes = self._table.children.shape[0]
        torch._check(first + extent <= nodes)
        order = tree_rows(self._order, first, extent)
        tables: dict[Any, Tensor] = {}
        fields: dict[Any, Tensor] = {}
        for function in self.functions:
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
        first, extent = self.bounds(start, end)
        new = self.choose(patterns, first, extent, lambda pattern: self._rows_of(pattern, first, extent, states))
        return [tree_store(state, rows, first) for state, rows in zip(states, new, strict=True)]

    def group_from_end(self, number: Any) -> tuple[Any, Any]:
        """The first row of a group, counted from the last, and how many rows it has."""
        # A number of its own: of the difference PyTorch would conclude that there is a group.
        group = _number(self._count - 1 - number, self._table.children.shape[0])
        return self.bounds(self._starts[group], self._starts[group + 1])

    def bounds(self, start: Tensor, end: Tensor) -> tuple[Any, Any]:
        """The first of some rows, and their number."""
        nodes = self._table.children.shape[0]
        first, extent = _number(start, nodes), _number(end - start, nodes)
        torch._check(first + extent <= nodes)
        return first, extent

    def choose(
        self, patterns: Sequence[int], first: Any, extent: Any, make: Callable[[int], list[Tensor]]
    ) -> list[Tensor]:
        """``make`` of the pattern that the node at ``first`` has: tensors of ``extent`` rows."""
        if len(patterns) == 1:
            return make(patterns[0])
        begin = markers.branch_begin(self.kinds[first] == patterns[0])
        other = markers.branch_else(begin, make(patterns[0]), [], [])
        results = self.choose(patterns[1:], first, extent, make)
        end = markers.branch_end(other, results, [], [])
        return [markers.branch_result(end, x, [extent, *x.shape[1:]], number) for number, x in enumerate(results)]

    def rows(self, first: Any, extent: Any) -> tuple[Tensor, Tensor]:
        """Of some rows, the nodes and their children."""
        return tree_rows(self._order, first, extent), tree_rows(self._rows, first, extent)

    def selected(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rows that stand anywhere."""
        return self._order.index_select(0, places), self._rows.index_select(0, places)

    def batches(
        self, inputs: Mapping[Any, Tensor], needed: Collection[int], nodes: tuple[Tensor, Tensor], states: list[Tensor]
    ) -> dict[int, Tensor]:
        """What stands for the inputs of a graph, for some nodes."""
        return {id(x): self._value(what, *nodes, states) for what, x in inputs.items() if id(x) in needed}

    def _rows_of(self, pattern: int, first: Any, extent: Any, states: list[Tensor]) -> list[Tensor]:
        """The results for the nodes of a pattern from ``first`` on."""
        nodes, results = self.rows(first, extent), []
        for function in self.functions:
            graph = self._recursion.graphs[function][pattern]
            tables = self._tables[function, pattern]
            known = {node: Batch(tree_rows(x, first - self._first, extent)) for node, x in tables.items()}
            outputs = graph.module.graph.output_node().all_input_nodes
            needed = needed_inputs(graph.module, outputs, {id(x) for x in graph.inputs.values()}, known)
            batches = self.batches(graph.inputs, needed, nodes, states)
            results += run_batched(graph.module, batches, extent, known)
        return results

    def _value(self, what: Any, order: Tensor, rows: Tensor, states: list[Tensor]) -> Tensor:
        if what[0] == "field":
            _, name, child = what
            places = order if child is None else self._order.index_select(0, rows[:, child])
            return self._table.column(name).index_select(0, places)  # type: ignore[no-any-return]
        _, function, number, child = what
        return states[self.slot(function, number)].index_select(0, rows[:, child])

    def slot(self, function: Function, number: int) -> int:
        """The place of a result of a function among the tables."""
        return next(i for i, (f, n, *_) in enumerate(self.slots) if f == function and n == number)


def _number(x: Tensor, most: Any) -> Any:
    # Of a copy: PyTorch cannot retrace item() of a view whose offset is dynamic.
    number: Any = x.clone().item()
    torch._check(number >= 0)
    torch._check(number <= most)
    return number


def loop(
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
