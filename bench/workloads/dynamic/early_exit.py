"""Early exit: a `torch.cond` for each classifier, the rest of the network in its other side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .network import workloads


class Written(nn.Module):
    """The stages as nested conditions."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the number of the classifier that gave them."""
        logits, i = self.run(0, images)
        return logits.view(images.shape[0], -1), i

    def run(self, i: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """From a stage on; logits are flat, without which the export takes for granted that there are two images."""
        x = self.model.stages[i](x)
        logits = self.model.heads[i](x.mean(dim=(2, 3)))
        if i == len(self.model.stages) - 1:
            return logits.flatten(), torch.full((), i)

        def leave(x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
            return logits.flatten().clone(), torch.full((), i)

        def go_on(x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
            return self.run(i + 1, x)

        confidence = logits.softmax(dim=-1).amax(dim=-1)
        return torch.cond(confidence.min() > self.model.thresholds[i], leave, go_on, (x, logits))


FULL, SMALL = workloads("early_exit", "Early exit", Written)
