"""Products and attention end to end: layouts, types, epilogues, and sizes around the edges of tiles."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn, randn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

B, S, T = Dim("B", min=1, max=64), Dim("S", min=1, max=512), Dim("T", min=1, max=512)
SIZES = [(1, 1, 3), (3, 5, 2), (2, 14, 33), (1, 15, 16), (2, 31, 17), (1, 129, 64), (29, 2, 1)]
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.int64: 0.0}


class Module(nn.Module):
    def __init__(self, function, **weights):
        super().__init__()
        self.function = function
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight, requires_grad=False))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def self_attention(m, x):
    query, key, value = (heads(t, 3) for t in F.linear(x, m.w).chunk(3, -1))
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


def attend(m, q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


BS, BHS, BHT = {0: B, 1: S}, {0: B, 2: S}, {0: B, 2: T}
# name: function, weights, inputs for sizes b, s, t, dynamic shapes
CASES = {
    "left operand transposed": (
        lambda m, x: F.linear(x.mT, m.w),
        {"w": randn(50, 24)},
        lambda b, s, t: (randn(b, 24, s),),
        (BHS,),
    ),
    "weight on the left": (lambda m, x: m.w @ x, {"w": randn(24, 50)}, lambda b, s, t: (randn(b, 50, s),), (BHS,)),
    "batch broadcast": (lambda m, x: x @ m.w, {"w": randn(3, 20, 7)}, lambda b, s, t: (randn(b, 1, s, 20),), (BHS,)),
    "both transposed": (
        lambda m, x, y: x.mT @ y.mT,
        {},
        lambda b, s, t: (randn(b, 20, s), randn(b, t, 20)),
        (BHS, {0: B, 1: T}),
    ),
    "every size dynamic": (
        lambda m, x, y: x @ y,
        {},
        lambda b, s, t: (randn(b, s), randn(s, t)),
        ({0: B, 1: S}, {0: S, 1: T}),
    ),
    "vector on the right": (lambda m, x: x @ m.w, {"w": randn(20)}, lambda b, s, t: (randn(b, s, 20),), (BS,)),
    "sum over two dims": (
        lambda m, x: torch.einsum("bshd,hde->bse", x, m.w),
        {"w": randn(3, 8, 33)},
        lambda b, s, t: (randn(b, s, 3, 8),),
        (BS,),
    ),
    "result permuted": (
        lambda m, x: heads(F.linear(x, m.w, m.b), 3).relu(),
        {"w": randn(48, 24), "b": randn(48)},
        lambda b, s, t: (randn(b, s, 24),),
        (BS,),
    ),
    "epilogue reads permuted": (
        lambda m, x, y: F.linear(x, m.w) + y.mT,
        {"w": randn(48, 24)},
        lambda b, s, t: (randn(b, s, 24), randn(b, 48, s)),
        (BS, BHS),
    ),
    "left operand computed": (
        lambda m, x, y: F.linear(x * 2 + y, m.w),
        {"w": randn(3, 24)},
        lambda b, s, t: (randn(b, s, 24), randn(b, s, 24)),
        (BS, BS),
    ),
    "sum in blocks, rows copied": (
        lambda m, x: F.linear(x, m.w),
        {"w": randn(40, 4096)},
        lambda b, s, t: (randn(b, s, 4096),),
        (BS,),
    ),
    "integers": (
        lambda m, x, y: x @ y,
        {},
        lambda b, s, t: (torch.randint(-9, 9, (s, 20)), torch.randint(-9, 9, (20, t))),
        ({0: S}, {1: T}),
    ),
    "f64": (
        lambda m, x: F.linear(x, m.w),
        {"w": randn(50, 24).double()},
        lambda b, s, t: (randn(b, s, 24).double(),),
        (BS,),
    ),
    "f16": (lambda m, x, y: x @ y.mT, {}, lambda b, s, t: (randn(b, s, 20).half(), randn(b, s, 20).half()), (BS, BS)),
    "bf16": (
        lambda m, x: F.linear(x, m.w),
        {"w": randn(50, 24).bfloat16()},
        lambda b, s, t: (randn(b, s, 24).bfloat16(),),
        (BS,),
    ),
    "attention of one projection": (
        self_attention,
        {"w": randn(72, 24) / 5},
        lambda b, s, t: (randn(b, s, 24),),
        (BS,),
    ),
    "attention, mask of each query": (
        attend,
        {},
        lambda b, s, t: (randn(b, 3, s, 24), randn(b, 3, t, 24), randn(b, 3, t, 10), randn(s, t)),
        (BHS, BHT, BHT, {0: S, 1: T}),
    ),
    "attention, some see nothing": (
        attend,
        {},
        lambda b, s, t: (randn(b, 3, s, 24), randn(b, 3, t, 24), randn(b, 3, t, 10), torch.rand(b, 1, s, t) > 0.6),
        (BHS, BHT, BHT, {0: B, 2: S, 3: T}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_product(name):
    torch.manual_seed(0)
    function, weights, inputs, dynamic = CASES[name]
    module = Module(function, **weights)
    compiled = disc.compile(
        module, inputs(3, 6, 7), dynamic_shapes={"inputs": dynamic}, options=disc.Options(threads=2)
    )
    with torch.no_grad():
        for size in SIZES:
            args = inputs(*size)
            expected, actual = module(*args), compiled(*args)
            assert actual.shape == expected.shape and actual.dtype == expected.dtype
            scale = expected.double().abs().max().clamp(min=1e-9)
            error = ((actual.double() - expected.double()).abs().max() / scale).item()
            assert error <= TOLERANCE[expected.dtype], f"{size}: {error:.1e}"


@pytest.mark.parametrize("types", [(torch.int64, torch.float32), (torch.float16, torch.float32)])
@pytest.mark.parametrize("product", [F.linear, torch.matmul])
def test_factors_of_two_dtypes_are_an_error(product, types):
    x, w = torch.ones(3, 3, dtype=types[0]), torch.ones(3, 3, dtype=types[1])
    with pytest.raises(disc.UnsupportedOpError, match=r"must have the same dtype, but have torch\.\w+ and"):
        disc.compile(Module(lambda _, x, w: product(x, w)), (x, w))
    with torch.no_grad(), pytest.raises(RuntimeError, match="same dtype"):
        torch.compile(product, backend="disc")(x, w)
