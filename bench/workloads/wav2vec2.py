"""An encoder of sound like wav2vec 2.0: strided convolutions over samples, then a transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shape, Workload

_KERNELS, _STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    channels: int = 256
    width: int = 384
    hidden: int = 1536
    heads: int = 6
    layers: int = 4
    samples: int = 80_000


class Layer(nn.Module):
    """A transformer layer, normalised behind each half."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.qkv, self.out = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result for [batch, frames, width]."""
        batch, frames, width = x.shape
        qkv = self.qkv(x).view(batch, frames, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = self.norm1(x + self.out(attended.transpose(1, 2).reshape(batch, frames, width)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """Frames of 20 ms from samples at 16 kHz."""

    def __init__(self, config: Config):
        super().__init__()
        inputs = (1, *[config.channels] * (len(_KERNELS) - 1))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(i, config.channels, kernel, stride, bias=False)
            for i, kernel, stride in zip(inputs, _KERNELS, _STRIDES, strict=True)
        )
        self.group = nn.GroupNorm(config.channels, config.channels)
        self.norm, self.project = nn.LayerNorm(config.channels), nn.Linear(config.channels, config.width)
        self.places = nn.Conv1d(config.width, config.width, 31, padding=15, groups=16)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.first = nn.LayerNorm(config.width)

    def forward(self, samples: Tensor) -> Tensor:
        """Hidden states [batch, frames, width] of [batch, samples]."""
        x = samples.unsqueeze(1)
        for i, convolution in enumerate(self.convolutions):
            x = convolution(x)
            x = F.gelu(self.group(x) if i == 0 else x)
        x = self.project(self.norm(x.transpose(1, 2)))
        x = self.first(x + F.gelu(self.places(x.transpose(1, 2))).transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        return x


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, generator=generator),)

    return Workload(
        title="wav2vec2-like encoder",
        # Shorter sounds make no frame.
        dims={"batch": (1, 4), "samples": (800, config.samples)},
        module=lambda: Encoder(config),
        tensors=inputs,
        axes=({0: "batch", 1: "samples"},),
        shapes=shapes,
        quick=quick,
        tolerance=5e-5,
    )


FULL = _workload(
    Config(),
    ((1, 4_000), (1, 8_123), (1, 16_000), (1, 33_333), (1, 48_000), (1, 80_000), (2, 24_001), (4, 16_000)),
    ((1, 4_000), (1, 16_000), (2, 24_001)),
)
SMALL = _workload(
    Config(channels=16, width=32, hidden=64, heads=4, layers=1, samples=8_000), ((1, 800), (3, 2_345), (4, 8_000)), ()
)
