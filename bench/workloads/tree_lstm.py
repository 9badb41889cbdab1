"""A Tree-LSTM on trees of all kinds: sentences, chains, bushes, single leaves, and any structure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import Shape, Workload

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from dynamic import tree_lstm


@dataclass(frozen=True, kw_only=True)
class Trees(Workload):
    """The shape is the number of a tree."""

    features: int

    def inputs(self, shape: Shape) -> tuple[Any, ...]:
        """The tree of that number: of each kind in turn."""
        *_, last = tree_lstm.inputs(shape[0], 7, self.features)
        return last

    def example(self) -> tuple[Any, ...]:
        """Any tree: what it looks like has no meaning."""
        return self.inputs((1,))

    def dynamic_shapes(self) -> Any:
        """Words have one size."""
        return None


def workload(features: int, hidden: int, count: int) -> Trees:
    """The workload at a size."""
    numbers = tuple((i,) for i in range(1, count + 1))
    return Trees(
        title="Tree-LSTM",
        dims={"tree": (1, count)},
        module=lambda: tree_lstm.TreeLSTM(features, hidden),
        tensors=lambda shape, generator: (),
        axes=(),
        shapes=numbers,
        quick=numbers[:4],
        tolerance=1e-5,
        features=features,
    )


FULL, SMALL = workload(tree_lstm.INPUTS, tree_lstm.HIDDEN, 15), workload(12, 10, 10)
