"""Graphs of aten ops as native code: compiling one, and calling it with what AOTAutograd passes."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import profiler
from torch.fx import GraphModule, Node

from ..backends.negotiation import Decisions
from ..compilation import LOAD, Compilation
from ..compiler import build, load, steps, target_of
from ..data_aliases import aliases_of, reads
from ..errors import ShapeError, raise_coded
from ..frontend import device_of, graph_program, import_functional
from ..frontend.program import passed
from ..options import Options
from ..pipeline import IMPORT
from ..recorder import Recorder
from ..viewers import torch_profiler
from .result_function import result_function

log = logging.getLogger("disc.dynamo")

# After so many calls with other parameters than the last one's, they are passed as inputs.
_MAX_RELOADS = 4


class CompiledGraph:
    """One graph as native code, for all sizes of its symbols. A call with the graph's arguments returns its results.

    Parameters that the graph only reads are packed when it is compiled. Each call compares the identity, the version
    counter and the address of each with those of the packed ones, and the changes through ``.data``, and packs again
    what differs. Several threads may call the graph at once: parameters are packed again while no call runs.
    """

    def __init__(
        self,
        graph: GraphModule,
        options: Options,
        fixed: Mapping[int, torch.Tensor] | None = None,
        updates: Sequence[tuple[Node, Node]] = (),
        name: str = "graph",
    ) -> None:
        self.name = name
        """What profilers and traces call it."""
        self._graph = graph
        self._device = device_of(graph.graph)
        if options.target is None:
            options = dataclasses.replace(options, target=target_of(self._device))
        self._options = options
        self._updates = updates
        self._reloads = 0
        self._turns = _Turns()
        self._numbers_are_sizes = False
        self._numbers: list[tuple[int, torch.dtype | None]] = []
        try:
            self._compile(dict(fixed or {}))
        except Exception:
            if not any(dtype is torch.int64 for _, dtype in self._numbers):
                raise
            # More operations take numbers that are never negative. PyTorch runs calls with others.
            self._numbers_are_sizes = True
            self._compile(dict(fixed or {}))

    def _compile(self, fixed: dict[int, torch.Tensor]) -> None:
        program, interface = graph_program(self._graph, fixed, self._updates, self._numbers_are_sizes)
        self._numbers = interface.numbers
        compilation = Compilation(self._options, self.name)
        with compilation.progress(steps(compilation)), torch.no_grad():
            with compilation.step(IMPORT):
                imported = import_functional(program, owned=True, negotiation=compilation.negotiation)
                compilation.program = imported
            executable = build(compilation, imported, self._device.index or 0)
            assert executable is not None
            with compilation.step(LOAD):
                load(executable, imported.parameters)
        self.timings: dict[str, float] = compilation.timings
        """Seconds that each stage took."""
        negotiation = compilation.negotiation
        self.decisions = Decisions(() if negotiation is None else negotiation.decisions)
        """Who compiles operations that back ends of others could compile."""
        self.texts: dict[str, str] = compilation.texts
        """The IR after each stage but the last."""
        self._executable = executable
        self._recorder = Recorder(executable, executable.run)
        # Constants of the graph never change.
        names = [node.name for node in self._graph.graph.nodes if node.op == "placeholder"]
        self._fixed_names = {i: names[i] for i in fixed}
        self._constants = {
            name: tensor for name, tensor in imported.parameters.items() if name not in self._fixed_names.values()
        }
        self._packed(fixed)
        # What main takes that differs from the argument: complex numbers are pairs.
        self._complex = any(not entry.is_plain for entry in imported.inputs)
        imported.release()
        self._imported = imported
        self._arguments = interface.arguments
        kinds = [(output.is_plain, output.index) for output in imported.outputs]
        plain = kinds == [(True, i) for i in range(len(kinds))]
        self._unflatten: Callable[..., Any] | None = None if plain else imported.unflatten
        self._results = result_function(interface)

    def __call__(self, *args: Any) -> list[Any]:
        """The results for these arguments: tensors and sizes, in the graph's order."""
        if not self._fixed:
            return self._call(args)
        with self._turns.shared:
            if self._is_packed(args):
                return self._call(args)
        with self._turns.alone:
            if not self._is_packed(args):
                self._reload(args)
            return self._call(args)

    def _is_packed(self, args: Sequence[Any]) -> bool:
        """Whether the parameters are those that were packed, unchanged."""
        for i, tensor, version, data in self._fixed:
            given = args[i]
            if given is not tensor or _version(given) != version or given.data_ptr() != data:
                return False
        return not self._changed_by_data()

    def _call(self, args: Sequence[Any]) -> list[Any]:
        inputs = [args[i] for i in self._arguments]
        if self._complex:
            inputs = [passed(x) for x in inputs]
        for i, dtype in self._numbers:
            if dtype is not None:
                inputs.append(torch.tensor(args[i], dtype=dtype, device=self._device))
            elif args[i] >= 0:
                inputs.append(torch.empty((args[i], 0), dtype=torch.uint8, device=self._device))
            else:
                raise ShapeError(f"the size {args[i]} is negative")
        try:
            if profiler._is_profiler_enabled:
                computed = torch_profiler.run(self.name, self._recorder, inputs)
            else:
                computed = self._recorder.run(inputs)
        except IndexError as error:
            raise_coded(error)
            raise
        if self._unflatten is not None:
            computed = self._unflatten(computed, inputs)
        return self._results(args, computed)

    def _reload(self, args: Sequence[Any]) -> None:
        other = any(args[i] is not tensor for i, tensor, _, _ in self._fixed)
        self._reloads += other
        if self._reloads > _MAX_RELOADS:
            log.info("each call of a graph has other parameters: it is compiled again, with them as inputs")
            self._compile({})
            return
        fixed = {i: args[i] for i in self._fixed_names}
        tensors = {name: fixed[i] for i, name in self._fixed_names.items()}
        self._packed(fixed)
        load(self._executable, {**self._constants, **tensors})

    def _packed(self, fixed: Mapping[int, torch.Tensor]) -> None:
        """Notes what the parameters are, before they are packed."""
        self._reads = reads()
        self._aliases = [aliases_of(tensor) for tensor in fixed.values()]  # While the former ones are still there.
        self._aliased = True
        self._changes = self._changes_by_data()
        self._fixed = [(i, tensor, _version(tensor), tensor.data_ptr()) for i, tensor in fixed.items()]

    def _changed_by_data(self) -> bool:
        count = reads()
        if count == self._reads and not self._aliased:
            return False
        aliased = any(aliases.alive() for aliases in self._aliases)
        if self._changes != self._changes_by_data():
            return True
        self._reads, self._aliased = count, aliased
        return False

    def _changes_by_data(self) -> int:
        return sum(aliases.changes for aliases in self._aliases)


class _Turns:
    """Any number of calls at once, or one thread alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self.shared = _Shared(self)
        self.alone = _Alone(self)


class _Shared:
    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        with self._turns._changed:
            self._turns._running += 1

    def __exit__(self, *_: object) -> None:
        with self._turns._changed:
            self._turns._running -= 1
            self._turns._changed.notify_all()


class _Alone:
    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._turns._changed.acquire()
        self._turns._changed.wait_for(lambda: self._turns._running == 0)

    def __exit__(self, *_: object) -> None:
        self._turns._changed.release()


def _version(tensor: torch.Tensor) -> int:
    """How often the tensor has changed; inference tensors do not count that."""
    return 0 if tensor.is_inference() else tensor._version
