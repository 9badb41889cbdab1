"""Adaptive computation time: a recurrent cell ponders until every row of the batch has halted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({0: Dim("batch", min=1, max=8)},)


class AdaptiveTime(nn.Module):
    """Graves' rule: states are averaged by their halting probabilities, the last one by what remains."""

    def __init__(self, features: int = 48, hidden: int = 96, classes: int = 10, most: int = 12):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.halt = nn.Linear(hidden, 1)
        self.head = nn.Linear(hidden, classes)
        self.most = most
        self.enough = 0.99

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of [batch, features], the steps of each row, and what remained when it halted."""
        x = self.embed(x).tanh()
        state = torch.zeros_like(x)
        average = torch.zeros_like(x)
        halted = x.new_zeros(x.shape[0])
        remainder = x.new_ones(x.shape[0])
        steps = torch.zeros(x.shape[0], dtype=torch.int64)
        n = 0
        while (halted < self.enough).any() and n < self.most:
            state = self.cell(x, state)
            probability = torch.sigmoid(self.halt(state)).squeeze(-1)
            running = halted < self.enough
            stops = running & (halted + probability >= self.enough)
            weight = torch.where(stops, remainder, probability) * running
            average = average + weight.unsqueeze(-1) * state
            halted = halted + weight
            remainder = remainder - weight
            steps = steps + running
            n += 1
        return self.head(average), steps, remainder


def make_model(seed: int = 0) -> AdaptiveTime:
    """Random weights; the bias of the halting unit lets three of five batches halt in time."""
    torch.manual_seed(seed)
    model = AdaptiveTime().eval().requires_grad_(False)
    model.embed.weight *= 2.0
    model.halt.weight *= 6.0
    batches = [x for (x,) in inputs(60, seed + 1)]
    low, high = -8.0, 2.0
    for _ in range(12):
        model.halt.bias.fill_((low + high) / 2)
        late = sum((model(x)[2] > 1 - model.enough).any().item() for x in batches)
        low, high = (low, (low + high) / 2) if late < 0.4 * len(batches) else ((low + high) / 2, high)
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Batches of rows."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        batch = int(torch.randint(1, 9, (), generator=generator))
        yield (torch.randn(batch, 48, generator=generator) * (0.5 + torch.rand((), generator=generator)),)
