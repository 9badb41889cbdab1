"""Attention of ONNX that has a state instead of all keys and values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch_mlir import ir

from ... import scalar
from ...regions import LoopStep
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder

_F32 = torch.float32


@lowers("onnx.LinearAttention")
def linear_attention(
    b: OnnxBuilder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    q_num_heads: int = 1,
    kv_num_heads: int = 1,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int = 0,
) -> tuple[Tensor, Tensor]:
    """One step for each element of a sequence: what decays of the state, what is written to it, what is read of it.

    ``chunk_size`` says how others cut the sequence; results do not depend on it.
    """
    batch, steps = query.dims[:2]
    heads, group = kv_num_heads, q_num_heads // kv_num_heads
    keys, values = b.floordiv(query.dims[2], q_num_heads), b.floordiv(value.dims[2], heads)

    def like_query(x: Tensor | None) -> Any:
        """What is given for each step, with the extents of ``query``; the steps cannot check them."""
        if x is None:
            return None
        for have, want in zip(x.dims[:2], (batch, steps), strict=True):
            b.require_equal(have, want, "LinearAttention: extents of operands differ")
        return b.reshape(x, [batch, steps, x.dims[2]])

    key, value, decay, beta = (like_query(x) for x in (key, value, decay, beta))
    if not isinstance(keys, int) or not isinstance(values, int):
        raise NotLowerable("heads of dynamic size")
    scale = scale or 1.0 / math.sqrt(keys)
    b.require_equal(key.dims[2], heads * keys, "LinearAttention: the keys' width is not that of the queries")

    def body(index: ir.Value, carried: list[Tensor]) -> LoopStep:
        def now(x: Tensor, *dims: Any) -> Tensor:
            return b.reshape(b.slice(x, 1, index, 1), [batch, *dims])

        (state,) = carried
        k, v = now(key, heads, keys, 1), now(value, heads, 1, values)
        if decay is not None:
            # One number for each head, or for each of its rows.
            g = now(decay, heads, b.floordiv(decay.dims[2], heads), 1)
            state = b.elementwise(_F32, [state, g], lambda s, g: s * scalar.exp(g))
        inputs: list[Tensor] = [state, k, v]
        if beta is not None:
            seen = b.contract(
                convert(b, b.reshape(k, [batch, heads, keys]), _F32),
                state,
                [0, 1, 3],
                [0, 1, 3, 2],
                [batch, heads, values, keys],
            )
            inputs += [b.reshape(seen, [batch, heads, 1, values]), now(beta, beta.dims[2], 1, 1)]

        def write(state: Elem, k: Elem, v: Elem, *correction: Elem) -> Elem:
            return state + k * (correction[1] * (v - correction[0]) if correction else v)

        state = b.elementwise(_F32, inputs, write)
        q = convert(b, now(query, heads, group, keys), _F32)
        read = b.contract(q, state, [0, 1, 2, 4], [0, 1, 4, 3], [batch, heads, group, values, keys])
        result = b.elementwise(query.dtype, [read], lambda r: r * scale, compute=_F32)
        return LoopStep([state], [b.reshape(result, [batch, values * q_num_heads])])

    shape = [batch, heads, keys, values]
    first = b.full(shape, 0.0, _F32) if past is None else convert(b, b.reshape(past, shape), _F32)
    (last,), (y,) = b.loop([first], body, [([batch, values * q_num_heads], query.dtype)], count=steps)
    return b.permute(y, [1, 0, 2]), convert(b, last, query.dtype if past is None else past.dtype)
