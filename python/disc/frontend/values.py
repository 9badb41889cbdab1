"""What rules work on: tensors, extents and numbers known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch_mlir import ir

from . import dtypes
from .registry import NotLowerable

if TYPE_CHECKING:
    from ..expressions import Expression
    from .scalar import Elem

Extent: TypeAlias = "int | ir.Value"
"""A size: a Python int when static, else an SSA value of type ``index``."""

Number: TypeAlias = int | float | bool


@dataclass(frozen=True)
class Iota:
    """The tensor's element is its index along ``dim``, times ``step``, plus ``start``."""

    dim: int
    start: int
    step: int = 1


@dataclass(frozen=True)
class Broadcast:
    """The tensor only repeats ``source``, whose dim ``i`` is the tensor's ``dims[i]``."""

    source: Tensor
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Coded:
    """The tensor is (codes - zero) * scale in f32.

    ``codes`` are integers of at most 16 bits, and ``scale`` is a normal number. ``low`` and ``high`` are the limits
    that the operator says its codes have.
    """

    codes: Tensor
    scale: float
    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Tensor:
    """A tensor value, with its extents and what is known of its contents.

    The facts (``splat``, ``iota``, ``broadcast``) let rules drop what computes nothing: the masks that
    model libraries build are mostly comparisons of an arange with a constant. ``coded`` lets rules that only choose
    among elements choose among codes.
    """

    value: ir.Value
    dims: tuple[Extent, ...]
    dtype: torch.dtype
    splat: Number | None = field(default=None, compare=False)
    iota: Iota | None = field(default=None, compare=False)
    broadcast: Broadcast | None = field(default=None, compare=False)
    coded: Coded | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def with_facts(
        self,
        *,
        splat: Number | None = None,
        iota: Iota | None = None,
        broadcast: Broadcast | None = None,
        coded: Coded | None = None,
    ) -> Tensor:
        """The same tensor with other facts."""
        return replace(self, splat=splat, iota=iota, broadcast=broadcast, coded=coded)


@dataclass(frozen=True)
class RuntimeNumber:
    """A Python float (or bool) of the model that depends on extents.

    ``emit`` writes its computation into the body of a ``linalg.generic``; there is no other place
    where a number that is neither a tensor nor an extent can live in the input IR. ``scaled`` is known of
    an extent times a fraction: rounded, it is an extent again.
    """

    dtype: torch.dtype
    emit: Callable[[], Elem]
    scaled: tuple[Extent, Fraction] | None = None

    def _map(self, other: Any, fn: Callable[[Elem, Any], Elem], *, true_division: bool = False) -> RuntimeNumber:
        """A number computed from this one and ``other``, as Python computes with numbers."""
        kinds = (self.dtype, other.dtype if isinstance(other, RuntimeNumber) else type(other))
        whole = all(kind in (torch.int64, torch.bool, int, bool) for kind in kinds) and not true_division
        dtype = torch.int64 if whole else torch.float64
        return RuntimeNumber(dtype, lambda: fn(self.emit().to(dtype), other))

    def __add__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x + y)

    def __sub__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x - y)

    def __rsub__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x.like(y) - x)

    def __mul__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x * y)

    def __truediv__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x / y, true_division=True)

    def __rtruediv__(self, other: Any) -> RuntimeNumber:
        return self._map(other, lambda x, y: x.like(y) / x, true_division=True)

    def __neg__(self) -> RuntimeNumber:
        return self._map(0, lambda x, _: -x)

    __radd__ = __add__
    __rmul__ = __mul__

    def _unknown(self, *_: Any) -> Any:
        raise NotLowerable("a number that depends on a dynamic size, where the operation needs a constant")

    __float__ = __int__ = __index__ = __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown


@dataclass(frozen=True)
class ResultInfo:
    """What the torch dialect says of one result of the op being lowered."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]


def is_one(extent: Extent) -> bool:
    """Whether ``extent`` is statically 1."""
    return isinstance(extent, int) and extent == 1


def tensor_type(dims: Sequence[Extent | Expression | None], dtype: torch.dtype) -> ir.RankedTensorType:
    """The MLIR type of a tensor. A dim is dynamic if its extent is not an int: a value, an expression or unknown."""
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [dim if isinstance(dim, int) else dynamic for dim in dims]
    if dtypes.is_complex(dtype):
        shape.append(2)
    return ir.RankedTensorType.get(shape, dtypes.element_type(dtype))


def normalize_dim(dim: int, rank: int) -> int:
    """``dim`` in [0, rank), counting negative ones from the end as PyTorch does."""
    if not isinstance(dim, int):
        raise NotLowerable("a dimension's number that depends on a dynamic size")
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise NotLowerable(f"dimension out of range: expected one of [{-max(rank, 1)}, {max(rank, 1) - 1}], got {dim}")
    return dim + max(rank, 1) if dim < 0 else dim
