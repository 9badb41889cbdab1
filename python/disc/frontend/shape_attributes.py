"""The attributes of ``disc_shape``, a dialect that torch-mlir's bindings do not know.

To the bindings such an attribute is opaque: a text. It is written here, from expressions, and its symbols are recorded
beside it, so that nothing in the import reads the text again.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from ..expressions import Expression


class ShapeAttributes:
    """Makes attributes for one module, and knows the symbols in each of them."""

    def __init__(self) -> None:
        self._symbols: dict[ir.Attribute, frozenset[str]] = {}

    def expr(self, expression: Expression) -> ir.Attribute:
        """``#disc_shape.expr<...>``: one extent."""
        return self._made(f"#disc_shape.expr<{expression}>", [expression])

    def dims(self, extents: Sequence[Expression]) -> ir.Attribute:
        """``#disc_shape.dims<[...]>``: the extents of a tensor, those of pairs for complex elements included."""
        return self._made(f"#disc_shape.dims<[{', '.join(map(str, extents))}]>", extents)

    def symbols(self, attribute: ir.Attribute) -> frozenset[str]:
        """The symbols in an attribute that this object made, or in an array of such attributes."""
        if isinstance(attribute, ir.ArrayAttr):
            return frozenset(name for item in attribute for name in self.symbols(item))
        return self._symbols[attribute]

    def _made(self, text: str, expressions: Sequence[Expression]) -> ir.Attribute:
        attribute = ir.Attribute.parse(text)
        self._symbols[attribute] = frozenset(name for x in expressions for name in x.symbols())
        return attribute
