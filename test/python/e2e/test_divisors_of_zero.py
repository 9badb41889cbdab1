"""Divisions by a size that may be 0, and what a model checks of sizes: an error as in eager PyTorch, never a trap."""

import pytest
import torch
from torch.export import Dim

import disc


class Fn(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def quotient(x):
    return x.new_zeros(12 // x.shape[0])


def rest(x):
    return x.sum() + 12 % x.shape[0]


def difference(x):
    return x.new_zeros(6) + x.shape[0] // (x.shape[0] - 2)


def in_a_branch(x):
    if x.sum() > 0:
        return x.new_zeros(3) + 12 // x.shape[0]
    return x.new_ones(3)


def avoided(x):
    return x + (12 // x.shape[0] if x.shape[0] > 0 else 3)


@pytest.mark.parametrize("dim", [Dim.AUTO], ids=["auto"])
@pytest.mark.parametrize("fn", [quotient, rest, difference, in_a_branch, avoided], ids=lambda f: f.__name__)
def test_a_divisor_may_be_zero(fn, dim):
    model = disc.compile(Fn(fn), (torch.arange(1.0, 7),), dynamic_shapes=(({0: dim},),))
    for n in (6, 1, 0, 2, 3, 0, 7):
        x = torch.arange(1.0, n + 1)
        try:
            want = fn(x)
        except ZeroDivisionError:
            with pytest.raises(disc.ShapeError, match=r"integer division or modulo by zero: args_0_0( - 2)? is 0"):
                model(x)
        else:
            torch.testing.assert_close(model(x), want)


class Divided(torch.nn.Module):
    def forward(self, x, y):
        n = y.shape[0]
        trunc = torch.div(x, n, rounding_mode="trunc")
        return x // n, x % n, torch.fmod(x, n), trunc, x / n, x.float() // n


def test_integers_are_not_divided_by_an_empty_size():
    model = disc.compile(
        Divided(), (torch.arange(-3, 5), torch.ones(3)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.DYNAMIC})
    )
    for rows, n in ((8, 3), (8, 0), (0, 0), (1, 1), (0, 4), (5, 0), (5, 7)):
        inputs = torch.arange(-3, rows - 3), torch.ones(n)
        if rows and not n:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                Divided()(*inputs)
            with pytest.raises(disc.ShapeError, match=r"integer division or modulo by zero: .* is 0"):
                model(*inputs)
        else:
            for got, want in zip(model(*inputs), Divided()(*inputs), strict=True):
                torch.testing.assert_close(got, want, equal_nan=True)


def at_least_two(x):
    torch._check(x.shape[0] >= 2, lambda: "two rows are needed")
    return x * 2


def not_empty(x):
    torch._check_value(x.shape[0] != 0, lambda: "rows are needed")
    return x * 2


def on_one_side(x):
    if x.sum() > 0:
        torch._check(x.shape[0] >= 2, lambda: "two rows are needed")
        return x * 2
    return x


@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim("n", max=64)], ids=["dynamic", "range"])
@pytest.mark.parametrize("fn", [at_least_two, not_empty, on_one_side], ids=lambda f: f.__name__)
def test_a_check_of_the_models_is_kept(fn, dim):
    model = disc.compile(Fn(fn), (torch.arange(1.0, 7),), dynamic_shapes=(({0: dim},),))
    for n in (6, 1, 0, 2, 1, 7):
        for x in (torch.arange(1.0, n + 1), -torch.arange(1.0, n + 1)):
            try:
                want = fn(x)
            except (RuntimeError, ValueError) as error:
                with pytest.raises(disc.ShapeError, match=rf"{error} \(test_divisors_of_zero.py:\d+\)"):
                    model(x)
            else:
                torch.testing.assert_close(model(x), want)


def test_an_error_of_tracing_names_the_users_line():
    with pytest.raises(disc.CompileError, match="rounding_mode") as caught:
        disc.compile(Fn(lambda x: torch.div(x, 2, rounding_mode="up")), (torch.ones(3),))
    assert "test_divisors_of_zero.py:" in caught.value.source
