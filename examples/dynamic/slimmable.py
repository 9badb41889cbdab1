"""Width selection: a controller looks at the tokens and chooses how many heads and hidden units a block uses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

dynamic_shapes = ({0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=64)},)


class SlimLayer(nn.Module):
    """Attention and MLP of which a part can be used."""

    def __init__(self, width: int, heads: int, size: int, hidden: int):
        super().__init__()
        self.size = size
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, heads * size) for _ in range(3))
        self.project = nn.Linear(heads * size, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor, heads: int, hidden: int) -> Tensor:
        """The result with the first heads and hidden units only."""
        n = heads * self.size
        y = self.norm1(x)
        q, k, v = (
            F.linear(y, f.weight[:n], f.bias[:n]).unflatten(-1, (heads, self.size)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(attended, self.project.weight[:, :n], self.project.bias)
        y = F.gelu(F.linear(self.norm2(x), self.up.weight[:hidden], self.up.bias[:hidden]))
        return x + F.linear(y, self.down.weight[:, :hidden], self.down.bias)


class Slimmable(nn.Module):
    """A stack of layers that all run at the width that the controller finds enough."""

    def __init__(self, features: int = 24, width: int = 64, heads: int = 8, layers: int = 3, classes: int = 5):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.controller = nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, 1))
        self.easy, self.hard = -0.5, 0.5
        self.heads, self.hidden = heads, 4 * width
        self.layers = nn.ModuleList([SlimLayer(width, heads, width // heads, 4 * width) for _ in range(layers)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        """Logits of [batch, length, features], and the number of heads that were used."""
        x = self.embed(x)
        difficulty = self.controller(x.mean(dim=1)).amax()
        if difficulty < self.easy:
            heads, hidden = self.heads // 4, self.hidden // 4
        elif difficulty < self.hard:
            heads, hidden = self.heads // 2, self.hidden // 2
        else:
            heads, hidden = self.heads, self.hidden
        for layer in self.layers:
            x = layer(x, heads, hidden)
        return self.head(x.mean(dim=1)), heads


def make_model(seed: int = 0) -> Slimmable:
    """Random weights; a third of the inputs are easy, a third hard."""
    torch.manual_seed(seed)
    model = Slimmable().eval().requires_grad_(False)
    found = sorted(model.controller(model.embed(x).mean(dim=1)).amax().item() for (x,) in inputs(99, seed + 1))
    model.easy, model.hard = found[33], found[66]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of sequences with a drift each."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 5, (), generator=generator))
        length = int(torch.randint(2, 65, (), generator=generator))
        drift = torch.randn(1, 1, 24, generator=generator)
        yield (torch.randn(batch, length, 24, generator=generator) + drift,)
