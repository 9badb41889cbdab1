"""The order in which the nodes of a tree are computed: see ``frontend/recursion.py``."""

from __future__ import annotations

import torch

from ..builder import Builder
from ..registry import lowers
from ..values import Extent, Tensor


@lowers("torch.disc.tree_schedule")
def tree_schedule(b: Builder, children: Tensor, present: Tensor | None, uses: list[int]) -> list[Tensor]:
    """The schedule of a tree's nodes, computed by Trees.cpp."""
    nodes, arity = children.dims
    if present is None:
        present = b.full([nodes, 0], False, torch.bool)
    fields = present.dims[1]
    assert isinstance(fields, int) and isinstance(arity, int)
    b.require_equal(nodes, present.dims[0], "the tensors of a tree differ in their number of nodes")
    kind = torch.int64
    return b.call(
        "tree_schedule",
        [children, present],
        [
            ([nodes], kind),
            ([nodes, arity], kind),
            ([2 ** (fields + arity) + 1], kind),
            ([b.add(nodes, 1)], kind),
            ([nodes], kind),
            ([], kind),
            ([], kind),
        ],
        config=uses,
        scratch=b.mul(b.add(b.mul(nodes, arity + 7), 80), 8),
    )


@lowers("torch.disc.tree_rows")
def tree_rows(b: Builder, x: Tensor, start: Extent, count: Extent) -> Tensor:
    """Some rows of a table."""
    return b.slice(x, 0, start, count)


@lowers("torch.disc.tree_store")
def tree_store(b: Builder, x: Tensor, rows: Tensor, start: Extent) -> Tensor:
    """A table with some rows replaced, in place if nothing else reads it."""
    return b.call("insert", [x, rows], [(x.dims, x.dtype)], config=[0, start, 1], in_place=True)[0]
