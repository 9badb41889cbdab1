"""The import stage: PyTorch models to DISC input IR."""

from ..garbage import rare_collections
from ..interrupts import deferred_interrupts

# These register dialects, operators and lowering rules, each of which exists once in a process.
with deferred_interrupts(), rare_collections():
    from .flat_graph import is_flattened
    from .graphs import GraphInterface, device_of, graph_program, reason_against
    from .program import ImportedProgram, Input, import_functional, import_program
    from .registry import NotLowerable, lowers
    from .returns import Output

__all__ = [
    "GraphInterface",
    "ImportedProgram",
    "Input",
    "NotLowerable",
    "Output",
    "device_of",
    "graph_program",
    "import_functional",
    "import_program",
    "is_flattened",
    "lowers",
    "reason_against",
]
