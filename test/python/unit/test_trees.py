"""Trees as arguments: what they are, and how they are flattened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Optional

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import disc
from disc import trees
from disc.frontend import batching


@dataclass
class Tree:
    """A binary tree with a word in some of its nodes."""

    value: Tensor
    left: Tree | None = None
    right: Tree | None = None
    word: int | None = None
    label: str = ""
    kinds: ClassVar[int] = 3


class Chain(NamedTuple):
    """A list."""

    weight: float
    rest: Optional[Chain] = None  # noqa: UP045  (both spellings)


@dataclass
class Many:
    """Children in a list."""

    value: Tensor
    children: list[Many] = field(default_factory=list)


def test_flattened():
    tree = Tree(torch.zeros(3), left=Tree(torch.ones(3), word=4), label="root")
    flat = disc.flatten_tree(tree)
    assert list(flat) == ["children", "present", "value", "word"]
    assert flat["children"].tolist() == [[1, -1], [-1, -1]]
    assert flat["present"].tolist() == [[False], [True]]
    assert flat["value"].tolist() == [[0] * 3, [1] * 3]
    assert flat["word"].tolist() == [0, 4]
    flat = disc.flatten_tree(Chain(2.0, Chain(1.5)))
    assert {k: v.tolist() for k, v in flat.items()} == {"children": [[1], [-1]], "weight": [2.0, 1.5]}


def test_shared_and_deep():
    below = Chain(0.0)
    for i in range(20000):
        below = Chain(float(i), below)
    assert disc.flatten_tree(below)["children"].shape == (20001, 1)
    shared = Tree(torch.zeros(1))
    flat = disc.flatten_tree(Tree(torch.zeros(1), shared, shared, word=1))
    assert flat["children"].tolist() == [[1, 1], [-1, -1]]


def test_a_cycle_is_flattened_once():
    tree = Tree(torch.zeros(1), word=1)
    tree.left = tree
    assert disc.flatten_tree(tree)["children"].tolist() == [[0, -1]]


def test_what_is_a_tree():
    assert trees.is_tree(Tree(torch.zeros(1))) and trees.is_tree(Chain(1.0))
    plain = dataclass(type("Plain", (), {"__annotations__": {"x": int}}))(3)
    for value in (plain, torch.zeros(2).max(0), (1, 2), Tree, None, 3):
        assert not trees.is_tree(value)


def test_refused():
    kind = trees.describe(Tree(torch.zeros(3), word=1))
    with pytest.raises(disc.ShapeError, match=r"node 1: value has the shape \[4\], expected \[3\]"):
        kind.flatten(Tree(torch.zeros(3), Tree(torch.zeros(4))))
    with pytest.raises(TypeError, match=r"node 0: value is a tensor of torch.float64"):
        kind.flatten(Tree(torch.zeros(3, dtype=torch.float64)))
    with pytest.raises(TypeError, match=r"node 0: word is 'x', expected a int"):
        kind.flatten(Tree(torch.zeros(3), word="x"))
    with pytest.raises(TypeError, match="a node of the tree is a Chain"):
        kind.flatten(Tree(torch.zeros(3), left=Chain(1.0)))
    with pytest.raises(disc.CompileError, match="word is None in all nodes of the example"):
        trees.describe(Tree(torch.zeros(3)))
    with pytest.raises(ValueError, match="number of nodes is always dynamic"):
        found = trees.find((Chain(1.0),), {})
        assert trees.dynamic_shapes(None, (Chain(1.0),), {}, ["tree"], found)["tree"][0][0].__name__ == "tree_nodes"
        trees.dynamic_shapes({"tree": {0: None}}, (Chain(1.0),), {}, ["tree"], found)


def test_placeholders_are_of_the_users_class():
    kind = trees.describe(Chain(1.0))
    tree = trees.table(kind, Chain(1.0, Chain(2.0)))
    assert isinstance(tree, Chain) and tree.weight.item() == 1.0
    leaves, spec = torch.utils._pytree.tree_flatten((tree, 3))
    assert len(leaves) == 3 and leaves[0].tolist() == [[1], [-1]]
    assert isinstance(torch.utils._pytree.tree_unflatten(leaves, spec)[0], Chain)


def test_batches_as_value_by_value():
    """The rules for batches of every op here, at several extents."""
    torch.manual_seed(0)
    linear, norm, table = torch.nn.Linear(8, 20), torch.nn.LayerNorm(8), torch.nn.Embedding(11, 8)
    bilinear, weight = torch.nn.Bilinear(5, 5, 4), torch.randn(4, 6)

    def node(x, l, r, i, s):
        a, f, o, c = (linear(norm(x) + table(i)) + torch.cat([l, r]).repeat(2)).chunk(4)
        y = torch.sigmoid(a) * torch.tanh(c) + torch.sigmoid(f) * l + torch.softmax(o, 0) * r * s
        m = torch.outer(l, r) @ r
        h = l.clone()
        h += r
        return [
            y,
            torch.stack([l, r]).sum(0) + torch.stack([l, r], -1).mean(-1),
            weight @ y[:4].repeat(2)[:6],
            m,
            (l.max() + r.norm() + torch.dot(l, r)) * y.view(1, 5).squeeze(),
            torch.einsum("i,ij->j", l, m.expand(5, 5)),
            torch.where(l > r, l, r).cumsum(0) + bilinear(l, r).sum(),
            x.reshape(2, 2, 2).permute(2, 0, 1).flatten()[:5],
            h,
            torch.eye(3),
            x.argmax(),
            torch.max(l, r),
            torch.max(l, 0)[1],
            torch.nn.functional.gelu(l)[2],
            l[None, :],
            l[-2:],
            torch.log_softmax(l, -1).unsqueeze(-1).expand(5, 3),
            i + 1,
            s * 2,
            weight[(i % 4)[None]][0],
        ]

    sizes = [
        ((8,), torch.float32),
        ((5,), torch.float32),
        ((5,), torch.float32),
        ((), torch.int64),
        ((), torch.float64),
    ]
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        one = [torch.empty(size, dtype=dtype) for size, dtype in sizes]
        graph = make_fx(
            lambda: node(*one), decomposition_table=batching.decompositions(), _allow_non_fake_inputs=True
        )()
    with torch.no_grad():
        for extent in (1, 2, 5):
            values = [
                torch.randn(extent, *size).to(dtype) if dtype.is_floating_point else torch.randint(0, 11, (extent,))
                for size, dtype in sizes
            ]
            batches = {id(x): value for x, value in zip(one, values, strict=True)}
            rows = [node(*(value[b] for value in values)) for b in range(extent)]
            for number, result in enumerate(batching.run_batched(graph, batches, extent)):
                expected = torch.stack([row[number] for row in rows])
                assert result.dtype == expected.dtype
                torch.testing.assert_close(result, expected)
