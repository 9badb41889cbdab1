"""A decoder of GPT-2-small's shape reading a prompt: the last token's logits, and every layer's keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are GPT-2 small's."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024


SMALL_CONFIG = Config(layers=2, width=64, heads=4, vocabulary=301, positions=160)


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """The result for [batch, length, width], and keys and values of the past and of these tokens."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        # One new token sees all of the past: nothing is to be masked.
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), k, v


class Decoder(nn.Module):
    """Token and position embeddings, blocks, and the output projection, which shares the embedding's weights."""

    def __init__(self, config: Config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        # As GPT-2 does: residuals add up over the blocks, and large ones would drown what the last ones say.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("project.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * config.layers) if deep else 1.0))

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """The last token's logits, then each layer's keys and values; `past` holds those of the tokens before."""
        start = past[0].shape[2] if past else 0
        places = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(places)
        cache: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            x, k, v = block(x, (past[2 * i], past[2 * i + 1]) if past else None)
            cache += [k, v]
        return F.linear(self.norm(x[:, -1]), self.tokens.weight), *cache


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randint(config.vocabulary, shape, generator=generator),)

    return Workload(
        title="GPT-2 prefill",
        dims={"batch": (1, 8), "length": (2, config.positions)},
        module=lambda: Decoder(config),
        tensors=inputs,
        axes=({0: "batch", 1: "length"},),
        shapes=shapes,
        quick=quick,
        tolerance=2e-5,
    )


FULL = _workload(
    Config(),
    (
        *((1, length) for length in (2, 7, 16, 17, 31, 64, 127, 128, 257, 512, 1024)),
        *((2, 67), (4, 128), (7, 23), (8, 256)),
    ),
    ((1, 7), (1, 31), (1, 128)),
)
SMALL = _workload(SMALL_CONFIG, ((1, 2), (1, 17), (3, 31), (8, 127), (1, 160)), ())
