"""Scripted and traced modules, whole or inside of others, from memory or from files, at many sizes."""

import io

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

N = Dim("n", min=1, max=99)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = 3

    def forward(self, x):
        if x.shape[0] > 3:
            x = x * 2
        if bool((x > 1).any()):
            x = x + 1
        return torch.relu(self.linear(x)) * self.factor


class Outer(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.part(x) + 1)


class Rows(nn.Module):
    """A list in a loop over a dynamic dim, a loop on data, a dict, an integer with a default."""

    def forward(self, x, step: int = 2):
        rows = []
        for i in range(x.size(0)):
            rows.append(x[i] + x[: i + 1].sum(0))
        y = torch.stack(rows)
        count = 0
        while bool(y.sum() < 50) and count < 4:
            y = y + step
            count += 1
        return {"y": y[:, ::2].to(torch.float64), "n": torch.full((y.size(1),), count)}, torch.arange(x.size(0))


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        y = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return nn.functional.log_softmax(self.last(y.view(x.shape[0], 4, -1).mean(-1)), dim=-1)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.layer = nn.GRU(4, 5, batch_first=True, bidirectional=True)

    def forward(self, ids):
        hidden, last = self.layer(self.table(ids))
        return hidden.sum(1), last


def from_file(module):
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def rows(n):
    return (torch.randn(n, 4),)


def pictures(n, h, w):
    return (torch.randn(n, 3, h, w),)


def texts(n, length):
    return (torch.randint(0, 11, (n, length)),)


ROWS = ({0: N},)
PICTURES = ({0: N, 2: 2 * Dim("h", min=2, max=40), 3: 2 * Dim("w", min=2, max=40)},)
TEXTS = ({0: N, 1: Dim("t", min=1, max=64)},)
CASES = {
    "scripted": (lambda: torch.jit.script(Branch()), rows, ROWS, [(5,), (1,), (3,), (40,)]),
    "scripted part": (lambda: Outer(torch.jit.script(Branch())), rows, ROWS, [(5,), (1,), (3,), (40,)]),
    "file": (lambda: from_file(torch.jit.script(Outer(Branch()))), rows, ROWS, [(5,), (1,), (3,), (40,)]),
    "loops": (lambda: torch.jit.script(Rows()), rows, ROWS, [(5,), (1,), (30,)]),
    "traced": (
        lambda: from_file(torch.jit.trace(Picture().eval(), pictures(2, 8, 10))),
        pictures,
        PICTURES,
        [(2, 8, 10), (1, 4, 4), (5, 12, 6)],
    ),
    "frozen": (
        lambda: torch.jit.freeze(torch.jit.script(Picture().eval())),
        pictures,
        PICTURES,
        [(2, 8, 10), (1, 4, 4), (5, 12, 6)],
    ),
    "encoder": (
        lambda: torch.jit.script(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()),
        lambda n, length: (torch.randn(n, length, 8),),
        TEXTS,
        [(3, 5), (1, 1), (2, 17)],
    ),
    "recurrent": (lambda: from_file(torch.jit.trace(Text(), texts(3, 5))), texts, TEXTS, [(3, 5), (1, 1), (2, 17)]),
}


@pytest.mark.parametrize("name", CASES)
def test_modules_of_torchscript(name):
    torch.manual_seed(0)
    make, inputs, shapes, sizes = CASES[name]
    module = make()
    model = disc.compile(module, inputs(*sizes[0]), dynamic_shapes=shapes)
    for size in sizes:
        given = inputs(*size)
        with torch.no_grad():
            expected = module(*given)
        torch.testing.assert_close(model(*given), expected, rtol=1e-4, atol=1e-5)


def test_changed_weights_of_a_scripted_part():
    torch.manual_seed(1)
    for module in (Outer(torch.jit.script(Branch())), from_file(torch.jit.script(nn.Linear(4, 4)))):
        model = disc.compile(module, rows(5), dynamic_shapes=ROWS)
        for n in (3, 8):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.mul_(1.5)
                x = torch.randn(n, 4)
                torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_scripted_module_is_left_as_it_was():
    part = torch.jit.script(Branch())
    module = Outer(part)
    disc.compile(module, rows(5), dynamic_shapes=ROWS)
    assert module.part is part and "forward" not in vars(module)


def test_an_operator_without_a_rule_names_the_module():
    library = torch.library.Library("disc_test_torchscript", "FRAGMENT")
    library.define("unknown(Tensor x) -> Tensor")
    library.impl("unknown", torch.clone, "CompositeExplicitAutograd")

    class Hidden(nn.Module):
        def forward(self, x):
            return torch.ops.disc_test_torchscript.unknown(x)

    with pytest.raises(disc.UnsupportedOpError, match="TorchScript Hidden"):
        disc.compile(torch.jit.script(Hidden()), (torch.randn(2, 3, 4),), dynamic_shapes=({0: N},))
