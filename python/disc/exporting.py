"""``disc.export``: a module as a program that can be saved, with all that ``disc.compile`` sees of the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from . import jagged, trees
from .errors import ArgumentTypeError, ProgramError
from .frontend.callables import as_module
from .frontend.entry_guards import keep_bounds
from .frontend.export import refined_export
from .frontend.keyword_arguments import named_keywords
from .frontend.shape_specs import resolved
from .frontend.structure import plain
from .frontend.symbols import flatten_dynamic_shapes, parameter_names
from .torch_compat.saving import GraphModuleSerializer


def export(
    module: Callable[..., Any],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Exports a module as :func:`disc.compile` reads it, for :func:`torch.export.save` and ``disc-compile``.

    Unlike ``torch.export.export`` it keeps recurrent layers whole, with a dynamic length, and keeps branches and loops
    that depend on data or on sizes. The program uses operators of DISC where the module has such, so that
    ``torch.export.load`` needs ``import disc`` first. PyTorch cannot run branches and loops among them.

    Args:
        module: the module, or another callable.
        args: example arguments, as for ``torch.export.export``, or one tensor.
        kwargs: example keyword arguments.
        dynamic_shapes: which dims are dynamic, in any form that :func:`disc.compile` takes.

    Raises:
        CompileError: the module cannot be exported, or its program cannot be saved.
    """
    found_module = as_module(module)
    if found_module is None:
        raise ArgumentTypeError(f"expected a torch.nn.Module or another callable, got {type(module).__name__}")
    module = found_module
    args = (args,) if isinstance(args, torch.Tensor) else plain(args)
    kwargs = None if kwargs is None else plain(kwargs)
    with named_keywords(module, kwargs):
        program = _exported(module, args, kwargs, dynamic_shapes)
    _drop_unused_symbols(program)
    _check_saveable(program)
    return program


def _exported(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    names = parameter_names(module)
    found = trees.find(args, kwargs or {})
    if found:
        where = ", ".join(str(argument.path) for argument in found)
        raise ProgramError("import", f"the tree among the arguments ({where}) cannot be a part of a saved program")
    if jagged.find(args, kwargs or {}):
        raise ProgramError("import", "a nested tensor among the arguments cannot be a part of a saved program")
    dynamic_shapes = resolved(dynamic_shapes, module, args, kwargs)
    program, dynamic_shapes = refined_export(module, args, kwargs, dynamic_shapes)
    keep_bounds(program, flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names))
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
        raise ProgramError("import", f"the program of the module cannot be saved: {error}") from error
