"""A graph network: messages along edges, summed at their targets; numbers of nodes and of edges are dynamic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shape, Workload


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    width: int = 128
    edge_width: int = 16
    layers: int = 3
    nodes: int = 4_096
    edges: int = 32_768


class Layer(nn.Module):
    """One round of messages."""

    def __init__(self, config: Config):
        super().__init__()
        width = config.width
        self.source, self.target = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.edge, self.message = nn.Linear(config.edge_width, width, bias=False), nn.Linear(width, width)
        self.update, self.norm = nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor, edges: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        """Nodes [nodes, width] after the round."""
        hidden = F.relu(self.source(x)[sources] + self.target(x)[targets] + self.edge(edges))
        summed = torch.zeros_like(x).index_add(0, targets, self.message(hidden))
        return self.norm(x + F.relu(self.update(torch.cat((x, summed), dim=-1))))


class Network(nn.Module):
    """Rounds of messages, then one vector for the graph."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, edges: Tensor, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes, and their mean."""
        for layer in self.layers:
            x = layer(x, edges, sources, targets)
        return x, x.mean(0)


def _workload(config: Config, shapes: tuple[Shape, ...], quick: tuple[Shape, ...]) -> Workload:
    def inputs(shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        nodes, edges = shape
        return (
            torch.randn(nodes, config.width, generator=generator),
            torch.randn(edges, config.edge_width, generator=generator),
            torch.randint(nodes, (edges,), generator=generator),
            torch.randint(nodes, (edges,), generator=generator),
        )

    return Workload(
        title="Message-passing net",
        dims={"nodes": (1, config.nodes), "edges": (1, config.edges)},
        module=lambda: Network(config),
        tensors=inputs,
        axes=({0: "nodes"}, {0: "edges"}, {0: "edges"}, {0: "edges"}),
        shapes=shapes,
        quick=quick,
        tolerance=5e-5,
    )


FULL = _workload(
    Config(),
    ((1, 1), (17, 40), (100, 400), (128, 1_023), (500, 4_000), (1_000, 3_001), (2_048, 16_384), (4_096, 32_768)),
    ((17, 40), (128, 1_023), (1_000, 3_001)),
)
SMALL = _workload(
    Config(width=16, edge_width=4, layers=2, nodes=100, edges=400), ((1, 1), (7, 3), (33, 90), (100, 400)), ()
)
