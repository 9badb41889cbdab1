"""A small GPT: a causal language model whose output projection shares the embedding's weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel


@dataclass(frozen=True)
class Config:
    """Sizes."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    vocabulary: int = 1024
    positions: int = 257
    dropout: float = 0.0


class Block(nn.Module):
    """Pre-norm causal attention and an MLP."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width] to the same shape."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.project(attended.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    """Logits [batch, length, vocabulary] of token ids [batch, length]."""

    def __init__(self, config: Config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(module: nn.Module, ids: Tensor) -> Tensor:
    """Cross-entropy of each next token; ids are [batch, length]."""
    return F.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def text(shape: Shape, generator: torch.Generator, vocabulary: int) -> tuple[Tensor]:
    """Sequences with a rule that can be learned: each token is the one before plus a step of the sequence's own."""
    batch, length = shape
    first = torch.randint(vocabulary, (batch, 1), generator=generator)
    step = torch.randint(1, 4, (batch, 1), generator=generator)
    return ((first + step * torch.arange(length)) % vocabulary,)


def _parts(module: nn.Module) -> list[dict[str, object]]:
    """Weight decay for matrices alone, as GPTs are trained."""
    matrices = [p for p in module.parameters() if p.dim() >= 2]
    vectors = [p for p in module.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def _model(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    return TrainingModel(
        title="small GPT" + (" with dropout" if config.dropout else ""),
        dims={"batch": (1, 64), "length": (3, config.positions)},
        module=lambda: GPT(config),
        loss=loss,
        batch=lambda shape, generator: text(shape, generator, config.vocabulary),
        axes=({0: "batch", 1: "length"},),
        options={"lr": 1e-3, "betas": (0.9, 0.95)},
        groups=_parts,
        random=config.dropout > 0,
        shapes=shapes,
        quick=quick,
    )


_TINY = Config(layers=2, width=32, heads=4, vocabulary=61, positions=64)
FULL = _model(
    Config(),
    (
        *((1, length) for length in (8, 17, 32, 50, 64, 127, 256)),
        *((2, 9), (2, 33), (2, 65), (4, 16), (4, 31), (4, 64), (4, 129), (7, 23), (8, 16), (8, 33), (8, 64)),
        *((16, 17), (16, 32)),
    ),
    ((1, 17), (4, 31), (8, 64)),
)
SMALL = _model(_TINY, ((1, 5), (2, 17), (7, 4), (3, 64), (5, 33)))
ONE_LAYER = _model(replace(_TINY, layers=1), SMALL.shapes)
SMALL_WITH_DROPOUT = _model(replace(_TINY, layers=1, dropout=0.2), SMALL.shapes)
