"""Runs a traced program with real tensors, its markers (``disc.frontend.markers``) as control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from disc.frontend import markers

_ENDS = {markers.branch_begin: markers.branch_end, markers.loop_begin: markers.loop_end}


class Flow:
    """One run of a program."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._nodes = list(program.graph.nodes)
        self._values: dict[Node, Any] = {}
        self.executed: set[str] = set()
        """The names of the nodes that were run."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the program gives for some arguments."""
        program = self._program
        leaves = iter(pytree.tree_leaves((args, kwargs)))
        for spec in program.graph_signature.input_specs:
            node = next(n for n in self._nodes if n.name == getattr(spec.arg, "name", None))
            if spec.kind is InputKind.USER_INPUT:
                self._values[node] = next(leaves)
            else:
                known = program.state_dict.get(spec.target)
                self._values[node] = program.constants[spec.target] if known is None else known
        self._run(0, len(self._nodes) - 1)
        results = [self._value(x) for x in pytree.tree_leaves(self._nodes[-1].args)]
        count = len([s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"])
        return pytree.tree_unflatten(results[len(results) - count :], program.call_spec.out_spec)

    def _value(self, x: Any) -> Any:
        if not isinstance(x, Node):
            return x
        assert x in self._values, f"{x} is used outside of the region that computes it"
        return self._values[x]

    def _operands(self, node: Node) -> tuple[Any, dict[str, Any]]:
        return torch.fx.map_arg((node.args, node.kwargs), self._value)

    def _run(self, start: int, stop: int) -> None:
        at = start
        while at < stop:
            node = self._nodes[at]
            if node.op == "placeholder":
                at += 1
                continue
            self.executed.add(node.name)
            if node.target in _ENDS:
                end = self._end(at)
                (self._branch if node.target is markers.branch_begin else self._loop)(at, end)
                at = end + 1
                continue
            if node.op == "get_attr":
                self._values[node] = getattr(self._program.graph_module, node.target)
            else:
                self._values[node] = self._call(node)
            at += 1

    def _token(self, at: int) -> Node:
        """The node at which the construct that a marker belongs to begins."""
        node = self._nodes[at]
        while node.target is markers.branch_else or node.target is markers.branch_end:
            node = node.args[0]
        return node.args[0] if node.target is markers.loop_end else node

    def _end(self, begin: int) -> int:
        kind = _ENDS[self._nodes[begin].target]
        return next(
            n
            for n in range(begin + 1, len(self._nodes))
            if self._nodes[n].target is kind and self._token(n) is self._nodes[begin]
        )

    def _forget(self, start: int, stop: int) -> None:
        for node in self._nodes[start:stop]:
            self._values.pop(node, None)

    def _branch(self, begin: int, end: int) -> None:
        middle = next(
            n
            for n in range(begin, end)
            if self._nodes[n].target is markers.branch_else and self._nodes[n].args[0] is self._nodes[begin]
        )
        pred = self._value(self._nodes[begin].args[0])
        assert pred.dtype == torch.bool and pred.dim() == 0
        start, stop = (begin + 1, middle) if pred else (middle + 1, end)
        self._values[self._nodes[begin]] = self._values[self._nodes[middle]] = None
        self._run(start, stop)
        (_, values, _, numbers), _ = self._operands(self._nodes[stop])
        self._forget(begin, end)
        self._values[self._nodes[end]] = [x.clone() for x in values], numbers

    def _loop(self, begin: int, end: int) -> None:
        first, last = self._nodes[begin], self._nodes[end]
        (count, pred), _ = self._operands(first)
        slots: dict[int, torch.Tensor] = {}
        numbers: list[Any] = []
        rows: list[list[torch.Tensor]] = [[] for _ in last.args[4]]
        step = 0
        self._initial(begin, end, slots, numbers)
        while (count < 0 or step < count) and (pred is None or bool(pred)):
            self._values[first] = torch.tensor(step)
            self._slots, self._numbers = slots, numbers
            saved = slots, numbers
            self._state = {first: saved}
            self._states = {**getattr(self, "_states", {}), first: saved}
            self._run(begin + 1, end)
            (_, places, _, following, added, pred, numbers), _ = self._operands(last)
            slots = {place: x.clone() for place, x in zip(places, following, strict=True)}
            for column, row in zip(rows, added, strict=True):
                column.append(row.clone())
            self._forget(begin, end)
            step += 1
        places = last.args[1]
        self._values[last] = {
            "trips": step,
            "last": [slots[place] for place in places],
            "numbers": numbers,
            "rows": rows,
        }

    def _initial(self, begin: int, end: int, slots: dict[int, Any], numbers: list[Any]) -> None:
        for node in self._nodes[begin:end]:
            if node.target is markers.loop_carried and node.args[0] is self._nodes[begin]:
                slots[node.args[3]] = self._value(node.args[1]).clone()
            if node.target is markers.loop_number and node.args[0] is self._nodes[begin]:
                assert node.args[2] == len(numbers)
                numbers.append(self._value(node.args[1]))

    def _call(self, node: Node) -> Any:
        target = node.target
        if target is markers.branch_fact:
            _, kind, value = self._operands(node)[0]
            assert (value >= 0, value == 0, value != 0)[kind], f"{node}: {value}"
            return None
        if target in _MARKERS:
            token = node.args[0]
            rest = [[*map(self._value, x)] if isinstance(x, list) else self._value(x) for x in node.args[2:]]
            if target is markers.branch_enter:
                return self._value(node.args[1]).clone()
            if target is markers.loop_carried:
                size, slot = rest
                value = self._states[token][0][slot].clone()
                assert list(value.shape) == size, (node, value.shape, size)
                return value
            if target is markers.loop_number:
                return torch.tensor(self._states[token][1][rest[0]])
            return self._result(node, self._value(token), rest)
        args, kwargs = self._operands(node)
        if target is torch.ops.aten._assert_scalar.default:
            if not args[0]:
                raise RuntimeError(args[1])
            return None
        return target(*args, **kwargs)

    def _result(self, node: Node, end: Any, rest: Sequence[Any]) -> torch.Tensor:
        target = node.target
        if target is markers.branch_size:
            return torch.tensor(end[0][node.args[1]].shape[rest[0]])
        if target is markers.branch_number:
            return torch.tensor(end[1][node.args[1]])
        if target is markers.loop_trips:
            return torch.tensor(end["trips"])
        if target is markers.loop_last_number:
            return torch.tensor(end["numbers"][node.args[1]])
        size, number = rest
        like = node.args[1].meta["val"]
        if target is markers.loop_stack:
            rows = end["rows"][number]
            shape = [n if isinstance(n, int) else rows[0].shape[d] for d, n in enumerate(like.shape)]
            value = torch.stack(rows) if rows else torch.empty([0, *shape], dtype=like.dtype)
            assert len(rows) == size
            return value
        value = end[0][number] if target is markers.branch_result else end["last"][number]
        assert list(value.shape) == size and value.dtype == like.dtype, (node, value.shape, size)
        return value.clone()


_MARKERS = {
    getattr(markers, name)
    for name in dir(markers)
    if name.startswith(("branch_", "loop_")) and getattr(markers, name) not in _ENDS
}


def run(program: ExportedProgram, *args: Any, **kwargs: Any) -> Any:
    """What a traced program gives for some arguments."""
    return Flow(program).run(*args, **kwargs)
