"""Scaled dot product attention, as one ``disc_tensor.attention``."""

from __future__ import annotations

import math

import torch
from torch_mlir import ir

from .. import scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..values import Extent, RuntimeNumber, Tensor, is_one, tensor_type
from .common import number


@lowers("torch.aten.scaled_dot_product_attention")
def scaled_dot_product_attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | RuntimeNumber | None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q @ k.T * scale + mask) @ v."""
    if dropout_p:
        raise NotLowerable("dropout in attention; call .eval() on the model first")
    if scale is None:
        size = q.dims[-1]
        scale = 1.0 / math.sqrt(size) if isinstance(size, int) else _one_over_root(size)
    if not isinstance(scale, float):
        # Not a number of the compiled attention: it goes into the queries.
        q = b.elementwise(q.dtype, [q, number(scale)], lambda q, s: q * s)
        scale = 1.0
    if enable_gqa and q.dims[-3] != k.dims[-3]:
        return _grouped(b, q, k, v, mask, is_causal, scale)
    batch = b.broadcast_dims([q.dims[:-2], k.dims[:-2], v.dims[:-2]])
    q, k, v = (_with_batch(b, t, batch) for t in (q, k, v))
    return _emit(b, q, k, v, mask, is_causal, scale)


def _one_over_root(size: Extent) -> RuntimeNumber:
    return RuntimeNumber(torch.float64, lambda: scalar.rsqrt(scalar.from_extent(size, torch.float64)))


@lowers("torch.aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    is_causal: bool,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, None]:
    """scaled_dot_product_attention without gradients; the sums for a backward pass are not computed."""
    # It takes grouped queries without being told so.
    return scaled_dot_product_attention(b, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa=True), None


@lowers("torch.aten._scaled_dot_product_efficient_attention")
def efficient_attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, None, None, None]:
    """As scaled_dot_product_attention on GPUs. The sums and the state of random numbers are not given."""
    return scaled_dot_product_attention(b, q, k, v, mask, dropout_p, is_causal, scale), None, None, None


@lowers("torch.aten._scaled_dot_product_flash_attention")
def flash_attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """As scaled_dot_product_attention on GPUs, without the other eight results."""
    result = scaled_dot_product_attention(b, q, k, v, None, dropout_p, is_causal, scale, enable_gqa=True)
    return result, *[None] * 8


@lowers("torch.aten._scaled_dot_product_cudnn_attention")
def cudnn_attention(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """As scaled_dot_product_attention on GPUs, without the other eight results."""
    result = scaled_dot_product_attention(b, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa=True)
    return result, *[None] * 8


def _with_batch(b: Builder, t: Tensor, batch: list[Extent]) -> Tensor:
    dims = [*batch, *t.dims[-2:]]
    return t if list(t.dims) == dims else b.broadcast(t, dims)


def _grouped(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Grouped queries: heads become (groups, heads of a group), and k and v repeat over a group."""
    heads, groups = q.dims[-3], k.dims[-3]
    each = b.floordiv(heads, groups)

    def split(t: Tensor) -> Tensor:
        return b.reshape(t, [*t.dims[:-3], groups, each, *t.dims[-2:]])

    def repeat(t: Tensor) -> Tensor:
        unit = b.unsqueeze(t, t.rank - 2)
        return b.broadcast(unit, [*t.dims[:-2], each, *t.dims[-2:]])

    if mask is not None and mask.rank >= 3:
        per_head = not is_one(mask.dims[-3])
        mask = split(mask) if per_head else b.unsqueeze(mask, mask.rank - 2)
    result = _emit(b, split(q), repeat(k), repeat(v), mask, is_causal, scale)
    return b.reshape(result, [*q.dims[:-1], v.dims[-1]])


def _emit(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    b.require_equal(k.dims[-2], v.dims[-2], "attention: lengths of key and value differ")
    b.require_equal(q.dims[-1], k.dims[-1], "attention: head sizes of query and key differ")
    dims = [*q.dims[:-1], v.dims[-1]]
    operands = [q.value, k.value, v.value]
    if mask is not None and mask.splat is not True:
        mask = _smallest(b, mask)
        mask = b.reshape(mask, [*[1] * (q.rank - mask.rank), *mask.dims])
        wanted = [*q.dims[:-1], k.dims[-2]]
        some = [not is_one(have) and b.repeats(have, want) for have, want in zip(mask.dims, wanted, strict=True)]
        mask = b.broadcast(mask, [w if s else d for d, w, s in zip(mask.dims, wanted, some, strict=True)])
        for have, want in zip(mask.dims, wanted, strict=True):
            if not is_one(have):
                b.require_equal(have, want, "attention: extents of the mask differ")
        operands.append(mask.value)
    op = ir.Operation.create(
        "disc_tensor.attention",
        [tensor_type(dims, q.dtype)],
        operands,
        attributes={
            "scale": ir.FloatAttr.get_f64(scale),
            "is_causal": ir.BoolAttr.get(bool(is_causal)),
        },
    )
    return Tensor(op.result, tuple(dims), q.dtype)


def _smallest(b: Builder, mask: Tensor) -> Tensor:
    """The mask without the repeats the attention does itself."""
    if mask.broadcast is None:
        return mask
    origin = mask.broadcast
    dims: list[Extent] = [1] * mask.rank
    for j, place in enumerate(origin.dims):
        dims[place] = origin.source.dims[j]
    if list(origin.dims) != sorted(origin.dims):
        return mask
    return b.reshape(origin.source, dims)
