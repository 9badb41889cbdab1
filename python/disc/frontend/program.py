"""Importing a model: ``nn.Module`` or ``ExportedProgram`` to DISC input IR."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, SymIntArgument, TensorArgument
from torch_mlir import ir

from .. import errors
from . import dtypes, rules  # noqa: F401  (rules registers the built-in lowering rules)
from .builder import Builder
from .decompositions import decomposition_table, needs_decomposition
from .export import export
from .finish import finish
from .lower import Lowering
from .rules import common
from .symbols import Symbol, SymbolTable, flatten_dynamic_shapes
from .torch_dialect import import_torch_dialect
from .values import RuntimeNumber, Tensor


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


@dataclass(frozen=True)
class Output:
    """Where one leaf of the model's output comes from.

    ``kind`` is ``"tensor"`` (result ``index`` of ``main``), ``"input"`` (input ``index``, returned as it
    is), ``"parameter"`` (the tensor ``value``, the model's own), ``"constant"`` (the Python ``value``), ``"int"``
    (a number that follows from the inputs' extents: see :meth:`ImportedProgram.unflatten`), or ``"number"`` (result
    ``index`` of ``main``, a tensor without dims, as a Python number).
    """

    kind: str
    index: int = -1
    value: Any = None
    complex: bool = False
    """Whether the pairs of real numbers that ``main`` has are complex ones."""


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
    constants: dict[int, Any] = field(default_factory=dict)
    """The value of each input leaf that is no tensor: it was fixed by the export."""
    _symbol_places: dict[sympy.Symbol, tuple[int, int]] = field(default_factory=dict, repr=False)

    def release(self) -> None:
        """Lets go of the tensors that only compiling needs: whoever drops the module then frees its weights."""
        self.parameters = {}
        self.exported = None

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The leaves of a call that ``main`` takes, in its order; TypeError if the structure differs."""
        kwargs = dict(kwargs or {})
        if kwargs:
            expected = self.in_spec.child(1).context
            if set(expected) == set(kwargs):
                kwargs = {key: kwargs[key] for key in expected}
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
        return _pairs(leaf) if entry.dtype.is_complex else leaf

    def unflatten(self, results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Any:
        """The model's output from ``main``'s ``results`` and the (flat) ``inputs`` of the call."""
        leaves = []
        for output in self.outputs:
            if output.kind in ("tensor", "input"):
                leaf = (results if output.kind == "tensor" else inputs)[output.index]
                leaves.append(torch.view_as_complex(leaf) if output.complex else leaf)
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
) -> ImportedProgram:
    """Imports ``model`` as DISC input IR.

    ``args``, ``kwargs`` and ``dynamic_shapes`` are ``torch.export.export``'s. For an ExportedProgram only
    ``dynamic_shapes`` matters, for the names of its ``Dim``s.
    """
    if isinstance(model, ExportedProgram):
        exported = model
        if exported.example_inputs is not None:
            args, kwargs = exported.example_inputs
        names = list(exported.graph_signature.user_inputs)
    else:
        exported = export(model, args, kwargs, dynamic_shapes)
        names = _parameter_names(model)
    _reject_mutation(exported)
    program = _decompose(exported)
    inputs, fakes, constants = _user_inputs(program)
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    leaf_specs = [specs[leaf] if leaf < len(specs) else None for leaf, _ in inputs]
    named = [(name, fake) for (_, name), fake in zip(inputs, fakes, strict=True)]
    computed = [symbol for node in program.graph.nodes for symbol in node.meta.get("unbacked_bindings") or {}]
    symbols = SymbolTable(named, program.range_constraints, leaf_specs, computed)

    context = ir.Context()
    with context, ir.Location.unknown():
        torch_module, parameters = import_torch_dialect(program, context)
        lowering = Lowering(program, symbols, parameters)
        module, results = lowering.run(torch_module, named)
        places = _symbol_places(symbols, fakes)
        with ir.InsertionPoint(_main(module)):
            outputs, returned = _outputs(program, results, parameters, module, places, lowering.builder)
        assert program.call_spec.out_spec is not None
        output_names = _output_names(program.call_spec.out_spec, outputs)
        text = finish(module, returned, output_names)
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
        output_names=output_names,
        symbols=list(symbols),
        in_spec=program.call_spec.in_spec,
        out_spec=program.call_spec.out_spec,
        exported=exported,
        constants=constants,
        _symbol_places=places,
    )


def _parameter_names(module: torch.nn.Module) -> list[str]:
    parameters = inspect.signature(module.forward).parameters.values()
    return [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters]


def _pairs(leaf: Any) -> Any:
    """A complex tensor as pairs of real numbers, without a copy."""
    return torch.view_as_real(leaf.resolve_conj()) if isinstance(leaf, torch.Tensor) and leaf.is_complex() else leaf


def _signless(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.detach().resolve_conj())
    signed = {torch.uint8: torch.int8, torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def _dim(symbols: SymbolTable, size: Any) -> int | str:
    return size if isinstance(size, int) else symbols.text(size)


def _reject_mutation(exported: ExportedProgram) -> None:
    for spec in exported.graph_signature.output_specs:
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION):
            raise errors.CompileError("import", f"the model changes {spec.target!r} in place: {spec.kind.name.lower()}")


def _decompose(exported: ExportedProgram) -> ExportedProgram:
    if not needs_decomposition(exported):
        return exported
    with torch.no_grad():
        program = exported.run_decompositions(decomposition_table(exported))
    changed = [spec.target for spec in program.graph_signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]
    if changed:
        raise errors.CompileError("import", f"the model changes {', '.join(map(repr, changed))} in place")
    return program


def _user_inputs(
    program: ExportedProgram,
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


def _outputs(
    program: ExportedProgram,
    results: Sequence[Any],
    parameters: Mapping[str, torch.Tensor],
    module: ir.Module,
    places: Collection[sympy.Symbol],
    builder: Builder,
) -> tuple[list[Output], list[Tensor]]:
    """Classifies the outputs; returns them and the tensors that ``main`` must return, each once."""
    block = _main(module)
    arguments = {argument: i for i, argument in enumerate(block.arguments)}
    values = {n.name: n.meta.get("val") for n in program.graph.nodes}
    returned: list[Tensor] = []
    outputs: list[Output] = []
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if not isinstance(result, Tensor):
            symbolic = values.get(getattr(spec.arg, "name", None))
            number = _computed_number(result, symbolic, places, builder)
            if number is not None:
                returned.append(number)
                outputs.append(Output("number", len(returned) - 1))
            elif isinstance(symbolic, torch.SymInt):
                outputs.append(Output("int", value=symbolic.node.expr))
            else:
                outputs.append(Output("constant", value=getattr(spec.arg, "value", result)))
            continue
        owner = result.value.owner
        if result.value in arguments:
            outputs.append(Output("input", arguments[result.value], complex=result.dtype.is_complex))
        elif not isinstance(owner, ir.Block) and owner.name == "disc_tensor.parameter":
            name = ir.StringAttr(owner.attributes["name"]).value
            outputs.append(Output("parameter", value=parameters[name]))
        else:
            if result not in returned:
                returned.append(result)
            outputs.append(Output("tensor", returned.index(result), complex=result.dtype.is_complex))
    return outputs, returned


def _computed_number(result: Any, symbolic: Any, places: Collection[sympy.Symbol], builder: Builder) -> Tensor | None:
    """A number that the inputs' extents do not tell, as a tensor without dims."""
    if isinstance(result, RuntimeNumber):
        return builder.map(result.dtype, [result], lambda x: x, dims=[])
    if not isinstance(symbolic, torch.SymInt) or not isinstance(result, ir.Value):
        return None
    if all(symbol in places for symbol in symbolic.node.expr.free_symbols):
        return None
    return builder.map(torch.int64, [common.number(result)], lambda x: x, dims=[])


def _output_names(spec: pytree.TreeSpec, outputs: Sequence[Output]) -> list[str]:
    """A name for each tensor that ``main`` returns: from the keys of dicts and named tuples, or ``output_0``, ..."""
    names: dict[int, str] = {}
    for keys, output in zip(_leaf_keys(spec), outputs, strict=True):
        if output.kind in ("tensor", "number") and output.index not in names:
            named = any(isinstance(key, str) for key in keys)
            names[output.index] = "_".join(map(str, keys)) if named else f"output_{output.index}"
    taken: set[str] = set()
    return [_distinct_name(names[i], taken) for i in sorted(names)]


def _leaf_keys(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Of each leaf, the keys and numbers that lead to it."""
    if spec.is_leaf():
        return [()]
    keys = getattr(spec.context, "_fields", spec.context)
    if not isinstance(keys, (list, tuple)) or len(keys) != spec.num_children:
        keys = range(spec.num_children)
    children = zip(keys, spec.children(), strict=True)
    return [(key, *rest) for key, child in children for rest in _leaf_keys(child)]


def _distinct_name(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        candidate, count = f"{name}_{count}", count + 1
    taken.add(candidate)
    return candidate


def _main(module: ir.Module) -> ir.Block:
    for view in module.body.operations:
        if view.operation.name == "func.func":
            return view.operation.regions[0].blocks[0]
    raise AssertionError("no main")
