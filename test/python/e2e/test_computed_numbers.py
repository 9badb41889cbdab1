"""Numbers computed from sizes without an expression over them, as powers and roots; transforms of such lengths."""

import math

import pytest
import torch
from torch.export import Dim

import disc

N, M = Dim("n", min=1), Dim("m", min=1)
NUMBERS = {
    "the next power of two": lambda x: torch.zeros(2 ** math.ceil(math.log2(x.shape[0]))),
    "the next power of two by bits": lambda x: torch.zeros(1 << (x.shape[0] - 1).bit_length()),
    "padded to a power of two": lambda x: torch.nn.functional.pad(
        x, (0, 2 ** math.ceil(math.log2(x.shape[0])) - x.shape[0])
    ),
    "a root": lambda x: x.new_zeros(math.isqrt(x.shape[0])),
    "a divisor": lambda x: x.reshape(math.gcd(x.shape[0], 4), -1).sum(0),
    "exclusive or": lambda x: x * (x.shape[0] ^ 1) + (3 ^ x.shape[0]),
    "shifted": lambda x: x * (x.shape[0] << (x.shape[0] % 3)),
    "all states": lambda x: torch.zeros(2 ** (x.shape[0] % 7)),
}
SIZES = (5, 1, 2, 3, 4, 8, 9, 16, 17, 1)


@pytest.mark.parametrize("name", NUMBERS)
def test_number(name):
    function = NUMBERS[name]
    model = disc.compile(function, (torch.randn(5),), dynamic_shapes=({0: N},))
    for n in SIZES:
        x = torch.randn(n)
        torch.testing.assert_close(model(x), function(x))


def doubled(x):
    n = 1
    while n < x.shape[-1]:
        n *= 2
    return torch.fft.rfft(x, n)


TRANSFORMS = {
    "of a constant length": lambda x: torch.fft.fft(x, 8, norm="ortho"),
    "along another dim": lambda x: torch.fft.rfft(x.T, n=7, dim=0),
    "back": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=7),
    "twice as long": lambda x: torch.fft.ifft(x, n=2 * x.shape[-1]),
    "of selected elements": lambda x: torch.fft.rfft(x[x > 0], n=6),
    "of a length from a loop": doubled,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    function = TRANSFORMS[name]
    model = disc.compile(function, (torch.randn(2, 5),), dynamic_shapes=({1: N},))
    for n in SIZES:
        x = torch.randn(2, n)
        torch.testing.assert_close(model(x), function(x), rtol=1e-4, atol=1e-5)


def test_convolution_by_transforms():
    def convolved(x, kernel):
        n = x.shape[-1] + kernel.shape[-1] - 1
        length = 2 ** math.ceil(math.log2(n))
        return torch.fft.irfft(torch.fft.rfft(x, length) * torch.fft.rfft(kernel, length), length)[..., :n]

    model = disc.compile(convolved, (torch.randn(2, 6), torch.randn(4)), dynamic_shapes=({1: N}, {0: M}))
    for n, m in ((6, 4), (7, 2), (2, 11), (13, 5), (1, 3)):
        x, kernel = torch.randn(2, n), torch.randn(m)
        torch.testing.assert_close(model(x, kernel), convolved(x, kernel), rtol=1e-4, atol=1e-5)
