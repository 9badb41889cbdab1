"""Adaptive computation time: a Python `while` runs a recurrent cell until every row of the batch has halted."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel


class AdaptiveTime(nn.Module):
    """Graves' rule: states are averaged by their halting probabilities, the last one by the remainder."""

    def __init__(self, features: int, hidden: int, classes: int, most: int):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.halt = nn.Linear(hidden, 1)
        self.head = nn.Linear(hidden, classes)
        self.most = most

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [batch, classes] of x [batch, features], and the remainder of each row."""
        x = self.embed(x).tanh()
        state = torch.zeros_like(x)
        average = torch.zeros_like(x)
        halted = x.new_zeros(x.shape[0])
        remainder = x.new_ones(x.shape[0])
        steps = 0
        while (halted < 0.99).any() and steps < self.most:
            state = self.cell(x, state)
            probability = torch.sigmoid(self.halt(state)).squeeze(-1)
            running = halted < 0.99
            stops = running & (halted + probability >= 0.99)
            weight = torch.where(stops, remainder, probability) * running
            average = average + weight.unsqueeze(-1) * state
            halted = halted + weight
            remainder = remainder - weight
            steps += 1
        return self.head(average), remainder


def loss(module: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the classes, and a price for thinking long."""
    logits, remainder = module(x)
    return F.cross_entropy(logits, labels) + 0.01 * remainder.mean()


def _model(sizes: tuple[int, int, int, int], shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    features, _, classes, _ = sizes

    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        labels = torch.randint(classes, shape, generator=generator)
        return 2.0 * F.one_hot(labels, features) + torch.randn(*shape, features, generator=generator), labels

    return TrainingModel(
        title="adaptive time",
        dims={"batch": (1, 256)},
        module=lambda: AdaptiveTime(*sizes),
        loss=loss,
        batch=batch,
        axes=({0: "batch"}, {0: "batch"}),
        optimizer=torch.optim.RMSprop,
        options={"lr": 1e-3},
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    (48, 96, 10, 12),
    tuple((n,) for n in (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 23, 32, 33, 48, 64, 65, 96, 128, 200, 256)),
    ((3,), (16,), (64,)),
)
SMALL = _model((6, 8, 4, 9), ((1,), (3,), (7,), (2,), (5,)))
