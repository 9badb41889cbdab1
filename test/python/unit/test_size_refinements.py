"""What torch.export suggests for a dim, as a refinement of it, and as the line of Python to write."""

import pytest
import torch
from torch.export import Dim

import disc
from disc.frontend.readable import readable, short
from disc.frontend.size_refinements import applied, lines_to_write, suggested, written

TEXT = "Constraints violated (h)!\n  - Not all ...\n\nSuggested fixes:\n  {}\n"


def dims(**known):
    return (dict(enumerate(known.values())),)


@pytest.mark.parametrize(
    ("dim", "fixes", "line"),
    [
        (Dim("h", min=4, max=48), ("_h = Dim('_h', max=24)", "h = 2*_h"), 'h = 2 * Dim("h2", min=2, max=24)'),
        (Dim("h"), ("_h = Dim('_h', min=1, max=oo)", "h = 7*_h"), 'h = 7 * Dim("h7")'),
        (Dim("h", min=1), ("_h = Dim('_h', max=oo)", "h = 2*_h - 1"), 'h = 2 * Dim("h2", min=1) - 1'),
        (Dim("h"), ("h = Dim('h', max=64)",), 'h = Dim("h", max=64)'),
        (Dim("h", min=1, max=99), ("h = Dim('h', min=7)",), 'h = Dim("h", min=7, max=99)'),
        (Dim("h", max=32), ("h = Dim('h', max=64)",), None),
    ],
)
def test_refinements(dim, fixes, line):
    found = suggested(TEXT.format("\n  ".join(fixes)))
    new = applied(dims(h=dim), found)
    if line is None:
        assert new is None
        return
    shapes, lines = new
    assert lines == [line]
    assert written(shapes[0][0]) == line.removeprefix("h = ")


@pytest.mark.parametrize(
    ("fix", "line"), [("h = 8", "h = 8"), ("h = n", "h = n"), ("h = 2*n", "h = 2 * n"), ("h = n + 1", "h = n + 1")]
)
def test_what_is_left_to_the_user(fix, line):
    shapes = dims(h=Dim("h"), n=Dim("n"))
    found = suggested(TEXT.format(fix))
    assert applied(shapes, found) is None
    assert lines_to_write(shapes, found) == [line]


def test_one_requirement_that_cannot_be_applied_leaves_all_to_the_user():
    found = suggested(TEXT.format("h = Dim('h', max=64)\n  n = 8"))
    assert applied(dims(h=Dim("h"), n=Dim("n")), found) is None


def test_texts_without_suggestions():
    assert suggested("no such thing") == []
    assert suggested(TEXT.format("use something else entirely")) == []


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("Eq(Mod(L['x'].size()[0], 2), 0)", "x.shape[0] % 2 == 0"),
        ("Ne(L['args'][0].size()[1], 3)", "args[0].shape[1] != 3"),
        ("L['x'].size()[0] <= 64", "x.shape[0] <= 64"),
        ("7 <= L['x'].size()[1] and L['x'].size()[1] <= IntInfinity()", "7 <= x.shape[1]"),
        ("Eq(Max(L['x'].size()[0], 1), (L['x'].size()[0]//2))", "max(x.shape[0], 1) == (x.shape[0]//2)"),
    ],
)
def test_readable_conditions(condition, text):
    assert readable(condition) == text


def test_lines_of_packages_are_short():
    assert short("/a/lib/python3.11/site-packages/transformers/m.py:3") == "transformers/m.py:3"
    assert short("/home/u/model.py:3") == "/home/u/model.py:3"


class Halved(torch.nn.Module):
    """Down and up again, with a skip connection: sizes must be even."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(4, 4, 2, 2)

    def forward(self, x):
        x = self.down(x)
        return torch.cat([x, self.up(torch.nn.functional.max_pool2d(x, 2))], 1)


def test_a_batch_of_one_in_the_example_stays_dynamic_when_other_dims_are_refined():
    module = Halved().eval()
    side = Dim("side", min=4, max=64)
    with pytest.warns(UserWarning, match="side = 2 \\* Dim"):
        model = disc.compile(module, (torch.randn(1, 3, 8, 8),), dynamic_shapes=({0: Dim("batch", max=8), 2: side},))
    for shape in ((1, 3, 4, 8), (5, 3, 30, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(disc.ShapeError, match="a multiple of 2, got 5"):
        model(torch.randn(1, 3, 5, 8))
