"""Gradients of recursion over trees against PyTorch's autograd."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import disc
from examples.dynamic import tree_lstm

pytestmark = pytest.mark.share(2)

WIDTH = 8


def agree(model: disc.Model, module: nn.Module, *args: object) -> None:
    """Both give the same loss and gradients."""
    (output, gradients), (expected, wanted) = model(*args), module(*args)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
    assert list(gradients) == list(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


class Loss(nn.Module):
    """How badly a tree is classified."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tree: tree_lstm.Tree, label: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the scores."""
        scores, _ = self.model(tree)
        return nn.functional.cross_entropy(scores[None], label[None]), scores


def test_tree_lstm() -> None:
    """The example, on trees of all kinds; training with the gradients lowers the loss."""
    loss = Loss(tree_lstm.make_model(features=WIDTH, hidden=6).requires_grad_(True))
    module = disc.with_gradients(loss)
    trees = [tree for (tree,) in tree_lstm.inputs(10, features=WIDTH)]
    model = disc.compile(module, (trees[0], torch.tensor(1)))
    for number, tree in enumerate(trees):
        agree(model, module, tree, torch.tensor(number % 5))


@dataclass
class Node:
    """A word and what is below it; nodes may have several parents."""

    word: int
    left: Node | None = None
    right: Node | None = None


class Words(nn.Module):
    """A table of words, and two functions that call each other."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Parameter(torch.randn(WIDTH), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(3))

    def one(self, node: Node | None) -> Tensor:
        """Of children's other function."""
        if node is None:
            return torch.zeros(WIDTH)
        return torch.tanh(self.mix(self.other(node.left)) + self.table(torch.as_tensor(node.word)) * self.frozen)

    def other(self, node: Node | None) -> Tensor:
        """Of children's first function."""
        if node is None:
            return torch.ones(WIDTH)
        return self.one(node.left) * 0.5 + self.one(node.right) * self.mix.bias

    def forward(self, node: Node) -> Tensor:
        """A number."""
        return self.one(node).square().sum() + self.mix.weight.sum()


def test_words() -> None:
    """Embeddings, shared subtrees, functions that call each other, parameters outside, unused and frozen ones."""
    torch.manual_seed(0)
    module = disc.with_gradients(Words())
    model = disc.compile(module, (Node(1, Node(2)),))
    shared = Node(3, Node(4), Node(5))
    for tree in (Node(0), Node(6, None, Node(1)), Node(1, shared, shared), Node(1, Node(2, shared, Node(3)), shared)):
        agree(model, module, tree)
    assert set(model(shared)[1]) == {"table.weight", "mix.weight", "mix.bias", "unused"}


def test_refused() -> None:
    """What is no loss."""

    class Whole(nn.Module):
        def forward(self, tree: tree_lstm.Tree) -> Tensor:
            """No number."""
            return tree.word

    with pytest.raises(disc.CompileError, match="must be the loss, a number, and is"):
        disc.compile(disc.with_gradients(Whole()), (tree_lstm.Tree(torch.zeros(3)),))
