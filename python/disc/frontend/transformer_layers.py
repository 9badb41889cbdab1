"""The fused operations that PyTorch's attention and encoder layers call where no gradient is needed, in their parts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

_PADDING = 1
"""The mask type of a mask [batch, keys]; others broadcast to the scores as they are."""


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of [batch, length, channels] with one matrix of the three projections, and its weights if needed."""
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    )
    if mask is not None:
        mask = mask.to(torch.bool)
        mask = mask[:, None, None, :] if mask_type == _PADDING else mask
    if not need_weights:
        # Of scaled_dot_product_attention's masks, true means used.
        attended = F.scaled_dot_product_attention(q, k, v, None if mask is None else mask.logical_not())
        weights = query.new_empty([0])
    else:
        scores = (q / math.sqrt(embed_dim // num_head)) @ k.transpose(-1, -2)
        weights = (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1)
        attended = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    return F.linear(attended.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """A layer of a transformer's encoder, of [batch, length, channels]."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else hidden.relu(), ffn_weight_2, ffn_bias_2)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], weight, bias, eps)

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        x = src + attention(norm(src, *first))
        return x + feed_forward(norm(x, *second))
    x = norm(src + attention(src), *first)
    return norm(x + feed_forward(x), *second)


DECOMPOSITIONS = {
    torch.ops.aten._native_multi_head_attention.default: multi_head_attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
