"""A bidirectional LSTM that tags each token; padding is ignored in the loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel

PADDING = -100


@dataclass(frozen=True)
class Config:
    """Sizes."""

    vocabulary: int = 2000
    embedding: int = 64
    hidden: int = 96
    tags: int = 17


class Tagger(nn.Module):
    """Scores [batch, length, tags] of token ids [batch, length]."""

    def __init__(self, config: Config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.embedding, padding_idx=0)
        self.lstm = nn.LSTM(config.embedding, config.hidden, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(2 * config.hidden, config.tags)

    def forward(self, ids: Tensor) -> Tensor:
        """The scores."""
        states, _ = self.lstm(self.words(ids))
        return self.tag(states)


def loss(module: nn.Module, ids: Tensor, tags: Tensor) -> Tensor:
    """Cross-entropy of the tags [batch, length] where there is a token."""
    return F.cross_entropy(module(ids).flatten(0, 1), tags.flatten(), ignore_index=PADDING)


def _model(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        count, length = shape
        ids = torch.randint(1, config.vocabulary, (count, length), generator=generator)
        # A tag depends on the token and on the one before.
        tags = (ids + ids.roll(1, dims=1)) % config.tags
        lengths = torch.randint(max(1, length // 2), length + 1, (count, 1), generator=generator)
        padding = torch.arange(length) >= lengths
        return ids.masked_fill(padding, 0), tags.masked_fill(padding, PADDING)

    return TrainingModel(
        title="LSTM tagger",
        dims={"batch": (1, 64), "length": (2, 200)},
        module=lambda: Tagger(config),
        loss=loss,
        batch=batch,
        axes=({0: "batch", 1: "length"},) * 2,
        optimizer=torch.optim.Adam,
        options={"lr": 2e-3},
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    Config(),
    (
        *((1, length) for length in (3, 8, 15, 31, 64, 120)),
        *((4, 5), (4, 12), (4, 23), (4, 50), (8, 7), (8, 20), (8, 33), (8, 64)),
        *((16, 10), (16, 23), (16, 48), (32, 8), (32, 19), (32, 40)),
    ),
    ((1, 31), (8, 20), (32, 19)),
)
SMALL = _model(Config(vocabulary=40, embedding=8, hidden=6, tags=5), ((1, 5), (3, 9), (6, 2), (2, 21), (9, 7)))
