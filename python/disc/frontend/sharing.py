"""In-place changes in a traced graph that other names of the same tensor would not see.

The result of a branch or a loop is a separate tensor in the graph. In Python it may be a tensor with other names::

    y = x if c else z
    y.add_(1)                # changes x or z, too
    return x

Such a change is an error if it could be seen. The markers show which tensors a memory may be (its roots).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx import Node

from .. import errors
from ..torch_compat.tensors import functorch
from . import markers
from .locations import describe, source_of
from .proving import is_positive

# Its operands are of many types.
_Node: TypeAlias = Any

_KEPT = (InputKind.USER_INPUT, InputKind.BUFFER, InputKind.PARAMETER)
_STATE = (InputKind.BUFFER, InputKind.PARAMETER)
_SIZES = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset")
_RESULTS = (markers.branch_result, markers.loop_last, markers.loop_stack, markers.procedure_result)
_COPY = torch.ops.aten.copy_.default
_SIDES = (markers.branch_else, markers.branch_end)
_ENDS = (markers.branch_end, markers.loop_end, markers.procedure_end)
_REPEATED = (markers.loop_begin, markers.procedure_begin)
# The operands that a marker reads. Other nodes read all of them.
_READ = {
    markers.branch_else: (1,),
    markers.branch_end: (1,),
    markers.loop_end: (3, 4, 5),
    markers.procedure_end: (1,),
    markers.procedure_call: (1,),
    **dict.fromkeys(_RESULTS, ()),
}


def check_sharing(program: ExportedProgram) -> None:
    """CompileError if the program changes a tensor in place that may be another one in Python, and that is seen."""
    if any(node.target in (markers.branch_begin, markers.loop_begin) for node in program.graph.nodes):
        _Sharing(program).check()


class _Sharing:
    def __init__(self, program: ExportedProgram) -> None:
        self._nodes = list(program.graph.nodes)
        self._at = {node: at for at, node in enumerate(self._nodes)}
        self._paths: dict[_Node, tuple[_Node, ...]] = {}
        """The markers that begin the regions around a node; for an else side, the marker between the sides."""
        self._memory: dict[int, _Node] = {}
        """By storage: the first node that has it; for a copy in a region, that of the original."""
        self._roots: dict[_Node, set[_Node]] = {}
        self._reads: dict[_Node, list[_Node]] = {}
        self._writes: list[tuple[_Node, _Node]] = []
        self._done: dict[_Node, int] = {}
        """Where changes happen, if not at their node."""
        self._made: list[tuple[_Node, list[_Node]]] = []
        """The results of regions, with the tensors that each may be."""
        kept = [s.arg for s in program.graph_signature.input_specs if s.kind in _KEPT]
        self._targets = {
            s.arg.name: f"self.{s.target}" for s in program.graph_signature.input_specs if s.kind in _STATE
        }
        """What the model calls a tensor that it keeps."""
        names = {arg.name for arg in kept if isinstance(arg, TensorArgument)}
        self._kept = {node for node in self._nodes if node.op == "placeholder" and node.name in names}
        """Tensors that the caller sees after the call."""
        self._walk()

    def _walk(self) -> None:
        path: tuple[_Node, ...] = ()
        for node in self._nodes:
            leaves = node.target is markers.branch_else or node.target in _ENDS
            path = path[:-1] if leaves else path
            self._paths[node] = path
            if node.target in (markers.branch_begin, markers.branch_else, *_REPEATED):
                path = (*path, node)
            self._name(node)
        for node in self._nodes:
            self._note(node)
        news = True
        while news:
            news = False
            for memory, maybe in self._made:
                roots = self._roots[memory]
                known = len(roots)
                roots.update(*(self._roots[self._of(x)] for x in maybe))
                news |= len(roots) != known

    def _of(self, node: _Node) -> _Node:
        """The memory of a tensor."""
        if changed_in_place(node):
            return self._of(changed_in_place(node)[0])
        storage = storage_of_node(node)
        if storage not in self._memory:
            self._memory[storage] = node
            self._roots[node] = {node}
        return self._memory[storage]

    def _name(self, node: _Node) -> None:
        if node.target is markers.branch_enter or (node.target is markers.loop_carried and self._is_copy(node)):
            self._memory[storage_of_node(node)] = self._of(node.args[1])
        elif _is_tensor(node):
            maybe = list(_alternatives(node))
            if any(not _is_written_to(user, node, maybe) for user in node.users):
                self._made.append((self._of(node), maybe))
            self._of(node)

    def _note(self, node: _Node) -> None:
        changed = changed_in_place(node)
        for operand in _read(node):
            memory = self._of(operand)
            # A view reads nothing.
            if node.target in _SIDES and self._is_written_back(node, operand):
                continue
            if changed or not (_is_tensor(node) and self._of(node) is memory):
                self._reads.setdefault(memory, []).append(_reader(node))
        # Without a line: a buffer is set to another tensor, which changes no tensor.
        if changed and node.meta.get("stack_trace"):
            self._writes += [(node, self._of(x)) for x in changed]
            source = _source(node)
            if source is not None:
                # Written back: the change was made in the region, and its other results include it.
                self._done[node] = self._at[source.args[0]]

    @staticmethod
    def _is_written_back(side: _Node, value: _Node) -> bool:
        """Whether a side returns a tensor only as its own next value."""
        end = side if side.target is markers.branch_end else _user(side, markers.branch_end)
        places = [n for n, x in enumerate(side.args[1]) if x is value]
        results = [x for x in end.users if x.target is markers.branch_result and x.args[3] in places]
        return all(_is_written_to(user, result, [value]) for result in results for user in result.users)

    @staticmethod
    def _is_copy(carried: _Node) -> bool:
        """Whether a step changes it in place: then it is written back after the loop."""
        begin, first, _, slot = carried.args
        end = _user(begin, markers.loop_end)
        number = list(end.args[1]).index(slot) if slot in end.args[1] else -1
        lasts = [x for x in end.users if x.target is markers.loop_last and x.args[3] == number]
        return any(_is_written_to(user, last, [first]) for last in lasts for user in last.users)

    # -- the check ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """CompileError if a change is lost."""
        by_root: dict[_Node, list[_Node]] = {}
        for memory, roots in self._roots.items():
            for root in roots:
                by_root.setdefault(root, []).append(memory)
        for write, memory in self._writes:
            others = {x for root in self._roots[memory] for x in by_root[root] if x is not memory}
            for other in sorted(others, key=self._at.__getitem__):
                if other in self._given(write) or self._is_of_an_earlier_step(other, memory):
                    continue
                for read in self._reads.get(other, ()):
                    if self._is_stale(other, write, read):
                        is_output = read.op == "output"
                        seen = (
                            "an output of the model"
                            if is_output
                            else f"the tensor that {describe(source_of(read))} reads"
                        )
                        raise self._refusal(write, memory, other, seen)
                if other in self._kept and not self._is_overwritten(other, write, len(self._nodes)):
                    raise self._refusal(write, memory, other, f"the model's {other.target}")
        for end in self._nodes:
            if end.target is markers.loop_end:
                self._check_rows(end)
        self._check_kept()

    def _check_kept(self) -> None:
        """What a call sets to one of several tensors is that tensor in the next call, and no copy of it."""
        written = {memory for _, memory in self._writes}
        for node in self._nodes:
            # Without a line: an assignment, see replaced_buffers.py.
            if node.target is not _COPY or node.meta.get("stack_trace"):
                continue
            target, value = self._of(node.args[0]), node.args[1]
            while value.target in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
                value = value.args[0]
            roots = self._roots[self._of(value)] - {target, self._of(value)}
            others = {x for x in roots if x.op == "placeholder"}
            if others and (target in written or others & written):
                raise errors.ControlFlowError(
                    "import",
                    f"{self._targets.get(target.name, 'a tensor of the model')} is set to one of several tensors that"
                    " exist before the call, as a branch or a loop on data decides, and calls change one of them in"
                    " place: assign a clone()",
                )

    def _given(self, write: _Node) -> set[_Node]:
        """The tensors of a change that passes on another one."""
        source = _source(write)
        if source is None or source.target is not markers.branch_result:
            return set()
        return {self._of(x) for x in _alternatives(source)}

    def _is_of_an_earlier_step(self, other: _Node, memory: _Node) -> bool:
        """Whether ``other`` is a tensor that a loop carries, and each step creates ``memory``."""
        carried = other.target is markers.loop_carried
        return carried and other.args[0] in self._paths[memory] and self._roots[memory] == {memory}

    def _is_stale(self, other: _Node, write: _Node, read: _Node) -> bool:
        """Whether ``read`` may read the value of ``other`` before the change."""
        if self._at[other] > self._done.get(write, self._at[write]) or self._are_exclusive(other, write):
            return False
        again = set(self._paths[write]) & set(self._paths[read]) - set(self._paths[other])
        if any(region.target in _REPEATED for region in again):
            return True
        behind = self._at[read] > self._at[write] and not self._are_exclusive(write, read)
        return behind and not self._is_overwritten(other, write, self._at[read])

    def _are_exclusive(self, a: _Node, b: _Node) -> bool:
        for x, y in zip(self._paths[a], self._paths[b], strict=False):
            if x is not y:
                return x in y.args or y in x.args
        return False

    def _is_overwritten(self, memory: _Node, write: _Node, before: int) -> bool:
        """Whether all of a memory is overwritten after every ``write``."""
        for node in self._nodes[self._done.get(write, self._at[write]) + 1 : before]:
            path = self._paths[node]
            if node.target is _COPY and self._whole(node.args[0]) is memory and path == self._paths[write][: len(path)]:
                return True
        return False

    def _whole(self, node: _Node) -> _Node:
        """The memory that a tensor covers completely; else the tensor itself."""
        node = _origin(node)
        while node.target is markers.loop_carried and self._of(node) is not node:
            node = _origin(node.args[1])
        return node

    def _check_rows(self, end: _Node) -> None:
        """A list that steps append to contains the tensors themselves, not their earlier values."""
        begin = end.args[0]
        for row in end.args[4]:
            other = self._of(row)
            for write, memory in self._writes:
                if begin in self._paths[write] and self._changes_earlier(begin, memory, other):
                    raise self._refusal(write, memory, other, "a tensor that steps of a loop append to a list")

    def _changes_earlier(self, loop: _Node, memory: _Node, row: _Node) -> bool:
        """Whether a step that changes ``memory`` changes a tensor that an earlier step has appended."""
        if memory is row:
            following = [x for made, maybe in self._made if made is row for x in maybe]
            return loop not in self._paths[row] or any(row in self._roots[self._of(x)] for x in following)
        # A tensor that the step itself creates did not exist in earlier steps.
        return self._roots[memory] != {memory} and bool(self._roots[memory] & self._roots[row])

    def _refusal(self, write: _Node, memory: _Node, other: _Node, what: str) -> errors.CompileError:
        made = [x for x, maybe in self._made if maybe and x in (memory, other)]
        target = str(made[0].target) if made else ""
        kind = "branch" if "branch" in target else "loop" if "loop" in target else "recursive function"
        where = f" that the {kind} at {describe(source_of(made[0]))} returns" if made else ""
        name = str(write.target).split(".")[1]
        return errors.ControlFlowError(
            "import",
            f"{name} changes a tensor{where} in place, which may be the same as {what}; the change would be lost there:"
            " make a new tensor instead, or clone() it before",
            describe(source_of(write)),
        )


def _source(copy: _Node) -> Any:
    """The result of a marker that an op copies; None if it is something else."""
    source = copy.args[1] if copy.target is _COPY else None
    return source if getattr(source, "target", None) in _RESULTS else None


def _origin(node: _Node) -> _Node:
    """The tensor that was changed in place, or copied so that a side can change it."""
    while True:
        if changed_in_place(node):
            node = changed_in_place(node)[0]
        elif node.target is markers.branch_enter:
            node = node.args[1]
        else:
            return node


def _is_written_to(copy: _Node, value: _Node, tensors: list[_Node]) -> bool:
    """Whether an op sets one of ``tensors`` to ``value``."""
    return copy.target is _COPY and copy.args[1] is value and _origin(copy.args[0]) in map(_origin, tensors)


def _user(node: _Node, kind: object) -> _Node:
    return next(user for user in node.users if user.target is kind)


def _is_tensor(node: _Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def storage_of_node(node: _Node) -> int:
    """The memory of a node's tensor."""
    tensor = node.meta["val"]
    # In torch.vmap.
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


def changed_in_place(node: _Node) -> list[_Node]:
    """The operands that an operation changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = {**dict(zip((arg.name for arg in schema.arguments), node.args, strict=False)), **node.kwargs}
    found = [given.get(arg.name) for arg in schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]
    return [
        x for group in found for x in (group if isinstance(group, (list, tuple)) else [group]) if isinstance(x, Node)
    ]


def _read(node: _Node) -> Iterator[_Node]:
    if any(name in str(node.target) for name in _SIZES):
        return
    operands = [node.args[n] for n in _READ[node.target]] if node.target in _READ else [node.args, node.kwargs]
    found: list[_Node] = []
    torch.fx.map_arg(operands, found.append)
    overwritten = node.args[0] if node.target is _COPY else None
    yield from (x for x in found if _is_tensor(x) and x is not overwritten)


def _reader(node: _Node) -> _Node:
    """Where a node reads its operands."""
    if node.target is markers.loop_carried:
        # The first value, before the loop.
        return node.args[0]
    if node.target is markers.procedure_call and node.args[0].target is markers.procedure_end:
        # The body precedes the call.
        return node.args[0].args[0]
    return node


def _alternatives(node: _Node) -> Iterator[_Node]:
    """The tensors that a marker's result may be."""
    if node.target is markers.branch_result:
        end, _, _, number = node.args
        yield from (side.args[1][number] for side in (end.args[0], end))
    elif node.target is markers.loop_stack:
        end, _, _, number = node.args
        yield end.args[4][number]
    elif node.target is markers.loop_last:
        end, _, _, number = node.args
        yield end.args[3][number]
        slot = end.args[1][number]
        if not _has_step(end.args[0]):
            yield next(x.args[1] for x in end.args[0].users if x.target is markers.loop_carried and x.args[3] == slot)
    elif node.target is markers.procedure_result:
        token, number = node.args[0].args[0], node.args[3]
        end = token if token.target is markers.procedure_end else _user(token, markers.procedure_end)
        yield end.args[1][number]
    elif node.target is markers.procedure_argument:
        begin, slot = node.args[0], node.args[3]
        calls = [*begin.users, *_user(begin, markers.procedure_end).users]
        yield from (call.args[1][slot] for call in calls if call.target is markers.procedure_call)
    elif node.target is markers.loop_carried:
        begin, first, _, slot = node.args
        end = _user(begin, markers.loop_end)
        yield first
        if slot in end.args[1]:
            yield end.args[3][list(end.args[1]).index(slot)]


def _has_step(begin: _Node) -> bool:
    count, pred = begin.args
    return pred is None and is_positive(count if isinstance(count, int) else count.meta["val"])
