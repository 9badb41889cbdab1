"""Layers of codes: products with words of 4-bit codes at all numbers of rows, and libraries that keep 4 bits."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc.coded import CodedEmbedding, CodedLinear, Codes, packed

ROWS = Dim("rows", max=600)
EPS = torch.finfo(torch.float32).eps / 2


def layer(rows, columns, bits, group, zero=8, offsets=False):
    groups = columns // group
    if bits == 4:
        codes = packed(torch.randint(0, 16, (rows, columns)))
    else:
        codes, zero = torch.randint(-128, 128, (rows, columns), dtype=torch.int8), 0
    scales = torch.rand(rows, groups) * 0.1
    return CodedLinear(Codes(codes, scales, torch.rand(rows, groups) if offsets else None, zero, bits))


class Joined(nn.Module):
    """Several layers of one input, side by side."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return torch.cat([layer(x) for layer in self.layers], -1)


class OfColumns(Joined):
    """The same, of a transposed input."""

    def forward(self, x):
        return super().forward(x.t())


CASES = {
    "short groups": (Joined, [(20, 64, 4, 8)]),
    "one group": (Joined, [(20, 64, 4, 64, 3)]),
    "groups of 12 stay bytes": (Joined, [(50, 24, 4, 12)]),
    "deep": (Joined, [(33, 16384, 4, 32)]),
    "without a zero point": (Joined, [(7, 4096, 4, 32, 0)]),
    "one column": (Joined, [(1, 256, 4, 32)]),
    "offsets": (Joined, [(40, 96, 4, 32, 0, True)]),
    "several": (Joined, [(60, 128, 4, 32), (60, 128, 8, 32), (60, 128, 4, 16, 2)]),
    "columns": (OfColumns, [(300, 512, 4, 32, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_all_numbers_of_rows(name):
    torch.manual_seed(0)
    kind, shapes = CASES[name]
    module = kind(*(layer(*shape) for shape in shapes)).eval()
    columns = shapes[0][1]
    flip = kind is OfColumns
    example = torch.randn(3, columns).t() if flip else torch.randn(3, columns)
    model = disc.compile(module, (example,), dynamic_shapes=({1: ROWS} if flip else {0: ROWS},))
    for rows in (1, 2, 3, 4, 5, 7, 8, 13, 64, 257, 600, 2, 1, 3):
        x = torch.randn(rows, columns)
        got = model(x.t().contiguous() if flip else x)
        weight = torch.cat([part.weight for part in module.layers]).double()
        exact, size = x.double() @ weight.T, x.double().abs() @ weight.abs().T
        # Codes are uncentred, and each factor is a difference of two: as if numbers were 16 times as large.
        assert ((got - exact).abs() <= 16 * EPS * size).all(), rows


def test_an_embedding():
    torch.manual_seed(0)
    codes = Codes(packed(torch.randint(0, 16, (50, 64))), torch.rand(50, 2).half(), torch.rand(50, 2), 8, 4)
    module = CodedEmbedding(codes)
    model = disc.compile(module, (torch.zeros(3, 2, dtype=torch.int64),), dynamic_shapes=({0: ROWS},))
    for rows in (1, 2, 33, 600):
        ids = torch.randint(0, 50, (rows, 2))
        torch.testing.assert_close(model(ids), module(ids), rtol=1e-6, atol=1e-6)


def test_a_library_keeps_4_bits(tmp_path):
    sizes, stored = [], []
    for rows in (2048, 8192):
        torch.manual_seed(0)
        module = Joined(layer(rows, 1024, 4, 32))
        module.layers[0].scales = module.layers[0].scales.half()
        x, path = torch.randn(3, 1024), tmp_path / str(rows) / "m.so"
        path.parent.mkdir()
        disc.aot_compile(module, (x,), dynamic_shapes=({0: ROWS},), output=path)
        with torch.no_grad():
            torch.testing.assert_close(disc.load(path)(x), module(x), rtol=1e-4, atol=1e-2)
        sizes.append(sum(f.stat().st_size for f in path.parent.iterdir()))
        # Libraries have panels, whose scales are f32.
        stored.append(module.layers[0].codes.numel() + 4 * module.layers[0].scales.numel())
    # The code is the same.
    assert sizes[1] - sizes[0] <= 1.05 * (stored[1] - stored[0])


class Written(nn.Module):
    """Codes with a scale for each 32, as people write it; the view may come before the conversion or behind it."""

    def __init__(self, early: bool):
        super().__init__()
        self.early = early
        self.codes = nn.Buffer(torch.randint(-128, 128, (20, 96), dtype=torch.int8))
        self.scales = nn.Buffer(torch.rand(20, 3))

    def forward(self, x):
        groups = self.codes.view(20, 3, 32).float() if self.early else self.codes.float().view(20, 3, 32)
        return nn.functional.linear(x, (groups * self.scales.unsqueeze(-1)).view(20, 96))


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_plain_code(early, target):
    torch.manual_seed(0)
    module = Written(early)
    model = disc.compile(module, (torch.randn(3, 96),), dynamic_shapes=({0: ROWS},), target=target)
    assert " scales %" in model.ir("schedule")
    for rows in (1, 2, 16, 17, 65, 600):
        x = torch.randn(rows, 96)
        torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-2)
