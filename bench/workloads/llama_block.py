"""Llama-like blocks: RMSNorm, rotary positions, grouped queries, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are those of a model of about a billion parameters, with fewer layers."""

    layers: int = 2
    width: int = 1024
    hidden: int = 2816
    heads: int = 16
    groups: int = 4
    positions: int = 512


class Attention(nn.Module):
    """Causal attention; several heads share the keys and values of a group."""

    def __init__(self, config: Config):
        super().__init__()
        self.size = config.width // config.heads
        self.query = nn.Linear(config.width, config.heads * self.size, bias=False)
        self.key = nn.Linear(config.width, config.groups * self.size, bias=False)
        self.value = nn.Linear(config.width, config.groups * self.size, bias=False)
        self.project = nn.Linear(config.heads * self.size, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The result for [batch, length, width]; `cos` and `sin` are [length, size of a head]."""
        q, k, v = (f(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for f in (self.query, self.key, self.value))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.project(attended.transpose(1, 2).flatten(2))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (i, i + half) of each head by the angles of their position."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    """Pre-norm attention and gated MLP."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(config.width, eps=1e-5) for _ in range(2))
        self.attention = Attention(config)
        self.gate, self.up = (nn.Linear(config.width, config.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The layer's result for [batch, length, width]."""
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Blocks(nn.Module):
    """Layers and the final norm, on hidden states."""

    frequencies: Tensor

    def __init__(self, config: Config):
        super().__init__()
        size = config.width // config.heads
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, size, 2) / size), persistent=False)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states [batch, length, width] after the layers."""
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, config.width, generator=generator),)

    return Workload(
        title="Llama block",
        dims={"batch": (1, 8), "length": (1, config.positions)},
        module=lambda: Blocks(config),
        tensors=inputs,
        axes=({0: "batch", 1: "length"},),
        shapes=shapes,
        quick=quick,
        tolerance=2e-5,
    )


FULL = _workload(
    Config(),
    (
        *((1, length) for length in (1, 2, 7, 15, 16, 17, 31, 64, 127, 128, 257, 512)),
        *((2, 67), (5, 1), (4, 128), (7, 23), (8, 512)),
    ),
    ((1, 1), (1, 17), (1, 128), (4, 128)),
)
SMALL = _workload(
    Config(width=64, hidden=176, heads=8, groups=2), ((1, 1), (1, 2), (3, 17), (8, 31), (2, 128), (1, 512)), ()
)
