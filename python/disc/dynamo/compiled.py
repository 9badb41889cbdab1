"""Graphs of aten ops as native code: compiling one, and calling it with what AOTAutograd passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..compilation import LOAD, Compilation
from ..compiler import build, load, steps
from ..frontend import graph_program, import_functional
from ..options import Options

log = logging.getLogger("disc.dynamo")

# After so many calls with other parameters than the last one's, they are passed as inputs.
_MAX_RELOADS = 4


class CompiledGraph:
    """One graph as native code, for all sizes of its symbols. Called with the graph's arguments, gives its results.

    Parameters that the graph only reads are packed when it is compiled. Each call looks whether they are still the same
    tensors, unchanged; if not, they are packed again.
    """

    def __init__(
        self,
        graph: GraphModule,
        options: Options,
        fixed: Mapping[int, torch.Tensor] | None = None,
        updates: Sequence[tuple[Node, Node]] = (),
    ) -> None:
        self._graph = graph
        self._options = options
        self._updates = updates
        self._reloads = 0
        self._compile(dict(fixed or {}))

    def _compile(self, fixed: dict[int, torch.Tensor]) -> None:
        program, interface = graph_program(self._graph, fixed, self._updates)
        compilation = Compilation(self._options)
        with compilation.progress(steps(compilation)), torch.no_grad():
            imported = import_functional(program)
            executable = build(compilation, imported)
            assert executable is not None
            with compilation.step(LOAD):
                load(executable, imported.parameters)
        self.timings: dict[str, float] = compilation.timings
        """Seconds that each stage took."""
        self.texts: dict[str, str] = compilation.texts
        """The IR after each stage but the last."""
        self._executable = executable
        self._run = executable.run
        # Constants of the graph never change.
        names = [node.name for node in self._graph.graph.nodes if node.op == "placeholder"]
        self._fixed_names = {i: names[i] for i in fixed}
        self._constants = {
            name: tensor for name, tensor in imported.parameters.items() if name not in self._fixed_names.values()
        }
        self._fixed = [(i, tensor, tensor._version, tensor.data_ptr()) for i, tensor in fixed.items()]
        imported.release()
        self._imported = imported
        self._arguments = interface.arguments
        self._sizes = interface.sizes
        kinds = [(output.kind, output.index) for output in imported.outputs]
        plain = kinds == [("tensor", i) for i in range(len(kinds))]
        self._unflatten: Callable[..., Any] | None = None if plain else imported.unflatten
        self._results = interface.results

    def __call__(self, *args: Any) -> list[Any]:
        """The results for these arguments: tensors and sizes, in the graph's order."""
        for i, tensor, version, data in self._fixed:
            given = args[i]
            if given is not tensor or given._version != version or given.data_ptr() != data:
                self._reload(args)
                break
        inputs = [args[i] for i in self._arguments]
        for i in self._sizes:
            inputs.append(torch.empty((args[i], 0), dtype=torch.uint8))
        computed = self._run(inputs)
        if self._unflatten is not None:
            computed = self._unflatten(computed, inputs)
        results: list[Any] = []
        for kind, value in self._results:
            if kind == "result":
                results.append(computed[value])
            elif kind == "argument":
                results.append(args[value])
            elif kind == "permuted":
                results.append(computed[value[0]].permute(value[1]))
            else:
                results.append(value)
        return results

    def _reload(self, args: Sequence[Any]) -> None:
        other = any(args[i] is not tensor for i, tensor, _, _ in self._fixed)
        self._reloads += other
        if self._reloads > _MAX_RELOADS:
            log.info("a graph is called with ever other parameters: it is compiled again, with them as inputs")
            self._compile({})
            return
        fixed = {i: args[i] for i in self._fixed_names}
        tensors = {name: fixed[i] for i, name in self._fixed_names.items()}
        load(self._executable, {**self._constants, **tensors})
        self._fixed = [(i, tensor, tensor._version, tensor.data_ptr()) for i, tensor in fixed.items()]
