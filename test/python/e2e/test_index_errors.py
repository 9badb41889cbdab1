"""Indices out of range: the call fails as eager's does, names the operation and the line, and the next call works."""

import pytest
import torch
from torch import nn

import disc

ROWS = torch.export.Dim("rows", min=1, max=512)


class Embed(nn.Module):
    def __init__(self, size=10, width=40):
        super().__init__()
        self.table = nn.Embedding(size, width)

    def forward(self, ids):
        return self.table(ids) * 2


class Pick(nn.Module):
    def forward(self, x, index):
        return x[index] + 1


class Gather(nn.Module):
    def forward(self, x, index):
        return torch.gather(x, 1, index)


@pytest.mark.parametrize("rows", [1, 5, 64, 257])
@pytest.mark.parametrize("wrong", [10, -1, 2**40, -(2**63)])
def test_embedding(rows, wrong):
    module = Embed().eval()
    model = disc.compile(module, (torch.zeros(4, dtype=torch.int64),), dynamic_shapes=({0: ROWS},))
    ids = torch.arange(rows) % 10
    expected = module(ids)
    torch.testing.assert_close(model(ids), expected)
    ids[rows // 2] = wrong
    with pytest.raises(IndexError, match=rf"embedding at .*\.py:\d+: index {wrong} is out of range .* extent 10"):
        model(ids)
    ids[rows // 2] = (rows // 2) % 10
    torch.testing.assert_close(model(ids), expected)


def test_advanced_indexing_counts_from_the_end():
    model = disc.compile(
        Pick(),
        (torch.randn(6, 3), torch.zeros(4, dtype=torch.int64)),
        dynamic_shapes=({0: ROWS}, {0: torch.export.Dim("count", min=1, max=8)}),
    )
    for rows in (1, 2, 17, 300):
        x = torch.randn(rows, 3)
        index = torch.tensor([0, -1, rows - 1, -rows])
        torch.testing.assert_close(model(x, index), x[index] + 1)
        for wrong in (rows, -rows - 1):
            with pytest.raises(IndexError, match=rf"index {wrong} is out of range .* extent {rows}"):
                model(x, torch.tensor([0, wrong]))


def test_gather_has_no_negative_indices():
    rows, columns = torch.export.Dim("n", min=1, max=64), torch.export.Dim("m", min=1, max=64)
    model = disc.compile(
        Gather(),
        (torch.randn(3, 5), torch.zeros(3, 4, dtype=torch.int64)),
        dynamic_shapes=({0: rows, 1: columns}, {0: rows, 1: torch.export.Dim("k", min=1, max=64)}),
    )
    for n, m, k in ((1, 1, 1), (3, 17, 16), (7, 5, 33)):
        x, index = torch.randn(n, m), torch.randint(0, m, (n, k))
        torch.testing.assert_close(model(x, index), torch.gather(x, 1, index))
        for wrong in (-1, m):
            bad = index.clone()
            bad[n - 1, k - 1] = wrong
            with pytest.raises(IndexError, match=rf"gather.* index {wrong} "):
                model(x, bad)
