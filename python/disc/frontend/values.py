"""What rules work on: tensors, extents and numbers known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch_mlir import ir

from . import dtypes

if TYPE_CHECKING:
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
class Tensor:
    """A tensor value, with its extents and what is known of its contents.

    The facts (``splat``, ``iota``, ``broadcast``) let rules drop what computes nothing: the masks that
    model libraries build are mostly comparisons of an arange with a constant.
    """

    value: ir.Value
    dims: tuple[Extent, ...]
    dtype: torch.dtype
    splat: Number | None = field(default=None, compare=False)
    iota: Iota | None = field(default=None, compare=False)
    broadcast: Broadcast | None = field(default=None, compare=False)

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
    ) -> Tensor:
        """The same tensor with other facts."""
        return replace(self, splat=splat, iota=iota, broadcast=broadcast)


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


@dataclass(frozen=True)
class ResultInfo:
    """What the torch dialect says of one result of the op being lowered."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]


def is_one(extent: Extent) -> bool:
    """Whether ``extent`` is statically 1."""
    return isinstance(extent, int) and extent == 1


def tensor_type(dims: Sequence[Extent | str], dtype: torch.dtype) -> ir.RankedTensorType:
    """The MLIR type of a tensor. An extent may have a name in the place of a value."""
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [dim if isinstance(dim, int) else dynamic for dim in dims]
    if dtypes.is_complex(dtype):
        shape.append(2)
    return ir.RankedTensorType.get(shape, dtypes.element_type(dtype))


def normalize_dim(dim: int, rank: int) -> int:
    """``dim`` in [0, rank), counting negative ones from the end as PyTorch does."""
    return dim + max(rank, 1) if dim < 0 else dim
