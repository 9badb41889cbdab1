"""Child-sum Tree-LSTM: a recursive function over trees of any structure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

INPUTS, HIDDEN = 300, 150


@dataclass
class Tree:
    """A word and what depends on it."""

    word: Tensor
    left: Tree | None = None
    right: Tree | None = None


class TreeLSTM(nn.Module):
    """States of a tree from those of its children, and scores of the whole."""

    def __init__(self, inputs: int = INPUTS, hidden: int = HIDDEN, classes: int = 5):
        super().__init__()
        self.hidden = hidden
        self.word_gates = nn.Linear(inputs, 3 * hidden)
        self.state_gates = nn.Linear(hidden, 3 * hidden, bias=False)
        self.word_forget = nn.Linear(inputs, hidden)
        self.state_forget = nn.Linear(hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, classes)

    def node(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """The hidden and the cell state of a tree's root."""
        total = kept = torch.zeros(self.hidden)
        if tree.left is not None or tree.right is not None:
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

    def forward(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """Scores of the classes, and the root's hidden state."""
        h, _ = self.node(tree)
        return self.head(h), h


def make_model(seed: int = 0, features: int = INPUTS, hidden: int = HIDDEN) -> TreeLSTM:
    """Random weights."""
    torch.manual_seed(seed)
    return TreeLSTM(features, hidden).eval().requires_grad_(False)


Word = Callable[[], Tensor]


def leaf(word: Word, source: random.Random) -> Tree:
    """A single node."""
    return Tree(word())


def chain(word: Word, source: random.Random, depth: int = 200) -> Tree:
    """Each node has one child, on either side."""
    tree = Tree(word())
    for _ in range(depth - 1):
        tree = Tree(word(), left=tree) if source.random() < 0.5 else Tree(word(), right=tree)
    return tree


def bushy(word: Word, source: random.Random, depth: int = 6) -> Tree:
    """All nodes above the last level have two children."""
    if depth == 1:
        return Tree(word())
    return Tree(word(), bushy(word, source, depth - 1), bushy(word, source, depth - 1))


def sentence(word: Word, source: random.Random, words: int | None = None) -> Tree:
    """As of the Stanford Sentiment Treebank: phrases are cut in two at a random place, 19 words on average."""
    words = source.randint(2, 36) if words is None else words
    if words == 1:
        return Tree(word())
    cut = source.randint(1, words - 1)
    return Tree(word(), sentence(word, source, cut), sentence(word, source, words - cut))


def scattered(word: Word, source: random.Random, nodes: int | None = None) -> Tree:
    """Any structure: the nodes below are dealt to both sides, one of which may stay empty."""
    nodes = source.randint(1, 60) if nodes is None else nodes
    left = source.randint(0, nodes - 1)
    sides = [scattered(word, source, n) if n > 0 else None for n in (left, nodes - 1 - left)]
    return Tree(word(), *sides)


KINDS = {kind.__name__: kind for kind in (sentence, chain, bushy, leaf, scattered)}


def inputs(n: int, seed: int = 0, features: int = INPUTS) -> Iterator[tuple[Tree]]:
    """Trees of all kinds in turn."""
    source = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    kinds = list(KINDS.values())
    for i in range(n):
        yield (kinds[i % len(kinds)](lambda: torch.randn(features, generator=generator), source),)
