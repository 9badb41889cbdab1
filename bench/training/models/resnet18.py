"""ResNet-18 on generated images: convolutions, and batch norms that update their statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.workloads.resnet18 import ResNet

from .base import Shape, TrainingModel


def loss(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the classes of images [batch, 3, height, width]."""
    return F.cross_entropy(module(images), labels)


def stripes(shape: Shape, generator: torch.Generator, classes: int) -> tuple[Tensor, Tensor]:
    """Stripes in noise; their width is the class."""
    batch, size = shape
    labels = torch.randint(classes, (batch,), generator=generator)
    places = torch.arange(size)[None, :] / (labels[:, None] + 1.0)
    waves = torch.sin(places)[:, None, None, :]
    return waves + 0.5 * torch.randn(batch, 3, size, size, generator=generator), labels


def _model(
    width: int, classes: int, rate: float, shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()
) -> TrainingModel:
    return TrainingModel(
        title="ResNet-18",
        # Batch norm over two or three values of a channel magnifies rounding errors a thousandfold, in eager too.
        dims={"batch": (4, 32), "size": (32, 256)},
        module=lambda: ResNet(width, classes),
        loss=loss,
        batch=lambda shape, generator: stripes(shape, generator, classes),
        axes=({0: "batch", 2: "size", 3: "size"}, {0: "batch"}),
        optimizer=torch.optim.SGD,
        options={"lr": rate, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
        example_at=(5, 71),
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    64,
    10,
    2e-4,
    (
        *((4, size) for size in (48, 57, 64, 71, 80, 96)),
        *((5, 49), (5, 64), (6, 41), (6, 48), (6, 64), (8, 32), (8, 40), (8, 47), (8, 64), (12, 32), (12, 41)),
        *((16, 32), (16, 37), (16, 48)),
    ),
    ((4, 48), (5, 64), (8, 32)),
)
SMALL = _model(4, 5, 0.02, ((4, 33), (5, 40), (6, 64), (4, 47), (8, 71)))
