"""Tensors that a call changes though they are no buffers: attributes, elements of lists, global variables and so on.

The first trace of a model shows which they are. It is then traced again with them as buffers: for this time a module's
attribute is registered, and at other places the call finds the tensor that is traced for a buffer of the outermost
module. So changes in place and assignments are updates, as those of buffers are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx import Node

from .. import errors
from ..torch_compat import patches, pytree
from ..torch_compat.patching import replaced
from . import state_places
from .locations import describe, source_of
from .result_layouts import storage_of
from .sharing import changed_in_place, storage_of_node
from .state_places import Place, Record, Variable

HELP = "register it as a buffer (register_buffer), or make it an input and an output"


class NeedsState(BaseException):
    """A trace has shown that the model's calls change tensors that are no buffers.

    Not an ``Exception``, after which the model would be traced in other ways.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.tensors = tensors


@dataclass
class Substituted:
    """A place that has the traced tensor of a buffer while the model is traced."""

    place: Place
    value: Tensor
    """What is there otherwise."""
    holder: dict[str, Any]
    """``_buffers`` of the module that has the buffer."""
    name: str
    own: bool
    """Whether the buffer is registered only for this place, and the place is where its values come from."""


_LIFTED = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
"""What the model's code makes with ``torch.tensor``: a copy of a constant."""


def _aliased(node: Node) -> list[Node]:
    """The operands whose memory a result of an operation may have."""
    schema = None if node.target in _LIFTED else getattr(node.target, "_schema", None)
    if schema is None or not any(result.alias_info is not None for result in schema.returns):
        return []
    given = {argument.name: x for argument, x in zip(schema.arguments, node.args, strict=False)} | node.kwargs
    operands = [given.get(argument.name) for argument in schema.arguments if argument.alias_info is not None]
    return [x for x in pytree.tree_leaves(operands) if isinstance(x, Node)]


def changed_constants(program: ExportedProgram) -> dict[str, Node]:
    """The tensors that a program changes in place and that are neither inputs, buffers nor parameters.

    For each name in ``program.constants`` an operation that does so.
    """
    names = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and isinstance(spec.arg, TensorArgument)
    }
    found: dict[str, Node] = {}
    maybe: dict[Node, set[str]] = {}
    """Of a node the constants whose memory it may have."""
    memory: dict[int, set[str]] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        key = storage_of_node(node) if isinstance(value, Tensor) else None
        own = set(memory.get(key, ())) if key is not None else set()
        if node.op == "placeholder" and names.get(node.name):
            own.add(str(names[node.name]))
        # The trace has other memory for what a view of a tensor with data returns.
        own.update(*(maybe.get(operand, ()) for operand in _aliased(node)))
        if own:
            maybe[node] = own
            if key is not None:
                memory.setdefault(key, set()).update(own)
        if node.target is torch.ops.aten.detach_.default:
            continue
        for operand in changed_in_place(node):
            for constant in maybe.get(operand, ()):
                found.setdefault(constant, node)
    return found


def check_constants(program: ExportedProgram, records: Iterable[Record]) -> None:
    """Ends the trace if the program changes tensors that are no buffers: NeedsState, or an error with the line."""
    changed = changed_constants(program)
    if not changed:
        return
    known = {id(record.value) for record in records if isinstance(record.value, Tensor) and record.can_be_replaced}
    tensors = []
    for name, node in changed.items():
        tensor = program.constants[name]
        if id(tensor) not in known:
            raise errors.ControlFlowError(
                "import",
                f"{str(node.target).split('.')[1]} changes in place a tensor that belongs to neither the model nor its"
                f" inputs: {HELP}",
                describe(source_of(node)),
            )
        tensors.append(tensor)
    raise NeedsState(tensors)


def _keeps_real_tensors(original: Any, operator: Any) -> bool:
    return not operator._schema.is_mutable and original(operator)


def _without_real_tensors(original: Any, values: Any, tracer: Any) -> Any:
    found, proxies, all_constant = original(values, tracer)
    real = any(isinstance(x, Tensor) for x in found)
    return found, proxies, all_constant and not real


def _unused(original: Any, node: Node) -> Any:
    return original(node) if node.users else [node]


@contextmanager
def unchanged_by_tracing() -> Iterator[None]:
    """While it is active, PyTorch does not run changes in place of real tensors that it meets in a trace."""
    with replaced(
        {
            patches.NUMBERS_AS_TENSORS: _keeps_real_tensors,
            patches.CONSTANT_OPERANDS: _without_real_tensors,
            patches.UNUSED_CONSTANT: _unused,
        }
    ):
        yield


@dataclass
class Places:
    """Where a trace finds the tensors that are buffers for it."""

    substituted: list[Substituted]
    """The places that must have the traced tensors of buffers, also those of tensors that are buffers anyway."""
    partly: set[tuple[int, str]]
    """The buffers, as an identity of ``_buffers`` and a name, whose memory another tensor of the model has, too."""


@contextmanager
def as_buffers(root: torch.nn.Module, tensors: Sequence[Tensor]) -> Iterator[Places]:
    """While it is active, ``tensors`` are buffers of ``root``."""
    with ExitStack() as stack:
        wanted = {id(tensor) for tensor in tensors}
        buffers = _buffers(root)
        places: list[Substituted] = []
        elsewhere: list[Record] = []
        records = state_places.find(root)[0]
        for record in records:
            tensor = record.value
            if not isinstance(tensor, Tensor) or not record.can_be_replaced:
                continue
            if id(tensor) in wanted and id(tensor) not in buffers and _may_register(record):
                module = next(m for m in root.modules() if vars(m) is record.place.variables)  # type: ignore[attr-defined]
                stack.enter_context(_registered(module, record.name, tensor))
                buffers[id(tensor)] = module._buffers, record.name, False
            elif id(tensor) in wanted or id(tensor) in buffers:
                elsewhere.append(record)
        for record in elsewhere:
            tensor = record.value
            if id(tensor) not in buffers:
                name = _free_name(root, record.place.path)
                stack.enter_context(_registered(root, name, tensor))
                buffers[id(tensor)] = root._buffers, name, True
            places.append(Substituted(record.place, tensor, *buffers[id(tensor)]))
        yield Places(places, _sharing(root, records))


def _sharing(root: torch.nn.Module, records: Sequence[Record]) -> set[tuple[int, str]]:
    memory: dict[Any, set[int]] = {}
    held = [(holder, name) for m in root.modules() for holder in (m._buffers, m._parameters) for name in holder]
    for tensor in (*(record.value for record in records), *(holder[name] for holder, name in held)):
        if (key := storage_of(tensor)) is not None:
            memory.setdefault(key, set()).add(id(tensor))
    return {(id(holder), name) for holder, name in held if len(memory.get(storage_of(holder[name]), ())) > 1}


def _buffers(root: torch.nn.Module) -> dict[int, tuple[dict[str, Any], str, bool]]:
    found: dict[int, tuple[dict[str, Any], str, bool]] = {}
    for module in root.modules():
        for name, tensor in module._buffers.items():
            if tensor is not None:
                found.setdefault(id(tensor), (module._buffers, name, False))
    return found


def _may_register(record: Record) -> bool:
    """Whether a place is a module's attribute that may be a buffer instead."""
    return isinstance(record.place, Variable) and bool(record.name) and not hasattr(record.kind, record.name)


@contextmanager
def _registered(module: torch.nn.Module, name: str, tensor: Tensor) -> Iterator[None]:
    attribute = vars(module).pop(name, None)
    module._buffers[name] = tensor
    module._non_persistent_buffers_set.add(name)
    try:
        yield
    finally:
        module._buffers.pop(name, None)
        module._non_persistent_buffers_set.discard(name)
        if attribute is not None:
            vars(module)[name] = attribute


def _free_name(root: torch.nn.Module, path: str) -> str:
    """A name for a buffer that says where the tensor is."""
    path = path.removeprefix("self.").removeprefix("the global variable ").removeprefix("the variable ")
    name = re.sub(r"\W+", "_", path).strip("_") or "state"
    while hasattr(root, name):
        name += "_"
    return name
