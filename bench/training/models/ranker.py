"""A click-through-rate ranker: embedding bags of categorical features, dense features, an MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel


@dataclass(frozen=True)
class Config:
    """Sizes."""

    tables: int = 4
    rows: int = 5000
    width: int = 32
    dense: int = 13
    hidden: int = 128


class Ranker(nn.Module):
    """Scores [batch] of dense features [batch, n] and of ids [batch, table, bag]."""

    def __init__(self, config: Config):
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(config.rows, config.width, mode="sum") for _ in range(config.tables)]
        )
        self.bottom = nn.Sequential(
            nn.Linear(config.dense, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.width)
        )
        features = (config.tables + 1) * config.width
        self.top = nn.Sequential(
            nn.Linear(features, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.hidden), nn.ReLU()
        )
        self.score = nn.Linear(config.hidden, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """The scores."""
        bags = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        return self.score(self.top(torch.cat([self.bottom(dense), *bags], dim=1))).squeeze(1)


def loss(module: nn.Module, dense: Tensor, ids: Tensor, clicked: Tensor) -> Tensor:
    """Binary cross-entropy of the clicks [batch]."""
    return F.binary_cross_entropy_with_logits(module(dense, ids), clicked)


def _model(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        count, bag = shape
        dense = torch.randn(count, config.dense, generator=generator)
        ids = torch.randint(config.rows, (count, config.tables, bag), generator=generator)
        # Clicks depend on a feature and on an id, so that there is something to learn.
        clicked = (dense[:, 0] + (ids[:, 0, 0] % 2 - 0.5) > 0).float()
        return dense, ids, clicked

    return TrainingModel(
        title="CTR ranker",
        dims={"batch": (1, 4096), "bag": (1, 64)},
        module=lambda: Ranker(config),
        loss=loss,
        batch=batch,
        axes=({0: "batch"}, {0: "batch", 2: "bag"}, {0: "batch"}),
        optimizer=torch.optim.Adam,
        options={"lr": 1e-3},
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    Config(),
    (
        *((batch, 1) for batch in (1, 8, 32, 64, 128, 257, 512, 1024)),
        *((batch, 5) for batch in (2, 16, 33, 64, 127, 256, 512, 1024)),
        *((batch, 20) for batch in (7, 31, 128, 256)),
    ),
    ((32, 5), (257, 1), (512, 5)),
)
SMALL = _model(Config(tables=2, rows=50, width=8, dense=5, hidden=12), ((1, 3), (4, 1), (16, 7), (33, 2), (5, 5)))
