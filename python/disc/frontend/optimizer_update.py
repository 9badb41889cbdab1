"""The step of an optimizer as a program: its class's own ``step``, traced with stand-ins for all that it keeps.

Parameters and tensors of the state are buffers, which are changed in place. Gradients are inputs, and so are the
floats among the options, each a 0-d tensor. Numbers of Python that the step changes, such as counts of steps, are
buffers as well. Everything else is as it is in the optimizer, and constant.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from .. import errors
from ..torch_compat import patches
from ..torch_compat.operators import OpOverload
from ..torch_compat.patching import caller, replaced
from . import export
from .locations import is_user_line
from .optimizer_places import EXECUTION, GROUP, NUMBERS, SHARED, STATE, Place, Scope, step_of
from .rewriting.given import GivenNumbers, given

_PACKAGE = torch.__path__[0]
_OPTIMIZERS = f"{_PACKAGE}/optim/"

PARAMETER, GRADIENT, TENSOR, COUNTER, NUMBER = "parameter", "gradient", "tensor", "counter", "number"


@dataclass(frozen=True)
class Role:
    """What an input of the program is."""

    kind: str
    """A parameter, a gradient, a tensor or a number that the step may change, or a number among the options."""
    owner: int = 0
    """The number of the parameter, for a parameter or a gradient."""
    place: Place | None = None
    """Where the optimizer keeps it, for others."""


@dataclass
class Update:
    """A step of an optimizer, for the parameters of a scope."""

    program: ExportedProgram
    scope: Scope
    roles: dict[str, Role]
    """By the name of the placeholder."""
    changed: set[Place]
    """The places of what it changes, numbers of Python in states among them."""
    asked: list[set[str]]
    """For each group, the names of the options that the step reads, or looks for."""
    conditions: list[tuple[Any, dict[Any, Place], bool]]
    """Conditions on options that the step asks for, with the options that their symbols are, and the answers."""
    asks_for_shapes: bool
    """Whether the step asks for a shape."""
    contents: dict[Place, Any] = field(default_factory=dict)
    """What the optimizer kept when it was traced."""


def declared_floats(kind: type[Optimizer]) -> set[str]:
    """The options that are floats, even where a user writes an int: their defaults or annotations say so."""
    found = set()
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if isinstance(parameter.default, float) or "float" in str(parameter.annotation):
            found.add(name)
    return found


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python or of torch, and no bool."""
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def _is_one_deep(place: Place) -> bool:
    """Whether a place is an option, or in a tuple that is one."""
    return len(place.path) == 1 or (len(place.path) == 2 and isinstance(place.path[1], int))


class _Trace:
    """What a trace finds out."""

    def __init__(self, groups: int) -> None:
        self.given = GivenNumbers()
        self.asked: list[set[str]] = [set() for _ in range(groups)]
        self.changed: set[Place] = set()
        self.error: errors.CompileError | None = None
        self.shapes = False


class _Step(torch.nn.Module):
    """A module that calls a function: modules' functions are rewritten where their control flow depends on data."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


class _Update(torch.nn.Module):
    def __init__(self, optimizer: Optimizer, scope: Scope, contents: dict[Place, Any], counted: set[Place]) -> None:
        super().__init__()
        self._optimizer, self.scope, self._contents = optimizer, scope, contents
        self._step = _Step(step_of(type(optimizer)))
        self._tensors: dict[Place, str] = {}
        self._counters: dict[Place, str] = {}
        self.counters: dict[Place, Tensor] = {}
        self.roles: dict[str, Role] = {}
        self._names = [self._buffer(p.detach(), Role(PARAMETER, i)) for i, p in enumerate(scope.parameters)]
        self.numbers: list[Place] = []
        floats = declared_floats(type(optimizer))
        parameters = {id(p) for p in scope.parameters}
        for place, value in contents.items():
            if isinstance(value, Tensor):
                if id(value) not in parameters:
                    self._tensors[place] = self._buffer(value.detach(), Role(TENSOR, place=place))
            elif not is_number(value) or (place.kind == GROUP and place.path[0] in EXECUTION):
                continue
            elif place in counted or place.kind in (STATE, SHARED):
                dtype = torch.int64 if isinstance(value, int) else torch.float64
                self.counters[place] = torch.tensor(value, dtype=dtype)
                self._counters[place] = self._buffer(self.counters[place], Role(COUNTER, place=place))
            elif place.kind == GROUP and _is_one_deep(place) and (isinstance(value, float) or place.path[0] in floats):
                self.numbers.append(place)
        self.trace = _Trace(len(scope.groups))
        self.copies_gradients = False
        """Whether the step changes gradients, which are not the optimizer's to change in a program."""

    def _buffer(self, tensor: Tensor, role: Role) -> str:
        name = f"buffer_{len(self.roles)}"
        self.register_buffer(name, tensor)
        self.roles[name] = role
        return name

    def example(self) -> tuple[Tensor, ...]:
        """Arguments of the kinds that it takes."""
        gradients = [torch.empty_like(p, requires_grad=False) for p in self.scope.parameters]
        numbers = [torch.tensor(float(self._contents[place]), dtype=torch.float64) for place in self.numbers]
        return (*gradients, *numbers)

    def forward(self, *inputs: Tensor) -> tuple[()]:
        trace, scope = self.trace, self.scope
        trace.changed.clear()
        trace.shapes = False
        gradients, numbers = inputs[: len(scope.parameters)], inputs[len(scope.parameters) :]
        # Not Tensor.item: the optimizer's code does not need this number.
        item = torch.ops.aten.item.default
        values = {place: item(number) for place, number in zip(self.numbers, numbers, strict=True)}
        trace.given.begin([(value, float(self._contents[place])) for place, value in values.items()])
        values |= {place: item(getattr(self, name)) for place, name in self._counters.items()}
        values |= {place: getattr(self, name) for place, name in self._tensors.items()}
        parameters = [getattr(self, name) for name in self._names]
        own = {id(p): stand_in for p, stand_in in zip(scope.parameters, parameters, strict=True)}

        def leaf(place: Place, value: Any) -> Any:
            return own[id(value)] if id(value) in own else values.get(place, value)

        copy = scope.stand_in(self._optimizer, parameters, leaf, trace.asked)
        before = scope.contents_of_stand_in(copy, parameters)
        try:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone() if self.copies_gradients else gradient
            with _OfParameters(trace, parameters):
                self._step(copy)
        finally:
            for parameter in parameters:
                parameter.grad = None
        self._keep(before, scope.contents_of_stand_in(copy, parameters))
        return ()

    def _keep(self, before: Mapping[Place, Any], after: Mapping[Place, Any]) -> None:
        """Puts what the step has put in places into the buffers for these."""
        kind = type(self._optimizer).__name__
        copies: list[tuple[Tensor, Tensor]] = []
        for place in [*before, *(place for place in after if place not in before)]:
            if place not in after or place not in before:
                what = "removes" if place in before else "adds"
                self._refuse(f"{kind}.step {what} {place.kind} {place.text!r}, after a first step has been made")
                continue
            old, new = before[place], after[place]
            if new is old:
                continue
            if place in self._tensors and isinstance(new, Tensor):
                copies.append((old, new.clone()))
            elif place in self._counters and is_number(new):
                buffer = getattr(self, self._counters[place])
                copies.append((buffer, torch.scalar_tensor(new, dtype=buffer.dtype)))
            elif is_number(old) and is_number(new):
                if isinstance(new, (torch.SymInt, torch.SymFloat)) or isinstance(old, type(new)) is False or old != new:
                    self.trace.changed.add(place)
            elif not isinstance(old, type(new)) or old != new:
                self._refuse(
                    f"{kind}.step sets {place.kind} {place.text!r} to {new!r}: it must be a tensor or a number"
                )
        for buffer, new in copies:
            buffer.copy_(new)

    def _refuse(self, text: str) -> None:
        self.trace.error = errors.UnsupportedTypeError("import", text)


def _property(name: str) -> Any:
    """An attribute of the class of tensors. DISC itself replaces one, so it is looked up each time."""
    return getattr(Tensor, name)


class _OfParameters(TorchFunctionMode):
    """Answers what code asks of parameters and not of other tensors, as ``p.data``.

    It notes whether the optimizer's code asks for shapes: what is traced may then serve the shapes of its tensors only.
    """

    _ASKING = frozenset(
        (
            _property("shape").__get__,
            _property("ndim").__get__,
            Tensor.size,
            Tensor.dim,
            Tensor.ndimension,
            Tensor.numel,
            Tensor.nelement,
            Tensor.stride,
            Tensor.__len__,
            torch.numel,
        )
    )

    def __init__(self, trace: _Trace, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        self._trace, self._parameters = trace, {id(p) for p in parameters}

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._ASKING:
            file = sys._getframe(1).f_code.co_filename
            self._trace.shapes |= is_user_line(file) or file.startswith(_OPTIMIZERS)
        if func == _property("data").__get__:
            return args[0]  # without gradients it is the same
        if func == _property("data").__set__:
            args[0].copy_(args[1])
            return None
        if func == _property("requires_grad").__get__ and id(args[0]) in self._parameters:
            return True
        return func(*args, **(kwargs or {}))


def _is_compiling(original: Any) -> bool:
    """What optimizers ask: whether they are traced, in which case PyTorch's own compute in float32 what is double."""
    file = caller().f_code.co_filename
    return False if file.startswith(_OPTIMIZERS) or is_user_line(file) else bool(original())


def _power(original: Any, base: torch.SymFloat, exponent: Any) -> Any:
    """A power whose base may be negative, as in Python."""
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    return base.__float_pow__(exponent) if isinstance(exponent, numbers) else original(base, exponent)


def _with_optimizers(original: Any, tracer: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
    """Has nodes keep the lines of PyTorch's optimizers, and that of this file which calls them."""
    kept = {id(frame) for frame in original(tracer, frames)}
    calls = [id(frame) for frame in frames if (frame.filename, frame.name) == (__file__, "forward")]
    kept = kept.union(calls, (id(frame) for frame in frames if frame.filename.startswith(_OPTIMIZERS)))
    return traceback.StackSummary.from_list([frame for frame in frames if id(frame) in kept])


def inside(trace: str) -> str:
    """The part of a node's stack trace that is in the optimizer's code."""
    frames = trace.split("  File ")
    calls = [number for number, frame in enumerate(frames) if frame.startswith(f'"{__file__}"')]
    return "".join(f"  File {frame}" for frame in frames[calls[-1] + 1 :]) if calls else trace


@contextmanager
def _as_in_eager() -> Iterator[None]:
    """While it is active, this thread's optimizers compute as they do when nothing is traced."""
    replacements: dict[patches.Patch, Any] = {
        patches.IS_COMPILING: _is_compiling,
        patches.POWER: _power,
        patches.STACK_TRACES: _with_optimizers,
        patches.PROFILED: lambda _, record: record,
        patches.PROFILED_END: lambda *_: None,
    }
    with replaced(replacements):
        yield


def trace_update(optimizer: Optimizer, scope: Scope) -> Update:
    """The step of an optimizer for the parameters and groups of a scope.

    Raises CompileError if it cannot be traced.
    """
    contents = scope.contents(optimizer)
    counted: set[Place] = set()
    copies_gradients = False
    while True:
        module = _Update(optimizer, scope, contents, counted)
        module.copies_gradients = copies_gradients
        trace = module.trace
        with _as_in_eager(), given(trace.given):
            program = export.export(module, module.example(), {}, None)
        if trace.error is not None:
            raise trace.error
        roles = dict(_roles(program, module))
        written = {name for name in written_inputs(program) if name in roles}
        if trace.changed <= counted and not any(roles[name].kind == GRADIENT for name in written):
            break
        copies_gradients |= trace.changed <= counted
        counted |= trace.changed
    symbols = dict(zip(trace.given.symbols(), module.numbers, strict=True))
    conditions = [
        (expr, {symbol: symbols[symbol] for symbol in expr.free_symbols}, answer)
        for expr, answer in trace.given.asked.items()
    ]
    changed = {place for name in written if (place := roles[name].place) is not None} | module.counters.keys()
    return Update(program, scope, roles, changed, trace.asked, conditions, trace.shapes, contents)


def written_inputs(program: ExportedProgram) -> set[str]:
    """The placeholders that operations of a program change in place, also by views of them."""
    roots: dict[Node, str] = {}
    written: set[str] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            roots[node] = node.name
        if not isinstance(node.target, OpOverload):
            continue
        for position, argument in enumerate(node.target._schema.arguments):
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is None or not isinstance(value, Node) or value not in roots:
                continue
            roots[node] = roots[value]
            if argument.alias_info.is_write:
                written.add(roots[value])
    return written


def _roles(program: ExportedProgram, module: _Update) -> Iterator[tuple[str, Role]]:
    count = len(module.scope.parameters)
    inputs = [Role(GRADIENT, i) for i in range(count)] + [Role(NUMBER, place=place) for place in module.numbers]
    given = iter(inputs)
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            yield spec.arg.name, next(given)
        elif spec.target in module.roles:
            yield spec.arg.name, module.roles[spec.target]
