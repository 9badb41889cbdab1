"""Small models that together use every kind of kernel and of host flow, with inputs, and what must fail and how.

Nothing here knows of targets: a runner compiles a case's module once, and runs it at all of its sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from disc import ShapeError
from models import MLP, Block, Chain, Decoder

from .attention import Cache, HeadSizes, InfiniteHeads, infinite_heads, long_cache, many_keys_case
from .case import Case, Failure, Tensors, random
from .quantised import Quantised


class Fn(nn.Module):
    """A function, with weights to multiply by."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 17)
        self.table = nn.Parameter(torch.randn(11, 6))

    def forward(self, *args: Tensor) -> Any:
        return self.fn(self, *args)


def expected(module: nn.Module, inputs: Tensors) -> list[Tensor]:
    """What eager gives; tensors that the model updates are updated."""
    with torch.no_grad():
        results = module(*inputs)
    return [t for t in torch.utils._pytree.tree_leaves(results) if isinstance(t, Tensor)]


def check(case: Case, module: nn.Module, run: Callable[..., Sequence[Tensor]]) -> None:
    """Runs a case that was compiled at all sizes, and what must fail in between."""
    module = copy.deepcopy(module)
    for i, size in enumerate(case.sizes):
        torch.manual_seed(i)
        inputs = case.inputs(*size)
        copies = tuple(t.clone() for t in inputs)
        got, wanted = (*run(*inputs), *inputs), [*expected(module, copies), *copies]
        assert len(got) == len(wanted)
        for ours, theirs in zip(got, wanted, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (size, ours.shape, theirs.shape)
            torch.testing.assert_close(
                ours, theirs, rtol=case.tolerance, atol=case.tolerance, msg=lambda text, size=size: f"{size}: {text}"
            )
    for failure in case.failures:
        try:
            run(*failure.inputs())
        except failure.error as error:
            for word in failure.mentions:
                assert word in str(error), str(error)
        else:
            raise AssertionError(f"a call succeeded that should be a {failure.error.__name__}")
        # The model is as good as before.
        run(*case.inputs(*case.sizes[-1]))


def _products(m: Fn, x: Tensor) -> Any:
    h = F.gelu(m.first(x))
    return m.second(h).relu(), x @ x.t(), (x.t() @ x)[:3], torch.bmm(h[:, :, None], x[:, None, :]).sum(0)


def _integer_products(m: Fn, x: Tensor) -> Any:
    return x @ x.t(), (x[:, None] * x[None]).sum(-1), x.sum(0)


def _reductions(m: Fn, x: Tensor) -> Any:
    down = x.sum(0), x.mean(0), x.amax(0), x.softmax(0), x.argmax(0), x.cumsum(0)
    across = x.sum(1), x.var(1), x.amin(1), x.log_softmax(1), x.argmax(1), x.norm(dim=1), x.cumsum(1)
    return *down, *across, x.sum(), (x > 0).all(1), (x > 0).any(0), x.logsumexp(1)


def _fusions(m: Fn, x: Tensor, y: Tensor) -> Any:
    z = (x * 2 - y).clamp(-1, 1)
    turned = (x.t().exp() + y.t()).t()
    joined = torch.cat([x, y[:, :3]], 1)
    rotated = x * y + torch.cat([-x[:, 7:], y[:, :7]], 1), torch.cat([x.abs(), y]).t() - 1
    return (
        *rotated,
        z * z.mean(1, keepdim=True),
        turned,
        joined * 2,
        torch.where(x > y, x, -y),
        (x[:, None] - y).abs().sum(2),
    )


def _extents(m: Fn, x: Tensor) -> Any:
    """What is left of each kind of kernel where an extent, or both, are 0."""
    whole = x.exp(), x.t() + 1, torch.cat([x, x], 1), x.cumsum(0), x.cumsum(1), x.softmax(1), x - x.mean(0), x @ x.t()
    whole = *whole, (x @ x.t()).softmax(1) @ x, torch.ones(3).masked_scatter(torch.zeros(3) > 0, x)
    return *whole, x.t() @ x, x.sum(0), x.sum(1), x.sum(), (x > 0).all(0), (x > 0).any(1), x[:, None] * x


def _lengths(m: Fn, x: Tensor) -> Any:
    """Rows around the edges of vectors, warps and blocks."""
    y = x - x.mean(1, keepdim=True)
    return y / (y.var(1, keepdim=True) + 1).sqrt(), x.softmax(1), x.amax(1), x.argmin(1), x.sum(), x.cumsum(1), x.sum(0)


def _long_rows(m: Fn, x: Tensor) -> Any:
    return (
        F.layer_norm(x, (2052,)),
        x.log_softmax(1),
        x.argmax(1),
        x.cumsum(1)[:, ::100],
        (x > 3).any(1),
        x.half().amax(1),
    )


def _kept_rows(m: Fn, x: Tensor, gate: Tensor) -> Any:
    """Rows that may stay in registers between their passes; operands along them, down them and of both."""
    y = torch.sigmoid(gate) * (x - x.mean(1, keepdim=True))
    y = torch.where(x > 0, y, -y) + x.softmax(1) * x.shape[1]
    return y / (y.square().mean(1, keepdim=True) + 1).sqrt() + x[:, :1], x.sum(1), (x + gate).amax(1)


def _static_rows(m: Fn, x: Tensor) -> Any:
    """Rows of lengths that are known, in parts of warps and in several of them, with vectors and without."""
    parts = [x[:, :n] for n in (3, 24, 100, 101, 128, 129, 768, 1024, 1028)]
    return tuple(F.layer_norm(F.gelu(part), part.shape[1:]) * part.softmax(1) for part in parts)


def _columns(m: Fn, x: Tensor) -> Any:
    """Reductions of outer dims, whose inner rows are whole vectors or not, of every width of elements."""
    y = x - x.mean(1, keepdim=True)
    return (
        y / (y.square().mean(1, keepdim=True) + 1).sqrt(),
        (x.sum(0), x.sum(1), x.sum((0, 1)), x.amax(1), x.softmax(1), x.var(1, correction=0)),
        (x.half().float().sum(1), x.half().amax(0), x.bfloat16().float().sum(1), x.double().sum((0, 1))),
        ((8 * x).to(torch.int32).sum(1), (x > 0).any(1), (8 * x).to(torch.int8).amax(1), x[:, :, 1:].sum(1)),
    )


def _long_sums(m: Fn, x: Tensor, y: Tensor) -> Any:
    """More than a block reduces on its own."""
    sums = x.sum(0), (x * 2).square().mean(), x.amax(0), (x > 3).any(), (x > 0).sum(0), x[:, 0].half().amin()
    return *sums, x.t().sum(1), y.sum(1), y.mean((1, 2)), y.amax(2), y.prod(1).isfinite().all(), (x.long() % 7).sum()


def _elements(m: Fn, x: Tensor) -> Any:
    """Every type of elements, in loops, rows, columns and running sums."""
    results: list[Tensor] = []
    for dtype in (torch.int8, torch.int64, torch.float64, torch.float16, torch.bfloat16):
        y = x.to(dtype)
        results += [y * y + 1, y.t().contiguous(), y.amax(1), y.sum(0), y == y.amax(1, keepdim=True)]
        if not dtype.is_floating_point:
            results += [y // 3, y & 5, y.cumsum(0)]
    flags = x > 0
    return *results, flags, ~flags, flags ^ flags.any(0), flags.all(1), flags.sum(0), flags.to(torch.bfloat16)


def _places(m: Fn, x: Tensor, y: Tensor, z: Tensor, one: Tensor) -> Any:
    """Broadcasting in all positions, of [a, 1, 4], [b, 1], [4] and []."""
    both = x + y[None]
    return both, both * z, x * z + one, (y + z) * one, both.transpose(0, 1) - z, both.sum(0), both.mean(2) + y[:, 0]


def _strides(m: Fn, x: Tensor, y: Tensor) -> Any:
    return x * 2, x.sum(1), x.sum(0), x @ m.table[:4], y.exp(), y - x, y.softmax(1)


def _maths(m: Fn, x: Tensor) -> Any:
    p = x.abs() + 0.1
    plain = x.exp(), x.tanh(), x.erf(), x.sin(), x.cos(), x.atan(), x.expm1(), x.sigmoid(), F.silu(x), F.softplus(x)
    return *plain, p.log(), p.rsqrt(), p.sqrt(), p.log1p(), p**1.7, x.floor(), x.round(), x.fmod(0.7), x.sinh()


def _gathers(m: Fn, x: Tensor, index: Tensor) -> Any:
    rows = F.embedding(index, m.table)
    return rows, m.table[index, index % 6], x[:, index % 4], x.gather(1, (index % 4)[None].expand(x.shape[0], -1))


def _scatters(m: Fn, x: Tensor, index: Tensor) -> Any:
    zero = torch.zeros(11, 4)
    placed = torch.zeros(11, 4).index_put((index,), x * 0 + index[:, None].float())
    return (
        zero.index_add(0, index, x),
        placed,
        torch.zeros(11, 4).scatter_reduce(0, index[:, None] + 0 * x.long(), x, "amax"),
    )


def _many_updates(m: Fn, x: Tensor, index: Tensor) -> Any:
    """More than a block puts in order, at few places."""
    counts = torch.zeros(5, dtype=torch.int64).index_add(0, index % 5, torch.ones_like(index))
    sums = torch.zeros(5, 4).index_add(0, index % 5, x)
    lows = torch.zeros(4, 11).scatter_reduce(1, index.expand(4, -1), x.t(), "amin", include_self=False)
    return counts, sums, lows, torch.zeros(11, 4).index_fill(0, index - 11, 7.0)


def _sorts(m: Fn, x: Tensor) -> Any:
    values, order = x.sort(1, descending=True)
    both = x.flatten().round().sort(stable=True)
    return values, order, x.topk(3, 1)[0], *both, x.median(1)[0]


def _cumulative(m: Fn, x: Tensor) -> Any:
    highest, where = torch.where(x[:, 8:] > 0.9, torch.nan, x).cummax(0)
    last = torch.nan_to_num(highest, 7.0), where
    return (x * 0.1 + 1).cumprod(0), *last, *(x * 2).long().cummin(1), x.flatten().logcumsumexp(0)


def _data_dependent(m: Fn, x: Tensor) -> Any:
    picked = x[x > 0]
    return picked, picked.sum(), x.nonzero(), x[x[:, 0] > 0] * 2, torch.unique((x * 2).long())


def _flow(m: Fn, x: Tensor) -> Any:
    steps = 0
    while x.abs().sum() > 1:
        x = x * 0.5
        steps += 1
    if x.sum() > 0:
        x = x + 1
    total = x.new_zeros(x.shape[1])
    for row in x:
        total = (total + row).tanh()
    return x, steps + x[:0].sum().long(), total


class Halving(nn.Module):
    """Calls itself as often as data says."""

    def f(self, x: Tensor) -> Tensor:
        if x.sum() < 1:
            return x
        return self.f(x * 0.5) + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


class Layers(nn.Module):
    """Two layers of an LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(10, 12, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(24, 9, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.gru(self.lstm(x)[0])


class Pictures(nn.Module):
    """Convolutions of every kind: plain, strided, dilated, depthwise, grouped, 3 x 3 by Winograd's way, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 20, 3, padding=1)
        self.norm = nn.BatchNorm2d(20)
        self.depthwise = nn.Conv2d(20, 20, 3, padding=2, dilation=2, groups=20)
        self.grouped = nn.Conv2d(20, 8, 3, stride=2, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 5, 2, stride=2)

    def forward(self, x: Tensor) -> Any:
        h = self.norm(self.plain(x)).relu()
        h = F.max_pool2d(h + self.depthwise(h), 2)
        h = self.grouped(h)
        return self.up(h), F.adaptive_avg_pool2d(h, 1).flatten(1)


class Attention(nn.Module):
    """Masks, causality, and heads that share keys."""

    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> Any:
        shared = F.scaled_dot_product_attention(q, k[:, :1], k[:, :1], enable_gqa=True)
        return (
            F.scaled_dot_product_attention(q, k, k, mask),
            F.scaled_dot_product_attention(q, q, q, is_causal=True),
            shared,
        )


class Masks(nn.Module):
    """Masks of each shape and type, one that hides every key of a query, and values of another size than keys."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor) -> Any:
        def attend(*args: Tensor, **given: Any) -> Tensor:
            return F.scaled_dot_product_attention(*args, **given)

        return (
            attend(q, k, v, keep[:, None, None, :]),
            attend(q, k, v, bias, scale=0.5),
            attend(q, q, q[..., :5], is_causal=True).transpose(1, 2).flatten(2),
            attend(q, k[:, :2], v[:, :2], keep[:, None, None, :], enable_gqa=True),
        )


class Fragments(nn.Module):
    """Products around the edges of a matrix unit's tiles: whole lines, odd ones, both orders, computed operands."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(72, 80), nn.Linear(80, 37)

    def forward(self, x: Tensor) -> Any:
        h = F.gelu(self.first(x))
        y = self.second(h)
        return y, y.t() @ h, torch.relu(h * 2) @ h.t(), (x[:, None, :16] @ x[:, :16, None]).flatten()


class Infinite(nn.Module):
    """Products with infinities, NaN, zeros, and numbers near both ends of the range."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 48)
        self.linear.weight.data[::3] = torch.round(self.linear.weight.data[::3] * 16)

    def forward(self, x: Tensor, special: Tensor) -> Any:
        # Only where they are is asked for: a sum of large numbers may overflow or not, by its order.
        special = torch.where(special == 7, torch.nan, special)
        y = self.linear(torch.cat([x[:, :60], special], 1))
        return y.isnan(), y.isinf(), torch.where(y.isfinite(), y, 0.0).clamp(-100, 100)


class FewRows(nn.Module):
    """Products of few rows with weights: long and short sums, many columns, one, a prime number of them.

    Weights are in both orders; views begin anywhere; rows are inputs or computed, and may have infinities.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = [(1032, 16), (72, 37), (16, 4099), (8, 1), (37, 13), (20, 32)]
        self.layers = nn.ModuleList([nn.Linear(*size) for size in sizes])
        self.table = nn.Parameter(torch.randn(23, 80) / 8)
        self.joined = nn.ModuleList([nn.Linear(64, size, bias=False) for size in (24, 40)])

    def forward(self, x: Tensor, special: Tensor) -> Any:
        y = [layer(x[:, : layer.in_features]) for layer in self.layers]
        y += [layer(x[:, 3 : 3 + layer.in_features]) for layer in self.layers[1:2]]
        y += [F.linear(x[:, 8:72], self.table[2:, 8:72]), F.linear(x[:, :64], self.table[1:, 3:67])]
        y += [x[:, :23] @ self.table, self.joined[1](F.silu(x[:, 64:128]))]
        gate, up = (layer(x[:, :64]) for layer in self.joined)
        infinite = self.joined[0](torch.cat([x[:, :60], torch.where(special == 7, torch.nan, special).to(x.dtype)], 1))
        return *y, torch.tanh(gate), up + 1, infinite.isnan(), infinite.isinf(), infinite.nan_to_num(0.0, 0.0, 0.0)


_FEW_ROWS = [(1,), (2,), (7,), (8,), (9,), (15,), (16,), (17,), (0,)]


def _special(n: int) -> Tensor:
    """Rows; 7 stands for NaN, which is not equal to itself in comparisons of inputs."""
    inf = float("inf")
    rows = torch.tensor(
        [[0.0, 0, 0, 0], [inf, 0, 0, 0], [0, -inf, 0, 0], [inf, -inf, 0, 0], [7, 1, 0, 0], [0, 0, 0, 1e-42]]
    )
    return rows[torch.arange(n) % len(rows)]


class Filters(nn.Module):
    """Convolutions of one and three dimensions, of images that may be none, and a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Conv1d(3, 6, 5, padding=2, stride=2)
        self.volume = nn.Conv3d(1, 4, 2, bias=False)
        self.up = nn.ConvTranspose1d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.norm = nn.BatchNorm1d(3)
        self.norm.running_mean = torch.tensor([0.5, -1.0, 2.0])

    def forward(self, x: Tensor) -> Any:
        h = self.line(F.pad(x, (1, 2)))
        return self.up(h.relu()), self.norm(x), self.volume(x[:, None, :, :, None].expand(-1, -1, -1, -1, 3)).amax(2)


class Counter(nn.Module):
    """Keeps a sum and writes to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        self.total.mul_(0.5).add_(x.sum(0))
        return self.total * 2, x + 1


class Updates(nn.Module):
    """Writes to its input where it lies, from what it reads there."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        x.sub_(x.argmax(1, keepdim=True))
        y.copy_(y.softmax(1))
        return x.sum(1), y * 2


def _rows(maximum: int = 300, least: int = 0) -> Any:
    return {0: Dim("n", min=least, max=maximum)}


_MANY = Dim("n", min=1, max=1 << 20)
_BATCH, _LENGTH = Dim("batch", min=1, max=9), Dim("length", min=1, max=100)
_H, _W = Dim("height", min=4, max=64), Dim("width", min=4, max=64)
_EDGES = [(1,), (6,), (7,), (13,), (14,), (15,), (64,), (0,), (2,), (29,)]
_FEW = [(1,), (7,), (0,), (33,), (2,)]


def _whole(*shape: int) -> Tensor:
    return torch.randint(-9, 9, shape)


CASES = [
    Case(
        "products",
        lambda: Fn(_products),
        lambda n: (random(n, 24),),
        ((_rows(),),),
        _EDGES,
        tolerance=3e-5,
        failures=[
            Failure(lambda: (random(301, 24),), ShapeError, ["dim 0 (n)", "expected 0 <= n <= 300", "got 301"]),
            Failure(lambda: (random(3, 23),), ShapeError, ["24", "23"]),
            Failure(lambda: (random(3),), ShapeError, ["rank"]),
            Failure(lambda: (random(3, 24).double(),), TypeError, ["float64"]),
        ],
    ),
    Case("integer_products", lambda: Fn(_integer_products), lambda n: (_whole(n, 9),), ((_rows(99),),), _FEW),
    Case(
        "reductions",
        lambda: Fn(_reductions),
        lambda n: (random(n, 33),),
        ((_rows(99, 1),),),
        [(1,), (7,), (64,), (2,)],
    ),
    Case("fusions", lambda: Fn(_fusions), lambda n: (random(n, 13), random(n, 13)), ((_rows(), _rows()),), _FEW),
    Case("norms", Chain, lambda n: (random(n, 48),), (_rows(),), _FEW),
    Case("maths", lambda: Fn(_maths), lambda n: (3 * random(n, 5),), ((_rows(),),), _FEW),
    Case(
        "gathers",
        lambda: Fn(_gathers),
        lambda n: (random(3, 6), torch.randint(0, 11, (n,))),
        ((None, _rows()),),
        _FEW,
        failures=[Failure(lambda: (random(3, 6), torch.tensor([2, 11])), IndexError, ["cases.py", "11"])],
    ),
    Case(
        "scatters",
        lambda: Fn(_scatters),
        lambda n: (random(n, 4), torch.randint(0, 11, (n,))),
        ((_rows(), _rows()),),
        _FEW,
        failures=[Failure(lambda: (random(1, 4), torch.tensor([-12])), IndexError, ["cases.py", "-12"])],
    ),
    Case(
        "long_sums",
        lambda: Fn(_long_sums),
        lambda n: (random(n, 5), random(2, n, 3)),
        (({0: _MANY}, {1: _MANY}),),
        [(1,), (1024,), (1025,), (20011,), (5000,)],
    ),
    Case(
        "columns",
        lambda: Fn(_columns),
        lambda a, n, c: (random(a, n, c),),
        (({0: Dim("a", min=1, max=99), 1: Dim("n", min=1, max=9999), 2: Dim("c", min=1, max=9999)},),),
        [(1, 1, 1), (2, 3, 4), (3, 40, 8), (1, 300, 36), (2, 17, 130), (1, 600, 128), (2, 5, 257), (1, 2100, 12)],
        (5, 7, 9),
        tolerance=1e-4,
    ),
    Case(
        "many_updates",
        lambda: Fn(_many_updates),
        lambda n: (random(n, 4), torch.randint(0, 11, (n,))),
        ((_rows(2000, 1), _rows(2000, 1)),),
        [(1,), (300,), (256,), (1031,)],
    ),
    Case(
        "cumulative",
        lambda: Fn(_cumulative),
        lambda n: (random(n, 9),),
        ((_rows(99, 1),),),
        [(1,), (7,), (33,), (64,)],
    ),
    Case("sorts", lambda: Fn(_sorts), lambda n: (random(n, 9),), ((_rows(99, 1),),), [(1,), (7,), (33,)]),
    Case("data_dependent", lambda: Fn(_data_dependent), lambda n: (random(n, 4),), ((_rows(99),),), _FEW),
    Case("flow", lambda: Fn(_flow), lambda n: (random(n, 4),), ((_rows(99, 1),),), [(1,), (7,), (33,), (2,)]),
    Case("recursion", Halving, lambda n: (100 * torch.rand(n),), (_rows(99, 1),), [(1,), (33,), (7,)]),
    Case(
        "layers",
        Layers,
        lambda b, s: (random(b, s, 10),),
        ({0: _BATCH, 1: _LENGTH},),
        [(1, 1), (3, 17), (2, 2)],
        (5, 6),
    ),
    Case(
        "pictures",
        lambda: Pictures().eval(),
        lambda h, w: (random(2, 3, h, w),),
        ({2: _H, 3: _W},),
        [(4, 4), (17, 33), (12, 5)],
        (16, 24),
        tolerance=1e-4,
    ),
    Case(
        "attention",
        Attention,
        lambda l, s: (random(2, 4, l, 16), random(2, 4, s, 16), random(l, s)),
        (
            {2: Dim("l", min=1, max=99)},
            {2: Dim("s", min=1, max=99)},
            {0: Dim("l", min=1, max=99), 1: Dim("s", min=1, max=99)},
        ),
        [(1, 1), (17, 33), (1, 40), (9, 8)],
        (5, 7),
    ),
    Case(
        "block",
        lambda: Block(32, 4),
        lambda b, s: (random(b, s, 32),),
        ({0: _BATCH, 1: _LENGTH},),
        [(1, 1), (3, 17)],
        (5, 6),
    ),
    Case(
        "decoder",
        lambda: Decoder(width=32, layers=1),
        lambda b, s: (torch.randint(0, 101, (b, s)),),
        ({0: _BATCH, 1: _LENGTH},),
        [(1, 1), (3, 17), (2, 64)],
        (5, 6),
        tolerance=1e-4,
    ),
    Case(
        "extents",
        lambda: Fn(_extents),
        lambda n, m: (random(n, m),),
        (({0: Dim("n", min=0, max=99), 1: Dim("m", min=0, max=99)},),),
        [(0, 0), (0, 5), (5, 0), (1, 1), (33, 65)],
        (5, 7),
    ),
    Case(
        "lengths",
        lambda: Fn(_lengths),
        lambda n, m: (random(n, m),),
        (({0: Dim("n", min=1, max=99), 1: Dim("m", min=2, max=999)},),),
        [(1, 2), (3, 31), (9, 32), (3, 33), (2, 64), (5, 65), (2, 255), (1, 256), (3, 257), (2, 515)],
        (5, 7),
    ),
    Case(
        "kept_rows",
        lambda: Fn(_kept_rows),
        lambda rows, n: (random(rows, n), random(n)),
        (({0: Dim("rows", min=0, max=99), 1: _MANY}, {0: _MANY}),),
        [
            (3, 1),
            (17, 4),
            (9, 63),
            (5, 64),
            (3, 65),
            (9, 252),
            (5, 256),
            (5, 257),
            (3, 260),
            (3, 1024),
            (9, 1028),
            (2, 8192),
        ]
        + [(2, 8193), (1, 16384), (2, 16388), (0, 5)],
        (5, 6),
    ),
    Case(
        "static_rows", lambda: Fn(_static_rows), lambda n: (random(n, 1028),), ((_rows(),),), [(1,), (0,), (3,), (9,)]
    ),
    Case("long_rows", lambda: Fn(_long_rows), lambda n: (random(n, 2052),), ((_rows(),),), [(1,), (0,), (3,)]),
    Case("elements", lambda: Fn(_elements), lambda n: (_whole(n, 7).float(),), ((_rows(99, 1),),), [(1,), (7,), (33,)]),
    Case(
        "places",
        lambda: Fn(_places),
        lambda a, b: (random(a, 1, 4), random(b, 1), random(4), torch.tensor(0.7)),
        (({0: Dim("a", min=0, max=99)}, {0: Dim("b", min=0, max=99)}, None, None),),
        [(1, 1), (0, 3), (3, 0), (17, 2), (2, 65)],
        (5, 7),
    ),
    Case(
        "strides",
        lambda: Fn(_strides),
        lambda n: (random(n, 8)[:, ::2], random(4, n).t()),
        ((_rows(), _rows()),),
        [(4,), (7,), (33,)],
    ),
    Case(
        "masks",
        Masks,
        lambda l, s: (
            random(2, 4, l, 16),
            random(2, 4, s, 16),
            random(2, 4, s, 40),
            torch.arange(s) < torch.tensor([[s], [s // 2]]),
            random(2, 4, l, s),
        ),
        (
            {2: Dim("l", min=1, max=99)},
            {2: Dim("s", min=1, max=99)},
            {2: Dim("s", min=1, max=99)},
            {1: Dim("s", min=1, max=99)},
            {2: Dim("l", min=1, max=99), 3: Dim("s", min=1, max=99)},
        ),
        [(2, 2), (17, 33), (1, 40), (33, 8), (5, 1)],
        (5, 7),
    ),
    Case(
        "cache",
        Cache,
        lambda p: (*(random(2, 3, p, 16) for _ in range(2)), *(random(2, 3, 1, 16) for _ in range(3))),
        ({2: Dim("p", min=0, max=99)}, {2: Dim("p", min=0, max=99)}, None, None, None),
        [(0,), (1,), (31,), (32,), (7,)],
    ),
    long_cache("long_cache", torch.float32, 1e-5),
    long_cache("long_cache_bfloat", torch.bfloat16, 4e-2),
    Case(
        "filters",
        lambda: Filters().eval(),
        lambda b, w: (random(b, 3, w),),
        ({0: Dim("b", min=0, max=9), 2: Dim("w", min=4, max=64)},),
        [(1, 4), (0, 9), (2, 64), (3, 33)],
        (5, 16),
    ),
    Case(
        "updates",
        Updates,
        lambda n: (_whole(n, 300).float(), random(n, 40)),
        (_rows(99, 1), _rows(99, 1)),
        [(1,), (7,), (33,)],
    ),
    Case(
        "fragments",
        Fragments,
        lambda n: (random(n, 72),),
        (_rows(200),),
        [(1,), (16,), (17,), (65,), (31,), (128,), (0,)],
    ),
    Case(
        "half_fragments",
        lambda: Fragments().half(),
        lambda n: (0.3 * random(n, 72).half(),),
        (_rows(200),),
        [(1,), (33,), (64,), (0,), (129,)],
        tolerance=1e-2,
    ),
    Case("many_rows", lambda: nn.Linear(20, 640), lambda n: (random(n, 20),), (_rows(4000),), [(1500,), (700,), (40,)]),
    Case(
        "empty_sums",
        lambda: Fn(lambda m, x, y: (x @ y + 1).relu()),
        lambda n, k: (random(n, k), random(k, 640)),
        (({0: Dim("n", min=0, max=4000), 1: Dim("k", min=0, max=99)}, {0: Dim("k", min=0, max=99)}),),
        [(1500, 0), (40, 0), (300, 0), (1500, 5), (0, 0)],
        (5, 7),
    ),
    Case("infinite", Infinite, lambda n: (random(n, 64), _special(n)), (_rows(), _rows()), [(1,), (6,), (40,)]),
    Case(
        "quantised",
        Quantised,
        lambda n: (random(n, 64).mul(40).clamp(-128, 127).to(torch.int8), random(n, 64)),
        (_rows(), _rows()),
        [(1,), (2,), (3,), (7,), (13,), (40,), (5,)],
    ),
    Case(
        "few_rows",
        FewRows,
        lambda n: (random(n, 1032), _special(n)),
        (_rows(), _rows()),
        _FEW_ROWS,
        tolerance=2e-5,
    ),
    Case(
        "few_half_rows",
        lambda: FewRows().half(),
        lambda n: (random(n, 1032).half(), _special(n)),
        (_rows(100), _rows(100)),
        _FEW_ROWS,
        tolerance=2e-3,
    ),
    Case(
        "few_bfloat16_rows",
        lambda: FewRows().bfloat16(),
        lambda n: (random(n, 1032).bfloat16(), _special(n)),
        (_rows(100), _rows(100)),
        _FEW_ROWS,
        tolerance=1.6e-2,
    ),
    Case(
        "head_sizes",
        HeadSizes,
        lambda l, s: (
            random(2, 2, l, 64),
            random(2, 2, s, 64),
            random(2, 2, s, 32),
            torch.arange(s) < torch.tensor([[s], [max(s // 2, 1)]]),
            random(2, 2, l, s),
        ),
        (
            {2: Dim("l", min=1, max=199)},
            {2: Dim("s", min=1, max=199)},
            {2: Dim("s", min=1, max=199)},
            {1: Dim("s", min=1, max=199)},
            {2: Dim("l", min=1, max=199), 3: Dim("s", min=1, max=199)},
        ),
        [(2, 2), (64, 32), (65, 33), (1, 130), (17, 1)],
        (5, 7),
    ),
    many_keys_case("many_keys", torch.float32, 1e-5),
    many_keys_case("many_keys_half", torch.float16, 5e-3),
    many_keys_case("many_keys_bfloat", torch.bfloat16, 4e-2),
    Case(
        "infinite_heads",
        InfiniteHeads,
        infinite_heads,
        ({2: Dim("n", min=1, max=199)},) * 3 + ({1: Dim("n", min=1, max=199)},),
        [(1,), (17,), (64,), (70,)],
    ),
    Case(
        "half_heads",
        Attention,
        lambda l, s: (random(2, 4, l, 64).half(), random(2, 4, s, 64).half(), random(l, s).half()),
        (
            {2: Dim("l", min=1, max=199)},
            {2: Dim("s", min=1, max=199)},
            {0: Dim("l", min=1, max=199), 1: Dim("s", min=1, max=199)},
        ),
        [(1, 1), (64, 64), (17, 130), (65, 7)],
        (5, 7),
        tolerance=5e-3,
    ),
    Case("half", lambda: MLP().half(), lambda n: (random(n, 24).half(),), (_rows(),), _FEW, tolerance=5e-3),
    Case("bfloat", lambda: MLP().bfloat16(), lambda n: (random(n, 24).bfloat16(),), (_rows(),), _FEW, tolerance=4e-2),
    Case("double", lambda: MLP().double(), lambda n: (random(n, 24).double(),), (_rows(),), _FEW),
    Case("state", Counter, lambda n: (random(n, 4),), (_rows(),), _FEW),
]
