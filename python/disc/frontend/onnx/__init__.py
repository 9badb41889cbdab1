"""Importing ONNX models: files and ModelProtos to DISC input IR.

torch-mlir imports the graph and converts most operators to torch ops, which the rules of :mod:`disc.frontend.rules`
lower; operators that deal in shapes, and those that torch-mlir lacks, have rules of their own in
:mod:`disc.frontend.onnx.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch_mlir import ir

from ...errors import ArgumentValueError, CompileError, OnnxError
from ...torch_compat import pytree
from ...torch_compat.compiling import ConstantSource
from ...torch_compat.symbols import DimDynamic, ShapeEnv, ValueRanges
from ...torch_compat.tracing import FakeTensorMode
from ..finish import finish
from ..program import ImportedProgram, Input, signless
from ..returns import Output, Result
from ..symbols import SymbolTable
from ..torch_dialect import single_threaded_context
from ..values import Tensor
from . import rules  # noqa: F401  (registers the rules)
from .cases import MOST, Cases, Condition
from .dialect import import_graph
from .lowering import CaseRanks, OnnxLowering
from .model import OnnxModel, dtype_of, load, prepare

__all__ = ["import_onnx"]


def import_onnx(
    model: Any,
    fixed: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    *,
    library: bool = False,
) -> ImportedProgram:
    """Imports an ONNX model as DISC input IR.

    ``fixed`` contains the values of inputs that are constants of the compiled model. ``dims`` has an entry for a
    dim_param like ``dynamic_shapes`` for a dim: a number makes it static, a ``torch.export.Dim`` sets its range (by
    default 0 and more) and its name. With ``library`` every output is computed, also one that is an input or a
    constant.
    """
    dims = dict(dims or {})
    extents = {name: value for name, value in dims.items() if isinstance(value, int)}
    inline: set[tuple[str, str]] = set()
    search = _Search()
    while search.program is None:
        proto, name = load(model)
        prepared = prepare(proto, name, fixed or {}, extents, inline)
        _check_dims(prepared, dims)
        context = single_threaded_context()
        with context, ir.Location.unknown():
            module, definable = import_graph(prepared, context)
            if definable - inline:
                inline |= definable
                continue
            begun: list[OnnxLowering] = []
            try:
                program = _lower(prepared, module, dims, library, search, begun)
            except CaseRanks as error:
                search.ranks_differ(error, library)
            except CompileError as error:
                if not begun:
                    raise
                search.failed(error, begun[0])
            else:
                search.succeeded(program, begun[0])
    return search.program


class _Search:
    """For which sizes the model is lowered, where these decide ranks: for all of them, if that is possible."""

    def __init__(self) -> None:
        self.program: ImportedProgram | None = None
        self.choices: dict[int, bool] = {}
        self.cases = Cases()
        self._best: ImportedProgram | None = None
        self._open: list[Condition] = []
        self._refused: set[Condition] = set()
        self._flipped: set[int] = set()
        self._first: CompileError | None = None

    def succeeded(self, program: ImportedProgram, lowering: OnnxLowering) -> None:
        """There is a program; perhaps one for more sizes."""
        self._best, self._open = program, lowering.onnx.found
        if not self._split():
            self.program = program

    def ranks_differ(self, error: CaseRanks, library: bool) -> None:
        """The two sides of the last condition give outputs of two ranks.

        A Python caller gets the rank that the model has for its sizes; else the program is for one side.
        """
        level = len(error.path) - 1
        if error.units and not library:
            self.cases.units[level] = error.units
            return
        if self._best is None:
            self.cases.exclude(error.path)
            return
        self._refused.add(self.cases.conditions[-1])
        self.cases = self.cases.joined()
        if not self._split():
            self.program = self._best

    def failed(self, error: CompileError, lowering: OnnxLowering) -> None:
        """It could not be lowered so; raises the first error if there is no other way."""
        self._first = self._first or error
        self._open = lowering.onnx.found
        if self._split():
            return
        if self.cases.conditions:
            if self.cases.exclude(lowering.path):
                return
            if self._best is not None:
                self.program = self._best
                return
            self._refused.update(self.cases.conditions)
            self.cases = Cases()
            return
        # Perhaps an If whose branches differ in rank should have taken the other one.
        taken = list(lowering.choices.items())
        while taken and taken[-1][0] in self._flipped:
            self._flipped.discard(taken.pop()[0])
        if not taken:
            raise self._first from None
        number, then = taken[-1]
        self.choices = {**dict(taken[:-1]), number: not then}
        self._flipped.add(number)

    def _split(self) -> bool:
        """Lowers both sides of one condition more, if there is one."""
        known = {*self.cases.conditions, *self._refused}
        new = next((c for c in self._open if c not in known), None)
        if new is None or len(self.cases.conditions) == MOST:
            return False
        self.cases = self.cases.split(new)
        return True


def _check_dims(model: OnnxModel, dims: Mapping[str, Any]) -> None:
    # Those that became static are no longer in the model.
    known = {d.dim_param for i in model.inputs for d in i.type.tensor_type.shape.dim if d.dim_param}
    wrong = [name for name, value in dims.items() if name not in known and not isinstance(value, int)]
    if wrong:
        names = ", ".join(map(repr, sorted(known))) or "none"
        raise ArgumentValueError(f"dynamic_shapes: the model has no dim {wrong[0]!r}; its dims are {names}")


def _lower(
    model: OnnxModel,
    torch_module: ir.Module,
    dims: Mapping[str, Any],
    library: bool,
    search: _Search,
    begun: list[OnnxLowering],
) -> ImportedProgram:
    fakes, ranges, specs = _inputs(model, dims)
    symbols = SymbolTable(fakes, ranges, specs)
    parameters = dict(model.constants)
    lowering = OnnxLowering(model, symbols, parameters, search.choices, search.cases)
    begun.append(lowering)
    module, results = lowering.run(torch_module, fakes)
    block = next(v.operation for v in module.body.operations if v.operation.name == "func.func").regions[0].blocks[0]
    results = lowering.finish(block, results)
    leaves: Any = {
        o.name: [0] * len(x) if isinstance(x, list) else 0
        for o, x in zip(model.proto.graph.output, results, strict=True)
    }
    names = _result_names(leaves)
    results = [t for x in results for t in (x if isinstance(x, list) else [x])]
    if library:
        results = [_computed(lowering, block, result) for result in results]
    outputs, returned, returned_names = _outputs(block, results, names, parameters)
    outputs = [replace(output, units=search.cases.groups(i)) for i, output in enumerate(outputs)]
    if not library:
        _check_maps(model, dict(zip(names, results, strict=True)))
        outputs = [replace(o, keys=model.maps.get(name, ())) for o, name in zip(outputs, names, strict=True)]
    named = [Result(tensor, name) for tensor, name in zip(returned, returned_names, strict=True)]
    finished = finish(module, named, lowering.builder.attributes)
    if len(leaves) == 1:
        (leaves,) = leaves.values()
    return ImportedProgram(
        text=finished.text,
        predicates=frozenset(finished.predicates),
        parameters={name: signless(t) for name, t in parameters.items() if name in finished.parameters},
        inputs=[
            Input(name, fake.dtype, tuple(d if isinstance(d, int) else symbols.text(d) for d in fake.shape), leaf)
            for leaf, (name, fake) in enumerate(fakes)
        ],
        outputs=outputs,
        output_names=returned_names,
        symbols=list(symbols),
        in_spec=pytree.tree_flatten(((), dict.fromkeys([name for name, _ in fakes], 0)))[1],
        out_spec=pytree.tree_flatten(leaves)[1],
        exported=None,
    )


def _check_maps(model: OnnxModel, results: Mapping[str, Tensor]) -> None:
    for name, keys in model.maps.items():
        rank, width = results[name].rank, results[name].dims[-1] if results[name].rank else 0
        if rank not in (1, 2) or width != len(keys):
            raise OnnxError(
                "import",
                f"{model.name}: output {name!r}: ZipMap has {len(keys)} keys, and needs as many columns; its operand"
                f" has rank {rank} and {width if isinstance(width, int) else 'a dynamic number of'} columns",
            )


def _result_names(leaves: Mapping[str, Any]) -> list[str]:
    """The names of the outputs; elements of a sequence are numbered."""
    names: list[str] = []
    for name, leaf in leaves.items():
        if not isinstance(leaf, list):
            names.append(name)
            continue
        while any(f"{name}_{i}" in leaves for i in range(len(leaf))):
            name += "_"
        names += [f"{name}_{i}" for i in range(len(leaf))]
    return names


def _computed(lowering: OnnxLowering, block: ir.Block, result: Tensor) -> Tensor:
    """A copy of what the model does not compute, an input or a parameter, for libraries."""
    owner = result.value.owner
    if not isinstance(owner, ir.Block) and owner.name != "disc_tensor.parameter":
        return result
    with ir.Location.name("outputs"), ir.InsertionPoint(block):
        return lowering.builder.elementwise(result.dtype, [result], lambda x: x)


def _inputs(
    model: OnnxModel, dims: Mapping[str, Any]
) -> tuple[list[tuple[str, torch.Tensor]], dict[sympy.Symbol, Any], list[dict[int, str]]]:
    """Name and fake tensor of each input, the ranges of their symbols, and the names of their dims."""
    env = ShapeEnv()
    sizes: dict[str, Any] = {}
    ranges: dict[sympy.Symbol, Any] = {}
    fakes, specs = [], []

    def size(name: str) -> Any:
        if name not in sizes:
            hint = 1009 + len(sizes)
            source = ConstantSource(f"dim_{len(sizes)}")
            symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, do_not_specialize_zero_one=True)
            dim = dims.get(name)
            low, high = getattr(dim, "min", None), getattr(dim, "max", None)
            ranges[symbol] = ValueRanges(low or 0, high if high is not None else 2**63 - 1)
            sizes[name] = env.create_symintnode(symbol, hint=hint, source=source)
        return sizes[name]

    with FakeTensorMode(shape_env=env):
        for value in model.inputs:
            tensor = value.type.tensor_type
            if value.type.WhichOneof("value") != "tensor_type":
                kind = value.type.WhichOneof("value")
                raise OnnxError("import", f"input {value.name!r}: a {kind} is not supported, only tensors")
            if not tensor.HasField("shape"):
                raise OnnxError("import", f"input {value.name!r} has no shape: its rank must be known")
            dtype = dtype_of(tensor.elem_type, f"input {value.name!r}")
            shape: list[Any] = []
            names: dict[int, str] = {}
            for i, dim in enumerate(tensor.shape.dim):
                if dim.HasField("dim_value"):
                    shape.append(dim.dim_value)
                    continue
                key = dim.dim_param or f"{value.name}_{i}"
                shape.append(size(key))
                given = dims.get(key)
                names[i] = given if isinstance(given, str) else getattr(given, "__name__", key)
            fakes.append((value.name, torch.empty(shape, dtype=dtype)))
            specs.append(names)
    return fakes, ranges, specs


def _outputs(
    block: ir.Block, results: list[Tensor], names: list[str], parameters: Mapping[str, torch.Tensor]
) -> tuple[list[Output], list[Tensor], list[str]]:
    """Where each output comes from, the tensors that ``main`` returns, each once, and their names."""
    arguments = {argument: i for i, argument in enumerate(block.arguments)}
    outputs: list[Output] = []
    returned: list[Tensor] = []
    returned_names: list[str] = []
    for name, result in zip(names, results, strict=True):
        owner = result.value.owner
        if result.value in arguments:
            outputs.append(Output("input", arguments[result.value]))
        elif not isinstance(owner, ir.Block) and owner.name == "disc_tensor.parameter":
            outputs.append(Output("parameter", value=parameters[ir.StringAttr(owner.attributes["name"]).value]))
        else:
            if result not in returned:
                returned.append(result)
                returned_names.append(name)
            outputs.append(Output("tensor", returned.index(result)))
    return outputs, returned, returned_names
