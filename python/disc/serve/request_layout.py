"""Which dims of a model's inputs and results belong to a request, derived from their symbolic sizes and a policy.

A dim plays one of these parts:

- ``along``: requests are joined along it.
- ``sequences``: so are they, one element for each sequence (:class:`~disc.serve.Ragged` with offsets).
- ``offsets``: the same, one element more than there are sequences.
- ``padded``: it is padded to the largest of the requests.
- ``equal``: only requests in which it is equal are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ArgumentValueError
from ..expressions import Expression
from ..interface import Interface, SymbolSpec, TensorSpec
from .policies import Padded, Policy, Ragged

ALONG, SEQUENCES, OFFSETS, PADDED, EQUAL = "along", "sequences", "offsets", "padded", "equal"
_JOINED = (ALONG, SEQUENCES, OFFSETS)


@dataclass(frozen=True)
class TensorLayout:
    """The parts that the dims of an input or result play."""

    spec: TensorSpec
    dims: tuple[Expression, ...]
    parts: tuple[str, ...]

    @property
    def joined(self) -> int | None:
        """The dim along which requests are joined; None if they share the tensor."""
        return next((axis for axis, part in enumerate(self.parts) if part in _JOINED), None)

    @property
    def part(self) -> str | None:
        """The part of the joined dim; None without one."""
        return None if self.joined is None else self.parts[self.joined]

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape where the symbols have these values."""
        return tuple(dim.evaluate(sizes) for dim in self.dims)


class RequestLayout:
    """The layouts of all inputs and results.

    Raises:
        ArgumentValueError: the policy names inputs or sizes that the model does not have, or requests cannot be joined
            and separated along the size: a result without it, a size of a result that is computed from data.
    """

    def __init__(self, interface: Interface, policy: Policy) -> None:
        self.policy = policy
        self.symbols: dict[str, SymbolSpec] = {symbol.name: symbol for symbol in interface.symbols}
        self._given = list(
            dict.fromkeys(name for spec in interface.inputs for dim in spec.expressions() for name in dim.symbols())
        )
        self._check_names(interface)
        self._offsets_size = self._find_offsets_size(interface)
        self._joined = {policy.along, *(self._offsets_size.symbols() if self._offsets_size is not None else ())}
        self.inputs = [self._layout(spec, "input") for spec in interface.inputs]
        self.outputs = [self._layout(spec, "result") for spec in interface.outputs]
        if not any(layout.part == ALONG for layout in self.inputs):
            raise ArgumentValueError(f"along: no input has a dim that is exactly {policy.along!r}")
        for layout in self.outputs:
            self._check_separable(layout)
        self.padded = policy.dims if isinstance(policy, Padded) else ()
        self.pad_values = dict(policy.values) if isinstance(policy, Padded) else {}
        mask = policy.mask if isinstance(policy, Padded) else None
        offsets = policy.offsets if isinstance(policy, Ragged) else ()
        names = [spec.name for spec in interface.inputs]
        self.optional: tuple[str, ...] = (*((mask,) if mask else ()), *(name for name in offsets if name in names))
        """The inputs that a request may lack."""

    def sizes(self, shapes: Sequence[Sequence[int] | None]) -> tuple[dict[str, int], bool]:
        """The values of the symbols for inputs of these shapes, and whether the model accepts the shapes.

        A shape is None for an input that is missing. Shapes that the model does not accept are left to the model, whose
        error says why.
        """
        sizes: dict[str, int] = {}
        fits = True
        for layout, shape in zip(self.inputs, shapes, strict=True):
            if shape is None:
                continue
            fits &= len(shape) == len(layout.dims)
            for dim, extent in zip(layout.dims, shape, strict=False):
                found = solve(dim, extent)
                fits &= found is None or sizes.setdefault(*found) == found[1]
        if self._offsets_size is not None and not set(self._offsets_size.symbols()) <= set(sizes):
            # Offsets that are missing are those of one sequence.
            sizes.setdefault(*_solved(self._offsets_size, 2))
        for name, value in sizes.items():
            symbol = self.symbols[name]
            fits &= symbol.min <= value and (symbol.max is None or value <= symbol.max) and value % symbol.divisor == 0
        fits = fits and set(self._given) <= set(sizes)
        try:
            fits = fits and all(
                shape is None or tuple(shape) == layout.extents(sizes)
                for layout, shape in zip(self.inputs, shapes, strict=True)
            )
        except ZeroDivisionError:
            fits = False
        return sizes, fits

    def joined_values(self, requests: Sequence[Mapping[str, int]]) -> dict[str, int]:
        """The values of the symbols in a call with requests of these values."""
        sizes = dict(requests[0])
        for name in self.padded:
            sizes[name] = max(request[name] for request in requests)
        sizes[self.policy.along] = sum(request[self.policy.along] for request in requests)
        if (size := self._offsets_size) is not None:
            sizes.update([_solved(size, 1 + sum(size.evaluate(request) - 1 for request in requests))])
        return sizes

    @property
    def varying(self) -> set[str]:
        """The symbols whose values may differ between requests that are joined."""
        return {*self._joined, *self.padded}

    # -- Construction --------------------------------------------------------------------------------------------------

    def _check_names(self, interface: Interface) -> None:
        policy = self.policy
        inputs = [spec.name for spec in interface.inputs]
        tensors = [*inputs, *(spec.name for spec in interface.outputs)]
        wanted: list[tuple[str, str, str, list[str]]] = [("along", policy.along, "symbolic size", self._given)]
        if isinstance(policy, Padded):
            wanted += [("dims", name, "symbolic size", self._given) for name in policy.dims]
            wanted += [("values", name, "input", inputs) for name in policy.values]
            wanted += [("mask", policy.mask, "input", inputs)] if policy.mask is not None else []
        if isinstance(policy, Ragged):
            wanted += [("offsets", name, "input or result", tensors) for name in policy.offsets]
        for option, name, kind, known in wanted:
            if name not in known:
                listed = ", ".join(map(repr, known)) or "(none)"
                raise ArgumentValueError(f"{option}: the model has no {kind} {name!r}; its names are: {listed}")

    def _find_offsets_size(self, interface: Interface) -> Expression | None:
        """The size of offsets, which the first input among them has."""
        if not isinstance(self.policy, Ragged) or not self.policy.offsets:
            return None
        for spec in interface.inputs:
            if spec.name in self.policy.offsets:
                dims = spec.expressions()
                if len(dims) != 1 or solve(dims[0], 8) is None or not spec.dtype.startswith(("int", "uint")):
                    raise ArgumentValueError(
                        f"offsets: {spec.name!r} must have integers and one dim, of a symbolic size; it is {spec}"
                    )
                return dims[0]
        raise ArgumentValueError("offsets: expected the name of at least one input")

    def _layout(self, spec: TensorSpec, what: str) -> TensorLayout:
        dims = tuple(spec.expressions())
        parts = tuple(self._part(spec, axis, dim, what) for axis, dim in enumerate(dims))
        if sum(part in _JOINED for part in parts) > 1:
            raise ArgumentValueError(
                f"{what} {spec.name!r} has {self.policy.along!r} in two of its dims ({spec}): requests that are joined"
                " would be mixed; serve this model without batching"
            )
        return TensorLayout(spec, dims, parts)

    def _part(self, spec: TensorSpec, axis: int, dim: Expression, what: str) -> str:
        policy = self.policy
        names = set(dim.symbols())
        if not names & self._joined:
            return PADDED if isinstance(policy, Padded) and names & set(policy.dims) else EQUAL
        if _is_same(dim, Expression("symbol", name=policy.along)):
            return ALONG
        if self._offsets_size is not None:
            assert isinstance(policy, Ragged)
            if _is_same(dim, self._offsets_size) and spec.name in policy.offsets:
                return OFFSETS
            one = Expression("number", value=1)
            if _is_same(dim, Expression("-", operands=(self._offsets_size, one))):
                return SEQUENCES
        raise ArgumentValueError(
            f"{what} {spec.name!r}, dim {axis}: its size is {spec.dims[axis]!r}, and requests can be joined only along"
            f" a dim that is exactly {policy.along!r}; serve this model without batching, or name another size as along"
        )

    def _check_separable(self, layout: TensorLayout) -> None:
        spec = layout.spec
        for axis, dim in enumerate(layout.dims):
            if not set(dim.symbols()) <= set(self._given):
                raise ArgumentValueError(
                    f"result {spec.name!r}, dim {axis}: its size {spec.dims[axis]!r} is computed from data, so the"
                    " results of joined requests cannot be separated; serve this model without batching"
                )
        if layout.joined is None:
            raise ArgumentValueError(
                f"result {spec.name!r} has no dim {self.policy.along!r} ({spec}): it would be computed from all"
                " requests together; serve this model without batching"
            )


def solve(dim: Expression, extent: int) -> tuple[str, int] | None:
    """The symbol of a dim and the value with which the dim has this extent; None if it does not follow.

    Whether the dim then really has this extent is not checked.
    """
    if dim.kind == "symbol":
        return dim.name, extent
    if dim.kind not in ("+", "-", "*") or len(dim.operands) != 2:
        return None
    left, right = dim.operands
    if right.kind == "number":
        rest, number = left, right.value
    elif left.kind == "number" and dim.kind != "-":
        rest, number = right, left.value
    else:
        return None
    if dim.kind == "*":
        return solve(rest, extent // number) if number else None
    return solve(rest, extent - number if dim.kind == "+" else extent + number)


def _solved(dim: Expression, extent: int) -> tuple[str, int]:
    found = solve(dim, extent)
    assert found is not None
    return found


def _is_same(a: Expression, b: Expression) -> bool:
    """Whether two sizes are equal for some values of their symbols that have nothing to do with each other."""
    names = sorted({*a.symbols(), *b.symbols()})
    for seed in (1009, 2003, 4001):
        values = {name: seed + 97 * i * i + 13 * i for i, name in enumerate(names)}
        try:
            if a.evaluate(values) != b.evaluate(values):
                return False
        except ZeroDivisionError:
            return False
    return True
