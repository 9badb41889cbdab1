"""torch.compile(backend="disc"): higher-order operators are compiled."""

import pytest
import torch
import torch._dynamo
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import disc.dynamo
from disc.dynamo import Explanation

pytestmark = pytest.mark.share(2)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def branch(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * torch.tensor(2.0), lambda x: x.cos() + 1, (x,)) + 1


def loop(x):
    return while_loop(lambda i, x: (i < 5) & (x.sum() < 1e3), lambda i, x: (i + 1, x * 1.5 + 0.1), (torch.tensor(0), x))


def running(x):
    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(7), x)


def stacked(x):
    """The values after each step; those at first where there is none."""
    loop = torch.ops.higher_order.while_loop_stack_output
    step = lambda i, x, y: (i - 1, y * 1.5, x + y)  # noqa: E731
    return loop(lambda i, x, y: i > 0, step, (x.shape[0] - torch.tensor(3), x.sin(), x.cos()), ())


def joined(x):
    """Sizes that sides compute, of what is computed in front of the branch."""
    y = torch.cat([x, x * 2])
    sides = lambda y: torch.cat([y, y * 3], 1), lambda y: torch.cat([y - 1, y], 1)
    return torch.cond(y.sum() > 0, *sides, (y * 2,))


def associative(x):
    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


def mapped(x):
    return torch_map(lambda row, w: row.sin() * w, x, x.sum(0))


def attention(x):
    q = x.reshape(1, 1, *x.shape)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)


@torch.compiler.nested_compile_region
def region(x):
    return torch.relu(x) * 2 + 1


def regions(x):
    return region(region(x)) + x


@pytest.mark.parametrize("function", [branch, loop, stacked, joined, running, associative, mapped, attention, regions])
def test_operators(function):
    compiled = torch.compile(function, backend="disc", dynamic=True, fullgraph=True)
    with torch.no_grad(), disc.dynamo._listening() as reports:
        # PyTorch unrolls the other one for each size.
        for n in (5,) if function is associative else (5, 9, 3):
            x = torch.randn(n, 7) - 0.1 * n
            torch.testing.assert_close(compiled(x), function(x))
    assert [report.parts for report in reports] == [1] and not Explanation(reports).fallbacks, reports


def test_sizes_that_the_sides_of_a_branch_find_out():
    def places(x):
        def positive(x):
            return torch.ones(torch.nonzero(x > 0).shape[0], 2).cos()

        def other(x):
            return torch.ones(torch.nonzero(x > 0).shape[0] + 1, 2)

        same = torch.cond(x.sum() > 0, positive, lambda x: positive(x) * 2, (x,))
        return same, torch.cond(x.sum() > 0, positive, other, (x,)).sin()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(places, backend="disc", dynamic=True, fullgraph=True)
        with torch.no_grad(), disc.dynamo._listening() as reports:
            for x in (torch.randn(5, 7) + 1, torch.randn(4, 3) - 1, -torch.ones(3, 3)):
                torch.testing.assert_close(compiled(x), places(x))
    assert not Explanation(reports).fallbacks, reports


def test_block_mask():
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")

    def call(q):
        return flex_attention(q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), block_mask=mask)

    q = torch.randn(1, 16, 2, 8)
    with torch.no_grad(), disc.dynamo._listening() as reports:
        result, expected = torch.compile(call, backend="disc")(q), call(q)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride() and not Explanation(reports).fallbacks, reports


@torch.library.custom_op("disc_test::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) * 2


turned.register_fake(lambda x: torch.empty_like(x))


@pytest.mark.falls_back("an operation without a rule")
def test_branches_between_operations_of_pytorch():
    state = torch.zeros(3)

    def call(x):
        state.add_(1)
        y = torch.cond(state.sum() > 0, lambda x: x.abs() + 2, lambda x: x.abs() + 3, (x,))
        y = torch.ops.disc_test.turned(y * 2)
        return torch.cond(y.sum() > 1e9, lambda x: x * 2 + 2, lambda x: x.abs() + 3, (y,))

    x = torch.randn(5, 7)
    results = []
    for function in (call, torch.compile(call, backend="disc", dynamic=True)):
        state.fill_(-2)
        with torch.no_grad(), disc.dynamo._listening() as reports:
            results.append([*(function(x) for _ in range(4)), state.clone()])
    torch.testing.assert_close(results[1], results[0])
    assert [fallback.op for fallback in Explanation(reports).fallbacks] == ["disc_test.turned.default"]


@pytest.mark.parametrize("function", [branch, lambda x: running(x)[1], regions])
def test_gradients(function):
    gradients = []
    with disc.dynamo._listening() as reports:
        for call in (function, torch.compile(function, backend="disc", dynamic=True)):
            x = torch.arange(35.0).reshape(5, 7).div(10).requires_grad_()
            call(x).sum().backward()
            gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
    assert [report.kind for report in reports] == ["forward", "backward"] and not Explanation(reports).fallbacks


@pytest.mark.falls_back("draws are PyTorch's")
def test_draws_in_a_branch():
    """PyTorch runs the branch, in its place among the draws."""

    def call(x):
        first = torch.rand(3)
        y = torch.cond(x.sum() > 0, lambda x: x + torch.rand(5, 7), lambda x: x - torch.rand(5, 7), (x,))
        return y, first, torch.rand(4)

    compiled = torch.compile(call, backend="disc", dynamic=True)
    for x in (torch.rand(5, 7), -torch.rand(5, 7)):
        torch.manual_seed(0)
        expected = call(x)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x), expected)
