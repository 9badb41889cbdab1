"""Block skipping as in BlockDrop: a policy network looks at the images once and says which blocks to run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({0: Dim("batch", min=1, max=6), 2: Dim("height", min=16, max=48), 3: Dim("width", min=16, max=48)},)


class Bottleneck(nn.Module):
    """The residual part of a block."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, inner, 1),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner),
            nn.ReLU(),
            nn.Conv2d(inner, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """As large as `x`."""
        return self.layers(x)


class Policy(nn.Module):
    """A shallow network on a coarse view of the images; the whole batch shares a decision."""

    def __init__(self, blocks: int, width: int = 16):
        super().__init__()
        self.convolution = nn.Conv2d(3, width, 5, stride=4)
        self.head = nn.Linear(width, blocks)

    def forward(self, images: Tensor) -> Tensor:
        """One score for each block."""
        features = self.convolution(images).relu().mean(dim=(2, 3))
        return self.head(features).mean(dim=0)


class BlockDrop(nn.Module):
    """A residual network whose blocks run only if the policy keeps them."""

    def __init__(self, classes: int = 10, width: int = 32, blocks: int = 6):
        super().__init__()
        self.policy = Policy(blocks)
        self.stem = nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.blocks = nn.ModuleList([Bottleneck(width, 2 * width) for _ in range(blocks)])
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and which blocks ran."""
        keep = self.policy(images) > 0
        x = self.stem(images).relu()
        for i, block in enumerate(self.blocks):
            if not keep[i]:
                continue
            x = x + block(x)
        return self.head(x.mean(dim=(2, 3))), keep


def make_model(seed: int = 0) -> BlockDrop:
    """Random weights; each score's bias makes it as often positive as negative."""
    torch.manual_seed(seed)
    model = BlockDrop().eval().requires_grad_(False)
    model.policy.head.weight *= 4.0
    scores = torch.stack([model.policy(images) for (images,) in inputs(100, seed + 1)])
    model.policy.head.bias -= scores.median(dim=0).values
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of images that differ in number, size, contrast and tint."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 7, (), generator=generator))
        height, width = torch.randint(16, 49, (2,), generator=generator).tolist()
        contrast = 0.3 + 2.0 * torch.rand((), generator=generator)
        tint = torch.randn(1, 3, 1, 1, generator=generator)
        yield (contrast * (torch.randn(batch, 3, height, width, generator=generator) + tint),)
