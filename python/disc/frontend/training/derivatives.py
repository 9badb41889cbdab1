"""Operators by definitions with other gradients than PyTorch's: those loop over sizes, or keep numbers of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _select(x: Tensor, dim: int, index: Any) -> Tensor:
    """The index as a tensor: autograd keeps one for each step, where the number is known in the step alone."""
    if not x.requires_grad or not _is_of_step(index):
        return torch.ops.aten.select.int(x, dim, index)
    at = torch.scalar_tensor(index, dtype=torch.int64, device=x.device)
    return x.index_select(dim, torch.where(at < 0, at + x.shape[dim], at).reshape(1)).squeeze(dim)


def _slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """The same of a slice of a known length."""
    value = torch.ops.aten.slice.Tensor(x, dim, start, end, step)
    size = value.shape[dim]
    if not x.requires_grad or not _is_of_step(start) or _is_of_step(size) or not statically_known_true(start >= 0):
        return value
    return x.index_select(dim, torch.arange(size, device=x.device) * step + start)


DERIVATIVES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.block_diag.default: _block_diag,
    torch.ops.aten.cumprod.default: _cumprod,
    torch.ops.aten.select.int: _select,
    torch.ops.aten.slice.Tensor: _slice,
}
"""Each computes what the operator does, where a gradient is asked for."""
