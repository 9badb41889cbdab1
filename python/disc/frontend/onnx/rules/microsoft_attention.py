"""Attention of ``com.microsoft``, as ONNX Runtime's optimizers for transformers write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder, known
from .microsoft_quantised import _product

_Visible = Callable[[list[Elem]], Elem]
"""What is added to the score at [batch, head, query, key]."""


def _heads(b: OnnxBuilder, x: Tensor, heads: int) -> Tensor:
    """[B, S, N * H] as [B, N, S, H]."""
    return b.permute(b.reshape(x, [*x.dims[:2], heads, b.floordiv(x.dims[2], heads)]), [0, 2, 1, 3])


def _attend(
    b: OnnxBuilder, query: Tensor, key: Tensor, value: Tensor, scale: float, added: list[_Visible], softcap: float = 0.0
) -> Tensor:
    """softmax(scale * query @ key^T + ...) @ value for heads of [B, N, S, H], as [B, S, N * H]."""
    wide = dtypes.opmath(query.dtype)
    batch, heads, steps, _ = query.dims
    total = key.dims[2]
    factor = scale or 1.0 / math.sqrt(_static(query.dims[3]))
    flipped = b.permute(key, [0, 1, 3, 2])
    scores = convert(b, b.aten("matmul", query, flipped, dtype=query.dtype), wide)

    def finish(score: Elem) -> Elem:
        at = [scalar.loop_index(d) for d in range(4)]
        score = score * factor
        if softcap:
            score = scalar.tanh(score / softcap) * softcap
        for each in added:
            score = score + each(at).to(wide)
        return score

    dims = [batch, heads, steps, total]
    weights = b.aten("softmax.int", b.map(wide, [scores], finish, dims=dims), -1, None, dtype=wide)
    y = b.aten("matmul", convert(b, weights, value.dtype), value, dtype=value.dtype)
    return b.reshape(b.permute(y, [0, 2, 1, 3]), [batch, steps, b.mul(heads, value.dims[3])])


def _static(extent: Extent) -> int:
    if not isinstance(extent, int):
        raise NotLowerable("heads of dynamic size")
    return extent


def _number(value: Any) -> Elem:
    return scalar.constant(value, torch.float32)


def _padding(b: OnnxBuilder, mask: Tensor, batch: Extent, total: Extent, filler: float) -> _Visible:
    """What a mask adds: it has lengths [B], or 1 for each key that is seen, [B, T] or [B, S, T]."""

    def added(at: list[Elem]) -> Elem:
        row, _, step, place = at
        if mask.rank == 1:
            end = b.extract(mask, [row]).to(torch.int64)
            seen = scalar.compare("lt", place, end)
            return scalar.select(seen, _number(0.0), filler)
        index = {2: [row, place], 3: [row, step, place]}.get(mask.rank)
        if index is None:
            raise NotLowerable("a mask of four dims")
        return scalar.select(scalar.compare("gt", b.extract(mask, index), 0), _number(0.0), filler)

    if mask.rank == 1:
        b.require_equal(mask.dims[0], batch, "Attention: only masks with a length for each sequence are supported")
    else:
        b.require_equal(mask.dims[-1], total, "Attention: the mask has another length than the keys")
    return added


def _causal(b: OnnxBuilder, past: Extent) -> _Visible:
    def added(at: list[Elem]) -> Elem:
        last = at[2] + scalar.from_extent(past, torch.int64)
        return scalar.select(scalar.compare("le", at[3], last), _number(0.0), -math.inf)

    return added


def _bias(b: OnnxBuilder, bias: Tensor) -> _Visible:
    def added(at: list[Elem]) -> Elem:
        zero = scalar.constant(0, torch.int64)
        return b.extract(bias, [zero if d == 1 else i for d, i in zip(bias.dims, at, strict=True)])

    return added


def _joined(b: OnnxBuilder, past: Tensor | None, now: Tensor) -> Tensor:
    return now if past is None else b.concat([past, now], 2)


def _self_attention(
    b: OnnxBuilder,
    projected: Tensor,
    mask: Tensor | None,
    past: Tensor | None,
    bias: Tensor | None,
    heads: int,
    sizes: list[int] | None,
    causal: int,
    scale: float,
    filler: float,
) -> tuple[Tensor, Tensor]:
    """Attention of queries, keys and values beside each other; also the keys and values seen so far."""
    third = _static(b.floordiv(projected.dims[2], 3))
    widths = list(sizes or [third] * 3)
    offsets = [0, widths[0], widths[0] + widths[1]]
    q, k, v = (
        _heads(b, b.slice(projected, 2, offset, width), heads) for offset, width in zip(offsets, widths, strict=True)
    )
    before: Extent = 0
    if past is not None:
        before = past.dims[3]
        old = [b.reshape(b.slice(past, 0, i, 1), past.dims[1:]) for i in range(2)]
        k, v = b.concat([old[0], k], 2), b.concat([old[1], v], 2)
    added = [] if mask is None else [_padding(b, mask, q.dims[0], k.dims[2], filler)]
    added += [_causal(b, before)] if causal else []
    added += [] if bias is None else [_bias(b, bias)]
    y = _attend(b, q, k, v, scale, added)
    present = b.concat([b.unsqueeze(k, 0), b.unsqueeze(v, 0)], 0) if k.dims[3] == v.dims[3] else k
    return y, present


@lowers("onnx.com.microsoft.Attention")
def attention(
    b: OnnxBuilder,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    scores_bias: Tensor | None = None,
    past_length: Tensor | None = None,
    num_heads: int = 1,
    qkv_hidden_sizes: list[int] | None = None,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Projections of x to queries, keys and values, and attention; also the keys and values seen so far."""
    if do_rotary or past_present_share_buffer or past_length is not None:
        raise NotLowerable("rotary embeddings, or a buffer that past and present share")
    product = b.aten("matmul", x, weights, dtype=x.dtype)
    projected = product if bias is None else b.elementwise(x.dtype, [product, bias], lambda p, c: p + c)
    return _self_attention(
        b,
        projected,
        mask,
        past,
        scores_bias,
        num_heads,
        qkv_hidden_sizes,
        unidirectional,
        scale,
        mask_filter_value,
    )


@lowers("onnx.QAttention")
def quantised_attention(
    b: OnnxBuilder,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Attention whose inputs and weights are quantised."""
    if do_rotary:
        raise NotLowerable("rotary embeddings")
    projected = _product(b, x, weights, x_scale, weight_scale, x_zero, weight_zero, bias)
    return _self_attention(b, projected, mask, past, None, num_heads, None, unidirectional, scale, mask_filter_value)


@lowers("onnx.MultiHeadAttention")
def multi_head_attention(
    b: OnnxBuilder,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    scores_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *others: Tensor | None,
    num_heads: int = 1,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of queries, keys and values; also the keys and values seen so far."""
    if any(x is not None for x in others):
        raise NotLowerable("a past in a buffer of its own")
    if query.rank == 5 or key is None:
        raise NotLowerable("packed queries, keys and values")

    def biased(x: Tensor, offset: Extent) -> Tensor:
        if bias is None:
            return x
        own = b.slice(bias, 0, offset, x.dims[2])
        return b.elementwise(x.dtype, [x, own], lambda x, c: x + c)

    width = query.dims[2]
    q = _heads(b, biased(query, 0), num_heads)
    if key.rank == 5:
        size = _static(key.dims[4])
        both = b.permute(key, [3, 0, 2, 1, 4])
        k, v = (b.reshape(b.slice(both, 0, i, 1), both.dims[1:]) for i in range(2))
        if bias is not None:
            raise NotLowerable(f"a bias of packed keys and values of size {size}")
    elif value is None:
        raise NotLowerable("packed keys and values")
    elif key.rank == 4:
        k, v = key, value
    else:
        k = _heads(b, biased(key, width), num_heads)
        v = _heads(b, biased(value, b.mul(width, 2)), num_heads)
    before: Extent = 0 if past_key is None else past_key.dims[2]
    k, v = _joined(b, past_key, k), _joined(b, past_value, v)
    added = [] if mask is None else [_padding(b, mask, q.dims[0], k.dims[2], mask_filter_value)]
    added += [_causal(b, before)] if unidirectional else []
    added += [] if scores_bias is None else [_bias(b, scores_bias)]
    return _attend(b, q, k, v, scale, added), k, v


def _rotated(
    b: OnnxBuilder,
    x: Tensor,
    place: Callable[[Elem, Elem], Elem],
    cos: Tensor,
    sin: Tensor,
    interleaved: int,
) -> Tensor:
    """[B, N, S, H] with pairs of elements turned by an angle that depends on their place."""
    half = _static(cos.dims[1])
    wide = dtypes.opmath(x.dtype)

    def body(own: Elem) -> Elem:
        row, head, step, column = (scalar.loop_index(d) for d in range(4))
        if interleaved:
            pair = scalar.trunc_divide(column, 2)
            first = (column - pair * 2).eq(0)
            other = scalar.select(first, column + 1, column - 1)
        else:
            first = scalar.compare("lt", column, half)
            pair = scalar.select(first, column, column - half)
            other = scalar.select(first, column + half, column - half)
        inside = scalar.compare("lt", column, 2 * half)
        pair = scalar.select(inside, pair, 0)
        other = scalar.select(inside, other, 0)
        angle = b.checked_index(place(row, step), cos.dims[0], wrap=False)
        c, s = (b.extract(t, [angle, pair]).to(wide) for t in (cos, sin))
        partner = b.extract(x, [row, head, step, other]).to(wide) * s
        own = own.to(wide)
        turned = own * c + scalar.select(first, partner * -1.0, partner)
        return scalar.select(inside, turned, own).to(x.dtype)

    return b.map(x.dtype, [x], body)


@lowers("onnx.com.microsoft.RotaryEmbedding")
def rotary_embedding(
    b: OnnxBuilder,
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Tensor:
    """Turns pairs of elements by angles that depend on their place in the sequence."""
    if scale != 1.0 or is_packed_batching:
        raise NotLowerable("scaled or packed rotary embeddings")
    flat = x.rank == 3
    size = 2 * _static(cos.dims[1])
    heads = num_heads or (_static(x.dims[2]) // size if flat else 1)
    four = _heads(b, x, heads) if flat else x

    def place(row: Elem, step: Elem) -> Elem:
        if positions.rank == 1:
            return b.extract(positions, [scalar.constant(0, torch.int64)]) + step
        return b.extract(positions, [row, step])

    y = _rotated(b, four, place, cos, sin, interleaved)
    return b.reshape(b.permute(y, [0, 2, 1, 3]), x.dims) if flat else y


@lowers("onnx.GroupQueryAttention")
@known(6)
def group_query_attention(
    b: OnnxBuilder,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total: Any,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    scores_bias: Tensor | None = None,
    *others: Tensor | None,
    num_heads: int = 1,
    kv_num_heads: int = 1,
    scale: float = 0.0,
    softcap: float = 0.0,
    local_window_size: int = -1,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    smooth_softmax: int = 0,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of which several query heads share keys and values; also the keys and values seen so far.

    ``lengths`` are those of the sequences with the new elements, less one.
    """
    if smooth_softmax or any(x is not None for x in others):
        raise NotLowerable("a smooth softmax, or sinks")
    batch, steps = query.dims[:2]
    if key is None or value is None:
        each = _static(query.dims[2]) // (num_heads + 2 * kv_num_heads)
        widths = [num_heads * each, kv_num_heads * each, kv_num_heads * each]
        offsets = [0, widths[0], widths[0] + widths[1]]
        query, key, value = (b.slice(query, 2, o, w) for o, w in zip(offsets, widths, strict=True))
    (whole,) = b.extents(total)
    before = 0 if past_key is None else past_key.dims[2]
    length = b.maximum(whole, before)
    lengths = b.reshape(lengths, [batch])

    def past(row: Elem) -> Elem:
        """How many elements of a sequence were there before; those of a prompt are all new."""
        own = b.extract(lengths, [row]).to(torch.int64) + 1 - scalar.from_extent(steps, torch.int64)
        prompt = scalar.from_extent(whole, torch.int64).eq(scalar.from_extent(steps, torch.int64))
        return scalar.select(prompt, scalar.constant(0, torch.int64), own)

    q, k, v = (_heads(b, x, n) for x, n in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    if do_rotary:
        assert cos is not None and sin is not None

        def place(row: Elem, step: Elem) -> Elem:
            return past(row) + step if positions is None else b.extract(positions, [row, step]).to(torch.int64)

        q, k = (_rotated(b, x, place, cos, sin, rotary_interleaved) for x in (q, k))

    def present(now: Tensor, old: Tensor | None) -> Tensor:
        def body() -> Elem:
            row, head, at, column = (scalar.loop_index(d) for d in range(4))
            first = past(row)
            last = scalar.from_extent(b.sub(steps, 1), torch.int64)
            new = at - first
            inside = scalar.minimum(scalar.maximum(new, 0), last)
            value = b.extract(now, [row, head, inside, column])
            value = scalar.select(inside.eq(new), value, 0.0)
            if old is None:
                return value
            bound = scalar.from_extent(b.sub(old.dims[2], 1), torch.int64)
            known = b.extract(old, [row, head, scalar.maximum(scalar.minimum(at, bound), 0), column])
            return scalar.select(scalar.compare("lt", at, first), known, value)

        return b.generic([], [], [batch, kv_num_heads, length, now.dims[3]], now.dtype, body)

    seen_k, seen_v = present(k, past_key), present(v, past_value)

    def visible(at: list[Elem]) -> Elem:
        last = past(at[0]) + at[2]
        ok = scalar.compare("le", at[3], last)
        result = scalar.select(ok, _number(0.0), -math.inf)
        if local_window_size >= 0:
            near = scalar.compare("gt", at[3], last - local_window_size)
            result = scalar.select(near, result, -math.inf)
        return result

    group = num_heads // kv_num_heads

    def repeated(x: Tensor) -> Tensor:
        if group == 1:
            return x
        dims = [batch, kv_num_heads, group, *x.dims[2:]]
        return b.reshape(b.broadcast(b.unsqueeze(x, 2), dims), [batch, num_heads, *x.dims[2:]])

    added = [visible] + ([] if scores_bias is None else [_bias(b, scores_bias)])
    return _attend(b, q, repeated(seen_k), repeated(seen_v), scale, added, softcap), seen_k, seen_v
