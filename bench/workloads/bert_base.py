"""An encoder of BERT-base's shape, with padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, Workload

VOCABULARY = 30522


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are BERT-base's."""

    layers: int = 12
    width: int = 768
    hidden: int = 3072
    heads: int = 12
    vocabulary: int = VOCABULARY
    positions: int = 512


class Layer(nn.Module):
    """Attention over all tokens that are not padding, then two products; norms come after the residuals."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.query, self.key, self.value = (nn.Linear(config.width, config.width) for _ in range(3))
        self.project = nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.norm1, self.norm2 = (nn.LayerNorm(config.width, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The layer's result for [batch, length, width]; `mask` is true where a token may be looked at."""
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.project(attended))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """Embeddings, layers, and the first token's pooled vector."""

    def __init__(self, config: Config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.types = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.pooler = nn.Linear(config.width, config.width)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of all tokens, and the pooled one."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.tokens(ids) + self.places(places) + self.types(types))
        visible = mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, visible)
        return x, torch.tanh(self.pooler(x[:, 0]))


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, length = shape
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        lengths[0] = length
        mask = (torch.arange(length) < lengths[:, None]).long()
        ids = torch.randint(config.vocabulary, shape, generator=generator) * mask
        return ids, mask, torch.randint(2, shape, generator=generator) * mask

    return Workload(
        title="BERT-base",
        dims={"batch": (1, 16), "length": (2, config.positions)},
        module=lambda: Encoder(config),
        tensors=inputs,
        axes=({0: "batch", 1: "length"},) * 3,
        shapes=shapes,
        quick=quick,
        tolerance=2e-5,
    )


FULL = _workload(
    Config(),
    (
        *((1, length) for length in (2, 7, 15, 16, 17, 37, 64, 127, 128, 384, 512)),
        *((2, 101), (4, 31), (8, 64), (13, 29), (16, 128), (16, 512)),
    ),
    ((1, 7), (1, 37), (1, 128), (4, 31)),
)
SMALL = _workload(
    Config(layers=2, width=64, hidden=160, heads=4, vocabulary=500),
    ((1, 2), (1, 17), (3, 31), (16, 13), (2, 127), (1, 512)),
    (),
)
