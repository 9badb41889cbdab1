"""Adaptive computation time as a `while_loop`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from .network import workloads


class Written(nn.Module):
    """The loop's state as tensors."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, the steps of each row, and what remained when it halted."""
        model = self.model
        x = model.embed(x).tanh()
        state, average = torch.zeros_like(x), torch.zeros_like(x)
        halted, remainder = x.new_zeros(x.shape[0]), x.new_ones(x.shape[0])
        steps, n = torch.zeros(x.shape[0], dtype=torch.int64), torch.zeros((), dtype=torch.int64)

        def unfinished(n: Tensor, state: Tensor, average: Tensor, halted: Tensor, *_: Tensor) -> Tensor:
            return (halted < model.enough).any() & (n < model.most)

        def ponder(
            n: Tensor, state: Tensor, average: Tensor, halted: Tensor, remainder: Tensor, steps: Tensor
        ) -> tuple[Tensor, ...]:
            state = model.cell(x, state)
            probability = torch.sigmoid(model.halt(state)).squeeze(-1)
            running = halted < model.enough
            stops = running & (halted + probability >= model.enough)
            weight = torch.where(stops, remainder, probability) * running
            average = average + weight.unsqueeze(-1) * state
            return n + 1, state, average, halted + weight, remainder - weight, steps + running

        carried = (n, state, average, halted, remainder, steps)
        _, _, average, _, remainder, steps = while_loop(unfinished, ponder, carried)
        return model.head(average), steps, remainder


FULL, SMALL = workloads("adaptive_time", "Adaptive time", Written)
