"""A network with the sizes of ResNet-50, with random weights, in int8."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ..base import Workload, in_int8
from ..resnet18 import DIMS, QUICK, SHAPES, SMALL_SHAPES, images, spread


class Bottleneck(nn.Module):
    """A 3 x 3 convolution of few channels between two pointwise ones, beside a shortcut; one ReLU for all."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, height, width] to [batch, 4 * width, height / stride, width / stride]."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        return self.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Logits [batch, classes] of images [batch, 3, height, width]; ResNet-50 by default."""

    def __init__(self, width: int = 64, classes: int = 1000, depths: tuple[int, ...] = (3, 4, 6, 3)):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(depths):
            for place in range(depth):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage and not place else 1))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


FULL = in_int8(
    Workload(
        title="A network with the sizes of ResNet-50",
        dims=DIMS,
        module=lambda: spread(ResNet()),
        tensors=images,
        axes=({0: "batch", 2: "height", 3: "width"},),
        shapes=SHAPES,
        quick=QUICK,
        tolerance=1e-3,
    )
)
SMALL = in_int8(
    Workload(
        title=FULL.title.removesuffix(", int8"),
        dims=DIMS,
        module=lambda: spread(ResNet(8, 10, (1, 2))),
        tensors=images,
        axes=FULL.axes,
        shapes=SMALL_SHAPES,
        quick=SMALL_SHAPES,
        tolerance=1e-3,
    )
)
