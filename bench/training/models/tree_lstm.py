"""A Tree-LSTM that classifies trees: recursion over a data structure, forwards and backwards."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Shape, TrainingModel

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))
from dynamic import tree_lstm

CLASSES = 5


class Classifier(tree_lstm.TreeLSTM):
    """Scores of a tree; initial states have the dtype of the weights."""

    def node(self, tree: tree_lstm.Tree) -> tuple[Tensor, Tensor]:
        """The hidden and the cell state of a tree's root."""
        total = kept = torch.zeros(self.hidden, dtype=self.head.weight.dtype)
        forget = self.word_forget(tree.word)
        if tree.left is not None:
            h, c = self.node(tree.left)
            total = total + h
            kept = kept + torch.sigmoid(forget + self.state_forget(h)) * c
        if tree.right is not None:
            h, c = self.node(tree.right)
            total = total + h
            kept = kept + torch.sigmoid(forget + self.state_forget(h)) * c
        i, o, u = (self.word_gates(tree.word) + self.state_gates(total)).chunk(3, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c


def loss(module: nn.Module, tree: tree_lstm.Tree, label: Tensor) -> Tensor:
    """Cross-entropy of the tree's class."""
    scores, _ = module(tree)
    return F.cross_entropy(scores[None], label[None])


def _model(features: int, hidden: int, shapes: tuple[Shape, ...], quick: tuple[Shape, ...] = ()) -> TrainingModel:
    def batch(shape: Shape, generator: torch.Generator) -> tuple[Any, Tensor]:
        source = random.Random(int(torch.randint(1 << 30, (), generator=generator)))
        label = torch.randint(CLASSES, (), generator=generator)

        def word() -> Tensor:
            # Words point a little into the direction of the class.
            return torch.randn(features, generator=generator) + F.one_hot(label, features)

        return tree_lstm.sentence(word, source, shape[0]), label

    return TrainingModel(
        title="Tree-LSTM",
        dims={"words": (1, 200)},
        module=lambda: Classifier(features, hidden, CLASSES),
        loss=loss,
        batch=batch,
        axes=(None, {}),
        optimizer=torch.optim.Adagrad,
        options={"lr": 0.02},
        shapes=shapes,
        quick=quick,
    )


FULL = _model(
    300,
    150,
    tuple((words,) for words in (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 17, 19, 22, 25, 29, 33, 40, 60, 100)),
    ((3,), (19,), (40,)),
)
SMALL = _model(12, 10, ((1,), (5,), (19,), (2,), (31,)))
