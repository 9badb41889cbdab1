"""Width selection: all layers three times, one for each width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .network import workloads


class Written(nn.Module):
    """A side for each width."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def side(self, part: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The layers at a width."""
        model = self.model

        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            for layer in model.layers:
                x = layer(x, model.heads // part, model.hidden // part)
            return x, torch.full((), model.heads // part)

        return run

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the number of heads that were used."""
        model = self.model
        x = model.embed(x)
        difficulty = model.controller(x.mean(dim=1)).amax()

        def harder(x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cond(difficulty < model.hard, self.side(2), self.side(1), (x,))

        x, heads = torch.cond(difficulty < model.easy, self.side(4), harder, (x,))
        return model.head(x.mean(dim=1)), heads


FULL, SMALL = workloads("slimmable", "Slimmable", Written)
