"""An encoder of speech: two strided convolutions over a spectrogram, then Conformer layers (Gulati et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    bins: int = 80
    width: int = 256
    hidden: int = 1024
    heads: int = 4
    kernel: int = 31
    layers: int = 4
    frames: int = 2_000


class Convolution(nn.Module):
    """Gated, depthwise over time."""

    def __init__(self, config: Config):
        super().__init__()
        width = config.width
        self.norm = nn.LayerNorm(width)
        self.gate, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, config.kernel, padding=config.kernel // 2, groups=width)
        self.batch = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Of [batch, frames, width]."""
        x = F.glu(self.gate(self.norm(x)), dim=-1).transpose(1, 2)
        return self.out(F.silu(self.batch(self.depthwise(x))).transpose(1, 2))


class Layer(nn.Module):
    """Half a feed-forward, attention, convolution, the other half."""

    def __init__(self, config: Config):
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.before, self.after = (
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, config.hidden), nn.SiLU(), nn.Linear(config.hidden, width)
            )
            for _ in range(2)
        )
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.convolution = Convolution(config)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result for [batch, frames, width]."""
        batch, frames, width = x.shape
        x = x + 0.5 * self.before(x)
        qkv = self.qkv(self.norm(x)).view(batch, frames, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.out(attended.transpose(1, 2).reshape(batch, frames, width))
        x = x + self.convolution(x)
        return self.last(x + 0.5 * self.after(x))


class Encoder(nn.Module):
    """A quarter as many hidden states as frames."""

    def __init__(self, config: Config):
        super().__init__()
        width = config.width
        self.first, self.second = nn.Conv2d(1, width, 3, 2), nn.Conv2d(width, width, 3, 2)
        self.project = nn.Linear(width * (((config.bins - 1) // 2 - 1) // 2), width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, spectrogram: Tensor) -> Tensor:
        """Hidden states [batch, frames / 4, width] of [batch, frames, bins]."""
        x = F.relu(self.second(F.relu(self.first(spectrogram.unsqueeze(1)))))
        x = self.project(x.transpose(1, 2).flatten(2))
        for layer in self.layers:
            x = layer(x)
        return x


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, config.bins, generator=generator),)

    return Workload(
        title="Conformer-like encoder",
        dims={"batch": (1, 8), "frames": (16, config.frames)},
        module=lambda: Encoder(config),
        tensors=inputs,
        axes=({0: "batch", 1: "frames"},),
        shapes=shapes,
        quick=quick,
        tolerance=5e-5,
    )


FULL = _workload(
    Config(),
    ((1, 16), (1, 100), (1, 301), (1, 800), (1, 2_000), (2, 457), (4, 300), (8, 211)),
    ((1, 100), (1, 301), (4, 300)),
)
SMALL = _workload(
    Config(bins=16, width=32, hidden=64, kernel=7, layers=1, frames=200), ((1, 16), (3, 67), (8, 200)), ()
)
