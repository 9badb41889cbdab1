"""Importing a model: ``nn.Module`` or ``ExportedProgram`` to DISC input IR."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, SymIntArgument, TensorArgument
from torch_mlir import ir

from .. import errors, trees
from ..trees import Argument, TreeType
from . import dtypes, rules  # noqa: F401  (rules registers the built-in lowering rules)
from .entry_guards import EntryGuard, entry_guards, requires_two
from .export import export, named_shapes
from .finish import finish
from .hints import without_assumed_bounds
from .lower import Lowering
from .markers import is_step
from .returns import Output, Returns
from .symbols import Symbol, SymbolTable, flatten_dynamic_shapes, parameter_names
from .torch_dialect import import_torch_dialect
from .updates import Program, decompose, find_updates, name_states, without_updates

_UNKNOWN = object()


@dataclass(frozen=True)
class Input:
    """One tensor argument of the compiled ``main``."""

    name: str
    dtype: torch.dtype
    dims: tuple[int | str, ...]
    """Static extents, and the text of symbolic ones."""
    leaf: int
    """Its place among the leaves of ``(args, kwargs)``."""
    is_number: bool = False
    """Whether the caller passes a Python int; ``main`` takes it as an i64 tensor without dims."""

    @property
    def is_plain(self) -> bool:
        """Whether ``main`` takes the caller's tensor as it is."""
        return not self.dtype.is_complex and not dtypes.is_stored(self.dtype)


@dataclass
class ImportedProgram:
    """A model as DISC input IR, with all that is needed to call it."""

    text: str
    """The input IR: generic form, with locations."""
    parameters: dict[str, torch.Tensor]
    """Every tensor ``disc_tensor.parameter`` refers to: the model's own, never copies (u8 as a signless view)."""
    inputs: list[Input]
    outputs: list[Output]
    output_names: list[str]
    symbols: list[Symbol]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    exported: ExportedProgram | None
    """What was imported, until :meth:`release`."""
    states: dict[str, torch.Tensor] = field(default_factory=dict)
    """The model's own tensors that calls update: buffers, for the most part."""
    trees: list[Argument] = field(default_factory=list)
    """The arguments that are trees; ``in_spec`` has tables in their places."""
    constants: dict[int, Any] = field(default_factory=dict)
    """The value of each input leaf that is no tensor: it was fixed by the export."""
    _symbol_places: dict[sympy.Symbol, tuple[int, int]] = field(default_factory=dict, repr=False)
    _direct: Any = field(default_factory=lambda: _UNKNOWN, repr=False)

    def release(self) -> None:
        """Lets go of the tensors that only compiling needs: whoever drops the module then frees its weights."""
        self.parameters = {}
        self.exported = None

    def _find_direct(self) -> list[TreeType | None] | None:
        """The trees among arguments, if these are but tensors and trees, without names; None if there is more."""
        args, kwargs = self.in_spec.children()
        kinds = {argument.path[1:]: argument.kind for argument in self.trees}
        found = [kinds.get((pytree.SequenceKey(n),)) for n in range(args.num_children)]
        plain = all(kind or spec.is_leaf() for kind, spec in zip(found, args.children(), strict=True))
        numbers = any(i.is_number or not i.is_plain for i in self.inputs)
        if not plain or numbers or kwargs.num_children or [i.leaf for i in self.inputs] != list(range(args.num_leaves)):
            return None
        return found

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The leaves of a call that ``main`` takes, in its order; TypeError if the structure differs."""
        if self.trees and not kwargs:
            if self._direct is _UNKNOWN:
                self._direct = self._find_direct()
            if self._direct is not None and len(self._direct) == len(args):
                # A generic pytree costs more than a small tree.
                return [
                    x
                    for kind, arg in zip(self._direct, args, strict=True)
                    for x in ((arg,) if kind is None else trees.tensors(kind, arg))
                ]
        kwargs = dict(kwargs or {})
        if kwargs:
            expected = self.in_spec.child(1).context
            if set(expected) == set(kwargs):
                kwargs = {key: kwargs[key] for key in expected}
        if self.trees:
            args, kwargs = trees.replaced(args, kwargs, self.trees, trees.table)
        leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
        if spec != self.in_spec:
            raise TypeError(f"the arguments are structured as {spec}, the model was compiled for {self.in_spec}")
        for leaf, value in self.constants.items():
            if leaves[leaf] is not value and leaves[leaf] != value:
                raise TypeError(
                    f"argument {leaf} was {value!r} when the model was compiled and is part of it; got {leaves[leaf]!r}"
                )
        return [self._entry(i, leaves[i.leaf]) for i in self.inputs]

    @staticmethod
    def _entry(entry: Input, leaf: Any) -> Any:
        """What ``main`` takes for a leaf."""
        if entry.is_number:
            return _number(entry.name, leaf)
        return leaf if entry.is_plain else passed(leaf)

    def unflatten(self, results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Any:
        """The model's output from ``main``'s ``results`` and the (flat) ``inputs`` of the call."""
        leaves = []
        for output in self.outputs:
            if output.kind in ("tensor", "input"):
                leaf = (results if output.kind == "tensor" else inputs)[output.index]
                leaf = torch.view_as_complex(leaf) if output.complex else leaf
                leaves.append(leaf if output.stored is None else leaf.view(output.stored))
            elif output.kind == "number":
                leaves.append(results[output.index].item())
            elif output.kind == "int":
                leaves.append(self._evaluate(output.value, inputs))
            else:
                leaves.append(output.value)
        return pytree.tree_unflatten(leaves, self.out_spec)

    def _evaluate(self, expr: sympy.Expr, inputs: Sequence[torch.Tensor]) -> int:
        sizes = {symbol: inputs[i].shape[d] for symbol, (i, d) in self._symbol_places.items()}
        return int(expr.xreplace({s: sympy.Integer(n) for s, n in sizes.items()}))


def _number(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"input {name!r}: expected an int, got {type(value).__name__}")
    return torch.tensor(value, dtype=torch.int64)


def import_program(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    library: bool = False,
) -> ImportedProgram:
    """Imports ``model`` as DISC input IR.

    ``args``, ``kwargs`` and ``dynamic_shapes`` are ``torch.export.export``'s. For an ExportedProgram only
    ``dynamic_shapes`` matters, for the names of its ``Dim``s. With ``library`` every output is computed, also one that
    is an input, a parameter or a number.
    """
    found: list[Argument] = []
    if isinstance(model, ExportedProgram):
        exported = model
        if exported.example_inputs is not None:
            args, kwargs = exported.example_inputs
        names = list(exported.graph_signature.user_inputs)
    else:
        names = parameter_names(model)
        dynamic_shapes = named_shapes(dynamic_shapes, model, args, kwargs)
        found = trees.find(args, kwargs or {})
        if found:
            dynamic_shapes = trees.dynamic_shapes(dynamic_shapes, args, kwargs or {}, names, found)
            args, kwargs = trees.replaced(args, kwargs or {}, found, trees.example)
        exported = export(model, args, kwargs, dynamic_shapes)
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    guards = entry_guards(exported)
    ranges = exported.range_constraints
    if isinstance(model, ExportedProgram):
        ranges = without_assumed_bounds(exported, specs, lambda s: requires_two(exported, s))
    decomposed, asked = decompose(exported)
    program = copy.copy(decomposed)
    program._range_constraints = {**program.range_constraints, **ranges}
    imported = import_functional(program, specs, library=library, guards=[*guards, *asked])
    imported.trees = found
    imported.exported = exported
    return imported


def import_functional(
    program: Program,
    specs: Sequence[Any] = (),
    *,
    library: bool = False,
    owned: bool = False,
    guards: Sequence[EntryGuard] = (),
) -> ImportedProgram:
    """Imports a program whose ops change nothing in place. ``specs``: a spec of dims for each leaf of the arguments.

    With ``owned`` each tensor that ``main`` returns is in memory of its own. ``guards`` are checked at the entry.
    """
    updates = find_updates(program)
    program = without_updates(program)
    inputs, fakes, constants = _user_inputs(program)
    leaf_specs = [specs[leaf] if leaf < len(specs) else None for leaf, _ in inputs]
    named = [(name, fake) for (_, name), fake in zip(inputs, fakes, strict=True)]
    computed = [
        symbol
        for node in program.graph.nodes
        if not is_step(node)
        for symbol in node.meta.get("unbacked_bindings") or {}
    ]
    symbols = SymbolTable(named, program.range_constraints, leaf_specs, computed)

    context = ir.Context()
    with context, ir.Location.unknown():
        torch_module, parameters = import_torch_dialect(program, context)
        states = name_states(updates, parameters)
        lowering = Lowering(program, symbols, parameters, states, guards)
        module, results = lowering.run(torch_module, named)
        places = _symbol_places(symbols, fakes)
        assert program.call_spec.out_spec is not None
        returns = Returns(program, module, lowering.builder, [name for _, name in inputs], states, places)
        outputs, named_results = returns.collect(
            results, updates, parameters, program.call_spec.out_spec, library, owned
        )
        text = finish(module, named_results)
    used = {name: _signless(t) for name, t in parameters.items() if f'"{name}"' in text}
    assert program.call_spec.in_spec is not None
    return ImportedProgram(
        text=text,
        parameters=used,
        inputs=[
            Input(name, torch.int64, (), leaf, is_number=True)
            if isinstance(fake, torch.SymInt)
            else Input(name, fake.dtype, tuple(_dim(symbols, d) for d in fake.shape), leaf)
            for (leaf, name), fake in zip(inputs, fakes, strict=True)
        ],
        outputs=outputs,
        output_names=[result.name for result in named_results if result.updates is None],
        symbols=list(symbols),
        in_spec=program.call_spec.in_spec,
        out_spec=program.call_spec.out_spec,
        exported=None,
        states={name: parameters[name] for name in states},
        constants=constants,
        _symbol_places=places,
    )


def passed(leaf: Any) -> Any:
    """A tensor as ``main`` takes it, without a copy: complex numbers are pairs, narrow floats are their bits."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_complex():
        return torch.view_as_real(leaf.resolve_conj())
    return leaf.view(dtypes.storage(leaf.dtype)) if dtypes.is_stored(leaf.dtype) else leaf


def _signless(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.detach().resolve_conj())
    tensor = passed(tensor.detach())
    signed = {torch.uint8: torch.int8, torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def _dim(symbols: SymbolTable, size: Any) -> int | str:
    return size if isinstance(size, int) else symbols.text(size)


def _user_inputs(
    program: Program,
) -> tuple[list[tuple[int, str]], list[torch.Tensor], dict[int, Any]]:
    """(leaf, name) and fake tensor of each tensor input, and the leaves that are constants."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    inputs: list[tuple[int, str]] = []
    fakes: list[torch.Tensor] = []
    constants: dict[int, Any] = {}
    leaf = 0
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            fake = values[spec.arg.name]
            if not dtypes.is_supported(fake.dtype):
                raise errors.CompileError("import", f"input {spec.arg.name!r}: {fake.dtype} is not supported")
            inputs.append((leaf, spec.arg.name))
            fakes.append(fake)
        elif isinstance(spec.arg, SymIntArgument) and isinstance(values.get(spec.arg.name), torch.SymInt):
            inputs.append((leaf, spec.arg.name))
            fakes.append(values[spec.arg.name])
        elif hasattr(spec.arg, "value"):
            constants[leaf] = spec.arg.value
        else:
            raise errors.CompileError(
                "import", f"input {spec.arg.name!r}: a dynamic number is not supported as an input"
            )
        leaf += 1
    return inputs, fakes, constants


def _symbol_places(symbols: SymbolTable, fakes: Sequence[torch.Tensor]) -> dict[sympy.Symbol, tuple[int, int]]:
    places: dict[sympy.Symbol, tuple[int, int]] = {}
    for i, fake in enumerate(fakes):
        if isinstance(fake, torch.SymInt):
            continue
        for d, size in enumerate(fake.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                places.setdefault(size.node.expr, (i, d))
    return places
