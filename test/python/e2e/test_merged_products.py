"""Products of one input are one kernel: with results of several shapes and epilogues, and gated units."""

import re

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc

B, S = Dim("B", min=1, max=64), Dim("S", min=1, max=512)
SIZES = [(1, 1), (1, 2), (3, 5), (2, 14), (1, 15), (2, 31), (29, 2), (1, 500)]


class Block(nn.Module):
    """Grouped queries with an epilogue on the keys, then a gated unit; no layer before either."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(48, 48), nn.Linear(48, 24, bias=False), nn.Linear(48, 24)
        self.out = nn.Linear(48, 48)
        self.gate, self.up = nn.Linear(48, 100, bias=False), nn.Linear(48, 100)
        self.down = nn.Linear(100, 48)

    def forward(self, x):
        def heads(t):
            return t.unflatten(-1, (-1, 12)).transpose(1, 2)

        query, key, value = heads(self.query(x)), heads(self.key(x).tanh()), heads(self.value(x))
        key, value = (t.repeat_interleave(2, dim=1) for t in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Far(nn.Module):
    """The second product of the input cannot run with the first: its epilogue needs what the first leads to."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(20, 20) for _ in range(3))

    def forward(self, x):
        y = self.second(F.layer_norm(self.first(x), (20,)))
        return self.third(x) + y.sum(-1, keepdim=True), y


def run(module, width):
    torch.manual_seed(0)
    module = module.eval()
    model = disc.compile(
        module, (torch.randn(2, 6, width),), dynamic_shapes=({0: B, 1: S},), options=disc.Options(threads=2)
    )
    with torch.no_grad():
        for size in SIZES:
            x = torch.randn(*size, width)
            expected, actual = module(x), model(x)
            for e, a in zip(*((t if isinstance(t, tuple) else (t,)) for t in (expected, actual)), strict=True):
                assert (a - e).abs().max() <= 5e-6 * e.abs().max(), size
    return re.findall(r"disc_plan.kernel +contraction", model.ir("fusion"))


def test_block():
    # Queries, keys and values; the output; gate and value; the way down.
    assert len(run(Block(), 48)) == 4


def test_dependent_products_stay_apart():
    assert len(run(Far(), 20)) == 3


class Scores(nn.Module):
    """Products of one column, by weights and by activations: dot products, no panels."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(37, 1)

    def forward(self, x):
        return torch.sigmoid(self.last(x)), x @ x[..., :1, :].mT


def test_one_column_is_a_dot_product():
    assert not run(Scores(), 37)


class Mixed(nn.Module):
    """Products by weights that are computed from parameters, and by what is computed from an input."""

    def __init__(self):
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.randn(32, 24)), nn.Parameter(torch.randn(32, 40))

    def forward(self, x, y):
        return x @ self.weight.sigmoid(), x @ y.sigmoid(), x @ self.other, x @ y.tanh()


def test_what_is_known_at_load_and_what_is_not_stay_apart():
    torch.manual_seed(0)
    module, y = Mixed().eval(), torch.randn(32, 16)
    model = disc.compile(module, (torch.randn(5, 32), y), dynamic_shapes=({0: B}, None))
    with torch.no_grad():
        for rows in (1, 2, 7, 31):
            x = torch.randn(rows, 32)
            for e, a in zip(module(x, y), model(x, y), strict=True):
                assert (a - e).abs().max() <= 5e-6 * e.abs().max(), rows
    # The weights alone are packed, by one kernel for both products.
    assert len(re.findall(r"disc_plan.kernel +contraction", model.ir("fusion"))) == 2
