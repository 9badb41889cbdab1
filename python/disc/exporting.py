"""``disc.export``: a module as a program that can be saved, with all that ``disc.compile`` sees of the module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._export.serde.serialize import GraphModuleSerializer
from torch.export import ExportedProgram

from . import jagged, trees
from .errors import CompileError
from .frontend.entry_guards import keep_bounds
from .frontend.export import export as trace
from .frontend.export import named_shapes
from .frontend.symbols import flatten_dynamic_shapes, parameter_names


def export(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Exports a module as :func:`disc.compile` reads it, for :func:`torch.export.save` and ``disc-compile``.

    Unlike ``torch.export.export`` it keeps recurrent layers whole, with a dynamic length, and keeps branches and loops
    that depend on data or on sizes. The program uses operators of DISC where the module has such, so that
    ``torch.export.load`` needs ``import disc`` first. PyTorch cannot run branches and loops among them.

    Args:
        module: the module.
        args: example arguments, as for ``torch.export.export``.
        kwargs: example keyword arguments.
        dynamic_shapes: which dims are dynamic, as for ``torch.export.export``; also a ``ShapesCollection`` or
            ``AdditionalInputs``.

    Raises:
        CompileError: the module cannot be exported, or its program cannot be saved.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(module).__name__}")
    names = parameter_names(module)
    found = trees.find(args, kwargs or {})
    if found:
        where = ", ".join(str(argument.path) for argument in found)
        raise CompileError("import", f"the tree among the arguments ({where}) cannot be a part of a saved program")
    if jagged.find(args, kwargs or {}):
        raise CompileError("import", "a nested tensor among the arguments cannot be a part of a saved program")
    dynamic_shapes = named_shapes(dynamic_shapes, module, args, kwargs)
    program = trace(module, args, kwargs, dynamic_shapes)
    keep_bounds(program, flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names))
    _drop_unused_symbols(program)
    _check_saveable(program)
    return program


def _drop_unused_symbols(program: ExportedProgram) -> None:
    """Forgets the ranges of symbols that tracing made and the program does not use."""
    used: set[sympy.Basic] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            sizes = item.shape if isinstance(item, torch.Tensor) else [item]
            for size in sizes:
                if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                    used |= size.node.expr.free_symbols
        used |= set(node.meta.get("unbacked_bindings") or ())
    program._range_constraints = {
        symbol: known for symbol, known in program.range_constraints.items() if symbol.free_symbols <= used
    }


def _check_saveable(program: ExportedProgram) -> None:
    """CompileError if an operation of the program cannot be written to a file."""
    try:
        GraphModuleSerializer(program.graph_signature, program.module_call_graph).serialize(program.graph_module)
    except Exception as error:
        raise CompileError("import", f"the program of the module cannot be saved: {error}") from error
