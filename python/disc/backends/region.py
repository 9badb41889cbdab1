"""Regions: what a back end compiles as a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..expressions import parse
from .graph import UNKNOWN, Dim, Operation, Value


@dataclass
class Region:
    """Operations that a back end compiles as a whole, in program order."""

    number: int
    backend: str
    operations: list[Operation]
    inputs: list[Value]
    """The tensors from outside that they use."""
    results: list[Value]
    """The tensors that others use."""
    patterns: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The pattern and the number of the match that each operation belongs to, by the operation's number."""
    constants: list[Value] = field(default_factory=list)
    """What the code gets once (:attr:`Code.constants`)."""

    @property
    def name(self) -> str:
        """``region3``."""
        return f"region{self.number}"

    @property
    def parameters(self) -> list[Value]:
        """The inputs that are parameters."""
        return [value for value in self.inputs if value.is_constant]

    @property
    def run_inputs(self) -> list[Value]:
        """The inputs that each call passes."""
        return [value for value in self.inputs if value not in self.constants]

    @property
    def sources(self) -> list[str]:
        """The user's lines, each once."""
        return list(dict.fromkeys(op.source for op in self.operations if op.source))

    def symbols(self) -> list[Dim]:
        """The symbols that the extents of inputs, results and arguments are expressions of."""
        found: dict[str, Dim] = {}
        values = [dim for value in (*self.inputs, *self.results) for dim in value.dims]
        for dim in [*values, *_dims([op.args for op in self.operations])]:
            for name in [] if dim.text == UNKNOWN else parse(dim.text).symbols():
                exact = dim if dim.text == name else Dim(name)
                if name not in found or exact.max is not None:
                    found[name] = exact
        return list(found.values())

    def describe(self, numbers: Sequence[Dim]) -> str:
        """The region as JSON, which ``init`` gets: see docs/adding-a-backend.md."""
        places: dict[int, dict[str, int]] = {}
        for i, value in enumerate(self.run_inputs):
            places[id(value)] = {"input": i}
        for i, value in enumerate(self.constants):
            places[id(value)] = {"constant": i}
        for i, op in enumerate(self.operations):
            for value in op.results:
                places[id(value)] = {"operation": i, "result": value.index}

        def plain(value: Any) -> Any:
            if isinstance(value, Value):
                return places[id(value)]
            if isinstance(value, Dim):
                return {"size": value.text}
            if isinstance(value, (list, tuple)):
                return [plain(item) for item in value]
            return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)

        def tensor(value: Value) -> dict[str, Any]:
            dims = [int(dim) if dim.is_static else dim.text for dim in value.dims]
            return {"dtype": value.dtype, "dims": dims, **({"name": value.parameter} if value.parameter else {})}

        return json.dumps(
            {
                "version": 1,
                "name": self.name,
                "backend": self.backend,
                "inputs": [tensor(value) for value in self.run_inputs],
                "constants": [tensor(value) for value in self.constants],
                "results": [{**tensor(value), **places[id(value)]} for value in self.results],
                "numbers": [dim.text for dim in numbers],
                "operations": [
                    {
                        "name": op.name,
                        "pattern": self.patterns.get(op.id, ("", 0))[0],
                        "match": self.patterns.get(op.id, ("", 0))[1],
                        "args": plain(op.args),
                        "arg_names": list(op.names),
                        "results": [tensor(value) for value in op.results],
                        "source": op.source,
                    }
                    for op in self.operations
                ],
            }
        )


def _dims(value: Any) -> list[Dim]:
    if isinstance(value, Dim):
        return [value]
    if isinstance(value, (list, tuple)):
        return [dim for item in value for dim in _dims(item)]
    return []
