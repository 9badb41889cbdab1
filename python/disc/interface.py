"""The inputs, outputs and symbols of a compiled model, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .expressions import Expression, parse

DTYPES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""The element types, by their names in NumPy and torch, and their sizes in bytes."""


@dataclass(frozen=True)
class TensorSpec:
    """An input, output or parameter of a compiled model."""

    name: str
    dtype: str
    """``"float32"``, ``"int64"``, ``"bfloat16"``, ``"bool"``, ..."""
    dims: tuple[int | str, ...]
    """Static extents, and the texts of symbolic ones (``"batch"``, ``"2 * length + 1"``)."""
    updated: bool = False
    """Whether a run writes to it: an input that is changed in place, or a parameter that is state."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.name}: unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        # A number is a number, however it is written.
        object.__setattr__(self, "dims", tuple(_static(dim) for dim in self.dims))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype]

    def expressions(self) -> list[Expression]:
        """The dims, parsed."""
        return [parse(str(dim)) for dim in self.dims]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class SymbolSpec:
    """A dynamic extent."""

    name: str
    min: int
    max: int | None
    """None when there is no upper bound."""
    divisor: int = 1
    """Every value is a multiple."""
    computed: bool = False
    """Whether the model computes it, so that it does not follow from an input's shape."""

    def __str__(self) -> str:
        text = f"{self.min} to {self.max}" if self.max is not None else f"{self.min} and more"
        return f"{self.name}: {text}" + (f", multiples of {self.divisor}" if self.divisor != 1 else "")


@dataclass(frozen=True)
class Interface:
    """The tensors of a model, in the order of its inputs and outputs, and its symbols."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    symbols: Sequence[SymbolSpec]


def _static(dim: int | str) -> int | str:
    if isinstance(dim, str):
        return int(dim) if dim.isdecimal() else dim
    return int(dim)
