"""PyTorch's control flow operators, compiled, against eager PyTorch at many shapes and on all sides of branches."""

import functools
import re

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_over
from torch.export import Dim

import closeness
import disc
from disc.torch_compat.versions import MINOR

pytestmark = pytest.mark.share(2)

B = Dim("B", min=1, max=64)
SIZES = (3, 1, 2, 7, 13, 64)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.fn(self, x)


def inputs():
    """Both sides of every condition, at every size."""
    torch.manual_seed(0)
    for size in SIZES:
        for shift in (-2.0, 0.0, 2.0):
            yield torch.randn(size, 4) + shift
        yield torch.zeros(size, 4)


def check(fn, expected=None, exported=False):
    """``expected``: what the function gives, in plain Python."""
    torch.manual_seed(0)
    module = Function(fn).eval()
    model, args, shapes = module, (torch.randn(5, 4),), (({0: B},),)[0]
    with torch.no_grad():
        if exported:
            model = torch.export.export(module, args, dynamic_shapes=shapes)
        model = disc.compile(model, args, dynamic_shapes=shapes)
        for x in inputs():
            closeness.check(functools.partial(expected or fn, module), (x,), model(x))


def halves(cond):
    """A branch with other extents on each side, which data decides, in and after it."""

    def fn(self, x):
        def then(x):
            rows = x[x[:, 0] > 0]
            return self.linear(rows).sum(0), rows

        def orelse(x):
            rows = x[x.sum(1) <= 0] * 2
            return rows.cumsum(0).sum(0), rows + 1

        total, rows = cond(x.sum() > 0, then, orelse, (x,))
        return total, rows.sin(), rows.sum(0)

    return fn


def choose(pred, then, orelse, operands):
    return (then if pred else orelse)(*operands)


def test_sides_with_their_own_extents():
    check(halves(torch.cond), halves(choose))


def nested(cond, loop):
    def fn(self, x):
        def then(x):
            return cond(x.max() > 3, lambda x: self.linear(x), lambda x: x * x.shape[0], (x,))

        def orelse(x):
            return loop(
                lambda i, y: i < x.shape[0],
                lambda i, y: (i + 1, self.linear(y).tanh()),
                (torch.zeros((), dtype=torch.int64), x),
            )[1]

        return cond(x.sum() > 0, then, orelse, (x,)) + 1

    return fn


def run(go_on, step, carried):
    while go_on(*carried):
        carried = step(*carried)
    return carried


def test_nested():
    check(nested(torch.cond, while_loop), nested(choose, run))


@pytest.mark.parametrize("exported", [False, True])
def test_cond(exported):
    def fn(cond):
        return lambda self, x: cond(x.sum() > 0, lambda x: self.linear(x) + 1, lambda x: x.sin() * x.shape[0], (x,))

    check(fn(torch.cond), fn(choose), exported)


def collatz(loop):
    """A loop that data ends, after 0, 1 or many steps; ints and tensors are carried."""

    def fn(self, x):
        n, steps, y = loop(
            lambda n, steps, y: n > 1,
            lambda n, steps, y: (torch.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1, y * 0.5 + steps),
            ((x * 10).abs().sum().to(torch.int64) % 100, torch.zeros((), dtype=torch.int64), x),
        )
        return n, steps, y

    return fn


@pytest.mark.parametrize("exported", [False, True])
def test_while_loop(exported):
    check(collatz(while_loop), collatz(run), exported)


def counted(loop):
    def fn(self, x):
        return loop(lambda i, y: i < x.shape[0], lambda i, y: (i + 2, self.linear(y).tanh() + i), (1, x))

    return fn


def test_while_loop_with_ints():
    check(counted(while_loop), counted(run))


def python_scan(f, init, xs, dim=0, reverse=False):
    rows = []
    steps = list(xs.unbind(dim))
    for x in reversed(steps) if reverse else steps:
        init, row = f(init, x)
        rows.append(row)
    return init, torch.stack(rows[::-1] if reverse else rows, dim if MINOR >= 13 else 0)  # As PyTorch has it.


@pytest.mark.parametrize("dim, reverse", [(0, False), (0, True), (1, True)])
def test_scan(dim, reverse):
    def fn(scan):
        def of(self, x):
            first = x[0].clone() if dim == 0 else x[:, 0].clone()
            last, rows = scan(lambda c, y: ((c * 0.5 + y).tanh(), c * y), first, x, dim=dim, reverse=reverse)
            return last, rows

        return of

    check(fn(scan), fn(python_scan), exported=not reverse)


def test_map():
    check(
        lambda self, x: map_over(lambda y, z: (self.linear(y) @ z, y.sum()), x, x.T @ x),
        lambda self, x: tuple(torch.stack(s) for s in zip(*[(self.linear(y) @ (x.T @ x), y.sum()) for y in x])),
    )


def test_associative_scan():
    def products(x):
        matrices = x[:, :, None] * 0.1 + torch.eye(4)
        return associative_scan(lambda a, b: a @ b, matrices, 0, combine_mode="generic")

    def recurrence(x):
        def combine(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]

        return associative_scan(combine, (x.sigmoid(), x), 0, reverse=True, combine_mode="generic")

    def expected(self, x):
        matrices, rows = x[:, :, None] * 0.1 + torch.eye(4), []
        for m in matrices:
            rows.append(rows[-1] @ m if rows else m)
        states, decay = [], []
        for a, b in zip(x.sigmoid().flip(0), x.flip(0)):
            states.append(a * states[-1] + b if states else b)
            decay.append(a * decay[-1] if decay else a)
        return torch.stack(rows), (torch.stack(decay[::-1]), torch.stack(states[::-1]))

    check(lambda self, x: (products(x), recurrence(x)), expected)


def tower(cond, loop, scan):
    """Loops in branches in loops, with extents that data decides at the bottom."""

    def fn(self, x):
        def step(total, row):
            def then(total):
                picked = row[row > 0].cumsum(0)
                return loop(lambda n, t: n < 3, lambda n, t: (n + 1, t * 0.5 + picked.sum()), (torch.tensor(0), total))[
                    1
                ]

            total = cond(row.sum() > 0, then, lambda total: total - row.abs().max(), (total,))
            return total, total * row

        return cond(x.abs().sum() > 4, lambda x: scan(step, x[0] * 0, x)[1], lambda x: x.exp(), (x,))

    return fn


def test_tower():
    check(tower(torch.cond, while_loop, scan), tower(choose, run, python_scan))


def test_numbers_of_sides():
    """Ints that differ from side to side: extents, and others."""

    def fn(cond):
        def of(self, x):
            count = (x[:, 0] > 0).sum()

            def then(x):
                n = count.item()
                torch._check(n >= 0)
                torch._check(n <= x.shape[0])
                return x.new_ones(n).cumsum(0), 3

            def orelse(x):
                n = count.item()
                torch._check(n >= 0)
                torch._check(n <= x.shape[0])
                return x.new_ones(x.shape[0] - n), -x.shape[0]

            y, n = cond(x.sum() > 0, then, orelse, (x,))
            return y * n, x + n

        return of

    check(fn(torch.cond), fn(choose))


def test_complex_numbers_and_random_ones():
    def fn(self, x):
        z = torch.view_as_complex(x.reshape(-1, 2, 2))
        return scan(lambda c, y: (c * y, c + y), z[0] * 0 + 1, z)

    def expected(self, x):
        z = torch.view_as_complex(x.reshape(-1, 2, 2))
        return python_scan(lambda c, y: (c * y, c + y), z[0] * 0 + 1, z)

    check(fn, expected)

    def noise(self, x):
        return scan(lambda c, y: (c + 1, torch.rand(3) + c * 0), torch.zeros(3), x)[1]

    model = disc.compile(Function(noise), (torch.randn(5, 4),), dynamic_shapes=({0: B},))
    rows = model(torch.zeros(20, 4))
    assert rows.unique(dim=0).shape == (20, 3)


def test_host_code():
    """Branches and loops are those of the machine code: nothing is decided while compiling."""

    def fn(self, x):
        y = torch.cond(x.sum() > 0, lambda x: x.neg(), lambda x: x.abs(), (x,))
        return while_loop(lambda y: y.sum() < 100, lambda y: (y * 2 + 1,), (y,))[0]

    model = disc.compile(Function(fn), (torch.randn(5, 4),), dynamic_shapes=({0: B},))
    code = model.ir("codegen").split("llvm.func @disc_main")[1].split("llvm.func")[0]
    blocks = dict(re.findall(r"\n  \^(bb\d+)[^\n]*:[^\n]*(.*?)(?=\n  \^bb|\n  }$)", code, re.DOTALL))
    first, second = (next(b for b, text in blocks.items() if f"_{name}(" in text) for name in ("neg", "abs"))
    assert re.search(rf"llvm.cond_br %\d+, \^{first}, \^{second}\n", code)
    order = list(blocks)
    # A loop asks at its back edge, now and then, whether it is interrupted: the jump may be a conditional one.
    jumps = [(b, to) for b, text in blocks.items() for to in re.findall(r"\^(bb\d+)", text)]
    assert any(to in blocks and order.index(to) <= order.index(b) for b, to in jumps)
