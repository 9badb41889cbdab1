"""Greedy decoding as a `while_loop`, whose cache has room for all tokens from the start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from .network import workloads


class Written(nn.Module):
    """What a loop carries has one shape: the cache is masked, and tokens are cut at the end."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, source: Tensor) -> Tensor:
        """The translation."""
        model = self.model
        x = model.embed(source, 0)
        for layer in model.encoder:
            x = layer(x)
        sources = [tuple(t.clone() for t in layer.source.memory(x)) for layer in model.decoder]
        places = torch.arange(model.most)
        sizes = (len(model.decoder), 2, 1, model.decoder[0].itself.heads, model.most, 1)
        cache = x.new_zeros(*sizes[:5], x.shape[-1] // sizes[3])

        def unfinished(n: Tensor, token: Tensor, tokens: Tensor, cache: Tensor) -> Tensor:
            return (n < model.most) & ((n == 0) | (token != model.end).all())

        def step(n: Tensor, token: Tensor, tokens: Tensor, cache: Tensor) -> tuple[Tensor, ...]:
            now = places == n
            x = model.tokens(token) + model.places(n)
            caches = []
            for i, layer in enumerate(model.decoder):
                y = layer.norm1(x)
                new = torch.stack(layer.itself.memory(y))
                filled = torch.where(now.unsqueeze(-1), new, cache[i])
                caches.append(filled)
                attended = F.scaled_dot_product_attention(
                    layer.itself.split(layer.itself.query(y)),
                    filled[0],
                    filled[1],
                    attn_mask=(places <= n).unsqueeze(0),
                )
                x = x + layer.itself.project(attended.transpose(1, 2).flatten(2))
                x = x + layer.source(layer.norm2(x), sources[i])
                x = x + layer.mlp(layer.norm3(x))
            token = model.head(model.norm(x)).argmax(dim=-1)
            return n + 1, token, torch.where(now, token, tokens), torch.stack(caches)

        token = torch.full((1, 1), model.begin)
        carried = (torch.zeros((), dtype=torch.int64), token, token.expand(1, model.most).clone(), cache)
        n, _, tokens, _ = while_loop(unfinished, step, carried)
        length = n.item()
        torch._check(length >= 0)
        torch._check(length <= model.most)
        return tokens[:, :length]


FULL, SMALL = workloads("greedy", "Greedy decoding", Written)
