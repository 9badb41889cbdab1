"""Operators whose gradients in PyTorch loop over sizes, which fixes them: definitions with other gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


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


DERIVATIVES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.block_diag.default: _block_diag,
    torch.ops.aten.cumprod.default: _cumprod,
}
"""Each computes what the operator does, where a gradient is asked for."""
