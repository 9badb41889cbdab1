"""A small MLP: a step of little work, whose time is that of calls and launches."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel


def loss(module: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of [batch, length, outputs]."""
    return F.mse_loss(module(x), target)


def _model(sizes: tuple[int, ...], shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
        return nn.Sequential(*layers[:-2])

    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randn(*shape, sizes[0], generator=generator)
        return x, torch.sin(2 * x[..., : sizes[-1]])

    return TrainingModel(
        title="small MLP",
        dims={"batch": (1, 256), "length": (1, 256)},
        module=make,
        loss=loss,
        batch=batch,
        axes=({0: "batch", 1: "length"},) * 2,
        options={"lr": 1e-3},
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    (16, 64, 64, 64, 4),
    (
        *((1, length) for length in (1, 2, 5, 8, 16, 17, 33, 64, 100)),
        *((2, 7), (3, 11), (4, 4), (4, 16), (5, 23), (8, 8), (8, 16), (8, 32), (16, 16), (16, 31), (32, 32)),
    ),
    ((1, 5), (4, 16), (16, 31)),
)
SMALL = _model((6, 10, 10, 3), ((1, 5), (3, 2), (7, 4), (2, 16), (5, 9)))
