"""Matrix products. Each is one ``linalg.generic`` over (batch..., m, n, k), with no transposes."""

from __future__ import annotations

import torch

from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor, is_one
from .elementwise import convert


@lowers("torch.aten.linear")
def linear(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias: the weight is read in its stored order, (n, k)."""
    if weight.rank == 1:
        product = matmul_product(b, x, weight)
    else:
        _require_one_dtype(x, weight)
        batch = list(x.dims[:-1])
        n, k = len(batch), len(batch) + 1
        b.require_equal(x.dims[-1], weight.dims[1], "linear: features of input and weight differ")
        domain = [*batch, weight.dims[0], weight.dims[1]]
        product = b.contract(x, weight, [*range(n), k], [n, k], domain)
    if bias is None:
        return convert(b, product, b.out.dtype)
    return b.elementwise(b.out.dtype, [product, bias], lambda p, c: p + c)


@lowers("torch.aten.matmul", "torch.aten.mm", "torch.aten.bmm", "torch.aten.mv", "torch.aten.dot")
def matmul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """x @ y for any ranks, batch dims broadcast."""
    return convert(b, matmul_product(b, x, y), b.out.dtype)


def matmul_product(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """x @ y, in the type it is accumulated in."""
    _require_one_dtype(x, y)
    x_batch, y_batch = list(x.dims[:-2]), list(y.dims[:-2])
    batch = b.broadcast_dims([x_batch, y_batch])
    domain: list[Extent] = list(batch)
    x_loops = _batch_loops(b, x_batch, batch)
    y_loops = _batch_loops(b, y_batch, batch)
    if x.rank > 1:
        x_loops.append(len(domain))
        domain.append(x.dims[-2])
    if y.rank > 1:
        y_column = len(domain)
        domain.append(y.dims[-1])
    k = len(domain)
    inner = y.dims[-2] if y.rank > 1 else y.dims[-1]
    b.require_equal(x.dims[-1], inner, "matmul: inner extents differ")
    domain.append(x.dims[-1] if isinstance(x.dims[-1], int) else inner)
    x_loops.append(k)
    y_loops += [k, y_column] if y.rank > 1 else [k]
    return b.contract(x, y, x_loops, y_loops, domain)


def _require_one_dtype(x: Tensor, y: Tensor) -> None:
    # PyTorch's meta kernels take any.
    if x.dtype != y.dtype:
        raise NotLowerable(f"the factors of a product must have the same dtype, but have {x.dtype} and {y.dtype}")


def _batch_loops(b: Builder, dims: list[Extent], batch: list[Extent]) -> list[int | None]:
    offset = len(batch) - len(dims)
    return [None if b.repeats(dim, batch[offset + i]) else offset + i for i, dim in enumerate(dims)]


@lowers("torch.aten.addmm", "torch.aten.baddbmm", "torch.aten.addmv")
def addmm(b: Builder, c: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * c + alpha * (x @ y); with beta 0, c is not read."""
    product = matmul_product(b, x, y)
    dtype = b.out.dtype
    if beta == 0:
        if alpha == 1:
            return convert(b, product, dtype)
        return b.elementwise(dtype, [product], lambda p: p * alpha)

    def scaled(value: Elem, factor: Number) -> Elem:
        return value if factor == 1 else value * factor

    return b.elementwise(dtype, [product, c], lambda p, c: scaled(p, alpha) + scaled(c, beta))


@lowers("torch.aten.outer", "torch.aten.ger")
def outer(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The outer product of two vectors."""
    column = b.unsqueeze(x, 1)
    return b.elementwise(b.out.dtype, [column, y], lambda x, y: x * y)


@lowers("torch.aten._int_mm")
def int_mm(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The product of matrices of int8, in int32."""
    b.require_equal(x.dims[1], y.dims[0], "_int_mm: inner extents differ")
    domain = [x.dims[0], y.dims[1], x.dims[1] if isinstance(x.dims[1], int) else y.dims[0]]
    return b.contract(x, y, [0, 2], [2, 1], domain, sums=b.out.dtype)


@lowers("torch.aten._weight_int8pack_mm")
def weight_int8pack_mm(b: Builder, x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x @ weight.T * scales: weights of int8, [n, k], with a scale for each row."""
    return b.elementwise(b.out.dtype, [linear(b, x, convert(b, weight, x.dtype)), scales], lambda p, s: p * s)


@lowers("torch.aten._scaled_mm")
def scaled_mm(
    b: Builder,
    x: Tensor,
    y: Tensor,
    x_scale: Tensor,
    y_scale: Tensor,
    bias: Tensor | None = None,
    result_scale: Tensor | None = None,
    *_: object,
) -> Tensor:
    """The product of matrices of narrow floats, times a scale for each matrix, or for each row and column."""
    product = matmul_product(b, convert(b, x, torch.float32), convert(b, y, torch.float32))
    factors = []
    for scale, dims in ((x_scale, [product.dims[0], 1]), (y_scale, [1, product.dims[1]])):
        if all(is_one(dim) for dim in scale.dims):
            factors.append(b.reshape(scale, []))
        elif scale.rank == 2 and is_one(scale.dims[dims.index(1)]):
            factors.append(scale)
        else:
            raise NotLowerable("scales of blocks: expected one scale for each tensor, or for each row and column")
    inputs = [product, *factors, *([] if bias is None else [bias])]

    def fn(p: Elem, x: Elem, y: Elem, *c: Elem) -> Elem:
        p = p * x * y
        return p + c[0] if c else p

    result = b.elementwise(torch.float32, inputs, fn)
    if result_scale is not None:
        result = b.elementwise(torch.float32, [result, result_scale], lambda p, s: p * s)
    return convert(b, result, b.out.dtype)
