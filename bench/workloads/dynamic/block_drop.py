"""BlockDrop: a `torch.cond` for each block."""

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

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and which blocks ran."""
        keep = self.model.policy(images) > 0
        x = self.model.stem(images).relu()
        for i, block in enumerate(self.model.blocks):
            # Flat: the export says no to four dims whose strides it does not know.
            y = torch.cond(
                keep[i], lambda x, block=block: (x + block(x)).flatten(), lambda x: x.flatten().clone(), (x,)
            )
            x = y.view(x.shape)
        return self.model.head(x.mean(dim=(2, 3))), keep


FULL, SMALL = workloads("block_drop", "BlockDrop", Written)
