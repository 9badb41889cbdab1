"""The loss of a training step in PyTorch, called as the compiled step is."""

from __future__ import annotations

from typing import Any

import torch

from ..frontend.training.step import HYPER_PARAMETERS


class Loss(torch.nn.Module):
    """A loss function that ignores the numbers which a compiled step takes besides a batch."""

    def __init__(self, loss: torch.nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the loss function returns for a batch."""
        kwargs.pop(HYPER_PARAMETERS, None)
        return self.loss(*args, **kwargs)
