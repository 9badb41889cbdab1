"""MobileNetV2 with random weights, at any number of images of any size: depthwise convolutions between products."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .base import Workload
from .resnet18 import DIMS, QUICK, SHAPES, SMALL_SHAPES, images, spread

Rows = list[tuple[int, int, int, int]]
"""Expansion, channels, number of blocks, stride of the first."""
ROWS: Rows = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


def convolution(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Inverted(nn.Module):
    """Wider, depthwise, narrower again; beside a shortcut where input and result have one shape."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        wider = [*convolution(inputs, inner), nn.ReLU6()] if expansion != 1 else []
        depthwise = [*convolution(inner, inner, 3, stride, groups=inner), nn.ReLU6()]
        self.steps = nn.Sequential(*wider, *depthwise, *convolution(inner, outputs))
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        y = self.steps(x)
        return x + y if self.has_shortcut else y


class MobileNet(nn.Module):
    """Logits [batch, classes] of images [batch, 3, height, width]."""

    def __init__(self, rows: Rows, scale: float, classes: int, last: int):
        super().__init__()
        width = int(32 * scale)
        steps = [*convolution(3, width, 3, 2), nn.ReLU6()]
        for expansion, outputs, count, stride in rows:
            for i in range(count):
                steps.append(Inverted(width, int(outputs * scale), stride if i == 0 else 1, expansion))
                width = int(outputs * scale)
        self.steps = nn.Sequential(*steps, *convolution(width, last), nn.ReLU6())
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(F.adaptive_avg_pool2d(self.steps(x), 1).flatten(1))


FULL = Workload(
    title="MobileNetV2",
    dims=DIMS,
    module=lambda: spread(MobileNet(ROWS, 1.0, 1000, 1280)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SHAPES,
    quick=QUICK,
    tolerance=1e-4,
)
SMALL = Workload(
    title="MobileNetV2",
    dims=DIMS,
    module=lambda: spread(MobileNet(ROWS[:3], 0.25, 10, 64)),
    tensors=images,
    axes=({0: "batch", 2: "height", 3: "width"},),
    shapes=SMALL_SHAPES,
    quick=(),
    tolerance=1e-4,
)
