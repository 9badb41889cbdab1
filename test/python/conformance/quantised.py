"""Quantised models: products of integers are exact, weights stay codes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)

Q = torch.ops.quantized_decomposed


def _codes(low: int, high: int, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator).to(torch.int8)


class Quantised(nn.Module):
    """Products and convolutions of codes, of any signs, and weights of 8 and 4 bits behind activations in f32."""

    def __init__(self) -> None:
        super().__init__()
        self.even = nn.Buffer(_codes(-128, 127, 64, 37, seed=1))
        self.odd = nn.Buffer(_codes(-128, 127, 37, 21, seed=2))
        self.wide = nn.Buffer(_codes(-128, 127, 30, 64, seed=3))
        self.narrow = nn.Buffer(_codes(-8, 7, 30, 64, seed=4))
        self.unsigned = nn.Buffer((_codes(-128, 127, 64, 19, seed=7).to(torch.int32) + 128).to(torch.uint8))
        self.filters = nn.Buffer(_codes(-128, 127, 10, 4, 3, seed=8))
        self.single = nn.Buffer(2.0 ** _codes(-3, 3, 4, 1, 3, seed=9).to(torch.float32))
        self.steps, self.nothing = nn.Buffer(2.0 ** -torch.arange(10)), nn.Buffer(torch.zeros(10, dtype=torch.int64))
        generator = torch.Generator().manual_seed(5)
        self.scales = nn.Buffer(torch.rand(30, generator=generator) * 0.01)
        self.groups = nn.Buffer(torch.rand(30, 2, generator=generator) * 0.1)
        self.zeros = nn.Buffer(_codes(-8, 7, 30, 2, seed=6).to(torch.int32))

    def forward(self, codes: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        """Codes [n, 64] int8 and x [n, 64] f32."""
        even = (codes.to(torch.int32) - 3) @ self.even.to(torch.int32)
        odd = codes[:, :37].to(torch.int32) @ self.odd.to(torch.int32)
        positive = (codes.to(torch.int32) + 128).to(torch.uint8)
        mixed = codes.to(torch.int32) @ self.unsigned.to(torch.int32)
        unsigned = positive.to(torch.int32) @ self.unsigned.to(torch.int32)
        image = Q.dequantize_per_tensor(positive.view(-1, 4, 16), 0.5, 200, 0, 255, torch.uint8)
        filters = Q.dequantize_per_channel(self.filters, self.steps, self.nothing, 0, -128, 127, torch.int8)
        filtered = nn.functional.conv1d(image, filters, padding=1)
        wide = Q.dequantize_per_channel(
            self.wide, self.scales, self.zeros[:, 0].to(torch.int64), 0, -128, 127, torch.int8
        )
        narrow = Q.dequantize_per_channel_group(
            self.narrow, self.groups, self.zeros, -8, 7, torch.int8, 32, torch.float32
        )
        single = nn.functional.conv1d(image, self.single, padding=1, groups=4)
        rows = Q.dequantize_per_tensor(positive.view(-1, 16, 4), 0.5, 9, 0, 255, torch.uint8).permute(0, 2, 1)
        singles = nn.functional.conv1d(rows, self.single, padding=2, stride=2, groups=4)
        exact = (even, odd, mixed, unsigned, filtered, single, singles)
        return *exact, nn.functional.linear(x, wide), torch.relu(nn.functional.linear(x, narrow))
