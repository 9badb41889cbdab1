"""Dims marked ``Dim.AUTO`` or ``Dim.DYNAMIC``, without a lower bound of the user.

``torch.export`` assumes that such dims are 2 or more. The compiled model also accepts 0 and 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from ..torch_compat import pytree
from ..torch_compat.symbols import DimHint, DimHintType, ShapeEnv, StrictMinMaxConstraint, ValueRanges, int_oo
from .locations import warn
from .readable import readable, requirement

_ASSUMED = 2
"""The least extent of a dynamic dim, as torch.export assumes."""
_UNBOUNDED = 2**62
"""Upper bounds of torch.export from this value on mean that there is no bound."""


def is_hint(spec: Any) -> bool:
    """Whether what ``dynamic_shapes`` says of a dim is ``Dim.AUTO`` or ``Dim.DYNAMIC``."""
    return isinstance(spec, DimHint) and spec.type in (DimHintType.AUTO, DimHintType.DYNAMIC)


def are_given(dynamic_shapes: Any) -> bool:
    """Whether ``dynamic_shapes`` has a ``Dim.AUTO`` or ``Dim.DYNAMIC``."""
    return any(map(is_hint, pytree.tree_leaves(dynamic_shapes)))


def spec_of(spec: Any, dim: int) -> Any:
    """The entry for one dim in the spec of a tensor."""
    if isinstance(spec, Mapping):
        return spec.get(dim)
    return spec[dim] if isinstance(spec, (list, tuple)) and dim < len(spec) else None


def environment(program: Any) -> ShapeEnv | None:
    """The symbols of a traced program."""
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not None:
            return value.fake_mode.shape_env  # type: ignore[attr-defined, no-any-return]
        if isinstance(value, torch.SymInt):
            return value.node.shape_env  # type: ignore[attr-defined, no-any-return]
    return None


def user_inputs(program: ExportedProgram) -> list[Any]:
    """The fake tensor, symbolic number or constant of each leaf of the arguments."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return [
        values.get(spec.arg.name, getattr(spec.arg, "value", None))
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]


def dims(program: ExportedProgram, specs: Sequence[Any]) -> Iterator[tuple[int, int | None, Any, Any]]:
    """(leaf, dim, extent, spec) of each dim of each input; of a number, the dim is None."""
    for leaf, value in enumerate(user_inputs(program)):
        spec = specs[leaf] if leaf < len(specs) else None
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                yield leaf, dim, size, spec_of(spec, dim)
        elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            yield leaf, None, value, spec


def _known(size: Any) -> Any:
    """A size as an int, where its symbol has one value."""
    value = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
    return size if value is None else value


def without_assumed_bounds(
    program: ExportedProgram,
    specs: Sequence[Any],
    required: Callable[[sympy.Symbol], bool],
    negative: Callable[[sympy.Symbol], bool] = lambda symbol: False,
) -> dict[sympy.Symbol, ValueRanges[sympy.Expr]]:
    """The ranges of a program's symbols without the lower bound of 2, of numbers 0, that torch.export adds.

    ``required(symbol)``: whether the model's code needs 2 or more; ``negative(symbol)``: whether it does the same for
    negative numbers. A bound of the user remains: that of a ``Dim`` among ``specs``, or of one that the
    program was exported with. A file does not store the latter.
    """
    ranges = dict(program.range_constraints)
    given = declared(program)
    for _, dim, size, spec in dims(program, specs):
        symbol = size.node.expr if isinstance(size, torch.SymInt) else None
        known = ranges.get(symbol) if symbol is not None and symbol.is_Symbol else None
        if symbol is None or known is None:
            continue
        if dim is None:
            if is_hint(spec) and spec.min is None and known.lower == 0 and negative(symbol):
                ranges[symbol] = ValueRanges(-int_oo, known.upper)
            continue
        if known.lower != _ASSUMED or symbol in given or required(symbol):
            continue
        least = getattr(spec, "min", None)
        if least is None or least < _ASSUMED:
            ranges[symbol] = ValueRanges(sympy.Integer(least or 0), known.upper)
    return ranges


def declared(program: ExportedProgram) -> set[sympy.Symbol]:
    """The symbols whose ranges the user declared."""
    env = environment(program)
    found: set[sympy.Symbol] = set()
    for tracked in (env.tracked_fakes or ()) if env is not None else ():
        constraints = getattr(tracked.symbolic_context, "constraint_sizes", None) or ()
        for size, constraint in zip(getattr(tracked.fake, "shape", ()), constraints, strict=False):
            if isinstance(constraint, StrictMinMaxConstraint) and isinstance(size, torch.SymInt):
                found |= {size.node._expr, size.node.expr} & size.node.expr.free_symbols
    return found


def narrowed(program: ExportedProgram, specs: Sequence[Any]) -> tuple[int, int]:
    """How many dims without a range of the user's are fixed to 0 or 1, and how many have a bound that tracing found."""
    fixed = bounded = 0
    for _, dim, size, spec in dims(program, specs):
        if not is_hint(spec) or dim is None:
            continue
        if not isinstance(size, torch.SymInt):
            fixed += size in (0, 1)
        else:
            known = program.range_constraints.get(size.node.expr)
            if not size.node.expr.is_Symbol or known is None:
                continue
            low, high = max(spec.min or 0, 0), min(spec.max or sys.maxsize, _UNBOUNDED)
            bounded += bool(known.lower > low) or bool(known.upper < high)
    return fixed, bounded


def fixed(program: ExportedProgram, names: Sequence[str], specs: Sequence[Any]) -> list[str]:
    """The dims without a range of the user's that are static in the program, in words."""
    return [
        f"input {names[leaf]}, dim {dim}"
        for leaf, dim, size, spec in dims(program, specs)
        if is_hint(spec) and dim is not None and isinstance(_known(size), int)
    ]


def ones(args: Any, names: Sequence[str], specs: Sequence[Any]) -> str:
    """The dynamic dims that are 1 in the example, in words."""
    found = [
        f"input {name}, dim {dim}"
        for name, leaf, spec in zip(names, pytree.tree_leaves(args), specs, strict=False)
        for dim, size in enumerate(leaf.shape if isinstance(leaf, torch.Tensor) else ())
        if size == 1 and (is_hint(found := spec_of(spec, dim)) or isinstance(found, Dim))
    ]
    return f"{', '.join(found)} {'is' if len(found) == 1 else 'are'}"


def check_narrowed(
    program: ExportedProgram, names: Sequence[str], specs: Sequence[Any], conditions: Sequence[str]
) -> None:
    """Warns about a dim without a declared range that the model's code narrows.

    ``conditions`` are the texts of the conditions that the code assumes.
    """
    for leaf, dim, size, spec in dims(program, specs):
        if not is_hint(spec) or dim is None or not isinstance(size, torch.SymInt):
            continue
        if _known(size) is not size:
            continue  # It is static.
        if not size.node.expr.is_Symbol:
            # torch.export computes its range from sizes that it takes for 2 or more.
            warn(f"input {names[leaf]}, dim {dim} must be {_with_places(size)} in the compiled model")
            continue
        known = program.range_constraints.get(size.node.expr)
        # Beyond the largest, all numbers are.
        largest = int(known.upper) if known is not None and known.upper.is_Integer else sys.maxsize
        if known is None or (
            known.lower <= max(spec.min or 0, 0) and largest >= min(spec.max or sys.maxsize, _UNBOUNDED)
        ):
            continue
        limits = f"{known.lower} and more" if largest >= _UNBOUNDED else f"{known.lower} to {largest}"
        sources = [readable(_name(source)) for source in size.node.shape_env.var_to_sources.get(size.node.expr, ())]
        why = [text for text in conditions if any(source in text for source in sources)]
        because = f": {'; '.join(dict.fromkeys(why))}" if why else ""
        warn(f"input {names[leaf]}, dim {dim} has the range {limits} in the compiled model{because}")


def check_fixed(program: ExportedProgram, names: Sequence[str], specs: Sequence[Any], lines: Mapping[str, str]) -> None:
    """Warns, in one line, of dims marked ``Dim.AUTO`` that became static, and says why.

    ``lines``: the conditions that the model's code asked for, with their lines.
    """
    small, found = [], []
    for leaf, dim, size, spec in dims(program, specs):
        known = _known(size)
        if not is_hint(spec) or not isinstance(known, int):
            continue
        where = f"input {names[leaf]}" + ("" if dim is None else f", dim {dim}")
        if isinstance(size, int) and size in (0, 1):
            small.append(
                f"{where} is static in the compiled model: it should be dynamic, but the example has {size} there"
                " and the model does not work with another size beside the other examples; use an example of 2 or more"
            )
            continue
        place = f"{names[leaf]}.shape[{dim}]"
        why = next((requirement(s, c) for c, s in lines.items() if place in readable(c)), "")
        found.append(f"{where} is {known}" + (f" ({why})" if why else ""))
    for text in small:
        warn(text)
    if found:
        warn(f"static in the compiled model, because the model's code fixes their sizes: {'; '.join(found)}")


def _with_places(size: torch.SymInt) -> str:
    """An expression of sizes, with the places in the arguments for its symbols: ``2*x.shape[0] + 1``."""
    env, text = size.node.shape_env, str(size.node.expr)
    for symbol in size.node.expr.free_symbols:
        sources = env.var_to_sources.get(symbol, ())
        if sources:
            text = re.sub(rf"\b{symbol}\b", lambda _: readable(_name(sources[0])), text)  # noqa: B023
    return text


def _name(source: Any) -> str:
    name: Any = source.name
    return str(name() if callable(name) else name)
