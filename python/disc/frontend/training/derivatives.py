"""Operators by definitions with other gradients than PyTorch's: those loop over sizes, or keep numbers of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...torch_compat.symbols import free_unbacked_symbols, statically_known_true


def _block_diag(tensors: Sequence[Tensor]) -> Tensor:
    """Matrices side by side along the diagonal; numbers and vectors are matrices of one row."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    matrices = [(t if t.dim() == 2 else t.reshape(1, -1)).to(dtype) for t in tensors]
    columns = sum(m.shape[1] for m in matrices)
    rows, before = [], 0
    for matrix in matrices:
        height, width = matrix.shape
        left, right = matrix.new_zeros([height, before]), matrix.new_zeros([height, columns - before - width])
        rows.append(torch.cat([left, matrix, right], 1))
        before = before + width
    return torch.cat(rows, 0)


class _Cumprod(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.dim = dim
        return torch.cumprod(x, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Quotients by the elements before the first zero; for the first zero the products without it.

        Elements after the first zero only occur in products that are zero without them.
        """
        (x,), dim = ctx.saved_tensors, ctx.dim
        if x.dim() == 0:
            return grad, None
        zeros = (x == 0).to(torch.int64).cumsum(dim)
        first = (x == 0) & (zeros == 1)
        ones = torch.where(first, 1, x)
        before = _sums_from(grad * torch.cumprod(x, dim).conj(), dim) / ones.conj()
        at = torch.where(zeros == 0, 0, grad * torch.cumprod(ones, dim).conj())
        return torch.where(zeros == 0, before, torch.where(first, _sums_from(at, dim), 0)), None


def _sums_from(x: Tensor, dim: int) -> Tensor:
    """The sum of each element and those after it."""
    return x.flip(dim).cumsum(dim).flip(dim)


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return _Cumprod.apply(x if dtype is None else x.to(dtype), dim)


def _is_of_step(number: Any) -> bool:
    """Whether a number may be another one in each step of a loop."""
    return isinstance(number, torch.SymInt) and bool(free_unbacked_symbols(number))


@dataclass(frozen=True)
class Part:
    """A part of a tensor at a place that a step of a loop computes, as a copy.

    The place is a tensor: autograd keeps one for each step, where the number is known in the step alone.
    """

    dim: int
    index: Tensor
    single: bool
    """Whether the part is without the dim."""

    def read(self, x: Tensor) -> Tensor:
        """The copy of the part."""
        part = x.index_select(self.dim, self.index)
        return part.squeeze(self.dim) if self.single else part

    def write(self, x: Tensor, part: Tensor) -> None:
        """Sets the part in place."""
        x.index_copy_(self.dim, self.index, part.unsqueeze(self.dim) if self.single else part)


def _selected(x: Tensor, dim: int, index: Any) -> Part | None:
    if not _is_of_step(index):
        return None
    at = torch.scalar_tensor(index, dtype=torch.int64, device=x.device)
    return Part(dim, torch.where(at < 0, at + x.shape[dim], at).reshape(1), True)


def _sliced(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Part | None:
    if not _is_of_step(start) or not statically_known_true(start >= 0):
        return None
    size = torch.ops.aten.slice.Tensor(x, dim, start, end, step).shape[dim]
    return None if _is_of_step(size) else Part(dim, torch.arange(size, device=x.device) * step + start, False)


PARTS: dict[Any, Callable[..., Part | None]] = {
    torch.ops.aten.select.int: _selected,
    torch.ops.aten.slice.Tensor: _sliced,
}
"""Operators whose result is a view at some place; the part is None if no step of a loop computes the place."""

DERIVATIVES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.block_diag.default: _block_diag,
    torch.ops.aten.cumprod.default: _cumprod,
}
"""Each computes what the operator does, where a gradient is asked for."""
