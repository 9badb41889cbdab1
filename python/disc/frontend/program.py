"""Importing a model: ``nn.Module`` or ``ExportedProgram`` to DISC input IR."""

from __future__ import annotations

import copy
import enum
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, SymIntArgument, TensorArgument
from torch_mlir import ir

from .. import caches, errors, jagged, records, trees
from ..backends.negotiation import Negotiation
from ..timeline import part
from ..torch_compat import pytree
from ..trees import Argument, TreeType
from . import dtypes, rules, structure  # noqa: F401  (rules registers the built-in lowering rules)
from .argument_check import check_example
from .argument_paths import leaf_names, signature_of
from .composites import Composites
from .dynamic_report import DynamicReport, report
from .entry_guards import EntryGuard, entry_guards, requires_two
from .examples import Examples, check_served, differing_dims
from .export import refined_export
from .fallback import Fallbacks, forget
from .finish import finish
from .float_inputs import Path, as_tensors, find_floats, floats_as_inputs
from .hints import without_assumed_bounds
from .inference_mode import outside_inference_mode
from .input_check import check_inputs
from .keyword_arguments import named_keywords
from .lower import Lowering
from .markers import is_step
from .object_arguments import as_strings, constants, find_objects, is_same, put_back
from .repeated_inputs import asked_symbols, repeated_inputs
from .returns import Output, Returns
from .shape_specs import check_sizes, resolved
from .symbols import Symbol, SymbolTable, flatten_dynamic_shapes, parameter_names, sizing_numbers
from .torch_dialect import import_torch_dialect, single_threaded_context
from .training.step import HYPER_PARAMETERS, TrainingProgram
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
    """Whether the caller passes a Python int or float; ``main`` takes it as an i64 or f64 tensor without dims."""

    @property
    def is_plain(self) -> bool:
        """Whether ``main`` takes the caller's tensor as it is."""
        return not self.is_number and not self.dtype.is_complex and not dtypes.is_stored(self.dtype)

    def taken(self, leaf: Any) -> Any:
        """The argument of ``main`` for the caller's ``leaf``; TypeError if that has another type or dtype."""
        if self.is_number:
            return _number(self.name, leaf, self.dtype)
        if self.dtype.is_complex and isinstance(leaf, torch.Tensor) and leaf.dtype == self.dtype:
            return passed(leaf)  # first, since small calls feel each check
        if self.is_plain:
            return leaf
        # Compiled code sees the parts of complex numbers, or integers: it cannot tell them from such tensors.
        if not isinstance(leaf, torch.Tensor):
            raise errors.InputTypeError(f"input {self.name!r}: expected a Tensor, got {type(leaf).__name__}")
        if leaf.dtype != self.dtype:
            expected, got = (str(dtype).removeprefix("torch.") for dtype in (self.dtype, leaf.dtype))
            raise errors.InputTypeError(f"input {self.name!r}, dtype: expected {expected}, got {got}")
        return passed(leaf)


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
    predicates: frozenset[str] = frozenset()
    """Of the conditions on sizes that it checks, apart from the facts of its symbols: ``eq``, ``le``."""
    sources: dict[str, torch.Tensor] = field(default_factory=dict)
    """The parameters before what :func:`signless` does; empty for an ONNX model."""
    states: dict[str, torch.Tensor] = field(default_factory=dict)
    """The model's own tensors that calls update: buffers, for the most part."""
    trees: list[Argument] = field(default_factory=list)
    """The arguments that are trees; ``in_spec`` has tables in their places."""
    nested: list[jagged.Argument] = field(default_factory=list)
    """The arguments that are nested tensors; ``in_spec`` has their parts in their places."""
    returns_nested: bool = False
    """Whether ``out_spec`` has parts in the places of nested tensors."""
    constants: dict[int, Any] = field(default_factory=dict)
    """The value of each input leaf that is not a tensor: it was fixed by the export."""
    same_caches: dict[caches.Path, caches.Path] = field(default_factory=dict)
    """The results that are caches among the arguments: paths into the result and into ``(args, kwargs)``."""
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    """What PyTorch does."""
    dynamic_report: DynamicReport = field(default_factory=DynamicReport)
    """Which dims of the inputs are dynamic, and why others are not."""
    frozen_floats: errors.CompileError | None = None
    """Why the floats among the constants are not inputs."""
    signature: inspect.Signature | None = None
    """That of the module, for the names of arguments in messages."""
    _symbol_places: dict[sympy.Symbol, tuple[int, int]] = field(default_factory=dict, repr=False)
    _direct: Any = field(default_factory=lambda: _UNKNOWN, repr=False)

    def release(self) -> None:
        """Lets go of the tensors that only compiling needs: whoever drops the module then frees its weights."""
        self.parameters, self.sources = {}, {}
        self.exported = None

    def _find_direct(self) -> list[TreeType | None] | None:
        """The trees among arguments, if these are but tensors and trees, without names; None if there is more."""
        args, kwargs = self.in_spec.children()
        kinds = {argument.path[1:]: argument.kind for argument in self.trees}
        found = [kinds.get((pytree.SequenceKey(n),)) for n in range(args.num_children)]
        plain = all(kind or spec.is_leaf() for kind, spec in zip(found, args.children(), strict=True))
        views = any(not i.is_plain for i in self.inputs)
        if not plain or views or kwargs.num_children or [i.leaf for i in self.inputs] != list(range(args.num_leaves)):
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
        if self.nested:
            args, kwargs = jagged.replaced(args, kwargs, self.nested)
        leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
        if spec != self.in_spec:
            ordered = structure.ordered((tuple(args), kwargs), self.in_spec)
            leaves, spec = pytree.tree_flatten(ordered)
            if spec != self.in_spec:
                raise errors.CallError(structure.difference(self.in_spec, spec, self.signature))
        for leaf, value in self.constants.items():
            found = leaves[leaf]
            if not is_same(found, value):
                raise errors.ConstantError(self._constant_differs(leaf, value, found, args, kwargs))
        return [i.taken(leaves[i.leaf]) for i in self.inputs]

    def _constant_differs(self, leaf: int, value: Any, found: Any, args: Any, kwargs: Any) -> str:
        name = leaf_names(self.signature, args, kwargs)[leaf]
        got = "a tensor" if isinstance(found, torch.Tensor) else repr(found)
        advice = "compile a model for each value"
        if type(value) is int:
            advice += f", or make it an input: dynamic_shapes={{{name!r}: Dim.DYNAMIC}}"
        if isinstance(value, float):
            advice += ", or pass a tensor where the model's code allows it"
        why = ""
        if isinstance(value, float) and self.frozen_floats is not None:
            why = f" The model's code asks for its value: {self.frozen_floats.diagnostic}"
        return (
            f"argument {name!r} is a constant of the compiled model: expected {value!r}, its value in the example, got"
            f" {got}; {advice}.{why}"
        )

    def unflatten(self, results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Any:
        """The model's output from ``main``'s ``results`` and the (flat) ``inputs`` of the call."""
        leaves = []
        for output in self.outputs:
            if output.kind in ("tensor", "input"):
                leaves.append(output.given((results if output.kind == "tensor" else inputs)[output.index]))
            elif output.kind == "number":
                leaves.append(results[output.index].item())
            elif output.kind == "int":
                leaves.append(self._evaluate(output.value, inputs))
            else:
                leaves.append(output.value)
        result = pytree.tree_unflatten(leaves, self.out_spec)
        return jagged.rebuilt(result) if self.returns_nested else result

    def _evaluate(self, expr: sympy.Expr, inputs: Sequence[torch.Tensor]) -> int:
        sizes = {symbol: inputs[i].shape[d] for symbol, (i, d) in self._symbol_places.items()}
        return int(expr.xreplace({s: sympy.Integer(n) for s, n in sizes.items()}))


def _with_numbers(signature: inspect.Signature | None, spec: pytree.TreeSpec) -> inspect.Signature | None:
    """The signature of a step, which takes the optimizer's numbers after the arguments of the loss."""
    if signature is None or HYPER_PARAMETERS not in (spec.child(1).context or ()):
        return signature
    parameters = list(signature.parameters.values())
    place = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    parameters.insert(place, inspect.Parameter(HYPER_PARAMETERS, inspect.Parameter.KEYWORD_ONLY))
    return signature.replace(parameters=parameters)


def _number(name: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
    kind = float if dtype.is_floating_point else int
    if isinstance(value, bool) or not isinstance(value, kind):
        # An int is not a float: x * 2 and x * 2.0 have different dtypes if x has integers.
        expected = "a float" if kind is float else "an int"
        advice = f"; pass {float(value)!r}" if kind is float and type(value) is int and abs(value) < 2**53 else ""
        raise errors.InputTypeError(f"input {name!r}: expected {expected}, got {type(value).__name__}{advice}")
    return torch.tensor(value, dtype=dtype)


def import_program(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    library: bool = False,
    fallback: bool = False,
    examples: Examples | None = None,
    negotiation: Negotiation | None = None,
    training: TrainingProgram | None = None,
) -> ImportedProgram:
    """Imports ``model`` as DISC input IR.

    ``args``, ``kwargs`` and ``dynamic_shapes`` are ``torch.export.export``'s. For an ExportedProgram only
    ``dynamic_shapes`` matters, for the names of its ``Dim``s. With ``library`` every output is computed, also one that
    is an input, a parameter or a number. With ``fallback`` PyTorch does what has no rule. ``examples`` are those that
    ``args``, ``kwargs`` and ``dynamic_shapes`` were merged of. ``negotiation`` is with back ends, which may claim
    operations. With ``training`` the model computes a loss, and what is imported is a training step.
    """
    if isinstance(model, ExportedProgram):
        if model.example_inputs is not None:
            args, kwargs = model.example_inputs
        names = list(model.graph_signature.user_inputs)
        return _imported(
            model,
            args,
            kwargs,
            dynamic_shapes,
            names,
            library=library,
            fallback=fallback,
            negotiation=negotiation,
            given=True,
            training=training,
        )
    signature = signature_of(model)
    with outside_inference_mode(model), named_keywords(model, kwargs):
        imported = _imported_module(
            model, args, kwargs, dynamic_shapes, library, fallback, examples, negotiation, training
        )
    imported.signature = signature if training is None else _with_numbers(signature, imported.in_spec)
    return imported


def _imported_module(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    library: bool,
    fallback: bool,
    examples: Examples | None,
    negotiation: Negotiation | None,
    training: TrainingProgram | None,
) -> ImportedProgram:
    check_example(model, args, kwargs or {})
    names = parameter_names(model)
    dynamic_shapes = resolved(dynamic_shapes, model, args, kwargs)
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    if len(specs) == len(leaves):
        check_sizes(leaf_names(signature_of(model), args, kwargs or {}), leaves, specs)
    caches.register()
    dynamic_shapes = caches.dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    same: dict[caches.Path, caches.Path] = {}
    found = trees.find(args, kwargs or {})
    if found:
        dynamic_shapes = trees.dynamic_shapes(dynamic_shapes, args, kwargs or {}, names, found)
        args, kwargs = trees.replaced(args, kwargs or {}, found, trees.example)
    dynamic_shapes = jagged.dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    nested = jagged.find(args, kwargs or {})
    if nested:
        args, kwargs = jagged.replaced(args, kwargs or {}, nested)
    objects = find_objects(args, kwargs or {})
    if objects:
        args, kwargs = as_strings(args, kwargs or {}, objects)
    floats = find_floats(args, kwargs or {})
    with jagged.as_parts(model, nested), jagged.watched() as asked, put_back(model, objects):
        imported = _traced(
            model,
            args,
            kwargs or {},
            dynamic_shapes,
            names,
            floats,
            same,
            library=library,
            fallback=fallback,
            examples=examples,
            negotiation=negotiation,
            training=training,
        )
    imported.constants |= constants(args, kwargs or {}, objects)
    imported.trees = found
    imported.nested = jagged.with_asked(nested, asked)
    imported.returns_nested = jagged.are_returned(imported.out_spec)
    imported.same_caches = same
    return imported


def _traced(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    names: Sequence[str],
    floats: Sequence[Path],
    same: dict[caches.Path, caches.Path],
    *,
    library: bool,
    fallback: bool,
    examples: Examples | None,
    negotiation: Negotiation | None,
    training: TrainingProgram | None,
) -> ImportedProgram:
    """A module as a program that takes its floats as inputs, or else one that they are a part of."""
    try:
        given, given_kwargs = as_tensors(args, kwargs, floats)
        with caches.returned(model, same), records.returned(model), floats_as_inputs(model, floats):
            exported, shapes = refined_export(model, given, given_kwargs, dynamic_shapes, training is not None)
        return _imported(
            exported,
            given,
            given_kwargs,
            shapes,
            names,
            floats,
            library=library,
            fallback=fallback,
            examples=examples,
            negotiation=negotiation,
            training=training,
        )
    except errors.CompileError as error:
        if not floats:
            raise
        try:
            with caches.returned(model, same), records.returned(model):
                exported, shapes = refined_export(model, args, kwargs, dynamic_shapes, training is not None)
            imported = _imported(
                exported,
                args,
                kwargs,
                shapes,
                names,
                library=library,
                fallback=fallback,
                examples=examples,
                negotiation=negotiation,
                training=training,
            )
        except errors.CompileError:
            raise error from None
        # Python, or an operation, asks for the number itself: then it is a part of the model.
        imported.frozen_floats = error
        return imported


def _imported(
    exported: ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    names: Sequence[str],
    floats: Sequence[Path] = (),
    *,
    library: bool,
    fallback: bool = False,
    given: bool = False,
    examples: Examples | None = None,
    negotiation: Negotiation | None = None,
    training: TrainingProgram | None = None,
) -> ImportedProgram:
    """``given``: the program comes from the caller, not from :func:`export`."""
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, names)
    guards = entry_guards(exported)
    ranges = exported.range_constraints
    if given:
        ranges = without_assumed_bounds(exported, specs, lambda s: requires_two(exported, s))
    program: Program
    if training is not None:
        with part("gradients"):
            program, asked = training(exported, ranges)
    else:
        with part("decompose"):
            decomposed, asked = decompose(exported)
        program = copy.copy(decomposed)
        program._range_constraints = {**program.range_constraints, **ranges}
    guards = [*guards, *asked]
    repeats: Mapping[str, list[int]] = {}
    if not given:
        # Decomposed, operations that do not broadcast become some that do.
        tensors, _, _ = _user_inputs(exported)
        conditions = asked_symbols(exported).union(*(guard.condition.free_symbols for guard in guards))
        repeats = repeated_inputs(exported.graph, [(name, _spec(specs, leaf)) for leaf, name in tensors], conditions)
    if fallback:
        imported = _with_fallbacks(program, specs, guards, repeats, negotiation)
    else:
        imported = import_functional(
            program, specs, library=library, guards=guards, repeats=repeats, negotiation=negotiation
        )
    if floats:
        leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs or {})))
        places = {i for i, (path, _) in enumerate(leaves) if tuple(path) in floats}
        imported.inputs = [replace(i, is_number=True) if i.leaf in places else i for i in imported.inputs]
    imported.exported = exported
    check_inputs(exported, program.range_constraints, imported)
    differing = None
    if examples is not None:
        repeated = {leaf: repeats.get(name, ()) for leaf, name in _user_inputs(exported)[0]}
        check_served(examples, exported, guards, repeated)
        differing = {x.leaf: differing_dims(examples, x.leaf) for x in imported.inputs}
    imported.dynamic_report = report(exported, imported.inputs, imported.symbols, specs, differing)
    return imported


def _with_fallbacks(
    program: Program,
    specs: Sequence[Any],
    guards: Sequence[EntryGuard],
    repeats: Mapping[str, list[int]],
    negotiation: Negotiation | None,
) -> ImportedProgram:
    """Imports a program, with the operations that have no rule left to PyTorch."""
    nodes: dict[str, str] = {}
    while True:
        fallbacks = Fallbacks(nodes)
        try:
            imported = import_functional(
                program, specs, guards=guards, repeats=repeats, fallbacks=fallbacks, negotiation=negotiation
            )
        except errors.UnsupportedOpError as error:
            forget(fallbacks.functions)
            refused = {op.node for op in error.ops}
            # What PyTorch cannot do either is an error; so is control flow, which is no operation.
            if "" in refused or refused & nodes.keys():
                raise
            nodes.update({op.node: op.reason for op in error.ops})
            continue
        imported.fallbacks = fallbacks
        return imported


def import_functional(
    program: Program,
    specs: Sequence[Any] = (),
    *,
    library: bool = False,
    owned: bool = False,
    guards: Sequence[EntryGuard] = (),
    repeats: Mapping[str, list[int]] | None = None,
    fallbacks: Fallbacks | None = None,
    negotiation: Negotiation | None = None,
) -> ImportedProgram:
    """Imports a program whose ops change nothing in place. ``specs``: a spec of dims for each leaf of the arguments.

    With ``owned`` each tensor that ``main`` returns is in memory of its own. ``guards`` are checked at the entry.
    ``repeats``: of inputs the dims along which the runtime may repeat them.
    """
    updates = find_updates(program)
    program = without_updates(program)
    inputs, fakes, constants = _user_inputs(program)
    leaf_specs = [_spec(specs, leaf) for leaf, _ in inputs]
    named = [(name, fake) for (_, name), fake in zip(inputs, fakes, strict=True)]
    computed = [
        symbol
        for node in program.graph.nodes
        if not is_step(node)
        for symbol in node.meta.get("unbacked_bindings") or {}
    ]
    sizing = sizing_numbers(program.graph)
    symbols = SymbolTable(named, program.range_constraints, leaf_specs, computed, sizing)

    context = single_threaded_context()
    with context, ir.Location.unknown():
        with part("torch dialect"):
            torch_module, parameters = import_torch_dialect(program, context, fallbacks.nodes if fallbacks else ())
        states = name_states(updates, parameters)
        lowering = Lowering(program, symbols, parameters, states, guards)
        lowering.builder.sizing = sizing
        lowering.has_updates = bool(updates)
        lowering.repeats = repeats or {}
        lowering.builder.fallbacks = fallbacks
        if negotiation is not None:
            lowering.composites = Composites(negotiation)
        with part("lower"):
            module, results = lowering.run(torch_module, named)
        places = _symbol_places(symbols, fakes)
        assert program.call_spec.out_spec is not None
        returns = Returns(program, module, lowering.builder, [name for _, name in inputs], states, places)
        outputs, named_results = returns.collect(
            results, updates, parameters, program.call_spec.out_spec, library, owned
        )
        finished = finish(module, named_results, lowering.builder.attributes, lowering.composites)
    used = finished.parameters | states.keys()
    sources = {name: t for name, t in parameters.items() if name in used}
    assert program.call_spec.in_spec is not None
    return ImportedProgram(
        text=finished.text,
        predicates=frozenset(finished.predicates),
        parameters={name: signless(t) for name, t in sources.items()},
        sources=sources,
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
        return torch.view_as_real(leaf.resolve_conj() if leaf.is_conj() else leaf)
    return leaf.view(dtypes.storage(leaf.dtype)) if dtypes.is_stored(leaf.dtype) else leaf


def signless(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter as compiled code takes it: a view of its memory as signed or as real numbers."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.detach().resolve_conj())
    tensor = passed(tensor.detach())
    signed = {torch.uint8: torch.int8, torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def _dim(symbols: SymbolTable, size: Any) -> int | str:
    return size if isinstance(size, int) else symbols.text(size)


def _spec(specs: Sequence[Any], leaf: int) -> Any:
    return specs[leaf] if leaf < len(specs) else None


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
                raise errors.UnsupportedTypeError("import", f"input {spec.arg.name!r}: {fake.dtype} is not supported")
            inputs.append((leaf, spec.arg.name))
            fakes.append(fake)
        elif isinstance(spec.arg, SymIntArgument) and isinstance(values.get(spec.arg.name), torch.SymInt):
            inputs.append((leaf, spec.arg.name))
            fakes.append(values[spec.arg.name])
        elif hasattr(spec.arg, "value"):
            member = values.get(spec.arg.name)
            constants[leaf] = member if isinstance(member, enum.Enum) else spec.arg.value
        else:
            raise errors.UnsupportedTypeError(
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
