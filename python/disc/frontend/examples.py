"""Several examples of a model's arguments: which dims differ between them, and whether one program serves them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram

from .. import jagged, trees
from ..errors import ArgumentTypeError, ArgumentValueError, DynamicDimError
from ..torch_compat import pytree
from . import structure
from .argument_paths import leaf_names, signature_of
from .dim_hints import dynamic
from .entry_guards import EntryGuard, with_sources
from .hints import environment, is_hint, spec_of, user_inputs
from .keyword_arguments import named_keywords
from .readable import readable
from .shape_specs import automatic, bound, resolved
from .symbols import flatten_dynamic_shapes, parameter_names


@dataclass(frozen=True)
class Examples:
    """Examples of one structure."""

    args: tuple[Any, ...]
    """Those of the example that is traced."""
    kwargs: dict[str, Any]
    shapes: Any
    """``dynamic_shapes`` for it."""
    names: list[str]
    """A name for each leaf."""
    leaves: list[list[Any]] = field(repr=False)
    """The leaves of each example."""
    traced: int
    """The number of the example that is traced."""


def merged(module: torch.nn.Module, examples: Sequence[Any], dynamic_shapes: Any = None) -> Examples:
    """The examples as one, whose dims are dynamic where the examples differ or ``dynamic_shapes`` says so.

    Raises:
        ArgumentValueError: the examples have different structures, ranks, dtypes or constants.
    """
    if isinstance(examples, Sequence) and not isinstance(examples, str) and not examples:
        raise ArgumentValueError(
            "examples: the list is empty; expected one example or more, each a tuple of arguments or a dict of keyword"
            " arguments"
        )
    if isinstance(examples, (torch.Tensor, str, Mapping)) or not isinstance(examples, Sequence):
        raise ArgumentTypeError(
            "examples: expected a list of examples, each a tuple of arguments or a dict of keyword arguments; got"
            f" {type(examples).__name__}"
        )
    calls = [_call(structure.plain(example), i) for i, example in enumerate(examples)]
    with named_keywords(module, calls[0][1]):
        return _merged(module, calls, dynamic_shapes)


def _merged(module: torch.nn.Module, calls: list[Any], dynamic_shapes: Any) -> Examples:
    specs = [_flattened(*call)[1] for call in calls]
    if any(spec != specs[0] for spec in specs):
        calls = [_respelled(module, *call) for call in calls]
        specs = [_flattened(*call)[1] for call in calls]
    signature = signature_of(module)
    for i, spec in enumerate(specs):
        if spec != specs[0]:
            text = structure.difference(specs[0], spec, signature, what="example 0 has")
            raise ArgumentValueError(f"examples: example {i} has other arguments than example 0: {text}")
    leaves = [_flattened(*call)[0] for call in calls]
    names = leaf_names(signature, *calls[0])
    if len(names) != len(leaves[0]):
        raise ArgumentValueError(
            "examples: trees and nested tensors have dynamic sizes anyway: give one example, as args"
        )
    for name, values in zip(names, zip(*leaves, strict=True), strict=True):
        _check_alike(name, values)
    traced = max(range(len(calls)), key=lambda i: _suits(leaves[i], leaves))
    args, kwargs = calls[traced]
    given = flatten_dynamic_shapes(
        resolved(dynamic_shapes, module, args, kwargs), args, kwargs, parameter_names(module)
    )
    found = iter([_spec(n, v, s) for n, v, s in zip(names, zip(*leaves, strict=True), given, strict=True)])
    arguments = bound(module, args, kwargs)
    if arguments is None:
        shapes: Any = tuple(automatic(value, lambda _: next(found)) for value in (*args, *kwargs.values()))
    else:
        shapes = {name: automatic(value, lambda _: next(found)) for name, value in arguments.items()}
    return Examples(args, kwargs, shapes, names, leaves, traced)


def _call(example: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    if isinstance(example, torch.Tensor):
        return (example,), {}
    raise ArgumentTypeError(
        f"examples: example {number}: expected a tuple of arguments, a dict of keyword arguments or a tensor, got"
        f" {type(example).__name__}"
    )


def _flattened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten((args, kwargs), is_leaf=lambda x: trees.is_tree(x) or jagged.is_jagged(x))


def _respelled(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with each argument in the place that the signature has for it."""
    signature = signature_of(module)
    try:
        found = None if signature is None else signature.bind(*args, **kwargs)
    except TypeError:
        found = None
    return (args, kwargs) if found is None else (found.args, found.kwargs)


def _check_alike(name: str, values: Sequence[Any]) -> None:
    first = values[0]
    for i, value in enumerate(values):
        if isinstance(first, torch.Tensor) and isinstance(value, torch.Tensor):
            if first.dim() != value.dim() or first.dtype != value.dtype:
                kinds = (f"{str(x.dtype).removeprefix('torch.')} with {x.dim()} dims" for x in (first, value))
                raise ArgumentValueError(
                    f"examples: {name} is {next(kinds)} in example 0 and {next(kinds)} in example {i}: a model has one"
                    " rank and dtype; compile it for each"
                )
            continue
        if type(first) is type(value) and (isinstance(first, (float, torch.Tensor)) or type(first) is int):
            continue
        if type(first) is not type(value) or not _equal(first, value):
            raise ArgumentValueError(
                f"examples: {name} is {_shown(first)} in example 0 and {_shown(value)} in example {i}, but it is a"
                " constant of the compiled model: compile a model for each value"
            )


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


def _shown(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _suits(leaves: Sequence[Any], all_leaves: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """How well an example is suited for tracing: other sizes than 0 and 1, and different ones, in dims that differ."""
    sizes = []
    for i, x in enumerate(leaves):
        if isinstance(x, torch.Tensor) and not jagged.is_jagged(x):
            sizes += [n for d, n in enumerate(x.shape) if len({other[i].shape[d] for other in all_leaves}) > 1]
        elif type(x) is int and len({other[i] for other in all_leaves}) > 1:
            sizes.append(x)
    return sum(n > 1 for n in sizes), len(set(sizes))


def _spec(name: str, values: Sequence[Any], given: Any) -> Any:
    """The spec of one leaf."""
    if not isinstance(values[0], torch.Tensor):
        return dynamic() if given is None and type(values[0]) is int and len(set(values)) > 1 else given
    if jagged.is_jagged(values[0]):
        return given
    spec = {}
    for dim, sizes in enumerate(zip(*(x.shape for x in values), strict=True)):
        said = spec_of(given, dim)
        differ = len(set(sizes)) > 1
        if differ and (isinstance(said, int) or said == Dim.STATIC):
            raise ArgumentValueError(
                f"dynamic_shapes: {name}, dim {dim} is {said!r}, but the examples have {_listed(sizes)} there"
            )
        if said is None and differ:
            said = dynamic()
        if said is not None:
            spec[dim] = said
    return spec or None


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(sizes)))


def check_served(
    examples: Examples,
    program: ExportedProgram,
    guards: Sequence[EntryGuard],
    repeated: Mapping[int, Sequence[int]],
) -> None:
    """DynamicDimError if a program does not serve an example.

    ``repeated``: of input leaves the dims along which one element is repeated.
    """
    env, inputs = environment(program), user_inputs(program)
    for number, leaves in enumerate(examples.leaves):
        values: dict[sympy.Basic, sympy.Integer] = {}
        where: dict[sympy.Basic, str] = {}
        for leaf, (name, fake, x) in enumerate(zip(examples.names, inputs, leaves, strict=True)):
            if isinstance(fake, torch.SymInt):
                values[fake.node.expr] = sympy.Integer(x)
            for dim, size in enumerate(fake.shape if isinstance(fake, torch.Tensor) else ()):
                place, have = f"{name}.shape[{dim}]", x.shape[dim]
                expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
                if expr.is_Integer and int(expr) != have:
                    raise _unserved(examples, number, f"{place} is {have}, and {int(expr)} when it is traced")
                known = program.range_constraints.get(expr)
                if known is not None and have not in known:
                    raise _unserved(
                        examples, number, f"{place} is {have}, and has to be from {known.lower} to {known.upper}"
                    )
                if not expr.is_Symbol or (have == 1 and dim in repeated.get(leaf, ())):
                    continue
                if values.setdefault(expr, sympy.Integer(have)) != have:
                    text = f"{place} is {have}, and has to be {where[expr]}, which is {values[expr]}"
                    raise _unserved(examples, number, text)
                where.setdefault(expr, place)
        for guard in guards:
            if guard.condition.xreplace(values) == sympy.false:
                text = readable(with_sources(env, guard.condition) if env is not None else str(guard.condition))
                raise _unserved(examples, number, f"the model's code needs {text}", guard.source)


def _unserved(examples: Examples, number: int, text: str, source: str | None = None) -> DynamicDimError:
    return DynamicDimError(
        "import",
        f"example {number} does not fit the program of example {examples.traced}: {text}",
        source,
        help="one program cannot serve both: compile a model for each, or change the model's code",
    )


def differing_dims(examples: Examples, leaf: int) -> list[int]:
    """The dims of an input in which the examples differ."""
    xs = [leaves[leaf] for leaves in examples.leaves]
    if not isinstance(xs[0], torch.Tensor):
        return []
    return [dim for dim, sizes in enumerate(zip(*(x.shape for x in xs), strict=True)) if len(set(sizes)) > 1]


def marks_auto(spec: Any) -> bool:
    """Whether a dim may turn out static."""
    return is_hint(spec) and spec.type.name == "AUTO"
