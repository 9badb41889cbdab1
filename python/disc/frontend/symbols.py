"""Shape symbols: names, ranges and the expressions of arguments' extents.

They are taken from the ExportedProgram (range constraints and the placeholders' fake tensors), and the
user's own names from ``dynamic_shapes``. torch-mlir's symbolic-shape ops know fewer expressions.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from ..errors import ArgumentValueError, SizeError
from ..expressions import Expression, number, operation, symbol
from ..torch_compat import pytree
from ..torch_compat.symbols import ValueRanges, int_oo, torch_sympy
from .dim_hints import name_of
from .readable import readable
from .rounding import ROUNDED, in_integers

LEAST = -(2**62)
"""The least value of a symbol: sums of two are still numbers of 64 bits."""


@dataclass(frozen=True)
class Symbol:
    """One shape symbol of a program."""

    name: str
    min: int
    max: int | None
    """None when there is no upper bound."""
    data_dependent: bool = False
    """Whether a computed value defines it, instead of an input's shape."""

    @property
    def range(self) -> ValueRanges[sympy.Expr]:
        """The range as sympy represents it."""
        return ValueRanges(self.min, int_oo if self.max is None else self.max)


class SymbolTable:
    """The symbols of a program, under the user's names."""

    def __init__(
        self,
        inputs: Sequence[tuple[str, Any]],
        range_constraints: Mapping[sympy.Symbol, Any],
        dynamic_shapes: Sequence[Any],
        unbacked: Iterable[sympy.Symbol] = (),
        sizing: Collection[sympy.Basic] = (),
    ) -> None:
        """``inputs`` are names and fake tensors, or numbers; ``dynamic_shapes`` has one spec for each of them.

        ``unbacked`` are the symbols whose values the model computes. Those that may be negative are symbols of the
        program only if they are in ``sizing``: some extent is computed from them.
        """
        names: dict[sympy.Symbol, str] = {}
        fallback: dict[sympy.Symbol, str] = {}
        least: dict[sympy.Symbol, int] = {}
        extents: set[sympy.Symbol] = set()
        for (name, fake), spec in zip(inputs, dynamic_shapes, strict=True):
            if isinstance(fake, torch.SymInt):
                for symbol in fake.node.expr.free_symbols:
                    fallback.setdefault(symbol, name)
                    names.setdefault(symbol, name)
                continue
            for dim, size in enumerate(fake.shape):
                if not isinstance(size, torch.SymInt):
                    continue
                expr = size.node.expr
                given = name_of(_entry(spec, dim))
                free = sorted(expr.free_symbols, key=str)
                extents.update(free)
                if given and len(free) == 1:
                    names.setdefault(free[0], given)
                    if not expr.is_Symbol:
                        least[free[0]] = _least(spec, dim)
                for symbol in free:
                    fallback.setdefault(symbol, f"{name}_{dim}")
        self._of_extents = frozenset(extents)
        self._table: dict[sympy.Symbol, Symbol] = {}
        self._taken: set[str] = set()
        for symbol in fallback:
            unique = _unique(names.get(symbol, fallback[symbol]), self._taken)
            low, high = _bounds(range_constraints.get(symbol), signed=symbol not in extents)
            # For a Dim that only occurs in multiples, torch.export assumes that 0 and 1 are impossible.
            low = min(low, least.get(symbol, low)) if low == 2 else low
            self._table[symbol] = Symbol(unique, low, high)
        for symbol in unbacked:
            bounds = range_constraints.get(symbol)
            if symbol in self._table or not (_is_size(bounds) or symbol in sizing):
                continue
            low, high = _bounds(bounds, signed=not _is_size(bounds))
            self._table[symbol] = Symbol(_unique(str(symbol), self._taken), low, high, data_dependent=True)

    def name_of(self, symbol: sympy.Symbol) -> str | None:
        """Our name of torch's symbol; None if it is not an extent."""
        known = self._table.get(symbol)
        return known.name if known else None

    def is_computed(self, symbol: sympy.Symbol) -> bool:
        """Whether the model computes the symbol's value."""
        known = self._table.get(symbol)
        return known is not None and known.data_dependent

    def is_of_extents(self, symbol: sympy.Symbol) -> bool:
        """Whether the extents of the inputs determine the symbol's value."""
        return symbol in self._of_extents

    def condition(self, condition: sympy.Basic) -> str:
        """A relation as text that follows "needs" in messages."""
        return readable(self._condition(condition.xreplace({s: sympy.Symbol(k.name) for s, k in self._table.items()})))

    @staticmethod
    def _condition(condition: sympy.Basic) -> str:
        if not isinstance(condition, (sympy.Eq, sympy.Ne)):
            return str(condition)
        lhs, rhs = condition.args
        if isinstance(lhs, (torch_sympy.Mod, torch_sympy.PythonMod)) and rhs == 0:
            lhs, rhs = _without_common_sizes(*lhs.args)
            return f"{lhs} {'to be' if isinstance(condition, sympy.Eq) else 'not to be'} a multiple of {rhs}"
        lhs, rhs = _without_common_sizes(lhs, rhs)
        return f"{lhs} {'==' if isinstance(condition, sympy.Eq) else '!='} {rhs}"

    def get(self, symbol: sympy.Symbol) -> Symbol | None:
        """The symbol for torch's symbol; None if it is not an extent."""
        return self._table.get(symbol)

    def add(self, name: str, like: Symbol | None = None, *, low: int = 0) -> str:
        """Adds a symbol that the model computes; returns its name, which is ``name`` or similar."""
        unique = _unique(name, self._taken)
        low, high = (low, None) if like is None else (like.min, like.max)
        self._table[sympy.Symbol(unique, integer=True)] = Symbol(unique, low, high, data_dependent=True)
        return unique

    def __iter__(self) -> Any:
        return iter(self._table.values())

    def items(self) -> Any:
        """Pairs of torch's symbol and ours."""
        return self._table.items()

    def extent(self, size: int | torch.SymInt) -> Expression:
        """An extent as an expression over our symbols."""
        return number(size) if isinstance(size, int) else self.expression(size.node.expr)

    def text(self, size: torch.SymInt) -> str:
        """A dynamic extent as users see it: the name of a symbol, or an expression."""
        expression = self.extent(size)
        return expression.name or str(expression)

    def expression(self, expr: sympy.Expr) -> Expression:
        """A sympy expression over torch's symbols as one over ours."""
        if expr.is_Integer:
            return number(int(expr))
        if expr.is_Symbol:
            if expr not in self._table:
                raise SizeError("import", f"the size {expr} cannot be computed from the sizes of the inputs")
            return symbol(self._table[expr].name)
        if isinstance(expr, ROUNDED):
            whole = in_integers(expr)
            if whole is None:
                raise SizeError("import", f"the size {expr} is not an expression that DISC supports")
            return self.expression(whole)
        args = [self.expression(arg) for arg in expr.args]
        if isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and expr.args[1] > 0:
            return _folded("*", [args[0]] * int(expr.args[1]))
        for kinds, kind in _KINDS.items():
            if isinstance(expr, kinds):
                return _folded(kind, args)
        raise SizeError("import", f"the size {expr} is not an expression that DISC supports")


_KINDS: Mapping[tuple[type, ...], str] = {
    (sympy.Add,): "+",
    (sympy.Mul,): "*",
    (torch_sympy.FloorDiv, torch_sympy.CleanDiv): "floordiv",
    (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod): "mod",
    (torch_sympy.Min, sympy.Min): "min",
    (torch_sympy.Max, sympy.Max): "max",
}


def _folded(kind: str, args: Sequence[Expression]) -> Expression:
    """A binary operation on any number of operands, from the left."""
    return functools.reduce(lambda lhs, rhs: operation(kind, lhs, rhs), args)


def _unique(name: str, taken: set[str]) -> str:
    base = re.sub(r"\W", "_", name)
    if not base or base[0].isdigit():
        base = "_" + base
    # Words of the expression grammar cannot name a symbol.
    if base in ("floordiv", "ceildiv", "mod", "min", "max"):
        base += "_"
    candidate, count = base, 1
    while candidate in taken:
        candidate, count = f"{base}_{count}", count + 1
    taken.add(candidate)
    return candidate


def _is_size(constraint: Any) -> bool:
    """Whether a number can be an extent: it is never negative."""
    return constraint is not None and constraint.lower.is_Integer and int(constraint.lower) >= 0


def _bounds(constraint: Any, *, signed: bool = False) -> tuple[int, int | None]:
    least = LEAST if signed else 0
    if constraint is None:
        return least, None
    low = int(constraint.lower) if constraint.lower.is_Integer else least
    # torch.export writes "unbounded" as an infinity, or as the largest index less one.
    high = int(constraint.upper) if constraint.upper.is_Integer else None
    return max(low, least), high if high is not None and high < 2**62 else None


def _entry(spec: Any, dim: int) -> Any:
    """The entry of ``dynamic_shapes`` for one dim."""
    if isinstance(spec, Mapping):
        return spec.get(dim)
    if isinstance(spec, (list, tuple)):
        return spec[dim] if dim < len(spec) else None
    return None


def _least(spec: Any, dim: int) -> int:
    """The least value of the root of a derived Dim."""
    return int(getattr(getattr(_entry(spec, dim), "root", None), "min", 0))


def parameter_names(module: torch.nn.Module) -> list[str]:
    """The names of the parameters of a module's ``forward``, a variadic one as ``*args``."""
    parameters = inspect.signature(module.forward).parameters.values()
    return [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters]


def _without_common_sizes(lhs: sympy.Expr, rhs: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Both without the sizes that are factors of both."""
    for factor in sympy.Mul.make_args(rhs):
        rest = sympy.cancel(lhs / factor) if factor.is_Symbol and lhs != factor else lhs
        if rest != lhs and sympy.fraction(rest)[1] == 1:
            lhs, rhs = rest, rhs / factor
    return lhs, rhs


def flatten_dynamic_shapes(
    dynamic_shapes: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
) -> list[Any]:
    """One spec for each leaf of ``(args, kwargs)``, in pytree order; None without an entry.

    ``names`` are those of the module's parameters, a variadic one written ``*args``: ``dynamic_shapes`` may be
    keyed by them, and treats a variadic parameter as one tuple.
    """
    values = [*args, *kwargs.values()]
    if dynamic_shapes is None:
        specs: list[Any] = [None] * len(values)
    elif isinstance(dynamic_shapes, Mapping):
        specs = _positional_by_name(dynamic_shapes, len(args), names)
        specs += [dynamic_shapes.get(key) for key in kwargs]
    else:
        specs = _positional_in_order(list(dynamic_shapes), len(values))
    flat: list[Any] = []
    for value, spec in zip(values, specs, strict=True):
        _flatten_spec(value, spec, flat)
    return flat


def _positional_by_name(shapes: Mapping[str, Any], count: int, names: Sequence[str]) -> list[Any]:
    specs: list[Any] = []
    for name in names:
        if name.startswith("*"):
            rest = list(shapes.get(name[1:]) or ())
            specs += rest + [None] * (count - len(specs) - len(rest))
        elif len(specs) < count:
            specs.append(shapes.get(name))
    return (specs + [None] * count)[:count]


def _positional_in_order(shapes: list[Any], count: int) -> list[Any]:
    for i, spec in enumerate(shapes):
        # One tuple for all of a variadic parameter's values.
        variadic = count - (len(shapes) - 1)
        if variadic != 1 and isinstance(spec, (list, tuple)) and len(spec) == variadic:
            return [*shapes[:i], *spec, *shapes[i + 1 :]]
    if len(shapes) == 1 and count == 1 and isinstance(shapes[0], (list, tuple)) and len(shapes[0]) == 1:
        inner = shapes[0][0]
        if isinstance(inner, (Mapping, list, tuple)):
            return [inner]
    return (shapes + [None] * count)[:count]


def _flatten_spec(value: Any, spec: Any, into: list[Any]) -> None:
    """Walks ``value`` and ``spec`` together; the leaves of a value are those of pytree."""
    if not pytree.tree_leaves(value) or isinstance(value, torch.Tensor):
        if isinstance(value, torch.Tensor):
            for dim in spec if isinstance(spec, Mapping) else ():
                if not isinstance(dim, int) or not 0 <= dim < value.dim():
                    raise ArgumentValueError(
                        f"dynamic_shapes: an input of shape {list(value.shape)} has no dim {dim!r}; expected a number"
                        f" from 0 to {value.dim() - 1}"
                    )
            into.append(spec)
        return
    children, treespec = pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
    if treespec.is_leaf():
        into.append(spec)
        return
    if isinstance(value, Mapping):
        keys = list(treespec.context)
        specs = [spec.get(key) if isinstance(spec, Mapping) else None for key in keys]
    elif isinstance(spec, (list, tuple)) and len(spec) == len(children):
        specs = list(spec)
    else:
        specs = [None] * len(children)
    for child, child_spec in zip(children, specs, strict=True):
        _flatten_spec(child, child_spec, into)


def sizing_numbers(graph: torch.fx.Graph) -> set[sympy.Basic]:
    """The parts of extents' expressions in a graph: subexpressions and symbols."""
    found: set[sympy.Basic] = set()
    for node in graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                for size in value.shape:
                    if isinstance(size, torch.SymInt) and size.node.expr not in found:
                        found.update(sympy.preorder_traversal(size.node.expr))
    return found
