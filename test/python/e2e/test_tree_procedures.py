"""Trees whose nodes are computed one after the other: branches on their data, arguments that change on the way down."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

import disc

pytestmark = pytest.mark.share(3)

WIDTH = 3


@dataclass
class Tree:
    value: torch.Tensor
    left: Tree | None = None
    right: Tree | None = None


class Named(NamedTuple):
    value: torch.Tensor
    left: Named | None = None
    right: Named | None = None


def leaf():
    return torch.randn(WIDTH)


def random_tree(nodes, source, cls=Tree):
    if nodes == 0:
        return None
    left = source.randrange(nodes)
    return cls(leaf(), random_tree(left, source, cls), random_tree(nodes - 1 - left, source, cls))


def chain(nodes, cls=Tree):
    tree = None
    for _ in range(nodes):
        tree = cls(0.1 * leaf(), tree)
    return tree


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def node(self, tree):
        if tree is None:
            return torch.zeros(WIDTH)
        if tree.value.sum() > 0:
            return torch.tanh(self.layer(tree.value)) + self.node(tree.left)
        return self.node(tree.left) - self.node(tree.right) * 0.5 + tree.value

    def forward(self, tree):
        return self.node(tree)


class Down(torch.nn.Module):
    def node(self, tree, state, depth=0):
        state = torch.tanh(state + tree.value)
        result = state * depth
        if tree.left:
            result = result + self.node(tree.left, state, depth + 1)
        if tree.right is not None:
            result = result + self.node(tree.right, state * 0.5, depth + 1)
        return result

    def forward(self, tree):
        return self.node(tree, torch.zeros(WIDTH))


def count(tree):
    return 0 if tree is None else 1 + count(tree.left) + count(tree.right)


class Counting(torch.nn.Module):
    def forward(self, tree):
        return count(tree), tree.value


class Walking(torch.nn.Module):
    def forward(self, tree):
        x, node = tree.value, tree.left
        while node is not None:
            x = x + node.value
            node = node.left if x.sum() > 0 else node.right
        return x


class Shrinking(torch.nn.Module):
    """What a node gives has an extent of its own."""

    def node(self, tree):
        return tree.value if tree.left is None else torch.cat([self.node(tree.left), tree.value[:1]])

    def forward(self, tree):
        return self.node(tree)


def rounding(tree):
    """How far two results of Down may be apart by their roundings alone, for each element.

    Its sums pass through values that are ten times as large as what is left of them in the end.
    """
    variance = torch.zeros(WIDTH, dtype=torch.float64)

    class Watched(Down):
        def node(self, *args):
            result = super().node(*args)
            # A term and two sums, each off by up to half a unit in the last place.
            variance.add_((result.double() * 2**-23).square(), alpha=3 / 12)
            return result

    Watched()(tree)
    # Four standard deviations of the difference.
    return 4 * (2 * variance).sqrt()


@pytest.mark.parametrize(
    ("module", "cls"),
    [(Gated, Tree), (Gated, Named), (Down, Tree), (Counting, Tree), (Walking, Named), (Shrinking, Tree)],
)
def test_nodes_one_after_the_other(module, cls):
    torch.manual_seed(0)
    source, model = random.Random(0), module().eval()
    example = cls(leaf(), cls(leaf()), cls(leaf(), None, cls(leaf())))
    compiled = disc.compile(model, (example,))
    trees = [example, cls(leaf()), chain(200, cls), *(random_tree(n, source, cls) for n in (2, 3, 5, 20, 100))]
    for tree in trees:
        got, want = compiled(tree), model(tree)
        if module is Down:
            assert ((got - want).abs() <= 1e-5 + 1.3e-6 * want.abs() + rounding(tree)).all(), (got, want)
        else:
            torch.testing.assert_close(got, want)


class Searching(torch.nn.Module):
    def find(self, tree, key):
        if tree is None:
            return torch.zeros(WIDTH)
        if key < tree.value[0]:
            return self.find(tree.left, key)
        return self.find(tree.right, key) if key > tree.value[0] + 1 else tree.value

    def forward(self, tree, key):
        return self.find(tree, key)


def test_search_takes_one_way_down():
    torch.manual_seed(0)
    source = random.Random(0)
    compiled = disc.compile(Searching(), (Tree(leaf(), Tree(leaf())), torch.tensor(0.3)))
    for nodes in (1, 4, 50):
        for _ in range(5):
            tree, key = random_tree(nodes, source), torch.randn(())
            torch.testing.assert_close(compiled(tree, key), Searching()(tree, key))


def test_a_chain_of_ten_thousand_nodes():
    torch.manual_seed(0)
    model = Gated().eval()
    compiled = disc.compile(model, (Tree(leaf(), Tree(leaf())),))
    tree = chain(10_000)
    found = compiled(tree)
    # In f64, with what rounding each sum, product and tanh in f32 may change.
    model.double()
    nodes, y, rounding = [], torch.zeros(WIDTH).double(), torch.zeros(WIDTH).double()
    while tree is not None:
        nodes.append(tree)
        tree = tree.left
    with torch.no_grad():
        for node in reversed(nodes):
            value = node.value.double()
            y = torch.tanh(model.layer(value)) + y if value.sum() > 0 else y + value
            rounding += y.abs() / 2 + WIDTH
    assert bool(((found - y).abs() <= torch.finfo(torch.float32).eps * rounding).all())


class Careless(torch.nn.Module):
    """Reads a child that there need not be."""

    def node(self, tree):
        return tree.value if tree.value.sum() > 0 else self.node(tree.left)

    def forward(self, tree):
        return self.node(tree)


def test_a_child_that_is_missing_and_a_cycle_are_errors_of_the_call():
    up, down = torch.ones(WIDTH), -torch.ones(WIDTH)
    compiled = disc.compile(Careless(), (Tree(down, Tree(up)),))
    torch.testing.assert_close(compiled(Tree(down, Tree(down, Tree(up * 2)))), up * 2)
    with pytest.raises(IndexError):
        compiled(Tree(down, Tree(down)))
    cycle = Tree(down)
    cycle.left = Tree(down, cycle)
    with pytest.raises(MemoryError, match="recursion is too deep"):
        compiled(cycle)
