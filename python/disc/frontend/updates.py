"""Tensors that a model changes: which they are, and the program without side effects."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, SymBoolArgument, SymFloatArgument, SymIntArgument

from .. import errors
from ..torch_compat import patches, quiet
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import symbolic_config
from ..torch_compat.tracing import get_proxy_mode
from .decompositions import needs_decomposition, run_decompositions
from .entry_guards import EntryGuard
from .facts import forgetting_counts
from .higher_order import flattened
from .hints import environment
from .layout_questions import answered_by_the_example
from .meta_kernels import sizes_of_windows
from .multiples import as_products
from .node_decompositions import decomposed_by_node
from .proving import declared
from .settle import allowing_many, settle
from .slice_lengths import slices_of_declared_sizes
from .specialisation import of_results, unspecialised
from .state_tensors import HELP

if TYPE_CHECKING:
    from .graphs import GraphProgram

Program: TypeAlias = "ExportedProgram | GraphProgram"
"""What can be imported: torch.export's program, or a graph that stands for one."""

_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


@dataclass(frozen=True)
class Update:
    """A new value, which is one of the first outputs of the program's graph."""

    node: str
    """The node that computes it."""
    input: str | None
    """The input that is updated, by its name..."""
    state: torch.Tensor | None
    """...or the model's own tensor,"""
    target: str
    """and what that is called."""


def decompose(exported: ExportedProgram) -> tuple[ExportedProgram, list[EntryGuard]]:
    """The program in terms of ops that have rules, as far as PyTorch can do that; nothing in it is changed in place.

    With it the conditions on the inputs' extents that the decompositions ask for.
    """
    if not needs_decomposition(exported):
        return exported, []
    try:
        with (
            torch.no_grad(),
            flattened(),
            allowing_many(),
            unspecialised(exported) as guards,
            answered_by_the_example(),
            as_products(),
            forgetting_counts(),
            sizes_of_windows(),
            slices_of_declared_sizes(),
            declared(environment(exported), exported.range_constraints),
            _regardless_of_ones(exported),
            _views_made_again(exported),
            quiet.COPIED_SPECIFICATIONS.silenced(),
        ):
            # Tracing all of it again takes as long as the export.
            program = decomposed_by_node(exported)
            if program is None:
                program = run_decompositions(exported)
                sizes = of_results(exported, program)
            else:
                sizes = []
            settle(program.graph)
        return program, [*guards, *sizes]
    except errors.CompileError:
        raise
    except Exception as error:
        if "is mutated in the forward method" in str(error):
            raise errors.ControlFlowError(
                "import", f"a call changes in place a tensor that is not known to belong to the model: {HELP}"
            ) from error
        raise errors.ExportError("import", f"PyTorch fails to decompose the exported program: {error}") from error


def _regardless_of_ones(exported: ExportedProgram) -> AbstractContextManager[Any]:
    """Has PyTorch decompose operations in the form for any extent where the example has a dynamic one of 0 or 1."""
    env = environment(exported)
    small = env is not None and any(value in (0, 1) for value in env.backed_var_to_val.values())
    return symbolic_config.patch(backed_size_oblivious=True) if small else nullcontext()  # type: ignore[attr-defined]


@contextmanager
def _views_made_again(exported: ExportedProgram) -> Iterator[None]:
    """Before PyTorch records a program it runs it once, where it makes views of changed tensors again.

    A slice up to a data-dependent number has a new symbol for its size each time, which nothing searches for.
    """
    env = environment(exported)

    def synced(original: Any, tensor: torch.Tensor) -> None:
        with nullcontext() if env is None or get_proxy_mode() else env.ignore_fresh_unbacked_symbols():
            original(tensor)

    with replaced({patches.SYNC: synced}):
        yield


def find_updates(program: Program) -> list[Update]:
    """The updates of a decomposed program, which are its first outputs."""
    updates = []
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_OUTPUT:
            continue
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            updates.append(Update(spec.arg.name, spec.target, None, spec.target or ""))
        elif spec.kind in _STATE:
            assert spec.target is not None
            tensor = program.state_dict.get(spec.target)
            if tensor is None:
                tensor = program.constants[spec.target]
            updates.append(Update(spec.arg.name, None, tensor, spec.target))
        else:
            what = spec.kind.name.lower().replace("_", " ")
            raise errors.UnsupportedTypeError("import", f"output {spec.target!r} is a {what}, which is not supported")
    return updates


def without_updates(program: Program) -> Program:
    """The same program, with updates as ordinary outputs: torch-mlir's importer would make mutable tensors of them.

    And with floats and bools as if they were ints, the only numbers that it knows; of all it reads but the names.
    """
    signature = program.graph_signature
    specs = [
        dataclasses.replace(spec, kind=OutputKind.USER_OUTPUT, target=None, arg=_as_int(spec.arg))
        for spec in signature.output_specs
    ]
    if specs == signature.output_specs:
        return program
    plain = copy.copy(program)
    changed = dataclasses.replace(signature, output_specs=specs)
    if isinstance(plain, ExportedProgram):
        plain._graph_signature = changed
    else:
        plain.graph_signature = changed
    return plain


def _as_int(arg: Any) -> Any:
    return SymIntArgument(arg.name) if isinstance(arg, (SymFloatArgument, SymBoolArgument)) else arg


def name_states(updates: Sequence[Update], parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of the model's own that are updated, under the names that ``parameters`` has for them.

    One that is written and never read is added to ``parameters``.
    """
    states: dict[str, torch.Tensor] = {}
    for update in updates:
        if update.state is None:
            continue
        name = state_name(update, parameters)
        if update.state.is_complex():
            raise errors.UnsupportedTypeError(
                "import", f"the model updates {name!r}, whose dtype {update.state.dtype} has no update"
            )
        if not update.state.is_contiguous():
            raise errors.UnsupportedTypeError(
                "import",
                f"the model updates {name!r}, which must be contiguous and has strides {update.state.stride()}",
            )
        states[name] = parameters.setdefault(name, update.state)
    for name, state in states.items():
        for other, tensor in parameters.items():
            if other != name and tensor is not state and _overlap(state, tensor):
                raise errors.UnsupportedTypeError(
                    "import", f"the model updates {name!r}, which shares memory with {other!r}: make one of them a copy"
                )
    return states


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors of the model are in the same part of memory."""
    if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr() or not x.numel() or not y.numel():
        return False
    spans = []
    for tensor in (x, y):
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        spans.append((tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()))
    return spans[0][0] < spans[1][1] and spans[1][0] < spans[0][1]


def state_name(update: Update, parameters: Mapping[str, torch.Tensor]) -> str:
    """What the tensor of a state is called in ``parameters``; tied ones have one name."""
    return next((name for name, tensor in parameters.items() if tensor is update.state), update.target)
