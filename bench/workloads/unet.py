"""A small U-Net with random weights: a mask for each pixel, at any number of images of any size, odd ones too."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Workload
from .resnet18 import DIMS, QUICK, SHAPES, SMALL_SHAPES, images, spread


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3 x 3 convolutions, each with batch norm and relu."""
    steps: list[nn.Module] = []
    for width in (inputs, outputs):
        steps += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*steps)


class UNet(nn.Module):
    """Logits [batch, classes, height, width] of images [batch, 3, height, width]."""

    def __init__(self, width: int, levels: int, classes: int):
        super().__init__()
        widths = [width << i for i in range(levels)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(double(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of each pixel."""
        skips: list[Tensor] = []
        for i, step in enumerate(self.down):
            x = step(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for step in self.up:
            skip = skips.pop()
            # Sizes that were odd on the way down are odd again.
            x = step(torch.cat([skip, F.interpolate(x, size=skip.shape[-2:])], 1))
        return self.head(x)


FULL = Workload(
    title="U-Net",
    dims=DIMS,
    module=lambda: spread(UNet(32, 4, 4)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SHAPES,
    quick=QUICK,
    tolerance=2e-5,
)
SMALL = Workload(
    title="U-Net",
    dims=DIMS,
    module=lambda: spread(UNet(8, 3, 2)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SMALL_SHAPES,
    quick=(),
    tolerance=2e-5,
)
