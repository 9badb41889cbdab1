"""Layer drop by policy: a transformer skips layers that its router finds needless, and stops where two in a row are."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=48)},)


class Layer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width] to the same."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LayerDrop(nn.Module):
    """An encoder of sentences."""

    def __init__(self, vocabulary: int = 200, width: int = 64, heads: int = 4, layers: int = 6):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.routers = nn.ModuleList([nn.Linear(width, 1) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def wanted(self, router: nn.Module, x: Tensor) -> bool:
        """Whether a layer is to run on these hidden states."""
        return bool(router(x.mean(dim=1)).mean() > 0)

    def forward(self, ids: Tensor) -> tuple[Tensor, int]:
        """Embeddings of the sentences, and how many layers ran."""
        x = self.tokens(ids)
        ran = skipped = 0
        for layer, router in zip(self.layers, self.routers, strict=True):
            if self.wanted(router, x):
                x = layer(x)
                ran += 1
                skipped = 0
            else:
                skipped += 1
                if skipped == 2:
                    break
        return self.norm(x).mean(dim=1), ran


def make_model(seed: int = 0) -> LayerDrop:
    """Random weights; of what reaches a router, about two thirds are to run its layer."""
    torch.manual_seed(seed)
    model = LayerDrop().eval().requires_grad_(False)
    sentences = [ids for (ids,) in inputs(100, seed + 1)]
    for router in model.routers:
        router.weight *= 4.0
        seen: list[float] = []
        hook = router.register_forward_hook(lambda _m, _i, result, seen=seen: seen.append(result.mean().item()))
        for ids in sentences:
            model(ids)
        hook.remove()
        router.bias -= sorted(seen)[len(seen) // 3]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Sentences of all lengths; the words of each are from a part of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 5, (), generator=generator))
        length = int(torch.randint(2, 49, (), generator=generator))
        first = int(torch.randint(0, 180, (), generator=generator))
        yield (torch.randint(first, first + 20, (batch, length), generator=generator),)
