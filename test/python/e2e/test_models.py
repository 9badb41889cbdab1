"""Models written only for tests, over ranks, dims and dtypes, against eager."""

import copy

import pytest
import torch
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map, tree_structure

import disc
from models import MLP, Broadcasts, Chain, Decoder, ExplicitAttention, Reductions
from shapes import SMALL_SIZES, shuffled_pairs

pytestmark = pytest.mark.share(3)

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=lambda d: str(d).removeprefix("torch.")
)


def exact(value):
    """The same model or inputs in double precision."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    return tree_map(lambda t: t.double() if t.is_floating_point() else t, value)


def check(compiled, module, args):
    """Compares with eager, and both with the result in double precision: we may err about as much as eager does."""
    with torch.inference_mode():
        expected = module(*args)
        truth = exact(module)(*exact(args))
    actual = compiled(*args)
    assert tree_structure(actual) == tree_structure(expected)
    for a, e, t in zip(tree_leaves(actual), tree_leaves(expected), tree_leaves(truth), strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        if not e.dtype.is_floating_point:
            assert torch.equal(a, e)
            continue
        allowance = 8 * torch.finfo(e.dtype).eps * max(1.0, t.abs().max().item())
        theirs = (e.double() - t).abs().max().item()
        ours = (a.double() - t).abs().max().item()
        assert ours <= 2 * theirs + allowance, f"error {ours:.2e}, eager's is {theirs:.2e}"


@DTYPES
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh", "sigmoid"])
def test_mlp(dtype, activation):
    module = MLP(activation=activation).to(dtype).eval()
    compiled = disc.compile(
        module, (torch.randn(4, 24, dtype=dtype),), dynamic_shapes=({0: Dim("n", min=1, max=4096)},)
    )
    for n in (*SMALL_SIZES, 1000):
        check(compiled, module, (torch.randn(n, 24, dtype=dtype),))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_mlp_of_any_rank(rank):
    module = MLP().eval()
    dims = {i: Dim(f"d{i}", min=1, max=64) for i in range(rank - 1)}
    compiled = disc.compile(module, (torch.randn(*[2 + i for i in range(rank - 1)], 24),), dynamic_shapes=(dims,))
    for size in (1, 2, 3, 7):
        check(compiled, module, (torch.randn(*[size + i % 2 for i in range(rank - 1)], 24),))


@DTYPES
def test_chain(dtype):
    module = Chain().to(dtype).eval()
    dims = {0: Dim("batch", min=1, max=256), 1: Dim("length", min=1, max=256)}
    compiled = disc.compile(module, (torch.randn(2, 3, 48, dtype=dtype),), dynamic_shapes=(dims,))
    for batch, length in shuffled_pairs((1, 2, 7, 33), (1, 3, 16, 65)):
        check(compiled, module, (torch.randn(batch, length, 48, dtype=dtype),))


@DTYPES
def test_decoder(dtype):
    module = Decoder().to(dtype).eval()
    dims = {0: Dim("batch", min=1, max=16), 1: Dim("length", min=1, max=128)}
    compiled = disc.compile(module, (torch.randint(101, (2, 5)),), dynamic_shapes=(dims,))
    for batch, length in shuffled_pairs((1, 2, 5, 16), (1, 2, 3, 15, 16, 17, 64, 127, 128)):
        check(compiled, module, (torch.randint(101, (batch, length)),))


@pytest.mark.parametrize("leading", [0, 1, 2, 3])
def test_attention_of_any_rank(leading):
    module = ExplicitAttention()
    queries, keys = Dim("queries", min=1, max=512), Dim("keys", min=1, max=512)
    batch = [Dim(f"b{i}", min=1, max=64) for i in range(leading)]

    def inputs(q, k, sizes):
        return (
            torch.randn(*sizes, q, 16),
            torch.randn(*sizes, k, 16),
            torch.randn(*sizes, k, 24),
            torch.randn(q, k),
        )

    def dims(*own):
        return {**dict(enumerate(batch)), **{leading + i: dim for i, dim in enumerate(own)}}

    compiled = disc.compile(
        module,
        inputs(4, 6, range(2, 2 + leading)),
        dynamic_shapes=(dims(queries), dims(keys), dims(keys), {0: queries, 1: keys}),
    )
    for q, k in [(1, 1), (1, 33), (17, 5), (64, 64), (15, 127)]:
        check(compiled, module, inputs(q, k, range(1, 1 + leading)))


@pytest.mark.parametrize(("rank", "dim"), [(r, d) for r in (1, 2, 3, 4) for d in range(-r, r)])
def test_reductions_along_any_dim(rank, dim):
    module = Reductions(dim)
    dims = {i: Dim(f"d{i}", min=1, max=128) for i in range(rank)}
    compiled = disc.compile(module, (torch.randn(*range(2, 2 + rank)),), dynamic_shapes=(dims,))
    for sizes in [[1] * rank, [17, 3, 5, 2][:rank], [2, 33, 1, 16][:rank], [3, 4, 15, 31][:rank]]:
        check(compiled, module, (torch.randn(*sizes),))


@DTYPES
def test_broadcasts(dtype):
    module = Broadcasts()
    n, m = Dim("n", min=1, max=100), Dim("m", min=1, max=100)

    def make(a, b):
        return (torch.randn(a, b, dtype=dtype), torch.randn(b, dtype=dtype), torch.randn(a, dtype=dtype))

    compiled = disc.compile(module, make(3, 4), dynamic_shapes=({0: n, 1: m}, {0: m}, {0: n}))
    for a, b in shuffled_pairs((1, 2, 31), (1, 16, 33)):
        check(compiled, module, make(a, b))


def test_static_shapes_compile_too():
    module = MLP().eval()
    compiled = disc.compile(module, (torch.randn(5, 24),))
    check(compiled, module, (torch.randn(5, 24),))
    with pytest.raises(disc.ShapeError):
        compiled(torch.randn(6, 24))


def test_an_exported_program_compiles():
    module = Chain().eval()
    args = (torch.randn(2, 3, 48),)
    exported = torch.export.export(module, args, dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    compiled = disc.compile(exported, args)
    check(compiled, module, (torch.randn(9, 3, 48),))


def test_keyword_arguments_and_nested_results():
    class Nested(torch.nn.Module):
        def forward(self, x, *, options):
            return {"sum": x + options["shift"], "pair": (x * 2, [options["shift"].exp()])}

    module = Nested()

    def make(n):
        return ((torch.randn(n, 8),), {"options": {"shift": torch.randn(8)}})

    args, kwargs = make(3)
    shapes = {"x": {0: Dim("n", min=1, max=64)}, "options": {"shift": None}}
    compiled = disc.compile(module, args, kwargs, dynamic_shapes=shapes)
    args, kwargs = make(17)
    actual, expected = compiled(*args, **kwargs), module(*args, **kwargs)
    assert actual.keys() == expected.keys()
    torch.testing.assert_close(actual, expected)
