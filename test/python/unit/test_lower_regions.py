"""Branches and loops between markers, and PyTorch's control flow operators, as input IR."""

import re

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc.frontend import markers
from disc.frontend.program import import_program

B = Dim("B", min=1, max=8)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, *args):
        return self.fn(self, *args)


def lowered(fn, x=None):
    x = torch.randn(3, 4) if x is None else x
    return import_program(Function(fn), (x,), None, (({0: B},),)).text


def ops(text, name):
    return [line for line in text.splitlines() if f'"{name}"' in line]


def attributes(text, name):
    """What is written behind the regions of the first op of that name."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if f'"{name}"' in line)
    indent = re.match(r" *", lines[start]).group()
    return next(line for line in lines[start + 1 :] if line.startswith(f"{indent}}}) "))


def extent(marked):
    n = marked.item()
    torch._check(n >= 0)
    return n


def branch(pred, then, orelse, sizes=(), numbers=((), ())):
    begin = markers.branch_begin(pred)
    a = then()
    middle = markers.branch_else(begin, [a], [], [*numbers[0]])
    b = orelse()
    end = markers.branch_end(middle, [b], [], [*numbers[1]])
    size = [extent(markers.branch_size(end, 0, d)) if d in sizes else n for d, n in enumerate(a.shape)]
    return markers.branch_result(end, a, size, 0), end


def test_branch():
    """Sides with extents of their own, whose joint is a symbol."""

    def fn(self, x):
        y, _ = branch(x.sum() > 0, lambda: x[x[:, 0] > 0] @ self.weight, lambda: x[x[:, 0] <= 0], [0])
        return y.sum(0), y

    text = lowered(fn)
    assert len(ops(text, "disc_shape.bind")) == 2
    assert "disc_shape.dims = [#disc_shape.dims<[u2, 4]>], symbols = [@u2]" in attributes(text, "disc_tensor.branch")
    yields = ops(text, "disc_tensor.yield")
    assert len(yields) == 2 and all("array<i32: 1, 1>" in line for line in yields)
    assert "index" in ops(text, "disc_shape.dim")[0]


def test_branch_numbers():
    """An int that is never negative is a symbol, any other a tensor."""

    def fn(self, x):
        n = x.shape[0]
        y, end = branch(x.sum() > 0, lambda: x + 1, lambda: x - 1, (), ([3, n + 1], [-4, 2 * n]))
        some, length = markers.branch_number(end, 0).item(), extent(markers.branch_number(end, 1))
        return y * some, x.new_zeros(length)

    text = lowered(fn)
    assert "symbols = [@u1]" in attributes(text, "disc_tensor.branch")
    assert "(tensor<?x4xf32>, tensor<i64>)" in attributes(text, "disc_tensor.branch")


def test_equal_symbols_of_both_sides():
    """What torch.export takes for one number is computed on each side that asks for it."""

    def fn(self, x):
        count = (x > 0).sum()

        def side(sign):
            n = count.item()
            torch._check(n >= 0)
            return x.new_ones(n).cumsum(0) * sign

        return branch(x.sum() > 0, lambda: side(1), lambda: side(-1), [0])[0]

    text = lowered(fn)
    assert len(ops(text, "disc_shape.bind")) == 2
    assert len(set(re.findall(r"symbol = @(\w+)", text))) == 2


def test_loop():
    """A tensor that grows, a number that falls, a condition, and a stack of rows."""

    def fn(self, x):
        begin = markers.loop_begin(-1, x.sum() > 0)
        index = extent(begin)
        n = extent(markers.loop_number(begin, 1, 0))
        factor = markers.loop_number(begin, 0, 1).item()
        inside = markers.loop_carried(begin, x[:, :1], [x.shape[0], n], 0)
        longer = torch.cat([inside, inside[:, 0:1] + index * factor], 1)
        row = longer[:, 0]
        end = markers.loop_end(begin, [0], [inside], [longer], [row], longer.sum() < 9, [longer.shape[1], factor - 1])
        trips, length = extent(markers.loop_trips(end)), extent(markers.loop_last_number(end, 0))
        last = markers.loop_last(end, longer, [x.shape[0], length], 0)
        return last * markers.loop_last_number(end, 1).item(), markers.loop_stack(end, row, trips, 0)

    text = lowered(fn)
    found = attributes(text, "disc_tensor.loop")
    for part in (
        "arg_dims = [#disc_shape.dims<[B, u1]>, #disc_shape.dims<[]>]",
        "disc_shape.dims = [#disc_shape.dims<[B, u4]>, #disc_shape.dims<[]>, #disc_shape.dims<[u3, B]>]",
        "symbols = [@u1], trips = @u3}",
        "last_symbols = [@u4]",
        "operandSegmentSizes = array<i32: 0, 1, 2, 1>",
    ):
        assert part in found
    assert "array<i32: 3, 1, 1>" in ops(text, "disc_tensor.next")[0]


def test_extents_that_follow_from_the_step():
    """A tensor that grows by one in each step has a size that torch.export writes with the step's number."""

    def fn(self, x):
        begin = markers.loop_begin(x.shape[0], None)
        index = extent(begin)
        torch._check(index < x.shape[0])
        inside = markers.loop_carried(begin, x[:1], [index + 1, 4], 0)
        longer = torch.cat([inside, x.select(0, index)[None]])
        end = markers.loop_end(begin, [0], [inside], [longer], [], None, [])
        return markers.loop_last(end, longer, [x.shape[0] + 1, 4], 0) * 2

    text = lowered(fn)
    found = attributes(text, "disc_tensor.loop")
    assert "arg_dims = [#disc_shape.dims<[count, 4]>], disc_shape.dims = [#disc_shape.dims<[count_1, 4]>]" in found
    assert "last_symbols = [@count_1]" in found and "symbols = [@count]}" in found
    messages = [line for line in ops(text, "disc_shape.require") if "a size in a result of a branch or a loop" in line]
    assert len(messages) == 2


def test_what_stays_in_a_loop():
    """What is the same in each step is computed once, unless it could fail, or draws random numbers."""

    def fn(self, x):
        begin = markers.loop_begin(x.shape[0], None)
        index = extent(begin)
        torch._check(index < x.shape[0])
        inside = markers.loop_carried(begin, x[0], [4], 0)
        weight = self.weight.softmax(-1)
        following = inside @ weight + self.weight[x[0].to(torch.int64)].sum(0) + torch.rand(4)
        end = markers.loop_end(begin, [0], [inside], [following], [], None, [])
        return markers.loop_last(end, following, [4], 0)

    text = lowered(fn)
    before, behind = text.split('"disc_tensor.loop"')
    assert "math.exp" in before and "math.exp" not in behind
    assert "check_index" in behind and "check_index" not in before
    # The step's number is part of what tells one random number from another.
    assert '"random"' in behind and "#disc_shape.expr<i0>" in behind


def test_numbers_first_asked_for_inside():
    """Arithmetic of extents is lowered again behind the region where torch.export has put it."""

    def fn(self, x):
        n = x.shape[0]
        y, _ = branch(x.sum() > 0, lambda: x.new_ones(2 * n + 1).cumsum(0), lambda: x.new_zeros(2 * n + 1))
        return y, x.new_zeros(2 * n + 1)

    text = lowered(fn)
    assert "#disc_shape.dims<[1 + (B * 2)]>" in attributes(text, "disc_tensor.branch")


def test_left_behind():
    def fn(self, x):
        inner = []
        y, _ = branch(x.sum() > 0, lambda: inner.append(x.exp()) or x + 1, lambda: x)
        return y + inner[0]

    with pytest.raises(disc.CompileError, match="a value that a branch or a loop computes is used behind it"):
        lowered(fn)


OPERATORS = {
    "cond": (
        lambda self, x: torch.cond(x.sum() > 0, lambda x: x @ self.weight, lambda x: x * x.shape[0], (x,)),
        "branch",
    ),
    "nested": (
        lambda self, x: torch.cond(
            x.sum() > 0,
            lambda x: torch.cond(x.max() > 2, lambda x: x + 1, lambda x: x - 1, (x,)),
            lambda x: x.sin(),
            (x,),
        ),
        "branch branch",
    ),
    "twice": (
        lambda self, x: tuple(torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) for _ in range(2)),
        "branch branch",
    ),
    "while_loop": (
        lambda self, x: torch._higher_order_ops.while_loop(
            lambda i, y: i < x.shape[0], lambda i, y: (i + 1, y @ self.weight + i), (0, x)
        ),
        "loop",
    ),
    "scan": (
        lambda self, x: torch._higher_order_ops.scan(
            lambda c, y: (c * 0.5 + y @ self.weight, c * y), x[0].clone(), x, reverse=True
        ),
        "loop",
    ),
    "map": (lambda self, x: torch._higher_order_ops.map(lambda y, z: y @ z, x, self.weight), "loop"),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["module", "exported"])
def test_operators(name, kind):
    """Called by a model's code, or found in an exported program."""
    fn, expected = OPERATORS[name]
    model, args, shapes = Function(fn), (torch.randn(3, 4),), (({0: B},),)
    with torch.no_grad():
        if kind == "exported":
            model = torch.export.export(model, args, dynamic_shapes=shapes)
        text = import_program(model, args, None, shapes).text
    assert " ".join(re.findall(r'"disc_tensor\.(branch|loop)"', text)) == expected


def test_cond_with_other_structures():
    def fn(self, x):
        return torch.cond(x.sum() > 0, lambda x: (x, x + 1), lambda x: (x,), (x,))

    with pytest.raises(disc.CompileError, match="must return the same structure"):
        lowered(fn)
