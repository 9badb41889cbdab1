"""Mixture of depths: nested conditions, with the tokens that are picked inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .network import workloads


class Written(nn.Module):
    """Tokens are ranked by their scores; a side for layers that some want, and one for those that none does."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states."""
        model = self.model
        x = model.embed(x)
        for layer, router in zip(model.layers, model.routers, strict=True):

            def some(x: Tensor, scores: Tensor, layer: Any = layer) -> Tensor:
                rank = scores.argsort(descending=True).argsort()
                picked = torch.nonzero((scores > 0) & (rank < scores.shape[0] // 2)).squeeze(-1)
                torch._check(picked.shape[0] >= 1)
                gate = torch.sigmoid(scores[picked]).unsqueeze(-1)
                return x.index_add(0, picked, gate * layer(x[picked]))

            def none(x: Tensor, scores: Tensor) -> Tensor:
                return x.clone()

            scores = router(x).squeeze(-1)
            x = torch.cond((scores > 0).any(), some, none, (x, scores))
        return model.norm(x)


FULL, SMALL = workloads("mixture_of_depths", "Mixture of depths", Written)
