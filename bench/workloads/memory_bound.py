"""Norms, softmax, gelu and masks one after the other, without a product: what is left is moving memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, Workload


class Chain(nn.Module):
    """Twice: norms, gates and softmax of rows; then the tokens' mean, weighted by a softmax over the length."""

    def __init__(self, width: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.scales = nn.ModuleList([nn.RMSNorm(width, eps=1e-6) for _ in range(2)])
        self.bias = nn.Parameter(torch.randn(2, width))

    def forward(self, x: Tensor, gate: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """All tokens' vectors [batch, length, width], and their weighted mean."""
        visible = mask.bool().unsqueeze(-1)
        for norm, scale, bias in zip(self.norms, self.scales, self.bias, strict=True):
            y = F.gelu(norm(x) + bias) * torch.sigmoid(gate)
            # By an input: a computed value near the bound would fall on either side, as it is rounded.
            weights = torch.softmax(y.masked_fill(gate < -1.0, float("-inf")), dim=-1)
            x = torch.where(visible, scale(x + y + 8.0 * weights), 0.0)
        weights = torch.softmax(x.mean(dim=-1, keepdim=True).masked_fill(~visible, float("-inf")), dim=1)
        return x, torch.tanh((x * weights).sum(dim=1))


def _workload(width: int, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, length = shape
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        mask = (torch.arange(length) < lengths[:, None]).long()
        return *(torch.randn(batch, length, width, generator=generator) for _ in range(2)), mask

    return Workload(
        title="Memory-bound chain",
        dims={"batch": (1, 16), "length": (1, 512)},
        module=lambda: Chain(width),
        tensors=inputs,
        axes=({0: "batch", 1: "length"},) * 3,
        shapes=shapes,
        quick=quick,
        tolerance=1e-5,
    )


FULL = _workload(
    768,
    (
        *((1, length) for length in (1, 7, 16, 31, 64, 127, 128, 257, 512)),
        *((2, 67), (4, 128), (7, 23), (16, 1), (16, 512)),
    ),
    ((1, 1), (1, 31), (1, 128), (7, 23), (16, 512)),
)
SMALL = _workload(100, ((1, 1), (1, 17), (3, 31), (16, 7), (2, 128), (1, 512)), ())
