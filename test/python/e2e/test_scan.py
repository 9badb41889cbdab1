"""The loop of the host flow by itself: values that pass through, trade places, are read after; nested; no steps."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import disc
from disc.frontend.regions import LoopStep

T = Dim("T", min=0, max=40)


@torch.library.custom_op("scantest::steps", mutates_args=())
def steps(x: Tensor, a: Tensor, b: Tensor, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """In PyTorch: what the loop of `kind` is to give."""
    rows = []
    order = range(x.shape[0] - 1, -1, -1) if kind == "reverse" else range(x.shape[0])
    stack: dict[int, Tensor] = {}
    for i in order:
        if kind == "swap":
            a, b, row = b, a, a + x[i]
        elif kind == "pass":
            row = a * x[i]
        elif kind == "nested":
            inner = a
            for j in range(i + 1):
                inner = inner * 0.5 + x[j]
            a, row = inner, inner + b
        else:
            a = a * 0.5 + x[i]
            b = b + a
            row = a - b
        stack[i] = row
    rows = [stack[i] for i in range(x.shape[0])]
    return torch.stack(rows) if rows else x.new_empty(0, *a.shape), a.clone(), b.clone()


@steps.register_fake
def _(x, a, b, kind):
    return torch.empty_like(x), torch.empty_like(a), torch.empty_like(b)


def add(b, x, y):
    return b.elementwise(x.dtype, [x, y], lambda p, q: p + q)


@disc.lowers("torch.scantest.steps")
def lower_steps(b, x, first, second, kind):
    def row(i):
        return b.reshape(b.slice(x, 0, i, 1), list(x.dims[1:]))

    def mixed(state, value):
        return b.elementwise(x.dtype, [state, value], lambda p, q: p * 0.5 + q)

    def body(i, carried):
        p, q = carried
        if kind == "swap":
            return LoopStep([q, p], [add(b, p, row(i))])
        if kind == "pass":
            return LoopStep([p, q], [b.elementwise(x.dtype, [p, row(i)], lambda u, v: u * v)])
        if kind == "nested":
            (inner,), _ = b.loop([p], lambda j, c: LoopStep([mixed(c[0], row(j))]), count=b.add(i, 1))
            return LoopStep([inner, q], [add(b, inner, q)])
        new = mixed(p, row(i))
        total = add(b, q, new)
        return LoopStep([new, total], [b.elementwise(x.dtype, [new, total], lambda u, v: u - v)])

    rows = [(list(x.dims[1:]), x.dtype)]
    last, (ys,) = b.loop([first, second], body, rows, count=x.dims[0], reverse=kind == "reverse")
    return ys, *last


class Loop(nn.Module):
    """The loop between other kernels, so that its operands and results are temporaries."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x, a):
        ys, p, q = torch.ops.scantest.steps(x * 2, a + 1, a.flip(0), self.kind)
        return ys.cumsum(1), p * q, ys, p, a


@pytest.mark.parametrize("kind", ["plain", "reverse", "swap", "pass", "nested"])
def test_scan(kind):
    module = Loop(kind)
    model = disc.compile(module, (torch.randn(5, 3, 4), torch.randn(3, 4)), dynamic_shapes=({0: T}, None))
    for t in (1, 2, 40, 7, 0, 3):
        x, a = torch.randn(t, 3, 4), torch.randn(3, 4)
        for actual, expected in zip(model(x, a), module(x, a), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
