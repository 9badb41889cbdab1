"""Mixture of depths: in each layer a router picks the tokens that are worth it; all others go around the layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({0: Dim("length", min=4, max=96)},)


class Layer(nn.Module):
    """What a layer adds to the tokens that were picked; they see each other alone."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] to the same."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(0, 1) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = self.project(F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1))
        return y + self.down(F.gelu(self.up(self.norm2(x + y))))


class MixtureOfDepths(nn.Module):
    """A transformer on one sequence."""

    def __init__(self, features: int = 24, width: int = 64, heads: int = 4, layers: int = 4, capacity: float = 0.5):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.routers = nn.ModuleList([nn.Linear(width, 1) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.capacity = capacity

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states [length, width] of [length, features]."""
        most = int(self.capacity * x.shape[0])
        x = self.embed(x)
        for layer, router in zip(self.layers, self.routers, strict=True):
            scores = router(x).squeeze(-1)
            picked = torch.nonzero(scores > 0).squeeze(-1)
            if picked.numel() == 0:
                continue
            if picked.numel() > most:
                picked = scores.topk(most).indices.sort().values
            gate = torch.sigmoid(scores[picked]).unsqueeze(-1)
            x = x.index_add(0, picked, gate * layer(x[picked]))
        return self.norm(x)


def make_model(seed: int = 0) -> MixtureOfDepths:
    """Random weights; each router finds nothing in a third of the sequences, and too much in a third."""
    torch.manual_seed(seed)
    model = MixtureOfDepths().eval().requires_grad_(False)
    sequences = [x for (x,) in inputs(90, seed + 1)]
    for router in model.routers:
        router.weight *= 4.0
        scores: list[Tensor] = []
        hook = router.register_forward_hook(lambda _m, _i, result, scores=scores: scores.append(result.squeeze(-1)))
        for x in sequences:
            model(x)
        hook.remove()
        router.bias -= torch.stack([s.quantile(0.85) for s in scores]).median()
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Sequences of all lengths with a drift each."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(4, 97, (), generator=generator))
        drift = 2.0 * torch.randn(24, generator=generator)
        yield (torch.randn(length, 24, generator=generator) + drift,)
