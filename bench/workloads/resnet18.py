"""ResNet-18 with random weights, at any number of images of any size."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, Workload


def spread(module: nn.Module) -> nn.Module:
    """Batch norms with statistics of their own: fresh ones change nothing, so that a compiler may drop them."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None:
            nn.init.uniform_(norm.running_mean, -0.2, 0.2)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.2, 0.2)
    return module


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Logits [batch, classes] of images [batch, 3, height, width]."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(Block(a, b, 1 if i == 0 else 2), Block(b, b, 1))
                for i, (a, b) in enumerate(itertools.pairwise(widths))
            )
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


def images(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Random images [batch, 3, height, width]."""
    batch, height, width = shape
    return (torch.randn(batch, 3, height, width, generator=generator),)


DIMS = {"batch": (1, 8), "height": (96, 320), "width": (96, 320)}
SHAPES: tuple[Shape, ...] = (
    *((1, size, size) for size in (96, 128, 160, 224, 320)),
    *((1, 113, 97), (1, 131, 257), (2, 224, 224), (4, 192, 160), (8, 224, 224), (8, 127, 111)),
)
QUICK: tuple[Shape, ...] = ((1, 128, 128), (1, 224, 224), (1, 131, 257), (4, 192, 160))
SMALL_SHAPES: tuple[Shape, ...] = ((1, 96, 96), (2, 97, 131), (3, 128, 100))

FULL = Workload(
    title="ResNet-18",
    dims=DIMS,
    module=lambda: spread(ResNet(64, 1000)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SHAPES,
    quick=QUICK,
    tolerance=2e-5,
)
SMALL = Workload(
    title="ResNet-18",
    dims=DIMS,
    module=lambda: spread(ResNet(8, 10)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SMALL_SHAPES,
    quick=(),
    tolerance=2e-5,
)
