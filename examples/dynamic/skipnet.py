"""Block skipping as in SkipNet: a recurrent gate looks at the features before each residual block of one image."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({2: Dim("height", min=16, max=40), 3: Dim("width", min=16, max=40)},)


class Block(nn.Module):
    """The residual part of a block."""

    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """As large as `x`."""
        return self.norm2(self.second(self.norm1(self.first(x)).relu()))


class Gate(nn.Module):
    """An LSTM over the pooled features of the blocks so far."""

    def __init__(self, width: int, hidden: int = 10):
        super().__init__()
        self.project = nn.Linear(width, hidden)
        self.cell = nn.LSTMCell(hidden, hidden)
        self.decide = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The probability of running the next block, and the new state."""
        state = self.cell(self.project(x.mean(dim=(2, 3))), state)
        return self.decide(state[0]).sigmoid(), state


class SkipNet(nn.Module):
    """A residual network, two groups of blocks with a convolution that halves extents between them."""

    def __init__(self, classes: int = 10, width: int = 16, blocks: int = 4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.gate = Gate(width)
        self.biases = [0.5] * blocks
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of one image, [1, 3, height, width]."""
        x = self.stem(image).relu()
        state = (x.new_zeros(1, self.gate.cell.hidden_size), x.new_zeros(1, self.gate.cell.hidden_size))
        for i, block in enumerate(self.blocks):
            if i == len(self.blocks) // 2:
                x = self.down(x)
            probability, state = self.gate(x, state)
            if probability.item() > self.biases[i]:
                x = (x + block(x)).relu()
        return self.head(x.mean(dim=(2, 3)))


def make_model(seed: int = 0) -> SkipNet:
    """Random weights; each gate is as often open as closed."""
    torch.manual_seed(seed)
    model = SkipNet().eval().requires_grad_(False)
    model.gate.project.weight *= 4.0
    model.gate.decide.weight *= 4.0
    seen: list[float] = []
    hook = model.gate.register_forward_hook(lambda _module, _inputs, result: seen.append(result[0].item()))
    images = list(inputs(60, seed + 1))
    for i in range(len(model.blocks)):
        seen.clear()
        for (image,) in images:
            model(image)
        model.biases[i] = sorted(seen[i :: len(model.blocks)])[len(images) // 2]
    hook.remove()
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Images of all sizes, contrasts and tints."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        height, width = torch.randint(16, 41, (2,), generator=generator).tolist()
        contrast = 0.3 + 2.0 * torch.rand((), generator=generator)
        tint = torch.randn(1, 3, 1, 1, generator=generator)
        yield (contrast * (torch.randn(1, 3, height, width, generator=generator) + tint),)
