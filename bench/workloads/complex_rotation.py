"""Rotary position embedding with complex numbers, as Llama's own code has it: what is left is moving memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Shape, Workload


class Rotation(nn.Module):
    """Turns pairs of the queries' and keys' elements by angles of their positions."""

    def forward(self, query: Tensor, key: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys [batch, length, heads, width], with ``turns`` [length, width / 2, 2] as complex numbers."""
        factors = torch.view_as_complex(turns)[None, :, None, :]
        rotated = []
        for x in (query, key):
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
            rotated.append(torch.view_as_real(pairs * factors).flatten(3))
        return rotated[0], rotated[1]


def _workload(heads: int, width: int, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        batch, length = shape
        angles = torch.rand(length, width // 2, generator=generator) * 6.28
        turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
        return *(torch.randn(batch, length, heads, width, generator=generator) for _ in range(2)), turns

    return Workload(
        title="Rotary embedding with complex numbers",
        dims={"batch": (1, 16), "length": (1, 1024)},
        module=Rotation,
        tensors=inputs,
        axes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}, {0: "length"}),
        shapes=shapes,
        quick=quick,
        tolerance=1e-6,
    )


FULL = _workload(
    8,
    64,
    ((1, 1), (1, 7), (1, 32), (1, 127), (1, 128), (1, 512), (4, 128), (7, 23), (4, 512), (16, 1), (8, 1024)),
    ((1, 1), (1, 127), (4, 512), (8, 1024)),
)
SMALL = _workload(3, 10, ((1, 1), (1, 17), (3, 31), (16, 7), (2, 512)), ())
