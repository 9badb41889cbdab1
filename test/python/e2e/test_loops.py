"""Python's loops over a dynamic range: traced once, any length, and refused where a step leaves something behind."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

B, T = Dim("B", min=1, max=8), Dim("T", min=1, max=40)
SHAPES = [(3, 5), (1, 1), (8, 40), (2, 7)]


def check(module, shapes=SHAPES):
    torch.manual_seed(0)
    model = disc.compile(module, (torch.randn(3, 5, 4),), dynamic_shapes=({0: B, 1: T},))
    for shape in shapes:
        x = torch.randn(*shape, 4)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def test_cells():
    """The states of several layers in a list of tuples, outputs appended to a list, and backwards."""

    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(4, 6), nn.LSTMCell(6, 6)])

        def forward(self, x):
            states = [(x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6)) for _ in self.cells]
            outputs = []
            for t in reversed(range(x.shape[1])):
                y = x[:, t]
                for i, cell in enumerate(self.cells):
                    states[i] = cell(y, states[i])
                    y = states[i][0]
                outputs.append(y.unsqueeze(1))
            return torch.cat(outputs, 1), states[1][1], y

    check(Cells())


def test_forms():
    def forms(x):
        out, total = torch.zeros_like(x), torch.zeros_like(x[:, 0])
        view = out[:, :, 0]
        for t in range(x.shape[1]):
            total = total * 0.5 + x[:, t]
            out[:, t] = total
        later = [total]
        for t in range(1, x.shape[1] + 1):
            later.append(x[:, t - 1] * t)
            later.append(total)
        most = total
        for t in range(0, x.shape[1], 2):
            most = torch.minimum(most, x[:, t])
        for t in range(x.shape[1] // 2, x.shape[1]):
            inner = total
            for s in range(x.shape[0]):
                inner = inner + x[s, t]
            most = torch.maximum(most, inner)
        return out, view, torch.stack(later, -1), most

    check(Function(forms))


def test_steps_that_change_more_than_tensors():
    """Numbers, extents, attributes, and a loop that is left."""

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(4))

        def forward(self, x):
            for t in range(x.shape[1]):
                self.state = self.state + x[0, t]
            return self.state * 1

    def forms(x):
        n, y, z, w = 0, x[:, 0], x[:, 0], x[:, 0]
        for t in range(x.shape[1]):
            y = y + x[:, t] * n
            n = (n * 2 + 1) % 7
            z = torch.cat([z, x[:, t]], -1)
        for t in range(x.shape[1]):
            w = w + x[:, t]
            if t > 2:
                break
        return y, z, w, n

    check(Function(forms))
    model = disc.compile(Holder(), (torch.randn(3, 5, 4),), dynamic_shapes=({0: B, 1: T},))
    eager = Holder()
    for shape in SHAPES:
        x = torch.randn(*shape, 4)
        torch.testing.assert_close(model(x), eager(x), rtol=1e-4, atol=1e-5)


def test_appended_values_are_carried():
    """Rows move while the number of steps is unknown; the next step reads the last one."""

    def grow(x):
        outputs, z = [], x * 2
        while x.sum() < 100:
            x = x + 1
            outputs.append(x)
        for _ in range(z.shape[1]):
            if z.sum() > 1e4:
                break
            z = z * 1.5
            outputs.append(z)
        return torch.stack(outputs), x, z

    model = disc.compile(Function(grow), (torch.zeros(2, 9, 4),))
    for start in (0.0, -5.0, 1.0, -30.0):
        x = torch.full((2, 9, 4), start)
        torch.testing.assert_close(model(x), grow(x), rtol=0, atol=0)


def test_variables_that_are_one_tensor_at_first():
    """That y changes is found when x is known to: the trials find what is carried in another order than it stands."""

    def previous(x):
        outputs, y = [], x
        while x.sum() < 60:
            outputs.append(x)
            y = x
            x = x + 1
        return torch.stack(outputs), x, y

    model = disc.compile(Function(previous), (torch.zeros(2, 3, 4),))
    for start in (0.0, -3.0, 2.0):
        x = torch.full((2, 3, 4), start)
        torch.testing.assert_close(model(x), previous(x), rtol=0, atol=0)


def test_refused():
    """What one step leaves for the next where it cannot be followed."""

    def aliased(x):
        y = torch.zeros_like(x)
        z = y[:, 0]
        for t in range(x.shape[1]):
            y[:, t] = z + x[:, t]
        return y

    def kinds(x):
        y = x[:, 0]
        for t in range(x.shape[1] - 1):
            y = (y + x[:, t]).long()
        return y

    for fn, why in (
        (aliased, "changes a tensor in place that has other names"),
        (kinds, r"y is float32 \[.*\] before a step of a loop and int64 \[.*\] after it"),
    ):
        with pytest.raises(disc.CompileError, match=why):
            check(Function(fn))


class Overwritten(nn.Module):
    """What a step assigns before it reads it keeps its value where there is no step."""

    def forward(self, x):
        h = torch.ones(3)
        for t in range(x.shape[0]):
            h = x[t] * 2
        return h


def test_no_step_changes_nothing():
    model = disc.compile(Overwritten(), (torch.randn(4, 3),), dynamic_shapes=({0: Dim("n", min=0, max=50)},))
    for n in (4, 0, 1, 2):
        x = torch.randn(n, 3)
        assert torch.equal(model(x), Overwritten()(x))


def test_a_range_of_one_step():
    """Code for chunks of which there is one: what a step appends need not be carried."""

    def chunked(x):
        length = x.shape[0]
        found, scales = [], []
        for offset in range(0, length, length):
            found.append(x[offset : offset + length] * 2)
            scales.append(None)
        halves = [x[offset : offset + length].sum() for offset in range(length, 3 * length, length)]
        return torch.stack(found), scales, torch.stack(halves)

    model = disc.compile(chunked, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
    for n in (5, 1, 2, 13, 40, 3):
        x = torch.randn(n, 3)
        (found, scales, halves), expected = model(x), chunked(x)
        torch.testing.assert_close((found, halves), (expected[0], expected[2]))
        assert scales == expected[1]


def test_a_range_from_a_size_on_is_one_loop():
    """The number of steps is known for all sizes, their numbers are not; data may leave the loop."""

    def continued(x):
        length = x.shape[0]
        y = torch.cat((x, x.new_zeros(length + 12, 3)))
        for position in range(length, length + 12):
            if (y[position - 1] > 100).all():
                break
            y[position] = y[position - 1] * 2 + 1
        return y

    model = disc.compile(continued, (torch.rand(5, 3),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
    assert model.ir("library").count("disc_tensor.loop") == 1
    for n in (5, 1, 2, 13, 40, 3):
        x = torch.rand(n, 3) * 8
        torch.testing.assert_close(model(x), continued(x))


def test_a_chain_of_branches_that_give_back_what_they_get():
    """What is used last has 2 ** 40 paths."""

    def swapped(x, flags):
        a, b = x + 1, x * 2
        for n in range(40):
            if flags[n]:
                a, b = b, a
        return a, b

    args = torch.randn(3, 4), torch.rand(40) > 0.5
    model = disc.compile(swapped, args, dynamic_shapes=({0: B}, {}))
    for batch in (3, 1, 8, 2):
        args = torch.randn(batch, 4), torch.rand(40) > 0.5
        torch.testing.assert_close(model(*args), swapped(*args))
