"""Layer drop: nested conditions, with the counters as tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .network import workloads


class Written(nn.Module):
    """Layers under conditions; where two were skipped nothing runs any more."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of the sentences, and how many layers ran."""
        x = self.model.tokens(ids)
        ran, skipped = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)

        def stay(x: Tensor, ran: Tensor, skipped: Tensor) -> tuple[Tensor, ...]:
            return x.clone(), ran.clone(), skipped.clone()

        for layer, router in zip(self.model.layers, self.model.routers, strict=True):

            def run(x: Tensor, ran: Tensor, skipped: Tensor, layer: Any = layer) -> tuple[Tensor, ...]:
                return layer(x), ran + 1, torch.zeros_like(skipped)

            def skip(x: Tensor, ran: Tensor, skipped: Tensor) -> tuple[Tensor, ...]:
                return x.clone(), ran.clone(), skipped + 1

            def decide(
                x: Tensor, ran: Tensor, skipped: Tensor, run: Any = run, router: Any = router
            ) -> tuple[Tensor, ...]:
                return torch.cond(router(x.mean(dim=1)).mean() > 0, run, skip, (x, ran, skipped))

            x, ran, skipped = torch.cond(skipped < 2, decide, stay, (x, ran, skipped))
        return self.model.norm(x).mean(dim=1), ran


FULL, SMALL = workloads("layer_drop", "Layer drop", Written)
