"""DISC's IR as objects of MLIR's Python bindings, which know none of DISC's dialects.

The generic form of the text is parsed with unregistered dialects allowed: operations, values, regions, types and
locations are typed, and an attribute of a dialect of DISC is its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_mlir import ir

from ..frontend.torch_dialect import single_threaded_context


def parse(text: str) -> ir.Module:
    """The module whose generic form ``text`` is."""
    context = single_threaded_context()
    context.allow_unregistered_dialects = True
    with context:
        return ir.Module.parse(text)


def blocks(operation: ir.Operation) -> Iterator[ir.Block]:
    """The blocks of all regions of an operation."""
    for region in operation.regions:
        yield from region.blocks


def attribute(operation: ir.Operation, name: str) -> Any:
    """A string, a symbol's name, an integer or another attribute; None if the operation has none of this name."""
    if name not in operation.attributes:
        return None
    found = operation.attributes[name]
    if isinstance(found, (ir.StringAttr, ir.FlatSymbolRefAttr, ir.IntegerAttr, ir.BoolAttr)):
        return found.value
    return found


def attributes(operation: ir.Operation) -> dict[str, ir.Attribute]:
    """All attributes of an operation by name, those of DISC's dialects included."""
    found = dict(operation.attributes.items())
    if not operation.context.is_registered_operation(operation.name):
        # The bindings find an attribute of an unregistered operation by its name, but do not list its properties.
        found = {**{entry.name: entry.attr for entry in _properties(operation)}, **found}
    return found


_MOST_ELEMENTS = 16
"""A constant of more elements is printed without them."""


def _properties(operation: ir.Operation) -> ir.DictAttr:
    text = operation.get_asm(
        print_generic_op_form=True,
        assume_verified=True,
        use_local_scope=True,
        skip_regions=True,
        large_elements_limit=_MOST_ELEMENTS,
    )
    begin = text.find(" <{")
    # Operands and successors come before it, which have no braces; so have operations without properties.
    text = text[begin + 2 : _closing(text, begin + 2) + 1] if 0 <= begin < _first_brace(text) else "{}"
    with operation.context:
        return ir.DictAttr(ir.Attribute.parse(text))


def _first_brace(text: str) -> int:
    place = text.find("{")
    return len(text) if place < 0 else place


def _closing(text: str, begin: int) -> int:
    """The place of the brace that closes the one at ``begin``; braces in strings do not count."""
    depth, place, in_string = 0, begin, False
    while place < len(text):
        char = text[place]
        if in_string:
            place += char == "\\"
            in_string = char != '"'
        elif char == '"':
            in_string = True
        else:
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return place
        place += 1
    raise ValueError(f"MLIR printed an operation without the end of its properties: {text[begin : begin + 80]}")


def symbol(operation: ir.Operation) -> str | None:
    """The name of an operation that is a symbol, such as a function."""
    name = attribute(operation, "sym_name")
    return name if isinstance(name, str) else None


def sources(location: ir.Location) -> tuple[str, ...]:
    """Every ``file:line`` of a location, the innermost first."""
    found: dict[str, None] = {}
    _collect(location, found)
    return tuple(found)


def _collect(location: ir.Location, found: dict[str, None]) -> None:
    if isinstance(location, ir.FileLineColLoc):
        found[f"{location.filename}:{location.start_line}"] = None
    elif isinstance(location, ir.NameLoc):
        _collect(location.child_loc, found)
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            _collect(part, found)
    elif isinstance(location, ir.CallSiteLoc):
        _collect(location.callee, found)
        _collect(location.caller, found)
