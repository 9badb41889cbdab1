"""Random programs against eager PyTorch: a fixed share of what `make fuzz-programs` draws, and what it once found."""

import pytest
import torch
from torch.export import Dim

import disc
from programs.__main__ import check_numbers
from programs.found import paths, read
from programs.run import BAD, check
from programs.run import compiled as compiled_program
from programs.ways import WAYS

SEED = 0


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 8, 16])
def test_share_of_random_programs(first):
    outcomes, _ = check_numbers(SEED, range(first, first + 8))
    bad = [f"{o.kind}: {o.text} at {dict(o.at)}\n{o.program.source}" for o in outcomes if o.kind in BAD]
    assert not bad, "\n".join(bad)
    assert sum(o.counts["agree"] for o in outcomes) > 50


def compiled(fn, *args):
    class Program(torch.nn.Module):
        def forward(self, *args):
            return fn(*args)

    shapes = ({d: Dim(f"d{d}", min=1) for d in range(args[0].dim())}, *({} for _ in args[1:]))
    return disc.compile(Program(), args, dynamic_shapes=(shapes,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_zeros_keep_their_sign(dtype):
    functions = (torch.sin, torch.tan, torch.tanh, torch.expm1, torch.relu, torch.nn.functional.relu6)
    x = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=dtype)
    model = compiled(lambda x: [f(x) for f in functions], x)
    for got, fn in zip(model(x), functions, strict=True):
        assert torch.equal(got.signbit(), fn(x).signbit()), fn


X = torch.complex(torch.linspace(-1, 2, 12), torch.linspace(1, -0.5, 12)).reshape(3, 4)
COMPLEX = {
    "sums of another dtype": lambda x: (x.sum(1, dtype=torch.float64), x.cumsum(0, dtype=torch.float32), x.mean(0)),
    "logic": lambda x: (torch.logical_xor(x, x * 0), torch.logical_and(x, x), torch.logical_or(x * 0, x)),
    "functions": lambda x: (torch.sinc(x), torch.exp2(x), torch.nn.functional.silu(x), torch.logaddexp(x, -x)),
    "products": lambda x: (torch.addmm(x[:, :3], x, x.mT, beta=2, alpha=3j), torch.outer(x[0], x[1])),
    "logsumexp": lambda x: (
        x.logsumexp(1),
        x.logsumexp((0, 1), keepdim=True),
        (x + 200).logsumexp(0),
        x[0, 0].logsumexp(0),
    ),
    "rms_norm": lambda x: torch.nn.functional.rms_norm(x, (4,)),
    "filling": lambda x: (x.index_fill(1, torch.arange(2), 2 - 1j), torch.fill(x, torch.tensor(3)), x[x.real > 0]),
    "convolution": lambda x: torch.nn.functional.conv1d(x[None], torch.ones(2, 3, 2, dtype=x.dtype) * 1j, padding=1),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    class Program(torch.nn.Module):
        def forward(self, x):
            return COMPLEX[name](x)

    model = disc.compile(Program(), (X,), dynamic_shapes=({1: Dim("n", min=4)},) if name == "logic" else None)
    got, want = model(X), COMPLEX[name](X)
    for g, w in zip(*(t if isinstance(t, tuple | list) else [t] for t in (got, want)), strict=True):
        torch.testing.assert_close(g, w)


def test_complex_input_updated_with_another():
    class Program(torch.nn.Module):
        def forward(self, x, y):
            y.copy_(x)
            return y.sum()

    sizes = {0: Dim("n", min=0), 1: Dim("m", min=2)}
    model = disc.compile(Program(), (X, X + 1), dynamic_shapes=(sizes, sizes))
    x, y = torch.cat([X, 2 * X]), torch.cat([X, X]) + 1
    torch.testing.assert_close(model(x, y), x.sum())
    assert torch.equal(y, x)


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.stem)
def test_program_that_failed_once(path):
    program, seed, way = read(path)
    outcome = check([program], seed, WAYS.get(way, compiled_program))[0]
    assert outcome.kind not in BAD, f"{outcome.text} at {dict(outcome.at)}"


@pytest.mark.parametrize("updated", [False, True])
def test_emulated_device_copies_misaligned_inputs(updated):
    class Program(torch.nn.Module):
        def forward(self, x):
            return x.add_(1) if updated else torch.where(x > 0, x, -x)

    model = disc.compile(Program(), (torch.arange(7),), dynamic_shapes=({0: Dim("n", min=0)},), target="cuda-emulated")
    for n in (1, 3, 4, 64):
        memory = torch.arange(n + 1)
        x = memory[1:]
        want = x + 1 if updated else x.clone()
        assert torch.equal(model(x), want)
        assert torch.equal(memory[1:], want)
