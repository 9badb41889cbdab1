"""SkipNet: a `torch.cond` for each block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .network import workloads


class Written(nn.Module):
    """Blocks under conditions."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, image: Tensor) -> Tensor:
        """Logits."""
        model = self.model
        x = model.stem(image).relu()
        state = (x.new_zeros(1, model.gate.cell.hidden_size), x.new_zeros(1, model.gate.cell.hidden_size))
        for i, block in enumerate(model.blocks):
            if i == len(model.blocks) // 2:
                x = model.down(x)
            probability, state = model.gate(x, state)
            keep = probability.squeeze() > model.biases[i]
            x = torch.cond(keep, lambda x, block=block: (x + block(x)).relu(), lambda x: x.clone(), (x,))
        return model.head(x.mean(dim=(2, 3)))


FULL, SMALL = workloads("skipnet", "SkipNet", Written)
