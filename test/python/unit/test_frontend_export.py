"""What torch.export refuses, in the user's terms."""

import pytest
import torch
from torch.export import Dim

import disc
from disc.errors import DynamicDimError
from disc.frontend import import_program
from disc.frontend.export import export


class Unrolled(torch.nn.Module):
    def forward(self, x):
        return sum(x[i] for i in range(x.shape[0]))


class Conditional(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] % 3 == 0 else x


def test_a_loop_over_a_dim():
    model = disc.compile(Unrolled(), (torch.zeros(5, 2),), dynamic_shapes=({0: Dim("steps", min=1, max=9)},))
    for n in (1, 5, 9):
        torch.testing.assert_close(model(torch.ones(n, 2)), n * torch.ones(2))


class Fixed(torch.nn.Module):
    def forward(self, x):
        return x + torch.ones(5, 1)


def test_a_dim_that_the_code_fixes():
    with pytest.raises(disc.CompileError) as info:
        disc.compile(Fixed(), (torch.zeros(5, 2),), dynamic_shapes=({0: Dim("steps", min=1, max=9)},))
    assert "steps: the model's code does not work for the whole range" in str(info.value)
    assert "steps is 5 in the model's code" in str(info.value)
    assert "x + torch.ones(5, 1)" in str(info.value)


class Chunks(torch.nn.Module):
    def forward(self, x):
        first, *rest = torch.cat([x, x, x]).chunk(3)
        wide = x if (3 * x.shape[0] - 1) // x.shape[0] == 2 else x[:0]
        return first + sum(rest) + wide


def test_conditions_that_hold_for_the_whole_range():
    """sympy proves none of what this model asks for; there are nine extents to try."""
    steps = Dim("steps", min=1, max=9)
    model = disc.compile(Chunks(), (torch.zeros(5, 2),), dynamic_shapes=({0: steps},))
    for n in (1, 5, 9):
        torch.testing.assert_close(model(torch.ones(n, 2)), 4 * torch.ones(n, 2))


class Bounds(torch.nn.Module):
    def forward(self, x, y):
        # Bounds that count from the end, and one extent that is 1 whatever the sizes.
        return x[:, -y.shape[0] :], x[:, : -y.shape[0]], y + x[max(0, x.shape[0] - 1) :, 0, None]


def test_bounds_of_slices():
    n, m = Dim("n", min=1, max=4), Dim("m", min=9, max=20)
    model = disc.compile(Bounds(), (torch.zeros(1, 11, 2), torch.zeros(3, 2)), dynamic_shapes=({1: m}, {0: n}))
    for a, b in ((9, 1), (20, 4), (11, 3)):
        x, y = torch.randn(1, a, 2), torch.randn(b, 2)
        torch.testing.assert_close(model(x, y), Bounds()(x, y))


def test_multiples_from_the_first():
    """The least of a Dim of which only multiples are extents."""

    class Halves(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1, 8, 2).sum(1)

    half = Dim("half", min=1, max=4)
    model = disc.compile(Halves(), (torch.zeros(24, 2),), dynamic_shapes=({0: 8 * half},))
    for n in (8, 16, 32):
        torch.testing.assert_close(model(torch.ones(n, 2)), 8 * torch.ones(n // 8, 2))


def test_a_condition_on_a_dim():
    model = disc.compile(Conditional(), (torch.zeros(6, 2),), dynamic_shapes=({0: Dim("steps", min=1, max=9)},))
    for n in (6, 1, 2, 9):
        torch.testing.assert_close(model(torch.ones(n, 2)), Conditional()(torch.ones(n, 2)))


def test_other_failures_are_reported_as_they_are():
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("not like this")

    with pytest.raises(disc.CompileError, match=r"the model's code raised RuntimeError .*: not like this"):
        export(Broken(), (torch.zeros(2),), None, None)


def test_nothing_is_printed(capfd):
    class Choice(torch.nn.Module):
        def forward(self, x):
            return x + 1 if bool(x.sum() > 0) else x * 2

    export(Choice(), (torch.zeros(2),), None, None)
    assert capfd.readouterr() == ("", "")


def test_parts_of_a_dim():
    """A share of an extent is no more than the extent: torch does not know that of one that int() gives."""

    class Share(torch.nn.Module):
        def forward(self, x):
            most = int(0.3 * x.shape[0])
            found = torch.nonzero(x > 0).squeeze(-1)
            if found.numel() > most:
                found = x.topk(most).indices
            return x[found]

    model = disc.compile(Share(), (torch.randn(20),), dynamic_shapes=({0: Dim("length", min=4, max=50)},))
    for n in (4, 20, 31, 50):
        for x in (torch.randn(n), -torch.rand(n), torch.rand(n)):
            torch.testing.assert_close(model(x), Share()(x))


@pytest.mark.parametrize("condition", [lambda m, n: m % n == 0, lambda m, n: m // n == 1])
def test_a_condition_on_the_quotient_of_two_dims(condition):
    """torch.export forgets what it takes of these for granted."""

    class Quotient(torch.nn.Module):
        def forward(self, x, y):
            return x * 2 if condition(x.shape[0], y.shape[0]) else x

    shapes = ({0: Dim("m", min=1, max=100)}, {0: Dim("n", min=1, max=100)})
    model = disc.compile(Quotient(), (torch.ones(12), torch.ones(8)), dynamic_shapes=shapes)
    for m, n in ((12, 8), (12, 4), (7, 7), (3, 50), (1, 1)):
        torch.testing.assert_close(model(torch.ones(m), torch.ones(n)), Quotient()(torch.ones(m), torch.ones(n)))


class Single(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] == 1 else x + 1


def test_an_example_of_one():
    """The side that the example takes is not the only one."""
    rows = ({0: Dim("rows", max=64)},)
    model = disc.compile(Single(), (torch.zeros(1, 3),), dynamic_shapes=rows)
    for n in (1, 2, 64):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), Single()(x))


@pytest.mark.parametrize("dim", [Dim("b", min=1), Dim("b"), Dim.DYNAMIC], ids=str)
def test_an_example_of_one_that_the_program_would_not_serve(dim):
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.squeeze(0) * 2

    with pytest.raises(DynamicDimError, match="input x, dim 0 is 1 in the example, for which the model does something"):
        import_program(Model(), (torch.randn(1, 4),), dynamic_shapes=({0: dim},))
