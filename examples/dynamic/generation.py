"""Greedy generation by a GPT-like decoder as one forward: the cache of keys and values lives in the loop.

`Growing` concatenates each token's keys and values to those before; `Preallocated` writes them into a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=32)},)


class Block(nn.Module):
    """Pre-norm attention and MLP, in parts between which a generator keeps its cache."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [batch, heads, length, size] each."""
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        return self.split(q), self.split(k), self.split(v)

    def split(self, x: Tensor) -> Tensor:
        """[batch, length, width] to [batch, heads, length, size]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's result from its input and what attention found."""
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """What both kinds of generation share."""

    def __init__(self, vocabulary: int = 300, width: int = 64, heads: int = 4, layers: int = 2, most: int = 32):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(128, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.end, self.most = 0, most

    def embed(self, ids: Tensor, start: int) -> Tensor:
        """Tokens at their places."""
        return self.tokens(ids) + self.places(torch.arange(start, start + ids.shape[1]))

    def next(self, x: Tensor) -> Tensor:
        """The most likely token after the last one: [batch, 1]."""
        return self.head(self.norm(x[:, -1:])).argmax(dim=-1)


class Growing(Decoder):
    """Generation with a cache that grows by concatenation."""

    def forward(self, prompt: Tensor) -> Tensor:
        """[batch, length] token ids with their continuation, up to where all rows have ended."""
        x = self.embed(prompt, 0)
        keys, values = [], []
        for block in self.blocks:
            q, k, v = block.heads_of(x)
            x = block.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
            keys.append(k)
            values.append(v)
        token = self.next(x)
        ids = torch.cat((prompt, token), dim=1)
        ended = token == self.end
        while ids.shape[1] < prompt.shape[1] + self.most and not ended.all():
            x = self.embed(token, ids.shape[1] - 1)
            for i, block in enumerate(self.blocks):
                q, k, v = block.heads_of(x)
                keys[i] = torch.cat((keys[i], k), dim=2)
                values[i] = torch.cat((values[i], v), dim=2)
                x = block.rest(x, F.scaled_dot_product_attention(q, keys[i], values[i]))
            token = torch.where(ended, self.end, self.next(x))
            ids = torch.cat((ids, token), dim=1)
            ended = ended | (token == self.end)
        return ids


class Preallocated(Decoder):
    """Generation with a cache as large as it can get."""

    def forward(self, prompt: Tensor) -> Tensor:
        """[batch, length] token ids with their continuation, up to where all rows have ended."""
        batch, length = prompt.shape
        ids = prompt.new_full((batch, length + self.most), self.end)
        ids[:, :length] = prompt
        x = self.embed(prompt, 0)
        caches = []
        for block in self.blocks:
            q, k, v = block.heads_of(x)
            cache = k.new_zeros(2, batch, block.heads, length + self.most, k.shape[-1])
            cache[0, :, :, :length] = k
            cache[1, :, :, :length] = v
            caches.append(cache)
            x = block.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        token = self.next(x)
        ended = token == self.end
        ids[:, length : length + 1] = token
        for position in range(length, length + self.most - 1):
            if ended.all():
                break
            x = self.embed(token, position)
            for block, cache in zip(self.blocks, caches, strict=True):
                q, k, v = block.heads_of(x)
                cache[0, :, :, position] = k[:, :, 0]
                cache[1, :, :, position] = v[:, :, 0]
                keys, values = cache[:, :, :, : position + 1]
                x = block.rest(x, F.scaled_dot_product_attention(q, keys, values))
            token = torch.where(ended, self.end, self.next(x))
            ids[:, position + 1] = token[:, 0]
            ended = ended | (token == self.end)
        return ids


KINDS = {"growing": Growing, "preallocated": Preallocated}


def make_model(seed: int = 0, kind: str = "growing") -> Decoder:
    """Random weights; the end's bias is such that about half of the prompts end before the limit."""
    torch.manual_seed(seed)
    model = KINDS[kind]().eval().requires_grad_(False)
    model.head.weight *= 4.0
    model.head.bias[model.end] = -100.0
    gaps: list[Tensor] = []
    hook = model.head.register_forward_hook(
        lambda _module, _inputs, logits: gaps.append(logits.amax(dim=-1) - logits[..., model.end])
    )
    needed: list[float] = []
    for (prompt,) in inputs(40, seed + 1):
        gaps.clear()
        model(prompt)
        needed.append(torch.cat(gaps, dim=1).amin(dim=1).max().item())
    hook.remove()
    model.head.bias[model.end] += sorted(needed)[20]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of prompts."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 5, (), generator=generator))
        length = int(torch.randint(2, 33, (), generator=generator))
        yield (torch.randint(1, 300, (batch, length), generator=generator),)
