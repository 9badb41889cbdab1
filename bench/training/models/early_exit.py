"""A network with early exits: a batch leaves at the first classifier that is sure of all of its rows."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel


class EarlyExit(nn.Module):
    """Logits [batch, classes] of features [batch, n]: an ordinary `if` on data between the stages."""

    def __init__(self, features: int, hidden: int, classes: int, threshold: float):
        super().__init__()
        widths = (features, hidden, hidden, hidden)
        self.stages = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])
        self.heads = nn.ModuleList([nn.Linear(hidden, classes) for _ in self.stages])
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the classifier that answered."""
        for stage, head in zip(self.stages, self.heads, strict=True):
            x = torch.tanh(stage(x))
            logits = head(x)
            if logits.softmax(dim=-1).amax(dim=-1).min() > self.threshold:
                break
        return logits


def loss(module: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the classes."""
    return F.cross_entropy(module(x), labels)


def _model(
    sizes: tuple[int, int, int, float], shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()
) -> TrainingModel:
    features, _, classes, _ = sizes

    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = torch.randint(classes, shape, generator=generator)
        # Some batches are clear, others are not.
        contrast = 1.0 + 5.0 * torch.rand((), generator=generator)
        x = contrast * F.one_hot(labels, features) + torch.randn(*shape, features, generator=generator)
        return x, labels

    return TrainingModel(
        title="early exit",
        dims={"batch": (1, 1024)},
        module=lambda: EarlyExit(*sizes),
        loss=loss,
        batch=batch,
        axes=({0: "batch"}, {0: "batch"}),
        options={"lr": 3e-3},
        branches=True,
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    (64, 128, 10, 0.15),
    tuple((n,) for n in (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 23, 32, 33, 48, 64, 65, 96, 128, 200, 256)),
    ((3,), (16,), (64,)),
)
SMALL = _model((8, 12, 4, 0.32), ((1,), (3,), (7,), (2,), (5,)))
