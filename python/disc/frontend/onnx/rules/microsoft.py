"""Operators of ``com.microsoft`` on floats that ONNX Runtime's optimizers write: fused products, activations, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Tensor, normalize_dim
from ..builder import OnnxBuilder
from ..known import integers
from .convolution import conv
from .layers import gemm

_Fn = Callable[[Elem], Elem]


def activation(name: str, parameters: Sequence[float]) -> _Fn:
    """One of the activations that a fused operator may apply, by ONNX's name."""

    def parameter(place: int, default: float) -> float:
        return parameters[place] if place < len(parameters) else default

    known: dict[str, _Fn] = {
        "": lambda x: x,
        "Relu": lambda x: scalar.maximum(x, 0.0),
        "Sigmoid": scalar.sigmoid,
        "Tanh": scalar.tanh,
        "LeakyRelu": lambda x: scalar.select(x < 0.0, x * parameter(0, 0.01), x),
        "Clip": lambda x: scalar.minimum(scalar.maximum(x, parameter(0, -3.4e38)), parameter(1, 3.4e38)),
        "HardSigmoid": lambda x: scalar.minimum(scalar.maximum(x * parameter(0, 0.2) + parameter(1, 0.5), 0.0), 1.0),
    }
    if name not in known:
        raise NotLowerable(f"activation {name}")
    return known[name]


@lowers("onnx.FusedConv")
def fused_conv(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    other: Tensor | None = None,
    activation_params: Sequence[float] = (),
    **attributes: Any,
) -> Tensor:
    """A convolution, a sum and an activation."""
    fn = activation(attributes.pop("activation", ""), activation_params)
    y = conv(b, x, weight, bias, **attributes)
    inputs = [y] if other is None else [y, other]
    return b.elementwise(y.dtype, inputs, lambda y, *z: fn(y + z[0] if z else y))


@lowers("onnx.FusedGemm")
def fused_gemm(b: OnnxBuilder, x: Tensor, y: Tensor, c: Tensor | None = None, **attributes: Any) -> Tensor:
    """A matrix product and an activation."""
    name = attributes.pop("activation", "")
    found = [attributes.pop(f"activation_{which}", None) for which in ("alpha", "beta", "gamma")]
    fn = activation(name, [v for v in found if v is not None])
    return b.elementwise(x.dtype, [gemm(b, x, y, c, **attributes)], fn)


@lowers("onnx.FusedMatMul", "onnx.TransposeMatMul")
def fused_matmul(
    b: OnnxBuilder,
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """alpha * x @ y, either of which may be transposed."""

    def turned(t: Tensor, batch: int, last: int) -> Tensor:
        if batch and t.rank > 2:
            t = b.permute(t, [*range(1, t.rank - 1), 0, t.rank - 1])
        # Vectors have nothing to transpose.
        return b.permute(t, [*range(t.rank - 2), t.rank - 1, t.rank - 2]) if last and t.rank > 1 else t

    product = b.aten("matmul", turned(x, transBatchA, transA), turned(y, transBatchB, transB), dtype=x.dtype)
    result: Tensor = product if alpha == 1 else b.elementwise(x.dtype, [product], lambda p: p * alpha)
    return result


@lowers("onnx.BiasGelu")
def bias_gelu(b: OnnxBuilder, x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias)."""
    return b.elementwise(x.dtype, [x, bias], lambda x, c: scalar.gelu(x + c))


@lowers("onnx.FastGelu")
def fast_gelu(b: OnnxBuilder, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """gelu(x + bias) by tanh."""
    inputs = [x] if bias is None else [x, bias]
    return b.elementwise(x.dtype, inputs, lambda x, *c: scalar.gelu(x + c[0] if c else x, "tanh"))


@lowers("onnx.QuickGelu")
def quick_gelu(b: OnnxBuilder, x: Tensor, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return b.elementwise(x.dtype, [x], lambda x: x * scalar.sigmoid(x * alpha))


@lowers("onnx.BiasAdd")
def bias_add(b: OnnxBuilder, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """x + bias + skip."""
    return b.elementwise(x.dtype, [x, bias, skip], lambda x, c, s: x + c + s)


@lowers("onnx.ExpandDims")
def expand_dims(b: OnnxBuilder, x: Tensor, axis: Any) -> Tensor:
    """A dim of size 1 more."""
    place = (integers(axis) or [0])[0]
    return b.unsqueeze(x, normalize_dim(place, x.rank + 1))


def _normalised(
    b: OnnxBuilder, x: Tensor, scale: Tensor, bias: Tensor | None, epsilon: float, centre: bool, axis: int = -1
) -> tuple[Tensor, Tensor | None, Tensor]:
    """x normalised over the dims from ``axis`` on; mean and reciprocal deviation, which keep their dims."""
    axes = list(range(axis % x.rank, x.rank))
    wide = dtypes.opmath(x.dtype)
    y = convert(b, x, wide)
    mean = b.aten("mean.dim", y, axes, True, dtype=wide) if centre else None
    if mean is not None:
        y = b.elementwise(wide, [y, mean], lambda y, m: y - m)
    squares = b.elementwise(wide, [y], lambda y: y * y)
    power = b.aten("mean.dim", squares, axes, True, dtype=wide)
    factor = b.elementwise(wide, [power], lambda p: scalar.rsqrt(p + epsilon))
    inputs = [y, factor, scale] if bias is None else [y, factor, scale, bias]
    result = b.elementwise(x.dtype, inputs, lambda y, f, s, *c: y * f * s + c[0] if c else y * f * s, compute=wide)
    return result, mean, factor


def _summed(b: OnnxBuilder, x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    inputs = [x, skip] if bias is None else [x, skip, bias]
    return b.elementwise(x.dtype, inputs, lambda x, s, *c: x + s + c[0] if c else x + s)


@lowers("onnx.SkipLayerNormalization")
def skip_layer_norm(
    b: OnnxBuilder,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-12,
) -> Any:
    """The layer norm of x + skip + bias; also the mean, the reciprocal deviation, and the sum."""
    total = _summed(b, x, skip, bias)
    y, mean, factor = _normalised(b, total, scale, shift, epsilon, True)
    return y, mean, factor, total


@lowers("onnx.SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    b: OnnxBuilder, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None, epsilon: float = 1e-12
) -> Any:
    """The RMS norm of x + skip + bias; also the reciprocal deviation, and the sum."""
    total = _summed(b, x, skip, bias)
    y, _, factor = _normalised(b, total, scale, None, epsilon, False)
    # The second result, a mean, has no meaning here.
    return y, factor, factor, total


@lowers("onnx.SimplifiedLayerNormalization")
def simplified_layer_norm(
    b: OnnxBuilder, x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: Any = None
) -> Any:
    """x / sqrt(mean(x^2) + epsilon) * scale; also the reciprocal deviation."""
    y, _, factor = _normalised(b, x, scale, None, epsilon, False, axis)
    return y, factor


@lowers("onnx.EmbedLayerNormalization")
def embed_layer_norm(
    b: OnnxBuilder,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    kinds: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> Any:
    """The layer norm of the sum of embeddings; also how many tokens the mask keeps, and the sum."""
    batch, length = ids.dims
    width = words.dims[1]

    def summed() -> Elem:
        row, step, column = (scalar.loop_index(d) for d in range(3))
        word = b.checked_index(b.extract(ids, [row, step]), words.dims[0], wrap=False)
        total = b.extract(words, [word, column])
        if positions is None:
            place = step
        else:
            first = row if positions.dims[0] == batch else scalar.constant(0, torch.int64)
            place = b.extract(positions, [first, step])
        total = total + b.extract(places, [b.checked_index(place, places.dims[0], wrap=False), column])
        if segments is not None and kinds is not None:
            kind = b.checked_index(b.extract(segments, [row, step]), kinds.dims[0], wrap=False)
            total = total + b.extract(kinds, [kind, column])
        return total

    total = b.generic([], [], [batch, length, width], words.dtype, summed)
    y, _, _ = _normalised(b, total, scale, shift, epsilon, True)
    if mask is None:
        kept = b.full([batch], 0, torch.int32)
    else:
        ones = b.map(torch.int32, [mask], lambda m: m.eq(1).to(torch.int32))
        kept = convert(b, b.aten("sum.dim_IntList", ones, [1], False, dtype=torch.int64, rank=1), torch.int32)
    return y, kept, total
