"""The builder that lowering rules use.

A rule sees tensors with their extents (see :mod:`~disc.frontend.values`), and writes elementwise maps,
reductions, contractions and views through the methods here. They choose indexing maps, deal with
broadcasting and with PyTorch's types for intermediate results, and emit a ``disc_shape.require`` wherever
two extents must agree that are not the same value.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node
from torch_mlir import ir

from ..expressions import symbol
from ..torch_compat.symbols import torch_sympy
from . import dtypes, locations, scalar
from .regions import RegionBuilder, declare_symbol
from .registry import NotLowerable
from .rounding import ROUNDED, in_integers
from .scalar import Elem
from .symbols import LEAST, SymbolTable
from .values import (
    Extent,
    Number,
    ResultInfo,
    RuntimeNumber,
    Tensor,
    is_one,
    normalize_dim,
    tensor_type,
)

if TYPE_CHECKING:
    from .fallback import Fallbacks

Input = Tensor | Number | RuntimeNumber


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


# The predicates of conditions on extents.
_RELATIONS = {
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.Le: "le",
    sympy.Ge: "ge",
    sympy.Lt: "lt",
    sympy.Gt: "gt",
}


class Builder(RegionBuilder):
    """Builds the input IR at the end of ``main``, for the op in ``op_name``."""

    op_name: str = ""
    results: Sequence[ResultInfo] = ()
    # The node of torch.export's graph, if the op comes from one.
    node: Node | None = None
    # The operations that fall back to PyTorch; None if fallbacks are off.
    fallbacks: Fallbacks | None = None
    # The fake tensor (or number) torch.export computed for the op, or None; and its operands'.
    node_value: Any = None
    operand_values: Sequence[Any] = ()
    # The program's symbols; set by the importer.
    symbols: SymbolTable | None = None
    # The parts of extents' expressions in torch.export's graph; set by the importer.
    sizing: Collection[sympy.Basic] = ()
    # The number of random operations of the model so far.
    random_operations: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.valued: set[str] = set()
        """The symbols that have values somewhere."""
        self.zeros: set[str] = set()
        """The parameters of whole numbers, one at most for each channel, that are all 0 at present."""

    @property
    def out(self) -> ResultInfo:
        """The (first) result of the op being lowered, as torch sees it."""
        return self.results[0]

    def as_exported(self, dims: Sequence[Extent], result: int = 0) -> list[Extent]:
        """``dims`` of a result as torch.export wrote them where it did: static, or an expression that says more.

        The symbols' ranges are guards of the compiled program, so that nothing is assumed here.
        """
        value = self.node_value[result] if isinstance(self.node_value, (tuple, list)) else self.node_value
        if not isinstance(value, torch.Tensor) or value.dim() != len(dims):
            return list(dims)
        exported = []
        for dim, size in zip(dims, value.shape, strict=True):
            known = None if isinstance(dim, int) else self.extent_of(_expression(size))
            exported.append(dim if known is None else known)
        return exported

    def operand_value(self, index: int) -> Any:
        """The fake tensor (or number) that was operand ``index`` of the op when it was exported, if there was one."""
        return self.operand_values[index] if index < len(self.operand_values) else None

    # -- elementwise ---------------------------------------------------------------------------

    def elementwise(
        self,
        dtype: torch.dtype,
        inputs: Sequence[Input],
        fn: Callable[..., Elem],
        *,
        compute: torch.dtype | None = None,
        dims: Sequence[Extent] | None = None,
    ) -> Tensor:
        """``fn`` over the broadcast of ``inputs``, as a tensor of ``dtype``.

        ``fn`` gets elements of type ``compute``, by default the type PyTorch computes ``dtype`` in. Pass
        ``dims`` when no input has the full shape.
        """
        compute = compute or dtypes.opmath(dtype)
        return self.map(
            dtype,
            inputs,
            lambda *elems: fn(*(elem.to(compute) for elem in elems)),
            number_dtype=compute,
            dims=dims,
        )

    def map(
        self,
        dtype: torch.dtype,
        inputs: Sequence[Input],
        fn: Callable[..., Elem],
        *,
        number_dtype: torch.dtype | None = None,
        dims: Sequence[Extent] | None = None,
    ) -> Tensor:
        """Like :meth:`elementwise`, but ``fn`` gets each input in its own type."""
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        out = list(dims) if dims is not None else self.broadcast_dims([t.dims for t in tensors])
        operands = [t for t in tensors if t.splat is None]

        def body(*elems: Elem) -> Elem:
            given = iter(elems)
            args: list[Elem] = []
            for x in inputs:
                if isinstance(x, Tensor):
                    args.append(next(given) if x.splat is None else scalar.constant(x.splat, x.dtype))
                elif isinstance(x, RuntimeNumber):
                    args.append(x.emit())
                elif isinstance(x, ir.Value):
                    args.append(scalar.from_extent(x, torch.int64))
                else:
                    args.append(scalar.constant(x, number_dtype or dtype))
            return fn(*args).to(dtype)

        maps = [self.broadcast_map(t.dims, out) for t in operands]
        return self.generic(operands, maps, out, dtype, body)

    def broadcast_dims(self, shapes: Sequence[Sequence[Extent]]) -> list[Extent]:
        """The extents of the broadcast of ``shapes``; requires what broadcasting requires."""
        rank = max((len(shape) for shape in shapes), default=0)
        out: list[Extent] = [1] * rank
        for axis in range(1, rank + 1):
            candidates = [s[-axis] for s in shapes if len(s) >= axis and not is_one(s[-axis])]
            # A static extent is preferred; otherwise the first one that may be more than 1 represents all.
            candidates.sort(key=lambda extent: (not isinstance(extent, int), self.at_most_one(extent)))
            for other in candidates[1:]:
                first, message = candidates[0], "extents of broadcast operands differ"
                if other != first and self.at_most_one(other):
                    # 1 is repeated, also for none; 0 is not.
                    self.require_at_most(self.minimum(first, 1), other, message)
                else:
                    self.require_equal(first, other, message)
            if candidates:
                out[-axis] = candidates[0]
        return out

    def broadcast(self, x: Tensor, dims: Sequence[Extent], into: Sequence[int] | None = None) -> Tensor:
        """Repeats ``x`` to extents ``dims``; its dim ``j`` becomes dim ``into[j]`` (default: the last ones)."""
        into = tuple(into) if into is not None else tuple(range(len(dims) - x.rank, len(dims)))
        wanted = [dims[place] for place in into]
        if any(
            not is_one(have) and self.repeats(have, want) and not self.at_most_one(want)
            for have, want in zip(x.dims, wanted, strict=True)
        ):
            # A view only repeats dims whose type is 1.
            x = self.map(x.dtype, [x], lambda element: element, dims=self.broadcast_dims([wanted, x.dims]))
        return super().broadcast(x, dims, into)

    def broadcast_map(self, dims: Sequence[Extent], out: Sequence[Extent]) -> ir.AffineMap:
        """The map from a domain of extents ``out`` to an operand that broadcasts to it."""
        offset = len(out) - len(dims)
        exprs = [
            ir.AffineConstantExpr.get(0) if self.repeats(dim, out[offset + i]) else ir.AffineDimExpr.get(offset + i)
            for i, dim in enumerate(dims)
        ]
        return ir.AffineMap.get(len(out), 0, exprs)

    # -- reductions ----------------------------------------------------------------------------

    def reduce(
        self,
        inputs: Sequence[Tensor],
        axes: Sequence[int],
        dtype: torch.dtype,
        neutral: Number,
        fn: Callable[..., Elem],
        *,
        keepdim: bool = False,
    ) -> Tensor:
        """Folds ``fn(acc, *elements)`` over ``axes``; ``acc`` has type ``dtype`` and starts ``neutral``.

        The first input has the full shape; the others broadcast to it, or lack the reduced axes when
        they are themselves results of reductions over them (see :meth:`along`).
        """
        full = inputs[0]
        reduced = sorted({normalize_dim(axis, full.rank) for axis in axes})
        kept = [i for i in range(full.rank) if i not in reduced]
        if keepdim:
            out_dims: list[Extent] = [1 if i in reduced else d for i, d in enumerate(full.dims)]
            exprs = [
                ir.AffineConstantExpr.get(0) if i in reduced else ir.AffineDimExpr.get(i) for i in range(full.rank)
            ]
        else:
            out_dims = [full.dims[i] for i in kept]
            exprs = [ir.AffineDimExpr.get(i) for i in kept]
        maps = [self._reduction_map(x, full, kept) for x in inputs]
        return self.generic(
            inputs,
            maps,
            out_dims,
            dtype,
            fn,
            domain=full.dims,
            out_map=ir.AffineMap.get(full.rank, 0, exprs),
            reduced=reduced,
            init=neutral,
        )

    def _reduction_map(self, x: Tensor, full: Tensor, kept: Sequence[int]) -> ir.AffineMap:
        if x.rank == len(kept) and x.rank != full.rank:
            return ir.AffineMap.get(full.rank, 0, [ir.AffineDimExpr.get(i) for i in kept])
        return self.broadcast_map(x.dims, full.dims)

    def along(
        self,
        full: Tensor,
        axes: Sequence[int],
        dtype: torch.dtype,
        inputs: Sequence[Input],
        fn: Callable[..., Elem],
    ) -> Tensor:
        """Elementwise over ``full`` and inputs that lack ``axes`` (results of reductions over them).

        Inputs of the full rank broadcast as usual. ``fn`` gets each input in its own type.
        """
        reduced = {normalize_dim(axis, full.rank) for axis in axes}
        kept = [i for i in range(full.rank) if i not in reduced]
        operands = [full, *(x for x in inputs if isinstance(x, Tensor))]
        maps = [
            self._reduction_map(x, full, kept)
            if x.rank == len(kept) and reduced
            else self.broadcast_map(x.dims, full.dims)
            for x in operands
        ]
        maps[0] = self.identity(full.rank)
        return self.generic(operands, maps, full.dims, dtype, lambda *elems: fn(*elems).to(dtype))

    # -- contractions --------------------------------------------------------------------------

    def contract(
        self,
        lhs: Tensor,
        rhs: Tensor,
        lhs_loops: Sequence[int | None],
        rhs_loops: Sequence[int | None],
        domain: Sequence[Extent],
        *,
        sums: torch.dtype | None = None,
    ) -> Tensor:
        """Sum of products over the last loop of ``domain``, in ``sums``; without that half types are summed in f32.

        ``*_loops`` name the loop each operand dim runs along; None pins a size-1 dim that broadcasts.
        """
        acc_dtype = sums or dtypes.opmath(lhs.dtype)
        maps = [self.loop_map(loops, len(domain)) for loops in (lhs_loops, rhs_loops)]
        last = len(domain) - 1
        return self.generic(
            [lhs, rhs],
            maps,
            domain[:-1],
            acc_dtype,
            lambda acc, a, b: acc + a.to(acc_dtype) * b.to(acc_dtype),
            domain=domain,
            out_map=self.loop_map(list(range(last)), len(domain)),
            reduced=[last],
            init=0,
        )

    # -- creation ------------------------------------------------------------------------------

    def full(self, dims: Sequence[Extent], value: Number, dtype: torch.dtype) -> Tensor:
        """A tensor filled with one value."""
        if dtypes.is_complex(dtype):
            return self._full_complex(dims, complex(value), dtype)
        if dtype == torch.bool:
            value = bool(value)
        elif not dtypes.is_float(dtype):
            value = int(value)
        empty = self.empty(dims, dtype)
        filled = self._fill(empty, scalar.constant(value, dtype).value)
        return Tensor(filled, tuple(dims), dtype, splat=value)

    def _full_complex(self, dims: Sequence[Extent], value: complex, dtype: torch.dtype) -> Tensor:
        part, last = dtypes.part(dtype), len(dims)

        def body() -> Elem:
            real = scalar.loop_index(last).eq(0)
            return scalar.select(real, scalar.constant(value.real, part), value.imag)

        return self.as_complex(self.generic([], [], [*dims, 2], part, body))

    def as_pairs(self, x: Tensor) -> Tensor:
        """A tensor of complex numbers as what it is in the IR: real numbers with a last dim of 2."""
        return Tensor(x.value, (*x.dims, 2), dtypes.part(x.dtype))

    def as_complex(self, x: Tensor) -> Tensor:
        """The reverse."""
        return Tensor(x.value, x.dims[:-1], torch.complex64 if x.dtype == torch.float32 else torch.complex128)

    def empty(self, dims: Sequence[Extent], dtype: torch.dtype) -> ir.Value:
        """An uninitialised tensor, which the op that receives it will write."""
        # Raises an error for a number that torch.export does not use for extents.
        dynamic = [self.index(dim) for dim in dims if not isinstance(dim, int)]
        return ir.Operation.create("tensor.empty", [tensor_type(dims, dtype)], dynamic).result

    def _fill(self, into: ir.Value, value: ir.Value) -> ir.Value:
        fill = ir.Operation.create(
            "linalg.fill",
            [into.type],
            [value, into],
            attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])},
            regions=1,
        )
        block = fill.regions[0].blocks.append(value.type, value.type)
        with ir.InsertionPoint(block):
            ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
        return fill.result

    # -- linalg.generic ------------------------------------------------------------------------

    def generic(
        self,
        inputs: Sequence[Tensor],
        maps: Sequence[ir.AffineMap],
        out_dims: Sequence[Extent],
        dtype: torch.dtype,
        fn: Callable[..., Elem],
        *,
        domain: Sequence[Extent] | None = None,
        out_map: ir.AffineMap | None = None,
        reduced: Sequence[int] = (),
        init: Number | None = None,
    ) -> Tensor:
        """One ``linalg.generic`` with a single result; everything above ends here.

        ``fn`` gets the input elements, and before them the accumulator when ``init`` is given.
        """
        if dtypes.is_complex(dtype) or any(dtypes.is_complex(x.dtype) for x in inputs):
            raise NotLowerable("complex numbers")
        loops = len(domain) if domain is not None else len(out_dims)
        out_map = out_map or self.identity(loops)
        out = self.empty(out_dims, dtype)
        if init is not None:
            out = self._fill(out, scalar.constant(init, dtype).value)
        kinds = ["reduction" if i in reduced else "parallel" for i in range(loops)]
        op = ir.Operation.create(
            "linalg.generic",
            [out.type],
            [*(x.value for x in inputs), out],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, out_map)]),
                "iterator_types": ir.ArrayAttr.get(
                    [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
            },
            regions=1,
        )
        element_types = [x.value.type.element_type for x in inputs]
        block = op.regions[0].blocks.append(*element_types, out.type.element_type)
        with ir.InsertionPoint(block), self.inside_region():
            elems = [Elem(a, x.dtype) for a, x in zip(block.arguments, inputs, strict=False)]
            if init is not None:
                elems.insert(0, Elem(block.arguments[len(inputs)], dtype))
            ir.Operation.create("linalg.yield", operands=[fn(*elems).value])
        return Tensor(op.result, tuple(out_dims), dtype)

    def identity(self, rank: int) -> ir.AffineMap:
        """The identity map of ``rank`` loops."""
        return ir.AffineMap.get_identity(rank)

    def loop_map(self, loops: Sequence[int | None], count: int) -> ir.AffineMap:
        """The map that picks ``loops`` out of ``count``; None is the constant 0."""
        exprs = [ir.AffineConstantExpr.get(0) if loop is None else ir.AffineDimExpr.get(loop) for loop in loops]
        return ir.AffineMap.get(count, 0, exprs)

    # -- extents that depend on data ---------------------------------------------------------------

    def is_size(self, value: torch.SymInt) -> bool:
        """Whether a computed number can be an extent: export knows that it is not negative."""
        expr = value.node.expr
        return self.extent_of(expr) is not None or (self.symbols is not None and self.symbols.name_of(expr) is not None)

    def is_natural(self, expr: sympy.Expr) -> bool:
        """Whether a number is known not to be negative, or depends only on the inputs' extents.

        Conditions that torch.export needed on the inputs' extents are guards of the program.
        """
        assert self.symbols is not None
        computed = any(self.symbols.is_computed(symbol) for symbol in expr.free_symbols)
        return not computed or bool(self.bounds(expr).lower >= 0)

    def bind(self, count: Tensor, size: Any = None) -> Extent:
        """The value of ``count``, an i64 tensor without dims, as an extent of what follows.

        ``size`` is what torch.export calls it, an int or SymInt of the node's fake result, or None where no extent that
        export knows has this value. It is read when the model runs, and checked against what export knows of it.
        """
        expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(-1 if size is None else size)
        symbols = self.symbols
        assert symbols is not None
        # A root of the inputs' extents, n of 2 * n, has its value from them.
        unset = expr.is_Symbol and expr not in self.symbol_values and not symbols.is_of_extents(expr)
        known_name = symbols.name_of(expr) if unset else None
        # Export may have replaced the symbol by something that it equals.
        fresh = known_name is None
        signed = size is not None and fresh and not self.bounds(expr).lower >= 0
        name = self.symbol_for(known_name, expr, low=LEAST if signed else 0)
        bound: Extent = ir.Operation.create(
            "disc_shape.bind",
            [ir.IndexType.get()],
            [count.value],
            attributes={
                "symbol": ir.FlatSymbolRefAttr.get(name),
                "what": ir.StringAttr.get(locations.operation()),
            },
        ).result
        self.symbolic[bound] = symbol(name)
        if not fresh:
            self.symbol_values[expr] = bound
            return bound
        known = None if size is None else self.extent_of(expr)
        if known is None:
            return bound
        self.require_equal(bound, known, f"{locations.operation()}: the number of results is not {expr}")
        return known

    def sized(self, number: RuntimeNumber, value: Any) -> Extent | RuntimeNumber:
        """A computed number of the model as an extent, if an extent is computed from it.

        Arithmetic in floating point, which has no symbolic form, is computed as a tensor, and its result is a symbol.
        """
        expr = value.node.expr if isinstance(value, torch.SymInt) else None
        if expr is None or expr not in self.sizing or dtypes.is_float(number.dtype):
            return number
        known = self.extent_of(expr)
        if known is not None:
            return known
        bound = self.bind(self.map(torch.int64, [number], lambda x: x, dims=[]), value)
        self.symbol_values[expr] = bound
        return bound

    def symbol_for(self, name: str | None, expr: sympy.Expr | None = None, *, low: int = 0) -> str:
        """A symbol that has no value yet: ``name``, or if that has one in another region, another with its range."""
        assert self.symbols is not None
        if name is None or name in self.valued:
            bounds = None if expr is None or name is None else self.symbols.get(expr)
            name = self.symbols.add(name or "count", bounds, low=low)
            low, high = (low, None) if bounds is None else (bounds.min, bounds.max)
            declare_symbol(self.module_block, name, low, high)
        self.valued.add(name)
        return name

    def symbol_like(self, name: str) -> str:
        """A symbol that has no value yet, with the range of another one."""
        assert self.symbols is not None
        like = next((symbol for symbol in self.symbols if symbol.name == name), None)
        new = self.symbols.add(name, like)
        declare_symbol(self.module_block, new, *((0, None) if like is None else (like.min, like.max)))
        self.valued.add(new)
        return new

    def require_elements(self, extents: Sequence[Extent]) -> None:
        """Requires that none of the dims that an extremum is taken over is empty."""
        for extent in extents:
            self.require_at_most(1, extent, f"{locations.operation()}: no element to choose from: the reduced dim is 0")

    def require_condition(self, condition: sympy.Basic, symbols: SymbolTable) -> None:
        """Requires what ``torch._check`` demands of computed numbers, where it is a relation of two extents."""
        if isinstance(condition, sympy.And):
            for part in condition.args:
                self.require_condition(part, symbols)
        is_relation = type(condition) in _RELATIONS and not isinstance(condition, sympy.Ne)
        if not is_relation or not any(symbols.is_computed(s) for s in condition.free_symbols):
            return
        self.require_guard(condition, f"torch._check({symbols.condition(condition)})")

    def require_guard(self, condition: sympy.Basic, message: str) -> bool:
        """Requires a condition on extents; returns whether it can be expressed."""
        condition = _whole(condition)
        if condition in (sympy.true, sympy.false) or self._is_unbounded(condition):
            return condition != sympy.false
        kind = _RELATIONS.get(type(condition))
        if kind in ("eq", "le", "ge"):
            lhs, rhs = (self.extent_of(side) for side in condition.args)
            if lhs is None or rhs is None:
                return False
            if kind == "eq":
                self.require_equal(lhs, rhs, message)
            else:
                self.require_at_most(*((lhs, rhs) if kind == "le" else (rhs, lhs)), message)
            return True
        margin = self._margin(condition)
        if margin is not None:
            self.require_at_most(0, margin, message)
        return margin is not None

    @staticmethod
    def _is_unbounded(condition: sympy.Basic) -> bool:
        """Whether a condition only says that an extent is less than the value for no bound."""
        kind = _RELATIONS.get(type(condition))
        if kind not in ("lt", "le", "gt", "ge"):
            return False
        small, large = condition.args if kind in ("lt", "le") else reversed(condition.args)
        return bool((large - small).as_coefficients_dict().get(sympy.S.One, 0) >= 2**60)

    def _margin(self, condition: sympy.Basic) -> Extent | None:
        """A number that is 0 or more where a condition holds, and negative elsewhere; None if there is no such."""
        if isinstance(condition, sympy.Not):
            return self._margin(sympy.Not(condition.args[0])) if condition.args[0].is_Relational else None
        if isinstance(condition, (sympy.And, sympy.Or)):
            parts = [self._margin(part) for part in condition.args]
            known = [part for part in parts if part is not None]
            fold = self.minimum if isinstance(condition, sympy.And) else self.maximum
            return functools.reduce(fold, known) if len(known) == len(parts) else None
        kind = _RELATIONS.get(type(condition))
        sides = [self.extent_of(side) for side in condition.args] if kind is not None else []
        if kind is None or any(side is None for side in sides):
            return None
        lhs, rhs = (side for side in sides if side is not None)
        if kind in ("le", "lt"):
            return self.sub(self.sub(rhs, lhs), int(kind == "lt"))
        if kind in ("ge", "gt"):
            return self.sub(self.sub(lhs, rhs), int(kind == "gt"))
        distance = self.maximum(self.sub(lhs, rhs), self.sub(rhs, lhs))
        return self.sub(distance, 1) if kind == "ne" else self.sub(0, distance)

    # -- native functions ------------------------------------------------------------------------

    def call(
        self,
        function: str,
        inputs: Sequence[Tensor],
        results: Sequence[tuple[Sequence[Extent], torch.dtype]],
        *,
        config: Sequence[int | float | Extent] = (),
        tasks: Extent = 1,
        scratch: Extent = 0,
        in_place: bool = False,
    ) -> list[Tensor]:
        """Calls ``disc_fn_<function>`` of the runtime, which documents its operands and ``config``.

        ``results`` are extents and dtype of each result. A float in ``config`` is passed as the bits of a double. The
        function may be called for ranges of its ``tasks``; each worker has its own ``scratch`` bytes. With
        ``in_place`` the first result is the first input with some elements changed, and may share its memory: then the
        pointers are equal, and the function changes only those elements.
        """
        index = ir.IndexType.get()

        def number(value: int | float | Extent) -> ir.Value:
            if isinstance(value, float):
                value = struct.unpack("<q", struct.pack("<d", value))[0]
            return self.index(int(value) if isinstance(value, bool) else value)

        types = [tensor_type(dims, dtype) for dims, dtype in results]
        if in_place:
            # Extents that the model's code fixes are numbers, but not in the type of an input.
            types[0] = inputs[0].value.type
        sizes = [
            self.index(dim)
            for (dims, _), type_ in zip(results, types, strict=True)
            for i, dim in enumerate(dims)
            if type_.is_dynamic_dim(i)
        ]
        numbers = [number(value) for value in config]
        assert all(value.type == index for value in (*sizes, *numbers))
        dtypes_ = [*(x.dtype for x in inputs), *(dtype for _, dtype in results)]
        attributes: dict[str, ir.Attribute] = {
            "function": ir.StringAttr.get(function),
            "what": ir.StringAttr.get(locations.operation()),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(sizes), len(numbers), 1, 1]),
        }
        unsigned = [i for i, dtype in enumerate(dtypes_) if dtype in dtypes.UNSIGNED]
        if unsigned:
            attributes["unsigned_operands"] = ir.DenseI64ArrayAttr.get(unsigned)
        if in_place:
            attributes["in_place"] = ir.UnitAttr.get()
        op = ir.Operation.create(
            "disc_tensor.call",
            types,
            [*(x.value for x in inputs), *sizes, *numbers, self.index(tasks), self.index(scratch)],
            attributes=attributes,
        )
        return [Tensor(value, tuple(dims), dtype) for value, (dims, dtype) in zip(op.results, results, strict=True)]

    # -- captures ------------------------------------------------------------------------------

    def extract(self, source: Tensor, index: Sequence[Elem | ir.Value]) -> Elem:
        """In a body: the element of ``source`` at ``index``."""
        at = [scalar.to_index(i) if isinstance(i, Elem) else i for i in index]
        if dtypes.is_complex(source.dtype):
            raise NotLowerable("complex numbers")
        element = source.value.type.element_type
        op = ir.Operation.create("tensor.extract", [element], [source.value, *at])
        return Elem(op.result, source.dtype)

    def checked_index(self, index: Elem, extent: Extent, *, wrap: bool) -> Elem:
        """In a body: ``index``, which must be in [0, extent), else the call fails with an IndexError.

        ``wrap`` lets negative indices count from the end.
        """
        index = index.to(torch.int64)
        size = scalar.from_extent(extent, torch.int64)
        attributes: dict[str, ir.Attribute] = {"what": ir.StringAttr.get(locations.operation())}
        if wrap:
            attributes["wrap"] = ir.UnitAttr.get()
        op = ir.Operation.create(
            "disc_tensor.check_index", [index.value.type], [index.value, size.value], attributes=attributes
        )
        return Elem(op.result, torch.int64)


def _whole(condition: Any) -> Any:
    """A relation of a whole number, which is compared as a float, with a constant as one of whole numbers."""
    if not (isinstance(condition, sympy.core.relational.Relational) and condition.rhs.is_number):
        return condition
    lhs, bound = condition.lhs, condition.rhs
    lhs = lhs.replace(lambda x: isinstance(x, ROUNDED), lambda x: in_integers(x) or x)
    condition = condition.func(lhs, bound)
    if not isinstance(condition, sympy.core.relational.Relational):
        return condition
    whole = lhs.replace(torch_sympy.ToFloat, lambda x: x)
    if whole == lhs or not whole.is_integer:
        return condition
    rounded = {sympy.Le: sympy.floor, sympy.Gt: sympy.floor, sympy.Ge: sympy.ceiling, sympy.Lt: sympy.ceiling}
    if type(condition) in rounded:
        return type(condition)(whole, rounded[type(condition)](bound))
    if not float(bound).is_integer():
        return sympy.S.false if isinstance(condition, sympy.Eq) else sympy.S.true
    return type(condition)(whole, sympy.Integer(int(bound)))
