"""Early exit with confidences: a batch leaves a convolutional network as soon as all of its images are clear."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({0: Dim("batch", min=1, max=4), 2: Dim("height", min=16, max=48), 3: Dim("width", min=16, max=48)},)


class Stage(nn.Module):
    """Halves the extents, then refines."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.down = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        self.refine = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, height, width] to [batch, outputs, height / 2, width / 2]."""
        x = self.down(x).relu()
        return x + self.refine(x).relu()


class EarlyExit(nn.Module):
    """Three stages with a classifier each; the last one always answers."""

    def __init__(self, classes: int = 10, widths: tuple[int, ...] = (16, 32, 48)):
        super().__init__()
        self.stages = nn.ModuleList([Stage(i, o) for i, o in zip((3, *widths), widths, strict=False)])
        self.heads = nn.ModuleList([nn.Linear(width, classes) for width in widths])
        self.thresholds = [0.5] * (len(widths) - 1)

    def forward(self, images: Tensor) -> tuple[Tensor, int]:
        """Logits, and the number of the classifier that gave them."""
        x = images
        last = len(self.stages) - 1
        for i, (stage, head) in enumerate(zip(self.stages, self.heads, strict=True)):
            x = stage(x)
            logits = head(x.mean(dim=(2, 3)))
            if i == last:
                break
            confidence = logits.softmax(dim=-1).amax(dim=-1)
            if confidence.min() > self.thresholds[i]:
                return logits, i
        return logits, last


def make_model(seed: int = 0) -> EarlyExit:
    """Random weights; each classifier's threshold lets two fifths of what reaches it leave."""
    torch.manual_seed(seed)
    model = EarlyExit().eval().requires_grad_(False)
    for head in model.heads:
        head.weight *= 6.0
    reached = [images for (images,) in inputs(100, seed + 1)]
    for i in range(len(model.thresholds)):
        least = []
        for images in reached:
            x = images
            for stage in model.stages[: i + 1]:
                x = stage(x)
            least.append(model.heads[i](x.mean(dim=(2, 3))).softmax(dim=-1).amax(dim=-1).min().item())
        model.thresholds[i] = sorted(least)[len(least) * 3 // 5]
        reached = [images for images, value in zip(reached, least, strict=True) if value <= model.thresholds[i]]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of images that differ in number, size, contrast and tint."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 5, (), generator=generator))
        height, width = torch.randint(16, 49, (2,), generator=generator).tolist()
        contrast = 0.3 + 2.0 * torch.rand((), generator=generator)
        tint = torch.randn(1, 3, 1, 1, generator=generator)
        yield (contrast * (torch.randn(batch, 3, height, width, generator=generator) + tint),)
