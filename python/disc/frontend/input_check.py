"""Checks that compiling fixed no dynamic dim of a model's inputs, and narrowed no range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat.symbols import ValueRanges
from .hints import user_inputs

if TYPE_CHECKING:
    from .program import ImportedProgram

_UNBOUNDED = 2**62
"""From here on, torch.export's upper bounds stand for no bound."""


def check_inputs(
    exported: ExportedProgram, ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]], imported: ImportedProgram
) -> None:
    """CompileError if a dim that is dynamic in a program is not, in all of its range, in what was imported of it."""
    values = user_inputs(exported)
    symbols = {symbol.name: symbol for symbol in imported.symbols}
    for x in imported.inputs:
        value = values[x.leaf] if x.leaf < len(values) else None
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
                continue
            low, high = _bounds(ranges.get(size.node.expr))
            have = x.dims[dim]
            if low == high:
                continue
            known = symbols.get(have) if isinstance(have, str) else None
            if isinstance(have, int):
                raise _failure(x.name, dim, size.node.expr, low, high, f"is {have}")
            if known is not None and (known.min > low or _below(known.max, high)):
                raise _failure(x.name, dim, size.node.expr, low, high, f"is {_text(known.min, known.max)}")


def check_interface(program: ImportedProgram, interface: Mapping[str, Any]) -> None:
    """CompileError if a dim that was imported as dynamic is static in a compiled model.

    A program that requires sizes to be equal may fix one by that, or by a bound if the range has an end already: the
    guard at its entry then names the line.
    """
    if "eq" in program.predicates:
        return
    bounded = "le" in program.predicates
    fixed = {
        symbol.name for symbol in program.symbols if symbol.min == symbol.max or (bounded and symbol.max is not None)
    }
    known = {name: dims for name, _, dims, *_ in interface["inputs"]}
    for x in program.inputs:
        for dim, (have, compiled) in enumerate(zip(x.dims, known.get(x.name, ()), strict=False)):
            symbolic = isinstance(have, str) and not have.isdecimal() and have not in fixed
            if symbolic and str(compiled).isdecimal():
                raise _failure(x.name, dim, have, 0, None, f"is {compiled}")


def _bounds(known: Any) -> tuple[int, int | None]:
    low = int(known.lower) if known is not None and known.lower.is_Integer else 0
    high = int(known.upper) if known is not None and known.upper.is_Integer else None
    return max(low, 0), high if high is None or high < _UNBOUNDED else None


def _below(have: int | None, want: int | None) -> bool:
    return have is not None and (want is None or have < want)


def _text(low: int, high: int | None) -> str:
    return f"{low} and more" if high is None else f"{low} to {high}"


def _failure(name: str, dim: int, symbol: Any, low: int, high: int | None, found: str) -> errors.InternalError:
    return errors.InternalError(
        "import",
        f"input {name!r}, dim {dim} ({symbol}): dynamic in the model's program, {_text(low, high)}, but in the compiled"
        f" model it {found}. {errors.REPORT}",
    )
