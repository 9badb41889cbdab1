"""Products whose left operand is the transpose of a row-major matrix, as the gradients of weights are."""

import pytest
import torch
from torch.export import Dim

import disc

TOLERANCES = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (2e-5, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}
DEPTHS = (65, 1, 64, 7, 128, 333, 0, 63, 2048, 2)
"""In place up to 64; 2048 is more than one block of k."""


class Product(torch.nn.Module):
    def forward(self, x, y):
        return x.mT @ y


class Computed(torch.nn.Module):
    """The left operand is computed inside the kernel, and the result goes on."""

    def forward(self, x, y):
        return torch.tanh((x * 2 + 1).mT @ y) + y.shape[0]


def check(module, shapes, dims, dtype, values):
    example = tuple(torch.randn(shape(5, 7, 11), dtype=dtype) for shape in shapes)
    dynamic = tuple({axis: Dim(name, min=low, max=high) for axis, (name, low, high) in of.items()} for of in dims)
    model = disc.compile(module, example, dynamic_shapes=dynamic)
    rtol, atol = TOLERANCES[dtype]
    for k, m, n in values:
        x, y = (torch.randn(shape(k, m, n), dtype=dtype) / max(k, 1) ** 0.25 for shape in shapes)
        expected = module(x.double(), y.double()).to(dtype)
        torch.testing.assert_close(model(x, y), expected, rtol=rtol, atol=atol)


K = ("k", 0, 4096)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("m, n", [(1, 33), (6, 24), (13, 17), (64, 128), (1024, 48)])
def test_static_sizes(dtype, m, n):
    check(
        Product(),
        (lambda k, *_: (k, m), lambda k, *_: (k, n)),
        ({0: K}, {0: K}),
        dtype,
        [(k, m, n) for k in DEPTHS],
    )


@pytest.mark.parametrize("module", [Product(), Computed()], ids=lambda module: type(module).__name__)
def test_dynamic_sizes(module):
    m, n = ("m", 1, 300), ("n", 1, 300)
    check(
        module,
        (lambda k, m, n: (k, m), lambda k, m, n: (k, n)),
        ({0: K, 1: m}, {0: K, 1: n}),
        torch.float32,
        [(k, m, n) for k in DEPTHS for m, n in ((1, 1), (5, 31), (300, 24), (24, 300), (97, 101), (6, 16))],
    )


@pytest.mark.parametrize("module", [Product(), Computed()], ids=lambda module: type(module).__name__)
def test_batches(module):
    check(
        module,
        (lambda k, m, n: (3, k, m), lambda k, m, n: (3, k, n)),
        ({1: K, 2: ("m", 1, 300)}, {1: K, 2: ("n", 1, 300)}),
        torch.float32,
        [(k, m, n) for k in (1, 64, 65, 300) for m, n in ((1, 1), (300, 24), (24, 300), (97, 101))],
    )
