"""A mixture of experts: each token goes to the two experts that a router scores highest; none computes for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    width: int = 256
    hidden: int = 512
    experts: int = 8
    layers: int = 2
    tokens: int = 1_024


class Expert(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate, self.up = (nn.Linear(config.width, config.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of [rows, width]."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """A router and its experts; how many rows each gets depends on the data."""

    def __init__(self, config: Config):
        super().__init__()
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        """Of [tokens, width]."""
        y = self.norm(x)
        weights, chosen = self.router(y).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        for number, expert in enumerate(self.experts):
            picked = chosen == number
            rows = picked.any(-1).nonzero().squeeze(-1)
            share = (weights * picked).sum(-1, keepdim=True)
            x = x.index_add(0, rows, expert(y[rows]) * share[rows])
        return x


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, config.width, generator=generator),)

    return Workload(
        title="Mixture of experts",
        dims={"tokens": (1, config.tokens)},
        module=lambda: nn.Sequential(*[Layer(config) for _ in range(config.layers)]),
        tensors=inputs,
        axes=({0: "tokens"},),
        shapes=shapes,
        quick=quick,
        tolerance=5e-5,
    )


FULL = _workload(Config(), ((1,), (2,), (7,), (16,), (33,), (128,), (257,), (512,), (1_024,)), ((1,), (33,), (257,)))
SMALL = _workload(Config(width=16, hidden=24, experts=4, layers=1, tokens=64), ((1,), (2,), (17,), (64,)), ())
