"""Cases of attention: sizes of heads, many keys in parts, caches that grow."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from .case import Case, Tensors, random


class HeadSizes(nn.Module):
    """Attention whose heads fit a matrix unit: of one size and another, masked, causal, with shared keys."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor) -> Any:
        def attend(*args: Tensor, **given: Any) -> Tensor:
            return F.scaled_dot_product_attention(*args, **given)

        return (
            attend(q, k, v),
            attend(q, k, v, keep[:, None, None, :]),
            attend(q[..., :24], k[..., :24], v[..., :16], bias),
            attend(q, q, q, is_causal=True).transpose(1, 2).flatten(2),
            attend(q, k[:, :1], v[:, :1], enable_gqa=True),
        )


class ManyKeys(nn.Module):
    """Few queries and many keys: devices divide the keys, and heads that share keys become queries of one."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor) -> Any:
        def attend(*args: Tensor, **given: Any) -> Tensor:
            return F.scaled_dot_product_attention(*args, **given)

        return (
            attend(q, k, v, bias, enable_gqa=True).transpose(1, 2).flatten(2),
            attend(q, k, v, keep[:, None, None, :], enable_gqa=True),
            attend(q[..., :24], k[:, :1, :, :24], v[:, :1, :, :10], enable_gqa=True),
            attend(q, k, v, is_causal=True, enable_gqa=True),
        )


def _many_keys(l: int, s: int, dtype: torch.dtype = torch.float32) -> Tensors:
    """The first sequence sees keys behind the first third, the second one sees none."""
    keep = torch.rand(2, s) > 0.3
    keep[0, : s // 3] = False
    keep[1] = False
    bias = random(l, s).masked_fill(torch.rand(l, s) > 0.9, float("-inf"))
    return (
        *(x.to(dtype) for x in (random(2, 4, l, 32), random(2, 2, s, 32), random(2, 2, s, 32))),
        keep,
        bias.to(dtype),
    )


def many_keys_case(name: str, dtype: torch.dtype, tolerance: float) -> Case:
    l, s = Dim("l", min=1, max=99), Dim("s", min=1, max=2048)
    return Case(
        name,
        ManyKeys,
        lambda l, s: _many_keys(l, s, dtype),
        ({2: l}, {2: s}, {2: s}, {1: s}, {0: l, 1: s}),
        [(1, 1), (1, 255), (1, 256), (3, 1031), (40, 700), (99, 300)],
        (5, 7),
        tolerance=tolerance,
    )


class InfiniteHeads(nn.Module):
    """Attention where queries, keys and values have infinities: what sees them is NaN or infinite, the rest is not."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        # Whole numbers have no rest in a matrix unit.
        y = F.scaled_dot_product_attention(q.round(), k.round(), v.round(), keep[:, None, None, :])
        return y.isnan(), y.isinf(), torch.where(y.isfinite(), y, 0.0)


def infinite_heads(n: int) -> Tensors:
    q, k, v = (random(2, 2, n, 32) for _ in range(3))
    inf = float("inf")
    q[0, 0, n // 2, 3] = -inf
    k[0, 1, n // 3, 5] = inf
    v[1, 0, n // 2, 7] = inf
    v[1, 1, 0, :] = -inf
    keep = torch.ones(2, n, dtype=torch.bool)
    keep[1, 0] = n == 1
    return q, k, v, keep


class Cache(nn.Module):
    """A decoder's step: a key and a value join those of the past, which are results, too."""

    def forward(self, past_key: Tensor, past_value: Tensor, key: Tensor, value: Tensor, query: Tensor) -> Any:
        keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        return F.scaled_dot_product_attention(query, keys, values), keys, values


class LongCache(nn.Module):
    """The same where heads share keys, and with several new rows of them."""

    def forward(self, past_key: Tensor, past_value: Tensor, key: Tensor, value: Tensor, query: Tensor) -> Any:
        keys, values = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        return F.scaled_dot_product_attention(query, keys, values, enable_gqa=True), keys, values


def long_cache(name: str, dtype: torch.dtype, tolerance: float) -> Case:
    p, n = Dim("p", min=0, max=2047), Dim("n", min=1, max=40)

    def inputs(p: int, n: int) -> Tensors:
        shapes = ((2, 2, p, 32), (2, 2, p, 32), (2, 2, n, 32), (2, 2, n, 32), (2, 8, n, 32))
        return tuple(random(*shape).to(dtype) for shape in shapes)

    return Case(
        name,
        LongCache,
        inputs,
        ({2: p}, {2: p}, {2: n}, {2: n}, {2: n}),
        [(0, 1), (1, 1), (254, 1), (255, 1), (256, 1), (300, 17), (1031, 1), (0, 33)],
        (5, 7),
        tolerance=tolerance,
    )
