"""A click-through-rate ranker: embedding bags, feature crosses, MLPs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes: a bag is the number of ids that an example has of a categorical feature."""

    bags: tuple[int, ...] = (1, 1, 1, 1, 1, 1, 3, 5, 10, 20)
    rows: int = 50_000
    width: int = 64
    dense: int = 13
    bottom: tuple[int, ...] = (256, 128)
    top: tuple[int, ...] = (512, 256)


def mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with a ReLU after each."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i in range(1, len(sizes)):
        layers[f"linear{i}"] = nn.Linear(sizes[i - 1], sizes[i])
        layers[f"relu{i}"] = nn.ReLU()
    return nn.Sequential(layers)


class Ranker(nn.Module):
    """Dense features through an MLP; products of all pairs of features; a cross layer; an MLP; a probability."""

    pairs: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.bags = config.bags
        self.tables = nn.ModuleList([nn.EmbeddingBag(config.rows, config.width, mode="sum") for _ in config.bags])
        self.bottom = mlp((config.dense, *config.bottom, config.width))
        features = 1 + len(config.bags)
        self.cross = nn.Linear(features * config.width, features * config.width)
        first, second = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("pairs", first * features + second, persistent=False)
        self.top = mlp((features * config.width + features * (features - 1) // 2, *config.top))
        self.score = nn.Linear(config.top[-1], 1)

    def forward(self, dense: Tensor, *ids: Tensor) -> Tensor:
        """Probabilities [batch] for dense features [batch, n] and each categorical feature's ids [batch, bag]."""
        vectors = [self.bottom(dense)] + [table(bag) for table, bag in zip(self.tables, ids, strict=True)]
        features = torch.stack(vectors, dim=1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        x = features.flatten(1)
        x = x * self.cross(x) + x
        return torch.sigmoid(self.score(self.top(torch.cat((x, pairs), dim=1)))).squeeze(-1)


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        (batch,) = shape
        ids = (torch.randint(config.rows, (batch, bag), generator=generator) for bag in config.bags)
        return torch.randn(batch, config.dense, generator=generator), *ids

    return Workload(
        title="CTR ranker",
        dims={"batch": (1, 2048)},
        module=lambda: Ranker(config),
        tensors=inputs,
        axes=({0: "batch"},) * (1 + len(config.bags)),
        variadic=True,
        shapes=shapes,
        quick=quick,
        tolerance=1e-5,
    )


FULL = _workload(
    Config(),
    tuple((batch,) for batch in (1, 2, 7, 8, 15, 16, 17, 31, 64, 127, 128, 257, 509, 1024, 2048)),
    tuple((batch,) for batch in (1, 7, 16, 127, 2048)),
)
SMALL = _workload(
    Config(bags=(1, 1, 3, 7), rows=100, width=16, bottom=(24,), top=(40, 8)),
    tuple((batch,) for batch in (1, 2, 7, 16, 33, 127, 2048)),
    (),
)
