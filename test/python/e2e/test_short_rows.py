"""Short inner dims (parts of complex numbers, colours, coordinates) and steps between elements.

Vectors read them whole and shuffle: at the edges of vectors and chunks, with inputs that end, or begin, where memory
ends or begins.
"""

import ctypes
import mmap
import platform

import pytest
import torch
from torch import nn
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)

PAGE = mmap.PAGESIZE
COUNTS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 64, 100, 511, 513, 1365, 1366, 2049, 6000)


def at_the_edge(x: torch.Tensor, end: bool) -> torch.Tensor:
    """A copy of ``x`` (contiguous) that ends where readable memory ends, or begins where it begins."""
    if x.numel() == 0:
        return x
    size = x.numel() * x.element_size()
    pages = -(-size // PAGE)
    area = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        assert libc.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0, ctypes.get_errno()
    offset = PAGE + (pages * PAGE - size if end else 0)
    copy = torch.frombuffer(area, dtype=x.dtype, count=x.numel(), offset=offset).view(x.shape)
    return copy.copy_(x)


def made(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    return x > 0 if dtype == torch.bool else x.to(dtype)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def reductions(x):
    return x.softmax(-1), x.log_softmax(-1), nn.functional.layer_norm(x, x.shape[-1:]), x.var(-1), x.logsumexp(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_reductions_of_short_rows(dtype):
    # A vector of rows at a time up to 64 elements: whole tiles, parts of them, and too few rows, at the ends of memory.
    bounds = {"rtol": 3e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    dims = ({0: Dim("rows", min=2), 1: Dim("columns", min=2)},)
    model = disc.compile(Function(reductions), (made((40, 40), dtype, 0),), dynamic_shapes=(dims,))
    for columns in (2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 63, 64, 65, 80):
        for rows in (2, 7, 8, 16, 19):
            x = made((rows, columns), dtype, rows * columns)
            for end in (False, True):
                for got, want in zip(model(at_the_edge(x, end)), reductions(x), strict=True):
                    torch.testing.assert_close(got, want, **bounds)


def row(x, w):
    return x * w + x


def column(x, w):
    return x + x[:, :1], x + x.sum(1, keepdim=True)


def stacks(x, w):
    return torch.stack([x, x + w], -1), torch.stack([x, -x, x * 2], -1).flatten(1)


def joins(x, w):
    return torch.cat([x, x * w], 1), torch.cat([x[:, 1:], x[:, :1]], 1), x.roll(1, 1)


def halves(x, w):
    n = x.shape[1] // 2
    return x[:, :n] * 2, x[:, n:] + w[n:], x[:, -1:] + 1


def steps(x, w):
    flat = x.flatten()
    return flat[::2] + 1, flat[1::3] * 2, flat[::5], x.flip(1) * 2, flat.flip(0) + 1


def numbers(x, w):
    places = torch.arange(x.shape[1])
    return torch.where(places % 2 == 0, x, w), x * places, x[:, places.flip(0)]


def outer(x, w):
    return x[:, :, None] + w, (x[:, None, :] * x[:, :, None]).flatten(1), x.t() + w[:, None]


def masked(x, w):
    return torch.where(x > w, x, w), (x > 0) & (w > 0), (x == w).to(torch.uint8)


FUNCTIONS = [row, column, stacks, joins, halves, steps, numbers, outer, masked]


WIDTHS = {
    torch.float32: (2, 3, 4, 5, 6, 8, 9),
    torch.int64: (2, 3, 4, 6, 9),
    torch.float64: (2, 3, 6),
    torch.float16: (2, 3, 6),
    torch.uint8: (2, 3, 4),
}


@pytest.mark.parametrize("width, dtype", [(width, dtype) for dtype in WIDTHS for width in WIDTHS[dtype]])
def test_short_rows(width, dtype):
    fns = FUNCTIONS if dtype.is_floating_point or dtype == torch.int64 else [stacks, steps, masked, joins]

    def everything(x, w):
        return tuple(fn(x, w) for fn in fns)

    example = made((11, width), dtype, 0), made((width,), dtype, 1)
    model = disc.compile(Function(everything), example, dynamic_shapes=(({0: Dim("n", min=0, max=100000)}, None),))
    for i, n in enumerate(COUNTS):
        end = bool(i % 2)
        x = at_the_edge(made((n, width), dtype, n), end)
        w = at_the_edge(made((width,), dtype, n + 1), end)
        closeness.check(everything, (x, w), model(x, w))


def complex_numbers(x, y):
    z, f = torch.view_as_complex(x), torch.view_as_complex(y)
    turned = z * f[None]
    return (
        torch.view_as_real(turned).flatten(2),
        torch.view_as_real(z.conj() + turned),
        z.abs(),
        turned.real,
        z.imag * 2,
    )


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", None])
def test_complex_numbers(cpu):
    if cpu and platform.machine() != "x86_64":
        pytest.skip("another architecture's CPU")
    example = torch.randn(3, 5, 8, 2), torch.randn(5, 8, 2)
    b, s = Dim("b", min=1, max=64), Dim("s", min=1, max=4096)
    options = disc.Options(cpu=cpu) if cpu else disc.Options()
    shapes = (({0: b, 1: s}, {0: s}),)
    model = disc.compile(Function(complex_numbers), example, dynamic_shapes=shapes, options=options)
    for i, (batch, length) in enumerate([(1, 1), (1, 2), (3, 7), (2, 33), (5, 128), (1, 513)]):
        x = at_the_edge(torch.randn(batch, length, 8, 2), bool(i % 2))
        y = at_the_edge(torch.randn(length, 8, 2), bool(i % 2))
        torch.testing.assert_close(model(x, y), complex_numbers(x, y))


def interleaved(x, c, s):
    even, odd = x[..., ::2], x[..., 1::2]
    return x * c + torch.stack((-odd, even), -1).flatten(-2) * s


@pytest.mark.parametrize("width", [2, 6, 16, 34, 64])
def test_interleaved_rotation(width):
    n = Dim("n", min=0, max=100000)
    example = tuple(torch.randn(5, width) for _ in range(3))
    model = disc.compile(Function(interleaved), example, dynamic_shapes=(({0: n}, {0: n}, {0: n}),))
    for i, count in enumerate(COUNTS):
        args = [at_the_edge(torch.randn(count, width), bool(i % 2)) for _ in range(3)]
        torch.testing.assert_close(model(*args), interleaved(*args))
