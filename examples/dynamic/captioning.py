"""Captioning: a convolutional encoder, and a recurrent decoder with attention that speaks until it says "end"."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({2: Dim("height", min=16, max=64), 3: Dim("width", min=16, max=64)},)


class Encoder(nn.Module):
    """A grid of features."""

    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, features, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(features, features, 3, stride=2, padding=1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """[1, 3, height, width] to [places, features]."""
        return self.layers(image).flatten(2)[0].t()


class Captioner(nn.Module):
    """Show, attend and tell."""

    def __init__(self, vocabulary: int = 150, features: int = 48, hidden: int = 96, most: int = 20):
        super().__init__()
        self.encoder = Encoder(features)
        self.start = nn.Linear(features, 2 * hidden)
        self.query = nn.Linear(hidden, features)
        self.words = nn.Embedding(vocabulary, hidden)
        self.cell = nn.LSTMCell(hidden + features, hidden)
        self.head = nn.Linear(hidden, vocabulary)
        self.begin, self.end, self.most = 0, 1, most

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The words of the caption, and the mean logarithm of their probabilities."""
        grid = self.encoder(image)
        h, c = self.start(grid.mean(dim=0, keepdim=True)).tanh().chunk(2, dim=-1)
        word = torch.tensor([self.begin])
        words: list[Tensor] = []
        total = torch.zeros(1)
        while len(words) < self.most:
            weights = torch.softmax(grid @ self.query(h).squeeze(0), dim=0)
            h, c = self.cell(torch.cat((self.words(word), (weights @ grid).unsqueeze(0)), dim=-1), (h, c))
            logarithms = self.head(h).log_softmax(dim=-1)
            best, word = logarithms.max(dim=-1)
            words.append(word)
            total = total + best
            if word == self.end:
                break
        return torch.cat(words), total / len(words)


def make_model(seed: int = 0) -> Captioner:
    """Random weights; the end's bias is such that two of three captions end before the limit."""
    torch.manual_seed(seed)
    model = Captioner().eval().requires_grad_(False)
    model.query.weight *= 4.0
    model.start.weight *= 4.0
    model.cell.weight_ih *= 3.0
    model.head.weight *= 6.0
    model.head.bias[model.end] = -100.0
    gaps: list[float] = []
    hook = model.head.register_forward_hook(
        lambda _module, _inputs, logits: gaps.append((logits.max() - logits[0, model.end]).item())
    )
    needed = []
    for (image,) in inputs(60, seed + 1):
        gaps.clear()
        model(image)
        needed.append(min(gaps))
    hook.remove()
    model.head.bias[model.end] += sorted(needed)[40]
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Images of all sizes, contrasts and tints."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        height, width = torch.randint(16, 65, (2,), generator=generator).tolist()
        contrast = 0.5 + 2.0 * torch.rand((), generator=generator)
        tint = torch.randn(1, 3, 1, 1, generator=generator)
        yield (contrast * (torch.randn(1, 3, height, width, generator=generator) + tint),)
