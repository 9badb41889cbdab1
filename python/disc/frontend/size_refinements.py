"""Requirements of a model on a ``Dim`` that are narrower than what the user wrote: ``h = 2*_h``, or a largest size.

``torch.export`` refuses such a model and suggests other dims. A range within the user's, or multiples within it, still
serve what the user asked for where the model works at all: the dims are refined, and a warning says so. What would fix
a dim to one size, or make two dims equal, is left to the user: the error has the line to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.export import Dim

from ..torch_compat import pytree
from ..torch_compat.symbols import int_oo

_SUGGESTED = "Suggested fixes:"
_RANGE = re.compile(r"(\w+) = Dim\('\w+'(?:, min=(\w+))?(?:, max=(\w+))?\)")
_RELATION = re.compile(r"(\w+) = (.+)")
_ASSUMED = 2
"""The least size of a dim, as torch.export assumes."""


@dataclass(frozen=True)
class Refinement:
    """What a model requires of one named dim."""

    name: str
    low: int | None = None
    high: int | None = None
    factor: int = 1
    """Sizes are ``factor * root + offset``."""
    offset: int = 0
    root: str = ""
    """The name of the dim that sizes are computed of; "" for a range of the dim's own."""
    fixed: bool = False
    """Whether ``offset`` is the only size."""

    def line(self, dim: Dim | None = None) -> str:
        """The line of Python to write, where ``dim`` is what the user wrote."""
        if self.fixed:
            return f"{self.name} = {self.offset}"
        refined = None if dim is None else refined_dim(dim, self)
        if refined is not None:
            return f"{self.name} = {written(refined)}"
        if not self.root:
            return f"{self.name}: from {self.low or 0} to {'any size' if self.high is None else self.high}"
        return f"{self.name} = {_linear(self.factor, self.root, self.offset)}"


def suggested(text: str) -> list[Refinement]:
    """What torch.export suggests in an error."""
    if _SUGGESTED not in text:
        return []
    found: list[Refinement] = []
    roots: dict[str, tuple[int | None, int | None]] = {}
    for line in text.split(_SUGGESTED, 1)[1].strip().splitlines():
        line = line.strip()
        if match := _RANGE.fullmatch(line):
            name, low, high = match[1], _number(match[2]), _number(match[3])
            roots[name] = low, high
            found.append(Refinement(name, low, high))
        elif match := _RELATION.fullmatch(line):
            relation = _relation(match[1], match[2])
            if relation is None:
                break  # The suggestions end here.
            found.append(relation)
        else:
            break
    named = {refinement.root for refinement in found if refinement.root}
    return [_with_bounds(r, roots) for r in found if r.name not in named or r.root]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _relation(name: str, text: str) -> Refinement | None:
    try:
        expr = sympy.sympify(text, locals={n: sympy.Symbol(n) for n in re.findall(r"[A-Za-z_]\w*", text)})
    except (sympy.SympifyError, SyntaxError, TypeError):
        return None
    if expr.is_Integer:
        return Refinement(name, offset=int(expr), fixed=True)
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor, offset = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
    if not (factor.is_Integer and offset.is_Integer and factor > 0 and expr == factor * symbol + offset):
        return None
    return Refinement(name, factor=int(factor), offset=int(offset), root=str(symbol))


def _with_bounds(refinement: Refinement, roots: Mapping[str, tuple[int | None, int | None]]) -> Refinement:
    low, high = roots.get(refinement.root, (refinement.low, refinement.high))
    return Refinement(
        refinement.name, low, high, refinement.factor, refinement.offset, refinement.root, refinement.fixed
    )


def refined_dim(dim: Dim, refinement: Refinement) -> Any:
    """The dim within the refinement; None if that is more than a refinement, or leaves fewer than two sizes."""
    if refinement.fixed or hasattr(dim, "root"):
        return None
    low, high = int(dim.min), None if dim.max is int_oo else int(dim.max)
    if not refinement.root:
        low = max(low, refinement.low or 0)
        high = min((n for n in (high, refinement.high) if n is not None), default=None)
        return Dim(refinement.name, min=low, max=high) if high is None or low < high else None
    if not refinement.root.startswith("_"):
        return None  # Another dim of the user's.
    factor, offset = refinement.factor, refinement.offset
    # Bounds that torch.export assumes anyway do not count.
    least = [n for n in (refinement.low,) if n is not None and n > _ASSUMED]
    low = max(-((offset - low) // factor), *least, 0)
    tops = [n for n in (None if high is None else (high - offset) // factor, refinement.high) if n is not None]
    high = min(tops, default=None)
    if high is not None and low >= high:
        return None
    name = f"{refinement.name}{factor}" if factor > 1 else f"{refinement.name}_"
    result = factor * Dim(name, min=low, max=high) if factor > 1 else Dim(name, min=low, max=high)
    return result + offset if offset else result


def written(dim: Any) -> str:
    """A dim as it is written in Python."""
    root = getattr(dim, "root", None)
    if root is not None:
        symbol = sympy.Symbol("root")
        expr = dim.fn(symbol)
        factor, offset = int(expr.coeff(symbol, 1)), int(expr.coeff(symbol, 0))
        return _linear(factor, written(root), offset)
    bounds = f", min={dim.min}" if dim.min else ""
    bounds += "" if dim.max is int_oo else f", max={dim.max}"
    return f'Dim("{dim.__name__}"{bounds})'


def _linear(factor: int, root: str, offset: int) -> str:
    text = root if factor == 1 else f"{factor} * {root}"
    return f"{text} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else text


def named_dims(shapes: Any) -> dict[str, Any]:
    """The dims that a user's specs have, by name."""
    return {leaf.__name__: leaf for leaf in pytree.tree_leaves(shapes) if isinstance(leaf, Dim)}


def applied(shapes: Any, refinements: Iterable[Refinement]) -> tuple[Any, list[str]] | None:
    """Specs with refined dims, and the lines that say how; None if one of the refinements cannot be applied."""
    dims = named_dims(shapes)
    new: dict[str, Any] = {}
    lines = []
    for refinement in refinements:
        dim = dims.get(refinement.name)
        refined = None if dim is None else refined_dim(dim, refinement)
        if dim is None or refined is None:
            return None
        if (refined.min, refined.max, hasattr(refined, "root")) != (dim.min, dim.max, hasattr(dim, "root")):
            new[refinement.name] = refined
            lines.append(f"{refinement.name} = {written(refined)}")
    if not new or any(getattr(d, "root", None) is not None and d.root.__name__ in new for d in dims.values()):
        return None

    def replaced(leaf: Any) -> Any:
        return new.get(leaf.__name__, leaf) if isinstance(leaf, Dim) else leaf

    return pytree.tree_map(replaced, shapes), lines


def lines_to_write(shapes: Any, refinements: Sequence[Refinement]) -> list[str]:
    """The lines of Python by which the user would satisfy the requirements."""
    dims = named_dims(shapes)
    return [refinement.line(dims.get(refinement.name)) for refinement in refinements]
