"""Attention end to end, against eager in float64: masks of every kind, grouped queries, long and short rows."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(3)

B, L, S = Dim("B", min=1, max=8), Dim("L", min=1, max=1024), Dim("S", min=1, max=2048)
HEADS, SIZE = 4, 24
# A run of keys holds 252 scores per query with AVX-512 and 48 KiB of first-level cache.
SIZES = [(1, 1, 1), (2, 17, 5), (3, 32, 64), (1, 33, 252), (1, 7, 253), (2, 1, 300), (1, 40, 505), (1, 15, 1009)]
LOWEST = torch.finfo(torch.float32).min


def additive(*shape: int) -> Tensor:
    """Some keys are hidden by minus infinity, some all but hidden, and from some queries all are."""
    mask = torch.randn(shape)
    mask = mask.masked_fill(torch.rand(shape) > 0.6, -math.inf).masked_fill(torch.rand(shape) > 0.9, LOWEST)
    return mask.masked_fill(torch.rand(*shape[:-1], 1) > 0.9, -math.inf)


MASKS = {
    "none": (None, None),
    "of each key": (lambda b, l, s: torch.rand(b, 1, 1, s) > 0.4, {0: B, 3: S}),
    "bool": (lambda b, l, s: torch.rand(b, 1, l, s) > 0.7, {0: B, 2: L, 3: S}),
    "of each head": (lambda b, l, s: torch.rand(HEADS, l, 1) > 0.3, {1: L}),
    "additive": (lambda b, l, s: additive(l, s), {0: L, 1: S}),
    "additive of each key": (lambda b, l, s: additive(b, HEADS, 1, s), {0: B, 3: S}),
    "lowest": (lambda b, l, s: torch.full((b, 1, 1, s), LOWEST), {0: B, 3: S}),
}


class Attention(nn.Module):
    """Any of the above over `groups` heads of keys and values."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def inputs(b: int, l: int, s: int, mask, groups: int = HEADS) -> tuple[Tensor, ...]:
    q, k, v = torch.randn(b, HEADS, l, SIZE), torch.randn(b, groups, s, SIZE), torch.randn(b, groups, s, 10)
    return (3 * q, k, v) + ((mask(b, l, s),) if mask else ())


def double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def check(module: nn.Module, compiled: disc.Model, args: tuple[Tensor, ...], tolerance: float = 3e-6) -> None:
    actual = compiled(*args)
    expected = module(*map(double, args))
    assert actual.shape == expected.shape
    scale = max(expected.abs().max().item(), 1e-9)
    error = (actual.double() - expected).abs().max().item() / scale
    assert error <= tolerance, f"{[tuple(a.shape) for a in args]}: {error:.1e}"


def compile_attention(module: nn.Module, example: tuple[Tensor, ...], mask_dims) -> disc.Model:
    shapes = ({0: B, 2: L}, {0: B, 2: S}, {0: B, 2: S}) + ((mask_dims,) if mask_dims else ())
    names = ("q", "k", "v", "mask")[: len(shapes)]
    options = disc.Options(threads=2)
    return disc.compile(module, example, dynamic_shapes=dict(zip(names, shapes, strict=True)), options=options)


@pytest.mark.parametrize("groups", [HEADS, 2])
@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind: str, groups: int) -> None:
    torch.manual_seed(0)
    mask, dims = MASKS[kind]
    module = Attention(enable_gqa=groups != HEADS)
    compiled = compile_attention(module, inputs(2, 6, 7, mask, groups), dims)
    for b, l, s in SIZES:
        check(module, compiled, inputs(b, l, s, mask, groups))


def test_causal() -> None:
    torch.manual_seed(0)
    module = Attention(is_causal=True)
    compiled = compile_attention(module, inputs(2, 6, 7, None), None)
    for b, l, s in [*SIZES, (1, 300, 300), (2, 70, 33), (1, 513, 600)]:
        check(module, compiled, inputs(b, l, s, None))


def test_large_scores() -> None:
    """Maxima that grow by much from one run of keys to the next, and scores of any size."""
    module = Attention()
    compiled = compile_attention(module, inputs(2, 6, 7, None), None)
    q, k, v = inputs(1, 20, 900, None)
    check(module, compiled, (q, k * torch.linspace(0.01, 30, 900)[:, None], v), tolerance=1e-4)
    check(module, compiled, (q, k * torch.linspace(30, 0.01, 900)[:, None], v), tolerance=1e-4)


def test_not_a_number() -> None:
    """A NaN reaches the queries that see it, and no others."""
    module = Attention()
    compiled = compile_attention(module, inputs(2, 6, 7, None), None)
    q, k, v = inputs(1, 5, 300, None)
    q[0, 1, 3, 2] = math.nan
    actual, expected = compiled(q, k, v), module(q, k, v)
    assert torch.equal(actual.isnan(), expected.isnan())


@pytest.mark.parametrize("seed", range(6))
def test_random_masks(seed: int) -> None:
    """Any density of any mask that broadcasts, at any sizes."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda high: int(torch.randint(1, high, (), generator=generator))  # noqa: E731
    torch.manual_seed(seed)
    keeps = [bool(draw(3) - 1) for _ in range(4)]
    symbols = [B, None, L, S]
    groups = (1, 2, HEADS)[draw(4) - 1]

    def mask(b: int, l: int, s: int) -> Tensor:
        shape = [n if keep else 1 for n, keep in zip((b, HEADS, l, s), keeps, strict=True)]
        return additive(*shape) if seed % 2 else torch.rand(shape) > torch.rand(())

    dims = {i: d for i, (d, keep) in enumerate(zip(symbols, keeps, strict=True)) if keep and d is not None}
    module = Attention(enable_gqa=True)
    compiled = compile_attention(module, inputs(2, 6, 7, mask, groups), dims or None)
    for _ in range(4):
        args = inputs(draw(4), draw(80), draw(700), mask, groups)
        check(module, compiled, args)


def spelled_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / math.sqrt(SIZE) + mask, dim=-1) @ v


def filled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.where(mask, torch.matmul(q, k.transpose(2, 3)) * 0.3, torch.full([], LOWEST, dtype=q.dtype))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (torch.softmax((q @ k.mT).masked_fill(mask, -math.inf), -1) @ v).transpose(1, 2).flatten(2)


def repeated(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Keys and values of grouped heads, repeated; the causal mask is made here and added to the one of the input."""
    b, heads, s, _ = k.shape
    k, v = (
        x[:, :, None].expand(b, heads, HEADS // heads, s, x.shape[-1]).reshape(b, HEADS, s, x.shape[-1]) for x in (k, v)
    )
    causal = torch.full((q.shape[2], s), LOWEST, dtype=q.dtype).triu(1)
    scores = torch.matmul(q, k.transpose(2, 3)) * SIZE**-0.5 + mask
    return torch.matmul(torch.softmax(scores + causal, dim=-1, dtype=torch.float32).to(q.dtype), v)


SPELLED = {
    "mask added": (spelled_out, lambda b, l, s: torch.randn(b, 1, l, s), {0: B, 2: L, 3: S}, HEADS),
    "mask filled in": (filled, lambda b, l, s: torch.rand(b, 1, l, s) > 0.5, {0: B, 2: L, 3: S}, HEADS),
    "rows of nothing": (hidden, lambda b, l, s: torch.rand(l, s) > 0.4, {0: L, 1: S}, HEADS),
    "grouped": (repeated, lambda b, l, s: torch.randn(b, 1, 1, s), {0: B, 3: S}, 2),
}


@pytest.mark.parametrize("name", SPELLED)
def test_spelled_out(name: str) -> None:
    """Products around a softmax become attention, without a copy of keys, values or scores."""
    torch.manual_seed(0)
    function, mask, dims, groups = SPELLED[name]

    class Spelled(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            return function(q, k, v, mask)

    module = Spelled()
    compiled = compile_attention(module, inputs(2, 6, 7, mask, groups), dims)
    ir = compiled.ir("fusion")
    assert ir.count("disc_plan.kernel attention") == 1
    assert "disc_plan.kernel contraction" not in ir and "disc_plan.kernel row" not in ir
    for b, l, s in [(1, 1, 1), (2, 17, 5), (2, 1, 300), (1, 40, 505), (3, 9, 33)]:
        args = inputs(b, l, s, mask, groups)
        actual, expected = compiled(*args), module(*map(double, args))
        assert torch.equal(actual.isnan(), expected.isnan())
        scale = max(expected.nan_to_num().abs().max().item(), 1e-9)
        assert (actual.double() - expected).nan_to_num().abs().max().item() <= 1e-5 * scale, (b, l, s)


@pytest.mark.parametrize("groups", [HEADS, 1])
def test_appended(groups: int) -> None:
    """A decoder's step: keys and values grow by a row in the kernel that reads them, whatever their size."""
    torch.manual_seed(0)

    class Step(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor], mask: Tensor) -> tuple:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
            return y.transpose(1, 2).flatten(2), k, v

    def args(b: int, length: int, size: int) -> tuple:
        q, (k, v) = torch.randn(b, HEADS, 1, size), (torch.randn(b, groups, 1, size) for _ in range(2))
        past = torch.randn(b, groups, length, size), torch.randn(b, groups, length, size)
        return q, k, v, past, torch.rand(b, 1, 1, length + 1) > 0.2

    module = Step()
    for size in (SIZE, 64):
        past = Dim("P", min=1, max=8192)
        shapes = ({0: B}, {0: B}, {0: B}, ({0: B, 2: past}, {0: B, 2: past}), {0: B, 3: past + 1})
        compiled = disc.compile(module, args(2, 5, size), dynamic_shapes=shapes, options=disc.Options(threads=2))
        assert compiled.ir("fusion").count("disc_plan.kernel ") == 1
        for b, length in [(1, 1), (3, 15), (1, 16), (2, 63), (1, 64), (2, 127), (1, 300), (4, 2049)]:
            given = args(b, length, size)
            actual, expected = compiled(*given), module(*given)
            assert torch.equal(actual[1], expected[1]) and torch.equal(actual[2], expected[2])
            assert torch.allclose(actual[0], expected[0], atol=3e-6)


@pytest.mark.parametrize("keys", [14, 15, 252, 253, 256, 300, 505, 512])
@pytest.mark.parametrize("causal", [False, True])
def test_static_sizes(keys: int, causal: bool) -> None:
    """Sizes known at compile time: a run's tiles have other heights than those of all keys together."""
    module, args = Attention(is_causal=causal), inputs(1, keys, keys, None)
    check(module, disc.compile(module, args), args)


class _OfGpus(torch.nn.Module):
    """What ``scaled_dot_product_attention`` is in graphs that PyTorch traces for GPUs."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, q, k, v):
        aten = torch.ops.aten
        if self.kind == "efficient":
            return aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, True)[0]
        if self.kind == "flash":
            return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
        return aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, True, scale=0.5)[0]


@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn"])
def test_attention_of_gpus(kind):
    dtype = torch.float32 if kind == "efficient" else torch.float16
    example = tuple(torch.randn(2, 4, 8, 16, dtype=dtype) for _ in range(3))
    model = disc.compile(_OfGpus(kind), example, dynamic_shapes=({2: "length"},) * 3)
    for length in (1, 8, 13, 31):
        q, k, v = (torch.randn(2, 4, length, 16, dtype=dtype) for _ in range(3))
        wanted = F.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), is_causal=True, scale=0.5 if kind == "cudnn" else None
        )
        tolerance = 1e-6 if kind == "efficient" else 2e-3
        torch.testing.assert_close(model(q, k, v).double(), wanted, rtol=tolerance, atol=tolerance)


def test_rows_without_a_softmax():
    """Of rows that are all -inf _safe_softmax makes zeros; those with NaN or inf are NaN."""

    def safe(x):
        return torch.ops.aten._safe_softmax.default(x, dim=1)

    model = disc.compile(safe, (torch.rand(8, 4),), dynamic_shapes=({0: "rows", 1: "columns"},))
    for rows, columns in ((5, 4), (6, 1), (5, 37)):
        x = torch.randn(rows, columns)
        x[0, 0], x[1], x[2], x[3, -1] = torch.nan, -torch.inf, torch.nan, torch.inf
        x[4, 0] = -torch.inf
        torch.testing.assert_close(model(x), safe(x), equal_nan=True)
