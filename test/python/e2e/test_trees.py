"""Recursion over trees against eager PyTorch: one artifact for trees of any structure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import disc
from examples.dynamic import tree_lstm

pytestmark = pytest.mark.share(2)

WIDTH = 6


@dataclass
class Tree:
    """A binary tree."""

    value: Tensor
    left: Tree | None = None
    right: Tree | None = None


class Word(NamedTuple):
    """Up to three children, a number, and a tensor that only some nodes have."""

    word: int
    first: Word | None = None
    second: Word | None = None
    third: Word | None = None
    extra: Tensor | None = None


def random_tree(nodes: int, source: random.Random) -> Tree:
    """Nodes are hung on free places of others."""
    root = Tree(torch.randn(WIDTH))
    free = [(root, "left"), (root, "right")]
    for _ in range(nodes - 1):
        parent, side = free.pop(source.randrange(len(free)))
        child = Tree(torch.randn(WIDTH))
        setattr(parent, side, child)
        free += [(child, "left"), (child, "right")]
    return root


def chain(nodes: int) -> Tree:
    """Each node is the left child of another."""
    tree = Tree(torch.randn(WIDTH))
    for _ in range(nodes - 1):
        tree = Tree(torch.randn(WIDTH), left=tree)
    return tree


class Sum(nn.Module):
    """A function of a node and of its children."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(WIDTH, WIDTH)
        self.below = nn.Linear(WIDTH, WIDTH)

    def forward(self, tree: Tree | None) -> Tensor:
        """Calls itself."""
        if tree is None:
            return torch.zeros(WIDTH)
        left, right = self(tree.left), self(tree.right)
        return torch.tanh(self.own(tree.value) + self.below(left) - 0.5 * right)


def agree(model: disc.Model, module: nn.Module, *args: object) -> None:
    """Both give the same."""
    with torch.no_grad():
        torch.testing.assert_close(model(*args), module(*args), rtol=1e-5, atol=1e-5)


def test_tree_lstm() -> None:
    """The example, on trees of all kinds."""
    module = tree_lstm.make_model(features=12, hidden=8)
    trees = list(tree_lstm.inputs(100, features=12))
    model = disc.compile(module, trees[0])
    assert model.compilations == 1
    for args in trees:
        agree(model, module, *args)


def test_any_structure() -> None:
    """A module that calls itself, children that may be None; single nodes, chains, random trees, shared subtrees."""
    torch.manual_seed(0)
    source = random.Random(0)
    module = Sum().eval()
    model = disc.compile(module, (random_tree(9, source),))
    for nodes in (1, 2, 3, 5, 30, 100):
        for _ in range(3):
            agree(model, module, random_tree(nodes, source))
    agree(model, module, chain(150))
    shared = random_tree(5, source)
    agree(model, module, Tree(torch.randn(WIDTH), shared, Tree(torch.randn(WIDTH), shared, shared)))


def test_as_deep_as_it_likes() -> None:
    """Nothing recurses: where eager PyTorch ends with a RecursionError, the compiled model does not."""
    torch.manual_seed(0)
    module = Sum().eval()
    model = disc.compile(module, (chain(3),))
    tree = chain(10_000)
    expected, node, path = torch.zeros(WIDTH), tree, []
    while node is not None:
        path.append(node)
        node = node.left  # type: ignore[assignment]
    with torch.no_grad():
        for node in reversed(path):
            expected = torch.tanh(module.own(node.value) + module.below(expected))
    torch.testing.assert_close(model(tree), expected, rtol=1e-5, atol=1e-5)


class Expression(nn.Module):
    """Two functions that call each other, several results, an argument that is the same for all nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, WIDTH)

    def even(self, tree: Word, scale: Tensor) -> dict[str, Tensor]:
        """Of its children's odd values."""
        value = self.table(torch.as_tensor(tree.word))
        if tree.extra is not None:
            value = value + tree.extra
        depth = torch.zeros(())
        for child in (tree.first, tree.second, tree.third):
            if child is not None:
                below, deep = self.odd(child, scale=scale)
                value = value + scale * below
                depth = torch.maximum(depth, deep + 1)
        return {"value": value, "depth": depth}

    def odd(self, tree: Word, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Of its first child's even value."""
        value = torch.sin(self.table(torch.as_tensor(tree.word)))
        if tree.first is None:
            return value, torch.zeros(())
        below = self.even(tree.first, scale)
        return value * below["value"], below["depth"] + 1

    def forward(self, tree: Word, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Of the root."""
        result = self.even(tree, scale)
        return result["value"] * 2, result["depth"]


def random_word(nodes: int, source: random.Random) -> Word:
    """Any structure; half of the nodes have the tensor."""
    shares = [0, 0, 0]
    for _ in range(nodes - 1):
        shares[source.randrange(3)] += 1
    children = [random_word(n, source) if n else None for n in shares]
    return Word(source.randrange(20), *children, torch.randn(WIDTH) if source.random() < 0.5 else None)


def test_mutual_recursion() -> None:
    """NamedTuples with optional tensors, numbers, three children, two functions, dicts and tuples of results."""
    torch.manual_seed(0)
    source = random.Random(0)
    module = Expression().eval()
    example = Word(1, Word(2, extra=torch.zeros(WIDTH)))
    model = disc.compile(module, (example, torch.tensor(0.5)))
    for nodes in (1, 2, 3, 10, 10, 10, 60):
        agree(model, module, random_word(nodes, source), torch.rand(()))


class Refusing(nn.Module):
    """A function that is not for all nodes."""

    def node(self, tree: Tree) -> Tensor:
        """Fails where one child is missing."""
        if tree.left is None and tree.right is None:
            return tree.value
        return self.node(tree.left) + self.node(tree.right)  # type: ignore[arg-type]

    def forward(self, tree: Tree) -> Tensor:
        """Of the root."""
        return self.node(tree)


def test_what_is_checked() -> None:
    """Nodes that the code is not for, and trees that are none."""
    model = disc.compile(Refusing(), (Tree(torch.zeros(WIDTH)),))
    agree(model, Refusing(), random_tree(1, random.Random(0)))
    with pytest.raises(IndexError, match="not for the children and optional fields of node 1"):
        model(Tree(torch.zeros(WIDTH), chain(2), chain(1)))
    tree = chain(1)
    tree.left = tree.right = Tree(torch.zeros(WIDTH), tree, tree)
    with pytest.raises(IndexError, match="below itself"):
        model(tree)
    with pytest.raises(TypeError, match="expected a tree of Tree"):
        model(torch.zeros(3))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (lambda self, tree: tree.left.left if tree.left is not None else tree.value, "left of a node's child is read"),
        (
            lambda self, tree: tree.value if tree.left is None else self.node(tree.left).double(),
            r"returns torch.float32 \[6\] for nodes without children and torch.float64 \[6\] for others",
        ),
    ],
)
def test_refused(body: Callable[..., Tensor], why: str) -> None:
    """What cannot be compiled says why, and where."""

    class Module(nn.Module):
        def node(self, tree: Tree) -> Tensor:
            """Recurses."""
            result = body(self, tree)
            if tree.right is not None:
                result = result + self.node(tree.right)
            return result

        def forward(self, tree: Tree) -> Tensor:
            """Of the root."""
            return self.node(tree)

    with pytest.raises(disc.CompileError, match=why) as error:
        disc.compile(Module(), (chain(2),))
    assert "test_trees.py" in str(error.value)


def test_library(tmp_path: Path) -> None:
    """A library takes trees as their tensors, from anybody; it checks them."""
    torch.manual_seed(0)
    module = Sum().eval()
    source = random.Random(0)
    artifact = disc.aot_compile(module, (chain(3),), output=tmp_path / "libsum.so", header=tmp_path / "sum.h")
    assert [spec.name for spec in artifact.interface.inputs] == ["tree_children", "tree_value"]
    assert "int64_t tree_nodes" in (tmp_path / "sum.h").read_text()
    library = disc.load(artifact.path)
    for nodes in (1, 2, 40):
        tree = random_tree(nodes, source)
        with torch.no_grad():
            torch.testing.assert_close(library(*disc.flatten_tree(tree).values()), module(tree), rtol=1e-5, atol=1e-5)
    values = torch.zeros(2, WIDTH)
    with pytest.raises(IndexError, match="child 1 of node 0 is 2, which is no node"):
        library(torch.tensor([[1, 2], [-1, -1]]), values)
    with pytest.raises(IndexError, match=r"node \d is below itself"):
        library(torch.tensor([[1, -1], [0, -1]]), values)
    with pytest.raises(disc.ShapeError):
        library(torch.tensor([[-1, -1]]), values)
