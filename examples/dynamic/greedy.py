"""Greedy decoding until end-of-sequence: a translation model whose decoder's keys and values grow by a token a step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({1: Dim("length", min=2, max=32)},)


class Attention(nn.Module):
    """Attention whose keys and values are made separately, to be kept."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.project = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def split(self, x: Tensor) -> Tensor:
        """[batch, length, width] to [batch, heads, length, size]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def memory(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values."""
        key, value = self.key_value(x).chunk(2, dim=-1)
        return self.split(key), self.split(value)

    def forward(self, x: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        """What the queries of `x` find."""
        attended = F.scaled_dot_product_attention(self.split(self.query(x)), *memory)
        return self.project(attended.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Pre-norm self-attention and MLP."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[1, length, width] to the same."""
        y = self.norm1(x)
        x = x + self.attention(y, self.attention.memory(y))
        return x + self.mlp(self.norm2(x))


class DecoderLayer(nn.Module):
    """Attention over the tokens so far and over the source, and an MLP, for one new token."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.itself, self.source = Attention(width, heads), Attention(width, heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(
        self, x: Tensor, source: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The new hidden state, and the keys and values of all tokens so far."""
        y = self.norm1(x)
        key, value = self.itself.memory(y)
        key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        x = x + self.itself(y, (key, value))
        x = x + self.source(self.norm2(x), source)
        return x + self.mlp(self.norm3(x)), (key, value)


class Translator(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, vocabulary: int = 120, width: int = 64, heads: int = 4, layers: int = 2, most: int = 16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(64, width)
        self.encoder = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.decoder = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.begin, self.end, self.most = 0, 1, most

    def embed(self, ids: Tensor, start: int) -> Tensor:
        """Tokens at their places."""
        return self.tokens(ids) + self.places(torch.arange(start, start + ids.shape[1]))

    def forward(self, source: Tensor) -> Tensor:
        """The translation of [1, length] token ids: [1, its length], with the end-of-sequence token if it came."""
        x = self.embed(source, 0)
        for layer in self.encoder:
            x = layer(x)
        sources = [layer.source.memory(x) for layer in self.decoder]
        cache = [layer.itself.memory(x[:, :0]) for layer in self.decoder]
        token = torch.full((1, 1), self.begin)
        tokens = []
        for position in range(self.most):
            x = self.embed(token, position)
            for i, layer in enumerate(self.decoder):
                x, cache[i] = layer(x, sources[i], cache[i])
            token = self.head(self.norm(x)).argmax(dim=-1)
            tokens.append(token)
            if token.item() == self.end:
                break
        return torch.cat(tokens, dim=1)


def make_model(seed: int = 0) -> Translator:
    """Random weights; the end's bias is such that two of three sentences end before the limit."""
    torch.manual_seed(seed)
    model = Translator().eval().requires_grad_(False)
    model.head.weight *= 4.0
    model.head.bias[model.end] = -100.0
    gaps: list[float] = []
    hook = model.head.register_forward_hook(
        lambda _module, _inputs, logits: gaps.append((logits.max() - logits[0, 0, model.end]).item())
    )
    needed = []
    for (source,) in inputs(60, seed + 1):
        gaps.clear()
        model(source)
        needed.append(min(gaps))
    hook.remove()
    model.head.bias[model.end] += sorted(needed)[40]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Sentences of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(2, 33, (), generator=generator))
        yield (torch.randint(2, 120, (1, length), generator=generator),)
