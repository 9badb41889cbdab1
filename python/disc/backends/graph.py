"""What back ends see of a model: its operations, as the user wrote them, with symbolic extents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Condition:
    """Something that sizes decide, for :meth:`Backend.prefer`: true where all expressions are at least 0."""

    expressions: tuple[str, ...]

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.expressions + other.expressions)

    def __bool__(self) -> bool:
        raise TypeError("a condition on dynamic sizes has no value while compiling; return it from prefer()")


UNKNOWN = "?"
"""The text of an extent that has no expression until the shape stage has run."""


@dataclass(frozen=True)
class Dim:
    """An extent: an expression over the model's symbols, with its range and divisibility."""

    text: str
    """``"384"``, ``"B"``, ``"2 * n + 1"``."""
    min: int = 0
    max: int | None = None
    """None if there is no upper bound."""
    divisor: int = 1
    """A number that every value is a multiple of."""

    @property
    def is_static(self) -> bool:
        """Whether it has one value only."""
        return self.min == self.max

    def __int__(self) -> int:
        if not self.is_static:
            raise TypeError(f"the size {self.text} is dynamic")
        return self.min

    def is_multiple_of(self, number: int) -> bool:
        """Whether every value is a multiple of ``number``."""
        return (self.min if self.is_static else self.divisor) % number == 0

    def __ge__(self, other: int) -> Condition:
        return Condition((f"{self.text} - {other}",))

    def __gt__(self, other: int) -> Condition:
        return self >= other + 1

    def __le__(self, other: int) -> Condition:
        return Condition((f"{other} - ({self.text})",))

    def __lt__(self, other: int) -> Condition:
        return self <= other - 1

    def __mul__(self, other: Dim | int) -> Dim:
        right = other if isinstance(other, Dim) else Dim(str(other), other, other)
        most = None if self.max is None or right.max is None else self.max * right.max
        factors = (dim.text if dim.text.isalnum() else f"({dim.text})" for dim in (self, right))
        return Dim(" * ".join(factors), self.min * right.min, most, self.divisor * right.divisor)

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False)
class Value:
    """A tensor."""

    dtype: str
    """PyTorch's name of it, ``"float32"``."""
    dims: tuple[Dim, ...]
    parameter: str | None = None
    """The name of the parameter or buffer that it is, if it is constant."""
    producer: Operation | None = None
    """The operation that computes it, if back ends can claim that one."""
    index: int = 0
    """Which of the producer's results it is."""
    users: list[Operation] = field(default_factory=list, repr=False)
    """Operations that back ends can claim."""
    is_used_elsewhere: bool = False
    """Whether something else uses it too, such as the model's results."""

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.dims)

    @property
    def is_constant(self) -> bool:
        """Whether it is a parameter: the same in every call until weights are replaced."""
        return self.parameter is not None


@dataclass(eq=False)
class Operation:
    """An operation of the model that a back end can claim."""

    id: int
    name: str
    """The operator, ``"aten.add.Tensor"``; without overload where there is but one, ``"aten.linear"``."""
    args: tuple[Any, ...]
    """By position, as in the operator's schema, defaults included: :class:`Value`, numbers, strings, None, :class:`Dim`
    for dynamic sizes, and lists of these."""
    inputs: tuple[Value, ...]
    """The tensors among ``args``, in order."""
    results: tuple[Value, ...]
    source: str = ""
    """The user's line, ``model.py:12``."""
    names: tuple[str, ...] = ()
    """The names of ``args`` in the operator's schema; empty for an ONNX model."""
    block: Any = None
    """Operations of one block can be in one region: a branch or a loop is a block of its own."""
    unsupported: str = ""
    """Why DISC cannot compile it: without a back end for it, compiling the model fails. "" if DISC can."""

    def argument(self, name: str) -> Any:
        """The argument of this name in the operator's schema."""
        return self.args[self.names.index(name)]

    @property
    def result(self) -> Value:
        """The one result."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results")
        return self.results[0]


@dataclass
class Graph:
    """The operations that back ends can claim, in program order."""

    operations: list[Operation] = field(default_factory=list)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def by_id(self) -> dict[int, Operation]:
        """The operations by their numbers."""
        return {op.id: op for op in self.operations}
