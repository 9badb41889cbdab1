"""Products, normalisations and other layers of ONNX."""

from __future__ import annotations

from typing import Any

import torch

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Tensor, is_one
from ..builder import OnnxBuilder, known
from ..known import elements


@lowers("onnx.MatMul")
def matmul(b: OnnxBuilder, x: Tensor, y: Tensor) -> Tensor:
    """x @ y."""
    return b.aten("matmul", x, y, dtype=x.dtype)


@lowers("onnx.Gemm")
def gemm(
    b: OnnxBuilder,
    x: Tensor,
    y: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * x @ y + beta * c."""
    if transA:
        x = b.permute(x, [1, 0])
    plain = alpha == 1 and (c is None or beta == 1)
    if transB and plain and (c is None or c.rank == 1):
        return b.aten("linear", x, y, c, dtype=x.dtype)
    if transB:
        y = b.permute(y, [1, 0])
    if c is None:
        product = b.aten("matmul", x, y, dtype=x.dtype)
        return product if alpha == 1 else b.elementwise(x.dtype, [product], lambda p: p * alpha)
    whole = not float(alpha).is_integer() or not float(beta).is_integer()
    if not x.dtype.is_floating_point and whole:
        raise NotLowerable("integers scaled by a fraction")
    scale = float if x.dtype.is_floating_point else int
    return b.aten("addmm", c, x, y, scale(beta), scale(alpha), dtype=x.dtype)


def _softmax(name: str, b: OnnxBuilder, x: Tensor, axis: int | None) -> Tensor:
    if b.opset >= 13:
        return b.aten(name, x, -1 if axis is None else axis, None, dtype=x.dtype)
    # Before, everything from the axis on was one row.
    axis = (1 if axis is None else axis) % x.rank
    rows = b.reshape(x, [b.product(x.dims[:axis]), b.product(x.dims[axis:])])
    return b.reshape(b.aten(name, rows, 1, None, dtype=x.dtype), x.dims)


@lowers("onnx.Softmax")
def softmax(b: OnnxBuilder, x: Tensor, axis: int | None = None) -> Tensor:
    """e^x / sum of it."""
    return _softmax("softmax.int", b, x, axis)


@lowers("onnx.LogSoftmax")
def log_softmax(b: OnnxBuilder, x: Tensor, axis: int | None = None) -> Tensor:
    """The logarithm of softmax."""
    return _softmax("log_softmax.int", b, x, axis)


@lowers("onnx.Hardmax")
def hardmax(b: OnnxBuilder, x: Tensor, axis: int | None = None) -> Tensor:
    """1 at the first maximum, 0 elsewhere."""
    if b.opset < 13:
        raise NotLowerable("before opset 13")
    dim = (-1 if axis is None else axis) % x.rank
    where = b.aten("argmax", x, dim, True, dtype=torch.int64)
    return b.elementwise(
        x.dtype,
        [where],
        lambda i: i.eq(scalar.loop_index(dim)).to(x.dtype),
        compute=torch.int64,
        dims=x.dims,
    )


@lowers("onnx.LayerNormalization")
def layer_norm(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: Any = None,
) -> Any:
    """Normalises over the dims from ``axis`` on; also the mean and the reciprocal deviation."""
    shape = x.dims[axis % x.rank :]
    stats = torch.float64 if x.dtype == torch.float64 else torch.float32
    if any(is_one(have) and not is_one(want) for have, want in zip(scale.dims, shape, strict=False)):
        scale = b.broadcast(scale, shape)
    return b.aten("native_layer_norm", x, list(shape), scale, bias, epsilon, dtype=[x.dtype, stats, stats])


@lowers("onnx.RMSNormalization")
def rms_norm(
    b: OnnxBuilder, x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: Any = None
) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * scale."""
    return b.aten("rms_norm", x, list(x.dims[axis % x.rank :]), scale, epsilon, dtype=x.dtype)


@lowers("onnx.BatchNormalization")
def batch_norm(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    **_: Any,
) -> Any:
    """Normalises each channel with given statistics; in training mode with the batch's, updating them."""
    compute = dtypes.opmath(x.dtype)
    shape = [1] * (x.rank - 2)
    updated: tuple[Tensor, ...] = ()
    if training_mode:
        axes = [i for i in range(x.rank) if i != 1]
        wide = convert(b, x, compute)
        batch_mean = b.aten("mean.dim", wide, axes, False, dtype=compute)
        batch_var = b.aten("var.correction", wide, axes, 0, False, dtype=compute)

        def mix(old: Elem, new: Elem) -> Elem:
            return old * momentum + new * (1 - momentum)

        updated = (
            b.elementwise(mean.dtype, [mean, batch_mean], mix),
            b.elementwise(var.dtype, [var, batch_var], mix),
        )
        mean, var = batch_mean, batch_var
    channel = [b.reshape(t, [t.dims[0], *shape]) for t in (scale, bias, mean, var)]

    def normalise(x: Elem, scale: Elem, bias: Elem, mean: Elem, var: Elem) -> Elem:
        return (x - mean) * scalar.rsqrt(var + epsilon) * scale + bias

    y = b.elementwise(x.dtype, [x, *channel], normalise, compute=compute)
    return (y, *updated) if updated else y


@lowers("onnx.InstanceNormalization")
def instance_norm(b: OnnxBuilder, x: Tensor, scale: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Normalises each channel of each sample."""
    compute = dtypes.opmath(x.dtype)
    axes = list(range(2, x.rank))
    wide = convert(b, x, compute)
    mean = b.aten("mean.dim", wide, axes, True, dtype=compute)
    var = b.aten("var.correction", wide, axes, 0, True, dtype=compute)
    shape = [1] * (x.rank - 2)
    channel = [b.reshape(t, [t.dims[0], *shape]) for t in (scale, bias)]
    return b.elementwise(
        x.dtype,
        [x, mean, var, *channel],
        lambda x, m, v, s, c: (x - m) * scalar.rsqrt(v + epsilon) * s + c,
        compute=compute,
    )


@lowers("onnx.LpNormalization")
def lp_normalization(b: OnnxBuilder, x: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    """x over its norm along an axis; rows of norm 0 stay 0."""
    norm = b.aten("linalg_vector_norm", x, p, [axis], True, dtype=x.dtype)
    return b.elementwise(x.dtype, [x, norm], lambda x, n: scalar.select(n.eq(0), x * 0.0, x / n))


@lowers("onnx.Dropout")
@known(1, 2)
def dropout(b: OnnxBuilder, x: Tensor, ratio: Any = None, training: Any = None, **_: Any) -> Any:
    """Nothing, outside training; also a mask of what was kept."""
    trains = training is not None and bool((elements(training) or [0])[0])
    if trains and (ratio is None or (elements(ratio) or [0])[0] != 0):
        raise NotLowerable("dropout in training mode")
    return x, b.full(x.dims, True, torch.bool)


@lowers("onnx.Det")
def det(b: OnnxBuilder, x: Tensor) -> Tensor:
    """Determinants."""
    return b.aten("linalg_det", x, dtype=x.dtype)
